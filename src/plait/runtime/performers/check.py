"""The checks of a loop: questions that only guards answer. A check has no row but the decisions about it."""

from __future__ import annotations

from typing import Any

from plait.core import CheckAnswer
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
