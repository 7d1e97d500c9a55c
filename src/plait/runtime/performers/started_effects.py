"""Effects that are started now and taken as they finish."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from plait.core import Act, ContextOverflow, Observation, Reply, Start, Think, WaitNext, WaitResult
from plait.runtime.guard import Entry, Suspend
from plait.runtime.performers.base import BasePerformer
from plait.runtime.performers.call_tools import EndedByTool

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


class StartedEffects(BasePerformer):
    """Performs `Start`: a composite, which has no row. Its effects have numbers of their own, the tickets."""

    work = "start"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.open: dict[int, asyncio.Future[Any]] = {}
        self.acts: set[int] = set()
        self.ready: list[WaitResult] = []
        """Pieces and finished tickets, in the order they came, until somebody takes them."""
        self.waiting: dict[int, Suspend] = {}
        """Tickets that wait for the user: the others go on, and the run waits when these alone are left."""
        self.news = asyncio.Event()

    async def take(self, key: str, effect: Start, *, started: bool, beside: int) -> tuple[int, ...]:
        engine = self.engine
        started_now = [(engine.take_number(), each) for each in effect.effects]
        acts = {ticket: each for ticket, each in started_now if isinstance(each, Act)}
        self.acts.update(acts)
        thinks = len(started_now) - len(acts)
        at_once = not thinks and all(map(engine.performers.tools.is_over_at_once, acts.values()))
        for ticket, each in started_now:
            thinks -= isinstance(each, Think)
            work = engine.perform_effect(str(ticket), each, started=True, beside=thinks)
            if at_once:
                # Perform an effect without a task of its own.
                self.open[ticket] = future = asyncio.get_running_loop().create_future()
                try:
                    future.set_result(await work)
                except Exception as why:
                    future.set_exception(why)
                self._end(ticket, future)
            else:
                self.open[ticket] = task = asyncio.ensure_future(work)
                task.add_done_callback(partial(self._end, ticket))
        if not at_once:
            await asyncio.sleep(0)  # they are admitted here, in order: what they reserve is the same on each walk
        return tuple([ticket for ticket, _ in started_now])

    def add_piece(self, piece: WaitResult) -> None:
        """Take more text of a watched reply."""
        self.ready.append(piece)
        self.news.set()

    def _end(self, ticket: int, task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and isinstance(why := task.exception(), Suspend):
            self.waiting[ticket] = why
        else:
            self.ready.append(WaitResult(ticket))
        self.news.set()

    async def finish(self, ticket: int) -> WaitResult:
        """Return the result of a ticket. Raises what its effect raised."""
        task = self.open.pop(ticket)
        try:
            result = await task
        except ContextOverflow as why:
            why.ticket = ticket
            raise
        except EndedByTool:
            # The calls beside it come to their end first: the end of the run would cancel them.
            if beside := [self.open[each] for each in self.acts & self.open.keys()]:
                await asyncio.wait(beside)
            raise
        self.ready = [each for each in self.ready if each.ticket != ticket]
        if isinstance(result, Reply):
            return WaitResult(ticket, reply=result)
        return WaitResult(ticket, observations=cast(tuple[Observation, ...], result))

    async def end_others(self) -> list[Suspend]:
        """Let all that was started come to its end. Return what waits for the user. Raises what broke the process."""
        ended = await asyncio.gather(*self.open.values(), return_exceptions=True)
        for why in ended:
            if isinstance(why, BaseException) and not isinstance(why, Exception):
                raise why
        return [why for why in ended if isinstance(why, Suspend)]

    async def close(self) -> None:
        """Cancel what goes on, and wait for its end."""
        tasks = list(self.open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class TakeNext(BasePerformer):
    """Performs `WaitNext`. The order in which results are taken is on record, and the pieces of watched replies."""

    work = "take"

    def __init__(self, engine: Engine, started: StartedEffects) -> None:
        super().__init__(engine)
        self._started = started

    async def take(self, key: str, effect: WaitNext, *, started: bool, beside: int) -> WaitResult:
        taken: WaitResult = await self.engine.perform(
            Entry(self.engine.run_id, key, self.engine.steps, effect, effect), self
        )
        return await self._started.finish(taken.ticket) if taken.done else taken

    async def perform(self, entry: Entry) -> tuple[WaitResult, bytes | None]:
        started, effect = self._started, entry.effect
        wanted = set(effect.tickets or started.open) & set(started.open)
        if not wanted:
            raise RuntimeError("take: none of the tickets is open")
        while True:
            came = next((each for each in started.ready if each.ticket in wanted), None)
            if came is not None:
                started.ready.remove(came)
                return came, None
            if wanted <= set(started.waiting):
                # Calls that are under way come to their end first: the end of the run's work would cancel them.
                if busy := [task for ticket, task in started.open.items() if ticket not in started.waiting]:
                    await asyncio.wait(busy)
                raise Suspend(
                    *(each for ticket in sorted(started.waiting) for each in started.waiting[ticket].questions)
                )
            started.news.clear()
            await started.news.wait()
