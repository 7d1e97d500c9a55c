"""Objects as tools: one call at a time, on one thread; opened and closed with the run that they belong to."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import action, final, turn
from plait.core import Call, Reply
from plait.core.events import Noted, Observed
from plait.runtime import engine
from plait.tools import tool_object, tools_from

LOG: list[Any] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


def calls(*names: str, **given: Any) -> Reply:
    """A turn that calls several tools at once."""
    return Reply("", calls=tuple(Call(name, given, id=str(i)) for i, name in enumerate(names)))


def agent_of(tools: list[Any], *turns: Any, loop: str = "tool_calling", **fields: Any) -> plait.Agent:
    model = plait.Scripted([*turns, "Done."] if loop == "tool_calling" else list(turns))
    return plait.Agent(loop, model=model, tools=tools, **{"journal": False, **fields})


def seen(run: plait.Run) -> list[str]:
    return [each.observation.text for each in run.events if isinstance(each, Observed)]


class Shop:
    """Owns a connection that only its own thread may use."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("create table rows (a)")

    def __enter__(self) -> Shop:
        LOG.append(("enter", threading.get_ident()))
        return self

    def __exit__(self, *why: object) -> None:
        self.db.execute("select * from rows")
        LOG.append(("exit", threading.get_ident()))

    def add(self, a: int) -> int:
        """Add a row; returns how many there are."""
        LOG.append(("add", threading.get_ident()))
        self.db.execute("insert into rows values (?)", (a,))
        return int(self.db.execute("select count(*) from rows").fetchone()[0])

    def rows(self) -> sqlite3.Cursor:
        """The rows."""
        return self.db.execute("select a from rows order by rowid")

    def close(self) -> None:
        """Close the connection."""
        self.db.close()
        LOG.append(("close", threading.get_ident()))


ADD_CODE = " a\nACTION {}:\n```python\n{}\n```"


@pytest.mark.parametrize(
    "tool", [Shop, plait.toolset(lambda: Shop()), functools.partial(Shop)], ids=["class", "toolset", "partial"]
)
def test_the_calls_of_an_object_and_its_opening_and_closing_happen_on_one_thread(tool: Any) -> None:
    LOG.clear()
    run = agent_of([tool], calls("add", a=1), calls("add", "add", a=2), calls("rows")).run("?")
    assert seen(run) == ["1", "2", "3", "[[1], [2], [2]]"]
    names, threads = zip(*LOG, strict=True)
    assert names == ("enter", "add", "add", "add", "exit", "close") and len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


@pytest.mark.parametrize("loop", ["react", "json", "codeact"])
def test_every_loop_uses_an_object_on_one_thread(loop: str) -> None:
    turns = {
        "react": [action("add", {"a": 1}), action("add", {"a": 2}), final("ok")],
        "json": [turn("add", {"a": 1}), turn("add", {"a": 2}), turn("final_answer", "ok")],
        "codeact": [
            ADD_CODE.format(1, "import asyncio\nprint(await asyncio.gather(add(1), add(2)))"),
            ADD_CODE.format(2, "stop('ok')"),
        ],
    }[loop]
    run = agent_of([Shop], *turns, loop=loop).run("?")
    assert run.status == "answered" and seen(run)[:2] == ["1", "2"]
    assert len({thread for _, thread in LOG}) == 1 and LOG[-1][0] == "close"


class Counter:
    """Loses updates if two calls run at the same time."""

    def __init__(self) -> None:
        self.n = 0

    def bump(self) -> int:
        """Count."""
        n = self.n
        time.sleep(0.01)
        self.n = n + 1
        return self.n

    async def abump(self) -> int:
        """Count, asynchronously."""
        n = self.n
        await asyncio.sleep(0.01)
        self.n = n + 1
        return self.n


COUNTER = Counter()


