"""What a worker process does: performs cells one at a time, in a journal of its own, and gives back their runs."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import tempfile
import threading
from concurrent.futures import wait
from functools import lru_cache
from pathlib import Path

import msgspec

from plait.agent import Agent
from plait.core.errors import PlaitError, UsageError
from plait.journal.adopt import Carried, pack
from plait.journal.owner import life_of, owner_of_this_process
from plait.journal.store import Journal
from plait.lab import performing, shipped
from plait.lab.base import Grader
from plait.lab.graders import grader, mark
from plait.lab.planning import Cell, tools_digest

PREFIX = "plait-worker-"
LOOK = 0.1
"""Seconds between two looks at whether the cell is cancelled."""
_desks: dict[str, Desk] = {}


def work(contender: bytes, order: bytes, folder: str, here: str) -> bytes:
    """Perform a cell: a `shipped.Order` of a `shipped.Contender`, both packed. Gives a packed `shipped.Back`.

    `folder` is where the journal is kept meanwhile ("": the machine's temporary folder), `here` the working folder
    of whoever asks: files that tools and graders name are looked for there, where this machine has it. Interrupted
    (Ctrl-C, `ray.cancel`), it cancels the run and gives back the record of that.
    """
    if os.path.isdir(here) and os.getcwd() != here:
        os.chdir(here)
    desk = _desks.get(folder)
    if desk is None:
        desk = _desks[folder] = Desk(folder)
    return msgspec.msgpack.encode(desk.performed(contender, msgspec.msgpack.decode(order, type=shipped.Order)))


def _sweep() -> None:
    """Remove what killed workers left in the temporary folder: Ray ends its workers without asking them."""
    for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        if life_of(path.name.removeprefix(PREFIX).rsplit("+", 1)[0].replace("+", ":")) == "dead":
            shutil.rmtree(path, ignore_errors=True)


class Desk:
    """A worker's journal and what it made for earlier cells."""

    def __init__(self, folder: str) -> None:
        if not folder:
            _sweep()
        name = PREFIX + owner_of_this_process().replace(":", "+") + "+"
        self._folder = tempfile.TemporaryDirectory(prefix=name, dir=folder or None)
        self._place = Path(self._folder.name)
        self._journal = Journal(self._place / "journal.db")
        self._template = lru_cache(maxsize=256)(self._made)
        self._agent = lru_cache(maxsize=1024)(self._with_tools)
        self._grader = lru_cache(maxsize=256)(self._graded_by)

        # The loop lives as long as the process: a model's connections and a journal's file stay open between cells.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="plait-worker", daemon=True).start()
        self._task: asyncio.Task[shipped.Back] | None = None

    def performed(self, contender: bytes, order: shipped.Order) -> shipped.Back:
        """One cell, blocking; KeyboardInterrupt cancels it."""
        done = asyncio.run_coroutine_threadsafe(self._begun(contender, order), self._loop)
        while not done.done():
            try:
                # Ray interrupts by a flag that is looked at between two instructions, and wakes nobody up.
                wait([done], timeout=LOOK)
            except KeyboardInterrupt:
                self._loop.call_soon_threadsafe(self._cancel)
        return done.result()

    async def _begun(self, contender: bytes, order: shipped.Order) -> shipped.Back:
        self._task = asyncio.ensure_future(self.perform(contender, order))
        try:
            return await self._task
        except asyncio.CancelledError:
            return shipped.Back(await self.emptied(), error=("Cancelled", "The run was cancelled.", ""))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def perform(self, contender: bytes, order: shipped.Order) -> shipped.Back:
        """One cell, with every run that was made for it."""
        await self.emptied()  # what is left of a cell that was interrupted
        try:
            cell = self._cell(contender, order)
            result = await performing.perform(cell, [], self._grader(order.grader))
        except performing.Out as out:
            told = shipped.OutTold(out.error, str(out), out.after, out.cost_usd)
            return shipped.Back(await self.emptied(), out=told)
        except PlaitError as error:
            said = (type(error).__name__, error.message, error.hint)
            return shipped.Back(await self.emptied(), error=said)
        return shipped.Back(await self.emptied(), result=result)

    async def emptied(self) -> tuple[Carried, ...]:
        """Every run of the journal that has ended, the oldest first; the journal has none from then on."""
        if not self._journal.path.exists():
            return ()
        names = [row.head.run for row in reversed(self._journal.runs(limit=1_000_000)) if row.outcome is not None]
        runs = tuple(pack(self._journal, name) for name in names)
        for name in names:
            await self._journal.delete(name)
        return runs

    def _cell(self, contender: bytes, order: shipped.Order) -> Cell:
        agent, told = self._agent(contender, order.tools, order.now)
        for what, same in (("tools", told == order.told), ("grader", str(mark(order.grader)) == order.mark)):
            if not same:
                raise UsageError(
                    f"On the worker the {what} of the task {order.task.id!r} is not what was asked for.",
                    hint="Files that tools and graders are made from must be the same, at the same path, everywhere.",
                )
        return Cell(order.cell, order.contender, order.task, order.grader, order.repeat, agent)

    def _with_tools(self, contender: bytes, tools: bytes, now: float | None) -> tuple[Agent, str]:
        agent = self._template(contender).using(tools=pickle.loads(tools), now=now)
        return agent, tools_digest(agent)

    def _made(self, packed: bytes) -> Agent:
        contender = msgspec.msgpack.decode(packed, type=shipped.Contender)
        file = self._place / "plait.toml"
        if contender.settings:
            file.write_bytes(contender.settings)
            os.environ["PLAIT_CONFIG"] = str(file)  # what else is made here, such as a judge, reads the same
        return shipped.agent_there(contender, self._journal.path, file)

    def _graded_by(self, word: str) -> Grader:
        return grader(word, journal=self._journal.path)
