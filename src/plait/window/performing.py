"""One run that is being performed in this process: who began it, what is written, how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from plait.core import Event
from plait.core.events import Began, Ended
from plait.runtime.run import Run
from plait.window.callers import Caller
from plait.window.writing import Writing

Emit = Callable[[Event], None]
Begin = Callable[[Emit], Awaitable[Run]]


class Performing:
    """A run under way. `run` is its id once `begun` is awaited; `agent` the served agent's name, "" for none."""

    def __init__(self, agent: str, caller: Caller, question: str = "", session: str = "", emit: Emit | None = None):
        self.agent = agent
        self.caller = caller
        self.question = question
        self.session = session
        self.run = ""
        self.started = time.monotonic()
        self.result: Run | None = None
        self.writing = Writing()
        self._emit = emit
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[Run] | None = None

    def go(self, begin: Begin) -> asyncio.Task[Run]:
        """Perform it, as a task of its own: it goes on whoever waits for it."""
        self._task = asyncio.ensure_future(self._perform(begin))
        self._task.add_done_callback(self._over)
        return self._task

    async def begun(self) -> None:
        """Wait until the run stands on record. Raises what kept it from that."""
        await asyncio.shield(self._begun)

    async def done(self) -> Run:
        """Wait for the end. A cancelled run ends as well; raises what kept it from being performed at all."""
        assert self._task is not None
        await asyncio.wait([self._task])
        if self.result is not None:
            return self.result
        return self._task.result()

    def when_over(self, do: Callable[[], None]) -> None:
        """Do that when the run is over, at once if it is."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: do())

    def cancel(self, reason: str) -> bool:
        """Cancel it, for a reason that is put on its record; False when it is over, or cancelled already."""
        return self._task is not None and not self._task.cancelling() and self._task.cancel(reason)

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return time.monotonic() - self.started

    async def _perform(self, begin: Begin) -> Run:
        return await begin(self._say)

    def _say(self, event: Event) -> None:
        if isinstance(event, Ended):
            self.result = event.run
        self.writing.heard(event)
        if self._emit is not None:
            self._emit(event)
        if isinstance(event, Began):
            self.run = event.run
            if not self._begun.done():
                self._begun.set_result(None)

    def _over(self, task: asyncio.Task[Run]) -> None:
        why = None if task.cancelled() else task.exception()
        if self._begun.done():
            return
        if why is not None:
            self._begun.set_exception(why)
            self._begun.exception()  # whoever awaits it is told; nobody has to
        elif task.cancelled():
            self._begun.cancel()
        else:
            self.run = task.result().run
            self.result = task.result()
            self._begun.set_result(None)
