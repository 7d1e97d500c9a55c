"""The lab's data in a journal: comparisons, results of cells, and users' ratings of runs.

A cell's run has the cell as its label from its first row. So if a process dies between the run's end and its result,
the lab finds the run again and does not repeat it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.journal import codec, reader, redaction
from plait.journal.records import RunRow
from plait.journal.store import Journal

_AT_ONCE = 500
"""Maximum values in one query, because SQLite limits them."""


class Kept(Struct, frozen=True):
    """A stored comparison: what was compared (`head`) and the last computed table (None: not yet), both JSON."""

    name: str
    started: float
    updated: float
    head: dict[str, Any]
    summary: dict[str, Any] | None


class Rating(Struct, frozen=True):
    run: str
    good: bool
    at: float
    why: str = ""


class Results:
    """Comparisons, results and ratings of a journal. Every method raises `JournalError` if the file cannot be used."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    # -- runs of cells

    def runs(self, labels: Iterable[str]) -> dict[str, list[RunRow]]:
        """Return the runs with these labels, newest first."""
        found: dict[str, list[RunRow]] = {}
        where = f"SELECT label, {reader.RUN} FROM runs WHERE label <> '' AND label IN (%s) ORDER BY n DESC"
        for label, *row in self._asked(where, labels):
            found.setdefault(label, []).append(reader.run_row(tuple(row), self.journal.path))
        return found

    # -- results

    def results(self, cells: Iterable[str]) -> dict[str, bytes]:
        """Return the JSON results of those cells that are finished."""
        return {
            cell: data.encode()
            for cell, data in self._asked("SELECT cell, data FROM results WHERE cell IN (%s)", cells)
        }

    async def keep(self, cell: str, run: str, data: bytes, *, secrets: Iterable[str] = ()) -> None:
        """Store the JSON result of a cell. A cell that has a result keeps the first."""
        values = (cell, run, time.time(), redaction.scrubber(secrets)(data).decode())
        await self._write("INSERT OR IGNORE INTO results (cell, run, at, data) VALUES (?, ?, ?, ?)", values)

    async def forget(self, cells: Iterable[str]) -> None:
        """Remove the results of these cells and the labels of their runs, so that they run again. The runs stay."""
        wanted = list(cells)

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM results WHERE cell = ?", [(cell,) for cell in wanted])
            connection.executemany(
                "UPDATE runs SET label = '' WHERE label <> '' AND label = ?", [(cell,) for cell in wanted]
            )

        await self.journal.writer().transact(work)

    # -- comparisons

    async def save(self, name: str, head: dict[str, Any], summary: dict[str, Any] | None = None) -> None:
        """Store a comparison, or replace it."""
        now = time.time()
        summary_text = codec.encode(summary).decode() if summary is not None else None
        await self._write(
            "INSERT INTO comparisons (name, started, updated, head, summary) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET updated = excluded.updated, head = excluded.head, "
            "summary = coalesce(excluded.summary, summary)",
            (name, now, now, codec.encode(head).decode(), summary_text),
        )

    def comparisons(self) -> list[Kept]:
        """Return all comparisons, newest first."""
        return [
            _kept(row)
            for row in self._all("SELECT name, started, updated, head, summary FROM comparisons ORDER BY started DESC")
        ]

    def comparison(self, name: str) -> Kept:
        """Return the comparison named `name`, or the only one whose name begins with it. "last" is the newest.

        Raises `ConfigError`, which lists the comparisons.
        """
        known = self.comparisons()
        found = [each for each in known if each.name == name] or [each for each in known if each.name.startswith(name)]
        if name == "last" and known:
            return known[0]
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.name for each in (found or known)[:8])
        if found:
            raise ConfigError(f"More than one comparison begins with {name!r}: {names}.", hint="Write more of it.")
        hint = f"There are: {names}." if names else "`plait compare` makes one."
        raise ConfigError(f"There is no comparison {name!r} in the journal {self.journal.path}.", hint=hint)

    # -- ratings

    async def rate(self, run: str, good: bool, why: str = "") -> Rating:
        """Store a user's rating of a run, in place of an earlier one. Raises `UnknownRun`."""
        rating = Rating(self.journal.run(run).head.run, good, time.time(), why)
        await self._write(
            "INSERT OR REPLACE INTO ratings (run, good, at, why) VALUES (?, ?, ?, ?)",
            (rating.run, int(good), rating.at, why),
        )
        return rating

    def ratings(self, runs: Iterable[str] | None = None) -> dict[str, Rating]:
        """Return the ratings of these runs, or of all."""
        columns = "run, good, at, why"
        found = (
            self._all(f"SELECT {columns} FROM ratings")
            if runs is None
            else self._asked(f"SELECT {columns} FROM ratings WHERE run IN (%s)", runs)
        )
        return {run: Rating(run, bool(good), at, why) for run, good, at, why in found}

    # -- inside

    def _asked(self, question: str, values: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        wanted = list(values)
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            yield from self._all(question % ",".join("?" * len(some)), some)

    def _all(self, question: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with reader.reading(self.journal.path) as connection:
                return connection.execute(question, values).fetchall()
        except reader.NoJournal:
            return []

    async def _write(self, statement: str, values: Sequence[Any]) -> None:
        await self.journal.writer().transact(lambda connection: connection.execute(statement, values))


def _kept(row: tuple[Any, ...]) -> Kept:
    name, started, updated, head, summary = row
    return Kept(name, started, updated, codec.decode_plain(head), codec.decode_plain(summary) if summary else None)
