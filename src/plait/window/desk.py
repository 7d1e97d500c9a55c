"""What all routes share: the agents, the journal, and the runs that are performed in this process.

Theory of operation. A run that has its place (`places.py`) is a task of its own, and is on record before whoever asked
is told anything. Who may see it stands in its label, `serve:OWNER:AGENT:KEY` (`conversations.py`
makes the key), so it holds after a restart. When the server stops, runs have a while to end; then they are cancelled,
for a reason that is on their record, and can be resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from plait.agent import Agent
from plait.config import ServeTable
from plait.core import Exchange
from plait.core.errors import UnknownRun, UsageError
from plait.journal.reader import NoJournal
from plait.journal.records import RunHead, RunRow
from plait.journal.store import Journal
from plait.window.agents import changed, ready, same
from plait.window.callers import ANYONE, Caller, Door
from plait.window.counts import Counts
from plait.window.errors import Rejected
from plait.window.marks import Mark, mark_of
from plait.window.performing import Begin, Emit, Performing
from plait.window.places import Places, Turn
from plait.window.settings import ServedAgent, by_name

GONE = "the client went away"
"""Why runs are cancelled whose client closed its connection."""

STOPPED = "the server stopped"
"""Why runs are cancelled that were under way when the server stopped: they can be gone on with."""


class Desk:
    """Where runs are begun, gone on with, forked and cancelled. `agents` are those that are served, by name."""

    def __init__(
        self, agents: Iterable[ServedAgent], table: ServeTable | None = None, door: Door | None = None
    ) -> None:
        self.table = table or ServeTable()
        self.door = door or Door()
        self.counts = Counts()
        self.performing: dict[str, Performing] = {}
        known = by_name(agents)
        first = next(iter(known.values())).agent
        if first.journal is False:
            raise UsageError("A server keeps a record of its runs.", hint="Leave out journal=False.")
        self.journal = Journal.at(first.journal)
        self.agents = {name: ready(each, first.journal) for name, each in known.items()}
        self._taken: set[Performing] = set()
        self._places = Places(self.table, self.counts)
        self._until = 0.0

    # -- runs

    async def start(
        self,
        agent: str,
        question: str,
        *,
        caller: Caller = ANYONE,
        session: str | None = None,
        history: Iterable[Exchange] | None = None,
        key: str = "",
        emit: Emit | None = None,
    ) -> Performing:
        """Begin a run; comes back when it is on record. `session` is the name on record (`Caller.session` makes it).

        Raises `Rejected` (unknown agent, too many runs, the server stops), `PlaitError`.
        """
        served = self.agent(agent)
        label = str(Mark(caller.owner, agent, key))

        def begin(say: Emit) -> Any:
            return served.agent.arun(question, session=session, history=history, emit=say, label=label)

        performing = Performing(agent, caller, question, session or "", emit)
        return await self._take(performing, begin)

    async def resume(
        self,
        run: str,
        answer: str | None = None,
        *,
        question: str | None = None,
        caller: Caller = ANYONE,
        emit: Emit | None = None,
    ) -> Performing:
        """Go on with a run; `answer` is what the person says to the open `question` of that id.

        Raises `StaleAnswer` when the question is not open (any more).
        """
        row = self._resumable(run, caller)
        agent = self.agent_of(row.head)

        def begin(say: Emit) -> Any:
            return agent.aresume(row.head.run, answer, question=question, emit=say)

        return await self._take(self._of(row, caller, emit), begin)

    async def go_on(
        self,
        run: str,
        answer: str | None = None,
        *,
        question: str | None = None,
        caller: Caller = ANYONE,
        emit: Emit | None = None,
    ) -> Performing:
        """`resume` as a turn of the run's conversation: when the one under way is over. A fork is no turn."""
        head = self._resumable(run, caller).head
        async with self.turn(None if head.parent else head.session or None) as turn:
            performing = await self.resume(run, answer, question=question, caller=caller, emit=emit)
            turn.lasts(performing)
        return performing

    async def fork(
        self,
        run: str,
        at: int,
        changes: Mapping[str, Any] | None = None,
        *,
        caller: Caller = ANYONE,
        emit: Emit | None = None,
    ) -> Performing:
        """A new run that shares a recorded one's steps before `at`; `changes`: see `agents.FORKED`."""
        row = self.row(run, caller)
        agent = changed(self.agent_of(row.head), dict(changes or {}))
        mark = mark_of(row.head.label)
        label = str(Mark(caller.owner, mark.agent if mark else ""))

        def begin(say: Emit) -> Any:
            return agent.afork(row.head.run, at, emit=say, label=label)

        return await self._take(self._of(row, caller, emit), begin)

    def cancel(self, run: str, *, caller: Caller = ANYONE, reason: str = "cancelled from the window") -> bool:
        """Cancel a run of this process; False when there is none of that id under way. Raises for another's run."""
        found = self.performing.get(run)
        if found is None:
            return False
        self.row(run, caller)
        return found.cancel(reason)

    # -- who may see what

    def agent(self, name: str) -> ServedAgent:
        """The agent of that name. Raises `Rejected`, in the words that clients know."""
        found = self.agents.get(name)
        if found is None:
            known = ", ".join(list(self.agents)[:20])
            raise Rejected(
                404,
                f"The model '{name}' does not exist.",
                hint=f"There are: {known}.",
                code="model_not_found",
                param="model",
            )
        return found

    def row(self, run: str, caller: Caller = ANYONE) -> RunRow:
        """A run on record. Raises `UnknownRun`, in the same words for one that the caller may not see."""
        if not caller.full and run == "last":
            raise _unknown(run)
        try:
            row = self.journal.run(run)
        except UnknownRun:
            if caller.full:
                raise
            raise _unknown(run) from None  # the words of the error would name the nearest runs, which are others'
        if not self.may_see(row.head, caller) or (not caller.full and row.head.run != run):
            raise _unknown(run)
        return row

    def _resumable(self, run: str, caller: Caller) -> RunRow:
        row = self.row(run, caller)
        if row.status in ("answered", "failed", "stopped"):
            raise Rejected(409, f"Run {row.head.run} is over ({row.status}).", hint="Fork it to go on otherwise.")
        if row.head.run in self.performing:
            raise Rejected(409, f"Run {row.head.run} is going on.", hint="Wait for its end.", again=False)
        return row

    @staticmethod
    def may_see(head: RunHead, caller: Caller) -> bool:
        """Whether that is for the caller to see: everything, or what was begun with the same token."""
        mark = mark_of(head.label)
        return caller.full or (mark is not None and bool(mark.owner) and mark.owner == caller.owner)

    def agent_of(self, head: RunHead) -> Agent:
        """The agent that goes on with a recorded run: the served one if it is the same still, else as recorded."""
        mark = mark_of(head.label)
        served = self.agents.get(mark.agent) if mark is not None else None
        if served is not None and same(served.agent, head):
            return served.agent
        return Agent.recorded(head, journal=self.journal.path)

    def left_behind(self) -> list[RunRow]:
        """Runs that a server on this journal began and did not end: its process died, or was stopped."""
        try:
            rows = [*self.journal.runs(10_000, "interrupted"), *self.journal.runs(10_000, "cancelled")]
        except NoJournal:
            return []
        return [
            row
            for row in rows
            if mark_of(row.head.label) is not None
            and (row.status == "interrupted" or (row.outcome or {}).get("reason") == STOPPED)
        ]

    def turn(self, session: str | None) -> AbstractAsyncContextManager[Turn]:
        """One turn of a conversation at a time: see `Places.turn`."""
        return self._places.turn(session)

    # -- places

    async def _take(self, performing: Performing, begin: Begin) -> Performing:
        """Wait for a place, begin, and wait until the run is on record."""
        await self._places.take()
        self._taken.add(performing)
        task = performing.go(begin)
        task.add_done_callback(lambda _: self._over(performing))
        try:
            await performing.begun()
        except asyncio.CancelledError:
            performing.cancel(GONE)
            raise
        if not task.done():
            self.performing[performing.run] = performing
        return performing

    def _over(self, performing: Performing) -> None:
        self._taken.discard(performing)
        self.performing.pop(performing.run, None)
        self._places.release()
        if performing.result is not None:
            self.counts.ended(performing.agent, performing.result, performing.seconds)

    def _of(self, row: RunRow, caller: Caller, emit: Emit | None) -> Performing:
        mark = mark_of(row.head.label)
        return Performing(mark.agent if mark else "", caller, row.head.question, row.head.session, emit)

    # -- the end

    @property
    def stopping(self) -> bool:
        """The server stops: streams that have no end of their own end now."""
        return self._places.closed

    @property
    def waiting(self) -> int:
        """Requests that wait for a place, or for their turn."""
        return self._places.waiting

    @property
    def running(self) -> int:
        """How many runs have a place."""
        return len(self._taken)

    async def stop(self, grace: float | None = None) -> int:
        """Take no more runs, give those under way `grace` seconds, cancel the rest; returns how many that were."""
        self._places.closed = True
        clock = asyncio.get_running_loop().time
        self._until = clock() + (self.table.grace if grace is None else grace)
        while self._taken and clock() < self._until:
            await asyncio.sleep(0.05)
        left = tuple(self._taken)
        for performing in left:
            performing.cancel(STOPPED)
        for performing in left:
            await asyncio.wait([asyncio.ensure_future(performing.done())], timeout=10)
        return len(left)

    def hurry(self) -> None:
        """The time that `stop` gives is over now."""
        self._until = 0.0


def _unknown(run: str) -> UnknownRun:
    return UnknownRun(f"There is no run {run!r} in the journal.")
