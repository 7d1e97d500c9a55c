"""The index finds by meaning, by exact name and by number, and grows."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import data_file, for_each, only_in_campaign
from plait.core.errors import ConfigError
from plait.search import Hit, Index, load_embedder
from plait.search.index import PASSAGE, PASSAGES, split_passages
from plait.search.keywords import KeywordIndex, index_words
from test_search_embedder import PARAPHRASES

HISTORY = {
    "greeting": "Hello! What can I do for you today?",
    "flight": "Your flight LH4711 to Oslo was moved to 17:45, gate B12.",
    "other flight": "Your flight LH4117 to Bergen is on time, gate C3.",
    "invoice": "Invoice 2026-0093 over 412.50 euros was paid on the third of May.",
    "other invoice": "Invoice 2026-0094 over 99.00 euros is still open.",
    "doctor": "Dr. Okonkwo can see you on Thursday morning about your knee.",
    "recipe": "For the soup you need leeks, potatoes and a litre of stock.",
    "code": "The function parseTurnStrict raises ValueError when the fence is missing.",
}


@pytest.fixture(scope="module")
def history() -> Index:
    return Index(load_embedder("local")).add(list(HISTORY), list(HISTORY.values()))


@pytest.mark.parametrize(
    ("query", "id"),
    [
        ("when does my plane to Norway's capital take off?", "flight"),
        ("LH4117", "other flight"),
        ("LH4711", "flight"),
        ("which bill is still open?", "other invoice"),
        ("what about 2026-0093?", "invoice"),
        ("my medical appointment", "doctor"),
        ("okonkwo", "doctor"),
        ("what should I cook with", "recipe"),
        ("parse_turn_strict", "code"),
        ("412.50", "invoice"),
    ],
)
def test_a_turn_is_found_by_meaning_by_name_and_by_number(history: Index, query: str, id: str) -> None:
    hits = history.search(query, 3)
    assert hits[0].id == id, hits
    assert len(hits) == 3 and hits[0].score >= hits[1].score >= hits[2].score


def test_paraphrases_are_found_by_the_index(history: Index) -> None:
    index = Index().add([str(at) for at in range(20)], [one for one, _ in PARAPHRASES])
    right = sum(index.search(other, 1)[0].id == str(at) for at, (_, other) in enumerate(PARAPHRASES))
    assert right >= 17, f"{right} of 20"


def test_texts_are_added_at_any_time_and_only_they_are_embedded() -> None:
    asked: list[list[str]] = []

    def own(texts: list[str]) -> Any:
        asked.append(texts)
        return [[text.count("a"), text.count("b"), 1] for text in texts]

    index = Index(load_embedder(own))
    assert index.search("a") == [] and len(index) == 0 and asked == []
    for number in range(50):
        index.add([f"{number}"], ["a" * number])
    assert index.add(["b", "c"], ["bbbb", "ab"]) is index
    assert [len(texts) for texts in asked] == [1] * 50 + [2]
    assert len(index) == 52 and "b" in index and "x" not in index
    assert index.search("bbb", 1)[0].id == "b"
    assert {hit.id for hit in index.search("aa", 100)} == {*map(str, range(50)), "b", "c"}
    assert index.search("a", 0) == [] == index.search("a", -1)
    assert index.add([], []) is index


def test_added_at_once_or_one_by_one_is_the_same() -> None:
    once = Index().add(list(HISTORY), list(HISTORY.values()))
    slowly = Index()
    for id, text in HISTORY.items():
        slowly.add([id], [text])
    for query in ("flights", "how much did I pay?", "2026-0094"):
        one, other = once.search(query, 8), slowly.search(query, 8)
        assert [hit.id for hit in one] == [hit.id for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-4)


def test_ids_are_checked_and_nothing_is_added_when_they_are_wrong() -> None:
    index = Index(load_embedder(lambda texts: [[1.0, len(text)] for text in texts])).add(["a"], ["x"])
    for ids, texts, said in (
        (["b", "a"], ["y", "z"], "'a' is already there"),
        (["b", "b"], ["y", "z"], "'b' is already there"),
        (["b"], ["y", "z"], "1 ids were given for 2 texts"),
    ):
        with pytest.raises(ConfigError, match=said):
            index.add(ids, texts)
    assert len(index) == 1 and "b" not in index
    assert [hit.id for hit in index.add(["b"], ["yyyy"]).search("zzzzz", 5)] == ["b", "a"]


def test_equals_come_in_the_order_in_which_they_were_added() -> None:
    index = Index(load_embedder(lambda texts: [[1.0, 0.0]] * len(texts))).add("zyxw", ["same"] * 4)
    assert [hit.id for hit in index.search("q", 4)] == list("zyxw")


def test_what_stands_late_in_a_long_text_is_found_by_its_meaning(history: Index) -> None:
    filler = "The committee met and talked about the agenda of the next meeting. " * 100
    index = Index().add(
        ["long", "short"], [filler + "Afterwards an elephant escaped from the circus.", "The committee met on Monday."]
    )
    assert index.search("a wild animal ran away", 1)[0].id == "long"


def test_a_very_long_text_costs_a_bounded_number_of_vectors_and_its_words_are_all_found() -> None:
    asked: list[int] = []

    def own(texts: list[str]) -> Any:
        asked.append(len(texts))
        return np.ones((len(texts), 2))

    index = Index(load_embedder(own)).add(["book", "note"], ["word " * 200_000 + "xylophone", "word"])
    assert asked == [PASSAGES + 1]
    assert index.search("xylophone", 1)[0].id == "book"


@given(st.text(alphabet="ab \n", max_size=5 * PASSAGE) | st.integers(0, 9 * PASSAGE).map(lambda n: "x" * n))
def test_passages_are_the_whole_text_in_order(text: str) -> None:
    found = split_passages(text)
    assert "".join(found) == text and found
    assert all(len(each) <= PASSAGE for each in found)


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "\x00", "\ud800", "🚀🚀", "été", "東京タワー", "ﬁne", "!!!", "a" * 100_000]
)
def test_any_text_can_be_added_and_asked_for(text: str) -> None:
    index = Index().add(["odd", "plain"], [text, "A plain sentence."])
    assert {hit.id for hit in index.search(text, 5)} == {"odd", "plain"}
    assert all(np.isfinite(hit.score) for hit in index.search("plain", 5))
    assert index.search("A plain sentence.", 1)[0].id == "plain"


def test_threads_may_search_while_texts_are_added() -> None:
    index = Index(load_embedder(lambda texts: [[1.0, len(text)] for text in texts])).add(["0"], ["first"])
    failed: list[BaseException] = []

    def search() -> None:
        try:
            for _ in range(100):
                before = len(index)
                assert len(index.search("first", 10_000)) >= before
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 300):
        index.add([str(number)], [f"text {number}"])
    for thread in threads:
        thread.join()
    assert not failed and len(index) == 300


# --- words


@for_each(
    ("text", "found"),
    [
        ("getWeather2Day", ["getweather2day", "get", "weather", "2", "day"]),
        ("HTTPServer parse_turn", ["httpserver", "http", "server", "parse", "turn"]),
        ("Cities, boxes and classes; the bus is late", ["city", "box", "and", "class", "the", "bus", "is", "late"]),
        ("LH4711 12.5", ["lh4711", "lh", "4711", "12", "5"]),
        ("Straße ÉTÉ ﬁne", ["strasse", "ete", "fine"]),
        ("東京タワー a", ["東京", "京タ", "タワ", "ワー", "a"]),
        ("", []),
        ("--- !!", []),
    ],
)
def test_words_as_they_are_compared(text: str, found: list[str]) -> None:
    assert index_words(text) == found


@given(st.text(max_size=200))
def test_words_are_the_same_in_another_case_for_plain_letters(text: str) -> None:
    plain = "".join(char for char in text if char.isascii()).lower()
    assert index_words(plain) == index_words(plain.capitalize()) or any(char.isdigit() for char in plain)
    assert all(word and word == word.casefold() for word in index_words(text))


def test_a_rare_word_counts_more_than_a_frequent_one() -> None:
    keywords = KeywordIndex(["the cat and the dog", "a zygote", "a dog", "a cat and a bird"])
    scores = keywords.score("Is there a dog or a Zygote?")
    assert scores.keys() == {0, 1, 2} and scores[1] > scores[2] > scores[0] > 0
    assert keywords.rank("dogs, zygotes") == [1, 2, 0]
    assert keywords.score("absent words only") == {} == KeywordIndex().score("x")


def test_any_query_is_words_and_not_the_language_of_the_search() -> None:
    keywords = KeywordIndex(["a NEAR b", 'quoted "text" here', "été"])
    for query in ('"', "* OR )", "NEAR(a b)", "words: x", "-", "\x00", "\ud800", "", "x" * 100_000, "w " * 9000):
        keywords.score(query)
    assert keywords.rank('"text"') == [1] and keywords.rank("ETE") == [2] and keywords.rank("near") == [0]


def test_queries_and_texts_may_come_from_any_thread() -> None:
    keywords = KeywordIndex(["first"])
    failed: list[BaseException] = []

    def search() -> None:
        try:
            for _ in range(200):
                assert 0 in keywords.score("first")
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200):
        keywords.add([f"text {number}"])
    for thread in threads:
        thread.join()
    assert not failed and len(keywords.score("text")) == 200


# --- tools of other people: the search over many tools stands on this index


def rows(*parts: str) -> list[dict[str, Any]]:
    with gzip.open(data_file("tool-search", *parts), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def recall(index: Index, queries: list[dict[str, Any]]) -> float:
    """The mean share of a query's tools among its first five hits."""
    found = [len({hit.id for hit in index.search(each["query"], 5)} & set(each["gold"])) for each in queries]
    return sum(hits / len(each["gold"]) for hits, each in zip(found, queries, strict=True)) / len(queries)


@only_in_campaign
def test_tools_are_found_by_what_people_ask_for() -> None:
    """The whole sets, and more tools: benchmarks/embedders.py."""
    tools = rows("metatool", "tools.jsonl.gz")
    index = Index().add([tool["name"] for tool in tools], [f"{tool['name']}. {tool['description']}" for tool in tools])
    queries = random.Random(1).sample(rows("metatool", "queries.jsonl.gz"), 10_000)
    assert recall(index, queries) > 0.7


def test_a_hit_is_a_plain_value() -> None:
    assert Hit("a", 0.5) == Hit(id="a", score=0.5)


def test_an_sqlite_without_full_text_search_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(sqlite3.Connection):
        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            return super().execute(sql.replace("fts5", "fts9"), *more)

    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: Small(*given, **more))
    with pytest.raises(ConfigError, match="cannot search by keyword: no such module"):
        KeywordIndex(["a cat"])
