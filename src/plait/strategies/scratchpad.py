"""The log of a run: turns as the model wrote them, and what was observed after each."""

from __future__ import annotations

from dataclasses import dataclass

from plait.core import Observation
from plait.formats import Turn


@dataclass(frozen=True)
class Scratchpad:
    """Thoughts, actions and observations so far. Growing one gives a new one; what was there stays as it was.

    Each entry is (the turn's text as the model wrote it, the observation whole). `after` is said behind the last one.
    """

    entries: tuple[tuple[str, str], ...] = ()
    after: str = ""

    def then(self, turn: Turn, observation: Observation) -> Scratchpad:
        """The log with one more turn and what came of it."""
        text = observation.text if not observation.note else f"{observation.text}\n({observation.note})"
        return Scratchpad((*self.entries, (turn.kept, text)))

    def once_more(self, words: str) -> Scratchpad:
        """The log without a turn that only repeated one, and a word about that behind what is last."""
        return Scratchpad(self.entries, words)

    @property
    def seen(self) -> tuple[str, ...]:
        """The observations."""
        return tuple(seen for _, seen in self.entries)

    @property
    def next(self) -> int:
        """The number of the turn that comes next, from 1."""
        return len(self.entries) + 1
