"""The thread that writes to one journal file: it commits rows, and waits while another process has the lock.

Theory of operation. A commit takes about 25 us, but a slow disk, a checkpoint or another process's lock makes it take
milliseconds or seconds, and an event loop must not stand still for so long. So the loop hands the run's log over, and
goes on when the thread has woken it. What is handed over while a commit goes on is written with the next one: one
transaction for all of it, and one wake-up for each event loop.

Handing over costs 50 us of CPU, twice as much as a commit. So a run that writes alone commits on its event loop, as
long as the last commits were quick. With several runs the thread costs no more than commits on the loop.

A commit with a durable row, the intent of an effect, is synced: SQLite waits for the disk, which takes milliseconds, so
only the thread makes it. What was committed before is then on the disk, too. Other commits survive the end of the
process; a loss of power may take the last ones.

Rows stay in their log's `line` until they are committed. The thread copies them, and removes what it has written. So
a run's rows have no gap, ever: after an error they are still in line, and the next append writes them first. Whoever
waits may be cancelled, and its event loop may end: the rows are written all the same.

The thread starts with the first row, ends when it has had nothing to do for a while, and starts again. It is never
inside SQLite while the process forks.
"""

from __future__ import annotations

import asyncio
import os
import queue  # by name where it is used, because gevent replaces its classes
import sqlite3
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from plait.background import DONE, cancel_again
from plait.core.errors import JournalError
from plait.journal.sqlite import connections, faults, writers
from plait.journal.sqlite.rows import Ending, EventRow, insert
from plait.journal.store import settle_all
from plait.user_files import hold_inodes, release_inodes

if TYPE_CHECKING:
    from plait.journal.sqlite.log import SqliteLog

T = TypeVar("T")

IDLE = 5.0
"""Seconds without work after which the thread ends."""
QUICK = 0.001
"""Seconds that a commit may take on the event loop."""
CHECKPOINT = 1000
"""Pages in the -wal file after which they are copied to the journal, as SQLite does itself."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
"""Seconds between two attempts to write to a locked journal."""


class Item(NamedTuple):
    """Rows of a log to commit, with the run's ending if it ends. `until` is when to give up on a locked journal."""

    log: SqliteLog
    ending: Ending | None
    future: asyncio.Future[None]
    until: float


class Signal(Enum):
    """What else the thread is told to do."""

    CHECKPOINT = 0
    CLOSE = 1


class Transaction(NamedTuple):
    """A transaction of its own. Whoever takes the `ticket` decides: the thread begins it, or its caller drops it."""

    work: Callable[[sqlite3.Connection], Any]
    durable: bool
    future: asyncio.Future[Any]
    until: float
    ticket: list[None]


