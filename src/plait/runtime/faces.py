"""The awaited and the streaming face of a run; the blocking one is in `background.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from plait.core import Event
from plait.runtime.run import Run


async def whole(work: Awaitable[Run]) -> Run:
    """Await a run; when it was cancelled, and has put that on its record, let the cancellation go on."""
    run = await work
    task = asyncio.current_task()
    if run.status in ("cancelled", "crashed") and task is not None and task.cancelling():
        raise asyncio.CancelledError
    return run


async def streamed(begin: Callable[[Callable[[Event], None]], Awaitable[Run]]) -> AsyncGenerator[Event, None]:
    """A run's events as they happen. Leaving the iteration early cancels the run."""
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
