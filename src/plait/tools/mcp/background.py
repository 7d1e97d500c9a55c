"""The event loop of the connections to MCP servers, in a background thread.

A connection belongs to the loop that opened it, but tools are called from any loop and any thread. So all connections
have a loop of their own. It starts with the first of them and ends with the program.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def run_in_background(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine on the background loop. Cancelling the future cancels it."""
    global _loop, _thread
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive():  # a forked process does not have the thread
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_run, args=(_loop,), name="plait-mcp", daemon=True)
            _thread.start()
    return asyncio.run_coroutine_threadsafe(work, _loop)


def wait_for_background(work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Return the result of a coroutine on the background loop. Ctrl-C cancels it."""
    if threading.current_thread() is _thread:
        work.close()
        raise RuntimeError("A tool of an MCP server in this process cannot wait for another MCP server.")
    future = run_in_background(work)
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


def _stop() -> None:
    if _loop is not None and _thread is not None and _thread.is_alive():
        _loop.call_soon_threadsafe(_loop.stop)
        _thread.join(2)


atexit.register(_stop)
