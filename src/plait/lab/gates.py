"""How many runs may ask an endpoint at once, and when: fewer after it said "too many", none while it is out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from plait.models.base import Model
from plait.models.local import LocalModel

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds: the pause after an outage doubles from the one to the other."""
PATIENCE = 5
"""Outages of an endpoint one after another, with nothing finished between them, until it is given up."""
GROW_AFTER = 10
"""Cells that must finish in a row before one more at once is tried again."""


class Gate:
    """One endpoint."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self.now = most
        self.closed = ""
        """Why the endpoint was given up, "" while it is not."""
        self._busy = 0
        self._until = 0.0
        self._since = 0.0
        self._outages = 0
        self._well = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """Wait until one more may ask, and hold the place. Who gets through a closed gate should look at `closed`."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self.closed) or self._busy < self.now)
                pause = self._until - time.monotonic()
                if self.closed or pause <= 0:
                    self._busy += 1
                    break
            await asyncio.sleep(pause)
        try:
            yield
        finally:
            async with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    async def went_well(self) -> None:
        """A cell was finished."""
        self._outages = 0
        self._well += 1
        if self._well % GROW_AFTER == 0 and self.now < self.most:
            await self._set(self.now + 1)

    async def is_out(self, why: str, *, began: float, after: float | None, lasting: bool, busy: bool) -> None:
        """An outage: pause, and give the endpoint up after some in a row.

        `began`: when what met it began, by the monotonic clock; those that were under way together count once. `busy`:
        the endpoint said that it is asked too much, which counts only when no more than one asks.
        """
        if lasting:
            self.closed = why
        elif began >= self._since:
            self._since = time.monotonic()
            self._well = 0
            self._outages += not busy or self.now == 1
            if self._outages >= PATIENCE:
                self.closed = why
            pause = after if after is not None else min(FIRST_PAUSE * 2 ** max(0, self._outages - 1), LONGEST_PAUSE)
            self._until = max(self._until, self._since + pause)
            if busy:
                self.now = max(1, self.now // 2)
        await self._set(self.now)

    async def _set(self, now: int) -> None:
        async with self._changed:
            self.now = now
            self._changed.notify_all()


class Gates:
    """The gates of all endpoints. A local model is asked by no more than its slots, or each would wait for others;
    where cells are performed in several processes (`places`), each of these has its own.
    """

    def __init__(self, jobs: int, places: int = 1) -> None:
        self._jobs = jobs
        self._places = places
        self._gates: dict[str, Gate] = {}

    def of(self, models: Iterable[Model]) -> list[Gate]:
        """The gates of these models' endpoints, in one order for everybody, so that nobody waits in a circle."""
        return sorted((self._gate(model) for model in dict.fromkeys(map(_place, models))), key=lambda gate: gate.name)

    def _gate(self, place: tuple[str, int]) -> Gate:
        name, slots = place
        if name not in self._gates:
            self._gates[name] = Gate(name, min(self._jobs, slots * self._places) if slots else self._jobs)
        return self._gates[name]


@asynccontextmanager
async def through(gates: Iterable[Gate]) -> AsyncIterator[str]:
    """Through all of them; gives why one is closed, "" when none is."""
    async with AsyncExitStack() as stack:
        gates = list(gates)
        for gate in gates:
            await stack.enter_async_context(gate.through())
        yield next((gate.closed for gate in gates if gate.closed), "")


def _place(model: Model) -> tuple[str, int]:
    if isinstance(model, LocalModel):
        return f"local:{model.file or model.name}", model.settings.slots
    return model.endpoint or model.spec, 0
