"""Values cross between tools and code unchanged, as plain values or as text, and within the limits of a call."""

from __future__ import annotations

import asyncio
import datetime
import enum
import itertools
import sys
import threading
import time
import uuid
from collections import UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy
import pytest

import plait
from conftest import for_each
from plait.core import Call, CodeLimits, Reply
from plait.core.events import Executed
from plait.sandbox import Result, Settings, process_child
from plait.sandbox.process import ProcessSession
from plait.sandbox.worker_values import pack, unpack
from plait.tools import render
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


@for_each("value", VALUES)
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


PLAIN: list[tuple[Any, str]] = [
    (numpy.bool_(False), "False bool"),
    (numpy.float64(2.5), "2.5 float"),
    (numpy.array([[1, 2]]), "[[1, 2]] list"),
    (Town("Lyon", datetime.date(43, 1, 1)), "{'name': 'Lyon', 'since': datetime.date(43, 1, 1)} dict"),
    (Pair(1, 2), "{'left': 1, 'right': 2} dict"),
    (Size.BIG, "1 int"),
    (Path("x"), "'x' str"),
    ([object(), {1, 2}], "['(a object)', {1, 2}] list"),
    (1j, "'1j' str"),
    (range(3), "[0, 1, 2] list"),
    (deque([(1,)]), "[(1,)] list"),
    ({"a": 1}.keys(), "['a'] list"),
    ({"a": {1}}.values(), "[{1}] list"),
    ({"a": 1}.items(), "[('a', 1)] list"),
    (map(str, [1, 2]), "['1', '2'] list"),
    (MappingProxyType({"a": 1}), "{'a': 1} dict"),
    (UserDict({"a": (1,)}), "{'a': (1,)} dict"),
    (defaultdict(list, a=[1]), "{'a': [1]} dict"),
    (numpy.int64(7), "7 int"),
    (numpy.array([1.0, float("nan")]), "[1.0, nan] list"),
    (numpy.array([None, {"a": 1}], dtype=object), "[None, {'a': 1}] list"),
    (numpy.datetime64("2026-01-02"), "datetime.date(2026, 1, 2) date"),
    (numpy.datetime64("2026-01-02", "ns"), "'2026-01-02T00:00:00.000000000' str"),
    (numpy.datetime64("NaT"), "None NoneType"),
    (numpy.timedelta64(5, "ns"), "'5 nanoseconds' str"),
    (numpy.complex64(1), "'(1+0j)' str"),
    (IPv4Address("1.2.3.4"), "'1.2.3.4' str"),
    (10**5000, "'(a whole number of 16,610 bits)' str"),
    ([10**5000, 1], "['(a whole number of 16,610 bits)', 1] list"),
    ({Pair(1, 2): 1, (2, 1): 2, 3: 4}, '{\'{"left": 1, "right": 2}\': 1, (2, 1): 2, 3: 4} dict'),
    ({frozenset({1}): 1, Path("x"): 2, None: 3}, "{frozenset({1}): 1, 'x': 2, None: 3} dict"),
    (ValueError("x"), "'x' str"),
    (SimpleNamespace(a=1), "'namespace(a=1)' str"),
    (memoryview(b"ab"), "b'ab' bytes"),
]


async def through_one_run(tmp_path: Path, values: list[Any], code: str) -> plait.Run:
    """Let code get each value from a tool; a replay finds the same."""

    @plait.tool
    def get(i: int) -> Any:
        """Gets."""
        return values[i]

    code = f"for i in range({len(values)}):\n    v = get(i)\n    {code}"
    agent = plait.Agent(Pieces((code,)), model=plait.Scripted([]), tools=[get], journal=tmp_path / "j.db")
    run = await agent.arun("q")
    assert (await asyncio.to_thread(agent.replay, run.id)).whole
    return run


async def test_other_results_are_their_plain_value_or_their_text(tmp_path: Path) -> None:
    run = await through_one_run(tmp_path, [value for value, _ in PLAIN], "print(repr(v), type(v).__name__)")
    assert run.answer.splitlines() == [said for _, said in PLAIN]


