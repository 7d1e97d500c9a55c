"""Cancels runs of all loops at random moments, in all ways in which programs do so, and resumes them.

A run sends three texts with a tool that must not be repeated. After each cancellation nothing may be left (tasks,
threads, processes, open files, a run that looks alive), each text that was sent has its intent on record, and whoever
cancelled gets their own error and no other. Then the run is resumed to its end: no text is sent twice or lost.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import anyio
from figures import Figures, line_of

import plait
from loop_scripts import ANSWER, LOOPS, QUESTION, SCRIPTS, SENT, reply_of, write_action
from plait.journal.records import RunRow
from plait.journal.store import Journal

PAUSE = 0.002
"""Seconds that a model call, and each half of a tool call, takes."""


LOOPS_AND_TREE = (*LOOPS, "children")


class Own(Exception):
    """The caller's own error."""


@dataclass
class Case:
    """One cancelled run: its agent, what its tools did, and what was wrong."""

    loop: str
    chance: random.Random
    journal: Journal
    known: int
    """How many runs the journal had before."""
    usual: float = 1.0
    """Seconds that such a run takes if nobody cancels it."""
    sent: list[str] = field(default_factory=list)
    got: str = ""
    """The name of the error that the caller got."""
    seconds: float = 0.0
    was_cancelled: bool = False
    kept: Any = None

    @property
    def moment(self) -> float:
        return self.chance.uniform(0, self.usual)

    def read_runs(self) -> list[RunRow]:
        """The run and its child runs, the newest first."""
        return self.journal.runs(-1, children=True)[: -self.known or None] if Path(self.journal.place).exists() else []

    def make_agent(self) -> plait.Agent:
        """The agent of this case; each object of a case has its own scripted models."""
        is_tree = self.loop == "children"
        scripts = {phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[self.loop].items()}
        model = plait.Scripted(scripts, delay=PAUSE, chunk=40)
        return plait.Agent(
            "react" if is_tree else self.loop,
            model=model,
            tools=[*self._make_tools(), *([self._make_delegate()] if is_tree else [])],
            journal=self.journal.place,
            limits=plait.Limits(tools=0 if self.loop == "codeact" else None),
        )

    def _make_tools(self) -> list[plait.Tool]:
        sent, in_thread = self.sent, self.chance.random() < 0.5

        @plait.tool(idempotent=True)
        async def fetch(key: str) -> str:
            """Fetch a value; may be called again.

            Args:
                key: what to fetch
            """
            await asyncio.sleep(PAUSE)
            return f"value of {key}"

        def send_in_thread(text: str) -> str:
            """Send a text; has an effect outside.

            Args:
                text: what to send
            """
            time.sleep(PAUSE)
            sent.append(text.split()[0])
            time.sleep(PAUSE)
            return f"sent {text}"

        async def send_on_loop(text: str) -> str:
            """Send a text; has an effect outside.

            Args:
                text: what to send
            """
            await asyncio.sleep(PAUSE)
            sent.append(text.split()[0])
            await asyncio.sleep(PAUSE)
            return f"sent {text}"

        return [fetch, plait.tool(name="send")(send_in_thread if in_thread else send_on_loop)]

    def _make_delegate(self) -> plait.Tool:
        def helper(text: str, *, below: bool = False) -> plait.Agent:
            turns = [write_action("inner", f"Send {text}.")] if below else [write_action("send", text)]
            tools = [helper(text).as_tool("inner")] if below else self._make_tools()
            model = plait.Scripted([*turns, "Final Answer: sent"], delay=PAUSE, chunk=40)
            return plait.Agent("react", model=model, tools=tools, journal=False)

        @plait.tool(idempotent=True)
        async def delegate(ctx: plait.Context[None], what: str) -> str:
            """Let two agents send texts at once.

            Args:
                what: what to send
            """
            runs = await asyncio.gather(
                ctx.arun(helper("two"), "Send two."), ctx.arun(helper("three", below=True), "Send three.")
            )
            return " ".join(run.status for run in runs)

        return delegate


Cancel = Callable[[Case, plait.Agent], Awaitable[Any]]


async def cancel_task(case: Case, agent: plait.Agent, times: int = 1) -> None:
    task = asyncio.create_task(agent.arun(QUESTION))
    await asyncio.sleep(case.moment)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await task


async def cancel_task_thrice(case: Case, agent: plait.Agent) -> None:
    await cancel_task(case, agent, 3)


