"""Performs a run in this process: watched, cancelled by Ctrl-C or SIGTERM, with its `Run` at the end.

Theory of operation. The run is a task of an event loop of its own. The first signal cancels the task; the
engine puts that on the record and still tells `Ended`, which is where the `Run` is taken from. The handlers
are Python's own, not the loop's: so a second signal ends the process even when the loop stands still.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from plait.core import Event
from plait.core.events import Began, Ended
from plait.runtime.run import Run

CANCELLED = 130

Emit = Callable[[Event], None]
Begin = Callable[[Emit], Coroutine[Any, Any, Run]]


def go(begin: Begin, watch: Emit, told: Callable[[int], object] = lambda number: None) -> Run | None:
    """Perform `begin` to its end; None when it was cancelled before there was a run. `told` hears of each signal.

    Raises what `begin` raises: a `PlaitError` where there can be no run at all.
    """
    seen = _Seen(watch)
    loop = asyncio.new_event_loop()
    abandoned = False
    try:
        task = loop.create_task(begin(seen))
        with _signals(loop, task, seen, told):
            try:
                return loop.run_until_complete(task)
            except (asyncio.CancelledError, KeyboardInterrupt):
                abandoned = True
                return seen.run
            finally:
                _close(loop, abandoned=abandoned)
    finally:
        loop.close()


class _Seen:
    """Hands events on to whoever watches, and remembers the run. That nobody can watch must not end it."""

    def __init__(self, watch: Emit) -> None:
        self.run: Run | None = None
        self.id = ""
        self._watch: Emit | None = watch

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began):
            self.id = event.run
        if isinstance(event, Ended):
            self.run = event.run
        if self._watch is not None:
            try:
                self._watch(event)
            except (OSError, ValueError):  # stderr is closed, or its reader has gone
                self._watch = None


@contextmanager
def _signals(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Run], seen: _Seen, told: Callable[[int], object]
) -> Iterator[None]:
    times = 0

    def cancel() -> None:
        task.cancel()
        loop.call_later(1, os.write, 2, b"Cancelling. Ctrl-C again quits at once.\n")

    def stop(number: int, _: object) -> None:
        nonlocal times
        times += 1
        told(number)
        if times == 1 and not seen.id:
            # There is no record yet, and the loop may stand still in an import: nothing to wait for.
            raise KeyboardInterrupt
        if times == 1 and not task.done():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(cancel)
        elif times > 1:
            # os.write: the interrupted code may be in the middle of writing to stderr itself.
            going_on = f" `plait resume {seen.id}` goes on with it." if seen.id else ""
            with suppress(OSError):
                os.write(2, f"\nQuit at once.{going_on}\n".encode())
            os._exit(CANCELLED)

    # What is ignored stays so: a shell starts its background jobs with Ctrl-C ignored.
    heeded = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _close(loop: asyncio.AbstractEventLoop, *, abandoned: bool) -> None:
    """Close what is open on the loop. `abandoned`: without waiting for threads that may work for long yet."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=2))
    loop.run_until_complete(loop.shutdown_asyncgens())
    if not abandoned:
        loop.run_until_complete(loop.shutdown_default_executor())
