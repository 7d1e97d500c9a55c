"""A worker: takes runs from a queue and performs them, beside any number of others on any machines.

Theory of operation. A worker takes only runs of the agents that it has. A new run is prepared by the worker, as if it
had been started here; a run that another worker left, or that was answered, is resumed. When a run cannot be resumed by
this version of its agent (the record differs, a tool is gone), it is left in the queue with the reason, and workers
with the same version take it no more. A worker that drains takes nothing new and hands back what goes on, as soon as
the work that has begun is on the record."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from plait import __version__
from plait.agent import Agent
from plait.core import Cancelled, Event
from plait.core.errors import ConfigError, JournalError, PlaitError, ReplayDiffers
from plait.journal.owner import owner_of_this_process
from plait.journal.queue import QueueLimits, QueueStore, require_queue
from plait.journal.records import RunRow
from plait.journal.store import read_timeline
from plait.runtime import runs
from plait.runtime.agents.dependencies import open_deps
from plait.runtime.conversations.attachments import UserQuestion, attach
from plait.runtime.guard import HandedBack
from plait.runtime.run import Run
from plait.view.live_texts import LiveTexts

if TYPE_CHECKING:
    from plait.server.metrics import ProcessMetrics

logger = logging.getLogger(__name__)

ANY_NUMBER = QueueLimits()
POLL = 1.0
"""Seconds after which a worker looks for work of which nobody told it: a run whose time has come, or whose worker is
gone."""


class QueueWorker:
    """Takes runs of `agents` (by name) from a queue of their journal, at most `concurrency` at once."""

    def __init__(
        self,
        agents: Mapping[str, Agent[Any, Any]],
        store: QueueStore,
        queue: str = "default",
        concurrency: int = 10,
        limits: QueueLimits = ANY_NUMBER,
    ) -> None:
        if not agents:
            hint = "Name one with -a, or in the table [agents] of plait.toml."
            raise ConfigError("A worker needs an agent.", hint=hint)
        self.agents, self.store, self.queue = dict(agents), store, queue
        self.concurrency, self.limits = concurrency, limits
        self.metrics: ProcessMetrics | None = None
        self._versions = {name: version_of(agent) for name, agent in agents.items()}
        self._texts = LiveTexts(store)
        self._runs: dict[asyncio.Task[None], RunRow] = {}
        self._draining = asyncio.Event()
        self.performed = 0
        """How many runs have ended here, or were handed back."""
        self._looked = -math.inf
        """When the journal last answered."""

    @property
    def running(self) -> int:
        """Return how many runs go on here."""
        return len(self._runs)

    def takes_work(self) -> bool:
        """Return whether it does not drain, and has just looked for work."""
        return not self._draining.is_set() and time.monotonic() - self._looked < 10 * POLL

    def drain(self) -> None:
        """Take nothing new, and hand back what goes on."""
        self._draining.set()

    async def work(self) -> None:
        """Take runs until the worker drains, and all it had is handed back or has ended. Raises `JournalError` if the
        journal is away for too long."""
        owner, asking = owner_of_this_process(), None
        self.store.call_back(False)
        stop = asyncio.ensure_future(self._draining.wait())
        try:
            while not self._draining.is_set():
                await self.store.start_due()
                free = self.concurrency - len(self._runs)
                taken = []
                if free > 0:
                    taken = await self.store.take(self.queue, self._versions, owner, free, self.limits)
                self._looked = time.monotonic()
                for row in taken:
                    if self.metrics is not None and row.head.has_begun and row.status == "running":
                        self.metrics.takeovers.inc()
                    task = asyncio.create_task(self._perform(row), name=f"plait run {row.head.run}")
                    self._runs[task] = row
                    task.add_done_callback(self._forget)
                if free > 0 and len(taken) == free:
                    continue  # there may be more, once one has ended
                asking = asking or asyncio.ensure_future(self.store.wait_for_work(self.queue, POLL))
                waits: set[asyncio.Future[Any]] = {asking, stop, *self._runs}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                asking = None if asking.done() else asking
        finally:
            stop.cancel()
            self.store.call_back()
            if self._runs:
                await asyncio.wait(self._runs)
            if asking is not None:
                await asyncio.wait([asking])

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        self.performed += 1

    async def _perform(self, row: RunRow) -> None:
        """Begin a run, or go on with it. Whatever is wrong, the worker goes on."""
        name, run, began = row.head.agent, row.head.run, time.monotonic()
        try:
            agent = self.agents[name]
            with self._texts.listen() as hear:
                if row.head.has_begun:
                    done = await agent.aresume(run, on_event=hear)
                else:
                    done = await begin(agent, row, self.store, hear)
            if self.metrics is not None:
                self.metrics.add_run(name, done, time.monotonic() - began)
        except HandedBack:
            logger.info("run %s was handed back", run)
        except Exception as why:
            reason = why.message if isinstance(why, PlaitError) else f"{type(why).__name__}: {why}"
            logger.warning("run %s cannot be performed here: %s", run, reason, exc_info=not isinstance(why, PlaitError))
            # Whatever else it is, another worker goes on when the lease has ended.
            version = self._versions.get(name, "") if isinstance(why, ConfigError | ReplayDiffers) else ""
            with suppress(JournalError):
                await self.store.block(run, version, reason)


async def hand_over(agent: Agent[Any, Any], run: str, answer: str | None, question: str | None, by: str) -> None:
    """Record the answer of the user `by` to a question of a run in a queue, and let a worker go on with it. Raises as
    `Agent.aresume` does, and `JournalError` if the run was cancelled meanwhile."""
    agent, store, row = await agent._find_recorded(run)
    timeline = await read_timeline(store, row.head.run, bodies=False)
    async with open_deps(agent.make_deps, None) as deps:
        run_spec = await agent._runs.prepare_resume(row.head, timeline, None, deps)
        _, log = await runs.claim(run_spec, row.head, store, answer=answer, question=question, by=by)
        if await require_queue(store).list_queue(run=row.head.run):
            await log.hand_back()
            return
        reason = "It was cancelled while it was answered."
        await log.end(Cancelled.status, msgspec.to_builtins(Cancelled(reason)), row.totals)
        raise JournalError(f"Run {row.head.run} is in no queue. {reason}", hint="Resume it, then it goes on.")


async def begin(
    agent: Agent[Any, Any], row: RunRow, store: QueueStore, on_event: Callable[[Event], None] | None = None
) -> Run[Any]:
    """Begin a run that was taken from a queue."""
    head = row.head
    contents = await store.read_contents(head.attachments)
    files = [attach(contents[each.digest], each.name) for each in head.attachments]
    asked: UserQuestion = [head.question, *files] if files else head.question
    async with open_deps(agent.make_deps, None) as deps:
        run_spec, made = await agent._runs.prepare_run(asked, head.session or None, None, None, None, deps, head.run)
        kept = {name: getattr(head, name) for name in ("label", "user", "tags", "metadata", "agent")}
        made = msgspec.structs.replace(made, **kept)
        log = await runs.open_log(run_spec, made, store)
        return await runs.perform(run_spec, made, log, store, on_event)


def version_of(agent: Agent[Any, Any]) -> str:
    """Return a digest of what a run's record depends on: the agent's fields, its tools and Plait itself."""
    shown = re.sub(r" at 0x[0-9a-f]+", "", repr(agent))  # which differ from process to process
    described = msgspec.json.encode((__version__, shown, [msgspec.to_builtins(spec) for spec in agent.specs]))
    return hashlib.blake2b(described, digest_size=8).hexdigest()
