"""The time of a run: without the time in which all its work waits, and without the start-up of local models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class RunClock:
    """Counts the seconds of a run, earlier processes included, and moves the deadline of its limit of `seconds`.

    `before` are the seconds that earlier processes took. `parent` is the clock of the run whose tool performs this one:
    the tool waits while this run waits. `now` returns the machine's seconds.
    """

    def __init__(
        self,
        seconds: float | None = None,
        before: float = 0.0,
        parent: RunClock | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit, self.parent = seconds, parent
        self.deadline: asyncio.Timeout | None = None
        """Ends the run at its limit. It stands still while all work waits."""
        self._now = now
        self._began = now()
        self._before = before
        # The model calls of the loop and the tool calls under way, and how many of them wait for a user or a retry.
        self._working = self._waiting = 0
        self._paused_at: float | None = None
        self._left: float | None = None  # seconds until the deadline when the run began to wait

    @property
    def seconds(self) -> float:
        """Return the seconds of the run so far."""
        now = self._now() if self._paused_at is None else self._paused_at
        return self._before + now - self._began

    def left(self) -> float | None:
        """Return the seconds until the limit, 0 if it has passed; None without a limit."""
        return None if self.limit is None else max(0.0, self.limit - self.seconds)

    def exclude_startup(self, seconds: float) -> None:
        """Leave out the time in which a local model was downloaded and loaded."""
        self._before -= seconds

    @contextmanager
    def counted(self, *, working: int = 0, waiting: int = 0) -> Iterator[None]:
        """Count work, or waits for a user or a retry, that go on while this context is open."""
        self.count(working, waiting)
        try:
            yield
        finally:
            self.count(-working, -waiting)

    def count(self, working: int, waiting: int) -> None:
        """Add to the work and the waits that go on. The clock stands still while all work waits."""
        self._working += working
        self._waiting += waiting
        is_paused = 0 < self._waiting >= self._working
        if is_paused == (self._paused_at is not None):
            return
        now, deadline = self._now(), self.deadline
        with suppress(RuntimeError):  # the deadline has passed
            if self._paused_at is None:
                self._paused_at = now
                if deadline is not None and (until := deadline.when()) is not None:
                    self._left = until - asyncio.get_running_loop().time()
                    deadline.reschedule(None)
            else:
                self._before -= now - self._paused_at
                self._paused_at = None
                if deadline is not None and self._left is not None:
                    deadline.reschedule(asyncio.get_running_loop().time() + self._left)
        if self.parent is not None:
            self.parent.count(0, 1 if is_paused else -1)
