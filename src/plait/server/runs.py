"""The runs of this process: started, resumed, forked and cancelled for the callers who may see them.

Each run is in the journal before its client learns of it. Its label names its owner, so access rules survive a restart.
At most `concurrent` runs are performed at once and `queued` more requests wait; further ones are refused. When the
server stops, runs have `grace` seconds to end. Then they are cancelled with a reason, and can be resumed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from plait.agent import Agent
from plait.config import ServeTable
from plait.core import Event
from plait.core.errors import JournalError, UnknownRun
from plait.core.events import Began, Ended
from plait.journal.codec import encode
from plait.journal.queue import has_queue
from plait.journal.records import RunHead, RunRow
from plait.journal.run_query import RunQuery
from plait.journal.served_runs import RunLabel
from plait.journal.store import Journal
from plait.runtime.agents.annotations import RunAnnotations
from plait.runtime.approvals import require_open_question
from plait.runtime.conversations.attachments import UserQuestion
from plait.runtime.conversations.chat_messages import ChatMessages
from plait.runtime.inbox import NotTaken, Sent, send
from plait.runtime.run import Run
from plait.runtime.runs import cancel_run
from plait.server.agents import ServedAgent, makes_same_requests, prepare_agents
from plait.server.auth import ANYONE, APPROVE, CHANGE, USE, AccessTokens, Caller
from plait.server.errors import RequestRejected, missing_role
from plait.server.metrics import ProcessMetrics
from plait.server.proxy_users import ProxyUsers
from plait.view.live_texts import LiveTexts
from plait.workers import hand_over

GONE = "the client went away"
"""Why a run was cancelled: its client closed the connection."""
STOPPED = "the server stopped"
"""Why a run was cancelled: the server stopped before its end. It can be resumed."""
MAX_TYPED = 32
"""Maximum number of agents that are kept for the schemas of clients."""

OnEvent = Callable[[Event], None]


class ActiveRun:
    """A run that this process performs. `run` is its id once `begun` returned; `agent` is the served agent's name."""

    def __init__(self, texts: LiveTexts, agent: str, session: str, on_event: OnEvent | None) -> None:
        self.agent, self.session, self.run = agent, session, ""
        self.result: Run | None = None
        self.started = time.monotonic()
        self.task: asyncio.Task[Run]
        self._texts, self._on_event = texts, on_event
        self._began: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def perform(self, work: Callable[..., Coroutine[Any, Any, Run]]) -> Run:
        """Perform the run: as a task, which continues even if nobody waits for it."""
        with self._texts.listen() as show:
            run = await work(on_event=partial(self._hear, show))
        self.run, self.result = run.id, self.result or run
        return run

    async def begun(self) -> None:
        """Wait until the journal has the run. Raises the error that prevented that."""
        await asyncio.wait((self._began, self.task), return_when=asyncio.FIRST_COMPLETED)
        if not self._began.done():
            self.task.result()

    async def done(self) -> Run:
        """Wait for the run's end, even if it is cancelled. Raises the error that prevented the run."""
        await asyncio.wait([self.task])
        return self.result or self.task.result()

    def cancel(self, reason: str) -> bool:
        """Cancel the run for a reason that the journal stores. Returns False if it is over or already cancelled."""
        return not self.task.cancelling() and self.task.cancel(reason)

    def keep(self, turn: ExitStack) -> None:
        """Let the next turn of the conversation begin when this run is over."""
        kept = turn.pop_all()
        self.task.add_done_callback(lambda _: kept.close())

    def _hear(self, show: OnEvent, event: Event) -> None:
        if isinstance(event, Ended):
            self.result = event.run
        show(event)
        if self._on_event is not None:
            self._on_event(event)
        if isinstance(event, Began):
            self.run = event.run
            if not self._began.done():
                self._began.set_result(None)


