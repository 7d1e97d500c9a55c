"""Cancelling a run from outside: by asyncio, anyio, signals, and a stream that is left. And event loops that are not
asyncio's."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import trio

import plait
from plait.background import BackgroundLoop
from plait.core import Call, Reply, Think
from plait.core.errors import ConfigError
from plait.journal.store import Journal

BEGUN = threading.Event()
"""What is to be cancelled goes on."""
CLEANED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    BEGUN.clear()
    CLEANED.clear()


@plait.tool(read_only=True)
async def wait_on_loop(x: str) -> str:
    """Wait, and take some time to clean up."""
    BEGUN.set()
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        CLEANED.append(x)
    return x


@plait.tool(read_only=True)
def wait_in_thread(x: str) -> str:
    """Wait until the call is cancelled."""
    BEGUN.set()
    while not plait.cancelled():
        threading.Event().wait(0.001)
    return x


@plait.tool(read_only=True)
def ask_in_thread(ctx: plait.Context[None], x: str) -> str:
    """Ask a model that does not answer."""
    return ctx.ask_model("?", model=Silent())


class Silent(plait.Scripted):
    """A model that does not answer."""

    def __init__(self) -> None:
        super().__init__(["never"])

    async def send(self, request: Any, think: Think, on_text: Any = None) -> Any:
        BEGUN.set()
        await asyncio.sleep(60)


def calling(*calls: Call) -> plait.Scripted:
    return plait.Scripted([Reply("", calls=calls), "Done."])


def make_agent(kind: str, journal: Any) -> plait.Agent:
    if kind == "model":
        return plait.Agent("tool_calling", model=Silent(), journal=journal)
    tools: list[Any] = [wait_on_loop, wait_in_thread, ask_in_thread]
    if kind == "child":
        child = make_agent("wait_on_loop", journal)
        return plait.Agent(
            "tool_calling",
            model=calling(Call("ask_agent", {"question": "?"})),
            tools=[child.as_tool()],
            journal=journal,
        )
    if kind == "code":
        code = " a\nACTION 1:\n```python\nprint(wait_on_loop('a'))\n```"
        return plait.Agent("codeact", model=plait.Scripted([code]), tools=tools, journal=journal, sandbox="monty")
    names = kind.split(" and ")
    calls = (Call(name, {"x": str(i)}, str(i)) for i, name in enumerate(names))
    return plait.Agent("tool_calling", model=calling(*calls), tools=tools, journal=journal)


KINDS = ("model", "wait_on_loop", "wait_in_thread", "ask_in_thread", "wait_on_loop and wait_in_thread", "child", "code")


async def run(agent: plait.Agent) -> Any:
    return await agent.arun("?")


async def stream(agent: plait.Agent) -> None:
    async for _ in agent.stream("?"):
        pass


@asynccontextmanager
async def once_begun(do: Callable[[], Any]) -> AsyncIterator[None]:
    """Do something when what is to be cancelled goes on."""

    async def watch() -> None:
        while not BEGUN.is_set():
            await asyncio.sleep(0.001)
        do()

    task = asyncio.create_task(watch())
    yield
    await task


Work = Callable[[], Awaitable[Any]]


async def by_task(work: Work, times: int = 1) -> str:
    task = asyncio.ensure_future(work())
    async with once_begun(task.cancel):
        for _ in range(times - 1):
            while not task.cancelling() and not task.done():
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
    return "raised"


async def by_timeout(work: Work) -> str:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60) as clock:
            async with once_begun(lambda: clock.reschedule(0)):
                await work()
    return "raised"


async def by_wait_for(work: Work) -> str:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work(), 0.1)
    return "raised"


async def by_sibling(work: Work) -> str:
    async def fail() -> None:
        while not BEGUN.is_set():
            await asyncio.sleep(0.001)
        raise ConnectionError

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work())  # type: ignore[arg-type]
            tasks.create_task(fail())
    return "raised" if [type(each) for each in raised.value.exceptions] == [ConnectionError] else str(raised.value)


async def by_fail_after(work: Work) -> str:
    with pytest.raises(TimeoutError):
        with anyio.fail_after(60) as scope:
            async with once_begun(lambda: setattr(scope, "deadline", anyio.current_time())):
                await work()
    return "raised"


async def by_move_on_after(work: Work) -> str:
    with anyio.move_on_after(60) as scope:
        async with once_begun(lambda: setattr(scope, "deadline", anyio.current_time())):
            await work()
    return "raised" if scope.cancelled_caught else "not cancelled"


async def by_task_group(work: Work) -> str:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        while not BEGUN.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    return "raised"


WAYS: dict[str, Any] = {
    "task": by_task,
    "task, three times": partial(by_task, times=3),
    "timeout": by_timeout,
    "wait_for": by_wait_for,
    "sibling": by_sibling,
    "fail_after": by_fail_after,
    "move_on_after": by_move_on_after,
    "task group": by_task_group,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("how", "kind"), [*((run, kind) for kind in KINDS), (stream, "wait_on_loop"), (stream, "child")]
)
def test_whoever_cancels_gets_their_own_error_and_the_run_is_recorded_first(
    kind: str, how: Any, way: str, journal: Path
) -> None:
    agent = make_agent(kind, journal)

    async def main() -> None:
        assert await WAYS[way](lambda: how(agent)) == "raised"
        for row in Journal(journal).runs(-1, children=True):
            assert (row.status, row.owner) == ("cancelled", "")
            assert row.outcome is not None and "cancel scope" not in row.outcome["reason"]
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "once_begun" not in str(task)], others

    asyncio.run(main())
    if "thread" not in kind and BEGUN.is_set():  # threads end when they see it; `wait_for` may come before the call
        assert len(CLEANED) == (0 if kind == "model" else 1)


async def test_a_run_that_ended_while_it_was_cancelled_keeps_its_answer_on_record(journal: Path) -> None:
    """The cancellation goes on all the same: whoever cancelled waits for it."""
    agent = plait.Agent("tool_calling", model=plait.Scripted(["Done."]), journal=journal)

    def listen(event: Any) -> None:
        if isinstance(event, plait.core.events.Ended):
            task.cancel()

    task = asyncio.ensure_future(agent.arun("?", on_event=listen))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert Journal(journal).run("last").status == "answered"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_the_program_leaves_behind_is_recorded(kind: str, journal: Path) -> None:
    """As when `main` returns while a task goes on: asyncio then cancels all tasks at once."""
    tasks = []

    async def main() -> None:
        tasks.append(asyncio.create_task(make_agent(kind, journal).arun("?")))
        while not BEGUN.is_set():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert {row.status for row in Journal(journal).runs(-1, children=True)} == {"cancelled"}


@pytest.mark.parametrize("steps", range(12))
def test_a_run_that_is_left_behind_at_its_very_beginning_is_never_taken_for_running(steps: int, journal: Path) -> None:
    agent = make_agent("child", journal)

    async def main() -> None:
        task = asyncio.create_task(agent.arun("?"))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(main())
    rows = Journal(journal).runs(-1, children=True) if journal.exists() else []
    assert {row.status for row in rows} <= {"cancelled"}


async def test_a_turn_that_is_cancelled_while_its_conversation_is_read_says_why(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_for_ever(*_: Any) -> Any:
        BEGUN.set()
        await asyncio.sleep(60)

    monkeypatch.setattr("plait.runtime.runs.read_session_calls", read_for_ever)
    events: list[Any] = []
    agent = plait.Agent("react", model=plait.Scripted(["Final Answer: x"]), journal=journal)
    task = asyncio.create_task(agent.arun("?", session="s", on_event=events.append))
    while not BEGUN.is_set():
        await asyncio.sleep(0.001)
    task.cancel("the client went away")
    await asyncio.wait([task])
    assert task.cancelled() and events[-1].run.reason == "the client went away"
    rows = await asyncio.to_thread(Journal(journal).runs)
    assert [(row.status, row.outcome and row.outcome["reason"]) for row in rows] == [
        ("cancelled", "the client went away")
    ]


def test_a_dropped_coroutine_cancels_its_run(journal: Path) -> None:
    async def main() -> None:
        work = make_agent("wait_on_loop", journal).arun("?")
        task = asyncio.create_task(work)
        while not BEGUN.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert Journal(journal).run("last").status == "cancelled"


@pytest.mark.parametrize("kept", [True, False])
async def test_leaving_a_stream_cancels_the_run_even_if_the_stream_is_kept(kept: bool, journal: Path) -> None:
    events = make_agent("wait_on_loop", journal).stream("?")
    async for _ in events:
        if BEGUN.is_set():
            break
        await asyncio.sleep(0)
    if not kept:
        del events
    gc.collect()
    while Journal(journal).run("last").status == "running":
        await asyncio.sleep(0.001)
    assert Journal(journal).run("last").status == "cancelled"


def test_leaving_a_stream_in_plain_code_cancels_the_run(journal: Path) -> None:
    for event in make_agent("wait_in_thread", journal).stream("?"):
        if isinstance(event, plait.core.events.Called):
            break
    assert Journal(journal).run("last").status == "cancelled"


class Alarm(Exception):
    """What a signal handler of the program raises."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("kind", ["wait_on_loop", "wait_in_thread", "child"])
