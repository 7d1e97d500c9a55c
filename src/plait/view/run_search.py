"""The runs of a journal for the viewer's list: searched, active, changed, and forked.

A search covers the question and the answer (without an answer, the reason). Thoughts, observations and requests are not
searched.
"""

from __future__ import annotations

import asyncio
import time

from msgspec.structs import replace

from plait.core.errors import ConfigError
from plait.journal.records import RunRow
from plait.journal.run_query import RunQuery
from plait.journal.served_runs import UNNAMED
from plait.journal.store import Journal, NoJournal, wait_for

PAGE = 40
"""Runs on one page by default."""
MOST = 200
RECENT = 200
"""Number of the newest runs that are watched for changes, besides the active ones."""
UNFINISHED = ("running", "waiting", "interrupted")
EVERY = 0.9  # seconds between two readings of what has changed; a page asks once a second


def find_runs(journal: Journal, query: RunQuery) -> tuple[list[RunRow], bool]:
    """Return the first runs that match, and whether there are more. Raises `ConfigError`."""
    if not 1 <= query.limit <= MOST:
        raise ConfigError(f"A page can't have {query.limit} runs.", hint=f"Use 1 to {MOST}.")
    found = journal.find(replace(query, limit=query.limit + 1))
    return found[: query.limit], len(found) > query.limit


def find_unfinished(journal: Journal, label: str = "") -> list[RunRow]:
    """Return the active and the waiting runs, newest first; at most `MOST` of each. `label`: see `RunQuery`."""
    queries = [RunQuery(status=status, limit=MOST, label=label) for status in ("running", "waiting")]
    return sorted((row for query in queries for row in journal.find(query)), key=lambda row: -row.n)


def list_choices(journal: Journal, label: str = "") -> dict[str, list[str]]:
    """Return the values that a filter offers (`Store.list_values`). Leaves out sessions that clients did not name."""
    try:
        found = wait_for(journal.store.list_values(label))
    except NoJournal:
        found = {name: [] for name in ("loops", "sessions", "models", "agents", "users", "tags")}
    return {**found, "sessions": [name for name in found["sessions"] if not UNNAMED.search(name)]}


class ListWatch:
    """Finds which of the newest and the unfinished runs are new or changed, once for all pages that show the list."""

    def __init__(self, journal: Journal, label: str = "") -> None:
        self._journal, self._label = journal, label
        self._known: dict[int, tuple[int, RunRow]] = {}  # by number: the reading that found it like this
        self._newest = self._readings = 0
        self._reading: asyncio.Task[tuple[dict[int, tuple[int, RunRow]], int]] | None = None
        self._next = 0.0

    async def read(self, after: int) -> tuple[list[RunRow], int]:
        """Return the runs that are new or changed since the reading with the number `after` (0: all that are watched),
        the oldest first, and the number of the last reading. Reads the journal if `EVERY` has passed."""
        if self._reading is None or (self._reading.done() and time.monotonic() >= self._next):
            self._next = time.monotonic() + EVERY
            self._reading = asyncio.create_task(asyncio.to_thread(self._read))
        known, number = await asyncio.shield(self._reading)
        moved = [row for at, row in known.values() if at > after and row.head.caller is None]
        return sorted(moved, key=lambda row: row.n), number

    def _read(self) -> tuple[dict[int, tuple[int, RunRow]], int]:
        find, label, newest = self._journal.find, self._label, self._newest
        recent = find(RunQuery(children=True, limit=RECENT, label=label))
        if recent and recent[-1].n > newest > 0:  # more have begun since than are read at once
            recent += find(RunQuery(children=True, before=recent[-1].n, limit=recent[-1].n - newest, label=label))
        rows = {row.n: row for row in [*recent, *find_unfinished(self._journal, label)]}
        watched = {n for n, (_, row) in self._known.items() if row.status in UNFINISHED} - rows.keys()
        rows |= {row.n: row for row in (find(RunQuery(numbers=tuple(watched))) if watched else [])}
        # What is not watched any more is forgotten, after each page had time to read it: a page may be open for weeks.
        known = {n: each for n, each in self._known.items() if n in rows or each[0] > self._readings - 10}
        for n, row in rows.items():
            if n not in known or known[n][1] != row:
                known[n] = self._readings + 1, row
        self._known, self._newest, self._readings = known, max([newest, *rows]), self._readings + 1
        return known, self._readings
