"""Asks the user about calls: where a policy wants it, where another guard has a reason, and where a call is in doubt.

A call is in doubt if it began and nobody knows whether it took effect: its process died, the run was stopped or
cancelled meanwhile, or it exceeded its time. An equal call of the tree of runs, or of the session, then needs approval.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec import structs

from plait.core import Call, Observation
from plait.core.errors import ConfigError, JournalError
from plait.journal import codec
from plait.journal.records import Asking, ChildEnd, Decision
from plait.runtime.calls.bound_calls import CallBinder, input_of, replace_input
from plait.runtime.calls_in_doubt import CallInDoubt, describe_doubt
from plait.runtime.guard import APPROVALS, AskApproval, Entry, Guard, Refuse, StartChild
from plait.runtime.reviewer import Reviewer, ReviewVerdict
from plait.runtime.run_spec import Approve
from plait.tools import Tool, Toolset
from plait.tools.user_code import show_error
from plait.user_functions import call_plain

DOUBT = "The same call was made before, and whether it took effect is not known."
LOST = "The journal may have lost rows of this run, so this call may have been made before."


class CallsInDoubt:
    """The calls in doubt of a tree of runs, with their tools' own names. All runs of the tree have the same object."""

    def __init__(self) -> None:
        self._calls: dict[bytes, CallInDoubt] = {}
        self._unreadable: JournalError | None = None

    def add(self, calls: Iterable[CallInDoubt] | JournalError) -> None:
        """Add calls, or why those of the session's earlier turns cannot be read."""
        if isinstance(calls, JournalError):
            self._unreadable = calls
        else:
            self._calls.update((codec.encode(each), each) for each in calls)

    def drop(self, id: tuple[str, str]) -> None:
        """Remove a call whose end is known now."""
        self._calls = {form: each for form, each in self._calls.items() if (each.run, each.key) != id}

    def join(self, other: CallsInDoubt) -> None:
        """Take over what another object has."""
        self._calls |= other._calls
        self._unreadable = self._unreadable or other._unreadable

    def read_all(self) -> list[CallInDoubt]:
        """Return all calls. Raises `JournalError` for an unreadable turn."""
        if self._unreadable is not None:
            raise self._unreadable
        return list(self._calls.values())


