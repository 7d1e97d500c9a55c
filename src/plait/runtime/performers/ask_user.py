"""Questions of a loop to the user."""

from __future__ import annotations

from typing import Any

from plait.core import AskUser
from plait.journal.records import Asking
from plait.runtime.guard import Entry, Suspend, make_open_question
from plait.runtime.performers.base import BasePerformer
from plait.runtime.run_journal import EntryWork, FoundEntry
from plait.runtime.run_spec import differs


class AskTheUser(BasePerformer):
    """Performs `AskUser`: the intent is the open question, and whoever answers it writes the result."""

    work = "question"
    subject = ("question", "answer")

    def restore(self, entry: Entry, found: FoundEntry) -> None:
        if not self.engine.journal.is_same(entry.effect.question, found.asked.text):
            # The user was asked something else: what they said to it is no answer to this.
            raise differs(entry.key, entry.step, found.asked.text, entry.effect.question)

    def describe(self, entry: Entry) -> EntryWork:
        effect: AskUser = entry.effect
        return EntryWork(Asking(effect.kind, effect.question))

    async def perform(self, entry: Entry) -> tuple[Any, bytes | None]:
        effect: AskUser = entry.effect
        raise Suspend(make_open_question(entry.run, entry.key, entry.step, Asking(effect.kind, effect.question)))
