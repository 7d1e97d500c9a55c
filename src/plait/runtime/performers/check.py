"""What only guards decide: the checks of a loop, and the end of the run. They have no row but the decisions."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from plait.core import CheckAnswer, Failed
from plait.journal.entries import say_refused
from plait.journal.records import Asking
from plait.runtime.guard import Entry
from plait.runtime.performers.base import BasePerformer, quote


class Check(BasePerformer):
    """Performs `CheckAnswer`, with "" or the objection as its result, and `CheckGrounding`, with a tuple of values."""

    work = "check"
    subject = ("answer", "answer")

    async def perform(self, entry: Entry) -> tuple[Any, bytes | None]:
        return ("" if isinstance(entry.effect, CheckAnswer) else ()), None

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Any:
        if by_user:
            reason = f"The answer is not accepted: {say_refused(reason)}"
        return reason if isinstance(entry.effect, CheckAnswer) else (reason,)

    def ask(self, entry: Entry, question: str, result: Any) -> Asking:
        return quote(question, "answer", getattr(entry.effect, "answer", ""))


class End(BasePerformer):
    """The result of a `Finish` is the outcome: guards can change it. A refused one is `Failed`."""

    work = "end"
    subject = ("end", "final answer")

    def __init__(self) -> None:
        """It does nothing, so it needs no engine."""

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Any:
        if by_user:
            reason = f"The person refused the final answer{f': {reason}' if reason else ''}."
        return Failed(reason, kind="refused")

    def ask(self, entry: Entry, question: str, result: Any) -> Asking:
        answer = getattr(result, "answer", None)
        if result is UNSET or answer is None:
            return Asking("approval", question)
        return quote(question, "answer", answer)


END = End()
