"""The lab's graders: what is right, by each of them, and what an answer that is none, or an error, comes to."""

from __future__ import annotations

import gzip
import json
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from conftest import data_file, for_each
from plait.core import Answered, Crashed, Failed, Stopped, Usage
from plait.core.errors import ConfigError, ModelMissing, Unreachable
from plait.journal.store import Journal
from plait.lab import Grade, SuiteTask, load_grader, load_suite
from plait.lab.graders import NAMES, grader_digest
from plait.lab.graders.answers import f1_score, find_label, is_exact_match, last_number, parse_yes_no, read_numbers
from plait.lab.judge import make_judge
from plait.loops.judge.loop import read_verdict
from plait.models.prices import Rate
from plait.runtime.run import Run

ROOT = Path(__file__).parents[1]


def ended(outcome: Any) -> Run:
    """A run that ended so, with nothing on its record."""
    return Run(
        id="r",
        outcome=outcome,
        loop="react",
        steps=1,
        calls=0,
        usage=Usage(),
        cost_usd=None,
        seconds=0.0,
        models={},
        question="?",
        rows=tuple,
    )


async def graded(word: str, gold: Any, answer: Any) -> Grade:
    return await load_grader(word)(SuiteTask(id="t", question="?", answer=gold), ended(Answered(answer)))


@for_each(
    "answer",
    [
        "1.892 × 10^27",
        "1.892×10²⁷",
        "1.892*10**27",
        "It weighs 1.892 x 10^(27) kg.",
        r"$1.892 \times 10^{27}$ kg",
        "1,892 · 10^24",
        "1.892e27",
    ],
)
async def test_a_power_of_ten_is_read_however_it_is_written(answer: str) -> None:
    assert (await graded("number", 1.892e27, answer)).success


def test_an_expression_that_is_not_a_power_of_ten_stays_its_numbers() -> None:
    assert [read.value for read in read_numbers("2^10, 110^2, 5 × 100, 3*10+1")] == [2, 10, 110, 2, 5, 100, 3, 10, 1]


# --- EM and F1


def test_em_and_f1_agree_with_all_that_were_logged() -> None:
    with gzip.open(data_file("react-hotpotqa", "episodes.jsonl.gz"), "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    agree = sum(
        is_exact_match(row["pred"], row["gold"]) == row["em"]
        and abs(f1_score(row["pred"], row["gold"]) - row["f1"]) < 1e-9
        for row in rows
    )
    assert (agree, len(rows)) == (1464, 1464)
    assert 0 < sum(row["em"] for row in rows) < 1464


@for_each(
    ("answer", "gold", "same", "score"),
    [
        ("The Sahara!", "sahara", True, 1.0),
        ("an apple a day", "Apple day", True, 1.0),
        ("the big red dog", "red dog", False, 0.8),
        ("red red dog", "red dog", False, 0.8),
        ("yes", "yes it is", False, 0.0),
        ("no", "yes", False, 0.0),
        ("", "red", False, 0.0),
        ("cat", "dog", False, 0.0),
    ],
)
def test_em_and_f1_on_cases_worked_out_by_hand(answer: str, gold: str, same: bool, score: float) -> None:
    assert is_exact_match(answer, gold) == same
    assert f1_score(answer, gold) == pytest.approx(score)


async def test_f1_is_the_score_and_em_the_success_unless_a_threshold_is_given() -> None:
    grade = await graded("f1", "red dog", "the big red dog")
    assert (grade.success, grade.score, grade.measures) == (
        False,
        pytest.approx(0.8),
        {"em": 0.0, "f1": pytest.approx(0.8)},
    )
    assert (await graded("f1:0.75", "red dog", "the big red dog")).success
    assert not (await graded("f1:0.85", "red dog", "the big red dog")).success
    several = await graded("f1", ["grey cat", "big red dog"], "the big red dog")
    assert several.success and several.score == 1.0


# --- right and wrong, a grader at a time