class RunManager:
    """Perform the runs of a server. `agents` are the served agents by name; `active` are the runs by id."""

    def __init__(
        self, agents: Iterable[ServedAgent], table: ServeTable | None = None, tokens: AccessTokens | None = None
    ) -> None:
        self.table = table or ServeTable()
        self.tokens = tokens or AccessTokens()
        self.proxy_users = ProxyUsers(self.table)
        self.agents = prepare_agents(agents)
        self.journal = Journal.at(next(iter(self.agents.values())).agent.journal or None)
        self.texts = LiveTexts(self.journal.store)
        self.metrics = ProcessMetrics(self.journal.store)
        self.metrics.running.set_function(lambda: self.running)
        self.metrics.queued.set_function(lambda: self.waiting)
        self.active: dict[str, ActiveRun] = {}
        self.stopping = False
        """The server stops: event streams without an end must end now."""
        self.waiting = 0
        """Requests that wait for a place or for their turn."""
        self._performed: set[ActiveRun] = set()
        self.streams: set[tuple[str, object]] = set()
        """The open streams of this process whose clients may come back, each with its run."""
        self.resume_more: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Goes on with what else a server left, when unfinished runs are resumed."""
        self._beside: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(self.table.concurrent)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._deadline = 0.0
        self._typed: dict[tuple[str, bytes], Agent] = {}

    @property
    def needs_token(self) -> bool:
        """Return whether a caller must have a token, or come through a proxy. Else everybody who can reach the server
        may do everything."""
        return self.tokens.are_set or self.proxy_users.are_set

    @property
    def running(self) -> int:
        """Return how many runs have a place."""
        return len(self._performed)

    async def start(
        self,
        agent: str,
        question: UserQuestion,
        *,
        caller: Caller = ANYONE,
        session: str | None = None,
        history: ChatMessages | None = None,
        key: str = "",
        output: dict[str, Any] | None = None,
        about: RunAnnotations | None = None,
        on_event: OnEvent | None = None,
    ) -> ActiveRun:
        """Start a run; returns when the journal has it. `session` is the name from `Caller.session`, `output` the JSON
        Schema of the answer, `about` what the caller says of the run.

        Raises `RequestRejected` (unknown agent, too many runs, the server stops) and `PlaitError`.
        """
        said = self.annotate(agent, caller, about or {}, key)
        served = self.find_agent(agent)
        if output is not None and served.agent.output is not str:
            text = "'response_format' can't be used here. The agent has an output type."
            raise RequestRejected(400, text, param="response_format")
        arun = self._with_output(served, output).arun
        work = partial(arun, question, session=session, history=history, **said)
        return await self._perform(ActiveRun(self.texts, agent, session or "", on_event), work)

    def annotate(self, agent: str, caller: Caller, about: RunAnnotations, key: str = "") -> RunAnnotations:
        """Return what a caller says of a run for the journal: with its owner, and the user as one of the caller's."""
        label, user = str(RunLabel(caller.owner, agent, key)), caller.user(about.get("user") or "")
        return {**about, "label": label, "user": user}

    async def resume(
        self,
        run: str,
        answer: str | None = None,
        *,
        question: str | None = None,
        caller: Caller = ANYONE,
        on_event: OnEvent | None = None,
        request: str = "",
    ) -> ActiveRun:
        """Resume a run; `answer` is the user's reply to the open question with the id `question`. `request` is on
        record with it.

        For a child run, resumes the run at the top of its tree, which waits with the same question. Raises
        `StaleAnswer` if the question is not open, and `RequestRejected` if the caller may not answer it.
        """
        head = self._require_resumable(await self._find_answerable(run, answer, question, caller))
        said: dict[str, Any] = {"question": question, "request": request, "by": caller.name}
        work = partial(self.agent_for(head).aresume, head.run, answer, **said)
        return await self._perform(ActiveRun(self.texts, agent_name(head), head.session, on_event), work)

    async def answer(
        self, run: str, answer: str | None = None, *, question: str | None = None, caller: Caller = ANYONE
    ) -> str:
        """Record the user's answer to a question of a run, or let an interrupted run go on. A run of a queue goes on in
        a worker, another one here. Returns the id of the run that goes on."""
        store, top = self.journal.store, await self._find_answerable(run, answer, question, caller)
        if has_queue(store) and await store.list_queue(run=top.head.run):
            head = self._require_resumable(top)
            await hand_over(self.agent_for(head), head.run, answer, question, caller.name)
            return head.run
        return (await self.resume_in_turn(run, answer, question=question, caller=caller)).run

    async def resume_in_turn(
        self,
        run: str,
        answer: str | None = None,
        *,
        question: str | None = None,
        caller: Caller = ANYONE,
        on_event: OnEvent | None = None,
    ) -> ActiveRun:
        """Resume a run as a turn of its conversation, after the active turn. A fork is not a turn."""
        head = self._require_resumable(await self.find_run(run, caller))
        with await self.take_turn(None if head.parent else head.session or None) as turn:
            active = await self.resume(run, answer, question=question, caller=caller, on_event=on_event)
            active.keep(turn)
        return active

    async def fork_with(self, agent: Agent, head: RunHead, at: int, **more: Any) -> ActiveRun:
        """Start a fork of a recorded run with an agent. `more` are the arguments of `Agent.afork`."""
        work = partial(agent.afork, head.run, at, **more)
        return await self._perform(ActiveRun(self.texts, agent_name(head), head.session, None), work)

    def annotate_fork(self, head: RunHead, caller: Caller) -> RunAnnotations:
        """Return the owner and the user of a fork that a caller makes of a run, and who made it."""
        label = str(RunLabel(caller.owner, agent_name(head)))
        by = {"forked_by": caller.name} if caller.name else {}
        return {"label": label, "user": caller.user(head.user), "metadata": {**head.metadata, **by}}

    async def cancel(self, run: str, *, caller: Caller = ANYONE, reason: str = "Cancelled by a client.") -> None:
        """Cancel a run: soon, if this process or another one performs it, else at once. Raises `RequestRejected` if it
        has ended, or its process can't be told."""
        found = await self.find_run_to_change(run, caller)
        if (active := self.active.get(found.head.run)) is not None:
            active.cancel(reason)
            return
        try:
            await cancel_run(self.journal.store, found.head.run, reason)
        except JournalError as why:
            raise RequestRejected(409, why.message, hint=why.hint, may_retry=False) from None

    async def send(self, run: str, sent: Sent, *, caller: Caller = ANYONE) -> int:
        """Send a message to a run that goes on, or cancel a call of it. Returns its number. Raises `RequestRejected` if
        the run, or the call, has ended."""
        found = await self.find_run_to_change(run, caller)
        try:
            return await send(self.journal.store, found.head.run, sent)
        except NotTaken as why:
            raise RequestRejected(409, why.message, hint=why.hint, may_retry=False) from None

    # -- who may see what

    def find_agent(self, name: str) -> ServedAgent:
        """Return the agent of that name. Raises `RequestRejected` in a form that clients know."""
        served = self.agents.get(name)
        if served is None:
            text, hint = f"The model '{name}' does not exist.", f"These exist: {self.agent_names}."
            raise RequestRejected(404, text, hint=hint, code="model_not_found", param="model")
        return served

    def shows_thoughts(self, head: RunHead, caller: Caller) -> bool:
        """Return whether a caller may see what the models of a run say besides its answer. Clients may if the agent
        shows its thoughts, users in their own runs; neither if it has hooks: the record has texts that a hook withheld
        or replaced."""
        served = self.agents.get(agent_name(head))
        shows = bool(caller.name) or (served is not None and served.thoughts)
        return caller.sees_all or (shows and not head.settings.get("hooks"))

    async def shows_steps(self, row: RunRow, caller: Caller) -> bool:
        """Return whether a user may see the steps of a run: see `shows_thoughts`. A child run's texts pass through the
        hooks of the runs above it."""
        return caller.sees_all or all(self.shows_thoughts(each.head, caller) for each in await self._find_tree(row))

    @property
    def agent_names(self) -> str:
        return ", ".join(list(self.agents)[:20])

    async def find_run(self, run: str, caller: Caller = ANYONE) -> RunRow:
        """Return a recorded run. Raises the same `UnknownRun` for a missing run and for another owner's. A client sees
        only runs that the same token started, and a user without the role `view` only the user's own, by their whole
        id; near matches could be other owners' runs."""
        if caller.sees_all:
            return await self.journal.store.find_run(run)
        with suppress(UnknownRun):
            row = await self.journal.store.find_run(run)
            if row.head.run == run and await self.is_own(row, caller):
                return row
        raise UnknownRun(f"There is no run {run!r} in the journal.")

    async def is_own(self, row: RunRow, caller: Caller) -> bool:
        """Return whether a caller started a run, or may do everything."""
        label = RunLabel.parse((await self._find_tree(row))[-1].head.label)
        return caller.full or (label is not None and bool(label.owner) and label.owner == caller.owner)

    async def find_run_to_change(self, run: str, caller: Caller) -> RunRow:
        """Return a run that the caller may rate, resume, cancel and delete: one of its own, or with the role `change`
        each that it sees. Raises `UnknownRun` and `RequestRejected`."""
        row = await self.find_run(run, caller)
        if not caller.may(CHANGE) and not (caller.may(USE) and await self.is_own(row, caller)):
            raise missing_role(CHANGE)
        return row

    async def _find_answerable(self, run: str, answer: str | None, question: str | None, caller: Caller) -> RunRow:
        """Return the run at the top of the tree, which the caller may resume, with this answer. Only the role `approve`
        approves calls and plans; it also answers each question of an agent."""
        row = await self.find_run(run, caller)
        top = (await self._find_tree(row))[-1]
        if answer is not None:
            if caller.may(APPROVE):
                return top
            if (await require_open_question(self.journal.store, top.head.run, question)).kind != "question":
                raise missing_role(APPROVE)
        await self.find_run_to_change(run, caller)
        return top

    async def list_rights(self, row: RunRow, caller: Caller) -> dict[str, bool]:
        """Return what the caller may do with a run that it sees, for the pages."""
        own = caller.may(USE) and await self.is_own(row, caller)
        approve, fork = caller.may(APPROVE), caller.may(CHANGE)
        return {"approve": approve, "answer": approve or fork or own, "change": fork or own, "fork": fork}

    async def _find_tree(self, row: RunRow) -> list[RunRow]:
        """Return a run and those above it: of a child run, the last one is the top of its tree."""
        rows, seen = [row], {row.head.run}
        while row.head.caller is not None and row.head.caller.run not in seen:
            row = await self.journal.store.find_run(row.head.caller.run)
            seen.add(row.head.run)
            rows.append(row)
        return rows

    def _require_resumable(self, row: RunRow) -> RunHead:
        if row.status in ("answered", "failed", "stopped"):
            hint = "Fork it to continue in another way."
            raise RequestRejected(409, f"Run {row.head.run} is over ({row.status}).", hint=hint)
        if row.head.run in self.active:
            text = f"Run {row.head.run} is under way."
            raise RequestRejected(409, text, hint="Wait for its end.", may_retry=False)
        return row.head

    def agent_for(self, head: RunHead) -> Agent:
        """Return the agent that resumes a run: the served one if its settings are unchanged, else the recorded one. It
        is found by the name under which a server made the run, or by that of the agent that another program used."""
        by_name = {each.agent.name: each for each in self.agents.values() if each.agent.name}
        served = self.agents.get(agent_name(head)) or by_name.get(head.agent) or self.agents.get(head.agent)
        if served is not None:
            agent = self._with_output(served, (head.settings.get("output") or {}).get("schema"))
            # Nothing but the served agent has tools that were given in Python.
            if makes_same_requests(agent, head) or "" in head.sources:
                return agent
        return Agent.from_journal(head, journal=self.journal.place)

    def _with_output(self, served: ServedAgent, schema: dict[str, Any] | None) -> Agent:
        """Return the served agent, for answers that fit the schema. Clients send the same few schemas again and again,
        so the last ones are kept with their agents."""
        if schema is None or served.agent.output is not str:
            return served.agent
        key = (served.name, encode(schema))
        agent = self._typed.pop(key, None) or served.agent.using(output=schema)
        self._typed[key] = agent
        if len(self._typed) > MAX_TYPED:
            del self._typed[next(iter(self._typed))]
        return agent

    def unfinished_runs(self) -> list[RunRow]:
        """Return the runs that a server on this journal started and did not end, because it died or was stopped."""
        states = ("interrupted", "cancelled")
        rows = (row for each in states for row in self.journal.find(RunQuery(status=each, label="serve:")))
        return [row for row in rows if row.status == "interrupted" or (row.outcome or {}).get("reason") == STOPPED]

    # -- places and turns

    async def take_turn(self, session: str | None) -> ExitStack:
        """Wait until the conversation's turn before this one is over. None: a new conversation does not wait. Nobody
        else can add a turn before what it returns is closed, or the run that keeps it is over (`ActiveRun.keep`)."""
        turn = ExitStack()
        if session is not None:
            lock = self._turns.setdefault(session, asyncio.Lock())
            await self._acquire(lock)
            turn.callback(lock.release)
        return turn

    async def _perform(self, active: ActiveRun, work: Callable[..., Coroutine[Any, Any, Run]]) -> ActiveRun:
        """Wait for a place, start the run, and wait until the journal has it."""
        await self._acquire(self._places)
        if self.stopping:
            self._places.release()
            self._refuse()
        self._performed.add(active)
        active.task = asyncio.ensure_future(active.perform(work))
        active.task.add_done_callback(lambda _: self._finish(active))
        try:
            await active.begun()
        except asyncio.CancelledError:
            active.cancel(GONE)
            raise
        if not active.task.done():
            self.active[active.run] = active
        return active

    def hold(self, work: Coroutine[Any, Any, None]) -> None:
        """Perform something beside the runs. The event loop holds tasks only weakly."""
        task = asyncio.ensure_future(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def _finish(self, active: ActiveRun) -> None:
        self._performed.discard(active)
        self.active.pop(active.run, None)
        self._places.release()
        _ = active.task.cancelled() or active.task.exception()  # mark as retrieved: maybe nobody else asks for it
        if active.result is not None:
            self.metrics.add_run(active.agent, active.result, time.monotonic() - active.started)

    async def _acquire(self, lock: asyncio.Semaphore | asyncio.Lock) -> None:
        if self.stopping or (lock.locked() and self.waiting >= self.table.queued):
            self._refuse()
        self.waiting += 1
        try:
            await lock.acquire()
        finally:
            self.waiting -= 1

    def _refuse(self) -> NoReturn:
        hint = "Ask again in a while."
        if self.stopping:
            self.metrics.refused.labels("stopping").inc()
            text, kind = "The server is stopping.", "server_error"
            raise RequestRejected(503, text, hint=hint, kind=kind, code="stopping", retry_after=5)
        self.metrics.refused.labels("full").inc()
        text = f"The server performs {self.table.concurrent} runs at once, and {self.waiting} requests wait."
        kind, code = "rate_limit_error", "rate_limit_exceeded"
        seconds = self.metrics.estimate_wait(self.waiting, self.table.concurrent)
        raise RequestRejected(429, text, hint=hint, kind=kind, code=code, retry_after=seconds)

    # -- the end

    async def stop(self, grace: float | None = None) -> int:
        """Accept no more runs, wait `grace` seconds for active ones, and cancel the others. Returns how many."""
        self.stopping = True
        clock = asyncio.get_running_loop().time
        self._deadline = clock() + (self.table.grace if grace is None else grace)
        while self._performed and clock() < self._deadline:
            await asyncio.sleep(0.05)
        rest = tuple(self._performed)
        for active in rest:
            active.cancel(STOPPED)
        for active in rest:
            await asyncio.wait([active.task], timeout=10)
        await self.texts.close()
        if beside := [task for task in self._beside if task.cancel()]:
            await asyncio.wait(beside, timeout=10)
        return len(rest)

    def end_grace(self) -> None:
        """Make `stop` cancel the remaining runs now."""
        self._deadline = 0.0


def agent_name(head: RunHead) -> str:
    """Return the name under which a server made a run; "" if none did."""
    label = RunLabel.parse(head.label)
    return label.agent if label is not None else ""
