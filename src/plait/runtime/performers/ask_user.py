"""Questions of a loop to the user, and how a run waits for answers."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from plait.core import AskUser, Waiting
from plait.journal.records import Asking
from plait.runtime.approvals import question_id
from plait.runtime.guard import Entry, Question, Suspend
from plait.runtime.performers.base import BasePerformer
from plait.runtime.run_journal import Found, Work
from plait.runtime.run_spec import differs


class AskTheUser(BasePerformer):
    """Performs `AskUser`: the intent is the open question, and whoever answers it writes the result."""

    work = "question"
    subject = ("question", "answer")

    def restore(self, entry: Entry, found: Found) -> None:
        asked = found.asked if isinstance(found.asked, Asking) else convert(found.asked, Asking)
        if not self.engine.journal.is_same(entry.effect.question, asked.text):
            # The user was asked something else: what they said to it is no answer to this.
            raise differs(entry.key, entry.step, asked.text, entry.effect.question)

    def describe(self, entry: Entry) -> Work:
        effect: AskUser = entry.effect
        return Work(Asking(effect.kind, effect.question))

    async def perform(self, entry: Entry) -> tuple[Any, bytes | None]:
        effect: AskUser = entry.effect
        raise Suspend(Question(entry.run, entry.key, effect.kind, effect.question))


def describe_waiting(why: Suspend) -> Waiting:
    """Return the outcome of a run that waits: with its first question."""
    first = why.questions[0]
    about = (first.call.tool, first.call.input) if first.call is not None else ("", None)
    return Waiting(first.kind, first.text, question_id(first.run, first.key), *about)