class ApprovalsGuard(Guard):
    """Decides for which calls the user is asked. One question names all reasons.

    `policies` are those of the run and of the runs above it: a call needs approval if one of them says so. `scrub`
    removes secrets, as the record does. `repeats` says that calls in doubt are repeated, so nobody is asked about them.
    `is_damaged`: the journal may have lost rows of this run. `ask_reviewer` has a reviewer look at a call.
    `calls_in_doubt` are those of the run so far and of its child runs, `session_calls` those of earlier turns, or why
    they cannot be read. Both have the tools' own names.
    """

    name = "approvals"
    order = APPROVALS
    points = (Call,)
    points_after = (Call, StartChild)

    def __init__(
        self,
        policies: Iterable[Approve],
        tools: Toolset,
        binder: CallBinder,
        scrub: Callable[[bytes], bytes] = bytes,
        *,
        repeats: bool = False,
        is_damaged: bool = False,
        calls_in_doubt: Iterable[CallInDoubt] = (),
        session_calls: Iterable[CallInDoubt] | JournalError = (),
        ask_reviewer: Callable[[Entry, Reviewer], Awaitable[ReviewVerdict]] | None = None,
    ) -> None:
        self._ask_reviewer = ask_reviewer or _find_no_reviewer
        self._set_policies(policies)
        self._tools, self._binder, self._scrub, self._repeats = tools, binder, scrub, repeats
        self._is_damaged = is_damaged
        self.tree = CallsInDoubt()
        self._own = CallsInDoubt()
        """Those of this run and of its child runs."""
        self._named: set[tuple[str, str]] = set()
        """Entries that the user approved though they are in doubt, and those that an earlier process has begun."""
        self._note(calls_in_doubt)
        self.tree.add(session_calls)

    def _set_policies(self, policies: Iterable[Approve]) -> None:
        """Set the policies. If none asks, only doubts about calls with effects and other guards give a reason to."""
        self.policies = tuple(policies)
        self.may_ask = any(each not in ("never", "plan") for each in self.policies)

    # -- before a call

    async def before(self, entry: Entry) -> Any:
        call, tool = entry.effect, entry.tool
        if tool is None or tool.person:  # the call itself is a question
            return call
        reasons = entry.reasons
        if not self._may_repeat(entry):
            reasons = self._find_reasons(entry)
        asking = self._find_policies(tool, call)
        if not reasons and asking and all(k >= 0 and isinstance(self.policies[k], Reviewer) for k in asking):
            return await self._review(entry, [self.policies[k] for k in sorted(asking)])
        return _ask(entry, reasons) if reasons or asking else call

    async def _review(self, entry: Entry, reviewers: Iterable[Any]) -> Any:
        """Return what reviewers decide about a call: all must approve it. The record has each verdict."""
        assert entry.tool is not None
        for each in reviewers:
            if entry.outside and not each.after_outside:
                said = ReviewVerdict("ask", f"the run has read content from outside ({', '.join(entry.outside)})")
            else:
                said = await self._ask_reviewer(entry, each)
            entry.remark("review", f"{said.verdict}: {said.reason}")
            if said.verdict == "refuse":
                return Refuse(f"The reviewer refused this call: {said.reason}")
            if said.verdict == "ask":
                return _ask(entry, [f"The reviewer leaves it to you: {said.reason}."])
        return entry.effect

    async def confirm(self, entry: Entry, asked: Asking, decision: Decision) -> Any:
        """Ask once more if something speaks against the call that the user has not read.

        The doubt may have come after the question. An edited input is approved for the policies and the reasons that
        had asked about the input before.
        """
        reasons = self._find_reasons(entry)
        # A doubt is about this very input: an edited one was not the question's.
        named = {*asked.reasons} - ({DOUBT} if decision.action == "edit" else set())
        is_named = {DOUBT, LOST}.isdisjoint({*reasons} - named)
        is_asked = True
        if decision.action == "edit" and asked.call is not None:
            topics = set(map(_topic, asked.reasons))
            policies = self._find_policies(entry.tool, entry.effect) - self._find_policies(entry.tool, asked.call)
            is_asked = not policies and all(_topic(each) in topics for each in reasons if each != DOUBT)
        if not (is_named and is_asked):
            return _ask(entry, reasons)
        self.restore(entry, decision)
        return entry.effect

    def restore(self, entry: Entry, decision: Decision | None) -> None:
        if not entry.recorded and (entry.begun or (decision is not None and self._is_in_doubt(entry))):
            self._named.add(entry.id)

    def refuse_late(self, entry: Entry) -> str:
        """Return why a call that has waited for its tool is not made after all; "" if it is."""
        if entry.id in self._named or not self._is_in_doubt(entry):
            return ""
        return f"'{entry.effect.tool}' was not called. {DOUBT}"

    def _find_reasons(self, entry: Entry) -> list[str]:
        reasons = list(entry.reasons)
        if self._is_damaged and not self._may_repeat(entry):
            reasons.append(LOST)
        if self._is_in_doubt(entry):
            reasons.append(DOUBT)  # it is the last
        return reasons

    def _find_policies(self, tool: Tool | None, call: Call) -> set[int]:
        """Return the places of the policies that want approval of a call; -1 stands for the tool's own mark."""
        found = {k for k, approve in enumerate(self.policies) if self._asks_for(approve, tool, call)}
        return found | {-1} if tool is not None and tool.requires_approval else found

    def _asks_for(self, approve: Approve, tool: Tool | None, call: Call) -> bool:
        if tool is None or approve == "never" or approve == "plan":
            return False
        if approve == "always":
            return True
        if approve == "effects" or isinstance(approve, Reviewer):
            return tool.spec.has_effects
        try:
            return call_plain(approve, self._tools.with_own_name(replace_input(call)))
        except (Exception, SystemExit) as why:
            raise ConfigError(
                f"The function approve= failed for a call of '{call.tool}': {show_error(why)}.",
                hint="Correct it, then resume the run.",
            ) from why

    # -- doubts

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self._named.discard(entry.id)
        self.recall(entry, result)
        return result

    def holds_result(self, entry: Entry, result: Any) -> bool:
        return False

    def recall(self, entry: Entry, result: Any) -> None:
        if isinstance(result, ChildEnd):
            carried = result.totals.get("guards", {}).get(self.name) or ()
            self._note(CallInDoubt(run, key, Call(tool, given)) for run, key, tool, given in carried)
        elif isinstance(result, Observation) and result.trouble == "in_doubt":
            self._note(self._list_doubts(entry))
        elif isinstance(result, Observation):
            self.tree.drop(entry.id)
            self._own.drop(entry.id)

    def release(self, entry: Entry) -> None:
        self._named.discard(entry.id)
        repeatable = entry.tool is None or entry.tool.spec.repeatable
        if entry.begun and not entry.recorded and not repeatable:  # the run was cancelled, or a limit has stopped it
            self._note(self._list_doubts(entry))
            entry.remark("in_doubt", f"{describe_doubt(entry.effect)} Its input: {input_of(entry.effect, entry.bound)}")

    def _list_doubts(self, entry: Entry) -> Iterable[CallInDoubt]:
        return (CallInDoubt(*entry.id, self._tools.with_own_name(each)) for each in _list_forms(entry))

    def _note(self, calls: Iterable[CallInDoubt]) -> None:
        found = list(calls)
        self.tree.add(found)
        self._own.add(found)

    def _may_repeat(self, entry: Entry) -> bool:
        return self._repeats or entry.tool is None or entry.tool.spec.repeatable

    def _is_in_doubt(self, entry: Entry) -> bool:
        """Return whether the same call of the tree or the session may have taken effect, and may not be repeated."""
        if self._may_repeat(entry) or not (known := self.tree.read_all()):
            return False
        names = {own: name for name, own in self._tools.own.items()}
        doubtful = (structs.replace(each.call, tool=names.get(each.call.tool, each.call.tool)) for each in known)
        return not self._encode(_list_forms(entry)).isdisjoint(self._encode(doubtful))

    def _encode(self, calls: Iterable[Call]) -> set[bytes]:
        """Return the recorded forms of calls: as they are, and as they are bound now, with defaults and without."""
        bound = [(call, each.call, each.written) for call in calls for each in (self._binder.bind(call),)]
        # The record of another run has no secrets.
        return {self._scrub(codec.encode((each.tool, each.input))) for forms in bound for each in forms}

    # -- child runs

    def carry(self) -> list[Any] | None:
        return [[each.run, each.key, each.call.tool, each.call.input] for each in self._own.read_all()] or None

    def for_child(self, own: Guard | None) -> Guard:
        """Return one guard with the policies of both runs. It shares the doubts of the tree."""
        child = copy.copy(own if isinstance(own, ApprovalsGuard) else self)
        child._own, child._named = CallsInDoubt(), set()
        if isinstance(own, ApprovalsGuard):
            child._set_policies((*self.policies, *own.policies))
            child._is_damaged |= self._is_damaged  # the lost rows may be those of this very child run
            child._own.join(own._own)
            self.tree.join(own.tree)
            child.tree = self.tree
        return child


async def _find_no_reviewer(entry: Entry, reviewer: Reviewer) -> ReviewVerdict:
    return ReviewVerdict("ask", "nobody can ask it here")


def _ask(entry: Entry, reasons: Iterable[str]) -> AskApproval:
    given = input_of(entry.effect, entry.bound)
    return AskApproval(f"May '{entry.effect.tool}' be called with {given}?", tuple(reasons))


def _list_forms(entry: Entry) -> list[Call]:
    """Return a call with its defaults and without them."""
    return [entry.effect] if entry.bound is None else [entry.bound.call, entry.bound.written]


def _topic(reason: str) -> str:
    """Return what a reason is about: what stands behind a colon or in brackets differs from input to input."""
    return reason.partition(":")[0].partition("(")[0]
