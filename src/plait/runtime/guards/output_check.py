"""Checks the answers of a run against its output type and the user's own checks.

Theory of operation. `OutputGuard` objects to answers before the hooks see them. `AfterHooksGuard` comes after the
hooks. It counts the objections, whoever made them, and ends the run after one more than the model may answer. It also
checks the result of a call that ends the run, which hooks may have changed. The user's functions are called for new
answers only: a resumed run and a replay take the objections from the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.core import Answered, Call, CheckAnswer, Failed, Observation
from plait.runtime.agents.output import OutputType, remove_request
from plait.runtime.calls.context import Context
from plait.runtime.guard import LIMITS, OUTPUT, USERS, EndedByRefusal, Entry, Finish, Guard, Refuse


class OutputGuard(Guard):
    """Refuses an answer that does not fit the output, unless a limit leaves no call to write another one.
    `make_context` makes the context of a user's check. `is_near` says whether a limit is near."""

    order = OUTPUT
    name = "output"
    holds_text = may_ask = holds_for_children = False
    points_after = (CheckAnswer, Finish)

    def __init__(
        self, output: OutputType[Any], make_context: Callable[[Entry], Context[Any]], is_near: Callable[[], bool]
    ) -> None:
        self.output, self.is_near, self._make_context = output, is_near, make_context
        self.accepted: tuple[Any, ...] = ()
        """The value of the last answer that fits: it is not checked again."""

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        match entry.effect:
            case CheckAnswer(answer=answer) if fresh and result == "" and not self.is_near():
                if objection := self.find_objection(entry, answer):
                    return Refuse(objection)
            case Finish() if fresh and isinstance(result, Answered):  # a loop may have ended without a check
                if objection := self.find_objection(entry, result.answer):
                    entry.remark("output", objection)
                    return Failed(remove_request(objection), kind="output")
        return result

    def find_objection(self, entry: Entry, answer: Any) -> str:
        """Return what speaks against an answer: its type, then the user's checks; "" if it fits."""
        value = self.output.read(answer)
        if (answer,) == self.accepted or (value,) == self.accepted:
            return ""
        objection = self.output.find_objection(answer, self._make_context(entry))
        if not objection:
            self.accepted = (value,)
        return objection


class AfterHooksGuard(Guard):
    """Counts objections to answers, and checks the results of calls that end the run.

    Those of grounding and of calls in the background do not count: they have limits of their own. The performer of
    calls marks results that end the run (`Observation.ends`), those of hand-offs too.
    """

    order = (LIMITS + USERS) / 2
    name = "output_after_hooks"
    holds_text = may_ask = holds_for_children = False

    def __init__(self, output_guard: OutputGuard) -> None:
        output = output_guard.output
        self._guard = output_guard
        self._counted: set[str] = set()
        """The keys of the checks whose objections count."""
        self.points_after = (CheckAnswer, Call) if has_objections(output) else (CheckAnswer,)

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        match entry.effect:
            case CheckAnswer(answer=answer) if isinstance(result, str) and not self._guard.is_near():
                if not result and not fresh:
                    self._guard.accepted = (self._guard.output.read(answer),)
                elif result:
                    refused_by = {name for name, decision in entry.decided.items() if decision.action == "refuse"}
                    if refused_by and refused_by <= {"grounding", "background"}:
                        return result
                    if fresh and entry.key not in self._counted:
                        entry.remark("output", result)
                    self._counted.add(entry.key)
                    if fresh and len(self._counted) > self._guard.output.retries:
                        raise EndedByRefusal(remove_request(result), kind="output")
            case Call() if fresh and result.ok and result.ends:
                if objection := self._guard.find_objection(entry, result.value):
                    text = f"Error: the result of '{entry.effect.tool}' cannot be the answer. {objection}"
                    text += f"\nThe result: {result.text}"
                    note, seconds = result.note, result.seconds
                    return Observation(text, trouble="raised", note=note, seconds=seconds, outside=result.outside)
        return result

    def holds_result(self, entry: Entry, result: Any) -> bool:
        return bool(result.ends)


def make_output_guards(
    output: OutputType[Any], make_context: Callable[[Entry], Context[Any]], is_near: Callable[[], bool]
) -> list[Guard]:
    """Return the guards of an output. One without a type and checks has no objections to make, only to count."""
    guard = OutputGuard(output, make_context, is_near)
    return [guard, AfterHooksGuard(guard)] if has_objections(output) else [AfterHooksGuard(guard)]


def has_objections(output: OutputType[Any]) -> bool:
    """Return whether an answer may not fit the output: it has a type, or the user's checks."""
    return output.spec is not None or bool(output.checks)
