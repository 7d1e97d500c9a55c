"""One thread's connection to the journal file: commits rows, and waits while another process has the lock.

Theory of operation. SQLite allows one writer at a time and a commit takes about 25 us, so commits are made
right here on the event loop. What must never happen is that the loop stands still because another process
holds the lock: no statement waits inside SQLite (timeout 0); a locked commit is tried again after an
`asyncio.sleep`, until `busy_seconds` are over.

When one run is going on, its rows are committed at once: no turn of the loop is lost. When several are, what
they append in one turn of the loop is committed together at the turn's end, which costs half as much CPU.

A row that could not be committed goes back to its run's log, in front of the line, and whoever appended it
gets a `JournalError`: the next append tries it again first. So a run's rows have no gap, ever.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from plait.core.errors import JournalError
from plait.journal import faults, opening, schema
from plait.user_files import hold_inodes, release_inodes

T = TypeVar("T")

EventRow: TypeAlias = tuple[
    int, int, float, str, str, int | None, int | None, int | None, int | None, bytes | None, bytes
]
"""The columns of `events` but for its id, in order."""

Ending: TypeAlias = tuple[str, str, str, int, float, bytes, int]
"""status, outcome, totals, rows, updated, state, n: what ends a run's row."""

_COLUMNS = tuple(each.name for each in schema.EVENTS.columns[1:])
_PLACES = f"({','.join('?' * len(_COLUMNS))})"
_INSERT = f"INSERT INTO events ({','.join(_COLUMNS)}) VALUES "
INSERTS = tuple(_INSERT + ",".join([_PLACES] * count) for count in range(17))
"""The statement for so many rows at once."""
_END = "UPDATE runs SET owner = '', status = ?, outcome = ?, totals = ?, rows = ?, updated = ?, state = ? WHERE n = ?"


class Log(Protocol):
    """A writer's link to a run's log, which gets back the rows that could not be written."""

    def take_back(self, rows: Sequence[EventRow]) -> None:
        """Put rows in front of the line."""
        ...


class Item(NamedTuple):
    """Rows of one append, with the run's ending if it ends, and who waits until when."""

    log: Log
    rows: Sequence[EventRow]
    ending: Ending | None
    future: asyncio.Future[None]
    until: float


