"""Functions of the user that Plait calls: async ones are awaited or refused; `on_event` gives its caller its error."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core import Call, Reply
from plait.core import events as ev
from plait.core.errors import ConfigError, PlaitError
from plait.journal.redaction import redact_with
from plait.journal.store import Journal
from plait.loops.react.loop import ReAct
from plait.user_functions import is_async

SENT: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


async def later(*_: Any) -> Any:
    """An async function of the user."""


async def later_and_later(*_: Any) -> Any:
    yield


class Object:
    async def __call__(self, *_: Any) -> Any: ...

    async def method(self, *_: Any) -> Any: ...


def returns_awaitable(*values: Any) -> Any:
    return later()


@functools.wraps(later)
def wraps_async(*values: Any) -> Any:
    return later()


class AwaitableObject:
    def __call__(self, *_: Any) -> Any:
        return later()


ASYNC: dict[str, Any] = {
    "function": later,
    "partial": functools.partial(later, 1),
    "partial of a partial of an object": functools.partial(functools.partial(Object(), 1), 2),
    "object": Object(),
    "method": Object().method,
    "generator": later_and_later,
}
HIDDEN: dict[str, Any] = {
    "function": returns_awaitable,
    "wrapper": wraps_async,
    "lambda": lambda *_: later(),
    "partial": functools.partial(returns_awaitable),
    "object": AwaitableObject(),
}


@plait.tool(read_only=True)
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


@plait.tool
def send(to: str) -> str:
    """Send."""
    SENT.append(to)
    return f"sent to {to}"


def agent(tool: str = "look", calls: int = 1, **fields: Any) -> plait.Agent:
    name = "at" if tool == "look" else "to"
    made = tuple(Call(tool, {name: each}, each) for each in "abc"[:calls])
    script = [Reply("", calls=made), "Done."]
    return plait.Agent("tool_calling", **{"model": plait.Scripted(script), "tools": [look, send], **fields})


def redact(function: Any) -> None:
    try:
        redact_with(function)
        agent().run("?")
    finally:
        redact_with(None)


def check_answers(function: Any) -> plait.Run:
    return agent(output=plait.OutputType(str, checks=[function])).run("?")


PLACES: dict[str, Callable[[Any], Any]] = {
    "approve": lambda function: agent(approve=function).run("?"),
    "instructions": lambda function: agent(instructions=function).run("?"),
    "check": check_answers,
    "on_event": lambda function: asyncio.run(agent().arun("?", on_event=function)),
    "redact_with": redact,
    "embedder": lambda function: plait.History(embedder=function),
    "embedder object": lambda function: plait.History(
        embedder=SimpleNamespace(name="own", dim=1, embed=function)  # type: ignore[arg-type]
    ),
    "loop": lambda function: plait.Agent(
        type("Own", (ReAct,), {"run": staticmethod(function)})(), model=plait.Scripted(["x"])
    ),
    "inline tool": lambda function: plait.tool(name="quick", inline=True)(function),
}


@for_each("kind", ASYNC)
@for_each("place", PLACES)
def test_an_async_function_is_refused_where_nothing_awaits_it(place: str, kind: str) -> None:
    assert is_async(ASYNC[kind])
    with pytest.raises(ConfigError, match="is async, and Plait calls it without await"):
        PLACES[place](ASYNC[kind])


def test_an_awaitable_that_a_plain_function_returns_is_an_error_that_says_so() -> None:
    """And none is left over, which Python would report as never awaited."""
    text = "returned an awaitable (coroutine), and Plait calls it without await"
    for place, kind in product(["approve", "instructions", "check", "on_event", "redact_with"], HIDDEN):
        try:
            run = PLACES[place](HIDDEN[kind])
        except (PlaitError, TypeError) as why:
            assert text in str(why), (place, kind)
        else:
            assert run.status == "crashed" and text in run.reason, (place, kind)
    gc.collect()


def test_what_a_tool_asks_of_approve_is_not_taken_for_yes() -> None:
    run = agent(approve=returns_awaitable).run("?")
    assert run.status == "crashed" and "approve=" in str(run.reason)
    with pytest.raises(ConfigError, match="Give True or False"):
        plait.tool(requires_approval=lambda call: False)(send.function)  # type: ignore[call-overload]


def test_hooks_and_on_wait_may_be_async() -> None:
    asked: list[Any] = []

    async def answer(*values: Any) -> Any:
        asked.append(values[-1])
        await asyncio.sleep(0)
        return "yes" if isinstance(values[-1], plait.core.Waiting) else None

    functions: dict[str, Any] = {
        "function": answer,
        "partial": functools.partial(answer),
        "lambda": lambda *values: answer(*values),
    }
    for function in functions.values():
        hook = type("Own", (plait.Hook,), {"before_tool": lambda self, *values, f=function: f(*values)})()
        run = agent("send", approve="always", hooks=[hook]).run("?", on_wait=function)
        assert run.answer == "Done."
    assert SENT == ["a"] * 3 and len(asked) == 9  # a hook that let the call pass looks at it again after the answer


@pytest.mark.parametrize("place", ["hook", "on_wait"])
def test_a_cancellation_that_nobody_asked_for_is_an_error_of_the_function(place: str) -> None:
    async def fail(*_: Any) -> Any:
        raise asyncio.CancelledError("the client is gone")

    hook = type("Own", (plait.Hook,), {"before_tool": lambda self, *values: fail()})()
    fields: dict[str, Any] = {"hooks": [hook]} if place == "hook" else {"approve": "always"}
    run = agent("send", **fields).run("?", on_wait=fail if place == "on_wait" else None)
    assert run.status == "crashed" and "CancelledError: the client is gone" in str(run.reason) and not SENT


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit("stop")], ids=repr)
@pytest.mark.parametrize("place", ["hook", "on_wait", "approve", "check", "script"])
def test_an_interrupt_that_a_function_raises_ends_its_run_and_no_other(place: str, error: BaseException) -> None:
    def fail(*_: Any) -> Any:
        raise error

    hook = type("Own", (plait.Hook,), {"before_tool": fail})()
    fields: dict[str, dict[str, Any]] = {
        "hook": {"hooks": [hook]},
        "on_wait": {"approve": "always"},
        "approve": {"approve": fail},
        "check": {"output": plait.OutputType(str, checks=[lambda value: fail()])},
        "script": {"model": plait.Scripted([fail])},  # not a function of Plait: its own error reaches the caller
    }
    if place == "script" and isinstance(error, SystemExit):
        with pytest.raises(SystemExit):
            agent("send", **fields[place]).run("?")
    else:
        run = agent("send", **fields[place]).run("?", on_wait=fail if place == "on_wait" else None)
        assert run.status == "crashed" and "stop" in str(run.reason), run.reason
    assert agent("send").run("?").answer == "Done."


# -- on_event


class Gone(Exception):
    """The caller's own error."""


