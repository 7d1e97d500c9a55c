"""The end of a run, as its guards see it."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from plait.core import Failed
from plait.journal.records import Asking
from plait.runtime.guard import Entry
from plait.runtime.performers.base import BasePerformer, quote


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
