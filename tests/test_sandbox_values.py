"""Values cross between tools and code unchanged or raise TypeError; calls can pass on no more than their limits."""

from __future__ import annotations

import asyncio
import datetime
import enum
import threading
import uuid
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest

import plait
from plait.core import CodeLimits
from plait.sandbox import Result, Settings, process_child
from plait.sandbox.process import ProcessSession
from plait.sandbox.worker_values import pack, unpack
from sandbox_support import BACKENDS, NOW, opened, whole
from test_sandbox_restored import Pieces

VALUES: list[Any] = [
    b"\x00\xff 12 bytes",
    bytearray(b"ab"),
    {1: "one", (2, 3): {4}},
    {"$bytes": "AAE=", "$x": 1},
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC),
    datetime.time(12, 30, 1),
    datetime.timedelta(days=-1, microseconds=5),
    Decimal("1.10"),
    Fraction(1, 3),
    uuid.UUID(int=7),
    float("inf"),
    {"b", "a", "c"},
    frozenset({1}),
    (1, (2, [3])),
    10**40,
    -(2**63),
    "Zürich",
    [None, True, 2.5],
]


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one if not isinstance(one, set) else sorted(one)) == repr(
        other if not isinstance(other, set) else sorted(other)
    )


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_that_is_written_down_is_read_back_as_it_was(value: Any) -> None:
    packed = pack(value, lambda _: None)
    assert same(unpack(plait_json(packed), lambda _: None), value)


