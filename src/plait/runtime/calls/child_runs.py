"""Child runs: an agent that a tool of another run uses. Also the tool that an agent becomes.

Theory of operation. A child run is an entry below the call that starts it. Its key has a digest of the question and a
count among equal ones, and the child's id follows from the run's id and that key. So when a call is made again after a
crash, it finds its child. Without a row in the journal the child starts, with one it goes on, and one that has ended is
not walked again: its end is on record, or comes from its row. What led to the call is on the disk before the child
begins. So no effect in the tree is repeated, and the call itself is never in doubt.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, structs

from plait.core import Event, Exchange, LimitNear, Stopped, Waiting
from plait.core.attachments import with_names
from plait.core.errors import ConfigError, PlaitError, ToolError, UnknownRun
from plait.core.events import ChildEvent
from plait.core.text import sentence, shorten
from plait.journal.entries import say_refused
from plait.journal.memory import MemoryLog
from plait.journal.records import ChildEnd, ChildStart, ParentCall, ResultRecord, RunHead, RunRow
from plait.journal.store import ENDED, RunLog, Store, read_timeline
from plait.journal.timeline import Timeline
from plait.runtime import runs
from plait.runtime.agents.dependencies import open_deps
from plait.runtime.agents.output import OutputForm, OutputT, output_of, recorded_output
from plait.runtime.calls.call_services import BudgetSpent
from plait.runtime.calls.context import Context
from plait.runtime.calls.make_call import ChildWaits
from plait.runtime.conversations.attachments import UserQuestion, split_question
from plait.runtime.conversations.chat_messages import GivenTurns
from plait.runtime.guard import Entry, HandedBack, LimitReached, StartChild, Suspend
from plait.runtime.performers.base import BasePerformer
from plait.runtime.recorded_events import recorded_loop
from plait.runtime.run import Run
from plait.runtime.run_journal import NOTHING, EntryWork, FoundEntry
from plait.runtime.run_spec import OnWait, RunSpec
from plait.runtime.spent import spent_in
from plait.tools import Tool, tool

if TYPE_CHECKING:
    from plait.runtime.calls.call_services import ToolServices
    from plait.runtime.engine import Engine

PASSED_ON = "(passed on to another agent)"
"""Stands for the answer to the question of a run, in the conversation that its child run sees."""


class ChildMaker(Protocol):
    """Prepares the runs of an agent."""

    async def prepare_run(
        self,
        asked: UserQuestion,
        session: None,
        on_wait: OnWait | None,
        history: GivenTurns | None,
        now: None,
        deps: Any,
    ) -> tuple[RunSpec, RunHead]: ...

    async def prepare_resume(
        self, head: RunHead, timeline: Timeline, on_wait: OnWait | None, deps: Any, store: Store
    ) -> RunSpec: ...


class ChildAgent(Protocol[OutputT]):
    """An agent, as far as a child run needs it."""

    @property
    def deps(self) -> Any: ...

    @property
    def make_deps(self) -> Callable[[], Any] | None: ...

    @property
    def output(self) -> OutputForm[OutputT]: ...

    @property
    def _runs(self) -> ChildMaker: ...

    def _with_loop_of(self, head: RunHead) -> ChildAgent[OutputT]: ...


async def perform_child(
    services: ToolServices, agent: ChildAgent[OutputT], question: UserQuestion, deps: Any, name: str, history: bool
) -> Run[OutputT]:
    """Run an agent as a child of a tool call, and return its run. `name` tells it from the other children of the call.
    `history`: it sees the conversation of the run.

    Raises `ChildWaits` if the child waits for the user or, once begun, can't go on; `ToolError` if a guard refuses it.
    """
    if not hasattr(agent, "_runs"):
        raise ConfigError(f"A {type(agent).__name__} is no agent.", hint="Give a plait.Agent.")
    engine, call = services.engine, services.entry
    key = f"{call.key}:c{name}"
    found = engine.journal.find(key)
    if found.value is UNSET:  # the id begins with the time of the run at the top
        text = f"{engine.run_id}\0{key}".encode("utf-8", "surrogatepass")
        digest = base64.b32encode(hashlib.blake2b(text, digest_size=10).digest()).decode().lower()
        id = f"{engine.run_id.rpartition('-')[0]}-{digest[:12]}"
    else:  # a fork has the child runs of the run that it comes from
        id = found.asked.run
    effect = StartChild(agent, question, id, deps, history)
    entry = Entry(engine.run_id, key, call.step, effect, effect, started=call.started, by_tool=True)
    performer = RunChild(services)
    try:
        await performer.record_ended(entry, found)
        await engine.perform(entry, performer)
    except Suspend as why:
        raise ChildWaits(id, why.questions) from None
    except (LimitNear, LimitReached) as why:
        raise BudgetSpent(why) from None
    return performer.run if performer.run is not None else await performer.read_run(id, agent)


class RunChild(BasePerformer):
    """Performs one `StartChild` of a tool call."""

    work = "child"
    subject = ("child run", "answer of the child run")

    def __init__(self, services: ToolServices) -> None:
        super().__init__(services.engine)
        self.run: Run[Any] | None = None
        """The child, if this process performed it."""
        self._services = services
        self._row: RunRow | None = None
        """The child in the journal; None if it has not begun, or there is no journal."""

    async def record_ended(self, entry: Entry, found: FoundEntry) -> None:
        """Look for the child in the journal. If it has ended, and its entry does not say so, record that."""
        engine = self.engine
        if engine.store is None:
            return
        with suppress(UnknownRun):
            self._row = row = await engine.store.find_run(entry.effect.run)
            if found.value is UNSET and row.status in ENDED and not engine.journal.replay:
                asked = UNSET if found is not NOTHING else self.describe(entry).asked
                await engine.journal.write(
                    ResultRecord(entry.key, entry.step, self.work, ChildEnd(row.status, row.totals), asked)
                )

    def describe(self, entry: Entry) -> EntryWork:
        asked = shorten(split_question(entry.effect.question)[0], 200)[0]
        return EntryWork(ChildStart(entry.effect.run, asked))

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Any:
        """Raise `ToolError`: the tool goes on without the child."""
        reason = say_refused(reason) if by_user else reason
        if by_user or is_after:
            reason = f"The {self.subject[is_after]} is {'withheld' if is_after else 'refused'}: {sentence(reason)}"
        raise ToolError(reason)

    async def perform(self, entry: Entry) -> tuple[ChildEnd, bytes | None]:
        try:
            async with open_deps(entry.effect.agent.make_deps, entry.effect.deps) as deps:
                return await self._perform(entry, deps)
        except PlaitError as why:
            if self._row is None or self.run is not None:
                raise
            # What it has done must not be forgotten: the run above ends without a result of this call.
            raise ChildWaits(entry.effect.run, error=why) from why

    async def _perform(self, entry: Entry, deps: Any) -> tuple[ChildEnd, bytes | None]:
        engine, services, row, start = self.engine, self._services, self._row, entry.effect
        began = "resumed" if row is not None else "started"
        asked = self.describe(entry).asked.question
        engine.remark("child", f"{services.entry.effect.tool} {began} run {start.run}: {asked}", entry.step)
        await engine.log.append()
        agent, on_wait = start.agent, engine.run_spec.on_wait
        log: RunLog
        if row is None:
            task, history = engine.run_spec.task, None
            if start.history:  # the child's head stores it; the guards pass on what is from outside
                earlier = [file for turn in task.history for file in turn.attachments]
                files = tuple(file for file in task.attachments if file not in earlier)
                asked_now = "\n\n".join((with_names(task.question, files), *map(":\n".join, task.texts)))
                asked_before = Exchange(asked_now, PASSED_ON, attachments=files)
                history = GivenTurns((*task.history, asked_before), True, engine.run_spec.contents)
            run_spec, head = await agent._runs.prepare_run(start.question, None, on_wait, history, None, deps)
            settings = head.settings
            if carried := engine.totals().get("guards"):  # a fork of the child begins with what its parent knew
                settings = {**settings, "guards": carried}
            caller = ParentCall(engine.run_id, entry.key)
            head = structs.replace(head, run=start.run, caller=caller, settings=settings)
            if (above := engine.head) is not None:
                head = structs.replace(head, user=above.user, tags=above.tags)
            log = await runs.open_log(run_spec, head, engine.store)
        else:
            assert engine.store is not None
            head = row.head
            timeline = await read_timeline(engine.store, head.run, bodies=False)
            agent = agent._with_loop_of(head)  # kept until the run ends
            run_spec = await agent._runs.prepare_resume(head, timeline, on_wait, deps, engine.store)
            # Whoever may go on with the parent may go on with its children.
            run_spec, log = await runs.claim(run_spec, head, engine.store, force=True)
        ended: list[Engine] = []

        def pass_on(event: Event) -> None:
            engine.say(event if isinstance(event, ChildEvent) else ChildEvent(start.run, engine.run_id, event))

        on_event = pass_on if engine.on_event is not None else None
        resumed = row is not None
        try:
            run = await runs.perform(run_spec, head, log, engine.store, on_event, resumed=resumed, on_end=ended.append)
        except HandedBack:
            raise Suspend from None
        if (why := ended[0].stuck) is not None:
            raise why
        self.run = run
        services.outside |= run.outside
        if isinstance(run.outcome, Waiting):
            raise Suspend(*ended[0].questions)
        if isinstance(log, MemoryLog) or engine.store is None:
            engine.children.append(run)
            totals = log.totals if isinstance(log, MemoryLog) else {}
        else:
            totals = (await engine.store.find_run(run.id)).totals
        return ChildEnd(run.outcome.status, totals), None

    async def read_run(self, id: str, agent: ChildAgent[Any]) -> Run[Any]:
        """Return the run of a child that has ended before. Raises `UnknownRun` if the journal no longer has it."""
        engine = self.engine
        if engine.store is None:
            return next(run for run in engine.children if run.id == id)
        row = self._row or await engine.store.find_run(id)
        engine.tally.children.setdefault(id, spent_in(row.totals))
        output = recorded_output(output_of(agent.output), row.head)
        run = runs.read_finished_run(row, engine.store, recorded_loop(row.head), output)
        self._services.outside |= run.outside
        return run


def make_agent_tool(
    agent: ChildAgent[Any], name: str, description: str, hand_off: bool, history: bool, background: bool = False
) -> Tool:
    """Make the tool that runs an agent as a child. See `Agent.as_tool`."""
    for field, given in (("name", name), ("description", description)):
        if not isinstance(given, str):
            raise ConfigError(f"as_tool({field}={given!r}) is invalid.", hint="Give a text.")

    async def run_agent(ctx: Context[Any], question: str) -> Any:
        """Give a task to another agent, and get its answer.

        Args:
            question: the whole task; the agent sees nothing else
        """
        run = await ctx.arun(agent, question, history=history)
        if run.answer is None:
            raise ToolError(f"The agent gave no answer: {run.status}. {run.reason or ''}".strip())
        if isinstance(run.outcome, Stopped) and ctx.services is not None:
            ctx.services.stopped = structs.replace(run.outcome, answer=None)
        return run.answer

    # The run that calls the tool must have the dependencies of this agent, unless the agent makes its own. The tool
    # changes nothing by itself: the calls of the child have records and approvals of their own.
    run_agent.__annotations__["ctx"] = GenericAlias(Context, (None if agent.make_deps else agent.deps) or object)
    run_agent.make_tool = partial(make_agent_tool, agent, name, description, hand_off, history, background)  # type: ignore[attr-defined]
    if history:
        seen = "the task; the agent also sees this conversation"
        run_agent.__doc__ = str(run_agent.__doc__).replace("the whole task; the agent sees nothing else", seen)
    made = tool(name=name, description=description, read_only=True)(run_agent)
    return structs.replace(made, hand_off=hand_off, background=background)
