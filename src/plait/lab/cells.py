"""Running one cell of a comparison: its run, or the run it already has, and the grade."""

from __future__ import annotations

import msgspec

from plait.core import Crashed
from plait.core.errors import ModelError
from plait.journal.records import RunRow
from plait.journal.store import Journal
from plait.lab.plan import Cell
from plait.lab.results import CellResult, make_result
from plait.lab.tasks import Grade, Grader
from plait.runtime import runs
from plait.runtime.run import Run

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
    """Another process runs this cell, or its workers died: it stays unfinished, and the others continue."""


async def run_cell(cell: Cell, earlier: list[RunRow], grader: Grader) -> CellResult:
    """Return the result of a cell. `earlier` are its recorded runs. Raises `CellNotMeasured` and `CellTaken`."""
    run = await _find_or_run(cell, earlier)
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


async def _find_or_run(cell: Cell, earlier: list[RunRow]) -> Run:
    """Return the newest run of the cell, resumed if it has not ended; run the cell if it has no run."""
    if not earlier:
        return await cell.agent.arun(cell.task.question, label=cell.digest, now=cell.task.now)
    row = earlier[0]
    if row.status == "running":
        raise CellTaken(f"run {row.head.run} is still going on in another process")
    crashed = row.status == "crashed" and (row.outcome or {}).get("error") not in NOT_MEASURED
    if row.status in ("answered", "failed", "stopped", "waiting") or crashed:
        return runs.read_finished_run(row, Journal.at(cell.agent.journal or None).store, cell.agent._loop)
    return await cell.agent.aresume(row.head.run)


def read_result(data: bytes) -> CellResult:
    return msgspec.json.decode(data, type=CellResult)
