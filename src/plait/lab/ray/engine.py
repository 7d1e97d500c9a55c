"""Running the cells of a comparison on a Ray cluster. Their runs and results come into the one journal.

The scheduler stays in this process: budget, outages, progress, finished cells. A worker gets one cell at a time (see
`packing.py`), records its run in its own journal, grades it, and returns everything. Plait then stores the run and its
result. If a worker dies, its cell is sent again. A cell that already has a run in the journal, interrupted or not yet
graded, is continued in this process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from plait.core import errors
from plait.core.errors import PlaitError
from plait.journal.records import RunRow
from plait.journal.store import Journal
from plait.lab.cells import CellNotMeasured, CellTaken, run_cell
from plait.lab.graders import load_grader
from plait.lab.plan import Cell
from plait.lab.ray.cluster import RayCluster, import_ray, restore_sigterm
from plait.lab.ray.packing import CellPacker, WorkerReply
from plait.lab.ray.worker import run_packed_cell
from plait.lab.results import CellResult
from plait.lab.schedule import CellEngine
from plait.models.fallback import members_of

SENDS = 4
"""Number of times that a cell is sent if its worker dies."""
WAITING = 0.25
"""CPUs of a cell whose models are all on the network: it mostly waits."""
PATIENCE = 8.0
"""Seconds that a cancelled cell has to record itself."""


class RayEngine(CellEngine):
    """Runs cells on the Ray cluster at `address` (HOST:PORT, or "auto"); None starts one here, with `cpus` CPUs."""

    def __init__(self, address: str | None = None, *, cpus: int | None = None) -> None:
        self._address = address
        self._cpus = cpus
        self._cluster: RayCluster | None = None
        self._packer: CellPacker | None = None
        self._contenders: dict[str, tuple[bytes, Any]] = {}
        self._remote: Any = None
        self.places = 1
        """The number of local models that the cluster has room for."""

    async def open(self, cells: Sequence[Cell]) -> None:
        """See `CellEngine.open`. Raises `ConfigError` (a cell cannot be sent) or `PlaitError` (no cluster)."""
        if not cells:
            return
        ray = import_ray()
        self._contenders.clear()
        self._packer = packer = CellPacker(ray.cloudpickle.dumps)
        for cell in cells:
            if cell.contender not in self._contenders:
                self._contenders[cell.contender] = (packer.pack_contender(cell), None)
            packer.pack_cell(cell)
        # Starting takes seconds on a thread. A cancellation meanwhile must not leave half a cluster.
        starting = asyncio.ensure_future(asyncio.to_thread(RayCluster, self._address, self._cpus))
        try:
            self._cluster = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._cluster = await starting
            raise
        restore_sigterm()
        self.places = self._cluster.cpus
        self._remote = ray.remote(max_retries=0, max_calls=0)(run_packed_cell)
        self._contenders = {name: (packed, ray.put(packed)) for name, (packed, _) in self._contenders.items()}

    async def perform(self, cell: Cell, earlier: list[RunRow]) -> CellResult:
        """See `CellEngine.perform`."""
        if earlier:
            return await run_cell(cell, earlier, load_grader(cell.grader, journal=cell.agent.journal or None))
        why = ""
        for sends in range(SENDS):
            await asyncio.sleep(0.5 * sends)
            back, why = await self._send(cell)
            if back is None:
                continue
            if not await Journal.at(cell.agent.journal or None).store.add(back.runs):
                why = "its run had the id of another"
                continue
            if back.result is not None:
                return back.result
            if (out := back.outage) is not None:
                raise CellNotMeasured(out.error, out.reason, after=out.after, cost_usd=out.cost_usd)
            raise _make_error(*(back.error or ("PlaitError", "A worker gave nothing back.", "")))
        raise CellTaken(f"the workers died at {cell.contender}, task {cell.task.id}, {SENDS} times ({why})")

    async def close(self) -> None:
        """End the cluster if Plait started it."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            self._contenders.clear()
            await asyncio.shield(asyncio.to_thread(cluster.leave))

    async def _send(self, cell: Cell) -> tuple[WorkerReply | None, str]:
        """Return a worker's reply, or None and why the worker died."""
        assert self._cluster is not None and self._packer is not None
        ray = self._cluster.ray
        members = [each for model in cell.models for each in members_of(model)]
        options = {"num_cpus": WAITING if all(each.endpoint for each in members) else 1}
        packed = self._packer.pack_cell(cell)
        _, contender = self._contenders[cell.contender]
        task = self._remote.options(**options).remote(contender, packed, self._cluster.folder, os.getcwd())
        answer = asyncio.wrap_future(task.future())
        try:
            data = await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._cancel(cell, task, answer)
            raise
        except ray.exceptions.RayTaskError as error:
            raise PlaitError(
                f"{cell.contender}, task {cell.task.id}: the worker failed: {_last_line(error)}.",
                hint="Every machine needs Plait of this version, and the modules of what was given in Python.",
            ) from error
        except ray.exceptions.RayError as error:  # the process, its machine, or its reply is gone
            return None, type(error).__name__
        return msgspec.msgpack.decode(data, type=WorkerReply), ""

    async def _cancel(self, cell: Cell, task: Any, answer: asyncio.Future[Any]) -> None:
        """End a running cell, and store its cancelled run so that it can be resumed."""
        assert self._cluster is not None
        ray = self._cluster.ray
        ray.cancel(task)
        await asyncio.wait([answer], timeout=PATIENCE)
        if not answer.done():
            ray.cancel(task, force=True)
            answer.cancel()
        elif not answer.cancelled() and answer.exception() is None:
            back = msgspec.msgpack.decode(answer.result(), type=WorkerReply)
            await Journal.at(cell.agent.journal or None).store.add(back.runs)


def _make_error(kind: str, message: str, hint: str) -> PlaitError:
    """Return a worker's error as it would have been raised here."""
    found = getattr(errors, kind, None)
    usable = isinstance(found, type) and issubclass(found, PlaitError) and kind not in ("Unsupported", "ReplayDiffers")
    return found(message, hint=hint) if usable and found is not None else PlaitError(message, hint=hint)


def _last_line(error: BaseException) -> str:
    """Return the innermost cause in one line: Ray's own text is a traceback."""
    cause = getattr(error, "cause", None) or error
    said = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {said[-1] if said else ''}".rstrip(": .")
