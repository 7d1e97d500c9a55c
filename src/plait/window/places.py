"""How many runs are performed at once, how many requests may wait, and one turn of a conversation at a time.

Theory of operation. `concurrent` places are taken at once, `queued` requests more may wait for one; what comes beyond
that is told to come again. Whoever waits for the turn before it in a conversation waits as well, and holds no place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from plait.config import ServeTable
from plait.window.counts import Counts
from plait.window.errors import Rejected
from plait.window.performing import Performing


class Turn:
    """A turn of a conversation, that none other begins beside."""

    def __init__(self) -> None:
        self.lock: asyncio.Lock | None = None

    def lasts(self, performing: Performing) -> None:
        """The turn lasts as long as the run."""
        lock, self.lock = self.lock, None
        if lock is not None:
            performing.when_over(lock.release)

    def release(self) -> None:
        """The turn is over."""
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()


class Places:
    """The places of a server. `closed`: none is given any more."""

    def __init__(self, table: ServeTable, counts: Counts) -> None:
        self.closed = False
        self.waiting = 0
        self._table, self._counts = table, counts
        self._free: asyncio.Semaphore | None = None
        self._sessions: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self) -> None:
        """Wait for a place. Raises `Rejected` when too many wait, or when none is given any more."""
        if self._free is None:
            self._free = asyncio.Semaphore(self._table.concurrent)
        await self._wait(self._free)
        if self.closed:
            self._free.release()
            self._refuse(full=False)

    def release(self) -> None:
        """Give a place back."""
        assert self._free is not None
        self._free.release()

    @asynccontextmanager
    async def turn(self, session: str | None) -> AsyncIterator[Turn]:
        """A turn of a conversation: waits till the one before is over. None: of no conversation yet."""
        turn = Turn()
        if session is not None:
            lock = self._sessions.get(session)
            if lock is None:
                lock = self._sessions[session] = asyncio.Lock()
            await self._wait(lock)
            turn.lock = lock
        try:
            yield turn
        finally:
            turn.release()

    async def _wait(self, what: asyncio.Semaphore | asyncio.Lock) -> None:
        self._refuse(full=what.locked() and self.waiting >= self._table.queued)
        self.waiting += 1
        try:
            await what.acquire()
        finally:
            self.waiting -= 1

    def _refuse(self, *, full: bool) -> None:
        if self.closed:
            self._counts.refused("stopping")
            raise Rejected(
                503,
                "The server is stopping.",
                hint="Ask again in a while.",
                kind="server_error",
                code="stopping",
                after=5,
            )
        if full:
            self._counts.refused("full")
            raise Rejected(
                429,
                f"{self._table.concurrent} runs may go on at once, and {self.waiting} requests wait.",
                hint="Ask again in a while.",
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                after=self._counts.wait(self.waiting, self._table.concurrent),
            )
