"""What the calls of one turn have brought, until the next effect comes."""

from __future__ import annotations

from plait.core import Observation
from plait.journal.keys import read_key
from plait.runtime.guard import Entry


class LastAct:
    """The results of one effect's calls, in the order they were told last.

    Calls of one turn must not know of each other. Some of them may wait for the user while others have results: the
    guards are told these, admit the rest, and are told all of them again in their order. So a guard takes note of
    results only when another effect comes. Then its state is the same however often the run was interrupted.
    """

    def __init__(self) -> None:
        self._n = -1
        self._results: dict[tuple[str, str], tuple[Entry, Observation]] = {}

    def add(self, entry: Entry, result: Observation) -> None:
        """Keep the result of a call. Call `close` first."""
        self._results.pop(entry.id, None)
        self._results[entry.id] = (entry, result)

    def holds(self, key: str) -> bool:
        """Return whether a call is one of this effect's."""
        return read_key(key).n == self._n

    def close(self, key: str = "") -> list[tuple[Entry, Observation]]:
        """Return the calls and results of the effect before, once, if `key` belongs to another effect."""
        n = read_key(key).n
        if n == self._n:
            return []
        self._n, closed, self._results = n, list(self._results.values()), {}
        return closed