class Writer:
    """The connection to one journal file, and the thread that uses it. Both begin when first used."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.path = path
        self.busy_seconds = busy_seconds
        self.pid = os.getpid()
        self.in_sqlite = threading.RLock()
        """Held while the connection is in use."""
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._queue: queue.SimpleQueue[Item | Transaction | Signal] = queue.SimpleQueue()
        self._waiting: list[Item | Transaction] = []
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        self._counting = threading.Lock()
        self._asked = self._taken = self._done = 0
        """How many items and transactions the thread was asked for, has taken from the queue, and has done."""
        self._recent = 0
        self._quick = 0
        """The number of commits, one after the other, that took less than `QUICK`."""
        self._is_durable = False
        """The connection syncs each commit."""
        self._pages = 0
        """About how many pages the -wal file has grown by since the last checkpoint."""
        self._settled: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
        writers.watched.add(self)

    # -- the connection

    @property
    def idle(self) -> bool:
        """Nothing waits to be written, nor is being written."""
        return self._asked == self._done

    def connection(self) -> sqlite3.Connection:
        """The open connection; opens (and makes) the file if need be. Raises sqlite3.Error, JournalError."""
        with self.in_sqlite:
            if self._connection is None:
                self._connection, self._inode = connections.open_connection(self.path)
                self._release = weakref.finalize(self, release_inodes, hold_inodes(self.path))
                # The thread makes checkpoints long before, so that no commit on an event loop does.
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {4 * CHECKPOINT}")
            return self._connection

    def is_current(self) -> bool:
        """The file that is open, if any, still stands at the path (it is not deleted or replaced)."""
        if (inode := self._inode) is None or self.path == connections.MEMORY:
            return True
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == inode

    def close(self) -> None:
        """Write what waits, and close the connection. The last one of all processes folds the -wal file in. Takes up to
        `busy_seconds` if the journal is locked and rows wait."""
        if (thread := self._thread) is not None:
            self._queue.put(Signal.CLOSE)
            thread.join()
        self._close_connection()

    def leave_to_parent(self) -> None:
        """Use nothing of this any more, in a process that has just been forked."""
        self._thread, self._quick = None, 0

    def _close_connection(self) -> None:
        with self.in_sqlite:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = self._inode = None
                self._is_durable = False
                self._release()

    # -- handing over

    def submit(self, log: SqliteLog, ending: Ending | None = None) -> Awaitable[None]:
        """Commit the rows in the log's line, and the run's ending. When awaited that is done; raises JournalError."""
        is_alone, self._recent = self._recent == id(log), id(log)
        if is_alone and not _is_durable(log, log.line) and self._may_write_here():
            try:
                error = self._insert((log,), (ending,) if ending is not None else ())
            finally:
                self.in_sqlite.release()
            if error is None:
                if self._pages > CHECKPOINT:
                    self._put(Signal.CHECKPOINT)
                return DONE
            if not _is_locked(error):
                if ending is not None:
                    log.has_ended = False
                raise faults.translate(error, self.path) if isinstance(error, sqlite3.Error) else error
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(Item(log, ending, future, time.monotonic() + self.busy_seconds))
        return future

    async def transact(
        self, work: Callable[[sqlite3.Connection], T], *, is_short: bool = False, durable: bool = False
    ) -> T:
        """Do `work` in the thread, in a transaction of its own that begins with the write lock. Raises JournalError.

        Short work may be done on the event loop; what is `durable` is synced. Cancelling drops the work if it waits. If
        it has begun, it is finished, and the task is cancelled after it.
        """
        if is_short and self._may_write_here():
            try:
                return self._transact(work, durable=False)
            except sqlite3.Error as error:
                if not faults.is_locked(error):
                    raise faults.translate(error, self.path) from None
            finally:
                self.in_sqlite.release()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        ticket: list[None] = [None]
        self._put(Transaction(work, durable, future, time.monotonic() + self.busy_seconds, ticket))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError as cancelled:
            while not future.done():
                with suppress(IndexError):
                    ticket.pop()
                    future.cancel()
                    raise
                with suppress(asyncio.CancelledError):  # the journal may turn out to be locked: then look again
                    await asyncio.wait([future], timeout=0.01)
            cancel_again(cancelled)
            return future.result()

    def _may_write_here(self) -> bool:
        """Take `in_sqlite` to write on the event loop, if the last commits were quick and nothing waits."""
        return self._quick > 3 and self.idle and self.in_sqlite.acquire(blocking=False)

    def _put(self, asked: Item | Transaction | Signal) -> None:
        if not isinstance(asked, Signal):
            with self._counting:
                self._asked += 1
        self._queue.put(asked)
        if self._thread is None:  # the thread sets this before it looks at the queue for the last time
            self._start()

    def _start(self) -> None:
        if self.pid != os.getpid():
            hint = "Start or resume the run in this process."
            raise JournalError(f"The journal {self.path} was opened by the process that started this one.", hint=hint)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="plait-journal", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no more threads can be started, or the interpreter ends
                    self._queue.put(Signal.CLOSE)
                    self._serve()

    # -- in the thread

    def _serve(self) -> None:
        """Write what waits until there is nothing more to do."""
        pause, is_closing = _FIRST_PAUSE, False
        while True:
            if not self._waiting and (is_closing or not self._has_work()):
                if is_closing:
                    self._close_connection()
                if self._may_end():
                    return
                is_closing = False
            is_closing |= self._take_all()
            try:
                self._write()
            except BaseException as error:  # a defect: nobody may wait for ever
                self._fail(self._waiting, error)
                self._leave([])
                self._wake()
            if not self._waiting:
                pause = _FIRST_PAUSE
                continue
            self._give_up()
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _has_work(self) -> bool:
        """Wait for something to do; False if nothing came."""
        try:
            asked = self._queue.get(timeout=IDLE)
        except queue.Empty:
            return False
        if isinstance(asked, Signal):
            self._queue.put(asked)
        else:
            self._take(asked)
        return True

    def _take_all(self) -> bool:
        """Take what came; return whether to close. `_serve` itself holds no log: one that nobody holds is free."""
        is_closing = False
        for _ in range(self._queue.qsize()):
            asked = self._queue.get_nowait()
            if isinstance(asked, Signal):
                is_closing |= asked is Signal.CLOSE
            else:
                self._take(asked)
        return is_closing

    def _take(self, asked: Item | Transaction) -> None:
        self._taken += 1
        self._waiting.append(asked)

    def _leave(self, waiting: list[Item | Transaction]) -> None:
        """Note what still waits; all else that was taken is done."""
        self._waiting = waiting
        self._done = self._taken - len(waiting)

    def _may_end(self) -> bool:
        """Let another thread be started; False if something came in the last moment, so that this one goes on."""
        self._thread = None
        if self._queue.empty():
            return True
        with self._starting:
            if self._thread is not None:
                return True
            self._thread = threading.current_thread()
            return False

    def _write(self) -> None:
        """Commit all that waits, the rows of all runs together. If the journal is locked, it goes on waiting."""
        waiting = self._waiting
        items = [each for each in waiting if isinstance(each, Item)]
        left: list[Item | Transaction] = []
        with self.in_sqlite:
            if items and (error := self._commit(items)) is not None:
                if _is_locked(error):
                    return
                # Retry run by run, so that one run's rows cannot fail those of others.
                of_log: dict[int, list[Item]] = {}
                for item in items:
                    of_log.setdefault(id(item.log), []).append(item)
                for mine in of_log.values():
                    own = self._commit(mine) if len(of_log) > 1 else error
                    if own is not None and _is_locked(own):
                        left += mine
                    elif own is not None:
                        self._fail(mine, own)
            if len(items) < len(waiting):
                left += [each for each in waiting if isinstance(each, Transaction) and not self._do(each)]
        self._leave(left)
        self._wake()
        if self._pages > CHECKPOINT:
            with self.in_sqlite, suppress(sqlite3.Error):
                self._pages = self._quick = 0  # the next commit syncs the -wal file's new header: not on an event loop
                self.connection().execute("PRAGMA wal_checkpoint")

    def _commit(self, items: Sequence[Item]) -> Exception | None:
        """Commit the rows of some logs in one transaction. Returns what went wrong; nothing is written then."""
        logs = {id(item.log): item.log for item in items}.values()
        endings = [item.ending for item in items if item.ending is not None]
        error = self._insert(logs, endings)
        for item in items if error is None else ():
            self._settle(item.future, None)
        return error

    def _insert(self, logs: Iterable[SqliteLog], endings: Sequence[Ending]) -> Exception | None:
        taken = [(log, log.line[:]) for log in logs]  # event loops may add rows meanwhile
        rows = [row for _, line in taken for row in line]
        durable = any(_is_durable(log, line) for log, line in taken)
        begun = time.perf_counter()
        try:
            connection = self.connection()
            self._sync_commits(connection, durable)
            insert(connection, rows, endings)
        except Exception as error:
            self._quick = 0
            return error
        if not durable:
            self._quick = self._quick + 1 if time.perf_counter() - begun < QUICK else 0
        for log, written in taken:
            del log.line[: len(written)]
        self._pages += 3 + sum(len(row[4]) + len(row[9] or b"") for row in rows) // 4096
        return None

    def _transact(self, work: Callable[[sqlite3.Connection], T], durable: bool) -> T:
        connection = self.connection()
        self._sync_commits(connection, durable)
        with connections.transaction(connection):
            result = work(connection)
        self._pages += 4
        return result

    def _sync_commits(self, connection: sqlite3.Connection, durable: bool) -> None:
        if durable != self._is_durable:
            connection.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self._is_durable = durable

    def _fail(self, waiting: Iterable[Item | Transaction], error: BaseException) -> None:
        for each in waiting:
            if isinstance(each, Item) and each.ending is not None:
                each.log.has_ended = False
            self._settle(each.future, None, error)

    def _do(self, asked: Transaction) -> bool:
        """Do a transaction of its own; False when the journal is locked."""
        try:
            asked.ticket.pop()
        except IndexError:  # its caller has dropped it
            return True
        try:
            self._settle(asked.future, self._transact(asked.work, asked.durable))
        except BaseException as error:  # whatever it is, its caller waits for it
            if _is_locked(error):
                asked.ticket.append(None)
                return False
            self._settle(asked.future, None, error)
        return True

    def _give_up(self) -> None:
        """Fail what has waited too long for a locked journal."""
        now = time.monotonic()
        late = [each for each in self._waiting if each.until < now]
        if late:
            self._leave([each for each in self._waiting if each.until >= now])
            for each in late:
                error = JournalError(
                    f"The journal {self.path} has been locked by another process for more than {self.busy_seconds:g} "
                    "s.",
                    hint="Find out what holds it (a backup, a database browser with an open change?), or give another "
                    "file with --journal.",
                )
                self._fail((each,), error)
            self._wake()

    def _settle(self, future: asyncio.Future[Any], result: Any, error: BaseException | None = None) -> None:
        """Note what to tell who waits."""
        if isinstance(error, sqlite3.Error):
            error = faults.translate(error, self.path)
        self._settled.setdefault(future.get_loop(), []).append((future, result, error))

    def _wake(self) -> None:
        """Wake each event loop that waits, once. One that has ended needs no telling."""
        for loop, settled in self._settled.items():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle_all, settled)
        self._settled = {}


def _is_durable(log: SqliteLog, line: Sequence[EventRow]) -> bool:
    """Return whether a commit of these rows, the first in line, is to be synced."""
    return bool(line) and line[0][1] <= log.synced


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and faults.is_locked(error)
