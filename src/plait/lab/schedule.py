"""Runs the cells of a comparison: concurrently, within a budget, continuing where an earlier process stopped.

Each endpoint has a gate: it admits fewer cells after "too many requests", and none during an outage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeAlias

import msgspec
from msgspec import Struct

from plait.journal.records import RunRow
from plait.journal.results import Results
from plait.journal.store import Store
from plait.lab.cells import CellNotMeasured, CellTaken, read_result, run_cell
from plait.lab.plan import Cell, ComparisonPlan
from plait.lab.results import CellResult
from plait.lab.tasks import Grader
from plait.models.base import Model
from plait.models.fallback import members_of
from plait.models.local import LocalModel

OUTAGES_PER_CELL = 3
"""Outages after which a cell is skipped, if other cells finished since the first: the endpoint fails at this cell."""
REJECTIONS_IN_A_ROW = 3
"""Rejected requests in a row after which a contender is skipped: the cause is a model or a setting."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds: the pause after an outage doubles from the first value up to the second."""
PATIENCE = 5
"""Outages in a row, with no cell finished between them, after which an endpoint is given up."""
GROW_AFTER = 10
"""Finished cells in a row after which a slowed endpoint admits one more cell."""


class Progress(Struct, frozen=True):
    """The state of a running comparison. `left` estimates the remaining seconds (None: unknown). `usd` is the cost of
    all its cells so far (None: a price is unknown). `result` is the cell that has just finished, `said` a message."""

    finished: int
    cells: int
    usd: float | None
    left: float | None
    result: CellResult | None = None
    said: str = ""


OnProgress: TypeAlias = Callable[[Progress], None]


class CellEngine:
    """Where cells run."""

    places = 1
    """The number of processes in which a local model can run: one, or those of a cluster."""

    async def open(self, cells: Sequence[Cell]) -> None:
        """Prepare for these cells. Raises `ConfigError` for a cell that cannot run there."""

    async def perform(self, cell: Cell, earlier: list[RunRow]) -> CellResult:
        """Return the result of a cell. Raises `CellNotMeasured` and `CellTaken`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Free the resources of `open`."""


class LocalEngine(CellEngine):
    """Runs cells in this process."""

    def __init__(self, graders: Mapping[str, Grader]) -> None:
        self._graders = graders

    async def perform(self, cell: Cell, earlier: list[RunRow]) -> CellResult:
        """See `CellEngine.perform`."""
        return await run_cell(cell, earlier, self._graders[cell.grader])


async def run_cells(
    plan: ComparisonPlan, store: Store, engine: CellEngine, *, jobs: int, budget: float | None, tell: OnProgress
) -> str:
    """Run all cells that have no result yet. Return why some are still unfinished, or "".

    Cancelling it cancels the current runs, which can be resumed later.
    """
    scheduler = _Scheduler(plan, Results(store), engine, jobs, budget, tell)
    await scheduler.find_open()
    try:
        await engine.open(scheduler.open)
        scheduler.gates = EndpointGates(jobs, engine.places)
        return await scheduler.run()
    finally:
        await engine.close()


