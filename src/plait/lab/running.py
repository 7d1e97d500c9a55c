"""Runs the cells of a comparison: side by side, within a budget, on the record, and on from where it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from plait.journal.records import RunRow
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.lab import performing
from plait.lab.base import Grader
from plait.lab.gates import PATIENCE, Gates, through
from plait.lab.planning import Cell, Wanted
from plait.lab.result import Result

OUTAGES_A_CELL = 3
"""A cell that met so many outages while others finished at its endpoint is skipped: the endpoint fails at this cell."""
REJECTIONS_A_ROW = 3
"""After so many rejected requests in a row a loop with its models is skipped: the cause is a model or a setting."""


class Progress(Struct, frozen=True):
    """How far a comparison is. `left` is an estimate in seconds, None while nothing is known; `usd` what all its cells
    cost so far (None: a price is not known). `result` is the cell that was just finished, `said` a word on the way."""

    finished: int
    cells: int
    usd: float | None
    left: float | None
    result: Result | None = None
    said: str = ""


Tell: TypeAlias = Callable[[Progress], None]


class Engine(Protocol):
    """Where cells are performed."""

    async def perform(self, cell: Cell, earlier: list[RunRow]) -> Result:
        """The result of a cell. Raises `Out` and `Elsewhere` (see `performing.py`)."""
        ...

    @property
    def places(self) -> int:
        """In how many processes a model that runs in a process can be asked at once: one, or those of a cluster."""
        ...

    async def open(self, cells: Sequence[Cell]) -> None:
        """Make ready for these cells. Raises `UsageError` for one that can't be performed there."""
        ...

    async def close(self) -> None:
        """Nothing more will be asked."""
        ...


class Here:
    """Cells are performed in this process."""

    places = 1

    def __init__(self, graders: Mapping[str, Grader]) -> None:
        self._graders = graders

    async def open(self, cells: Sequence[Cell]) -> None:
        """Nothing is to be made ready."""

    async def perform(self, cell: Cell, earlier: list[RunRow]) -> Result:
        """See `Engine.perform`."""
        return await performing.perform(cell, earlier, self._graders[cell.grader])

    async def close(self) -> None:
        """Nothing is open."""


async def run(
    wanted: Wanted,
    journal: Journal,
    engine: Engine,
    *,
    jobs: int = 1,
    budget: float | None = None,
    tell: Tell = lambda _: None,
) -> str:
    """Run all cells that have no result yet. Gives in words why some are still unfinished, "" when none is.

    Cancelling it cancels the runs that are going on, which can be gone on with.
    """
    work = _Work(wanted, Results(journal), engine, jobs, budget, tell)
    try:
        await engine.open(work.open)
        work.gates = Gates(jobs, engine.places)
        return await work.run()
    finally:
        await engine.close()