@for_each(
    ("word", "gold", "right", "wrong"),
    [
        ("exact", "Ann Lee", ["ann lee.", "The Ann Lee"], ["Ann", "Ann Lee is it"]),
        ("exact", ["Ann", "Anne"], ["anne", "Ann"], ["Anna"]),
        ("exact", 18, ["18", 18, 18.0], ["18.5", "1 8"]),
        ("exact", {"a": 1}, [{"a": 1}, '{"a": 1}'], [{"a": 2}]),
        ("exact", True, ["yes", True], ["no", False]),
        (
            "yesno",
            True,
            ["Yes, because it can.", "The answer is yes.", True, "true", "No one denies it: yes"],
            ["No.", "perhaps", ""],
        ),
        ("yesno", "no", ["no", "There is yes and no: no", False], ["yes", "unknown"]),
        (
            "label",
            "REFUTES",
            ["REFUTES", "The claim is refuted.", "Label: refutes"],
            ["SUPPORTS", "REFUTES or SUPPORTS", "it is false"],
        ),
        ("label", "NOT ENOUGH INFO", ["not enough information", "NEI"], ["not enough", "SUPPORTS"]),
        ("label:good|very good|bad", "very good", ["It is very good."], ["It is good.", "good or very good?", "bad"]),
        (
            "number",
            18,
            ["18", "so it is $18.00.", "3 and 15 make 18", "#### 18\nin 2 days", 18.0],
            ["18.1", "eighteen", "18 or 19", ""],
        ),
        ("number", "1,234.5", ["1234.5", "1,234.50 dollars", "$1,234.5"], ["1.2345", "1,234"]),
        ("number", 0.2, ["20%", "1/5", "0.2", "\\frac{1}{5}", "It is 1/5."], ["20", "2%"]),
        ("number", 20, ["20%", "20 percent"], ["0.2", "-20"]),
        ("number", 1.5, ["1 1/2 cups", "3/2"], ["1/2"]),
        ("number", 0, ["0", "none: 0"], ["0.00001"]),
        ("number", 100_000, ["100004"], ["100006"]),
        ("number:0.1", 100, ["91", "110"], ["89", "111"]),
        ("number", [3, 4], ["3", "4"], ["7"]),
        (
            "has",
            522250,
            ["522,250 people live there, in 2 towns", "It has 522250.", 522250],
            ["522", "5222500", "none"],
        ),
        ("has", "Ann Lee", ["It is Ann Lee, born 1950", "ANN  LEE"], ["Ann", "Ann Leesen", "Joann Lee"]),
        ("has", "18", ["it is 18.0"], ["it is 180"]),
        ("has", 12.5, ["$12.50"], ["12.6"]),
        ("has", ["Rome", 7], ["seven? 7", "in Rome"], ["Romeo", "77"]),
        ("contains", "The Ann-Lee", ["it is (annlee)!"], ["it is ann"]),
        ("contains", 18, ["the 18 men"], ["180 men", "18.0"]),
    ],
)
async def test_what_is_right_and_what_is_wrong(word: str, gold: Any, right: list[Any], wrong: list[Any]) -> None:
    for answer in right:
        grade = await graded(word, gold, answer)
        assert (grade.success, grade.score, grade.mark, grade.why) == (True, 1.0, "right", ""), answer
    for answer in wrong:
        grade = await graded(word, gold, answer)
        assert (grade.success, grade.mark) == (False, "wrong") and grade.why, answer


def test_has_says_of_numbers_and_names_what_the_benchmark_says() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from embedded import correct
    finally:
        sys.path.pop(0)
    from plait.lab.graders.scores import score_has

    dice = random.Random(5)
    agree = rights = 0
    for _ in range(2000):
        gold = dice.choice([str(dice.randrange(5000)), f"{dice.randrange(900)}.{dice.choice((25, 5, 75))}", "Ann Lee"])
        said = dice.choice([gold, gold, f"{float(gold) + 0.01:.2f}" if gold[0].isdigit() else "Ann", "none", "7 of 12"])
        if said[0].isdigit() and dice.random() < 0.5 and said.replace(".", "").isdigit():
            said = f"{float(said):,}"
        answer = dice.choice(["{}", "It is {}.", "**{}** people, in 3 towns", "${}", "({})"]).format(said)
        right = score_has(SuiteTask(id="t", question="?", answer=gold), answer).success
        rights += right
        agree += right == correct(answer, gold)
    assert agree == 2000 and 400 < rights < 1600


