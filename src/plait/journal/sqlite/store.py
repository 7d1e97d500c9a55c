"""The journal in one SQLite file, with the record of every run.

Several processes, threads and event loops may use one file at once. What the file looks like stands in `schema.py` and
docs/journal.md; what a row means in `records.py`. Reads open a connection of their own, in a thread. What is written
goes through the process's one `Writer` of the file.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, TypeVar

from plait.core.errors import JournalError, RecordChanged, RunExists, UnknownRun
from plait.core.secrets import Scrubber
from plait.journal import codec, redaction
from plait.journal.claims import mark_lost, require_claimable, require_turn
from plait.journal.owner import owner_of_this_process
from plait.journal.records import LastTurn, Row, RunHead
from plait.journal.row_codec import (
    KEEP_AT_MOST,
    BegunRun,
    Bodies,
    RowWriter,
    crc_of_state,
    describe_run,
    read_time,
    scrub_contents,
)
from plait.journal.sqlite import connections, faults, queries, schema
from plait.journal.sqlite.holders import OwnerLock, hold_owner_lock, life_of_holder
from plait.journal.sqlite.log import SqliteLog
from plait.journal.sqlite.rows import END, add_rows, check_run, iter_rows
from plait.journal.sqlite.spending import SqliteSpending
from plait.journal.sqlite.writer import Writer
from plait.journal.store import ACTIVE, ENDED, KEEP_REQUESTS, CarriedRun, NoJournal, RecordAndBody, StoreInfo

T = TypeVar("T")

_BEGIN = (
    f"INSERT INTO runs ({', '.join(BegunRun._fields)}, status, owner, totals, started, updated, crc) "
    f"VALUES ({', '.join('?' * len(BegunRun._fields))}, 'running', ?, '{{}}', ?, ?, ?)"
)
_CLAIM = "UPDATE runs SET owner = ?, status = 'running', outcome = NULL, rows = NULL, updated = ?, crc = ? WHERE n = ?"
_ADD_CONTENT = "INSERT OR IGNORE INTO contents (digest, body) VALUES (?, ?)"
_KEEP = "INTO kept (kind, key, run, at, data) VALUES (?, ?, ?, ?, ?)"
_UNFINISHED = f"status NOT IN ({', '.join(f'{each!r}' for each in sorted(ENDED))})"
_RESTORED = (
    "After this run was last written, the journal came back from a backup, or its -wal file was damaged: what the run "
    "did last may not be on its record."
)
_PIECE = 200
"""Rows that are read at once when a run is read piece by piece."""

_going: weakref.WeakValueDictionary[tuple[str, str], SqliteLog] = weakref.WeakValueDictionary()
"""The logs of this process, by file and run: a run that was left behind here may be claimed here."""


class SqliteStore(SqliteSpending):
    """A `Store` in a file. Making one opens nothing; the file and its folder are made by the first run.

    `path` may be ":memory:" for a store that ends with its object, or from `at` with the process. `busy_seconds`: how
    long to wait for another process that holds the file's lock, PLAIT_BUSY_SECONDS (10) by default. `clock` gives
    seconds since 1970.
    """

    _shared: ClassVar[dict[Path, SqliteStore]] = {}
    _owner_lock: OwnerLock | None = None

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> SqliteStore:
        """Return the process's one store at a path: its connection stays open from run to run."""
        wanted = Path(path).expanduser()
        if wanted != connections.MEMORY:
            wanted = wanted.absolute()
        return cls._shared.setdefault(wanted, cls(wanted))

    async def close(self) -> None:
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None and writer.pid == os.getpid():
            await asyncio.to_thread(writer.close)

    # -- the record of a run

    async def begin(
        self,
        head: RunHead,
        owner: str,
        records: Sequence[RecordAndBody] = (),
        *,
        secrets: Iterable[str] = (),
        contents: Mapping[str, bytes] = MappingProxyType({}),
        after_turn: LastTurn | None = None,
    ) -> SqliteLog:
        writer, scrubber = self._open_writer(), redaction.scrubber(secrets)
        stored = scrub_contents(head, contents, scrubber)

        def work(connection: sqlite3.Connection) -> SqliteLog:
            self._hold_lock(owner)
            if after_turn is not None:
                last, status, holder = queries.last_turn(connection, head.session)
                going = _going.get((self._where, last.run))
                # A run that this process was performing may have been left behind.
                is_left = holder == owner_of_this_process() and (going is None or going.has_ended)
                if status != "running" or is_left or life_of_holder(self._file, holder) != "alive":
                    status = ""
                require_turn(head, after_turn, last, status)
            log = self._insert_run(connection, writer, head, owner, self._clock(), scrubber)
            connection.executemany(_ADD_CONTENT, stored.items())
            add_rows(connection, log.make_rows(records))
            return self._watch(log)

        return await writer.transact(work, is_short=not records and not stored)

    def _insert_run(
        self,
        connection: sqlite3.Connection,
        writer: Writer,
        head: RunHead,
        owner: str,
        started: float,
        scrubber: Scrubber,
        times: Iterator[float] | None = None,
    ) -> SqliteLog:
        begun = describe_run(head, scrubber)
        crc = begun.crc
        state = crc_of_state(crc, "running", owner, None, None, "{}")
        try:
            n = connection.execute(_BEGIN, (*begun, owner, started, started, state)).lastrowid or 0
        except sqlite3.IntegrityError:
            raise RunExists(head.run, self.place) from None
        clock = self._clock if times is None else partial(next, times)
        return SqliteLog(writer, n, head.run, RowWriter(scrubber, clock, crc), clock)

    async def claim(
        self,
        run: str,
        owner: str,
        *,
        force: bool = False,
        secrets: Iterable[str] = (),
        rows: int | None = None,
        records: Sequence[RecordAndBody] = (),
    ) -> SqliteLog:
        await self._read(lambda connection: None)  # a claim makes no file
        writer, scrubber = self._open_writer(), redaction.scrubber(secrets)

        def work(connection: sqlite3.Connection) -> SqliteLog:
            n, row = queries.find_run(connection, run, self.path)
            (seq,) = connection.execute("SELECT coalesce(max(seq), -1) + 1 FROM events WHERE run = ?", (n,)).fetchone()
            if rows is not None and rows != seq:
                hint = "Read it again, then go on with it."
                raise RecordChanged(f"Run {row.head.run} was changed by another process.", hint=hint)
            going = _going.get((self._where, row.head.run))
            is_going = going is not None and not going.has_ended
            require_claimable(row, life_of_holder(self._file, row.owner), is_going, force)
            self._hold_lock(owner)
            bodies = Bodies()
            for _ in iter_rows(connection, n, self.path, bodies):  # they are whole
                pass
            begun = check_run(connection, n, self.path)
            totals, updated = connection.execute("SELECT totals, updated FROM runs WHERE n = ?", (n,)).fetchone()
            crc = crc_of_state(begun, "running", owner, None, None, totals)
            connection.execute(_CLAIM, (owner, self._clock(), crc, n))
            lost = _RESTORED if updated < self._restored(connection) else ""
            log = SqliteLog(
                writer, n, row.head.run, RowWriter(scrubber, self._clock, begun, seq, bodies.last), self._clock
            )
            add_rows(connection, log.make_rows(mark_lost(records, lost)))
            return self._watch(log)

        return await writer.transact(work)

    async def read_rows(self, run: str, after: int = -1, *, until: int | None = None, bodies: bool = True) -> list[Row]:
        def read(connection: sqlite3.Connection) -> list[Row]:
            n, _ = queries.find_run(connection, run, self.path)
            if not bodies:
                query = "SELECT seq, at, data FROM events WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq"
                new = connection.execute(query, (n, after, 1 << 60 if until is None else until)).fetchall()
                return [Row(seq, read_time(at), codec.decode_record(data)) for seq, at, data in new]
            found = iter_rows(connection, n, self.path, Bodies(KEEP_AT_MOST))
            return [row for row in found if row.seq > after and (until is None or row.seq <= until)]

        return await self._read(read)

    async def iter_rows(self, run: str) -> AsyncGenerator[Row, None]:
        def read() -> Generator[Row, None, None]:
            with self._reading() as connection:
                yield from iter_rows(connection, queries.find_run(connection, run, self.path)[0], self.path, Bodies())

        def take(size: int) -> list[Row | Exception]:
            some: list[Row | Exception] = []
            with in_use:  # a piece may still be read after its reader was cancelled
                try:
                    for row in islice(found, size):
                        some.append(row)
                except Exception as why:  # what was read before is given first
                    some.append(why)
                if not size:
                    found.close()
            return some

        found, in_use = read(), threading.Lock()
        try:
            while some := await asyncio.to_thread(take, _PIECE):
                for each in some:
                    if isinstance(each, Exception):
                        raise each
                    yield each
        finally:
            await asyncio.to_thread(take, 0)

    # -- the index of all runs

    async def delete(self, runs: Iterable[str], *, skip_active: bool = False) -> int:
        await self._read(lambda connection: None)
        wanted = list(runs)

        def work(connection: sqlite3.Connection) -> int:
            is_there = "SELECT 1 FROM runs WHERE id = ?"
            left = [each for each in wanted if not skip_active or connection.execute(is_there, (each,)).fetchone()]
            found = [queries.find_run(connection, run, self.path) for run in left]
            found = [(n, row) for n, row in found if not (skip_active and row.status in ACTIVE)]
            for n, row in found:
                if row.status == "running" and life_of_holder(self._file, row.owner) == "alive":
                    raise JournalError(f"Run {row.head.run} is still going on.", hint="Stop it first, then delete it.")
                family = [(n, row.head.run)]
                for _, name in family:
                    children = f"SELECT n, id FROM runs WHERE {queries.CHILD}"
                    family += connection.execute(children, {"run": name}).fetchall()
                for each, name in family:
                    connection.execute("DELETE FROM events WHERE run = ?", (each,))
                    connection.execute("DELETE FROM runs WHERE n = ?", (each,))
                    connection.execute("DELETE FROM kept WHERE kind = 'rating' AND key = ?", (name,))
                    sent = "DELETE FROM kept WHERE kind = 'sent' AND key > ? || ' ' AND key < ? || '!'"
                    connection.execute(sent, (name, name))
                    connection.execute("DELETE FROM reservations WHERE run = ?", (name,))
            return len(found)

        return await self._open_writer().transact(work)

    async def compact(self) -> None:
        await self._read(lambda connection: None)

        def delete_unused(connection: sqlite3.Connection) -> None:
            old = self._clock() - KEEP_REQUESTS
            connection.execute("DELETE FROM kept WHERE kind = 'request' AND at < ?", (old,))
            unused = {digest for (digest,) in connection.execute("SELECT digest FROM contents")}
            if unused:
                for (head,) in connection.execute("SELECT head FROM runs WHERE instr(head, '\"digest\"')"):
                    unused.difference_update(re.findall("[0-9a-f]{64}", head))
                connection.executemany("DELETE FROM contents WHERE digest = ?", [(digest,) for digest in unused])

        await self._open_writer().transact(delete_unused)

        def work(writer: Writer) -> None:
            with writer.in_sqlite:
                try:
                    writer.connection().execute("VACUUM")
                    writer.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
                except sqlite3.Error as error:
                    raise faults.translate(error, self.path) from None

        await asyncio.to_thread(work, self._open_writer())

    async def add(self, runs: Sequence[CarriedRun]) -> bool:
        writer, heads = self._open_writer(), [codec.decode_head(each.head) for each in runs]

        def work(connection: sqlite3.Connection) -> bool:
            new = []
            for each, head in zip(runs, heads, strict=True):
                found = connection.execute("SELECT started, updated FROM runs WHERE id = ?", (head.run,)).fetchone()
                if found is None:
                    new.append((each, head))
                elif found != (each.started, each.updated):
                    return False
            for each, head in new:
                times = iter([at for at, *_ in each.rows])
                log = self._insert_run(connection, writer, head, "", each.started, redaction.scrubber(()), times)
                add_rows(connection, log.make_rows((codec.decode_record(data), body) for _, data, body in each.rows))
                connection.execute(END, log.make_ending(each.status, each.outcome, each.totals, each.updated))
                connection.executemany(_ADD_CONTENT, list(each.contents.items()))
            return True

        return await writer.transact(work)

    # -- what is kept about runs

    async def keep(self, kind: str, key: str, run: str, data: bytes, *, replace: bool = True) -> None:
        values = (kind, key, run, self._clock(), data.decode())
        changes = "run = excluded.run, at = excluded.at, data = excluded.data"
        otherwise = f"ON CONFLICT (kind, key) DO {f'UPDATE SET {changes}' if replace else 'NOTHING'}"
        await self._open_writer().transact(lambda connection: connection.execute(f"INSERT {_KEEP} {otherwise}", values))

    async def forget(self, kind: str, keys: Iterable[str], *, labels: bool = False) -> None:
        wanted = list(keys)

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM kept WHERE kind = ? AND key = ?", [(kind, key) for key in wanted])
            if labels:
                unlabel = "UPDATE runs SET label = '' WHERE label <> '' AND label = ?"
                connection.executemany(unlabel, [(key,) for key in wanted])

        await self._open_writer().transact(work)

    # -- the whole store

    async def is_holder_gone(self, owner: str) -> bool | None:
        life = await asyncio.to_thread(life_of_holder, self._file, owner)
        return None if life == "elsewhere" else life == "dead"

    async def check(self) -> list[str]:
        def read(connection: sqlite3.Connection) -> list[str]:
            found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)") if line != "ok"]
            wrong = [f"The file {self.path} is damaged: {line}." for line in found]
            for (n,) in connection.execute("SELECT n FROM runs ORDER BY n").fetchall():
                try:
                    for _ in iter_rows(connection, n, self.path, Bodies()):
                        pass
                except JournalError as why:
                    wrong.append(why.message)
            return wrong

        try:
            return await self._read(read)
        except UnknownRun:
            raise
        except JournalError as why:
            return [why.message]

    async def info(self) -> StoreInfo:
        def read(connection: sqlite3.Connection) -> StoreInfo:
            counts = connection.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events)").fetchone()
            pages, size = (connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "page_size"))
            return StoreInfo(self.place, schema.VERSION, counts[0], counts[1], pages * size, self._restored(connection))

        return await self._read(read)

    async def migrate(self) -> tuple[int, int]:
        await self.close()
        if self._is_memory or not self.path.exists():
            raise NoJournal(self.place)
        return await asyncio.to_thread(connections.migrate, self.path)

    async def mark_restored(self) -> int:
        await self._read(lambda connection: None)

        def work(connection: sqlite3.Connection) -> int:
            connection.execute(connections.MARK_LOSS, (repr(self._clock()),))
            return int(connection.execute(f"SELECT count(*) FROM runs WHERE {_UNFINISHED}").fetchone()[0])

        return await self._open_writer().transact(work, durable=True)

    # -- inside

    @property
    def _file(self) -> Path | None:
        return None if self._is_memory else self.path

    def _restored(self, connection: sqlite3.Connection) -> float:
        found = connection.execute("SELECT CAST(value AS REAL) FROM marks WHERE name = 'restored'").fetchone()
        return read_time(found[0]) if found is not None else 0.0

    def _hold_lock(self, owner: str) -> None:
        """Hold this process's lock beside the journal: it tells other namespaces that this process lives."""
        if not self._is_memory and (self._owner_lock is None or owner != self._owner_lock.owner):
            self._owner_lock = hold_owner_lock(self.path, owner)

    def _watch(self, log: SqliteLog) -> SqliteLog:
        _going[self._where, log.run] = log
        return log
