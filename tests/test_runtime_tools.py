"""Tools as the runtime calls them: errors, time, cancellation, calls side by side, from sync and async code."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import plait
from plait.core import Answered, Call, LoopContext, LoopRun, OneKind, Splitter, Task, act
from plait.runtime.calls import make_call


@dataclass(frozen=True)
class Together:
    """A loop that makes its calls in one act, and answers with what came of each."""

    calls: tuple[tuple[str, Any], ...] = ()

    name: ClassVar[str] = "together"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    prompts: ClassVar[dict[str, str]] = {"none": "it asks no model"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        found = yield from act(*(Call(tool, given) for tool, given in self.calls))
        return Answered([seen.text for seen in found])

    def splitter(self, phase: str) -> Splitter:
        return OneKind("answer")


def together(*calls: tuple[str, Any], tools: list[Any], **options: Any) -> plait.Agent:
    return plait.Agent(Together(calls), model=plait.Scripted([]), tools=tools, **options)


@plait.tool(read_only=True)
def nap(seconds: float) -> str:
    """Sleeps in a thread."""
    time.sleep(seconds)
    return f"slept {seconds}"


@plait.tool(read_only=True)
async def rest(seconds: float) -> str:
    """Sleeps on the event loop."""
    await asyncio.sleep(seconds)
    return f"rested {seconds}"


def test_calls_of_one_act_run_side_by_side_and_their_results_keep_their_order() -> None:
    """Each call, in a thread or on the event loop, ends only when all four have begun; the first one ends last."""
    begun, ended = [], []

    @plait.tool(read_only=True)
    def thread(number: int) -> str:
        """Waits in a thread."""
        begun.append(number)
        while len(begun) < 4 or (number == 1 and len(ended) < 3):
            time.sleep(0.005)
        ended.append(number)
        return f"slept {number}"

    @plait.tool(read_only=True)
    async def task(number: int) -> str:
        """Waits on the event loop."""
        begun.append(number)
        while len(begun) < 4:
            await asyncio.sleep(0.005)
        ended.append(number)
        return f"rested {number}"

    calls = (("thread", 1), ("task", 2), ("thread", 3), ("task", 4))
    run = together(*calls, tools=[thread, task], limits=plait.Limits(seconds=60)).run("go")
    assert run.answer == ["slept 1", "rested 2", "slept 3", "rested 4"] and ended[-1] == 1


def test_one_call_that_fails_leaves_the_others_their_results() -> None:
    @plait.tool
    async def breaks(text: str) -> str:
        """Breaks."""
        raise OSError(28, "No space left on device")

    run = together(("rest", 0.1), ("breaks", "x"), ("absent", 1), ("nap", 0.1), tools=[nap, rest, breaks]).run("go")
    assert run.status == "answered"
    assert run.answer[0] == "rested 0.1" and run.answer[3] == "slept 0.1"
    assert run.answer[1] == "Error: OSError: [Errno 28] No space left on device"
    assert "absent" in run.answer[2]


@pytest.mark.parametrize("kind", ["sync", "async", "inline"])
def test_a_tools_own_timeout_is_its_error_and_not_our_limit(kind: str) -> None:
    def late(text: str) -> str:
        """Raises TimeoutError."""
        raise TimeoutError("the host is silent")

    async def late_async(text: str) -> str:
        """Raises TimeoutError."""
        raise TimeoutError("the host is silent")

    tool = plait.tool(name="late", inline=kind == "inline")(late_async if kind == "async" else late)
    run = together(("late", "x"), tools=[tool]).run("go")
    assert run.answer == ["Error: TimeoutError: the host is silent"]


WORST = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1), asyncio.CancelledError(), MemoryError()]


@pytest.mark.parametrize("error", WORST, ids=[type(each).__name__ for each in WORST])
@pytest.mark.parametrize("sync", [True, False])
def test_no_error_of_a_tool_ends_the_run_or_the_event_loop(error: BaseException, sync: bool) -> None:
    def breaks(text: str) -> str:
        """Raises."""
        raise error

    async def breaks_async(text: str) -> str:
        """Raises."""
        raise error

    tool = plait.tool(name="breaks")(breaks if sync else breaks_async)
    agent = together(("breaks", "x"), ("rest", 0.01), tools=[tool, rest])
    done: list[plait.Run] = []
    # In a thread of its own: were the event loop to die, nobody would come back from `run`.
    thread = threading.Thread(target=lambda: done.append(agent.run("go")), daemon=True)
    thread.start()
    thread.join(10)
    assert done and done[0].status == "answered", done
    assert done[0].answer[0].startswith("Error: ") and type(error).__name__ in done[0].answer[0]
    assert done[0].answer[1] == "rested 0.01"
    assert agent.run("again").status == "answered"


def test_an_async_tool_that_takes_no_notice_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_call, "GRACE", 0.1)
    let_go = threading.Event()

    @plait.tool(timeout=0.1)
    async def stubborn(text: str) -> str:
        """Takes no notice of being cancelled."""
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.5)
        return "at last"

    run = together(("stubborn", "x"), ("rest", 0.01), tools=[stubborn, rest]).run("go")
    let_go.set()  # the run ended before
    assert run.answer == [f"Error: 'stubborn' gave no result within 0.1 seconds. {make_call.UNKNOWN}", "rested 0.01"]


def test_an_async_tool_may_clean_up_when_its_time_is_over() -> None:
    cleaned = []

    @plait.tool(timeout=0.1)
    async def careful(text: str) -> str:
        """Cleans up."""
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.1)
            cleaned.append(text)
        return "never"

    run = together(("careful", "x"), tools=[careful]).run("go")
    assert "gave no result within 0.1 seconds" in run.answer[0]
    assert cleaned == ["x"]


def test_a_sync_tool_learns_that_nobody_waits_any_more() -> None:
    stopped = threading.Event()

    @plait.tool(timeout=0.1)
    def patient(text: str) -> str:
        """Asks now and then."""
        while not plait.cancelled():
            time.sleep(0.01)
        stopped.set()
        return "never"

    run = together(("patient", "x"), tools=[patient]).run("go")
    assert "gave no result" in run.answer[0]
    assert stopped.wait(2)


async def test_cancelling_a_run_cancels_its_tools(journal: Path) -> None:
    told = asyncio.Event()

    @plait.tool
    async def long(text: str) -> str:
        """Long."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            told.set()
            raise
        return "never"

    agent = together(("long", "x"), ("rest", 0.05), tools=[long, rest], journal=journal)
    task = asyncio.create_task(agent.arun("go"))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told.is_set()
    # The one that had ended keeps its result; the other one stands as in doubt, and is not made again.
    run = await agent.aresume("last")
    assert run.status == "answered"
    assert "is not known, and it was not repeated" in run.answer[0] and run.answer[1] == "rested 0.05"


