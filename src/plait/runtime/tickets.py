"""Effects that were started and are taken as they finish."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from plait.core import Effect, Observation, Reply, Start, Take, Taken
from plait.journal.records import StartRecord, TookRecord
from plait.runtime.job import Desk, RecordEnds
from plait.runtime.past import PastEffect


class Tickets:
    """The open tickets of one run. `perform` performs a started effect, `number` gives it its number,
    `pieces` brings the text of watched replies."""

    def __init__(
        self,
        desk: Desk,
        perform: Callable[[int, Effect], Awaitable[Any]],
        number: Callable[[], int],
        pieces: asyncio.Queue[tuple[int, str]],
    ) -> None:
        self.desk = desk
        self._perform = perform
        self._number = number
        self._pieces = pieces
        self._open: dict[int, asyncio.Future[Any]] = {}

    def start(self, effect: Start, past: PastEffect, n: int) -> tuple[int, ...]:
        tickets = tuple(self._number() for _ in effect.effects)
        if past.started is None:
            self.desk.log.buffer((StartRecord(n, tickets), None))
        for ticket, started in zip(tickets, effect.effects, strict=True):
            self._open[ticket] = asyncio.ensure_future(self._perform(ticket, started))
        return tickets

    async def take(self, n: int, effect: Take, past: PastEffect) -> Taken:
        if past.took is not None:
            taken = past.took.taken
            return await self._finish(taken.ticket) if taken.done else taken
        if self.desk.job.replay:
            raise RecordEnds
        waiting_for = set(effect.tickets or self._open) & set(self._open)
        if not waiting_for:
            raise RuntimeError("take: none of the tickets is open")
        while True:
            while not self._pieces.empty():
                ticket, text = self._pieces.get_nowait()
                if ticket in waiting_for:
                    taken = Taken(ticket, done=False, piece=text)
                    self.desk.log.buffer((TookRecord(n, taken), None))
                    return taken
            done = next((t for t in sorted(waiting_for) if self._open[t].done()), None)
            if done is not None:
                self.desk.log.buffer((TookRecord(n, Taken(done)), None))
                return await self._finish(done)
            piece = asyncio.ensure_future(self._pieces.get())
            await asyncio.wait([piece, *(self._open[t] for t in waiting_for)], return_when=asyncio.FIRST_COMPLETED)
            if piece.done():
                self._pieces.put_nowait(piece.result())
            else:
                piece.cancel()

    async def _finish(self, ticket: int) -> Taken:
        result = await self._open[ticket]
        del self._open[ticket]
        if isinstance(result, Reply):
            return Taken(ticket, reply=result)
        return Taken(ticket, observations=cast(tuple[Observation, ...], result))

    async def close(self) -> None:
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
