"""Decides about one call of a run: whether it may be repeated, is in doubt, or needs the user's approval."""

from __future__ import annotations

from msgspec import structs

from plait.core import Call
from plait.core.errors import ConfigError
from plait.journal import codec
from plait.journal.effects import digest_of_call
from plait.runtime.bound_calls import BoundCall, replace_input
from plait.runtime.run_context import Approve, RunContext
from plait.tools.user_code import show_error
from plait.user_functions import call_plain


class CallPolicy:
    """What the marks of tools, the agent's policies and the run so far say about a call."""

    def __init__(self, run_context: RunContext) -> None:
        self._context = run_context
        self._tools = run_context.run_spec.tools

    def is_question(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is not None and tool.person

    def waits_always(self, call: Call) -> bool:
        """Return whether each call of the tool waits for the user, whatever the policy."""
        tool = self._tools.get(call.tool)
        return tool is not None and (tool.person or tool.requires_approval)

    def is_inline(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is None or tool.runs_inline

    def is_repeatable(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is None or tool.spec.repeatable

    def may_repeat(self, call: Call) -> bool:
        return self.is_repeatable(call) or self._context.run_spec.on_interrupted_call == "repeat"

    def is_lost(self, call: Call) -> bool:
        """The call began before, and the journal has lost the rows that say so."""
        lost = self._context.run_spec.past.lost
        return lost is not None and self.may_be_lost(call) and digest_of_call(self._context.log.run, call) in lost.calls

    def may_be_lost(self, call: Call) -> bool:
        """The journal may have lost rows that say that the call was made, perhaps in other words."""
        return self._context.run_spec.past.lost is not None and not self.may_repeat(call)

    def note_doubt(self, bound: BoundCall) -> None:
        """Whether this call took effect is not known."""
        self._context.calls_in_doubt.tree += map(self._tools.with_own_name, (bound.call, bound.written))

    def is_in_doubt(self, bound: BoundCall) -> bool:
        """The same call of the tree or the session may have taken effect, and it may not be repeated."""
        if self.may_repeat(bound.call) or not (known := self._context.calls_in_doubt.read_all()):
            return False
        names = {own: name for name, own in self._tools.own.items()}
        doubtful = (structs.replace(each, tool=names.get(each.tool, each.tool)) for each in known)
        return not self._forms(bound.call, bound.written).isdisjoint(self._forms(*doubtful))

    def _forms(self, *calls: Call) -> set[bytes]:
        """Return the recorded forms of calls: as they are, and as they are bound now, with defaults and without."""
        bound = [(call, each.call, each.written) for call in calls for each in (self._context.binder.bind(call),)]
        scrub = self._context.log.scrub  # the record of another run has no secrets
        return {scrub(codec.encode((each.tool, each.input))) for forms in bound for each in forms}

    def is_tainted(self, call: Call, fixed: bool) -> bool:
        """Return whether the call needs approval because of what the model has seen."""
        tool = self._tools.get(call.tool)
        return tool is not None and self._context.outside.needs_approval(tool.spec, fixed)

    def find_approvals(self, call: Call) -> list[str]:
        """Return the policies that want approval of a call, by their places."""
        asking = [f"approve {k}" for k, each in enumerate(self._context.run_spec.approve) if self._asks_for(each, call)]
        return [*asking, "tool"] if self.waits_always(call) else asking

    def _asks_for(self, approve: Approve, call: Call) -> bool:
        """Return whether a policy asks for approval of a call."""
        tool = self._tools.get(call.tool)
        if tool is None or approve == "never" or approve == "plan":
            return False
        if approve == "always":
            return True
        if approve == "effects":
            return tool.spec.has_effects
        try:
            return call_plain(approve, self._context.run_spec.tools.with_own_name(replace_input(call)))
        except (Exception, SystemExit) as why:
            raise ConfigError(
                f"The function approve= failed for a call of '{call.tool}': {show_error(why)}.",
                hint="Correct it, then resume the run.",
            ) from why

    def hands_off(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is not None and tool.spec.hand_off
