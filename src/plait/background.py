"""Event loops in threads of their own, for coroutines that plain code waits for, or that outlive the caller's loop."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import sys
import threading
from collections.abc import Awaitable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from plait.core.errors import ConfigError

T = TypeVar("T")


class _Done:
    """An awaitable that has its result already, and costs no turn of the loop."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE: Awaitable[None] = _Done()


class BackgroundLoop:
    """An event loop in a daemon thread. It starts when it is first needed and ends with the program."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        atexit.register(self._stop)

    def start(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. A forked process gets a new one: it does not have the thread."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                _check_gevent()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def is_current(self) -> bool:
        """Say whether the caller runs in the loop's thread, where it cannot wait for the loop."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self.start())

    def wait(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Return the result of a coroutine on the loop. Ctrl-C cancels it."""
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(2)


def run_aside(work: Awaitable[T]) -> T:
    """Await something on another loop, in a thread of its own, and return its result. This thread may run a loop."""
    from concurrent.futures import ThreadPoolExecutor

    async def wait() -> T:
        return await work

    with ThreadPoolExecutor(1, "plait-aside") as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, wait()).result()


def _check_gevent() -> None:
    """Raise `ConfigError` where gevent has replaced selectors or threads, but not both: an event loop would hang."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("selectors") != monkey.is_module_patched("threading"):
        raise ConfigError(
            "Plait runs on asyncio, and gevent has patched this process in part, so that asyncio would hang.",
            hint="Patch all, with gevent.monkey.patch_all(), or pass both thread=False and select=False.",
        )


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        is_ended = False
        while not is_ended:
            # A task that raises one of these ends `run_forever`. Who waits for the task gets it; the other tasks go on.
            with suppress(KeyboardInterrupt, SystemExit):
                runner.get_loop().run_forever()
                is_ended = True


def cancel_again(why: asyncio.CancelledError) -> None:
    """Cancel the current task at its next `await` instead of here, for the same reason."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()
        task.cancel(*why.args)
