"""How plain code runs coroutines, how a cancelled caller waits for a run's end, and how events are streamed.

Blocking calls share one event loop in a separate thread, so they also work inside a running loop.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from plait.background import BackgroundLoop, run_aside
from plait.core import Event
from plait.core.errors import ConfigError
from plait.core.events import Began
from plait.tools.call_context import call_services, cancelled
from plait.tools.threads import serve_object
from plait.user_functions import call_plain, raise_interrupt, require_plain

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that a cancelled run gets to record its end before Ctrl-C is passed on."""

LOOKS = 0.05
"""Seconds after which a run that a tool's thread waits for looks whether the call of the tool was cancelled."""

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
        else:  # interrupted before it began: it never will
            self._work.close()
            self.done.set()


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from plain code, also from inside a running event loop (a notebook).

    Ctrl-C cancels the work, waits until it has recorded its end, and then raises KeyboardInterrupt. So does every other
    exception that a signal handler raises meanwhile.
    """
    if _LOOP.is_current():
        # A tool on the background loop runs an agent. The loop cannot wait for itself.
        return run_aside(work)
    try:
        loop = _LOOP.start()
    except ConfigError:
        work.close()
        raise
    job = _Job(work)
    try:
        loop.call_soon_threadsafe(job.begin)
        in_tool, is_left = call_services() is not None, False
        while not job.done.is_set():
            if cancelled() and not is_left:  # the run whose tool this is: this one must not outlive it
                loop.call_soon_threadsafe(job.cancel)
                is_left = True
            if not serve_object():
                job.done.wait(LOOKS if in_tool else None)
    except BaseException:  # Ctrl-C, or whatever another signal handler, or gevent's time-out, raises here
        loop.call_soon_threadsafe(job.cancel)
        job.done.wait(PATIENCE)
        raise
    assert job.task is not None
    return job.task.result()


def check_listener(on_event: Callable[[Event], None] | None) -> None:
    """Raise `ConfigError` for an `on_event` that is no plain function."""
    if on_event is not None:
        if not callable(on_event):
            raise ConfigError(f"on_event={on_event!r} is not a function.", hint="Give a function of one event.")
        require_plain(on_event, "on_event=", "Give a plain function, such as the put_nowait of a queue.")


def check_call(on_event: Callable[[Event], None] | None = None) -> None:
    """Raise `ConfigError` if this code does not run in a task of asyncio, or for an `on_event` that is async."""
    check_listener(on_event)
    with suppress(RuntimeError):
        if asyncio.current_task() is not None:
            return
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        where, hint = "this code runs on trio", "await trio.to_thread.run_sync(agent.run, question)"
    else:
        where, hint = "no task of asyncio runs here", "asyncio.run(agent.arun(question))"
    raise ConfigError(f"Plait runs on asyncio, and {where}.", hint=f"Call: {hint}.")


async def wait_to_end(task: asyncio.Task[Any], grace: float | None = None) -> None:
    """Wait until a task has ended. Cancelling the caller cancels the task, once.

    The cancellation is raised when the task has ended, or after `grace` seconds, however often the caller is cancelled
    meanwhile: anyio cancels in every turn of the event loop.
    """
    first: asyncio.CancelledError | None = None
    until = None
    clock = asyncio.get_running_loop().time
    try:
        while not task.done() and (until is None or clock() < until):
            try:
                await asyncio.wait([task], timeout=None if until is None else until - clock())
            except asyncio.CancelledError as why:
                if first is None:
                    first, until = why, None if grace is None else clock() + grace
                    if not task.cancelling():
                        task.cancel(*why.args)
    except GeneratorExit:  # nobody waits any more
        with suppress(RuntimeError):  # the event loop is closed
            task.cancel()
        raise
    if first is not None:
        raise first


async def call_either(function: Callable[..., Awaitable[T] | T], *arguments: Any) -> T:
    """Call a function that may be async, and return its result. A `CancelledError` that it raises although nobody
    cancelled the run becomes a `RuntimeError`. See `raise_interrupt` for a `KeyboardInterrupt`."""
    try:
        value = function(*arguments)
        return await value if inspect.isawaitable(value) else value
    except asyncio.CancelledError as why:
        if is_cancelled():
            raise
        raise RuntimeError(f"CancelledError: {why}".rstrip(": ")) from why
    except KeyboardInterrupt as why:
        raise_interrupt(why)


def is_cancelled() -> bool:
    """Return whether somebody cancelled the task that goes on here."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class EventStream:
    """A run's events as they happen: `async for event in stream`, or `for event in stream` in plain code.

    `begin` performs the run and receives the function that takes its events as `on_event`. `on_event` receives each
    event first. Leaving the iteration early cancels the run, and so does `aclose()` in another task: the iteration
    then ends after the event `Ended`. A stream can be iterated once.
    """

    def __init__(
        self, begin: Callable[..., Coroutine[Any, Any, Any]], on_event: Callable[[Event], None] | None = None
    ) -> None:
        check_listener(on_event)
        self._begin, self._on_event = begin, on_event
        self._run: asyncio.Task[Any] | None = None
        self._is_closed = False
        self.run = ""
        """The id of the run, once it has begun."""

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        check_call()
        if self._run is not None or self._is_closed:
            return
        queue: asyncio.Queue[Event | None] = asyncio.Queue()

        def emit(event: Event) -> None:
            if self._on_event is not None:
                call_plain(self._on_event, event)
            self.run = event.run if isinstance(event, Began) else self.run
            queue.put_nowait(event)

        self._run = asyncio.get_running_loop().create_task(self._begin(on_event=emit))
        self._run.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            if not (self._is_closed and self._run.cancelled()):
                self._run.result()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Cancel the run if it goes on, and wait until it has recorded its end. One that has not begun never does."""
        self._is_closed = True
        if self._run is not None and not self._run.done():
            self._run.cancel()
            await wait_to_end(self._run)

    def __iter__(self) -> Iterator[Event]:
        events = self.__aiter__()
        try:
            while True:
                try:
                    yield run_blocking(anext(events))
                except StopAsyncIteration:
                    return
        finally:
            run_blocking(events.aclose())
