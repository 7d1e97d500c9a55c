"""Decides about one call of a run: whether it may be repeated, is in doubt, or needs the user's approval."""

from __future__ import annotations

from contextlib import suppress

from plait.core import Call, Observation
from plait.core.errors import BadInput, ConfigError
from plait.journal import codec
from plait.journal.effects import digest_of_call
from plait.runtime.run_context import Approve, RunContext


class CallPolicy:
    """What the marks of tools, the agent's policies and the run so far say about a call."""

    def __init__(self, run_context: RunContext) -> None:
        self._context = run_context
        self._tools = run_context.run_spec.tools
        self._doubtful: set[bytes] = set()
        """The calls that are in doubt."""

    @property
    def has_doubts(self) -> bool:
        """Return whether a call of the run is in doubt."""
        return bool(self._doubtful)

    def is_question(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is not None and tool.person

    def waits_always(self, call: Call) -> bool:
        """Return whether each call of the tool waits for the user, whatever the policy."""
        tool = self._tools.get(call.tool)
        return tool is not None and (tool.person or tool.requires_approval)

    def is_inline(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is None or tool.inline

    def is_repeatable(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is None or tool.spec.repeatable

    def may_repeat(self, call: Call) -> bool:
        return self.is_repeatable(call) or self._context.run_spec.on_interrupted_call == "repeat"

    def is_lost(self, call: Call) -> bool:
        """The call began before, and the journal has lost the rows that say so."""
        lost = self._context.run_spec.past.lost
        return (
            lost is not None and not self.may_repeat(call) and digest_of_call(self._context.log.run, call) in lost.calls
        )

    def may_be_lost(self, call: Call) -> bool:
        """The journal may have lost rows that say that the call was made, perhaps in other words."""
        return self._context.run_spec.past.lost is not None and not self.may_repeat(call)

    def note_doubt(self, call: Call, observation: Observation) -> None:
        if observation.trouble == "in_doubt":
            self._doubtful.update(self._keys(call))

    def is_in_doubt(self, call: Call) -> bool:
        """The same call was made before, it is not known whether it took effect, and it may not be repeated."""
        return bool(self._doubtful) and not self.may_repeat(call) and not self._doubtful.isdisjoint(self._keys(call))

    def _keys(self, call: Call) -> set[bytes]:
        """Return the parts that identical calls share: the input as written, and as the tool takes it."""
        found = {codec.encode((call.tool, call.input))}
        tool = self._tools.get(call.tool)
        if tool is not None:
            with suppress(BadInput):
                args, kwargs = tool.bind(self._context.artifacts.fill_input(call.input, tool))
                found.add(repr((call.tool, args, sorted(kwargs.items()))).encode())
        return found

    def is_tainted(self, call: Call, fixed: bool) -> bool:
        """Return whether the call needs approval because of what the model has seen."""
        tool = self._tools.get(call.tool)
        return tool is not None and self._context.outside.needs_approval(tool.spec, fixed)

    def needs_approval(self, call: Call, fixed: bool) -> bool:
        if self.is_in_doubt(call) or self.waits_always(call) or self.is_tainted(call, fixed):
            return True
        return any(self._asks_for(policy, call) for policy in self._context.run_spec.approve)

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
            return approve(self._context.run_spec.tools.with_own_name(call))
        except (Exception, SystemExit) as why:
            raise ConfigError(
                f"The function approve= failed for a call of '{call.tool}': {type(why).__name__}: {why}.",
                hint="Correct it, then resume the run.",
            ) from why

    def hands_off(self, call: Call) -> bool:
        tool = self._tools.get(call.tool)
        return tool is not None and tool.spec.hand_off