class _Scheduler:
    """One call of `run_cells`: finished cells, costs and failures."""

    def __init__(
        self,
        plan: ComparisonPlan,
        results: Results,
        engine: CellEngine,
        jobs: int,
        budget: float | None,
        tell: OnProgress,
    ) -> None:
        self.plan, self.results, self.engine, self.tell = plan, results, engine, tell
        self.jobs, self.budget = jobs, budget
        self.gates = EndpointGates(jobs)
        self.done: dict[str, CellResult] = {}
        self.open: list[Cell] = []
        self.earlier: dict[str, list[RunRow]] = {}
        self.lost_usd: float | None = 0.0
        """The cost of runs that an outage left without a result; None: a price is unknown."""
        self.active = 0
        """Cells that are tried, or will be tried again."""
        self.outages: dict[str, tuple[int, int]] = {}
        """By cell: its outages, and how many cells had finished at the first one."""
        self.rejections: dict[str, int] = {}
        """Rejected requests in a row, by contender."""
        self.why: list[str] = []
        self.began = time.monotonic()
        self.finished = 0

    async def find_open(self) -> None:
        """Read what earlier calls have finished."""
        cells = {cell.digest: cell for cell in self.plan.ordered_cells()}
        self.done = {cell: read_result(data) for cell, data in (await self.results.read(cells)).items()}
        self.open = [cell for digest, cell in cells.items() if digest not in self.done]
        self.earlier = await self.results.find_runs(cell.digest for cell in self.open)

    async def run(self) -> str:
        """Run the open cells, `jobs` at a time. An error that does not belong to a single cell ends it."""
        self.report()
        free = asyncio.Semaphore(self.jobs)
        tasks: list[asyncio.Task[None]] = []
        try:
            for cell in self.open:
                await free.acquire()
                for task in tasks:
                    if task.done():
                        task.result()
                tasks = [task for task in tasks if not task.done()]
                if not self.can_afford():
                    free.release()  # for cells that are tried again
                    break
                self.active += 1
                tasks.append(asyncio.create_task(self.finish(cell, free)))
            for first in asyncio.as_completed(tasks):
                await first
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return "; ".join(dict.fromkeys(self.why))

    def can_afford(self) -> bool:
        """Return whether the budget allows one more cell, if the running cells cost the average."""
        if self.budget is None:
            return True
        spent = self.usd
        if spent is None:
            self.why.append(
                "a budget is set, but the price of a model is unknown. Add it to [prices] in plait.toml, and repeat the"
                " runs without a price with --again"
            )
            return False
        mean = (spent - (self.lost_usd or 0.0)) / len(self.done) if self.done else 0.0
        if (not mean and not spent) or (spent + mean * (self.active + 1) <= self.budget and spent < self.budget):
            return True
        self.why.append(f"the budget of {self.budget:g} USD is reached: {spent:.5f} USD are spent")
        return False

    @property
    def usd(self) -> float | None:
        """The cost of all cells so far, including grading."""
        costs = [self.lost_usd, *(cost for each in self.done.values() for cost in (each.cost_usd, each.grade.cost_usd))]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    async def finish(self, cell: Cell, free: asyncio.Semaphore) -> None:
        """Try a cell until it has a result or is given up."""
        try:
            while not await self.try_cell(cell):
                # The next cell goes first: its end shows whether the endpoint fails at this cell only.
                free.release()
                await free.acquire()
        finally:
            self.active -= 1
            free.release()

    async def try_cell(self, cell: Cell) -> bool:
        """Try a cell once. Return True if it is over: finished, or given up."""
        gates = self.gates.of(cell.models)
        async with pass_gates(gates) as closed:
            if closed:
                self.why.append(closed)
                return True
            if self.rejections.get(cell.contender, 0) >= REJECTIONS_IN_A_ROW:
                return True
            began = time.monotonic()
            try:
                result = await self.engine.perform(cell, self.earlier.get(cell.digest, []))
            except CellNotMeasured as error:
                return await self.handle_outage(cell, error, gates, began)
            except CellTaken as error:
                self.why.append(str(error))
                return True
        secrets = tuple(secret for model in cell.models for secret in model.secrets)
        await self.results.keep(result.cell, result.run, msgspec.json.encode(result), secrets=secrets)
        self.done[cell.digest] = result
        self.finished += 1
        self.rejections[cell.contender] = 0
        for gate in gates:
            await gate.note_success()
        self.report(result)
        return True

    async def handle_outage(
        self, cell: Cell, error: CellNotMeasured, gates: Sequence[EndpointGate], began: float
    ) -> bool:
        """Count an outage or a rejection. Return True if the cell is given up."""
        self.lost_usd = None if self.lost_usd is None or error.cost_usd is None else self.lost_usd + error.cost_usd
        before, finished = self.outages.get(cell.digest, (0, self.finished))
        self.outages[cell.digest] = before + 1, finished
        self.earlier.update(await self.results.find_runs([cell.digest]))
        if error.rejected:
            self.rejections[cell.contender] = self.rejections.get(cell.contender, 0) + 1
            self.why.append(f"{cell.contender} is not measured ({error.error}): {error}")
            self.report(said=f"{cell.contender} · {cell.task.id} · not measured ({error.error}): {error}")
            return True
        if before + 1 >= OUTAGES_PER_CELL and self.finished > finished:
            self.why.append(f"{cell.contender} fails at {cell.task.id} ({error.error}): {error}")
            return True
        state = "cannot be used" if error.lasting else "does not answer"
        why = f"{', '.join(gate.name for gate in gates)} {state}: {error}"
        for gate in gates:
            await gate.note_outage(why, began=began, after=error.after, lasting=error.lasting, busy=error.busy)
        failed = max((gate.outages for gate in gates), default=0)
        attempt = f", attempt {failed + 1} of {PATIENCE}" if failed else ""
        self.report(said=why if error.lasting or failed >= PATIENCE else f"{why.rstrip('.')}. Pausing{attempt}.")
        return False

    def report(self, result: CellResult | None = None, said: str = "") -> None:
        open_ = len(self.open) - self.finished
        left = (time.monotonic() - self.began) / self.finished * open_ if self.finished else None
        cells = len(self.plan.cells)
        self.tell(Progress(len(self.done), cells, self.usd, left if open_ else 0.0, result, said))


