"""The worker process: runs cells one at a time, with its own journal, and returns their runs."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import tempfile
import threading
from concurrent.futures import wait
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from plait.agent import Agent
from plait.core.errors import ConfigError, PlaitError
from plait.journal.carry import pack
from plait.journal.owner import life_of, owner_of_this_process
from plait.journal.run_query import ALL
from plait.journal.store import CarriedRun, Journal, NoJournal
from plait.lab.cells import CellNotMeasured, run_cell
from plait.lab.graders import grader_digest, load_grader
from plait.lab.plan import Cell, tools_digest
from plait.lab.ray.packing import OutageReport, PackedCell, PackedContender, WorkerReply, unpack_agent

PREFIX = "plait-worker-"
POLL = 0.1
"""Seconds between two checks whether the cell is cancelled."""
_workers: dict[str, RayWorker] = {}


def run_packed_cell(contender: bytes, packed: bytes, folder: str, here: str) -> bytes:
    """Run a packed `PackedCell` of a packed `PackedContender`. Return a packed `WorkerReply`.

    `folder` holds the journal meanwhile ("": the machine's temporary folder). `here` is the caller's working folder,
    used if this machine has it, because tools and graders may name files there. An interrupt (Ctrl-C, `ray.cancel`)
    cancels the run and returns its record.
    """
    if os.path.isdir(here) and os.getcwd() != here:
        os.chdir(here)
    worker = _workers.get(folder)
    if worker is None:
        worker = _workers[folder] = RayWorker(folder)
    return msgspec.msgpack.encode(worker.run(contender, msgspec.msgpack.decode(packed, type=PackedCell)))


class RayWorker:
    """A worker's journal, and the agents and graders that it made for earlier cells."""

    def __init__(self, folder: str) -> None:
        if not folder:
            # Remove what killed workers left in the temporary folder: Ray ends its workers without notice.
            for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
                if life_of(path.name.removeprefix(PREFIX).rsplit("+", 1)[0].replace("+", ":")) == "dead":
                    shutil.rmtree(path, ignore_errors=True)
        name = PREFIX + owner_of_this_process().replace(":", "+") + "+"
        self._folder = tempfile.TemporaryDirectory(prefix=name, dir=folder or None)
        self._place = Path(self._folder.name)
        self._file = self._place / "journal.db"
        self._store = Journal(self._file).store
        self._template = lru_cache(maxsize=256)(self._make_agent)
        self._agent = lru_cache(maxsize=1024)(self._add_tools)
        self._grader = lru_cache(maxsize=256)(partial(load_grader, journal=self._file))

        # The event loop lives as long as the process: connections and the journal stay open between cells.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="plait-worker", daemon=True).start()
        self._task: asyncio.Task[WorkerReply] | None = None

    def run(self, contender: bytes, packed: PackedCell) -> WorkerReply:
        """Run one cell, blocking; KeyboardInterrupt cancels it."""
        done = asyncio.run_coroutine_threadsafe(self._start(contender, packed), self._loop)
        while not done.done():
            try:
                # Ray interrupts by a flag that is checked between two instructions, and does not wake a waiting thread.
                wait([done], timeout=POLL)
            except KeyboardInterrupt:
                self._loop.call_soon_threadsafe(self._cancel)
        return done.result()

    async def _start(self, contender: bytes, packed: PackedCell) -> WorkerReply:
        self._task = asyncio.ensure_future(self._run(contender, packed))
        try:
            return await self._task
        except asyncio.CancelledError:
            return WorkerReply(await self._take_runs(), error=("Cancelled", "The run was cancelled.", ""))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, contender: bytes, packed: PackedCell) -> WorkerReply:
        """Run one cell, and return it with all its runs."""
        await self._take_runs()  # what is left of an interrupted cell
        try:
            cell = self._make_cell(contender, packed)
            result = await run_cell(cell, [], self._grader(packed.grader))
        except CellNotMeasured as error:
            report = OutageReport(error.error, str(error), error.after, error.cost_usd)
            return WorkerReply(await self._take_runs(), outage=report)
        except PlaitError as error:
            said = (type(error).__name__, error.message, error.hint)
            return WorkerReply(await self._take_runs(), error=said)
        return WorkerReply(await self._take_runs(), result=result)

    async def _take_runs(self) -> tuple[CarriedRun, ...]:
        """Take all ended runs out of the journal, the oldest first."""
        try:
            rows = await self._store.list_runs(ALL)
        except NoJournal:
            return ()
        names = [row.head.run for row in reversed(rows) if row.outcome is not None]
        runs = tuple([await pack(self._store, name) for name in names])
        await self._store.delete(names)
        return runs

    def _make_cell(self, contender: bytes, packed: PackedCell) -> Cell:
        agent, digest = self._agent(contender, packed.tools)
        same_grader = grader_digest(packed.grader) == packed.grader_digest
        for what, same in (("tools", digest == packed.tools_digest), ("grader", same_grader)):
            if not same:
                raise ConfigError(
                    f"On the worker the {what} of the task {packed.task.id!r} is not what was asked for.",
                    hint="Files that tools and graders are made from must be the same, at the same path, everywhere.",
                )
        return Cell(packed.cell, packed.contender, packed.task, packed.grader, packed.repeat, agent)

    def _add_tools(self, contender: bytes, tools: bytes) -> tuple[Agent, str]:
        agent = self._template(contender).using(tools=pickle.loads(tools))
        return agent, tools_digest(agent)

    def _make_agent(self, packed: bytes) -> Agent:
        contender = msgspec.msgpack.decode(packed, type=PackedContender)
        file = self._place / "plait.toml"
        if contender.settings:
            file.write_bytes(contender.settings)
            os.environ["PLAIT_CONFIG"] = str(file)  # a judge reads it as well
        return unpack_agent(contender, self._file, file)
