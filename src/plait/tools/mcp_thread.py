"""The thread that all connections to MCP servers live in, with an event loop of its own.

A connection belongs to the loop it was made on, and a tool may be called from any: from an agent's blocking face, from
a caller's own loop, from several at once. So they all stand on one loop that is nobody's, which also lets tools be
listed from plain code inside a running loop. It is begun when first used and ended at exit, with the servers.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 8.0
"""Seconds that servers get at exit, all at once: they are asked to end, told to, and killed."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_pid = 0
_last: list[Callable[[], Awaitable[None]]] = []


def at_end(work: Callable[[], Awaitable[None]]) -> None:
    """Do this on the loop before it ends."""
    _last.append(work)


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Begin a coroutine on the thread's loop."""
    return asyncio.run_coroutine_threadsafe(work, loop())


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Its result, waited for in plain code. Ctrl-C cancels it."""
    if threading.current_thread() is _thread:
        work.close()
        raise RuntimeError("The thread of the MCP connections can't wait for itself.")
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Its result, awaited on any loop. Cancelling it cancels the work."""
    return await asyncio.wrap_future(submit(work))


def forked() -> bool:
    """Was this process forked off since the thread began? Then the connections are the parent's."""
    return _pid not in (0, os.getpid())


def loop() -> asyncio.AbstractEventLoop:
    """The thread's loop, begun where there is none."""
    global _loop, _thread, _pid
    with _lock:
        if _loop is None or _loop.is_closed() or forked() or _thread is None or not _thread.is_alive():
            ours = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(ours,), name="plait-mcp", daemon=True)
            thread.start()
            atexit.register(_stop, ours, thread, os.getpid())
            _loop, _thread, _pid = ours, thread, os.getpid()
        return _loop


def _serve(ours: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(ours)
    try:
        ours.run_forever()
        ours.run_until_complete(ours.shutdown_asyncgens())
    finally:
        ours.close()


async def _finish() -> None:
    await asyncio.wait([asyncio.ensure_future(work()) for work in _last], timeout=PATIENCE)


def _stop(ours: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if ours.is_closed() or pid != os.getpid() or not thread.is_alive():
        return
    try:
        if _last:
            asyncio.run_coroutine_threadsafe(_finish(), ours).result(PATIENCE + 1)
    except (TimeoutError, RuntimeError):  # what does not end by then is left behind
        pass
    ours.call_soon_threadsafe(ours.stop)
    thread.join(2)