@pytest.mark.parametrize(
    "give",
    [
        lambda: [Counter],
        lambda: [Counter()],
        lambda: [plait.toolset(Counter)],
        lambda: (lambda one: [one.bump, one.abump])(Counter()),
        lambda: (lambda one: [plait.tool(one.bump), plait.tool(one.abump)])(Counter()),
        lambda: (lambda one: [plait.tool(name="bump")(functools.partial(one.bump)), one.abump])(Counter()),
        lambda: (lambda one: [functools.wraps(one.bump)(lambda: one.bump()), one.abump])(Counter()),
    ],
    ids=["class", "object", "toolset", "methods", "tools", "partial", "wraps"],
)
def test_parallel_calls_of_one_object_lose_no_update(give: Any) -> None:
    run = agent_of(give(), calls("bump", "abump", "bump", "abump")).run("?")
    assert sorted(seen(run)) == ["1", "2", "3", "4"]


def test_an_object_that_can_be_called_is_called_once_at_a_time() -> None:
    class Bump(Counter):
        def __call__(self) -> int:
            """Count."""
            return self.bump()

    run = agent_of([plait.tool(name="bump")(Bump())], calls("bump", "bump", "bump")).run("?")
    assert sorted(seen(run)) == ["1", "2", "3"]


def test_runs_in_several_threads_and_child_runs_share_an_object_without_lost_updates() -> None:
    shared = Counter()
    agent = agent_of([shared], calls("bump", "abump"))
    with ThreadPoolExecutor(4) as pool:
        assert all(run.status == "answered" for run in pool.map(agent.run, "abcd"))
    assert shared.n == 8

    async def beside() -> None:
        await asyncio.gather(*(agent.arun(text) for text in "abcd"))

    asyncio.run(beside())
    assert shared.n == 16
    agent_of([agent.as_tool("ask")], calls("ask", "ask", question="x")).run("?")
    assert shared.n == 20


def test_calls_that_say_so_run_side_by_side() -> None:
    class Meeting:
        def __init__(self) -> None:
            self.both = threading.Barrier(2)

        @plait.tool(parallel=True)
        def meet(self) -> str:
            """Wait for another call."""
            self.both.wait(5)
            return "met"

    class Plain(Meeting):
        def meet(self) -> str:  # type: ignore[override]
            """Wait for another call."""
            self.both.wait(5)
            return "met"

    for tool in (Meeting, Meeting(), Meeting().meet, plait.toolset(Plain, parallel=True)):
        assert seen(agent_of([tool], calls("meet", "meet")).run("?")) == ["met", "met"]


# opening and closing


class Both:
    def __init__(self) -> None:
        LOG.append("make")

    def __enter__(self) -> Both:
        LOG.append("enter")
        return self

    def __exit__(self, *why: object) -> None:
        LOG.append(("exit", *why))

    async def __aenter__(self) -> Both:
        LOG.append("aenter")
        return self

    async def __aexit__(self, *why: object) -> None:
        LOG.append(("aexit", *why))

    def close(self) -> None:
        LOG.append("close")

    async def aclose(self) -> None:
        LOG.append("aclose")


class Sync(Both):
    def go(self) -> str:
        """Go."""
        return "went"


class Async(Both):
    async def go(self) -> str:
        """Go."""
        return "went"


class Opened:
    def open(self) -> None:
        LOG.append("open")

    def go(self) -> str:
        """Go."""
        return "went"

    async def close(self) -> None:
        LOG.append("close")


class Url(Opened):
    def open(self, url: str) -> str:  # type: ignore[override]
        """Open a page."""
        return url


class Door:
    def open(self) -> str:
        """Open the door."""
        return "opened"

    def shut(self) -> str:
        """Shut the door."""
        return "shut"


class Position:
    def close(self, id: int) -> str:
        """Close a position."""
        LOG.append(("position", id))
        return "closed"

    def go(self) -> str:
        """Go."""
        return "went"


class MarkedDoor:
    @plait.tool
    def close(self) -> str:
        """Close the door."""
        LOG.append("door")
        return "closed"

    @plait.tool
    def go(self) -> str:
        """Go."""
        return "went"


class Subclass(sqlite3.Connection):
    def __init__(self) -> None:
        super().__init__(":memory:")

    def go(self) -> str:
        """Go."""
        return str(self.execute("select 'went'").fetchone()[0])

    def close(self) -> None:
        LOG.append("close")
        super().close()