@pytest.mark.parametrize("kind", ["sync", "async", "inline"])
def test_a_tool_may_run_an_agent_of_its_own(kind: str) -> None:
    inner = plait.Agent("react", model=plait.Scripted(["Final Answer: inner"]), journal=False)

    def asks(question: str) -> str:
        """Asks another agent, blocking."""
        return str(inner.run(question).answer)

    async def asks_async(question: str) -> str:
        """Asks another agent, blocking, on the event loop."""
        return str(inner.run(question).answer)

    tool = plait.tool(name="asks", inline=kind == "inline")(asks_async if kind == "async" else asks)
    agent = together(("asks", "who?"), tools=[tool])
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(agent.run("go").answer), daemon=True)
    thread.start()
    thread.join(10)
    assert done == [["inner"]]


def test_a_loop_that_returns_no_outcome_is_a_crash_and_says_so() -> None:
    @dataclass(frozen=True)
    class Careless(Together):
        def run(self, task: Task, context: LoopContext) -> LoopRun:
            yield from act(Call("rest", 0.01))
            return "forty-two"  # type: ignore[return-value]

    @dataclass(frozen=True)
    class Unspeakable(Together):
        def run(self, task: Task, context: LoopContext) -> LoopRun:
            yield from act(Call("rest", 0.01))
            return Answered(object())

    for loop in (Careless(), Unspeakable()):
        run = plait.Agent(loop, model=plait.Scripted([]), tools=[rest]).run("go")
        assert run.status == "crashed" and "The loop 'together' broke" in str(run.reason)


def test_a_timeout_error_of_the_loop_is_no_time_limit() -> None:
    @dataclass(frozen=True)
    class Late(Together):
        def run(self, task: Task, context: LoopContext) -> LoopRun:
            yield from act(Call("rest", 0.01))
            raise TimeoutError("mine")

    run = plait.Agent(Late(), model=plait.Scripted([]), tools=[rest]).run("go")
    assert run.status == "crashed" and "TimeoutError: mine" in str(run.reason)
