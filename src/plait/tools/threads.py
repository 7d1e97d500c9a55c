"""Threads in which tools run, so that none of them blocks the event loop of a run."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from plait.core.errors import ToolError
from plait.tools.call_context import cancel_event

Work: TypeAlias = Callable[[], None]
StartWork: TypeAlias = Callable[[Work], None]

given_up: contextvars.ContextVar[list[asyncio.Event] | None] = contextvars.ContextVar("given_up", default=None)
"""Gets an event for each thread that goes on when nobody waits for it any more; it is set at the thread's end."""

SERVE = 0.01
"""Seconds between two looks at what an object's thread waits for."""


class ObjectThread(threading.Thread):
    """A daemon thread that does one job after another: all that happens to one object."""

    def __init__(self) -> None:
        super().__init__(name="plait-object", daemon=True)
        self.jobs: SimpleQueue[Work] = SimpleQueue()
        self._is_over = False
        self.start()

    def run(self) -> None:
        while not self._is_over:
            self.jobs.get()()

    def add(self, job: Work) -> None:
        """Do a job after the others; at once if this thread itself asks for it."""
        if threading.current_thread() is self:
            job()
        else:
            self.jobs.put(job)

    def end(self) -> None:
        """End the thread when it has done its jobs."""
        self.jobs.put(lambda: setattr(self, "_is_over", True))


def serve_object() -> bool:
    """In an object's thread, do the object's next job or wait a moment for one; return False in other threads. A method
    that waits for an agent holds the thread, and the agent may call the same object."""
    thread = threading.current_thread()
    if isinstance(thread, ObjectThread):
        with contextlib.suppress(Empty):
            thread.jobs.get(timeout=SERVE)()
        return True
    return False


def start_thread(job: Work) -> None:
    """Do a job in a daemon thread, so that a tool that hangs does not hang the program at its end."""
    threading.Thread(target=job, name="plait-tool", daemon=True).start()


async def run_in_thread(function: Callable[[], Any], start: StartWork = start_thread) -> Any:
    """Run a function in the thread that `start` chooses, and return its result. `plait.cancelled()` tells the function
    that nobody waits for its result any more."""
    loop = asyncio.get_running_loop()
    token, ended = threading.Event(), asyncio.Event()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()
    context.run(cancel_event.set, token)

    def finish(result: Any, error: BaseException | None) -> None:
        # Not as the future's exception: a GeneratorExit would close every coroutine that waits here.
        ended.set()
        if not future.done():
            future.set_result((result, error))

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except (KeyboardInterrupt, asyncio.CancelledError, StopIteration) as why:
            # Ctrl-C and cancellation never reach this thread, so the tool itself raised this.
            error = ToolError(": ".join((type(why).__name__, *map(str, why.args))))
        except BaseException as why:
            error = why
        if not loop.is_closed():
            # The loop may close in between: then nobody waits for this result.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, result, error)

    start(work)
    try:
        result, error = await future
    except asyncio.CancelledError:
        if (others := given_up.get()) is not None:
            others.append(ended)
        raise
    finally:
        token.set()
    if error is not None:
        raise error
    return result