class _Done:
    """An awaitable that has its result already, and costs no turn of the loop."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE: Awaitable[None] = _Done()


class Writer:
    """The connection of one thread to one journal file. Opened when first used."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.path = path
        self.busy_seconds = busy_seconds
        self.logs: weakref.WeakSet[Any] = weakref.WeakSet()
        """The runs going on through this writer."""
        self.pid = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._inode = (0, 0)
        self._queue: list[Item] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retrying: asyncio.Task[None] | None = None

    # ---- the connection

    @property
    def idle(self) -> bool:
        """Nothing waits to be written."""
        return not self._queue

    def connection(self) -> sqlite3.Connection:
        """The open connection; opens (and makes) the file if need be. Raises sqlite3.Error, JournalError."""
        if self._connection is None:
            self._connection, self._inode = opening.open_connection(self.path)
            self._release = weakref.finalize(self, release_inodes, hold_inodes(self.path))
        return self._connection

    def is_current(self) -> bool:
        """The file that is open still stands at the path (it is not deleted or replaced)."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return self._connection is not None and (found.st_dev, found.st_ino) == self._inode

    def close(self) -> None:
        """Close the connection. The last one of all processes folds the -wal file into the journal."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._release()

    # ---- writing

    def submit(self, log: Log, rows: Sequence[EventRow], ending: Ending | None = None) -> Awaitable[None]:
        """Write the rows, in order, and the ending. Done when awaited; raises JournalError here or there."""
        if not self._queue and len(self.logs) <= 1:
            try:
                self._commit(rows, (ending,) if ending else ())
                return DONE
            except sqlite3.Error as error:
                if not faults.is_locked(error):
                    log.take_back(rows)
                    raise faults.translate(error, self.path) from None
            except JournalError:
                log.take_back(rows)
                raise
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self._loop is not loop:  # a retry of a loop that is gone will never go on
            self._loop, self._retrying = loop, None
            loop.call_soon(self._flush)
        elif not self._queue:
            loop.call_soon(self._flush)
        self._queue.append(Item(log, rows, ending, future, time.monotonic() + self.busy_seconds))
        return future

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction of its own, begun with the write lock. Raises JournalError."""
        until = time.monotonic() + self.busy_seconds
        pause = 0.001
        while True:
            try:
                connection = self.connection()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    result = work(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    opening.rollback(connection)
                    raise
                return result
            except sqlite3.Error as error:
                if not faults.is_locked(error):
                    raise faults.translate(error, self.path) from None
            if time.monotonic() > until:
                raise faults.lock_error(self.path, self.busy_seconds)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _commit(self, rows: Sequence[EventRow], endings: Sequence[Ending]) -> None:
        connection = self.connection()
        if len(rows) < len(INSERTS) and not endings:
            if rows:  # one statement is a transaction of its own, and saves two
                connection.execute(INSERTS[len(rows)], list(chain.from_iterable(rows)))
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(INSERTS[1], rows)
            if endings:
                connection.executemany(_END, endings)
            connection.execute("COMMIT")
        except BaseException:
            opening.rollback(connection)
            raise

    def _commit_items(self, items: Sequence[Item]) -> None:
        self._commit([row for item in items for row in item.rows], [item.ending for item in items if item.ending])

    def _flush(self) -> None:
        """At the end of a turn of the loop: commit all that waits, unless a retry is under way."""
        if self._retrying is not None and not self._retrying.done():
            return
        if self._queue and not self._try():
            self._retrying = asyncio.get_running_loop().create_task(self._retry())

    def _try(self) -> bool:
        """Commit all that waits; False when the journal is locked."""
        items = self._queue
        try:
            self._commit_items(items)
        except (sqlite3.Error, JournalError) as error:
            if isinstance(error, sqlite3.Error) and faults.is_locked(error):
                return False
            self._queue = []
            self._one_by_one(items, error)
            return True
        self._queue = []
        for item in items:
            _settle(item.future, None)
        return True

    def _one_by_one(self, items: Sequence[Item], error: Exception) -> None:
        """Retry a failed batch run by run, so that one run's rows cannot fail those of others."""
        of_log: dict[int, list[Item]] = {}
        for item in items:
            of_log.setdefault(id(item.log), []).append(item)
        for mine in of_log.values():
            if len(of_log) > 1:
                try:
                    self._commit_items(mine)
                except (sqlite3.Error, JournalError) as own:
                    self._fail(mine, own)
                else:
                    for item in mine:
                        _settle(item.future, None)
            else:
                self._fail(mine, error)

    def _fail(self, items: Sequence[Item], error: Exception) -> None:
        for item in reversed(items):
            item.log.take_back(item.rows)
        for item in items:
            failure = faults.translate(error, self.path) if isinstance(error, sqlite3.Error) else error
            _settle(item.future, failure)

    async def _retry(self) -> None:
        """Try again until the lock is free or patience is over."""
        pause = 0.001
        try:
            while self._queue:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.05)
                if self._try():
                    return
                now = time.monotonic()
                late = {id(item.log) for item in self._queue if item.until < now}
                if late:  # all of a run's rows fail together: a later one must not overtake
                    given_up = [item for item in self._queue if id(item.log) in late]
                    self._queue = [item for item in self._queue if id(item.log) not in late]
                    self._fail(given_up, faults.lock_error(self.path, self.busy_seconds))
        except asyncio.CancelledError:
            left, self._queue = self._queue, []
            self._fail(left, JournalError(f"The event loop ended before the journal {self.path} was free."))
            raise


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    """Tell who waits. Whoever was cancelled meanwhile, or whose loop is gone, needs no telling."""
    with suppress(RuntimeError):
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
