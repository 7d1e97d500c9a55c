"""Copies a run from another journal, row by row and byte for byte.

carried = pack(other, run)           # plain values, ready for `msgspec.msgpack`
await adopt(journal, [carried])      # adds the run; repeating it changes nothing
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from plait.core.errors import JournalError
from plait.journal import reader, schema
from plait.journal.store import Journal

CarriedRow: TypeAlias = tuple[int, float, str, str, int | None, int | None, int | None, int | None, bytes | None, bytes]
"""The columns of `events` without its id and the run's number, in order."""

_RUN = tuple(each.name for each in schema.RUNS.columns[1:])
_ROW = tuple(each.name for each in schema.EVENTS.columns[2:])
_INSERT_RUN = f"INSERT INTO runs ({', '.join(_RUN)}) VALUES ({', '.join('?' * len(_RUN))})"
_INSERT_ROW = f"INSERT INTO events (run, {', '.join(_ROW)}) VALUES ({', '.join('?' * (len(_ROW) + 1))})"


class Carried(Struct, frozen=True):
    """A finished run on its way from one journal to another.

    `run` has the columns of its row in `runs` without its number. `rows` are the rows of its record, from a journal of
    this `version`. `contents` are its attached files, by digest. Secrets are already replaced, as in the other journal.
    """

    version: int
    run: dict[str, Any]
    rows: tuple[CarriedRow, ...]
    contents: dict[str, bytes] = {}


def pack(journal: Journal, run: str) -> Carried:
    """Return a run with its record. Raises `JournalError` if the run has not ended or does not exist."""
    with reader.reading(journal.path) as connection:
        connection.execute("BEGIN")  # one state of the file for both reads
        n, row = reader.find(connection, run, journal.path)
        if row.outcome is None:
            raise JournalError(f"Run {row.head.run} has not ended ({row.status}): it can't be carried over yet.")
        values = connection.execute(f"SELECT {', '.join(_RUN)} FROM runs WHERE n = ?", (n,)).fetchone()
        rows = connection.execute(f"SELECT {', '.join(_ROW)} FROM events WHERE run = ? ORDER BY seq", (n,)).fetchall()
        contents = {each.digest: reader.read_content(connection, each, journal.path) for each in row.head.attachments}
        return Carried(reader.version(connection), dict(zip(_RUN, values, strict=True)), tuple(rows), contents)


async def adopt(journal: Journal, runs: Sequence[Carried]) -> bool:
    """Add runs to a journal, all or none, in this order. Skips a run that the journal already has.

    Returns False, and writes nothing, if a different run has one of the ids. Raises `JournalError` for runs from a
    journal of another version, for a record with a gap, and if the file cannot be written.
    """
    for each in runs:
        if each.version != schema.VERSION or set(each.run) != set(_RUN):
            raise JournalError(
                f"Run {each.run.get('id')} comes from a journal of version {each.version}, and this one is of "
                f"version {schema.VERSION}.",
                hint="Use the same version of Plait on both machines.",
            )
        if [row[0] for row in each.rows] != list(range(each.run["rows"] or 0)):
            raise JournalError(f"Run {each.run['id']} came with {len(each.rows)} of its {each.run['rows']} records.")

    def work(connection: sqlite3.Connection) -> bool:
        new = []
        for each in runs:
            asked = "SELECT head, started FROM runs WHERE id = ?"
            there = connection.execute(asked, (each.run["id"],)).fetchone()
            if there is None:
                new.append(each)
            elif there != (each.run["head"], each.run["started"]):
                return False
        for each in new:
            n = connection.execute(_INSERT_RUN, [each.run[name] for name in _RUN]).lastrowid
            connection.executemany(_INSERT_ROW, [(n, *row) for row in each.rows])
            connection.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", list(each.contents.items()))
        return True

    return await journal.writer().transact(work)
