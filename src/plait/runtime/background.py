"""Runs coroutines from plain code, and streams events.

Blocking calls share one event loop in a separate thread, so they also work inside a running loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from plait.background import BackgroundLoop
from plait.core import Event

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that a cancelled run gets to record its end before Ctrl-C is passed on."""

_LOOP = BackgroundLoop("plait")


class _Job(Generic[T]):
    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.done = threading.Event()
        self.task: asyncio.Task[T] | None = None
        self._work = work

    def begin(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._work)
        self.task.add_done_callback(lambda _: self.done.set())

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from plain code, also from inside a running event loop (a notebook).

    Ctrl-C cancels the work, waits until it has recorded its end, and then raises KeyboardInterrupt.
    """
    if _LOOP.is_current():
        # A tool on the background loop runs an agent. The loop cannot wait for itself.
        return _aside(work)
    job = _Job(work)
    loop = _LOOP.start()
    try:
        loop.call_soon_threadsafe(job.begin)
        job.done.wait()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(job.cancel)
        job.done.wait(PATIENCE)
        raise
    assert job.task is not None
    return job.task.result()


def _aside(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a separate loop and thread."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "plait-aside") as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, work).result()


class EventStream:
    """A run's events as they happen: `async for event in stream`, or `for event in stream` in plain code.

    `begin` performs the run and receives the function that takes its events. Leaving the iteration early cancels the
    run. A stream can be iterated once.
    """

    def __init__(self, begin: Callable[[Callable[[Event], None]], Awaitable[Any]]) -> None:
        self._events = _yield_events(begin)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def aclose(self) -> None:
        """Cancel the run if it goes on, and wait until it has recorded its end."""
        await self._events.aclose()

    def __iter__(self) -> Iterator[Event]:
        try:
            while True:
                try:
                    yield run_blocking(anext(self._events))
                except StopAsyncIteration:
                    return
        finally:
            run_blocking(self.aclose())


async def _yield_events(begin: Callable[[Callable[[Event], None]], Awaitable[Any]]) -> AsyncGenerator[Event, None]:
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.ensure_future(begin(queue.put_nowait))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