NONE = (None, None, None)


@pytest.mark.parametrize(
    ("kind", "names", "log"),
    [
        (Sync, ["go"], ["make", "enter", ("exit", *NONE), "close"]),
        (Async, ["go"], ["make", "aenter", ("aexit", *NONE), "aclose"]),
        (Opened, ["go"], ["open", "close"]),
        (Url, ["go", "open"], ["close"]),
        (Door, ["open", "shut"], None),
        (Position, ["close", "go"], []),
        (MarkedDoor, ["close", "go"], []),
        (Subclass, ["go"], ["close"]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_opens_and_closes_an_object_is_no_tool_and_happens_with_the_run(
    kind: type, names: list[str], log: list[Any] | None
) -> None:
    for tool in (kind,) if kind is Subclass else (kind, kind()):  # a connection can be called
        assert sorted(each.name for each in tools_from([tool])) == names
    if log is None:
        return
    LOG.clear()
    agent = agent_of([kind], calls("go"))
    assert seen(agent.run("?")) == ["went"] and log == LOG
    LOG.clear()
    assert agent_of([kind]).run("?").status == "answered" and LOG == []  # not called: not made
    if kind is Subclass:
        return
    users_own = kind()
    LOG.clear()
    assert seen(agent_of([users_own], calls("go")).run("?")) == ["went"] and LOG == []  # the user closes it


def test_the_object_that_shows_a_factory_its_methods_is_closed() -> None:
    plait.toolset(lambda: Sync())
    assert LOG == ["make", "close"]
    LOG.clear()
    plait.toolset(lambda: Opened())
    assert LOG == ["close"]


class Waits(Sync):
    @plait.tool
    def go(self) -> str:
        """Go."""
        return "went"

    @plait.tool(requires_approval=True)
    def ask(self) -> str:
        """Ask first."""
        return "asked"

    @plait.tool
    def hang(self) -> str:
        """Hang until nobody waits."""
        LOG.append("hang")
        for _ in range(500):
            if plait.cancelled():
                break
            time.sleep(0.01)
        return "hung"


CLOSED = [("exit", *NONE), "close"]


@pytest.mark.parametrize("ending", ["crashed", "failed", "stopped", "cancelled"])
def test_an_object_is_closed_however_the_run_ends(ending: str) -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(agent_of([Waits], calls("go"), calls("hang")).arun("?"))
        while "hang" not in LOG:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    if ending == "cancelled":
        asyncio.run(cancel())
    else:
        turns: dict[str, list[Any]] = {"crashed": [], "failed": [calls("end")], "stopped": [calls("hang")]}

        @plait.tool
        def end() -> str:
            """End."""
            raise plait.EndRun(failure="Over.")

        limits = plait.Limits(seconds=0.3 if ending == "stopped" else 30)
        model = plait.Scripted([calls("go"), *turns[ending]])
        run = plait.Agent("tool_calling", model=model, tools=[Waits, end], journal=False, limits=limits).run("?")
        assert run.status == ending, run.reason
    assert LOG[-2:] == CLOSED


def test_a_waiting_run_closes_its_object_and_opens_another_when_it_is_resumed(journal: Path) -> None:
    agent = agent_of([Waits], calls("go"), calls("ask"), journal=journal)
    run = agent.run("?")
    assert run.status == "waiting" and ["make", "enter", *CLOSED] == LOG
    assert seen(agent.resume(run, "yes")) == ["went", "asked"] and ["make", "enter", *CLOSED] * 2 == LOG
    assert agent.replay(run.id).whole and len(LOG) == 8


def test_each_child_run_has_an_object_of_its_own() -> None:
    child = agent_of([Sync], calls("go")).as_tool("ask")
    agent_of([child, Sync], calls("go"), calls("ask", "ask", question="x")).run("?")
    assert LOG.count("make") == LOG.count("enter") == LOG.count("close") == 3


class Sour(Sync):
    def __exit__(self, *why: object) -> None:
        raise SystemExit("stuck")

    def close(self) -> None:
        LOG.append("close")
        raise OSError("no disk")


class AsyncSour(Async):
    async def aclose(self) -> None:
        raise OSError("no disk")


@pytest.mark.parametrize(
    ("kind", "notes"), [(Sour, ["SystemExit: stuck", "OSError: no disk"]), (AsyncSour, ["OSError: no disk"])]
)
def test_an_error_in_closing_is_reported_and_does_not_change_how_the_run_ends(
    kind: type, notes: list[str], journal: Path
) -> None:
    run = agent_of([kind], calls("go"), journal=journal).run("?")
    assert (run.status, run.answer) == ("answered", "Done.")
    said = [each.text for each in run.events if isinstance(each, Noted) and each.kind == "close"]
    assert said == [f"{kind.__name__} could not be closed: {note}." for note in notes]


def test_an_object_that_can_not_be_opened_is_an_error_of_the_call_and_tried_again() -> None:
    class Late(Sync):
        tries = 0

        def __enter__(self) -> Late:
            Late.tries += 1
            if Late.tries == 1:
                raise OSError("not yet")
            return self

    run = agent_of([Late], calls("go"), calls("go")).run("?")
    assert "'go' was not called" in seen(run)[0] and "OSError: not yet" in seen(run)[0]
    assert seen(run)[1] == "went" and ["make", *CLOSED] == LOG


def test_an_object_that_can_not_be_opened_can_end_the_run() -> None:
    class Locked(Sync):
        def __enter__(self) -> Locked:
            raise plait.EndRun(failure="The account is locked.")

    run = agent_of([Locked], calls("go")).run("?")
    assert (run.status, run.reason) == ("failed", "The account is locked.") and LOG == ["make", "close"]


def test_an_object_that_does_not_close_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Sync):
        def close(self) -> None:
            time.sleep(0.5)

    monkeypatch.setattr(engine, "GRACE", 0.05)
    run = agent_of([Slow], calls("go")).run("?")
    said = [each.text for each in run.events if isinstance(each, Noted) and each.kind == "close"]
    assert said == ["Slow could not be closed: It takes more than 0.05 seconds."] and run.seconds < 0.4


def test_the_time_limit_of_a_call_begins_with_its_turn() -> None:
    class Slow:
        @plait.tool(timeout=0.3)
        def go(self) -> str:
            """Go."""
            time.sleep(0.1)
            return "went"

    assert seen(agent_of([Slow], calls(*["go"] * 5)).run("?")) == ["went"] * 5


def test_a_call_that_was_given_up_keeps_the_object_and_the_next_one_is_not_made() -> None:
    free = threading.Event()

    class Stuck:
        @plait.tool(timeout=0.1)
        def hang(self) -> str:
            """Hang."""
            free.wait(5)
            LOG.append("hung")
            return ""

        @plait.tool(timeout=0.1)
        def go(self) -> str:
            """Go."""
            LOG.append("went")
            return "went"

        @plait.tool(timeout=0.1)
        async def ago(self) -> str:
            """Go."""
            LOG.append("went")
            return "went"

        def close(self) -> None:
            LOG.append("close")

    @plait.tool
    def release() -> str:
        """Let the first call end."""
        free.set()
        time.sleep(0.05)
        return ""

    run = agent_of([Stuck, release], calls("hang"), calls("go"), calls("ago"), calls("release"), calls("go")).run("?")
    hang, go, ago, _, again = seen(run)
    assert "gave no result within 0.1 seconds" in hang and "was not called" in go and "given up" in ago
    assert again == "went" and LOG == ["hung", "went", "close"]


# an object whose method runs an agent that uses the object


class Asks(Counter):
    """Its methods run an agent whose tools are the methods of the same object."""

    def __init__(self) -> None:
        super().__init__()
        self.inner: plait.Agent | None = None

    def connect(self) -> None:
        """Open a connection that only this thread may use."""
        self.db = sqlite3.connect(":memory:")

    def version(self) -> None:
        """Use the connection."""
        LOG.append(self.db.execute("select 1").fetchone()[0])

    def ask(self, ctx: plait.Context[None]) -> str:
        """Ask an agent, blocking."""
        assert self.inner is not None
        return str(ctx.run(self.inner, "x").answer)

    async def aask(self, ctx: plait.Context[None]) -> str:
        """Ask an agent."""
        assert self.inner is not None
        return str((await ctx.arun(self.inner, "x")).answer)

    def plain(self) -> str:
        """Ask an agent that is no child run."""
        assert self.inner is not None
        return str(self.inner.run("x").answer)

    def loop(self) -> str:
        """Ask an agent on an event loop in this thread."""
        assert self.inner is not None
        return str(asyncio.run(self.inner.arun("x")).answer)


@pytest.mark.parametrize("method", ["ask", "aask", "plain", "loop"])
def test_an_agent_that_a_method_runs_can_use_the_same_object(method: str) -> None:
    shared = Asks()
    shared.inner = agent_of([shared], calls("bump", "abump", "bump"))
    began = time.monotonic()
    run = agent_of([shared], calls(method, "bump")).run("?")
    assert seen(run) == ["Done.", "4"] and shared.n == 4, seen(run)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("method", ["ask", "aask", "plain", "loop"])
def test_what_the_agent_of_a_method_calls_runs_on_the_thread_of_the_object(method: str) -> None:
    shared = Asks()
    shared.inner = agent_of([shared], calls("version", "version"))
    run = agent_of([shared], calls("connect"), calls(method)).run("?")
    assert seen(run)[1:] == ["Done."] and LOG == [1, 1], seen(run)


def test_two_objects_whose_agents_call_each_other_do_not_wait_for_ever() -> None:
    one, two = Asks(), Asks()
    both = threading.Barrier(2)

    def crossing(other: Asks, name: str) -> plait.Agent:
        tool = plait.tool(name="bump")(other.bump)

        @plait.tool
        def meet() -> str:
            """Wait until both methods hold their object."""
            both.wait(5)
            return name

        return agent_of([tool, meet], calls("meet"), calls("bump"))

    one.inner, two.inner = crossing(two, "one"), crossing(one, "two")
    tools = [plait.tool(name="ask_one")(one.ask), plait.tool(name="ask_two")(two.ask)]
    began = time.monotonic()
    run = agent_of(tools, calls("ask_one", "ask_two")).run("?")
    inner = [text for child in run.children for text in seen(child)]
    assert time.monotonic() - began < 3 and seen(run) == ["Done.", "Done."]
    assert sum("busy with a call that waits for this one" in text for text in inner) == 1 and inner.count("1") == 1


async def test_an_agent_that_outlives_the_method_that_began_it_waits_for_its_turn() -> None:
    class Spawns(Counter):
        async def spawn(self) -> None:
            """Begin an agent and do not wait for it."""
            self.task = asyncio.ensure_future(self.run_later())

        async def run_later(self) -> None:
            await asyncio.sleep(0.015)
            await agent_of([self], calls("abump", "bump", "abump")).arun("x")

    shared = Spawns()
    await agent_of([shared], calls("spawn", *["abump", "bump"] * 3)).arun("?")
    await shared.task
    assert shared.n == 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_does_not_wait_for_a_call_of_its_parent() -> None:
    free = threading.Event()

    class Held(Counter):
        def hold(self) -> str:
            """Keep the object."""
            LOG.append("held")
            free.wait(5)
            return "free"

    shared = Held()
    thread = threading.Thread(target=agent_of([shared], calls("hold")).run, args=("?",))
    thread.start()
    while not LOG:
        time.sleep(0.005)
    process = os.fork()
    if process == 0:
        signal.alarm(5)
        os._exit(0 if seen(agent_of([shared], calls("bump", "abump")).run("?")) == ["1", "2"] else 1)
    try:
        assert os.waitpid(process, 0)[1] == 0
    finally:
        free.set()
        thread.join()


def test_an_agent_with_an_object_can_be_pickled_if_the_object_can() -> None:
    import pickle

    [tool, _] = tools_from([Counter()])
    copied = pickle.loads(pickle.dumps(tool))
    assert copied.name == tool.name and isinstance(copied.owner, tool_object.ToolObject)
    assert json.dumps(copied.spec.parameters) == json.dumps(tool.spec.parameters)