class EndpointGate:
    """The gate of one endpoint: at most `now` cells pass it at once, never more than `max_cells`."""

    def __init__(self, name: str, max_cells: int) -> None:
        self.name = name
        self.max_cells = max_cells
        self.now = max_cells
        self.closed = ""
        """Why the endpoint was given up, or ""."""
        self._busy = 0
        self._until = 0.0
        self._since = 0.0
        self.outages = 0
        self._successes = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """Wait for a free place and hold it. A closed gate lets everyone pass: look at `closed`."""
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

    async def note_success(self) -> None:
        """Count a finished cell."""
        self.outages = 0
        self._successes += 1
        if self._successes % GROW_AFTER == 0 and self.now < self.max_cells:
            await self._admit(self.now + 1)

    async def note_outage(self, why: str, *, began: float, after: float | None, lasting: bool, busy: bool) -> None:
        """Pause after an outage, and give the endpoint up after some in a row.

        `began`: the monotonic time when the failed cell started. Outages of concurrent cells count once. `busy`: the
        endpoint reported too many requests, which counts only if no more than one cell asks.
        """
        if lasting:
            self.closed = why
        elif began >= self._since:
            self._since = time.monotonic()
            self._successes = 0
            self.outages += not busy or self.now == 1
            if self.outages >= PATIENCE:
                self.closed = why
            pause = after if after is not None else min(FIRST_PAUSE * 2 ** max(0, self.outages - 1), LONGEST_PAUSE)
            self._until = max(self._until, self._since + pause)
            if busy:
                self.now = max(1, self.now // 2)
        await self._admit(self.now)

    async def _admit(self, now: int) -> None:
        async with self._changed:
            self.now = now
            self._changed.notify_all()


class EndpointGates:
    """The gates of all endpoints. A local model admits as many cells as it has slots, in each of `places` processes."""

    def __init__(self, jobs: int, places: int = 1) -> None:
        self._jobs = jobs
        self._places = places
        self._gates: dict[str, EndpointGate] = {}

    def of(self, models: Iterable[Model]) -> list[EndpointGate]:
        """Return the gates of these models, always in the same order, so that cells cannot deadlock."""
        found: dict[str, EndpointGate] = {}
        for model in models:
            # Fallback models have a gate of their own: it closes when none of them can be used.
            members = members_of(model)
            local = [each for each in members if isinstance(each, LocalModel)]
            if len(members) > 1:
                name = model.spec
            elif local:
                name = f"local:{local[0].file or local[0].name}"
            else:
                name = model.endpoint or model.spec
            slots = min((each.server.slots for each in local), default=0)
            places = min(self._jobs, slots * self._places) if slots else self._jobs
            found[name] = self._gates.setdefault(name, EndpointGate(name, places))
        return [found[name] for name in sorted(found)]


@asynccontextmanager
async def pass_gates(gates: Iterable[EndpointGate]) -> AsyncIterator[str]:
    """Pass all gates. Yields why one is closed, or ""."""
    async with AsyncExitStack() as stack:
        gates = list(gates)
        for gate in gates:
            await stack.enter_async_context(gate.through())
        yield next((gate.closed for gate in gates if gate.closed), "")
