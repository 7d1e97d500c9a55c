"""Runs the cells of a comparison: concurrently, within a budget, continuing where an earlier process stopped.

Theory of operation. Any number of processes may compare the same, beside each other, and none of them directs the
others. Each makes the same plan, in which a cell's digest says what it is. The journal decides who runs a cell: one
process begins its run, and one claims it when its process is gone. Which cells others have, and what they finished, is
read again from time to time. A cell that was begun elsewhere goes to the end of the line: if it ended its process, the
others have results before it is tried again.

Each endpoint has a gate: it admits fewer cells after "too many requests", and none during an outage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from random import choice
from typing import TypeAlias

import msgspec
from msgspec import Struct

from plait.journal.owner import owner_of_this_process
from plait.journal.records import RunRow
from plait.journal.results import KeptRun, Results
from plait.journal.store import is_address
from plait.lab.cells import CellNotMeasured, CellTaken, needs_grade, read_result, run_cell
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
LOOK_EVERY = 1.0
"""Seconds after which the journal is asked what other processes have begun and finished."""
LEFT_AFTER = 120.0
"""Seconds that a process, of which nobody knows whether it lives, has to begin the run of its cell, or to grade it."""


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


class Scheduler:
    """One comparison in this process: its cells, finished ones, costs and failures."""

    def __init__(
        self,
        plan: ComparisonPlan,
        results: Results,
        graders: Mapping[str, Grader],
        jobs: int,
        budget: float | None,
        tell: OnProgress,
    ) -> None:
        self.results, self.graders, self.tell = results, graders, tell
        self.jobs, self.budget = jobs, budget
        self.gates: dict[str, EndpointGate] = {}
        self.cells = {cell.digest: cell for cell in plan.ordered_cells()}
        self.done: dict[str, CellResult] = {}
        self.line: dict[str, Cell] = {}
        """Cells that are still to be tried here, unless another process finishes them."""
        self.active: set[str] = set()
        """Cells that are tried here, or will be tried again."""
        self.taken: set[str] = set()
        """Cells that other processes have."""
        self.earlier: dict[str, list[RunRow]] = {}
        self.assigned: dict[str, KeptRun] = {}
        self.seen: dict[str, float] = {}
        """When a cell was first seen that its process has not begun, or not graded."""
        self.look_at = 0.0
        self.lost_usd: float | None = 0.0
        """The cost of runs that an outage left without a result; None: a price is unknown."""
        self.outages: dict[str, tuple[int, int]] = {}
        """By cell: its outages, and how many cells had finished at the first one."""
        self.rejections: dict[str, int] = {}
        """Rejected requests in a row, by contender."""
        self.why: list[str] = []
        self.began = time.monotonic()
        self.finished = 0

    async def begin(self) -> None:
        """Read what earlier calls have finished."""
        self.done = {cell: read_result(data) for cell, data in (await self.results.read(self.cells)).items()}
        self.line = {digest: cell for digest, cell in self.cells.items() if digest not in self.done}
        await self.look()
        self.report()

    async def look(self) -> None:
        """Read what other processes have begun and finished."""
        began = time.monotonic()
        for data in (await self.results.read(self.open)).values():
            self.note(read_result(data))
        open_ = self.open
        self.earlier = await self.results.find_runs(open_)
        self.assigned = await self.results.find_assigned(open_)
        begun = (self.earlier.keys() | self.assigned.keys()) - self.active
        self.taken = {digest for digest in begun if not await self.is_free(digest)}
        self.line = dict(sorted(self.line.items(), key=lambda item: item[0] in begun))
        ended = time.monotonic()
        self.look_at = ended + max(LOOK_EVERY, 20 * (ended - began)) if self.budget is None else 0.0  # before each run

    async def is_free(self, digest: str) -> bool:
        """Return whether this process may try a cell that was begun."""
        store, me = self.results.store, owner_of_this_process()
        row = next(iter(self.earlier.get(digest, ())), None)
        if row is not None and row.status == "running":
            # Where no lease ends, a process that nobody knows is not waited for: `run_cell` says so.
            return row.owner == me or (not is_address(store.place) and await store.is_holder_gone(row.owner) is None)
        if row is not None and not needs_grade(row):
            return True  # one process can claim it
        holder = self.assigned.get(digest)
        if holder is None or holder.owner == me or await store.is_holder_gone(holder.owner):
            return True
        return time.monotonic() - self.seen.setdefault(digest, time.monotonic()) > LEFT_AFTER

    async def run(self) -> str:
        """Run the open cells, `jobs` at a time, and wait for those that other processes have. Return why some are still
        unfinished, or "". An error that does not belong to a single cell ends it. Cancelling it cancels the current
        runs, which can be resumed later."""
        await self.begin()
        free = asyncio.Semaphore(self.jobs)
        tasks: set[asyncio.Task[None]] = set()
        try:
            while self.line or tasks:
                # Not always the first one, beside others: so two processes seldom try the same cell.
                left = (each for digest, each in self.line.items() if digest not in self.taken)
                near = list(islice(left, 1 + 4 * len(self.taken)))
                cell = choice(near) if near else None
                if cell is not None:
                    await free.acquire()
                elif tasks:
                    await asyncio.wait(tasks, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(LOOK_EVERY)
                for task in [each for each in tasks if each.done()]:
                    tasks.remove(task)
                    task.result()
                if self.line and (cell is None or time.monotonic() >= self.look_at):
                    await self.look()
                if cell is None:
                    continue
                if cell.digest not in self.line or cell.digest in self.taken:
                    free.release()
                elif not self.can_afford():
                    free.release()  # for cells that are tried again
                    self.line = {digest: each for digest, each in self.line.items() if digest in self.taken}
                else:
                    del self.line[cell.digest]
                    self.active.add(cell.digest)
                    tasks.add(asyncio.create_task(self.finish(cell, free)))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return "; ".join(dict.fromkeys(self.why))

    @property
    def open(self) -> list[str]:
        """The cells without a result."""
        return [digest for digest in self.cells if digest not in self.done]

    def can_afford(self) -> bool:
        """Return whether the budget allows one more cell, if those that go on, here and elsewhere, cost the average."""
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
        if (not mean and not spent) or (
            spent + mean * (len(self.active | self.taken) + 1) <= self.budget and spent < self.budget
        ):
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
            self.active.discard(cell.digest)
            free.release()

    async def try_cell(self, cell: Cell) -> bool:
        """Try a cell once. Return True if it is over: finished, or given up."""
        gates = self.gates_of(cell.models)
        async with AsyncExitStack() as stack:
            for gate in gates:
                await stack.enter_async_context(gate.through())
            if closed := next((gate.closed for gate in gates if gate.closed), ""):
                self.why.append(closed)
                return True
            if self.rejections.get(cell.contender, 0) >= REJECTIONS_IN_A_ROW:
                return True
            began = time.monotonic()
            try:
                earlier, assigned = self.earlier.get(cell.digest, []), self.assigned.get(cell.digest)
                run = assigned.run if assigned is not None else None
                result = await run_cell(cell, earlier, run, self.results, self.graders[cell.grader])
            except CellNotMeasured as error:
                return await self.handle_outage(cell, error, gates, began)
            except CellTaken as error:
                if error.for_good:
                    self.why.append(str(error))
                elif cell.digest not in self.done:  # others may be taken, too
                    self.line[cell.digest] = cell
                    self.taken.add(cell.digest)
                    self.look_at = 0.0
                return True
        secrets = tuple(secret for model in cell.models for secret in model.secrets)
        await self.results.keep(result.cell, result.run, msgspec.json.encode(result), secrets=secrets)
        self.rejections[cell.contender] = 0
        for gate in gates:
            await gate.note_success()
        self.note(result)
        return True

    def gates_of(self, models: Iterable[Model]) -> list[EndpointGate]:
        """Return the gates of these models, always in the same order, so that cells cannot deadlock. A local model
        admits as many cells as it has slots."""
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
            places = min(self.jobs, slots) if slots else self.jobs
            found[name] = self.gates.setdefault(name, EndpointGate(name, places))
        return [found[name] for name in sorted(found)]

    def note(self, result: CellResult) -> None:
        """Count a cell that has finished, here or elsewhere."""
        if result.cell not in self.done:
            self.done[result.cell] = result
            self.line.pop(result.cell, None)
            self.finished += 1
            self.report(result)

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
        open_ = len(self.cells) - len(self.done)
        left = (time.monotonic() - self.began) / self.finished * open_ if self.finished else None
        self.tell(Progress(len(self.done), len(self.cells), self.usd, left if open_ else 0.0, result, said))


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