def test_what_a_signal_handler_raises_cancels_the_run_first(kind: str, number: signal.Signals, journal: Path) -> None:
    def handle(*_: object) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else Alarm

    def interrupt() -> None:
        BEGUN.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    before = signal.signal(number, handle)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else Alarm):
            make_agent(kind, journal).run("?")
    finally:
        signal.signal(number, before)
        thread.join()
    assert {row.status for row in Journal(journal).runs(-1, children=True)} == {"cancelled"}


def test_a_tool_thread_that_goes_on_can_begin_nothing_for_a_cancelled_run(journal: Path) -> None:
    tried: list[str] = []

    @plait.tool(read_only=True)
    def stubborn(ctx: plait.Context[None], x: str) -> str:
        """Go on after the cancellation."""
        BEGUN.set()
        while not plait.cancelled():
            threading.Event().wait(0.001)
        for work in (partial(ctx.ask_model, "?"), partial(ctx.run, make_agent("model", journal), "?")):
            try:
                work()
            except Exception as why:
                tried.append(type(why).__name__)
        return x

    agent = plait.Agent("tool_calling", model=calling(Call("stubborn", {"x": "a"})), tools=[stubborn], journal=journal)

    async def main() -> None:
        await by_task(lambda: agent.arun("?"))
        while len(tried) < 2:
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert len(tried) == 2 and len(Journal(journal).runs(-1, children=True)) == 1