def plait_json(value: Any) -> Any:
    """The value as the journal gives it back."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value))


def test_what_json_holds_anyway_is_written_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, {"b": "c"}]}
    assert pack(value, lambda _: None) == value
    assert pack({"a": [(1,)]}, lambda _: None) == {"a": [{"$tuple": [1]}]}


async def through_a_run(tmp_path: Path, value: Any, code: str) -> tuple[plait.Run, list[Any], plait.Agent]:
    """A run whose code gets `value` from a tool and gives it back to another."""
    taken: list[Any] = []

    @plait.tool(read_only=True)
    def get() -> Any:
        """Gets."""
        return value

    @plait.tool
    def take(value: Any) -> None:
        """Takes."""
        taken.append(value)

    agent = plait.Agent(Pieces((code,)), model=plait.Scripted([]), tools=[get, take], journal=tmp_path / "j.db")
    return await agent.arun("q"), taken, agent


async def test_values_cross_unchanged_from_a_tool_through_code_to_a_tool_and_replay(tmp_path: Path) -> None:
    code = "for v in get():\n    take(v)\nprint('all')"
    run, taken, agent = await through_a_run(tmp_path, VALUES, code)
    assert (run.status, run.answer) == ("answered", "all\n"), run.answer
    assert [same(one, other) for one, other in zip(taken, VALUES, strict=True)] == [True] * len(VALUES)
    assert (await asyncio.to_thread(agent.replay, run.id)).whole


async def test_not_a_number_crosses_as_a_number(tmp_path: Path) -> None:
    run, taken, _ = await through_a_run(tmp_path, float("nan"), "v = get()\ntake(v)\nprint(v != v)")
    assert run.answer == "True\n" and len(taken) == 1 and taken[0] != taken[0]


async def test_a_session_with_such_values_is_restored(tmp_path: Path) -> None:
    taken: list[Any] = []

    def get() -> Any:
        """Gets."""
        return {b"key": {1, 2}}

    def take(value: Any) -> Any:
        """Takes."""
        taken.append(value)
        return value

    pieces = Pieces(
        ("x = get()", "y = take(x)", "print(take({'x': (x, y), 's': {'b', 'a', 'c'}}) == {'x': (x, x), 's': {*'abc'}})")
    )
    agent = plait.Agent(
        pieces, model=plait.Scripted([]), tools=[get, take], journal=tmp_path / "j.db", approve="always"
    )
    run = await agent.arun("q")
    for _ in range(3):
        assert run.status == "waiting", run.reason
        run = await agent.aresume(run, "yes")
    assert run.answer == "True\n" and taken[0] == {b"key": {1, 2}}


@dataclass
class Town:
    name: str
    since: datetime.date


class Size(enum.Enum):
    BIG = 1


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (numpy.bool_(False), "False bool"),
        (numpy.float64(2.5), "2.5 float"),
        (numpy.array([[1, 2]]), "[[1, 2]] list"),
        (Town("Lyon", datetime.date(43, 1, 1)), "{'name': 'Lyon', 'since': datetime.date(43, 1, 1)} dict"),
        (Pair(1, 2), "{'left': 1, 'right': 2} dict"),
        (Size.BIG, "1 int"),
        (Path("x"), "TypeError: get(): a value of type"),
        ([object()], "TypeError: get(): a value of type object can't be passed on; what can: None, bool"),
        (1j, "TypeError: get(): a value of type complex"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
async def test_other_results_are_their_plain_value_or_a_type_error_in_the_code(
    tmp_path: Path, value: Any, said: str
) -> None:
    code = "v = get()\nprint(repr(v), type(v).__name__)"
    run, _, _ = await through_a_run(tmp_path, value, code)
    assert said in run.answer


async def test_a_typed_tool_gets_its_type_or_refuses(tmp_path: Path) -> None:
    given: list[Any] = []

    @plait.tool
    def note(day: datetime.date, text: str, parts: list[int]) -> None:
        """Notes."""
        given.append((day, text, parts))

    pieces = Pieces(("note(date(2024, 1, 2), 'x', (1, 2))", "note('2024-01-02', date(2024, 1, 2), [])"))
    agent = plait.Agent(pieces, model=plait.Scripted([]), tools=[note], journal=tmp_path / "j.db")
    run = await agent.arun("q")
    assert given == [(datetime.date(2024, 1, 2), "x", [1, 2])]
    assert "TypeError: note: text must be a string" in run.answer


# limits

TOO_MUCH = {
    "bytes": ("tool('x' * 2_000_000)", "bytes can't be passed on in one call (at most 1,000,000)"),
    "items": ("tool([[]] * 900_000)", "more than 100,000 values can't be passed on"),
    "depth": ("x = []\nfor _ in range(60): x = [x]\ntool(x)", "nested more than 50 deep"),
    "all calls": ("for _ in range(50): tool('x' * 900_000)", "may pass on 10,000,000 bytes, and this is beyond"),
}


@pytest.mark.parametrize("name", BACKENDS)
async def test_calls_over_their_limits_are_errors_in_the_code_and_nothing_is_called(name: str) -> None:
    session = await opened(name, Settings(frozenset({"tool"}), CodeLimits(seconds=20.0)))
    for what, (code, said) in TOO_MUCH.items():
        told = await whole(session, code, {"tool": lambda value: None})
        assert told.error is not None and said in told.error.message, (what, told.error)
        assert (told.error.type, told.lost, len(told.calls)) == ("ValueError", False, 11 if what == "all calls" else 0)
    assert (await whole(session, "try:\n    tool([0] * 200_000)\nexcept ValueError:\n    print('caught')")).output == (
        "caught\n"
    )
    await session.close()


async def test_limits_of_calls_are_the_users() -> None:
    session = await opened("process", Settings(frozenset({"tool"}), CodeLimits(call_bytes=3_000_000, call_items=5)))
    assert (await whole(session, "tool('x' * 2_000_000)", {"tool": lambda value: None})).error is None
    told = await whole(session, "tool([1, 2, 3, 4, 5, 6])")
    assert told.error is not None and "more than 5 values" in told.error.message
    await session.close()


async def test_large_values_are_read_and_written_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[int]] = {}

    def watched(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def watching(*args: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return function(*args)

        monkeypatch.setattr(owner, name, watching)

    session = await opened("process", Settings(frozenset({"tool"}), CodeLimits(seconds=30.0)))
    for owner, name in (
        (process_child, "_read"),
        (process_child, "_written"),
        (ProcessSession, "_calls"),
        (ProcessSession, "_encode_result"),
    ):
        watched(owner, name)
    turn = await session.run("pass", NOW)
    assert turn.error is None
    threads.clear()
    turn = await session.run("x = tool([[]] * 99_000)", NOW)
    assert len(turn.calls[0].args[0]) == 99_000
    assert all(threading.get_ident() not in threads[name] for name in ("_read", "_calls"))
    threads.clear()
    turn = await session.go_on([Result([[]] * 200_000)])
    assert turn.error is None
    assert all(threading.get_ident() not in threads[name] for name in ("_encode_result", "_written"))
    await session.close()
