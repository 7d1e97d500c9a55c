"""The lab's suites: the made ones are what they say, files are read in the shapes they are published in, and what is
wrong with one is said where it is."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import data_file, for_each
from docs_support import install
from plait.core.errors import ConfigError, ToolError
from plait.lab import Suite, SuiteTask, load_grader, load_suite
from plait.lab.basics import KINDS, facts_tool, make_facts
from plait.lab.corpus import Corpus, CorpusPage
from plait.lab.stubs import fit_tool_name
from plait.lab.suites import OURS, suite_names
from plait.lab.tasks import digest
from plait.lab.world import world_of
from plait.toolkits.calculator import calculator
from plait.tools import Tool, load, tools_from


def tools_of(made: Suite, task: SuiteTask) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools_from(made.tools_of(task))}


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return path


# --- basics

FACT = (
    (r"How many people live in ([A-Z]\w+)\?", "population of {}"),
    (r"Who is the mayor of (\w+)\?", "mayor of {}"),
    (r"How long is (.+), in metres\?", "length of {} in metres"),
    (r"In which year was (.+) opened\?", "opening year of {}"),
    (r"How high is (.+), in metres\?", "height of {} in metres"),
    (r"What is the price of (an? \w+), in dollars\?", "price of {} in dollars"),
    (r"How large is the crew of the (\w+)\?", "crew of the {}"),
)


def worked_out(question: str, look: Callable[[str], Any], compute: Callable[[str], str]) -> tuple[Any, int]:
    """The answer to a question of `basics`, had by the tools alone, and the number of calls."""
    calls = 0

    def fact(key: str) -> Any:
        nonlocal calls
        calls += 1
        return look(key)

    def value(expression: str) -> float:
        nonlocal calls
        calls += 1
        return float(compute(expression))

    def article(good: str) -> str:
        return f"{'an' if good[0] in 'aeiou' else 'a'} {good}"

    def price(good: str) -> Any:
        return fact(f"price of {article(good)} in dollars")

    def answer() -> Any:
        for pattern, key in FACT:
            if match := re.fullmatch(pattern, question):
                return fact(key.format(match[1]))
        rules: list[tuple[str, Callable[..., Any]]] = [
            (r"What is (\d+) times (\d+)\?", lambda a, b: value(f"{a} * {b}")),
            (r"What is (\d+) percent of (\d+)\?", lambda a, b: value(f"{a}% of {b}")),
            (r"What is the square root of (\d+)\?", lambda a: value(f"sqrt({a})")),
            (r"What is (\d+) minus (\d+) times (\d+)\?", lambda a, b, c: value(f"{a} - {b} * {c}")),
            (r"Divide (\d+) by (\d+)\. What is the result\?", lambda a, b: value(f"{a} / {b}")),
            (r"What do (\d+) (\w+)s cost, in dollars\?", lambda n, good: value(f"{n} * {price(good)}")),
            (r"How many dollars do you pay for (\d+) (\w+)s\?", lambda n, good: value(f"{n} * {price(good)}")),
            (
                r"(?:In which year was the mayor of (\w+) born|What is the birth year of (\w+)'s mayor)\?",
                lambda a, b: fact(f"birth year of {fact(f'mayor of {a or b}')}"),
            ),
            (
                r"How many metres are (\d+) percent of the length of (.+)\?",
                lambda p, b: value(f"{p}% of {fact(f'length of {b} in metres')}"),
            ),
            (
                r"How many people will live in (\w+) when (\d+) more have moved there\?",
                lambda t, n: value(f"{fact(f'population of {t}')} + {n}"),
            ),
            (
                r"How many people are aboard the (\w+) when its crew and (\d+) passengers are there\?",
                lambda s, n: value(f"{fact(f'crew of the {s}')} + {n}"),
            ),
            (
                r"You cross (.+) (\d+) times\. How many metres is that\?",
                lambda b, n: value(f"{fact(f'length of {b} in metres')} * {n}"),
            ),
            (
                r"The price of an? (\w+) is lowered by (\d+) percent\. What is it then, in dollars\?",
                lambda good, off: value(f"{price(good)} * (100 - {off}) / 100"),
            ),
            (
                r"What is the height of (.+) in kilometres\?",
                lambda p: value(f"{fact(f'height of {p} in metres')} / 1000"),
            ),
            (
                r"How many more people live in (\w+) than in (\w+)\?",
                lambda a, b: value(f"{fact(f'population of {a}')} - {fact(f'population of {b}')}"),
            ),
            (
                r"By how many metres is (.+) longer than (.+)\?",
                lambda a, b: value(f"{fact(f'length of {a} in metres')} - {fact(f'length of {b} in metres')}"),
            ),
            (
                r"How many metres higher is (.+) than (.+)\?",
                lambda a, b: value(f"{fact(f'height of {a} in metres')} - {fact(f'height of {b} in metres')}"),
            ),
            (
                r"(?:How many people live on a square kilometre in|What is the population density of) (\w+)\? "
                r"Round to one decimal\.",
                lambda t: value(
                    f"round({fact(f'population of {t}')} / {fact(f'area of {t} in square kilometres')}, 1)"
                ),
            ),
            (
                r"What do (\d+) (\w+)s and (\d+) (\w+)s cost together, in dollars\?",
                lambda m, a, n, b: value(f"{m} * {price(a)} + {n} * {price(b)}"),
            ),
            (
                r"How old does the mayor of (\w+) get in the year (\d+)\?",
                lambda t, y: value(f"{y} - {fact('birth year of ' + fact(f'mayor of {t}'))}"),
            ),
            (
                r"How many people live in (\w+), (\w+) and (\w+) together\?",
                lambda *ts: value(" + ".join(str(fact(f"population of {t}")) for t in ts)),
            ),
            (
                r"How many metres do (.+), (.+) and (.+) measure together\?",
                lambda *ps: value(" + ".join(str(fact(f"height of {p} in metres")) for p in ps)),
            ),
            (
                r"How old did the mayor of (\w+) get in the year in which (.+) was opened\?",
                lambda t, b: value(
                    f"{fact(f'opening year of {b}')} - {fact('birth year of ' + fact(f'mayor of {t}'))}"
                ),
            ),
            (
                r"Someone buys (\d+) (\w+)s, (\d+) (\w+)s and an? (\w+)\. What is to be paid, in dollars\?",
                lambda m, a, n, b, c: value(f"{m} * {price(a)} + {n} * {price(b)} + {price(c)}"),
            ),
            (
                r"How many more people live in (\w+) and (\w+) together than in (\w+)\?",
                lambda a, b, c: value(
                    f"{fact(f'population of {a}')} + {fact(f'population of {b}')} - {fact(f'population of {c}')}"
                ),
            ),
        ]
        for pattern, rule in rules:
            if match := re.fullmatch(pattern, question):
                return rule(*match.groups())
        raise AssertionError(f"a kind of question that this test does not know: {question}")

    return answer(), calls


@pytest.mark.parametrize("word", ["basics", "basics:seed=7,each=20"])
def test_every_answer_of_basics_is_what_its_own_tools_give_in_so_many_steps(word: str) -> None:
    made = load_suite(word)
    for task in made.tasks:
        tools = tools_of(made, task)
        answer, calls = worked_out(task.question, tools["lookup"], tools["calculator"])
        assert calls == task.about["steps"], task.question
        if isinstance(task.answer, str):
            assert answer == task.answer
        else:
            assert answer == pytest.approx(task.answer, rel=1e-9), task.question


def test_basics_has_64_tasks_eight_of_each_number_of_steps_in_a_split() -> None:
    made = load_suite("basics")
    assert len(made.tasks) == 64
    for split in ("tuning", "report"):
        part = load_suite(f"basics:{split}")
        assert [task for task in made.tasks if task.split == split] == list(part.tasks)
        assert [sum(task.about["steps"] == steps for task in part.tasks) for steps in KINDS] == [8] * 4
    assert len({task.question for task in made.tasks}) == 64


def test_basics_is_the_same_each_time_and_another_with_another_seed() -> None:
    assert digest(load_suite("basics")) == digest(load_suite("basics"))
    # A change of this number makes measurements of before and after those of different suites.
    assert digest([(task.question, task.answer) for task in load_suite("basics").tasks]) == "74f83b37c9d00827"
    ours, other = load_suite("basics:report"), load_suite("basics:report,seed=2")
    assert not {task.question for task in ours.tasks} & {task.question for task in other.tasks if "in" in task.question}


@for_each("seed", range(1, 20))
def test_the_splits_of_basics_share_no_fact(seed: int) -> None:
    tuning, report = make_facts("tuning", seed), make_facts("report", seed)
    assert not tuning.facts.keys() & report.facts.keys()
    people = [{value for value in part.facts.values() if isinstance(value, str)} for part in (tuning, report)]
    assert not people[0] & people[1]


@pytest.mark.parametrize("word", ["basics", "basics:seed=7,each=20"])
def test_no_task_of_basics_gives_its_answer_away(word: str) -> None:
    for task in load_suite(word).tasks:
        assert str(task.answer).casefold() not in task.question.casefold()
        if task.about["steps"] > 1:  # one call with the question itself does not do it
            with pytest.raises(ToolError):
                answer = facts_tool(task.split + word.removeprefix("basics").replace(":", ","))(task.question)
                if str(answer) != str(task.answer):
                    raise ToolError("it led to something else")


def test_the_lookup_of_basics_does_not_show_its_values() -> None:
    for split in ("tuning", "report"):
        described = facts_tool(split).spec.description
        facts = make_facts(split).facts
        assert not any(str(value) in described for value in facts.values() if not isinstance(value, str))
        # Mayors' names are keys too, but not in the order of their towns.
        mayors = [str(facts[key]) for key in facts if key.startswith("mayor of")]
        assert sorted(mayors, key=described.index) != mayors


def test_every_kind_of_question_is_asked() -> None:
    assert {steps: len(kinds) for steps, kinds in KINDS.items()} == {1: 2, 2: 4, 3: 4, 4: 4}


@pytest.mark.parametrize("word", ["basics:reports", "basics:seed=x", "basics:each=100000"])
def test_a_wrong_setting_of_basics_is_said(word: str) -> None:
    with pytest.raises(ConfigError, match="basics"):
        load_suite(word)


# --- the world


def test_the_world_has_its_six_tasks_and_thirty_variations_each_at_a_fixed_time() -> None:
    made = load_suite("world")
    assert (len(made.tasks), len(load_suite("world:six").tasks), len(load_suite("world:variations").tasks)) == (
        36,
        6,
        30,
    )
    for task in made.tasks:
        (word,) = task.tools
        assert task.now == world_of(word).now.timestamp() and "now=" in word
        assert task.grader == f"world:{task.id}"
        load_grader(made.grader_of(task))
    assert digest(made) == digest(load_suite("world"))
    with pytest.raises(ConfigError, match="no part 'seven'"):
        load_suite("world:seven")


# --- files, as they are published


def test_gsm8k_is_read_with_and_without_its_solutions(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "gsm.jsonl",
        {"question": "How many legs have two hens?", "answer": "Each has 2.\n2*2=<<2*2=4>>4\n#### 4"},
        {"question": "And a thousand?", "answer": "2,000"},
        {"question": "Half of one?", "answer": 0.5},
    )
    made = load_suite(f"gsm8k:{path}")
    assert [task.answer for task in made.tasks] == [4, 2000, 0.5]
    assert (made.grader, made.tools) == ("number", ("calculator",))


HOTPOT = {
    "_id": "q1",
    "question": "In which country is the river of Aville?",
    "answer": "Bland",
    "type": "bridge",
    "level": "easy",
    "supporting_facts": [["Aville", 0], ["Cee", 0]],
    "context": [["Aville", ["Aville lies on the Cee.", " It is old."]], ["Cee", ["The Cee is a river in Bland."]]],
}


def test_hotpotqa_is_read_as_a_list_and_as_lines_of_columns(tmp_path: Path) -> None:
    listed = tmp_path / "dev.json"
    listed.write_text(json.dumps([HOTPOT]))
    context = {"title": ["Aville", "Cee"], "sentences": [each[1] for each in HOTPOT["context"]]}  # type: ignore[attr-defined]
    columns = lines(tmp_path / "dev.jsonl", {**HOTPOT, "context": context, "id": "q1"})
    for path in (listed, columns):
        made = load_suite(f"hotpotqa:{path}")
        (task,) = made.tasks
        assert (task.id, task.answer, task.about, made.grader) == (
            "q1",
            "Bland",
            {"type": "bridge", "level": "easy"},
            "f1",
        )
        tools = tools_of(made, task)
        assert tools["search"]("aville") == "[Aville]\nAville lies on the Cee. It is old."
        assert tools["lookup_in"]("Aville", "old") == "It is old."


def test_a_task_of_hotpotqa_searches_its_own_paragraphs_only(tmp_path: Path) -> None:
    other = {**HOTPOT, "_id": "q2", "context": [["Dorf", ["Dorf has a mill."]]]}
    path = lines(tmp_path / "dev.jsonl", HOTPOT, other)
    made = load_suite(f"hotpotqa:{path}")
    with pytest.raises(ToolError, match="Nothing was found"):
        tools_of(made, made.tasks[1])["search"]("Aville")


def test_fever_is_read_with_its_pages_and_one_claim_of_several_evidences_is_one_task(tmp_path: Path) -> None:
    claims = lines(
        tmp_path / "dev.jsonl",
        {"id": 7, "verifiable": "VERIFIABLE", "label": "SUPPORTS", "claim": "Aville is old.", "evidence": []},
        {"id": 7, "label": "SUPPORTS", "claim": "Aville is old.", "evidence_id": 3},
        {"id": 8, "label": "NOT ENOUGH INFO", "claim": "Aville is liked.", "evidence": []},
    )
    pages = lines(
        tmp_path / "wiki.jsonl",
        {"id": "", "text": "", "lines": ""} | {"id": "Empty"},
        {"id": "Aville_-LRB-town-RRB-", "text": "Aville is old .", "lines": "0\tAville is old .\tOld\told\n1\t"},
    )
    made = load_suite(f"fever:{claims},corpus={pages}")
    assert [(task.id, task.answer) for task in made.tasks] == [("7", "SUPPORTS"), ("8", "NOT ENOUGH INFO")]
    assert tools_of(made, made.tasks[0])["search"]("Aville") == "[Aville (town)]\nAville is old ."
    assert load_suite(f"fever:{claims}").tools == ()


def test_strategyqa_is_read_and_all_its_facts_are_searched_together(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    rows = [
        {"qid": "a", "term": "Hen", "question": "Do hens fly?", "answer": False, "facts": ["Hens are heavy."]},
        {"qid": "b", "term": "Cee", "question": "Is the Cee wet?", "answer": True, "facts": ["Rivers have water."]},
    ]
    path.write_text(json.dumps(rows))
    made = load_suite(f"strategyqa:{path}")
    assert [(task.id, task.answer) for task in made.tasks] == [("a", False), ("b", True)]
    assert "heavy" in tools_of(made, made.tasks[1])["search"]("hen")


MUSIQUE = {
    "id": "2hop__1_2",
    "question": "In which country is the river of Aville?",
    "question_decomposition": [{"id": 1}, {"id": 2}],
    "answer": "Bland",
    "answer_aliases": ["Kingdom of Bland"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Cee", "paragraph_text": "The Cee is a river. It is in Bland.", "is_supporting": True}
    ],
}


def test_musique_is_read_with_its_paragraphs_or_a_corpus_and_without_what_has_no_answer(tmp_path: Path) -> None:
    path = lines(tmp_path / "dev.jsonl", MUSIQUE, {**MUSIQUE, "id": "2hop__3_4", "answerable": False})
    corpus = tmp_path / "corpus.json"
    corpus.write_text(json.dumps([{"title": "Aville", "text": "Aville lies on the Cee. It is old."}]))
    own, pooled = load_suite(f"musique:{path}"), load_suite(f"musique:{path},corpus={corpus}")
    for made in (own, pooled):
        assert [(task.id, task.answer, task.about) for task in made.tasks] == [
            ("2hop__1_2", ["Bland", "Kingdom of Bland"], {"hops": 2})
        ]
        assert "1 that can't be answered" in made.about
    assert tools_of(own, own.tasks[0])["lookup_in"]("cee", "Bland") == "It is in Bland."
    assert tools_of(pooled, pooled.tasks[0])["lookup_in"]("aville", "old") == "It is old."


def test_a_tool_search_set_has_stand_ins_with_their_parameters(tmp_path: Path) -> None:
    tools = lines(
        tmp_path / "tools.jsonl",
        {"name": "PDF & more", "description": "Reads a PDF."},
        {
            "api_name": "getRain",
            "api_description": "Rain at a place.",
            "parameters": {"days": {"type": "int", "description": "How many."}, "place": {"type": "str"}},
            "required": ["place"],
        },
        {
            "type": "function",
            "function": {
                "name": "sing",
                "description": "Sings.",
                "parameters": {"type": "object", "properties": {"loud": {"type": "boolean"}}, "required": []},
            },
        },
    )
    queries = lines(tmp_path / "queries.jsonl", {"query": "Will it rain on my PDF?", "gold": ["getRain", "PDF & more"]})
    made = load_suite(f"tool-search:{queries},tools={tools},show=2")
    (task,) = made.tasks
    assert (task.answer, made.grader, made.max_tools) == (["getRain", "PDF_more"], "calls", 2)
    found = tools_of(made, task)
    assert found["getRain"].spec.parameters["required"] == ["place"]
    assert found["getRain"].spec.parameters["properties"]["days"] == {
        "type": "integer",
        "description": "How many.",
        "default": None,
    }
    args, kwargs = found["getRain"].bind({"place": "Aville", "days": "3"})
    assert found["getRain"](*args, **kwargs) == "getRain: done."
    assert set(found["sing"].spec.parameters["properties"]) == {"loud"}
    assert set(found["PDF_more"].spec.parameters["properties"]) == {"request"}
    assert fit_tool_name("9 lives") == "_9_lives"


def test_own_tasks_are_read_with_all_they_may_have(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "tasks.jsonl",
        {"question": "How many?", "answer": 3},
        {"question": "Is it?", "answer": True, "id": "sure"},
        {
            "question": "Who?",
            "answer": ["Ann", "Anne"],
            "grader": "f1:0.5",
            "tools": ["calculator"],
            "split": "report",
            "about": {"steps": 2},
            "now": 1.5e9,
            "source": "a field of mine",
        },
    )
    made = load_suite(str(path))
    assert [(task.id, made.grader_of(task)) for task in made.tasks] == [
        ("1", "number"),
        ("sure", "yesno"),
        ("3", "f1:0.5"),
    ]
    assert made.tasks[2] == SuiteTask(
        id="3",
        question="Who?",
        answer=["Ann", "Anne"],
        grader="f1:0.5",
        tools=("calculator",),
        split="report",
        about={"steps": 2},
        now=1.5e9,
    )


def test_packed_and_listed_files_are_read_alike(tmp_path: Path) -> None:
    records = [{"question": "One?", "answer": "1"}, {"question": "Two?", "answer": "2"}]
    plain = lines(tmp_path / "a.jsonl", *records)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(json.dumps({"data": records}).encode()))
    (tmp_path / "e.jsonl").write_text("\ufeff\n" + plain.read_text().rstrip("\n"), encoding="utf-8")
    questions = [
        [task.question for task in load_suite(str(tmp_path / name)).tasks] for name in ("a.jsonl", "b.jsonl.gz")
    ]
    questions += [
        [task.question for task in load_suite(str(tmp_path / name)).tasks]
        for name in ("c.json", "d.json.gz", "e.jsonl")
    ]
    assert questions == [["One?", "Two?"]] * 5


# --- what is wrong with a file

GOOD = '{"question": "One?", "answer": "1"}\n'


@for_each(
    ("text", "said"),
    [
        (GOOD + '{"question": "Two?"}\n', "line 2: 'answer' is missing"),
        (GOOD + '{"answer": "2"}\n', "line 2: 'question' is missing"),
        (GOOD + '{"question": "  ", "answer": "2"}\n', "line 2: 'question' is not a text"),
        (GOOD + "\n" + '{"question": "Two?", "ans', "line 3: is not JSON.*cut short"),
        (GOOD + "[1]\n", "line 2: is not an object"),
        (GOOD + '{"question": "Two?", "anwser": "2"}\n', "line 2: 'anwser' is not a field.*'answer'"),
        (GOOD + '{"question": "Two?", "answer": "2", "id": "1"}\n', "line 2: the id '1' is that of line 1"),
        (GOOD + '{"question": "Two?", "answer": "2", "grader": "exakt"}\n', "line 2: No grader.*exact"),
        (GOOD + '{"question": "Two?", "answer": "2", "tools": 3}\n', "line 2: 'tools'"),
        (GOOD + '{"question": "Two?", "answer": "2", "about": 3}\n', "line 2: 'about'"),
        (GOOD + '{"question": "Two?", "answer": "2", "now": "today"}\n', "line 2: 'now'"),
        ("", "no records"),
        ('[{"question": "One?", "answer": "1"}, {"question"', "cut short"),
        ('[{"question": "One?", "answer": "1"}, {"answer": "1"}]', "record 2: 'question' is missing"),
    ],
)
def test_a_bad_line_is_named_with_what_is_missing(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"tasks.jsonl.*{said}"):
        load_suite(str(path))


@pytest.mark.parametrize("listed", [False, True])
def test_a_file_that_is_cut_anywhere_is_refused_or_whole(listed: bool, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    records = [{"question": "One?", "answer": "1"}, {"question": "Zwölf?", "answer": ["12", "XII"]}]
    text = json.dumps(records, ensure_ascii=False) if listed else "\n".join(json.dumps(each) for each in records)
    data = text.encode()
    first = len(json.dumps(records[0]))
    for cut in range(1, len(data)):
        path.write_bytes(data[:cut])
        if not listed and first <= cut <= first + 1:  # the first line, and nothing of the second
            assert len(load_suite(str(path)).tasks) == 1
            continue
        with pytest.raises(ConfigError, match="tasks"):
            load_suite(str(path))
    path.write_bytes(data)
    assert len(load_suite(str(path)).tasks) == 2


@pytest.mark.parametrize(
    ("kind", "record", "said"),
    [
        ("gsm8k", {"question": "?", "answer": "many"}, "no number"),
        ("hotpotqa", {"question": "?", "answer": "a"}, "'context' is missing"),
        ("hotpotqa", {"question": "?", "answer": "a", "context": [["title"]]}, "can't be read"),
        ("hotpotqa", {"question": "?", "answer": "a", "context": {"title": ["a"], "sentences": []}}, "as many"),
        ("fever", {"claim": "x", "label": "MAYBE"}, "the label is 'MAYBE'"),
        ("fever", {"id": 1, "claim": "x"}, "'label' is missing"),
        ("strategyqa", {"question": "?", "answer": "perhaps"}, "true or false"),
        ("musique", {"question": "?", "answer": "a"}, "corpus=FILE"),
        ("musique", {"question": "?", "answer": "a", "paragraphs": [{"text": "x"}]}, "can't be read"),
    ],
)
def test_a_record_that_lacks_what_its_kind_needs_is_named(kind: str, record: Any, said: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "dev.jsonl", record)
    with pytest.raises(ConfigError, match=f"dev.jsonl, line 1: .*{said}"):
        load_suite(f"{kind}:{path}")


def test_a_gold_tool_that_is_not_there_is_named(tmp_path: Path) -> None:
    tools = lines(tmp_path / "tools.jsonl", {"name": "sing", "description": "Sings."})
    queries = lines(tmp_path / "queries.jsonl", {"query": "Dance!", "gold": ["dance"]})
    with pytest.raises(ConfigError, match=r"queries.jsonl, line 1: tools.jsonl has no tool 'dance'"):
        load_suite(f"tool-search:{queries},tools={tools}")


def test_files_that_are_not_there_or_are_broken_are_said(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD.encode() * 1000)[:-20])
    with pytest.raises(ConfigError, match=r"can't be unpacked.*cut short"):
        load_suite(f"gsm8k:{path}")
    with pytest.raises(ConfigError, match=r"Did you mean test\.jsonl\.gz"):
        load_suite(f"gsm8k:{tmp_path / 'tests.jsonl.gz'}")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "ok", "answer": "1"}\n{"question": "\xe9"}\n')
    with pytest.raises(ConfigError, match=r"latin\.jsonl, line 2: is not UTF-8"):
        load_suite(str(tmp_path / "latin.jsonl"))
    (tmp_path / "hub.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="JSON lines"):
        load_suite(f"gsm8k:{tmp_path / 'hub.parquet'}")


@pytest.mark.parametrize(
    ("word", "near"), [("basic", "basics"), ("hotpot:x", "hotpotqa"), ("toolsearch:x", "tool-search")]
)
def test_an_unknown_suite_names_the_nearest(word: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean {near}"):
        load_suite(word)


# --- the two tools


def test_a_page_is_found_by_its_title_however_it_is_written() -> None:
    texts = Corpus(
        (
            CorpusPage("York", ("York is in England.", "It has a minster.")),
            CorpusPage("York (album)", ("York is an album.",)),
            CorpusPage("Mercury (planet)", ("Mercury is small.",)),
            CorpusPage("Notes", ("Of York and Mercury, minster and album.",)),
        )
    )
    assert texts.search(" YORK ") == "[York]\nYork is in England. It has a minster."
    assert texts.search("york album") == "[York (album)]\nYork is an album."
    assert texts.search("Mercury") == "[Mercury (planet)]\nMercury is small."
    assert texts.search("the minster of England").startswith("No page is titled 'the minster of England'.")
    assert "[York]\n" in texts.search("the minster of England")
    assert texts.lookup("York", "a minster") == "It has a minster."
    assert texts.lookup("York", "minster roof").startswith("No sentence has all")
    with pytest.raises(ToolError, match="any of these words"):
        texts.lookup("York", "bread")
    with pytest.raises(ToolError, match="Pages: York"):
        texts.lookup("Yorks", "minster")
    with pytest.raises(ToolError, match="Nothing was found"):
        texts.search("zzz")


def test_the_tools_of_a_run_are_found_again_and_a_changed_file_is_refused(tmp_path: Path, journal: Path) -> None:
    path = lines(tmp_path / "dev, new.jsonl", HOTPOT)
    (task,) = load_suite(f"hotpotqa:{path}").tasks
    script = [
        '{"thought": "", "tool": "search", "tool_input": "Cee"}',
        '{"thought": "", "tool": "final_answer", "tool_input": "Bland"}',
    ]
    agent = plait.Agent("json", model=plait.Scripted(script), tools=task.tools, journal=journal)
    run = agent.run(task.question)
    assert run.answer == "Bland"
    again = plait.Agent.from_journal(run_head(journal, run.id), journal=journal, model=plait.Scripted(script))
    assert again.replay(run.id).requests == 2
    lines(path, {**HOTPOT, "context": [["Cee", ["The Cee is a river in another country."]]]})
    with pytest.raises(ConfigError, match="not those that the run started with"):
        load(task.tools[0])


def run_head(journal: Path, run: str) -> Any:
    from plait.journal.store import Journal

    return Journal.at(journal).run(run).head


def test_a_misspelt_suite_of_a_file_and_one_without_its_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        load_suite("hotpot:dev.jsonl")
    assert told.value.message == "No suite is named 'hotpot'." and "Did you mean hotpotqa" in told.value.hint
    with pytest.raises(ConfigError) as told:
        load_suite("hotpotqa")
    assert told.value.message == "The suite hotpotqa needs a file." and "hotpotqa:dev.jsonl" in told.value.hint
    odd = tmp_path / "hotpot:tasks.jsonl"
    odd.write_text('{"question": "a", "answer": 1}')
    with contextlib.chdir(tmp_path):
        assert len(load_suite(odd.name).tasks) == 1


# --- suites of other packages


def test_a_suite_of_another_package_has_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "colours"\nversion = "1"\n'
        '[project.entry-points."plait.suites"]\n'
        'colours = "colours:load"\nbroken = "colours:absent"\nodd = "colours:odd"\n'
    )
    (tmp_path / "colours.py").write_text(
        "from plait.lab import Suite, SuiteTask\n"
        "def load(argument):\n"
        "    tasks = (SuiteTask(id='1', question='The colour of ' + (argument or 'grass') + '?', answer='green'),)\n"
        "    return Suite(word='colours', about='colours', tasks=tasks)\n"
        "def odd(argument):\n    return 3\n"
    )
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "colours" in suite_names() and set(OURS) <= set(suite_names())
    assert load_suite("colours:leaves").tasks[0].question == "The colour of leaves?"
    assert load_suite("colours:mine.jsonl").tasks[0].question == "The colour of mine.jsonl?"
    with pytest.raises(ConfigError, match="can't be made"):
        load_suite("broken")
    with pytest.raises(ConfigError, match="not a suite"):
        load_suite("odd")


# --- the development data


def test_the_data_sets_load_with_all_their_tasks() -> None:
    musique, corpus = data_file("multihop", "musique100.jsonl.gz"), data_file("multihop", "musique100_corpus.jsonl.gz")
    seal = data_file("tool-search", "seal-tools", "tools.jsonl.gz")
    meta = data_file("tool-search", "metatool", "tools.jsonl.gz")
    words = {
        f"gsm8k:{data_file('gsm8k', 'test.jsonl.gz')}": 1319,
        f"hotpotqa:{data_file('multihop', 'hotpot100.jsonl.gz')}": 100,
        f"musique:{musique},corpus={corpus}": 100,
        f"strategyqa:{data_file('multihop', 'strategyqa_dev.jsonl.gz')}": 229,
        f"tool-search:{data_file('tool-search', 'seal-tools', 'dev.jsonl.gz')},tools={seal}": 700,
        f"tool-search:{data_file('tool-search', 'seal-tools', 'test_in_domain.jsonl.gz')},tools={seal}": 700,
        f"tool-search:{data_file('tool-search', 'seal-tools', 'test_out_domain.jsonl.gz')},tools={seal}": 654,
        f"tool-search:{data_file('tool-search', 'metatool', 'queries.jsonl.gz')},tools={meta}": 20_614,
    }
    made = {word: load_suite(word) for word in words}
    assert {word: len(each.tasks) for word, each in made.items()} == words
    counts = [len(tools_from(each.tools_of(each.tasks[0]))) for each in made.values()]
    assert counts == [1, 2, 2, 2, 4076, 4076, 4076, 199]


def test_every_gold_paragraph_of_hotpotqa_is_found_by_its_title() -> None:
    path = data_file("multihop", "hotpot100.jsonl.gz")
    made = load_suite(f"hotpotqa:{path}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = {row["id"]: row for row in map(json.loads, file)}
    checked = 0
    for task in made.tasks:
        search, row = tools_of(made, task)["search"], rows[task.id]
        texts = dict(zip(row["context"]["title"], row["context"]["sentences"], strict=True))
        facts = zip(row["supporting_facts"]["title"], row["supporting_facts"]["sent_id"], strict=True)
        for title, sentence in facts:
            assert texts[title][sentence].strip() in search(title)
            checked += 1
    assert checked > 200


def test_every_passage_of_musique_is_found_by_its_title() -> None:
    path, corpus = data_file("multihop", "musique100.jsonl.gz"), data_file("multihop", "musique100_corpus.jsonl.gz")
    made = load_suite(f"musique:{path},corpus={corpus}")
    search = tools_of(made, made.tasks[0])["search"]
    with gzip.open(corpus, "rt", encoding="utf-8") as file:
        passages = [json.loads(line) for line in file]
    found = sum(" ".join(row["text"].split()) in " ".join(search(row["title"]).split()) for row in passages)
    assert (found, len(passages)) == (1890, 1890)


def test_the_calculator_of_the_tests_is_the_one_of_the_tasks() -> None:
    made = load_suite("basics:report")
    assert tools_of(made, made.tasks[0])["calculator"].function is calculator.function
