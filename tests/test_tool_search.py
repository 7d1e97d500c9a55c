"""Tools are found by what they do, by their names and by their parameters; the index follows them."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

import plait
from conftest import data_file, only_in_campaign
from plait.core import Call, ToolSpec
from plait.core.errors import ConfigError
from plait.loops.codeact.signature import signature
from plait.runtime.calls.artifacts import ArtifactStore
from plait.runtime.calls.bound_calls import CallBinder
from plait.runtime.calls.make_call import make_call
from plait.search import ToolIndex, VectorCache
from plait.search.tool_index import MEANING, meaning_of, words_of
from plait.toolkits.method_search import LINE, lines_of, method_search
from plait.tools import Toolset


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))


def spec(name: str, description: str, **parameters: str) -> ToolSpec:
    properties = {each: {"type": "string", "description": text} for each, text in parameters.items()}
    return ToolSpec(name, description, {"type": "object", "properties": properties})


HOUSE = (
    spec("postToChannel", "Sends a message to a channel of the team's chat.", channel="Such as #general."),
    spec("get_current_weather", "The weather at a place now.", place="A city."),
    spec("shrink_image", "Makes a picture smaller.", factor="Between 0 and 1."),
    spec("convert_currency", "An amount of money in another currency.", iban="The account it is for."),
    spec("roll_die", "Rolls a die."),
    spec("book_table", "Reserves a table in a restaurant.", guests="How many come."),
)


class Counting:
    """An embedder that says what it was asked: letters as vectors, which is enough to tell texts apart."""

    def __init__(self, name: str = "counting") -> None:
        self.name, self.dim = name, 26
        self.asked: list[str] = []
        self.fails = False

    def embed(self, texts: Sequence[str]) -> Any:
        if self.fails:
            raise ConfigError("The embedder is out.")
        self.asked += texts
        rows = np.array(
            [[1 + text.lower().count(chr(97 + at)) for at in range(26)] for text in texts], dtype=np.float32
        )
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def names(index: ToolIndex, query: str, k: int = 3) -> list[str]:
    return [found.tool.name for found in index.search(query, k)]


# -- what is found


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> ToolIndex:
    return ToolIndex(HOUSE, cache=VectorCache(tmp_path_factory.mktemp("cache") / "vectors.db"))


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("tell my colleagues something", "postToChannel"),
        ("is it raining in Lisbon?", "get_current_weather"),
        ("make a photo half its size", "shrink_image"),
        ("how many euros are 20 dollars", "convert_currency"),
        ("dinner for four tonight", "book_table"),
        ("throw a cube with six sides", "roll_die"),
    ],
)
def test_a_tool_is_found_by_what_it_does_in_other_words(house: ToolIndex, query: str, name: str) -> None:
    assert names(house, query, 1) == [name]


@pytest.mark.parametrize("query", ["postToChannel", "post_to_channel", "posttochannel", "PostToChannel()"])
def test_a_tool_is_found_by_its_name_however_that_is_written(house: ToolIndex, query: str) -> None:
    assert names(house, query, 1) == ["postToChannel"]


def test_a_tool_is_found_by_a_parameter(house: ToolIndex) -> None:
    assert names(house, "IBAN", 1) == ["convert_currency"]


def test_the_words_of_objects_within_parameters_count() -> None:
    inner = {"type": "object", "properties": {"postcode": {"type": "string", "enum": ["zip9", 4]}}}
    tool = ToolSpec("send", "Sends.", {"properties": {"to": {"type": "array", "items": inner}, "odd": True}})
    assert {"to", "postcode", "zip9", "odd"} <= set(words_of(tool).split())


def test_scores_fall_and_k_is_kept(house: ToolIndex) -> None:
    found = house.search("a message about the weather", 4)
    assert len(found) == 4
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert len(house.search("anything", 100)) == len(HOUSE)
    assert house.search("anything", 0) == []


def test_no_tools_are_searched_as_well() -> None:
    assert ToolIndex((), Counting(), cache=False).search("anything") == []


def test_a_long_description_is_compared_by_its_first_sentences_and_all_its_words() -> None:
    long, other = (spec("report", "Writes a report. " * 40 + f"It knows {place}.") for place in ("Zanzibar", "Bergen"))
    assert meaning_of(long) == meaning_of(other) and meaning_of(long).endswith(".")
    assert MEANING - 20 < len(meaning_of(long)) <= MEANING + len("report. ")
    scores = []
    for tool in (long, other):
        found = ToolIndex((*HOUSE, tool), Counting(), cache=False).search("zanzibar", 10)
        scores.append(next(each.score for each in found if each.tool.name == "report"))
    assert scores[0] > scores[1]


# -- it follows the tools


def test_only_tools_that_are_new_or_described_anew_are_embedded() -> None:
    counting = Counting()
    index = ToolIndex(HOUSE, counting, cache=False)
    assert len(counting.asked) == len(HOUSE)
    counting.asked.clear()
    changed = spec("roll_die", "Throws several dice at once.")
    assert index.update((*HOUSE[:4], changed, spec("sing", "Sings a song."))) == 2
    assert sorted(counting.asked) == sorted([meaning_of(changed), "sing. Sings a song."])
    assert "book_table" not in index and "sing" in index and len(index) == 6
    assert "book_table" not in names(index, "book_table", 10)
    assert index.search("roll_die", 1)[0].tool.description == "Throws several dice at once."


def test_an_index_that_followed_finds_as_one_made_anew() -> None:
    followed = ToolIndex(HOUSE[:4], Counting(), cache=False)
    followed.update((*HOUSE[1:3], spec("roll_die", "Old."), HOUSE[5]))
    followed.update((*HOUSE[1:3], HOUSE[4], HOUSE[5]))
    fresh = ToolIndex((*HOUSE[1:3], HOUSE[4], HOUSE[5]), Counting(), cache=False)
    for query in ("weather", "a die", "table for guests", "picture"):
        both = [{each.tool.name: each.score for each in index.search(query, 9)} for index in (followed, fresh)]
        assert both[0] == pytest.approx(both[1], abs=1e-6)


def test_a_tool_whose_marks_alone_changed_is_not_embedded_and_is_the_new_one() -> None:
    counting = Counting()
    index = ToolIndex(HOUSE, counting, cache=False)
    marked = ToolSpec(HOUSE[4].name, HOUSE[4].description, HOUSE[4].parameters, read_only=True)
    assert index.update((*HOUSE[:4], marked, HOUSE[5])) == 0
    assert index.search("roll_die", 1)[0].tool.read_only


def test_an_update_that_fails_leaves_all_as_it_was() -> None:
    counting = Counting()
    index = ToolIndex(HOUSE, counting, cache=False)
    counting.fails = True
    with pytest.raises(ConfigError, match="out"):
        index.update((*HOUSE[1:], spec("sing", "Sings a song.")))
    counting.fails = False
    assert len(index) == len(HOUSE) and "sing" not in index
    assert names(index, "postToChannel", 1) == ["postToChannel"]
    with pytest.raises(ConfigError, match="Two tools are named roll_die"):
        index.update((*HOUSE, spec("roll_die", "Another.")))


def test_another_process_finds_the_vectors_on_disk(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    ToolIndex(HOUSE, first, cache=VectorCache(tmp_path / "v.db"))
    ToolIndex((*HOUSE, spec("sing", "Sings a song.")), second, cache=VectorCache(tmp_path / "v.db"))
    assert len(first.asked) == len(HOUSE)
    assert second.asked == ["sing. Sings a song."]


def test_searches_go_on_while_the_tools_change() -> None:
    index = ToolIndex(HOUSE, Counting(""), cache=False)
    wrong: list[Any] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            try:
                found = index.search("roll_die", 3)
                if len(found) != 3 or found[0].tool.name != "roll_die":
                    wrong.append(found)
            except Exception as why:
                wrong.append(why)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(60):
        index.update((HOUSE[4], *HOUSE[number % 3 : 4], *(spec(f"tool_{at}", f"Does {at}.") for at in range(number))))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(index) > 60


# -- the search tool


@plait.tool(read_only=True)
def forecast(city: str, days: int = 5, unit: Literal["C", "F"] = "C") -> list[dict[str, Any]]:
    """The weather of the next days.

    Args:
        city: Where.
    Returns:
        one entry a day
    """
    return []


@plait.tool
async def send(text: str, to: list[str] | None = None) -> None:
    """Sends a message."""


async def called(tool: plait.Tool, given: Any) -> Any:
    services = SimpleNamespace(
        engine=SimpleNamespace(artifacts=ArtifactStore({})), time_limit=asyncio.timeout, find_refusal=str
    )
    bound = CallBinder(Toolset((tool,)), ArtifactStore({})).bind(Call(tool.name, given))
    return await make_call(tool, bound, 60.0, services)  # type: ignore[arg-type]


async def test_the_search_tool_tells_a_line_for_each_of_the_best_tools() -> None:
    search = method_search(ToolIndex((forecast.spec, send.spec), cache=False))
    assert search.spec.read_only
    weather = (
        "`forecast(city: str, days: int = 5, unit: Literal['C', 'F'] = 'C') -> list[dict[str, Any]]`: "
        "The weather of the next days. Returns one entry a day."
    )
    message = "`send(text: str, to: list[str] | None = None) -> None`: Sends a message."
    seen = await called(search, {"description": "what will the weather be"})
    assert seen.text.splitlines() == [weather, message]
    assert (await called(search, "tell somebody")).text.splitlines() == [message, weather]


async def test_it_gives_the_same_for_the_same_tools() -> None:
    texts = {(await called(method_search(ToolIndex(HOUSE, cache=False)), "a message")).text for _ in range(2)}
    assert len(texts) == 1
    assert len(texts.pop().splitlines()) == 3


async def test_an_empty_description_is_told_and_a_long_one_read_in_part() -> None:
    search = method_search(ToolIndex(HOUSE, cache=False))
    seen = await called(search, " ")
    assert seen.trouble == "raised" and "Say in a few words" in seen.text
    assert (await called(search, "weather " * 50_000)).text.startswith("`get_current_weather(")
    assert (await called(method_search(ToolIndex((), Counting(), cache=False)), "x")).text == "There are no tools."


async def test_nothing_is_indexed_before_the_first_search() -> None:
    made: list[int] = []

    def index() -> ToolIndex:
        made.append(1)
        return ToolIndex(HOUSE, Counting(), cache=False)

    search = method_search(index)
    assert search.spec.name == "method_search" and not made
    await called(search, "die")
    assert made


def test_a_tool_takes_one_line_of_limited_length() -> None:
    text = lines_of([spec("report", "Writes\n\na report. " * 200, about="What.")])
    assert LINE - 10 < len(text) <= LINE and "\n" not in text
    assert text.startswith("`report(about: str") and text.endswith("...")


def test_a_result_without_a_type_hint_is_left_out_of_the_signature() -> None:
    @plait.tool
    def plain(x):  # type: ignore[no-untyped-def]
        """Does it."""

    assert signature(plain.spec) == "plain(x: Any)"
    assert plain.spec.result == "" and send.spec.result == "None"


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ConfigError) as why:
        ToolIndex(HOUSE)
    assert "[search]" in why.value.hint


# -- how well and how fast


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(data_file("tool-search", f"{name}.jsonl.gz"), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@only_in_campaign
def test_metatool_is_searched_better_than_by_meaning_or_words_alone() -> None:
    index = ToolIndex([ToolSpec(row["name"], row["description"]) for row in rows("metatool/tools")])
    queries = rows("metatool/queries")[::20]
    share = 0.0
    for query in queries:
        gold = set(query["gold"])
        share += len(gold.intersection(names(index, query["query"], 5))) / len(gold)
    assert len(queries) > 100
    assert share / len(queries) > 0.72


def test_a_query_among_thousands_of_tools_takes_milliseconds() -> None:
    many = [spec(f"tool_{at}_{at % 97}", f"Does the job number {at} of the {at % 89}th kind.") for at in range(5000)]

    class Random(Counting):
        def embed(self, texts: Sequence[str]) -> Any:
            found = np.random.default_rng(len(texts)).standard_normal((len(texts), 384)).astype(np.float32)
            return found / np.linalg.norm(found, axis=1, keepdims=True)

    random = Random("")
    random.dim = 384
    index = ToolIndex(many, random, cache=False)
    times = []
    for at in range(15):
        began = time.thread_time()
        index.search(f"job number {at} of some kind for somebody", 3)
        times.append(time.thread_time() - began)
    assert math.isfinite(min(times)) and min(times) < 0.02
