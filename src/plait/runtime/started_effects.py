"""Effects that were started and are taken as they finish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from plait.core import Act, ContextOverflow, Effect, Observation, Reply, Start, Think, WaitNext, WaitResult
from plait.journal.records import StartRecord, TookRecord
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.run_context import EndedByTool, RecordEnds, RunContext, Suspend


class Tickets:
    """The open tickets of one run. `perform` performs a started effect, `number` gives it its number; `at_once` says
    of calls that they are over as soon as they are begun."""

    def __init__(
        self,
        run_context: RunContext,
        perform: Callable[[int, Effect], Coroutine[Any, Any, Any]],
        number: Callable[[], int],
        at_once: Callable[[Act], bool],
    ) -> None:
        self.run_context = run_context
        self._perform = perform
        self._number = number
        self._at_once = at_once
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._acts: set[int] = set()
        self._ready: list[WaitResult] = []
        """Pieces and finished tickets, in the order they came, until somebody takes them."""
        self._parked: dict[int, Suspend] = {}
        """Tickets that wait for a person: the others go on, and the run waits when these alone are left."""
        self._news = asyncio.Event()

    async def start(self, effect: Start, past: PastEffect, n: int) -> tuple[int, ...]:
        tickets = tuple(self._number() for _ in effect.effects)
        if past.started is None:
            self.run_context.log.buffer((StartRecord(n, tickets), None))
        if all(isinstance(each, Act) and self._at_once(each) for each in effect.effects):
            for ticket, act in zip(tickets, effect.effects, strict=True):
                await self._now(ticket, act)
            return tickets
        self.run_context.meter.waiting = sum(isinstance(each, Think) for each in effect.effects)
        self._acts |= {t for t, started in zip(tickets, effect.effects, strict=True) if isinstance(started, Act)}
        for ticket, started in zip(tickets, effect.effects, strict=True):
            self._open[ticket] = task = asyncio.ensure_future(self._perform(ticket, started))
            task.add_done_callback(partial(self._done, ticket))
        # They begin here and now, in order: what they count is then the same each time the run is walked.
        await asyncio.sleep(0)
        self.run_context.meter.waiting = 0
        return tickets

    async def _now(self, ticket: int, effect: Effect) -> None:
        """Perform an effect here, without a task of its own."""
        self._open[ticket] = future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(await self._perform(ticket, effect))
        except Exception as why:
            future.set_exception(why)
        self._done(ticket, future)

    def piece(self, piece: WaitResult) -> None:
        """Some more text of a watched reply."""
        self._came(piece)

    async def take(self, n: int, effect: WaitNext, past: PastEffect) -> WaitResult:
        if past.took is not None:
            taken = past.took.taken
            return await self._finish(taken.ticket) if taken.done else taken
        if self.run_context.run_spec.replay:
            raise RecordEnds
        waiting_for = set(effect.tickets or self._open) & set(self._open)
        if not waiting_for:
            raise RuntimeError("take: none of the tickets is open")
        while True:
            came = next((each for each in self._ready if each.ticket in waiting_for), None)
            if came is not None:
                self._ready.remove(came)
                self.run_context.log.buffer((TookRecord(n, came), None))
                return await self._finish(came.ticket) if came.done else came
            if waiting_for <= set(self._parked):
                # Calls that are under way come to their end first: the end of the run's work would cancel them.
                if busy := [task for ticket, task in self._open.items() if ticket not in self._parked]:
                    await asyncio.wait(busy)
                raise self._parked[min(waiting_for)]
            self._news.clear()
            await self._news.wait()

    def _done(self, ticket: int, task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and isinstance(why := task.exception(), Suspend):
            self._parked[ticket] = why
            self._news.set()
        else:
            self._came(WaitResult(ticket))

    def _came(self, taken: WaitResult) -> None:
        self._ready.append(taken)
        self._news.set()

    async def _finish(self, ticket: int) -> WaitResult:
        task = self._open.pop(ticket)
        try:
            result = await task
        except ContextOverflow as why:
            why.ticket = ticket
            raise
        except EndedByTool:
            # The calls beside it come to their end first: the end of the run would cancel them.
            if beside := [self._open[each] for each in self._acts & self._open.keys()]:
                await asyncio.wait(beside)
            raise
        self._ready = [each for each in self._ready if each.ticket != ticket]
        if isinstance(result, Reply):
            return WaitResult(ticket, reply=result)
        return WaitResult(ticket, observations=cast(tuple[Observation, ...], result))

    async def close(self) -> None:
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # These refer back to the engine. A cycle would keep the finished run until the garbage collector comes.
        del self._perform, self._number