EVENTS = (ev.Began, ev.Asked, ev.Called, ev.Observed, ev.Replied, ev.Text, ev.Marked, ev.Ended)


def failing(at: type, error: BaseException, after: int = 0) -> Callable[[Any], None]:
    """An `on_event` that raises at an event of a kind; nothing may come after it."""
    seen: list[Any] = []

    def listen(event: Any) -> None:
        assert error not in seen, event
        seen.append(event)
        if sum(isinstance(each, at) for each in seen) > after:
            seen.append(error)
            raise error

    return listen


@pytest.mark.parametrize("at", EVENTS)
@pytest.mark.parametrize(("tool", "calls"), [("look", 1), ("look", 3), ("send", 1), ("send", 3)])
def test_an_error_in_on_event_reaches_the_caller_and_the_run_can_be_resumed(
    at: type, tool: str, calls: int, journal: Path
) -> None:
    made, error = agent(tool, calls, journal=journal), Gone("the web socket is closed")
    with pytest.raises(Gone) as raised:
        asyncio.run(made.arun("?", on_event=failing(at, error)))
    assert raised.value is error
    row = Journal(journal).run("last")
    if at is ev.Ended:
        assert row.status == "answered"
    else:
        assert row.status == "cancelled" and row.outcome is not None
        assert row.outcome["reason"] == "The function on_event= failed: Gone: the web socket is closed."
    assert not (SENT and at in (ev.Began, ev.Asked, ev.Called)), "a call was made after the error"
    run = made.resume(row.head.run)
    while run.status == "waiting":
        run = made.resume(run, "no")
    assert run.answer == "Done."
    made_calls = tool == "send" and at is not ev.Called  # their intents are on record by then, so they are in doubt
    assert sorted(SENT) == list("abc"[:calls] if made_calls else "")