class MissingDate(datetime.datetime):
    """A date that is unknown, as tables have it."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def isoformat(self, *_: Any) -> str:
        return "NaT"


class LyingDate(datetime.datetime):
    def isoformat(self, *_: Any) -> str:
        return "yesterday"


class LyingId(uuid.UUID):
    def __str__(self) -> str:
        return "no id"


class LyingNumber(Decimal):
    def __str__(self) -> str:
        return "twelve"


class LyingInt(int):
    def __int__(self) -> int:
        raise OverflowError

    def __repr__(self) -> str:
        raise OverflowError


class LyingDict(dict[str, Any]):
    def items(self) -> Any:
        return [("a", 1), 3]


class EndlessList(list[int]):
    def __iter__(self) -> Any:
        return itertools.count()


class Endless:
    def __init__(self, *wait: float) -> None:
        self.wait = wait

    def __str__(self) -> str:
        while True:
            time.sleep(0.01)


class Raises:
    def __init__(self, why: BaseException) -> None:
        self.why = why

    def __str__(self) -> str:
        raise self.why


class Spoilt:
    def __iter__(self) -> Any:
        yield 1
        raise OSError("gone")


class NoText:
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class Dumps:
    model_fields: ClassVar[dict[str, Any]] = {}

    def model_dump(self, mode: str) -> Any:
        raise KeyError("gone")


class Recursion:
    def __str__(self) -> str:
        return str(self)


CIRCLE: list[Any] = [1]
CIRCLE.append({"inside": CIRCLE})
DEEP: Any = []
for _ in range(5000):
    DEEP = [DEEP]
WIDE: Any = ["x"]
for _ in range(40):
    WIDE = [WIDE] * 10


CANT = "(a {} that can't be shown)"


HOSTILE: list[tuple[Any, str]] = [
    (MissingDate(2026, 1, 1), "(no result)"),
    ([{"when": MissingDate(2026, 1, 1), "n": 1}], '[{"when": null, "n": 1}]'),
    ([LyingDate(2026, 1, 1), 1], f'["{CANT.format("LyingDate")}", 1]'),
    ([LyingId(int=7)], '["00000000-0000-0000-0000-000000000007"]'),
    ([LyingNumber("1.5"), 1], '["1.5", 1]'),
    ([LyingInt(5)], "[5]"),
    ([LyingDict(a=1)], f'["{CANT.format("LyingDict")}"]'),
    ([Raises(ValueError()), 1], f'["{CANT.format("Raises")}", 1]'),
    ([Raises(SystemExit(3)), 1], f'["{CANT.format("Raises")}", 1]'),
    ([Raises(KeyboardInterrupt()), 1], f'["{CANT.format("Raises")}", 1]'),
    ([Raises(asyncio.CancelledError()), 1], f'["{CANT.format("Raises")}", 1]'),
    ([NoText()], f'["{CANT.format("NoText")}"]'),
    ([Dumps()], f'["{CANT.format("Dumps")}"]'),
    ([Recursion()], f'["{CANT.format("Recursion")}"]'),
    ([iter(Spoilt())], '[[1, "(no more can be read: OSError)"]]'),
    (CIRCLE, '[1, {"inside": "(nested too deeply to show)"}]'),
    ([float("nan"), float("-inf")], '["nan", "-inf"]'),
    ({1.5: 1, None: 2, (1, 2): 3, b"x": 4}, '{"1.5": 1, "null": 2, "[1, 2]": 3, "1 bytes (text)": 4}'),
    (Mock(spec=dict), CANT.format("Mock")),
]


async def test_whatever_a_result_does_when_it_is_read_it_arrives_everywhere(tmp_path: Path) -> None:
    @plait.tool
    def get(i: int) -> Any:
        """Gets."""
        return HOSTILE[i][0]

    calls = tuple(Call("get", {"i": i}, id=str(i)) for i in range(len(HOSTILE)))
    agent = plait.Agent(
        "tool_calling", model=plait.Scripted([Reply("", calls=calls), "Done."]), tools=[get], journal=False
    )
    run = await agent.arun("q")
    assert run.status == "answered"
    ended = sorted(run.timeline.results, key=lambda each: each[0].i)  # side by side, they may end in any order
    assert [(seen.text, seen.trouble) for _, seen in ended] == [(text, "") for _, text in HOSTILE]
    run = await through_one_run(tmp_path, [value for value, _ in HOSTILE], "print('got it')")
    assert run.answer == "got it\n" * len(HOSTILE)


@pytest.mark.parametrize(
    "value", [DEEP, WIDE, itertools.count(), EndlessList([1])], ids=["deep", "wide", "count", "list"]
)
def test_a_result_without_an_end_ends(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["plait.tools.render"], "MOST", 20_000)
    text, _ = render(value)
    assert len(text) < 2_000_000 and ("too many values" in text or "too deeply" in text or "may be more" in text)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_result_that_can_not_be_read_in_time_leaves_no_doubt_about_the_call(is_async: bool) -> None:
    def get() -> Any:
        """Gets."""
        return Endless()

    async def aget() -> Any:
        """Gets."""
        return Endless()

    tool = plait.tool(name="get", timeout=0.1)(aget if is_async else get)
    script = [Reply("", calls=(Call("get", {}, id="1"),)), "Done."]
    run = plait.Agent("tool_calling", model=plait.Scripted(script), tools=[tool], journal=False).run("q")
    [(_, seen)] = run.timeline.results
    assert (seen.trouble, run.status) == ("", "answered") and "could not be read within 0.1 seconds" in seen.text


async def test_a_sandbox_without_a_type_gets_its_text_and_no_error() -> None:
    session = await opened("monty", Settings(frozenset({"get"}), CodeLimits()))
    given = [Decimal("1.10"), datetime.time(1, 2), uuid.UUID(int=7), Fraction(1, 3), bytearray(b"a"), {Decimal(1): 2}]
    told = await whole(session, "print(get())", {"get": lambda: given})
    assert told.error is None
    assert told.output == "['1.10', '01:02:00', '00000000-0000-0000-0000-000000000007', '1/3', b'a', {'1': 2}]\n"
    await session.close()


async def test_an_artifact_in_a_result_that_can_not_be_kept_does_not_spoil_the_rest() -> None:
    class Unkept(plait.Artifact):
        kind = "unkept"

        def about(self) -> str:
            return "<Unkept>"

        def dump(self) -> bytes:
            raise OSError("no format")

        @classmethod
        def load(cls, data: bytes) -> Unkept:
            return cls()

    @plait.tool
    def get() -> Any:
        """Gets."""
        return [1, Unkept()]

    model = plait.Scripted([Reply("", calls=(Call("get", {}, id="1"),)), "Done."])
    run = await plait.Agent("tool_calling", model=model, tools=[get], journal=False).arun("q")
    [(_, seen)] = run.timeline.results
    assert (seen.text, seen.trouble) == ('[1, "(a Unkept that can\'t be kept)"]', "")


@pytest.mark.parametrize("name", BACKENDS)
async def test_a_result_of_any_depth_reaches_the_code(name: str) -> None:
    @plait.tool
    def get(depth: int) -> Any:
        """Gets."""
        value: Any = 7
        for _ in range(depth):
            value = [({1: value},)]
        return value

    read = "x = get({})\nn = 0\nwhile not isinstance(x, (int, str)):\n"
    read += "    x = x[1 if isinstance(x, dict) else 0]\n    n += 1\nprint(n, x)"
    turns = [f" a\nACTION {n}:\n```python\n{read.format(deep)}\n```" for n, deep in ((1, 17), (2, 20), (3, 300))]
    turns.append(" a\nACTION 4:\n```python\nstop('x')\n```")
    run = await plait.Agent("codeact", model=plait.Scripted(turns), tools=[get], sandbox=name, journal=False).arun("q")
    said = [event.ran.output for event in run.events if isinstance(event, Executed) and event.ran.output]
    assert said[:2] == ["51 7\n", "60 7\n"] and said[2].endswith(" (nested too deeply to show)\n")
    assert run.timeline.results[2][1].note == "The code got text in place of some values (nested too deeply to show)."


async def test_code_is_told_what_it_got_as_text(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    def get() -> Any:
        """Gets."""
        return [1j, Path("x"), 2j]

    turns = [" a\nACTION 1:\n```python\nprint(get())\n```", " a\nACTION 2:\n```python\nstop('x')\n```"]
    run = await plait.Agent("codeact", model=plait.Scripted(turns), tools=[get], journal=tmp_path / "j.db").arun("q")
    assert b"these types cannot pass to it: complex, PosixPath." in run.timeline.model_calls[1].request


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
