"""Performs the cells of a comparison on a Ray cluster; their runs and results come into the one journal.

The scheduler stays here: budget, endpoints that are out, progress, what is finished already. A worker gets one cell
at a time (see `shipped.py` for what travels), records its run in a journal of its own, grades it there, and gives
all of it back: the run is put into our journal as it stands, and then its result. A cell whose worker died is sent
again. A cell that has a run in our journal already, interrupted or not yet graded, is gone on with here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from plait.core import errors
from plait.core.errors import PlaitError
from plait.journal.adopt import adopt
from plait.journal.records import RunRow
from plait.journal.store import Journal
from plait.lab.cluster import Cluster, own_sigterm, ray_here
from plait.lab.performing import Elsewhere, Out
from plait.lab.planning import Cell
from plait.lab.result import Result
from plait.lab.running import Here
from plait.lab.shipped import Back, Shipper

SENDS = 4
"""How often a cell is sent whose worker dies."""
WAITING = 0.25
"""CPUs that a cell takes whose models are all asked over the network: it mostly waits."""
PATIENCE = 8.0
"""Seconds that a cancelled cell has to put itself on the record."""


class Lost(Elsewhere):
    """The workers that a cell was sent to died, one after another: it is left unfinished, and the others go on."""


class OnRay:
    """Cells are performed on a Ray cluster: the one at `address` (HOST:PORT, or "auto"), None starts one here.

    `cpus`: CPUs of the cluster that is started, None for all of the machine.
    """

    def __init__(self, address: str | None = None, *, cpus: int | None = None) -> None:
        self._address = address
        self._cpus = cpus
        self._cluster: Cluster | None = None
        self._shipper: Shipper | None = None
        self._contenders: dict[str, tuple[bytes, Any]] = {}
        self._remote: Any = None
        self.places = 1
        """How many models in a process of their own the cluster has room for."""

    async def open(self, cells: Sequence[Cell]) -> None:
        """See `Engine.open`: raises `UsageError` for a cell that can't travel, `PlaitError` without a cluster."""
        if not cells:
            return
        ray = ray_here()
        self._contenders.clear()
        self._shipper = shipper = Shipper(ray.cloudpickle.dumps)
        for cell in cells:
            if cell.contender not in self._contenders:
                self._contenders[cell.contender] = (shipper.contender(cell), None)
            shipper.order(cell)
        # In one go, on a thread: starting takes seconds, and whoever cancels meanwhile must not leave half a cluster.
        starting = asyncio.ensure_future(asyncio.to_thread(Cluster, self._address, self._cpus))
        try:
            self._cluster = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._cluster = await starting
            raise
        own_sigterm()
        self.places = self._cluster.cpus
        from plait.lab.worker import work

        self._remote = ray.remote(max_retries=0, max_calls=0)(work)
        self._contenders = {name: (packed, ray.put(packed)) for name, (packed, _) in self._contenders.items()}

    async def perform(self, cell: Cell, earlier: list[RunRow]) -> Result:
        """See `Engine.perform`."""
        if earlier:
            return await self._here(cell).perform(cell, earlier)
        why = ""
        for sends in range(SENDS):
            await asyncio.sleep(0.5 * sends)
            back, why = await self._sent(cell)
            if back is None:
                continue
            if not await adopt(Journal.at(cell.agent.journal or None), back.runs):
                why = "its run had the id of another"
                continue
            if back.result is not None:
                return back.result
            if back.out is not None:
                out = back.out
                raise Out(out.error, out.reason, after=out.after, cost_usd=out.cost_usd)
            raise _error(*(back.error or ("PlaitError", "A worker gave nothing back.", "")))
        raise Lost(f"the workers died at {cell.contender}, task {cell.task.id}, {SENDS} times ({why})")

    async def close(self) -> None:
        """End the cluster that was started here, or leave the other."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            self._contenders.clear()
            await asyncio.shield(asyncio.to_thread(cluster.leave))

    async def _sent(self, cell: Cell) -> tuple[Back | None, str]:
        """What a worker gave back; None, and why, where it died."""
        assert self._cluster is not None and self._shipper is not None
        ray = self._cluster.ray
        options = {"num_cpus": WAITING if all(model.endpoint for model in cell.models) else 1}
        order = self._shipper.order(cell)
        _, contender = self._contenders[cell.contender]
        task = self._remote.options(**options).remote(contender, order, self._cluster.folder, os.getcwd())
        answer = asyncio.wrap_future(task.future())
        try:
            data = await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._cancelled(cell, task, answer)
            raise
        except ray.exceptions.RayTaskError as error:
            raise PlaitError(
                f"{cell.contender}, task {cell.task.id}: the worker failed: {_said(error)}.",
                hint="Every machine needs Plait of this version, and the modules of what was given in Python.",
            ) from error
        except ray.exceptions.RayError as error:  # the process, its machine, or what it was about to give is gone
            return None, type(error).__name__
        return msgspec.msgpack.decode(data, type=Back), ""

    async def _cancelled(self, cell: Cell, task: Any, answer: asyncio.Future[Any]) -> None:
        """End a cell that is under way, with its cancelled run on our record so that it can be gone on with."""
        assert self._cluster is not None
        ray = self._cluster.ray
        ray.cancel(task)
        await asyncio.wait([answer], timeout=PATIENCE)
        if not answer.done():
            ray.cancel(task, force=True)
            answer.cancel()
        elif not answer.cancelled() and answer.exception() is None:
            back = msgspec.msgpack.decode(answer.result(), type=Back)
            await adopt(Journal.at(cell.agent.journal or None), back.runs)

    def _here(self, cell: Cell) -> Here:
        from plait.lab.graders import grader

        return Here({cell.grader: grader(cell.grader, journal=cell.agent.journal or None)})


def _error(kind: str, message: str, hint: str) -> PlaitError:
    """An error of a worker, as it would have been raised here."""
    found = getattr(errors, kind, None)
    usable = isinstance(found, type) and issubclass(found, PlaitError) and kind not in ("Unsupported", "ReplayDiffers")
    return found(message, hint=hint) if usable and found is not None else PlaitError(message, hint=hint)


def _said(error: BaseException) -> str:
    """The innermost cause in one line: Ray's own text is a traceback."""
    cause = getattr(error, "cause", None) or error
    said = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {said[-1] if said else ''}".rstrip(": .")