@for_each(
    ("text", "found"),
    [
        ("- 5 apples", [5]),
        ("-$5 and 5-3", [-5, 5, 3]),
        ("−4", [-4]),
        ("1990–2000", [1990, 2000]),
        ("1,234,567.8", [Fraction("1234567.8")]),
        ("1,00,000", [100_000]),
        ("12,34", [12, 34]),
        ("3/4/2024", [3, 4, 2024]),
        ("10/12/24", [10, 12, 24]),
        ("24/0", [24, 0]),
        ("1e5 and 1.5e-3", [100_000, Fraction("0.0015")]),
        (".5", [Fraction(1, 2)]),
        ("18.", [18]),
        ("1{,}000", [1000]),
    ],
)
def test_numbers_are_read_as_they_are_written(text: str, found: list[Any]) -> None:
    assert [read.value for read in read_numbers(text)] == found


def test_the_answer_that_is_marked_counts_before_the_last_number() -> None:
    assert last_number("#### 1,000\nfor 3 days") == 1000
    assert last_number("5 #### 7") == 7
    assert last_number("so \\boxed{12} of 30") == 12
    assert last_number("\\boxed{\\frac{3}{4}} of 30") == Fraction(3, 4)
    assert last_number(True) is None and last_number(float("inf")) is None


@given(st.text(max_size=200) | st.from_regex(r"[-$\d,./%eE \\{}]{0,60}", fullmatch=True))
def test_no_text_breaks_a_reader(text: str) -> None:
    read_numbers(text)
    last_number(text)
    parse_yes_no(text)
    find_label(text, ("a", "b c"))
    read_verdict(text)
    is_exact_match(text, text)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "is {:,}.", "${}", "({})", "**{}**"]))
def test_a_whole_number_is_read_back_from_how_it_is_written(number: int, form: str) -> None:
    assert last_number(form.format(number)) == number


# --- runs that did not answer


@for_each("word", ["exact", "f1", "yesno", "number", "has", "contains"])
async def test_only_a_run_that_answered_succeeds(word: str) -> None:
    task = SuiteTask(id="t", question="?", answer=True if word == "yesno" else 18)
    answer = "yes" if word == "yesno" else "18"
    stopped = await load_grader(word)(task, ended(Stopped("steps", "8 steps are over", answer)))
    assert (stopped.success, stopped.score, stopped.mark) == (False, 1.0, "wrong")
    assert stopped.why == "stopped: 8 steps are over; its answer is right"
    for outcome in (Failed("it is too hard"), Stopped("steps", "8 steps are over"), Crashed("it broke")):
        none = await load_grader(word)(task, ended(outcome))
        assert (none.success, none.score) == (False, 0.0) and none.why == f"{outcome.status}: {outcome.reason}"
        assert set(none.measures.values()) <= {0.0}
    assert not (await load_grader(word)(task, ended(Answered(None)))).success


async def test_a_task_without_an_answer_can_not_be_graded_by_it() -> None:
    for word in ("exact", "f1", "number", "has", "contains", "label", "yesno", "calls"):
        with pytest.raises(ConfigError, match="'t'"):
            await graded(word, None, "18")
    with pytest.raises(ConfigError, match="is not a number"):
        await graded("number", "many", "18")
    with pytest.raises(ConfigError, match="neither yes nor no"):
        await graded("yesno", "perhaps", "yes")
    with pytest.raises(ConfigError, match="is not a label"):
        await graded("label", "perhaps", "SUPPORTS")


# --- words