async def exceed_timeout(case: Case, agent: plait.Agent) -> None:
    async with asyncio.timeout(case.moment):
        await agent.arun(QUESTION)


async def exceed_wait_for(case: Case, agent: plait.Agent) -> None:
    await asyncio.wait_for(agent.arun(QUESTION), case.moment)


async def fail_beside(case: Case, agent: plait.Agent) -> None:
    async def fail() -> None:
        await asyncio.sleep(case.moment)
        raise Own

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(agent.arun(QUESTION))
        tasks.create_task(fail())


async def leave_behind(case: Case, agent: plait.Agent) -> None:
    """The program's main coroutine ends while the run goes on."""
    case.kept = asyncio.create_task(agent.arun(QUESTION))
    await asyncio.sleep(case.moment)


async def fail_after(case: Case, agent: plait.Agent) -> None:
    with anyio.fail_after(case.moment):
        await agent.arun(QUESTION)


async def move_on_after(case: Case, agent: plait.Agent) -> None:
    with anyio.move_on_after(case.moment):
        await agent.arun(QUESTION)


async def cancel_scope(case: Case, agent: plait.Agent) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.arun, QUESTION)
        await anyio.sleep(case.moment)
        tasks.cancel_scope.cancel()


async def stream_under_a_scope(case: Case, agent: plait.Agent) -> None:
    with anyio.move_on_after(case.moment):
        async for _ in agent.stream(QUESTION):
            pass


async def leave_stream(case: Case, agent: plait.Agent) -> None:
    left = case.chance.randint(1, 25)
    stream = agent.stream(QUESTION)
    async for _ in stream:
        left -= 1
        if not left:
            break
    await stream.aclose()


