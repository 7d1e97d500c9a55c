"""Performs one cell: finds the run it already has, goes on with it or runs it, and has it graded."""

from __future__ import annotations

import msgspec

from plait.core import Crashed
from plait.core.errors import ModelError, ModelMissing
from plait.journal.records import RunRow
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.lab.base import Grade, Grader
from plait.lab.planning import Cell
from plait.lab.result import Result, result_of
from plait.runtime.run import Run

OUTAGES = frozenset({"Unreachable", "Refused", "RateLimited", "ServerFailed", "BadResponse", "ModelMissing"})
"""Errors of an endpoint that is out. Others may get the same error, so the endpoint is given a pause."""
LASTING = frozenset({"Refused", "ModelMissing"})
"""Outages that last until somebody does something."""
REJECTIONS = frozenset({"BadRequest", "Unsupported", "Lacking", "UsageError"})
"""Errors of a request that is wrong in its model or a setting. Other requests to the endpoint may succeed."""
NOT_MEASURED = OUTAGES | REJECTIONS
"""Errors that say nothing about the loop, so a run that ends with one gives no result."""


class Out(Exception):
    """A cell was not measured: its endpoint is out, or rejects its request. `after`: seconds it asks to wait."""

    def __init__(self, error: str, reason: str, *, after: float | None = None, cost_usd: float | None = 0.0) -> None:
        super().__init__(reason)
        self.error = error
        self.after = after
        self.cost_usd = cost_usd

    @property
    def rejected(self) -> bool:
        """The request was rejected for its model or a setting."""
        return self.error in REJECTIONS

    @property
    def lasting(self) -> bool:
        """Waiting does not help."""
        return self.error in LASTING

    @property
    def busy(self) -> bool:
        """It is asked too much."""
        return self.error == "RateLimited"


class Elsewhere(Exception):
    """Another process is at this cell."""


async def perform(cell: Cell, earlier: list[RunRow], grader: Grader) -> Result:
    """The result of a cell. `earlier` are the runs that bear the cell's label. Raises `Out`, and `Elsewhere`."""
    run = await _run(cell, earlier)
    if isinstance(run.outcome, Crashed) and run.outcome.error in NOT_MEASURED:
        raise Out(run.outcome.error, run.outcome.reason, cost_usd=run.cost_usd)
    try:
        grade = await graded(cell, run, grader)
    except (ModelError, ModelMissing) as error:
        raise Out(
            type(error).__name__, f"The judge can't be asked: {error}", after=getattr(error, "after", None)
        ) from None
    return result_of(run, grade, cell=cell.digest, variant=cell.contender, task=cell.task.id, repeat=cell.repeat)


async def graded(cell: Cell, run: Run, grader: Grader) -> Grade:
    """A run's grade. One that crashed did nothing right, whoever grades."""
    if run.status == "crashed":
        return Grade(success=False, score=0.0, mark="crashed", why=run.reason or "")
    return await grader(cell.task, run)


async def _run(cell: Cell, earlier: list[RunRow]) -> Run:
    """The newest run of the cell as it is when it has ended, gone on with when it has not; else a new one."""
    for row in earlier[:1]:
        if row.status == "running":
            raise Elsewhere(f"run {row.head.run} is still going on in another process")
        crashed = row.status == "crashed" and (row.outcome or {}).get("error") not in NOT_MEASURED
        if row.status in ("answered", "failed", "stopped", "waiting") or crashed:
            from plait.runtime import runs

            return runs.finished(row, Journal.at(cell.agent.journal or None), cell.agent.strategy)  # type: ignore[arg-type]
        return await cell.agent.aresume(row.head.run)
    return await cell.agent.arun(cell.task.question, label=cell.digest)


async def keep(results: Results, result: Result, secrets: tuple[str, ...] = ()) -> None:
    """Put a result on the record."""
    await results.keep(result.cell, result.run, msgspec.json.encode(result), secrets=secrets)


def read(data: bytes) -> Result:
    """A result from the record."""
    return msgspec.json.decode(data, type=Result)
