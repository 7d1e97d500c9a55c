"""Generators, iterators and views as results of tools: a list of their values, within limits, closed at the end."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import json
import sqlite3
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core import Observation
from plait.core.events import Observed
from plait.tools.render import simplify


def make_agent(function: Callable[[], Any], loop: str = "react", timeout: float = 20) -> plait.Agent[Any, str]:
    each = plait.tool(name="tried", read_only=True, timeout=timeout)(function)
    script = {
        "react": ['Thought: x\nAction:\n```\n{"action": "tried", "action_input": null}\n```', "Final Answer: x"],
        "codeact": [
            " x.\nACTION 1:\n```python\nkept = tried()\nprint(type(kept).__name__, kept)\n```",
            " x.\nACTION 2:\n```python\nstop('x')\n```",
        ],
    }[loop]
    return plait.Agent(loop, model=plait.Scripted(script), tools=[each], journal=False)


def call(function: Callable[[], Any], timeout: float = 20) -> Observation:
    run = make_agent(function, timeout=timeout).run("q")
    (seen,) = (event.observation for event in run.events if isinstance(event, Observed))
    return seen


def values() -> Iterator[int]:
    yield from range(3)


async def async_values() -> AsyncIterator[int]:
    for each in range(3):
        await asyncio.sleep(0)
        yield each


async def returns_generator() -> Iterator[int]:
    return values()


async def returns_stream() -> AsyncIterator[int]:
    return async_values()


def rows() -> Any:
    return sqlite3.connect(":memory:").execute("select 1, 2 union select 3, 4")


RESULTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "generator": (values, [0, 1, 2]),
    "async generator": (async_values, [0, 1, 2]),
    "async function with a generator": (returns_generator, [0, 1, 2]),
    "async function with an async generator": (returns_stream, [0, 1, 2]),
    "function with an async generator": (lambda: async_values(), [0, 1, 2]),
    "generator expression": (lambda: (str(each) for each in range(2)), ["0", "1"]),
    "map": (lambda: map(str, [1, 2]), ["1", "2"]),
    "zip": (lambda: zip("ab", [1, 2], strict=True), [["a", 1], ["b", 2]]),
    "filter": (lambda: filter(None, [0, 1]), [1]),
    "enumerate": (lambda: enumerate("a"), [[0, "a"]]),
    "reversed": (lambda: reversed([1, 2]), [2, 1]),
    "range": (lambda: range(3), [0, 1, 2]),
    "keys": (lambda: {"a": 1}.keys(), ["a"]),
    "values": (lambda: {"a": 1}.values(), [1]),
    "items": (lambda: {"a": 1}.items(), [["a", 1]]),
    "deque": (lambda: deque([1, 2]), [1, 2]),
    "islice": (lambda: itertools.islice(itertools.count(), 2), [0, 1]),
    "no values": (lambda: iter(()), []),
    "rows of a database": (rows, [[1, 2], [3, 4]]),
    "records of a table": (lambda: csv.DictReader(io.StringIO("a,b\n1,2\n")), [{"a": "1", "b": "2"}]),
    "inside": (
        lambda: {"a": values(), "b": [map(str, [1]), {"c": {"d": 1}.keys()}], "e": (1, range(2))},
        {"a": [0, 1, 2], "b": [["1"], {"c": ["d"]}], "e": [1, [0, 1]]},
    ),
    "generator of generators": (lambda: (range(each) for each in (1, 2)), [[0], [0, 1]]),
}


@for_each("case", RESULTS)
def test_the_values_of_an_iterator_are_a_json_list(case: str) -> None:
    function, expected = RESULTS[case]
    seen = call(function)
    assert (json.loads(seen.text), seen.value, seen.note) == (expected, expected, "")


def test_code_gets_a_list() -> None:
    run = make_agent(async_values, "codeact").run("q")
    assert "list [0, 1, 2]" in str([event for event in run.events if type(event).__name__ == "Executed"])


def test_the_model_reads_that_the_result_is_a_list() -> None:
    spec = plait.tool(async_values).spec
    assert (spec.result, spec.returns) == ("list[int]", "a list with a whole number each")


def test_a_result_that_holds_itself_ends() -> None:
    def selfish() -> Any:
        kept: list[Any] = [1]
        kept += [kept, kept]
        return kept

    assert "nested too deeply" in call(selfish).text


def test_an_error_in_the_middle_is_the_result() -> None:
    def breaks() -> Iterator[int]:
        yield 1
        raise LookupError("no second value")

    seen = call(breaks)
    assert (seen.text, seen.trouble) == ("Error: LookupError: no second value", "raised")


@pytest.mark.parametrize("endless", [itertools.count, lambda: itertools.repeat("x" * 300)], ids=["count", "texts"])
def test_an_endless_iterator_is_cut_with_a_note(endless: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("plait.tools.render", "plait.runtime.calls.make_call"):
        monkeypatch.setattr(sys.modules[module], "ITEMS", 100)
        monkeypatch.setattr(sys.modules[module], "CHARACTERS", 1_000)
    seen = call(endless)
    assert 3 <= len(seen.value) <= 101 and "the rest is not read" in seen.value[-1]


def stream() -> Any:
    async def endless() -> AsyncIterator[int]:
        for each in itertools.count():
            yield each

    return endless()


def breaks() -> Iterator[int]:
    yield from range(100)
    raise LookupError


@pytest.mark.parametrize(
    "make",
    [stream, lambda: [breaks()], lambda: list(range(1_200))],
    ids=["stream", "breaks", "large"],
)
def test_code_gets_the_values_that_were_read_and_a_note(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["plait.tools.render"], "MOST", 1_000)
    for module in ("plait.tools.render", "plait.runtime.calls.make_call"):
        monkeypatch.setattr(sys.modules[module], "ITEMS", 100)
    run = make_agent(make, "codeact").run("q")
    (got,) = (event.observation for event in run.events if isinstance(event, Observed))
    values = got.value[0] if isinstance(got.value[0], list) else got.value
    assert values == list(range(len(values))) and len(values) in (100, 999)
    assert got.note.startswith("The code did not get all values (")
    assert b"The code did not get all values (" in run.timeline.model_calls[1].request


@dataclass
class Pair:
    a: int
    b: int


@pytest.mark.parametrize("value", [{i: i for i in range(600)}, [Pair(i, i) for i in range(300)], set(range(1_100))])
def test_code_gets_no_sentence_among_the_values_of_a_large_result(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["plait.tools.render"], "MOST", 1_000)
    plain, note = simplify(value, for_code=True)
    assert len(plain) >= 199 and "(" not in repr(plain) and "did not get all values" in note
    assert "may be more" in repr(simplify(value)[0])


class Key:
    def __str__(self) -> str:
        return "k"


def test_keys_with_the_same_text_keep_their_values() -> None:
    assert call(lambda: {1: "a", "1": "b", None: "c"}).value == {"1": "a", "1 (str, key 2)": "b", "null": "c"}
    assert call(lambda: {Key(): 1, Key(): 2, "k (Key, key 2)": 3}).value == {
        "k": 1,
        "k (Key, key 2)": 2,
        "k (Key, key 2) (str, key 3)": 3,
    }


def test_a_slow_generator_is_closed_when_its_time_is_over() -> None:
    ended: list[str] = []

    def slow() -> Iterator[int]:
        try:
            for each in itertools.count():
                yield each
                time.sleep(0.01)
        finally:
            ended.append("generator")

    async def slow_stream() -> AsyncIterator[int]:
        try:
            for each in itertools.count():
                yield each
                await asyncio.sleep(0.01)
        finally:
            await asyncio.sleep(0)
            ended.append("stream")

    assert [call(each, timeout=0.3).trouble for each in (slow, slow_stream)] == ["timeout", "timeout"]
    deadline = time.monotonic() + 5
    while len(ended) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(ended) == ["generator", "stream"]


async def test_a_stream_is_closed_when_the_run_is_cancelled() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                began.set()
                yield 1
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    running = asyncio.create_task(make_agent(endless).arun("q"))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()