@for_each(
    ("word", "said"),
    [
        ("exakt", "Did you mean exact"),
        ("xyz", f"Graders: {', '.join(NAMES)}"),
        ("has:3", "takes nothing"),
        ("f1:2", "from 0 to 1"),
        ("number:much", "from 0 to 1"),
        ("label:one", "fewer than two labels"),
        ("world:Z", "no task 'Z'"),
        ("judge", "needs a model"),
        ("judge:openai:gpt-5", "OPENAI_API_KEY"),
        ("judge:nowhere:gpt-5", "nowhere"),
        ("python:nothing", "names no function"),
        ("python:no_such_module_here:f", "no module"),
        ("absent.py:f", "There is no file 'absent.py'"),
    ],
)
def test_a_word_that_is_wrong_is_explained(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_grader(word)


# --- what was done


@plait.tool(read_only=True)
def tide(place: str) -> str:
    """The tide."""
    return "high"


@plait.tool(read_only=True)
def moon(place: str) -> str:
    """The moon."""
    if place == "nowhere":
        raise plait.ToolError("There is no moon.")
    return "full"


def acted(*calls: tuple[str, str], last: str = "Done.") -> Run:
    script = [json.dumps({"thought": "", "tool": name, "tool_input": given}) for name, given in calls]
    script.append(json.dumps({"thought": "", "tool": "final_answer", "tool_input": last}))
    return plait.Agent("json", model=plait.Scripted(script), tools=[tide, moon], journal=False).run("?")


async def test_calls_counts_the_gold_tools_that_gave_a_result() -> None:
    task = SuiteTask(id="t", question="?", answer=["tide", "moon"])
    both = await load_grader("calls")(task, acted(("moon", "here"), ("tide", "here")))
    assert (both.success, both.score, both.measures) == (True, 1.0, {"recall": 1.0, "precision": 1.0})
    one = await load_grader("calls")(task, acted(("moon", "nowhere"), ("tide", "here")))
    assert (one.success, one.score, one.why) == (False, 0.5, "not called: moon")
    other = await load_grader("calls")(
        SuiteTask(id="t", question="?", answer="tide"), acted(("moon", "here"), ("tide", "here"))
    )
    assert (other.success, other.measures) == (True, {"recall": 1.0, "precision": 0.5})
    none = await load_grader("calls")(task, acted())
    assert (none.success, none.score) == (False, 0.0)


async def test_the_world_is_graded_by_what_was_sent_in_the_recorded_run(journal: Path) -> None:
    made = load_suite("world:six")
    task = next(task for task in made.tasks if task.id == "A")
    judged = load_grader(made.grader_of(task))

    def ran(text: str, **agent: Any) -> Run:
        script = [json.dumps({"thought": "", "tool": "final_answer", "tool_input": text})]
        model = plait.Scripted(script)
        return plait.Agent("json", model=model, tools=task.tools, journal=journal, **agent).run(
            task.question, now=task.now
        )

    done = await judged(task, ran("It is March 12, 2024."))
    assert (done.success, done.score, done.mark) == (True, 1.0, "done")
    wrong = await judged(task, ran("It is March 13, 2024."))
    assert (wrong.success, wrong.score, wrong.mark) == (False, 0.0, "not done") and wrong.why

    weather = next(task for task in made.tasks if task.id == "B")
    script = [
        json.dumps({"thought": "", "tool": "send_message_discord", "tool_input": "Rain, I guess."}),
        json.dumps({"thought": "", "tool": "final_answer", "tool_input": "Sent."}),
    ]
    run = plait.Agent("json", model=plait.Scripted(script), tools=weather.tools, journal=journal).run(weather.question)
    sent = await load_grader("world")(weather, run)
    assert not sent.success and sent.mark in ("flaw", "not done") and sent.why


# --- a function of the user's


def written(folder: Path, text: str) -> str:
    path = folder / "checks.py"
    path.write_text(text)
    return str(path)


async def test_a_users_function_says_what_is_right(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "from plait.lab import Grade\n"
        "def starts(answer, gold):\n    return answer.startswith(gold)\n"
        "def share(answer, gold):\n    return len(answer) / len(gold)\n"
        "async def short(task, run):\n    return Grade(run.steps < 3, 0.7, 'short', task.id)\n"
        "def stopped(task, run):\n    return run.status == 'stopped'\n",
    )
    task = SuiteTask(id="t", question="?", answer="Ann Lee")
    assert (await load_grader(f"{path}:starts")(task, ended(Answered("Ann Lee it is")))).success
    wrong = await load_grader(f"{path}:starts")(task, ended(Answered("It is Ann Lee")))
    assert (wrong.success, wrong.mark) == (False, "wrong") and "starts" in wrong.why
    half = await load_grader(f"{path}:share")(task, ended(Answered("Ann")))
    assert (half.success, half.score) == (False, pytest.approx(3 / 7))
    assert await load_grader(f"{path}:short")(task, ended(Answered("x"))) == Grade(True, 0.7, "short", "t")
    assert (await load_grader(f"{path}:stopped")(task, ended(Stopped("steps", "over")))).success
    late = await load_grader(f"{path}:starts")(task, ended(Stopped("steps", "over", "Ann Lee")))
    assert (late.success, late.score) == (False, 1.0)
    assert not (await load_grader(f"{path}:starts")(task, ended(Failed("hard")))).success


async def test_a_function_in_a_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_checks_of_lab.py").write_text("def right(answer, gold):\n    return answer == gold\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert (await graded("python:my_checks_of_lab:right", "x", "x")).success
    with pytest.raises(ConfigError, match="Did you mean right"):
        load_grader("python:my_checks_of_lab:rigth")


async def test_an_error_in_a_users_function_is_no_wrong_answer(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "def right(answer, gold):\n"
        "    return 1 / 0\n"
        "def odd(answer, gold):\n    return 'good'\n"
        "def one(answer):\n    return True\n"
        "number = 3\n",
    )
    with pytest.raises(ConfigError, match=r"checks\.py, line 2, for the task 't': ZeroDivisionError"):
        await graded(f"{path}:right", "x", "y")
    with pytest.raises(ConfigError, match="gave 'good' for the task 't'"):
        await graded(f"{path}:odd", "x", "y")
    with pytest.raises(ConfigError, match="can't be called with two values"):
        load_grader(f"{path}:one")
    with pytest.raises(ConfigError, match="not a function"):
        load_grader(f"{path}:number")
    with pytest.raises(ConfigError, match=r"line 2: ZeroDivisionError|checks\.py, line 2, ZeroDivisionError"):
        written(tmp_path, "x = 1\ny = x / 0\n")
        load_grader(f"{path}:right")
    with pytest.raises(ConfigError, match="line 1: SyntaxError"):
        written(tmp_path, "def right(:\n")
        load_grader(f"{path}:right")


def test_a_grades_mark_changes_with_what_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {grader_digest(word) for word in ("exact", "f1:0.5", "world:B", "calls")} == {""}
    template = tmp_path / "mine.j2"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def marks(source: str, prompt: str) -> list[str]:
        path = written(tmp_path, source)
        template.write_text(prompt)
        (tmp_path / "checks_in_a_module.py").write_text(f"{source}\n# a module\n")
        return [
            grader_digest(f"{path}:right"),
            grader_digest("python:checks_in_a_module:right"),
            grader_digest(f"judge:local,template={template}"),
        ]

    before, after = marks("def right(a, b): ...", "{{ answer }}"), marks("def right(a, c): ...", "{{ answer }}!")
    assert all(before) and not set(before) & set(after)
    assert marks("def right(a, b): ...", "{{ answer }}") == before
    assert grader_digest("judge:local") == grader_digest("judge:openai:gpt-5") != ""
    with pytest.raises(ConfigError, match=r"There is no file 'absent\.py'"):
        grader_digest("absent.py:right")


# --- a model as judge


JUDGED = SuiteTask(id="t", question="Who wrote it?", answer=["Ann Lee", "A. Lee"])


async def test_a_judges_verdict_is_the_grade_and_its_run_is_on_the_record(journal: Path) -> None:
    model = plait.Scripted(["It names her.\n\nVerdict: right"], rate=Rate("tokens", 1.0, 1.0))
    grade = await make_judge(model, journal=journal)(JUDGED, ended(Answered("Lee, I think")))
    assert (grade.success, grade.score, grade.mark, grade.why) == (True, 1.0, "right", "")
    kept = Journal.at(journal).run(grade.run)
    assert kept.head.question == "Who wrote it?" and kept.head.loop["name"] == "judge"
    assert grade.cost_usd is not None and grade.cost_usd > 0
    (prompt,) = [row.body for row in Journal.at(journal).rows(grade.run) if row.body and b"Who wrote it?" in row.body][
        :1
    ]
    for part in (b"Ann Lee", b"A. Lee", b"Lee, I think"):
        assert part in prompt


async def test_a_judge_that_gives_no_verdict_is_asked_once_more() -> None:
    model = plait.Scripted(["Well.", "**Verdict:** Wrong."])
    grade = await make_judge(model, journal=False)(JUDGED, ended(Answered("Bob")))
    assert (grade.success, grade.mark) == (False, "wrong") and model.sent == 2
    dumb = plait.Scripted(["Well.", "Hm."])
    grade = await make_judge(dumb, journal=False)(JUDGED, ended(Answered("Bob")))
    assert (grade.success, grade.mark, grade.why) == (False, "unreadable", "the judge gave no verdict in 2 replies")
    assert dumb.sent == 2 and grade.run


async def test_a_judge_that_can_not_be_asked_gives_no_grade(tmp_path: Path) -> None:
    outage = plait.Scripted([*[Unreachable("Nothing answers at the address.")] * 20, "It fits.\nVerdict: right"])
    with pytest.raises(Unreachable, match="Nothing answers"):
        await make_judge(outage, journal=False)(JUDGED, ended(Answered("Bob")))
    missing = plait.Scripted([ModelMissing("The model's file is absent."), "It fits.\nVerdict: right"])
    with pytest.raises(ModelMissing):
        await make_judge(missing, journal=False)(JUDGED, ended(Answered("Bob")))


async def test_a_judge_is_not_asked_about_a_run_without_an_answer() -> None:
    model = plait.Scripted(["It fits.\nVerdict: right"])
    grade = await make_judge(model, journal=False)(JUDGED, ended(Failed("too hard")))
    assert (grade.success, grade.why, model.sent) == (False, "failed: too hard", 0)
    late = await make_judge(model, journal=False)(JUDGED, ended(Stopped("steps", "over", "Ann")))
    assert (late.success, late.score, model.sent) == (False, 1.0, 1)


async def test_a_judge_by_its_word_takes_a_template_of_the_users(tmp_path: Path, journal: Path) -> None:
    (tmp_path / "judge.json").write_text(json.dumps(["Verdict: right"]))
    (tmp_path / "mine.j2").write_text("Is {{ answer }} fine for {{ question }} ({{ gold | join('/') }})?")
    word = f"judge:scripted:{tmp_path / 'judge.json'},template={tmp_path / 'mine.j2'}"
    grade = await load_grader(word, journal=journal)(JUDGED, ended(Answered("Ann")))
    bodies = [row.body for row in Journal.at(journal).rows(grade.run) if row.body]
    assert any(b"Is Ann fine for Who wrote it? (Ann Lee/A. Lee)?" in body for body in bodies)
    (tmp_path / "bad.j2").write_text("{{ ansver }}")
    with pytest.raises(ConfigError, match=r"bad\.j2.*question, answer and gold"):
        load_grader(f"judge:local,template={tmp_path / 'bad.j2'}")
    with pytest.raises(ConfigError, match="can't be read"):
        load_grader(f"judge:local,template={tmp_path / 'absent.j2'}")


@for_each(
    ("text", "said"),
    [
        ("Verdict: right", True),
        ("verdict - **WRONG**", False),
        ('{"why": "it fits", "verdict": "correct"}', True),
        ("Verdict: not correct", False),
        ("Verdict: incorrect.", False),
        ("Verdict: the answer is right", True),
        ("Verdict: right\nNo: it lacks the name.\nVerdict: wrong", False),
        ("I compared them.\nRight.", True),
        ("**Yes**", True),
        ("no", False),
        ("Verdict: 1", True),
        ("My verdict on this is hard to give.", None),
        ("It is right that it is wrong.", None),
        ("", None),
    ],
)
def test_a_verdict_is_read_leniently(text: str, said: bool | None) -> None:
    assert read_verdict(text) is said