class _Work:
    """One call of `run`: what is finished, what it cost, what went wrong."""

    def __init__(
        self, wanted: Wanted, results: Results, engine: Engine, jobs: int, budget: float | None, tell: Tell
    ) -> None:
        self.wanted, self.results, self.engine, self.tell = wanted, results, engine, tell
        self.jobs, self.budget = jobs, budget
        self.gates = Gates(jobs)
        cells = {cell.digest: cell for cell in wanted.in_turn}
        self.done = {cell: performing.read(data) for cell, data in results.results(cells).items()}
        self.open = [cell for digest, cell in cells.items() if digest not in self.done]
        self.earlier = results.runs(cell.digest for cell in self.open)
        self.lost = 0.0
        """USD of runs that came to no result: an endpoint went out in the middle."""
        self.priced = True
        self.under_way = 0
        self.outages: dict[str, int] = {}
        self.rejections: dict[str, int] = {}
        """Rejected requests in a row, by contender."""
        self.why: list[str] = []
        self.began = time.monotonic()
        self.seconds: list[float] = []

    async def run(self) -> str:
        """All that is open, `jobs` at a time; the first error that is not a cell's own ends it."""
        self.report()
        line = asyncio.Semaphore(self.jobs)
        tasks: list[asyncio.Task[None]] = []
        try:
            for cell in self.open:
                await line.acquire()
                for task in tasks:
                    if task.done():
                        task.result()
                tasks = [task for task in tasks if not task.done()]
                if not self.affords():
                    line.release()
                    break
                tasks.append(asyncio.create_task(self.one(cell, line)))
            await _all(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return "; ".join(dict.fromkeys(self.why))

    def affords(self) -> bool:
        """The budget takes one cell more, those under way counted as what cells cost on average."""
        if self.budget is None:
            return True
        spent = self.usd
        if spent is None:
            self.why.append(
                "a budget is set, and the price of a model is not known: [prices] in plait.toml tells it,"
                " and --again runs anew what was run without"
            )
            return False
        paid = [each.cost_usd for each in self.done.values() if each.cost_usd is not None]
        mean = sum(paid) / len(paid) if paid else 0.0
        if spent + mean * (self.under_way + 1) <= self.budget and spent < self.budget:
            return True
        if not mean and not spent:
            return True
        self.why.append(f"the budget of {self.budget:g} USD is reached: {spent:.5f} USD are spent")
        return False

    @property
    def usd(self) -> float | None:
        """What all cells cost so far, grading too."""
        costs = [cost for each in self.done.values() for cost in (each.cost_usd, each.grade.cost_usd)]
        known = [cost for cost in costs if cost is not None]
        return sum(known) + self.lost if self.priced and len(known) == len(costs) else None

    async def one(self, cell: Cell, line: asyncio.Semaphore) -> None:
        """One cell to its result, as often as its endpoints are out in between."""
        try:
            while not await self.tried(cell):
                pass
        finally:
            line.release()

    async def tried(self, cell: Cell) -> bool:
        """Whether the cell is over: finished, or given up."""
        gates = self.gates.of(cell.models)
        met = self.outages.get(cell.digest, 0)
        async with through(gates) as closed:
            if closed:
                self.why.append(closed)
                return True
            if self.rejections.get(cell.contender, 0) >= REJECTIONS_A_ROW:
                return True
            self.under_way += 1
            began = time.monotonic()
            try:
                result = await self.engine.perform(cell, self.earlier.get(cell.digest, []))
            except performing.Out as out:
                self.lost += out.cost_usd or 0.0
                self.priced = self.priced and out.cost_usd is not None
                self.outages[cell.digest] = met + 1
                self.earlier.update(self.results.runs([cell.digest]))
                if out.rejected:
                    self.rejections[cell.contender] = self.rejections.get(cell.contender, 0) + 1
                    self.why.append(f"{cell.contender} is not measured, because its requests are rejected")
                    self.report(said=f"{cell.contender} · {cell.task.id} · not measured ({out.error}): {out}")
                    return True
                if met + 1 >= OUTAGES_A_CELL and self.seconds:
                    self.why.append(f"{cell.contender} fails at {cell.task.id} ({out.error}): {out}")
                    return True
                why = f"{', '.join(gate.name for gate in gates)} is out ({out.error}): {out}"
                for gate in gates:
                    await gate.is_out(why, began=began, after=out.after, lasting=out.lasting, busy=out.busy)
                self.report(said=f"{why} Trying again, {PATIENCE} times in a row at most." if not out.lasting else why)
                return False
            except performing.Elsewhere as elsewhere:
                self.why.append(str(elsewhere))
                return True
            finally:
                self.under_way -= 1
        secrets = tuple(secret for model in cell.models for secret in model.secrets)
        await performing.keep(self.results, result, secrets)
        self.done[cell.digest] = result
        self.seconds.append(time.monotonic() - began)
        self.rejections[cell.contender] = 0
        for gate in gates:
            await gate.went_well()
        self.report(result)
        return True

    def report(self, result: Result | None = None, said: str = "") -> None:
        """Tell how far it is."""
        open_ = len(self.open) - len(self.seconds)
        left = None
        if self.seconds:
            left = (time.monotonic() - self.began) / len(self.seconds) * open_
        self.tell(Progress(len(self.done), len(self.wanted.cells), self.usd, left if open_ else 0.0, result, said))


async def _all(tasks: Sequence[Awaitable[None]]) -> None:
    """Wait for all; the first that fails is raised, and the others are left to whoever called."""
    for task in asyncio.as_completed(tasks):
        await task