@pytest.mark.parametrize(
    "error", [Gone("x"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError("own"), TimeoutError("own")]
)
def test_every_kind_of_error_is_recorded_first(error: BaseException, journal: Path) -> None:
    made = agent("send", 2, journal=journal)

    async def main() -> None:
        with pytest.raises(type(error)) as raised:
            await made.arun("?", on_event=failing(ev.Observed, error))
        assert raised.value is error

    asyncio.run(main())
    assert Journal(journal).run("last").status == "cancelled" and sorted(SENT) == ["a", "b"]


@pytest.mark.parametrize("how", ["resume", "fork", "session", "child", "code", "plan", "group", "progress"])
def test_an_error_in_on_event_reaches_every_kind_of_caller(how: str, journal: Path) -> None:
    error = Gone(how)
    made = agent("send", journal=journal)

    @plait.tool(read_only=True)
    async def slow(ctx: plait.Context[None], at: str) -> str:
        """Look, and say so."""
        ctx.report_progress("half")
        await asyncio.sleep(60)
        return at

    async def main() -> Any:
        listen = failing({"child": ev.Observed, "code": ev.Executing, "plan": ev.Asked}.get(how, ev.Called), error)
        match how:
            case "resume" | "fork":
                waits = await made.using(approve="always").arun("?")
                if how == "fork":
                    return await made.afork(waits, 1, on_event=listen)
                return await made.using(approve="always").aresume(waits, "yes", on_event=listen)
            case "child":
                script = [Reply("", calls=(Call("helper", {"question": "Send."}),)), "Done."]
                boss = agent(model=plait.Scripted(script), tools=[made.as_tool("helper")], journal=journal)
                return await boss.arun("?", on_event=listen)
            case "code":
                code = " a\nACTION 1:\n```python\nprint(look('a'))\n```"
                coder = plait.Agent("codeact", model=plait.Scripted([code]), tools=[look], journal=journal)
                return await coder.arun("?", on_event=listen)
            case "plan":
                planner = plait.Agent("rewoo", model=plait.Scripted(["#E1 = send[a]"]), tools=[send], journal=journal)
                return await planner.aplan("?", on_event=listen)
            case "progress":
                slowly = agent(tools=[plait.tool(name="look", read_only=True)(slow.function)], journal=journal)
                return await slowly.arun("?", on_event=failing(ev.Noted, error))
            case "group":
                async with asyncio.TaskGroup() as tasks:
                    return tasks.create_task(made.arun("?", on_event=listen))
            case _:
                return await made.arun("?", session="s", on_event=listen)

    expected: Any = ExceptionGroup if how == "group" else Gone
    with pytest.raises(expected) as raised:
        asyncio.run(main())
    assert error in (raised.value, *getattr(raised.value, "exceptions", ()))
    assert Journal(journal).run("last").status == "cancelled"
    assert all(row.owner == "" for row in Journal(journal).runs(-1, children=True))


def test_calls_under_way_end_on_record_when_on_event_fails(journal: Path) -> None:
    """The calls beside the failing event are cancelled as if the caller had cancelled the run."""

    @plait.tool(name="send")
    async def send_slowly(to: str) -> str:
        """Send."""
        SENT.append(to)
        await asyncio.sleep(0 if to == "a" else 60)
        return "sent"

    made = agent("send", 3, tools=[send_slowly], journal=journal)
    with pytest.raises(Gone):
        asyncio.run(made.arun("?", on_event=failing(ev.Observed, Gone())))
    calls = Journal(journal).timeline("last").tool_calls
    assert [call.begun for call in calls] == [True] * 3
    assert [call.observation is None for call in calls] == [False, True, True]
    run = made.resume("last")
    assert run.answer == "Done." and sorted(SENT) == ["a", "b", "c"]