async def break_listener(case: Case, agent: plait.Agent) -> None:
    left = case.chance.randint(1, 25)

    def listen(event: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Own

    await agent.arun(QUESTION, on_event=listen)


def interrupt(case: Case, agent: plait.Agent, number: signal.Signals = signal.SIGINT) -> None:
    """Ctrl-C, or another signal whose handler raises, while plain code waits for the run."""
    is_armed = True

    def handle(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise KeyboardInterrupt if number == signal.SIGINT else Own

    before = signal.signal(number, handle)
    timer = threading.Timer(case.moment, signal.pthread_kill, (threading.main_thread().ident, number))
    try:
        timer.start()
        agent.run(QUESTION)
    finally:
        is_armed = False
        timer.cancel()
        timer.join()
        signal.signal(number, before)


def interrupt_by_alarm(case: Case, agent: plait.Agent) -> None:
    interrupt(case, agent, signal.SIGALRM)


def leave_plain_stream(case: Case, agent: plait.Agent) -> None:
    left = case.chance.randint(1, 25)
    for _ in agent.stream(QUESTION):
        left -= 1
        if not left:
            break


async def cancel_nothing(case: Case, agent: plait.Agent) -> None:
    await agent.arun(QUESTION)


WAYS: dict[Callable[[Case, plait.Agent], Any], set[str]] = {
    cancel_nothing: set(),
    cancel_task: {"CancelledError"},
    cancel_task_thrice: {"CancelledError"},
    exceed_timeout: {"TimeoutError"},
    exceed_wait_for: {"TimeoutError"},
    fail_beside: {"ExceptionGroup"},
    leave_behind: set(),
    fail_after: {"TimeoutError"},
    move_on_after: set(),
    cancel_scope: set(),
    stream_under_a_scope: set(),
    leave_stream: set(),
    break_listener: {"Own"},
    interrupt: {"KeyboardInterrupt"},
    interrupt_by_alarm: {"Own"},
    leave_plain_stream: set(),
}
"""The ways to cancel, each with the errors that the caller may get; nothing if the run ended before."""


def cancel_one(way: Callable[[Case, plait.Agent], Any], case: Case) -> list[str]:
    """Cancel a run, check what is left, and resume it. Returns what was wrong."""
    wrong: list[str] = []
    agent = case.make_agent()
    began = time.monotonic()
    if asyncio.iscoroutinefunction(way):
        leftover: list[str] = []

        async def main() -> None:
            try:
                await way(case, agent)
            finally:
                for _ in range(3 * (way is leave_stream)):  # Python closes the iterator that was left in a task
                    await asyncio.sleep(0)
                if way is not leave_behind:
                    leftover.extend(str(task) for task in asyncio.all_tasks() - {asyncio.current_task()})

        case.got = catch(lambda: asyncio.run(main()))
        wrong += [f"left a task: {each}" for each in leftover]
    else:
        case.got = catch(lambda: way(case, agent))
    case.seconds = time.monotonic() - began
    if case.got and case.got not in WAYS[way]:
        wrong.append(f"raised {case.got}")
    until = time.monotonic() + 10
    while (threads := [each.name for each in threading.enumerate() if each.name == "plait-tool"]) and (
        time.monotonic() < until
    ):
        time.sleep(0.001)
    wrong += [f"left the thread {each}" for each in threads]
    rows = case.read_runs()
    case.was_cancelled = any(row.status == "cancelled" for row in rows)
    wrong += [f"{row.head.run} is {row.status}, owned by {row.owner!r}" for row in rows if row.owner]
    intents: Counter[str] = Counter()
    for row in rows:
        for call in case.journal.timeline(row.head.run).tool_calls:
            intents[str(call.call.input)] += call.begun
    for text in case.sent:
        if not any(text in given and times for given, times in intents.items()):
            wrong.append(f"{text} was sent, and has no intent")
    run = None
    if rows:
        run = agent.resume(rows[-1].head.run)
        while run.status == "waiting":
            run = agent.resume(run, "no")
        if (run.status, run.answer) != ("answered", ANSWER):
            wrong.append(f"resumed: {run.status} {run.answer!r} {run.reason}")
    elif case.sent:
        wrong.append("sent without a run")
    counts = Counter(case.sent)
    wrong += [f"{text} was sent {times} times" for text, times in counts.items() if times > 1]
    doubts = sum(
        call.observation is not None and call.observation.trouble == "in_doubt"
        for row in case.read_runs()
        for call in case.journal.timeline(row.head.run).tool_calls
    )
    if run is not None and len(SENT - counts.keys()) > doubts:
        wrong.append(f"lost: {SENT - counts.keys()}, {doubts} in doubt")
    return wrong


def catch(work: Callable[[], Any]) -> str:
    """The name of the error that `work` raises."""
    try:
        work()
    except BaseException as why:
        return type(why).__name__
    return ""


def count_open() -> dict[str, int]:
    """The threads, child processes and open files of this process."""
    gc.collect()
    children = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children += len((task / "children").read_text().split())
    return {
        "threads": sum(not each.name.startswith("asyncio_") for each in threading.enumerate()),  # pools grow to a size
        "processes": children,
        "files": len(os.listdir("/proc/self/fd")),
    }


def run(count: int, seed: int, folder: Path) -> Figures:
    """Cancel so many runs: each loop in each way in turn, at moments by chance."""
    chance = random.Random(seed)
    journal = Journal(folder / "runs.db")
    usual: dict[str, float] = {}
    failures: list[str] = []
    ended: Counter[str] = Counter()
    tries = cancelled = effects = known = 0

    def try_one(way: Callable[[Case, plait.Agent], Any], loop: str) -> Case:
        nonlocal known
        case = Case(loop, random.Random(chance.getrandbits(31)), journal, known, usual.get(loop, 1.0))
        try:
            wrong = cancel_one(way, case)
        except Exception as why:
            wrong = [f"{type(why).__name__}: {why}"]
        usual.setdefault(loop, case.seconds)
        failures.extend(f"{way.__name__} {loop} ({case.got or 'no error'}): {each}" for each in wrong)
        known += len(case.read_runs())
        return case

    for loop in LOOPS_AND_TREE:  # this starts the threads and processes that are kept
        try_one(cancel_nothing, loop)
    before = count_open()
    cases = list(product(list(WAYS)[1:], LOOPS_AND_TREE))
    while cancelled < count and tries < 3 * count + 100:
        if not tries % len(cases):
            chance.shuffle(cases)
        case = try_one(*cases[tries % len(cases)])
        tries += 1
        cancelled += case.was_cancelled
        effects += len(case.sent)
        ended[case.got.removesuffix("Error").lower()] += 1
    after = count_open()
    leaks = {name: after[name] - most for name, most in before.items() if after[name] > most + 2}
    failures += [f"leak: {more} {name} more than before" for name, more in leaks.items()]
    del ended[""]
    raised = {f"raised_{name}": times for name, times in sorted(ended.items())}
    figures = line_of(
        runs=tries, cancelled=cancelled, effects=effects, **raised, leaks=sum(leaks.values()), failed=len(failures)
    )
    return Figures(figures, failures)
