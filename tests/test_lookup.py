"""Claims about lookup: what is found by what words, and what is said when it is not. Real files."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import for_each
from plait.core.errors import ConfigError, ToolError
from plait.toolkits import lookup
from plait.toolkits.lookup import summarize_keys
from plait.tools import Tool

CITIES = {
    "Lyon": {"population": 522250, "area km2": 47.87},
    "Nice": {"population": 348085, "area km2": 71.92},
    "York": {"population": 141685},
    "New York": {"population": 8258035},
}
FLAT = {"capital of France": "Paris", "capital of Italy": "Rome", "Orléans": 116238, "a/b-c": 1}
BY_MEASURE = {"population": {"Lyon": 5, "Nice": 3}, "area": {"Lyon": 7}}


def ask(tool: Tool, value: Any) -> Any:
    """As a run calls it: the input bound, then the tool."""
    args, kwargs = tool.bind(value)
    return tool(*args, **kwargs)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    return write


@for_each(
    ("table", "key", "value"),
    [
        (CITIES, "Lyon", CITIES["Lyon"]),
        (CITIES, "  lyon. ", CITIES["Lyon"]),
        (CITIES, "the new-york", CITIES["New York"]),
        (CITIES, "population of Lyon", 522250),
        (CITIES, "What is the population of Lyon?", 522250),
        (CITIES, "Lyon population", 522250),
        (CITIES, "Lyon, population", 522250),
        (CITIES, "Lyon's population", 522250),
        (CITIES, "New York population", 8258035),
        (CITIES, "area of Nice", 71.92),
        (CITIES, {"key": "Lyon", "column": "population"}, 522250),
        (CITIES, ["lyon", "Area"], 47.87),
        (BY_MEASURE, "population of Lyon", 5),
        (BY_MEASURE, "Lyon population", 5),
        (FLAT, "Capital of France", "Paris"),
        (FLAT, "France capital", "Paris"),
        (FLAT, "what's the capital of Italy", "Rome"),
        (FLAT, "orleans", 116238),
        (FLAT, "a b c", 1),
    ],
)
def test_an_entry_is_found_by_any_plain_way_of_asking(table: dict[str, Any], key: Any, value: Any) -> None:
    assert ask(lookup(table), key) == value


@for_each(
    ("table", "key", "said"),
    [
        (CITIES, "Lyyon", "There is no entry 'Lyyon'. Did you mean Lyon"),
        (CITIES, "zzz", "The keys are: Lyon, Nice, York, New York."),
        (CITIES, "height of Lyon", "The entry 'Lyon' has nothing on 'height'. It has: population, area km2."),
        (CITIES, {"key": "Lyon", "column": "height"}, "has no column 'height'. It has: population"),
        (CITIES, "population of Lyon and Nice", "has nothing on 'population nice'"),
        (BY_MEASURE, "Lyon height", "There is no entry"),
        ({"a b": 1, "A-B": 2}, "a.b", "'a.b' may mean 'a b' or 'A-B'. Write the key exactly."),
        ({f"speed of x{i}": i for i in range(6)}, "speed", "'speed' may mean 6 entries: speed of x0, speed of x1"),
        (CITIES, "x" * 10_000, "There is no entry 'xxx"),
        (CITIES, "", "There is no entry ''"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(table: dict[str, Any], key: Any, said: str) -> None:
    with pytest.raises(ToolError) as caught:
        ask(lookup(table), key)
    assert said in str(caught.value) and len(str(caught.value)) < 500


def test_a_small_table_names_its_keys_and_a_large_one_does_not(write: Callable[[str, str], Path]) -> None:
    small = lookup(write("cities.json", json.dumps(CITIES)), name="cities").spec
    assert small.name == "cities" and small.read_only
    assert "cities.json" in small.description and "Keys: Lyon, Nice, York, New York." in small.description
    assert "population, area km2" in small.description
    assert list(small.parameters["properties"]) == ["key", "column"]
    large = lookup({f"key {i}": i for i in range(41)}).spec
    assert "41 keys" in large.description and "key 40" not in large.description
    assert list(large.parameters["properties"]) == ["key"]
    assert "k" * 61 not in lookup({"k" * 61 + str(i): i for i in range(20)}).spec.description[220:]


def test_records_and_csv_are_found_by_their_first_field(write: Callable[[str, str], Path]) -> None:
    records = [{"city": "Lyon", "people": 5, "country": "France"}, {"city": "Nice", "people": 3}]
    assert ask(lookup(write("r.json", json.dumps(records))), "people of Lyon") == 5
    pairs = lookup(write("p.json", '[{"k": "a", "v": 1}, {"k": "b", "v": 2}]'))
    assert ask(pairs, "b") == 2 and list(pairs.spec.parameters["properties"]) == ["key"]
    table = lookup(write("c.csv", '\ufeffcity;people;motto\r\nLyon;522250;"one; two"\r\n\r\nNice;348085\r\n'))
    assert ask(table, "Lyon") == {"people": "522250", "motto": "one; two"}
    assert ask(table, ["Nice", "motto"]) == ""
    assert ask(lookup(write("t.tsv", "k\tv\nx\t1\n")), "X") == "1"


@for_each(
    ("name", "content", "said"),
    [
        ("a.json", '{"a": 1,\n "b": }', "a.json is not JSON: line 2, column 7"),
        ("a.json", "", "a.json is empty"),
        ("a.json", " \n", "a.json is empty"),
        ("a.json", "{}", "a.json has no entries"),
        ("a.json", "[]", "a.json has no entries"),
        ("a.json", "3", "neither an object nor a list of objects"),
        ("a.json", "[1]", "neither an object nor a list of objects"),
        ("a.json", '{"a": 1, "a": 2}', "has the key 'a' twice"),
        ("a.json", '[{"k": 1, "v": 1}, {"k": 1, "v": 2}]', "has the key '1' twice: record 1 and record 2"),
        ("a.json", '[{"k": 1}, {"v": 2}]', "record 2 has no 'k'"),
        ("a.json", "[" * 100_000, "a.json is n"),
        ("a.csv", "k,v\n", "no rows below its header"),
        ("a.csv", "k,v\na,1,2\n", "line 2 has 3 cells, but there are 2 columns"),
        ("a.csv", "k,v\na,1\n\na,2\n", "has the key 'a' twice: line 2 and line 4"),
        ("a.csv", "k,k\na,1\n", "two columns of one name"),
        ("a.xlsx", "x", "no table or text that lookup knows"),
        ("a.txt", "", "There is no text in a.txt"),
        ("folder/a.pdf", "x", "no .txt or .md files"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(
    write: Callable[[str, str], Path], name: str, content: str, said: str
) -> None:
    path = write(name, content)
    with pytest.raises(ConfigError) as caught:
        lookup(path.parent if "/" in name else path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_other_bad_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_bytes(bytes(range(256)))
    sources: list[tuple[Any, str]] = [
        (tmp_path / "raw.csv", "raw.csv is not text"),
        (tmp_path / "none.json", "There is no file"),
        ({}, "has no entries"),
        ({1: "a", "1": "b"}, "has the key '1' twice"),
    ]
    for source, said in sources:
        with pytest.raises(ConfigError, match=said):
            lookup(source)


def test_the_best_passages_of_a_folder_come_with_their_files(write: Callable[[str, str], Path]) -> None:
    write(
        "docs/lyon.md",
        "# Lyon\n\nIt has 522,250 people.\n\n## Rivers\n\nThe Rhône and the Saône meet there.\n",
    )
    write("docs/south/nice.txt", "It lies by the sea and has 348,085 people.\n")
    write("docs/.hidden/secret.txt", "Lyon Lyon Lyon")
    write("docs/image.png", "Lyon")
    folder = write("docs/empty.txt", "").parent
    tool = lookup(folder)
    assert "empty.txt, lyon.md, south/nice.txt" in tool.spec.description
    assert ask(tool, "river of Lyon") == "[lyon.md: Rivers]\nThe Rhône and the Saône meet there."
    assert ask(tool, "How many people are in Nice?").startswith("[south/nice.txt]\nIt lies by the sea")
    assert ask(tool, "RHONE").startswith("[lyon.md: Rivers]")
    with pytest.raises(ToolError, match=r"No text has anything on 'volcano'. The texts are: empty.txt, lyon.md"):
        ask(tool, "volcano")


def test_a_long_text_is_cut_into_passages_that_lose_no_word(write: Callable[[str, str], Path]) -> None:
    from plait.toolkits.passages import LENGTH, split_passages

    sentences = [f"Sentence number {i} speaks of topic{i}." for i in range(400)]
    text = " ".join(sentences[:200]) + "\n\n" + "\n\n".join(sentences[200:]) + "\n\n" + "x" * 5000
    passages = split_passages("a.txt", text)
    assert max(len(passage.text) for passage in passages) <= LENGTH + 1
    joined = " ".join(passage.text for passage in passages)
    assert joined.split()[: 400 * 6] == text.split()[: 400 * 6] and joined.count("x") == text.count("x")
    found = ask(lookup(write("a.txt", text)), "topic137")
    assert "topic137." in found and len(found) < 3 * LENGTH


def test_questions_find_the_passage_in_a_real_address() -> None:
    folder = Path(__file__).parents[1].parent / "shared/data/state-of-the-union"
    if not folder.exists():
        pytest.skip(f"the development data is absent: {folder}")
    tool = lookup(folder / "state_of_the_union.txt")
    text = (folder / "state_of_the_union.txt").read_text()
    with (folder / "SOTU_QA.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert len(rows) >= 70
    found = [ask(tool, row[0]) for row in rows]
    bodies = ["".join(part.partition("]\n")[2] for part in answer.split("\n\n")) for answer in found]
    assert all(body and body.split()[:5] == _stretch(text, body) for body in bodies)


def _stretch(text: str, body: str) -> list[str]:
    """The first five words of a passage as they stand in the text, [] when they do not."""
    first, flat = " ".join(body.split()[:5]), " ".join(text.split())
    return first.split() if first in flat else []


def test_a_large_table_answers_at_once() -> None:
    tool = lookup({f"item number {i}": i for i in range(100_000)})
    assert not tool.inline, "the first question indexes it, which is no work for an event loop"
    with pytest.raises(ToolError):
        ask(tool, "nothing")
    begin = time.process_time()
    assert ask(tool, "the ITEM number 99999") == 99999
    with pytest.raises(ToolError, match="Did you mean item number"):
        ask(tool, "item numbr 77777x")
    assert time.process_time() - begin < 0.5


def test_what_is_looked_up_is_read_once(write: Callable[[str, str], Path]) -> None:
    path = write("facts.json", '{"a": 1}')
    tool = lookup(path)
    path.unlink()
    assert ask(tool, "a") == 1 and tool.inline


FACTS = {
    "area of Lyon in square kilometres": 48,
    "population of Lyon": 513_275,
    "length of the Pont Neuf in metres": 238,
}


@pytest.mark.parametrize(
    ("asked", "found"),
    [("Lyon area", 48), ("Lyon's population", 513_275), ("Pont Neuf length", 238), ("Pont Neuf", 238)],
)
def test_fewer_words_than_the_key_has_are_enough_where_no_other_key_has_them(asked: str, found: int) -> None:
    assert ask(lookup(FACTS), asked) == found


def test_words_that_a_few_keys_have_give_them_all_by_name() -> None:
    lyon = {"area of Lyon in square kilometres": 48, "population of Lyon": 513_275}
    assert ask(lookup(FACTS), "Lyon") == lyon
    assert ask(lookup({"x": {"max speed": 1, "min speed": 2}}), "speed of x") == {"x: max speed": 1, "x: min speed": 2}


@pytest.mark.parametrize("asked", ["population of Lyon, length of the Pont Neuf in metres",
                                   "Population of Lyon and length of Pont Neuf in metres",
                                   "population of Lyon\nlength of the Pont Neuf in metres"])  # fmt: skip
def test_several_keys_in_one_question_give_each_its_entry(asked: str) -> None:
    found = {"population of Lyon": 513_275, "length of the Pont Neuf in metres": 238}
    assert ask(lookup(FACTS), asked) == found


@pytest.mark.parametrize(
    "asked", ["people of New Brek, Dun", "people of New Brek and Dun", "people of New Brek, and of Dun"]
)
def test_later_keys_of_a_list_may_leave_out_how_the_first_one_begins(asked: str) -> None:
    facts = {"people of New Brek": 1, "people of Dun": 2, "area of Dun": 3}
    assert ask(lookup(facts), asked) == {"people of New Brek": 1, "people of Dun": 2}


def test_a_list_in_which_one_is_no_key_is_no_list() -> None:
    with pytest.raises(ToolError):
        ask(lookup(FACTS), "population of Lyon, population of Paris")


def test_what_shares_most_words_is_named_first_of_what_is_near() -> None:
    with pytest.raises(ToolError) as caught:
        ask(lookup(FACTS), "length of the Pont Vieux")
    assert "Did you mean length of the Pont Neuf in metres" in str(caught.value)


@for_each(
    ("keys", "told"),
    [
        (["Lyon", "Nice", "New York"], "Lyon, Nice, New York"),
        (["area of Ghent in km2", "area of Lier in km2"], "area of X in km2 (X: Ghent, Lier)"),
        (
            ["area of Ghent in km2", "mayor of Ghent", "area of Lier in km2", "mayor of Lier", "crew of the Osprey"],
            "area of X in km2, mayor of X (X: Ghent, Lier); crew of the Osprey",
        ),
        (
            ["length of Cor Bridge in metres", "length of Ald Bridge in metres"],
            "length of X in metres (X: Cor Bridge, Ald Bridge)",
        ),
        (["area of Ghent in km2", "area of Ghent"], "area of X (X: Ghent in km2, Ghent)"),
        (["a of ", "a of  "], "a of , a of  "),
        ([], ""),
    ],
)
def test_keys_that_differ_in_one_place_are_told_together(keys: list[str], told: str) -> None:
    assert summarize_keys(keys) == told
