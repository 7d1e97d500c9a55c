"""Writes and reads the rows of runs: their columns, check sums, and exact bodies.

Each row has a CRC-32 of its columns, so that a damaged one is found when it is read. Numbers without gaps show that
none is missing. SQLite answers for what it has confirmed: no row tells whether later ones were lost."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.records import Record, Row
from plait.journal.sqlite import bodies, connections, faults, schema

EventRow: TypeAlias = tuple[
    int, int, float, str, str, int | None, int | None, int | None, int | None, bytes | None, int
]
"""The columns of `events` but for its id, in order."""

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

READ_AT_MOST, KEEP_AT_MOST = 32 << 30, 1 << 30
"""Bytes of all bodies of a run: restored one after another (32 GiB), and in memory at once (1 GiB)."""


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


# -- check sums


def crc_of_begun(begun: Sequence[Any]) -> int:
    """Return the check sum of what a run's own row began with: the columns id, question, loop, parent, fork_at, head
    and session."""
    return zlib.crc32(repr(tuple(begun)).encode("utf-8", "surrogatepass"))


def crc_of_state(begun: int, status: str, owner: str, rows: int | None, outcome: str | None, totals: str) -> int:
    """Return the check sum of a run's own row; `begun` is that of what it began with."""
    return zlib.crc32(repr((status, owner, rows, outcome, totals)).encode("utf-8", "surrogatepass"), begun)


def crc_of_row(begun: int, columns: Sequence[Any]) -> int:
    """Return the check sum of a row: `columns` are seq, at, kind, data, base, head, tail, packed and body."""
    *others, body = columns
    whole = repr(others).encode("utf-8", "surrogatepass")
    return zlib.crc32(body, zlib.crc32(whole, begun)) if body is not None else zlib.crc32(whole, begun)


def check_run(connection: sqlite3.Connection, n: int, path: Path) -> int:
    """Return the check sum of what a run began with. Raises `JournalError` if the run's own row is damaged."""
    found = connection.execute(_OWN, (n,)).fetchone()
    begun = crc_of_begun(found[: len(_BEGUN)])
    if crc_of_state(begun, *found[len(_BEGUN) : -1]) != found[-1]:
        raise faults.damaged_rows(path, str(found[0]), "its own row in the table of runs is damaged")
    return begun


# -- reading


class Bodies:
    """Restores bodies in the order of rows. Keeps only the last of each phase, to save memory. `limit`: how many bytes
    they may have together, because each can repeat the one before."""

    def __init__(self, limit: int = READ_AT_MOST) -> None:
        self._left, self._limit = limit, limit
        self.last: dict[str, tuple[int, bytes]] = {}

    def restore(self, record: Record, seq: int, base: int | None, coded: tuple[Any, ...]) -> bytes | None:
        """Return the exact body of a row. Raises `bodies.Unrestorable`."""
        head, tail, packed, stored = coded
        if stored is None:
            return None
        phase = bodies.find_phase(record)
        before = self.last.get(phase) if phase is not None else None
        if base is not None and (before is None or before[0] != base):
            raise bodies.Unrestorable("the body that it refers to is not there")
        body = bodies.decode(bodies.Coded(head, tail, packed, stored), before[1] if before else None)
        self._left -= len(body)
        if self._left < 0:
            raise bodies.Unrestorable(f"the bodies up to it are longer than {self._limit >> 30} GiB")
        if phase is not None:
            self.last[phase] = (seq, body)
        return body


def iter_rows(connection: sqlite3.Connection, n: int, path: Path, restored: Bodies | None = None) -> Iterator[Row]:
    """Yield a run's rows in order, one at a time, up to the first damaged one. Without `restored` they have no bodies.
    Raises `JournalError` there, which names all damaged and missing rows of the run."""
    bad: list[str] = []
    run, count, place = "", None, 0
    begun = check_run(connection, n, path)
    try:
        for run, count, *columns, crc in connection.execute(_ROWS, (n,)):  # noqa: B007 - used below
            seq, at, kind, data, *coded = columns
            if seq is None:  # the run has no rows
                break
            try:
                columns[2:4] = kind.decode("utf-8", "surrogatepass"), data.decode("utf-8", "surrogatepass")
                is_whole = crc_of_row(begun, columns) == crc
            except (UnicodeDecodeError, AttributeError, TypeError):
                is_whole = False
            if seq == place and not is_whole:
                bad.append(f"row {seq} is damaged")
            elif seq != place:
                bad.append(_name_missing(place, seq))
            place = seq + 1
            if not bad:
                try:
                    record = codec.decode_record(columns[3])
                    body = restored.restore(record, seq, coded[0], tuple(coded[1:])) if restored is not None else None
                    yield Row(seq, connections.read_time(at), record, body)
                except (bodies.Unrestorable, JournalError) as why:
                    bad.append(f"row {seq} can't be read ({why})")
    except (sqlite3.DatabaseError, TypeError, AttributeError) as why:  # a damaged page, or a value of another type
        if not run or (isinstance(why, sqlite3.Error) and not faults.is_damaged(why)):
            raise
        bad.append(f"the rows from {place} on can't be read")
    if not bad and count is not None and count != place:
        bad.append(_name_missing(place, count))
    if bad:
        raise faults.damaged_rows(path, run, ", ".join(bad))


def find_damage(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Return what is wrong with the file and with each run, a sentence each."""
    found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)") if line != "ok"]
    wrong = [f"The file {path} is damaged: {line}." for line in found]
    for (n,) in connection.execute("SELECT n FROM runs ORDER BY n").fetchall():
        try:
            for _ in iter_rows(connection, n, path, Bodies()):
                pass
        except JournalError as why:
            wrong.append(why.message)
    return wrong


def _name_missing(first: int, end: int) -> str:
    return f"rows {first} to {end - 1} are missing" if end > first + 1 else f"row {first} is missing"


def read_new_rows(connection: sqlite3.Connection, n: int, after: int, until: int | None = None) -> list[Row]:
    """Return the rows of a run after `after`, up to `until`, without bodies. Unchecked, for following a live run."""
    query = "SELECT seq, at, data FROM events WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq"
    found = connection.execute(query, (n, after, 1 << 60 if until is None else until)).fetchall()
    return [Row(seq, connections.read_time(at), codec.decode_record(data)) for seq, at, data in found]


_ROWS = (
    "SELECT r.id, r.rows, e.seq, e.at, CAST(e.kind AS BLOB), CAST(e.data AS BLOB), e.base, e.head, e.tail, "
    "e.packed, e.body, e.crc FROM runs r LEFT JOIN events e ON e.run = r.n WHERE r.n = ? ORDER BY e.seq"
)
"""Reads the rows and their number in one statement, because another process may add some. Reads texts as bytes, because
damaged ones are not UTF-8."""
