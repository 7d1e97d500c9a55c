"""What the performers of all kinds of effects share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import UNSET

from plait.core.errors import BadInput
from plait.core.text import shorten
from plait.journal import codec
from plait.journal.entries import say_refused
from plait.journal.records import Asking, Decision
from plait.runtime.guard import EndedByRefusal, Entry
from plait.runtime.run_journal import EntryWork, FoundEntry

if TYPE_CHECKING:
    from plait.runtime.engine import Engine

SHOWN = 2_000
"""Characters of a result or an answer in a question to the user."""


class BasePerformer:
    """Does one kind of effect. It knows neither rows nor guards: the chain and the engine take each entry to it.

    Its first methods serve an effect of the loop, which may be several entries; the others serve one entry. A performer
    of entries that are not effects of the loop (a call of an act, an attempt) has only the latter.
    """

    work: str = ""
    """The name of the work in the record."""
    subject: ClassVar[tuple[str, str]] = ("request", "reply")
    """What it is called in words: the effect, and its result."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # -- an effect of the loop

    def step_of(self, effect: Any) -> int:
        """Return the turn of the loop that an effect belongs to."""
        return self.engine.steps

    async def take(self, key: str, effect: Any, *, started: bool, beside: int) -> Any:
        """Perform an effect of the loop, or return its recorded result."""
        step = self.engine.steps
        return await self.engine.perform(
            Entry(self.engine.run_id, key, step, effect, effect, started=started, beside=beside), self
        )

    async def prepare_raised(self, key: str, effect: Any) -> None:
        """Do what comes before the exception that the record has in place of this effect's result."""

    # -- an entry

    def bind(self, entry: Entry) -> None:
        """Set `entry.effect` to what guards see. Raises `BadInput`."""

    def rebind(self, entry: Entry, changed: Any, decision: Decision) -> None:
        """Take what a guard or the user made of the effect. Raises `BadInput`."""
        entry.effect = changed

    def restore(self, entry: Entry, found: FoundEntry) -> None:
        """Take what is on record of the effect. Raises `ReplayDiffers`, `BadInput`."""

    def describe_unbound(self, entry: Entry, why: BadInput) -> Any:
        """Return the result of an effect that cannot be bound."""
        raise why

    def describe(self, entry: Entry) -> EntryWork:
        """Return what the record holds of the entry."""
        return EntryWork(has_intent=False)

    async def perform(self, entry: Entry) -> tuple[Any, bytes | None]:
        """Do it. Return the result and the bytes that are recorded with it."""
        raise NotImplementedError

    def report_refused(self, entry: Entry, result: Any) -> None:
        """Report the result of an entry that was not done."""

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Any:
        """Return the result of a refused effect, or what replaces a withheld result. Raises `EndedByRefusal`."""
        if not by_user:
            raise EndedByRefusal(reason)
        raise EndedByRefusal(f"The {self.subject[is_after]} was refused: {say_refused(reason)}.")

    def ask(self, entry: Entry, question: str, result: Any) -> Asking:
        """Return the question to the user about the effect, or about its result."""
        if result is UNSET:
            return Asking("approval", question)
        return quote(question, self.subject[1], result)


def quote(question: str, what: str, value: Any) -> Asking:
    """Return a question for approval with the value that it is about."""
    text = value if isinstance(value, str) else codec.encode(value).decode()
    return Asking("approval", f"{question}\nThe {what}: {shorten(text, SHOWN)[0]}")
