"""Writes and reads the rows of runs in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from plait.core.errors import UnknownRun
from plait.journal.records import Row
from plait.journal.row_codec import Bodies, RowReader, crc_of_begun, crc_of_state, damaged_rows
from plait.journal.sqlite import connections, faults, schema

EventRow: TypeAlias = tuple[
    int, int, float, str, str, int | None, int | None, int | None, int | None, bytes | None, int
]
"""The columns of `events` but for its id, in order: the run's number, and `RowColumns`."""

Ending: TypeAlias = tuple[str, str, str, int, float, int, int]
"""status, outcome, totals, rows, updated, crc, n: what ends a run's row."""

_COLUMNS = tuple(each.name for each in schema.EVENTS.columns[1:])
_PLACES = f"({','.join('?' * len(_COLUMNS))})"
_INSERT = f"INSERT INTO events ({','.join(_COLUMNS)}) VALUES "
INSERTS = tuple(_INSERT + ",".join([_PLACES] * count) for count in range(17))
"""The statement for so many rows at once."""
_MOST = len(INSERTS) - 1
END = "UPDATE runs SET owner = '', status = ?, outcome = ?, totals = ?, rows = ?, updated = ?, crc = ? WHERE n = ?"
_BEGUN = ("id", "question", "loop", "parent", "fork_at", "head", "session")
"""The columns of `runs` that never change."""
_STATE = ("status", "owner", "rows", "outcome", "totals")
_OWN = f"SELECT {', '.join(_BEGUN)}, {', '.join(_STATE)}, crc FROM runs WHERE n = ?"


def insert(connection: sqlite3.Connection, rows: Sequence[EventRow], endings: Sequence[Ending] = ()) -> None:
    """Write rows and ends of runs in one transaction. Raises sqlite3.Error; nothing is written then."""
    if len(rows) <= _MOST and not endings:
        if rows:  # one statement is a transaction of its own, and saves two
            connection.execute(INSERTS[len(rows)], list(chain.from_iterable(rows)))
        return
    with connections.transaction(connection):
        add_rows(connection, rows)
        for ending in endings:
            connection.execute(END, ending)


def add_rows(connection: sqlite3.Connection, rows: Sequence[EventRow]) -> None:
    """Write rows in the transaction that is open."""
    # Few statements: after each one, a thread may have to wait for the interpreter's lock.
    for first in range(0, len(rows), _MOST):
        some = rows[first : first + _MOST]
        connection.execute(INSERTS[len(some)], list(chain.from_iterable(some)))


def check_run(connection: sqlite3.Connection, n: int, path: Path) -> int:
    """Return the check sum of what a run began with. Raises `JournalError` if the run's own row is damaged."""
    if (found := connection.execute(_OWN, (n,)).fetchone()) is None:
        raise UnknownRun("The run was deleted while it was read.", hint="`plait runs` lists the others.")
    begun = crc_of_begun(found[: len(_BEGUN)])
    if crc_of_state(begun, *found[len(_BEGUN) : -1]) != found[-1]:
        raise damaged_rows(path, str(found[0]), "its own row in the table of runs is damaged")
    return begun


def iter_rows(connection: sqlite3.Connection, n: int, path: Path, restored: Bodies | None = None) -> Iterator[Row]:
    """Yield a run's rows in order, one at a time, up to the first damaged one. Without `restored` they have no bodies.
    Raises `JournalError` there, which names all damaged and missing rows of the run."""
    reader = RowReader(check_run(connection, n, path), restored)
    run, count = "", None
    try:
        for run, count, *columns in connection.execute(_ROWS, (n,)):  # noqa: B007 - used below
            if columns[0] is None:  # the run has no rows
                break
            if (row := reader.read(columns)) is not None:
                yield row
    except (sqlite3.DatabaseError, TypeError, AttributeError) as why:  # a damaged page, or a value of another type
        if not run or (isinstance(why, sqlite3.Error) and not faults.is_damaged(why)):
            raise
        reader.break_off()
    if wrong := reader.end(count):
        raise damaged_rows(path, run, wrong)


_ROWS = (
    "SELECT r.id, r.rows, e.seq, e.at, CAST(e.kind AS BLOB), CAST(e.data AS BLOB), e.base, e.head, e.tail, "
    "e.packed, e.body, e.crc FROM runs r LEFT JOIN events e ON e.run = r.n WHERE r.n = ? ORDER BY e.seq"
)
"""Reads the rows and their number in one statement, because another process may add some. Reads texts as bytes, because
damaged ones are not UTF-8."""
