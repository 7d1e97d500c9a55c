"""Running one cell of a comparison: its run, or the run it already has, and the grade."""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

from plait.core import Crashed
from plait.core.errors import JournalError, ModelError
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import RunRow
from plait.journal.results import Results
from plait.lab.plan import Cell
from plait.lab.results import CellResult, make_result
from plait.lab.tasks import Grade, Grader
from plait.runtime import runs
from plait.runtime.agents.dependencies import open_deps
from plait.runtime.run import Run

current_task: ContextVar[str] = ContextVar("plait_current_task", default="")
"""The id of the task whose cell runs here."""

OUTAGES = frozenset(
    {"Unreachable", "AuthenticationError", "RateLimited", "ServerFailed", "BadResponse", "ModelMissing"}
)
"""Errors of an endpoint that is out. Other cells may get the same error, so the endpoint gets a pause."""
LASTING = frozenset({"AuthenticationError", "ModelMissing"})
"""Outages that last until somebody acts."""
REJECTIONS = frozenset({"BadRequest", "Unsupported", "ConfigError"})
"""Errors of a request whose model or setting is wrong. Other requests to the endpoint may succeed."""
NOT_MEASURED = OUTAGES | REJECTIONS
"""Errors that say nothing about the loop: a run that ends with one gives no result."""


class CellNotMeasured(Exception):
    """The endpoint of a cell is out, or rejects the request. `after`: seconds that the endpoint asks to wait."""

    def __init__(self, error: str, reason: str, *, after: float | None = None, cost_usd: float | None = 0.0) -> None:
        super().__init__(reason)
        self.error = error
        self.after = after
        self.cost_usd = cost_usd
        self.rejected = error in REJECTIONS
        self.lasting = error in LASTING
        self.busy = error == "RateLimited"


class CellTaken(Exception):
    """Another process runs this cell. `for_good`: nobody knows whether it still does."""

    def __init__(self, run: str, *, for_good: bool = False) -> None:
        super().__init__(f"run {run} is still going on in another process")
        self.for_good = for_good


async def run_cell(
    cell: Cell, earlier: list[RunRow], run_id: str | None, results: Results, grader: Grader
) -> CellResult:
    """Return the result of a cell. `earlier` are its recorded runs, the newest first. Without any it begins the run
    `run_id`, or a new one for None. Raises `CellNotMeasured` and `CellTaken`."""
    current_task.set(cell.task.id)
    try:
        run = await _find_or_run(cell, earlier, run_id, results)
    except JournalError:
        # Another process may have begun or resumed the run at the same time, or since this one was frozen.
        now = (await results.find_runs([cell.digest])).get(cell.digest, [])
        if now[:1] == earlier[:1] or not now or now[0].owner == owner_of_this_process():
            raise
        raise CellTaken(now[0].head.run) from None
    if isinstance(run.outcome, Crashed) and run.outcome.error in NOT_MEASURED:
        raise CellNotMeasured(run.outcome.error, run.outcome.reason, cost_usd=run.tree.cost_usd)
    if run.status == "crashed":  # whatever its grader, a crashed run did nothing right
        grade = Grade(success=False, score=0.0, mark="crashed", why=run.reason or "")
    else:
        try:
            grade = await grader(cell.task, run)
        except ModelError as error:
            reason, after = f"The judge can't be asked: {error}", getattr(error, "after", None)
            raise CellNotMeasured(type(error).__name__, reason, after=after) from None
    return make_result(run, grade, cell=cell.digest, variant=cell.contender, task=cell.task.id, repeat=cell.repeat)


async def _find_or_run(cell: Cell, earlier: list[RunRow], run_id: str | None, results: Results) -> Run:
    """Return the newest run of the cell, resumed if it has not ended; run the cell if it has no run."""
    agent, store = cell.agent, results.store
    if earlier:
        row = earlier[0]
        if row.status == "running":
            raise CellTaken(row.head.run, for_good=True)
        if needs_grade(row):
            return runs.read_finished_run(row, store, agent._loop)
        return await agent.aresume(row.head.run)
    if run_id is None:
        run_id = new_run_id()
        assigned = await results.assign(cell.digest, run_id, owner_of_this_process())
        if assigned.run != run_id:
            raise CellTaken(assigned.run)
    async with open_deps(agent.make_deps, None) as deps:
        run_spec, head = await agent._runs.prepare_run(cell.task.question, None, None, None, cell.task.now, deps)
        head = msgspec.structs.replace(head, run=run_id, label=cell.digest)
        log = await runs.open_log(run_spec, head, store)  # raises for all but the first process
        return await runs.perform(run_spec, head, log, store)


def needs_grade(row: RunRow) -> bool:
    """Return whether a run of a cell has ended in a way that is a result."""
    if row.status == "crashed":
        return (row.outcome or {}).get("error") not in NOT_MEASURED
    return row.status in ("answered", "failed", "stopped", "waiting")


def read_result(data: bytes) -> CellResult:
    return msgspec.json.decode(data, type=CellResult)
