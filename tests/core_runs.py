"""Runs for the tests of the core: loops of a few lines, tools that note what they did, and processes that die.

`Tried` takes a run of an agent through as many processes as it needs, on a journal in memory (`core_journal.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import structs

import plait
from core_journal import RUN, Disk, Killed, Process
from plait.core import (
    Answered,
    Call,
    Event,
    LimitNear,
    LoopContext,
    LoopRun,
    Observation,
    OneKind,
    Splitter,
    Stopped,
    Task,
)
from plait.core.effects import Act, Think, ask
from plait.journal.entries import Question, ToolCall
from plait.journal.open_questions import find_open_questions
from plait.journal.records import IntentRecord
from plait.journal.store import ENDED
from plait.runtime import runs
from plait.runtime.agents.agent_fields import AgentFields
from plait.runtime.guard import Guard
from plait.runtime.run import Run
from plait.runtime.run_spec import RunSpec
from plait.runtime.runs import Replayed

# -- loops


class Steps:
    """A loop from a generator function, which returns the answer."""

    name: ClassVar[str] = "steps"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    prompts: ClassVar[dict[str, str]] = {"none": "it renders none"}

    def __init__(self, walk: Callable[[], LoopRun] | Callable[[str], LoopRun], *, asks: bool = False) -> None:
        self._walk, self._takes_question = walk, asks

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        answer = yield from self._walk(task.question) if self._takes_question else self._walk()  # type: ignore[call-arg]
        return answer if isinstance(answer, Stopped) else Answered(answer)

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")


def texts(seen: Iterable[Observation]) -> list[str]:
    """Return the trouble of each result, or its text."""
    return [each.trouble or each.text for each in seen]


def calls(*each: Call, fixed: bool = False) -> Callable[[], LoopRun]:
    """Return a loop that makes some calls at once, and answers with their results."""

    def walk() -> LoopRun:
        return texts((yield Act(each, fixed=fixed)))  # type: ignore[return-value]

    return walk


def asks_model(question: str = "q", **fields: Any) -> Think:
    return Think("act", prompt=question, **fields)


def until_limit(walk: LoopRun) -> LoopRun:
    """Take a walk to its end, or to the first limit."""
    try:
        return (yield from walk)
    except LimitNear as why:
        return f"stopped: {why.limit}"  # type: ignore[return-value]


# -- tools, whose effects outlive every process

WORLD: list[tuple[tuple[str, str], str]] = []
"""What was done: the entry (its run and key), and a text."""


def did() -> list[str]:
    """Return the texts of what was done."""
    return [text for _, text in WORLD]


def do(ctx: plait.Context[Any], text: str) -> None:
    services = ctx.services
    assert services is not None
    store: Any = services.engine.store
    if isinstance(store, Process):
        store.require_life()
    WORLD.append((services.entry.id, text))


@plait.tool(inline=True)
def pay(ctx: plait.Context[Any], amount: int, to: str = "Ann") -> str:
    """Pay somebody."""
    do(ctx, f"{amount} to {to}")
    return f"paid {amount}"


@plait.tool
async def post(ctx: plait.Context[Any], text: str, pause: int = 1) -> str:
    """Post a text, after and before some pauses."""
    for _ in range(pause):
        await asyncio.sleep(0)
    do(ctx, f"post {text}")
    for _ in range(pause):
        await asyncio.sleep(0)
    return f"posted {text}"


@plait.tool(read_only=True, inline=True)
def look(ctx: plait.Context[Any], city: str) -> str:
    """Look up a city."""
    do(ctx, f"look {city}")
    return {"Lyon": "522250", "Nice": "348085"}.get(city, "0")


@plait.tool(read_only=True)
async def browse(ctx: plait.Context[Any], page: str) -> str:
    """Read a page."""
    await asyncio.sleep(0)
    return f"page {page}"


browse = structs.replace(browse, open_world=True)

PAY = Call("pay", {"amount": 5})
LOOK = Call("look", {"city": "Lyon"})
TOOLS = (pay, post, look, browse)


def agent_of(walk: Any, replies: Any = ("x",) * 99, tools: Sequence[Any] = TOOLS, **settings: Any) -> plait.Agent[Any]:
    """Return an agent whose loop is a generator function."""
    model = replies if hasattr(replies, "encode") else plait.Scripted(replies)
    loop = walk if hasattr(walk, "run") else Steps(walk)
    return plait.Agent(loop, model=model, tools=list(tools), **{"journal": False, **settings})


# -- a run in several processes


@dataclass
class Tried:
    """A run of an agent, in as many processes as it needs.

    `make_agent` makes the agent of each process, and `make_guards` its guards beside those of the agent's settings.
    """

    make_agent: Callable[[], plait.Agent[Any]]
    make_guards: Callable[[], Sequence[Guard | plait.Hook]] = tuple
    disk: Disk = field(default_factory=Disk)
    pause: Callable[[], int] = lambda: 0
    process: Process = field(default_factory=lambda: Process(Disk()))
    """The last process."""
    on_event: Callable[[Event], None] | None = None

    @property
    def questions(self) -> list[Question]:
        """Return the open questions, those of child runs too."""
        if RUN not in self.disk.runs:
            return []
        return asyncio.run(find_open_questions(Process(self.disk), RUN))  # type: ignore[arg-type]

    def go(self, answer: str | None = None, which: int = 0, *, dies_at: int | None = None) -> Run[Any]:
        """Let another process begin the run, or go on with it; `answer` is for the open question `which`. Raises
        `Killed` if the process dies."""
        question = self.questions[which].question if answer is not None else None
        return asyncio.run(self.ago(answer, question, dies_at=dies_at))

    async def ago(
        self, answer: str | None = None, question: str | None = None, *, dies_at: int | None = None
    ) -> Run[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the tasks of a dead process
        agent, guards = self.make_agent(), tuple(self.make_guards())
        self.process = process = Process(self.disk, dies_at, self.pause)
        store: Any = process

        def guarded(spec: RunSpec) -> RunSpec:
            given = {each.name: getattr(spec.agent, each.name) for each in fields(AgentFields)}
            return replace(spec, agent=AgentFields(**{**given, "hooks": (*guards, *spec.agent.hooks)}))

        if RUN not in self.disk.runs:
            spec, head = await agent._runs.prepare_run("q", None, None, None, None)
            head = structs.replace(head, run=RUN)
            log = await runs.open_log(spec, head, store)
            return await runs.perform(guarded(spec), head, log, store, self.on_event)
        row = await process.find_run(RUN)
        if row.status in ENDED:
            return runs.read_finished_run(row, store)
        spec = await agent._runs.prepare_resume(row.head, self.disk.timeline(), None)
        spec, log = await runs.claim(spec, row.head, store, answer=answer, question=question)
        return await runs.perform(guarded(spec), row.head, log, store, self.on_event, resumed=True)

    def die(self, at: int, answer: str | None = None, which: int = 0) -> bool:
        """Let a process go on that dies at a point. Returns whether it died: otherwise it has come to its end."""
        with contextlib.suppress(Killed):
            self.go(answer, which, dies_at=at)
            return False
        return True

    def finish(self, answers: Sequence[str] = ()) -> Run[Any]:
        """Let processes go on until the run has ended, each with the next answer to the first open question."""
        run, left = self.go(), list(answers)
        while run.status == "waiting":
            run = self.go(left.pop(0))
        return run

    def replay(self, run: str = RUN, agent: plait.Agent[Any] | None = None) -> Replayed:
        """Replay a run, without guards."""
        agent = agent or self.make_agent()

        async def replay() -> Replayed:
            store: Any = Process(self.disk)
            row = await store.find_run(run)
            spec = await agent._runs.prepare_replay(row.head)
            recorded = None if row.outcome is None else runs.outcome_of(row.outcome)
            return await runs.replay(spec, row.head, store, recorded)

        return asyncio.run(replay())

    def tool_calls(self) -> dict[tuple[str, str], ToolCall]:
        """Return the tool calls on record of the whole tree, by run and key."""
        return {(run, each.key): each for run in self.disk.runs for each in self.disk.timeline(run).tool_calls}

    def count_requests(self) -> int:
        """Return how many requests to models the tree has on record."""
        return sum(is_attempt(key) for run in self.disk.runs for key in set(self.disk.keys(run, IntentRecord)))


def is_attempt(key: str) -> bool:
    """Return whether a key, perhaps without its digest, is that of an attempt to ask a model."""
    return re.fullmatch(r"[^?!]*a\d+", key) is not None


def each_point(make: Callable[[], Tried], most: int = 400) -> Iterator[tuple[Tried, bool]]:
    """Yield a run that was killed at its first point, another that was killed at its second, and so on; last one that
    was not killed."""
    for point in range(1, most):
        WORLD.clear()
        tried = make()
        is_dead = tried.die(point)
        yield tried, is_dead
        if not is_dead:
            return
    raise AssertionError(f"the run has more than {most} points")


def tried(walk: Any, *guards: Callable[[], Guard | plait.Hook], **settings: Any) -> Tried:
    """Return a run of a loop, with guards of these kinds."""
    return Tried(lambda: agent_of(walk, **settings), lambda: [make() for make in guards])


# -- child runs


def asker(question: str) -> LoopRun:
    """The loop of a child run that asks the user."""
    return (yield from ask("Which Ann?"))  # type: ignore[return-value]


def payer(question: str) -> LoopRun:
    """The loop of a child run that pays."""
    return texts((yield Act((PAY,))))  # type: ignore[return-value]


def with_child(
    walk: Any,
    child: Any,
    *guards: Callable[[], Guard | plait.Hook],
    child_settings: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> Tried:
    """Return a run with the tools `helper`, which only runs a child, and `delegate`, which has effects of its own."""

    def make() -> plait.Agent[Any]:
        below = agent_of(Steps(child, asks=True), **child_settings)

        @plait.tool
        async def delegate(ctx: plait.Context[Any], question: str) -> str:
            """Have it done, and note that."""
            run = await ctx.arun(below, question)
            do(ctx, "delegated")
            return str(run.answer)

        return agent_of(walk, tools=(*TOOLS, below.as_tool("helper", "Have it done."), delegate), **settings)

    return Tried(make, lambda: [each() for each in guards])


HELP, DELEGATE = Call("helper", {"question": "who?"}), Call("delegate", {"question": "who?"})


def child_of(disk: Disk) -> str:
    """Return the id of the first child run."""
    return next(run for run in disk.runs if run != RUN)