def test_a_run_that_a_tool_starts_by_itself_is_cancelled_with_the_tool(journal: Path) -> None:
    """Also in a thread, which nothing stops from outside."""

    @plait.tool(read_only=True)
    def nested(x: str) -> str:
        """Run an agent without the context."""
        return str(make_agent("model", journal).run("inner").answer)

    agent = plait.Agent("tool_calling", model=calling(Call("nested", {"x": "a"})), tools=[nested], journal=journal)
    asyncio.run(by_task(lambda: agent.arun("?")))
    while "running" in (found := [row.status for row in Journal(journal).runs()]):
        threading.Event().wait(0.01)
    assert found == ["cancelled", "cancelled"]


def test_a_tool_cannot_run_an_agent_on_another_event_loop(journal: Path) -> None:
    @plait.tool(read_only=True)
    def elsewhere(ctx: plait.Context[None], x: str) -> str:
        """Run an agent on a loop of its own."""
        return str(asyncio.run(ctx.arun(make_agent("model", journal), "?")))

    agent = plait.Agent("tool_calling", model=calling(Call("elsewhere", {"x": "a"})), tools=[elsewhere])
    seen = [each.observation.text for each in agent.run("?").events if isinstance(each, plait.core.events.Observed)]
    assert seen == [
        "Error: This is another event loop than that of the run. In a plain function, call run or ask_model."
    ]


# -- event loops that are not asyncio's

DONE = plait.Agent("tool_calling", model=plait.Scripted(["Done."]), journal=False)


async def read_stream() -> None:
    async for _ in DONE.stream("?"):
        pass


@pytest.mark.parametrize(
    "work",
    [
        lambda: DONE.arun("?"),
        lambda: DONE.using(journal=None).aresume("last"),
        lambda: DONE.using(journal=None).afork("last", 1),
        lambda: DONE.using(loop="rewoo").aplan("?"),
        read_stream,
    ],
    ids=["arun", "aresume", "afork", "aplan", "stream"],
)
def test_trio_is_told_how_to_run_an_agent(work: Callable[[], Awaitable[Any]]) -> None:
    DONE.using(journal=None).run("?")
    with pytest.raises(ConfigError) as raised:
        trio.run(work)
    assert str(raised.value) == (
        "Plait runs on asyncio, and this code runs on trio. Call: await trio.to_thread.run_sync(agent.run, question)."
    )


def test_agents_run_in_threads_of_trio() -> None:
    async def main() -> None:
        answers = []

        async def one() -> None:
            answers.append((await trio.to_thread.run_sync(DONE.run, "?")).answer)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
        assert answers == ["Done."] * 3 and DONE.run("?").answer == "Done."

    trio.run(main)
    assert anyio.run(anyio.to_thread.run_sync, DONE.run, "?", backend="trio").answer == "Done."


def test_a_coroutine_that_no_event_loop_runs_says_so() -> None:
    work = DONE.arun("?")
    with pytest.raises(ConfigError, match="no task of asyncio runs here"):
        work.send(None)


@pytest.mark.parametrize(
    ("patched", "works"),
    [({"selectors"}, False), ({"threading"}, False), ({"selectors", "threading"}, True), (set(), True)],
)
def test_gevent_that_has_patched_a_part_is_refused(
    patched: set[str], works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for gevent: patched in part, the event loop of real gevent hangs."""
    monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched=patched.__contains__))
    loop = BackgroundLoop("test")
    if works:
        loop.start()
        loop._stop()
        return
    with pytest.raises(ConfigError, match=r"gevent\.monkey\.patch_all"):
        loop.start()
