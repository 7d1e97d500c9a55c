"""The four classic tables say what is on the record: each number of them is found there again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import plait
from cli_support import run_in_process
from lab_results import comparison, contender, result, spent
from plait.core import Reply, Usage
from plait.core.errors import ServerFailed
from plait.journal.records import Thinking, ThoughtRecord
from plait.journal.store import Journal
from plait.journal.timeline import Timeline
from plait.lab import CellResult, Comparison, Grade, Suite, SuiteTask, compare
from plait.lab.classics import (
    make_loop_tables,
    make_phase_table,
    make_task_table,
    models_by_phase,
    question_suite,
    read_exchanges,
    render_exchanges,
    render_exchanges_markdown,
)
from plait.models.prices import Rate

# -- phases


def phased(name: str, rate: Rate, tokens: int = 100) -> plait.Scripted:
    """A model for all phases of `phased`, that reports so many tokens in and out a call."""
    usage = Usage(tokens, tokens)
    add = '[{"ACTION": "calculator", "ARGUMENTS": ["2 + 2"], "EXPLANATION": "It adds."}]'
    script = {"reason": "Add the two.", "react": add, "reply": "It is 4."}
    return plait.Scripted({phase: [Reply(text, usage=usage)] for phase, text in script.items()}, name=name, rate=rate)


def test_each_phase_has_each_model_and_rows_add_up_to_what_the_runs_cost(tmp_path: Path) -> None:
    dear, cheap = phased("dear", Rate("tokens", input=10.0, output=30.0)), phased("cheap", Rate("tokens", input=1.0))
    phases = models_by_phase("phased", [dear, cheap], {"react": [cheap]})
    done = compare(
        question_suite("What is 2 + 2?", ["calculator"]),
        loops="phased",
        models=[dear],
        phases=phases,
        journal=tmp_path / "j.db",
    )
    table = make_phase_table(done, hardware=1.0)
    assert [tuple(row.models.values()) for row in table.rows] == [
        (f"scripted:{reason}", "scripted:cheap", f"scripted:{reply}")
        for reason in ("dear", "cheap")
        for reply in ("dear", "cheap")
    ]
    nanos = [row.nanos for row in table.rows]
    # 100 tokens in and out: 0.004 USD a dear call, 0.0001 a cheap one.
    assert nanos == [8_100_000, 4_200_000, 4_200_000, 300_000]
    assert [row.paid_back_after for row in table.rows] == [None, 257, 257, 129]  # 1 / 0.0039, 1 / 0.0078, up
    journal = Journal.at(tmp_path / "j.db")
    for row, each in zip(table.rows, done.results, strict=True):
        assert row.nanos is not None and row.nanos / 10**9 == Fraction(str(each.cost_usd))
        assert journal.run(each.run).totals["cost_usd"] == each.cost_usd
    text = table.draw().text()
    head, *lines = text.splitlines()
    usd = [at for at, name in enumerate(re.split(r"  +", head)) if name.endswith("USD")]
    for line in lines[:4]:
        *parts, whole = (re.split(r"  +", line)[at] for at in usd)
        assert sum(map(Fraction, parts)) == Fraction(whole), line
    assert "257 runs" in text and "right" not in head


def test_the_table_of_phases_is_that_of_plait_costs(tmp_path: Path) -> None:
    from plait.cli.costs import average_rows, cost_row, cost_table

    rate = Rate("tokens", input=1.0, output=2.0)
    done = compare(
        [SuiteTask(id=str(n), question=f"What is 2 + {n}?", answer="It is 4.") for n in range(3)],
        loops="phased",
        models=[phased("one", rate), phased("two", rate, 70)],
        tools=["calculator"],
        journal=tmp_path / "j.db",
    )
    journal = Journal.at(tmp_path / "j.db")
    lines = average_rows(cost_row(journal.run(each.run), journal.timeline(each.run)) for each in done.results)
    heads, rows = cost_table(lines, mean=True, tokens=False)
    theirs = [dict(zip((head.removeprefix(">") for head in heads), row, strict=True)) for row in rows]
    drawn = make_phase_table(done).draw()
    ours = [
        {column.head: column.cells[at] for column in drawn.columns if column.head != "right"} for at in range(len(rows))
    ]
    assert ours == [{name: cell for name, cell in row.items() if name != "loop"} for row in theirs]
    right = next(column.cells for column in drawn.columns if column.head == "right")
    assert right == ("3 of 3", "3 of 3")


def test_prices_that_are_not_known_and_runs_that_are_missing_are_told() -> None:
    known, unknown = spent("reason", "a", 1, (1, 1), 0.5, 0.001), spent("reason", "b", 1, (1, 1), 0.5, None)
    made = made_by_hand({"a": [{"phases": (known,)}, {"phases": (known,)}], "b": [{"phases": (unknown,)}]}, "phased")
    table = make_phase_table(made, hardware=10)
    assert [row.paid_back_after for row in table.rows] == [None, "?"]
    text = table.draw().text()
    assert "?: a price is not known." in text and "not about the same tasks" in text and "Not finished" in text
    assert table.json()["rows"][1]["paid_back_after_runs"] == "not known"
    never = make_phase_table(
        made_by_hand({"a": [{"phases": (known,)}], "b": [{"phases": (known,)}]}, "phased"), hardware=1
    )
    assert never.rows[1].paid_back_after == "never"
    crashed = made_by_hand({"a": [{"phases": (known,), "status": "crashed"}]}, "phased")
    assert "1 of 1 runs crashed" in make_phase_table(crashed).draw().text()


def made_by_hand(rows: dict[str, list[dict[str, Any]]], loop: str) -> Comparison:
    """A comparison of a loop with models by name, a result a task as far as there are."""
    contenders = tuple(contender(loop, who) for who in rows)
    count = max(len(results) for results in rows.values())
    results = tuple(
        result(row.key, f"t{at + 1}", True, **other)
        for row, found in zip(contenders, rows.values(), strict=True)
        for at, other in enumerate(found)
    )
    tasks = tuple(SuiteTask(id=f"t{at + 1}", question="?", answer="x") for at in range(count))
    unfinished = "" if len(results) == count * len(rows) else "the budget is reached"
    suite = Suite(word="towns", about="", tasks=tasks)
    return Comparison(
        name="trial", suite=suite, contenders=contenders, repeat=1, results=results, unfinished=unfinished
    )


# -- react against rewoo


def test_tokens_of_two_loops_are_set_side_by_side_and_summed_where_both_are_finished(tmp_path: Path) -> None:
    react = [
        Reply('Action:\n```json\n{"action": "calculator", "action_input": "2 + 2"}\n```', usage=Usage(300, 20)),
        Reply("Thought: 4.\nFinal Answer: 4", usage=Usage(400, 10)),
    ]
    script: dict[str, Any] = {
        "act": react,
        "plan": [Reply("Plan: Add.\n#E1 = calculator[2 + 2]", usage=Usage(500, 30))],
        "solve": [Reply("five", usage=Usage(100, 5))],
    }
    tasks = [SuiteTask(id=name, question=f"What is 2 + 2, {name}?", answer="4") for name in ("ann", "bob")]
    done = compare(
        tasks,
        loops="react,rewoo",
        models=[plait.Scripted(script)],
        tools=["calculator"],
        journal=tmp_path / "j.db",
    )
    (table,) = make_loop_tables(done)
    assert [(row.task, row.first.tokens, row.second.tokens) for row in table.rows if row.first and row.second] == [
        ("ann", 730, 635),
        ("bob", 730, 635),
    ]
    whole = table.in_all
    assert whole.first is not None and whole.second is not None
    assert (whole.first.calls, whole.first.tokens, whole.first.right) == (4, 1460, 2)
    assert (whole.second.calls, whole.second.tokens, whole.second.right) == (4, 1270, 0)
    assert whole.ratio == 1270 / 1460
    last = table.draw().text().splitlines()[-1].split()
    assert last == ["in", "all", "2", "of", "2", "4", "1,460", "0", "of", "2", "4", "1,270", "0.87"]


def test_a_task_that_one_loop_has_not_finished_is_in_no_sum() -> None:
    made = comparison({"react": ["+", "+", "-"], "rewoo": ["+", " ", "+"]}, unfinished="the budget is reached")
    (table,) = make_loop_tables(made)
    assert table.rows[1].second is None and table.rows[1].ratio is None
    assert table.in_all.first is not None and table.in_all.first.tokens == 2 * 1050
    text = table.draw().text()
    assert "the tasks that both loops have finished" in text and "Not finished: the budget is reached." in text
    for wrong in (("react", "json"), ("react", "react"), ("react",)):
        with pytest.raises(plait.ConfigError):
            make_loop_tables(made, wrong)


def test_a_run_that_went_on_as_another_loop_and_a_guess_of_tokens_have_their_marks() -> None:
    made = comparison({"react": ["+"], "rewoo": ["+"]}, fell_back=True, usage=Usage(10, 5, estimated=True))
    text = make_loop_tables(made)[0].draw().text()
    assert "~15*" in text and "went on as another loop" in text and "estimated" in text


# -- tasks by model


def test_a_cell_has_the_mark_and_the_steps_of_its_run() -> None:
    marks = {("a", "A"): ("done", True, 3), ("a", "B"): ("flaw", False, 5), ("b", "A"): ("not done", False, 9)}
    contenders = tuple(contender("codeact", who) for who in ("a", "b"))
    results: list[CellResult] = [
        result(f"codeact @ {who}", task, success, steps=steps, grade=Grade(success, 0.0, mark, f"of {who}"))
        for (who, task), (mark, success, steps) in marks.items()
    ]
    tasks = (SuiteTask(id="A", question="Say\nthe date."), SuiteTask(id="B", question="Send " + "it " * 40))
    made = Comparison(
        name="trial",
        suite=Suite(word="world:six", about="", tasks=tasks),
        contenders=contenders,
        repeat=1,
        results=tuple(results),
    )
    table = make_task_table(made)
    lines = table.draw(why=True).text().splitlines()
    assert re.split(r"  +", lines[0]) == ["task", "what", "a", "b"]
    assert re.split(r"  +", lines[1]) == ["A", "Say the date.", "done 3", "not done 9"]
    assert re.split(r"  +", lines[2])[0] == "B" and re.split(r"  +", lines[2])[2:] == ["flaw 5", "-"]
    assert re.split(r"  +", lines[2])[1].endswith("…")
    assert re.split(r"  +", lines[3]) == ["done", "1 of 2", "0 of 1"]
    assert lines[-3:] == ["A, a: done: of a", "A, b: not done: of b", "B, a: flaw: of a"]
    assert "what" not in table.draw().text(50).splitlines()[0]
    assert table.json()["rows"][1]["cells"][1] == []


# -- the wire


def rows_of(journal: Path, run: plait.Run) -> list[Any]:
    return Journal.at(journal).rows(run.id)


BLOB = 'Thought: add.\nAction:\n```json\n{"action": "calculator", "action_input": "2 + 2"}\n```'


@pytest.mark.parametrize("transcript", ["chat", "user", "completion"])
def test_what_is_old_and_what_is_new_make_each_request_again(transcript: Any, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    model = plait.Scripted([BLOB, "Thought: so.\nFinal Answer: 4"])
    loop = plait.ReAct(transcript=transcript)
    run = plait.Agent(loop, model=model, tools=["calculator"], journal=journal).run("What is 2 + 2?")
    assert run.status == "answered"
    found = read_exchanges(Timeline(rows_of(journal, run)))
    bodies = [json.loads(row.body) for row in rows_of(journal, run) if isinstance(row.record, Thinking)]
    replies = [row.record.reply.text for row in rows_of(journal, run) if isinstance(row.record, ThoughtRecord)]
    assert len(found) == len(bodies) == 2
    for each, body, reply in zip(found, bodies, replies, strict=True):
        whole: list[list[str]] = []
        for piece in each.sent.pieces:
            if piece.goes_on:
                whole[-1][1] += piece.text
            else:
                whole.append([piece.role, piece.text])
        sent = body.get("messages") or [{"role": "prompt", "content": body["prompt"]}]
        assert whole == [[message["role"], message["content"]] for message in sent]
        assert list(each.sent.stop) == body["stop"] and each.answered is not None and each.answered.text == reply
    assert all(piece.new for piece in found[0].sent.pieces) and found[0].sent.letters_before == 0
    old = "".join(piece.text for piece in found[1].sent.pieces if not piece.new)
    new = "".join(piece.text for piece in found[1].sent.pieces if piece.new)
    assert "What is 2 + 2?" in old and "Observation: 4" in new and "Observation: 4" not in old
    # A prompt that only grows at its end was sent before to the last letter.
    assert found[1].sent.letters_before >= sum(len(piece.text) for piece in found[0].sent.pieces) - 40


def test_each_line_has_its_mark_and_a_retry_and_an_error_are_told(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    model = plait.Scripted([ServerFailed("it is down"), BLOB, "Thought: so.\nFinal Answer: 4"])
    agent = plait.Agent("react", model=model, tools=["calculator"], journal=journal)
    run = agent.run("What is 2 + 2?")
    found = read_exchanges(Timeline(rows_of(journal, run)))
    assert [each.sent.attempt for each in found] == [1, 2, 1]
    assert found[1].sent.letters_before == sum(len(piece.text) for piece in found[1].sent.pieces)
    text = render_exchanges(run.question, found)
    assert "--- response 1 · none came · " in text and "\n< error: ServerFailed: it is down\n" in text
    assert 'stop: "\\nObservation:"' in text and "+ Question: What is 2 + 2?" in text and "\n< Final Answer: 4" in text
    assert text.count("+ Question: What is 2 + 2?") == 1 and "= Question" not in text
    assert "= 2 messages as before" in text and "+ Observation: 4" in text
    full = render_exchanges(run.question, found, full=True)
    assert full.count("= Question: What is 2 + 2?") == 2 and full.count("+ Question: What is 2 + 2?") == 1


def test_markdown_holds_fences_of_any_length_and_nothing_draws_on_the_terminal(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    model = plait.Scripted(["Thought: ````` and \x1b[2J\nFinal Answer: 4"])
    run = plait.Agent("react", model=model, journal=journal).run("What \x1b[31mis it?")
    found = read_exchanges(Timeline(rows_of(journal, run)))
    assert "\x1b" not in render_exchanges(run.question, found) + render_exchanges_markdown(run.question, found)
    assert "``````text\nThought: ````` and" in render_exchanges_markdown(run.question, found)


def test_native_calls_are_told_in_requests_and_responses(tmp_path: Path) -> None:
    from plait.core import Call
    from plait.models.base import Abilities

    called = Reply("", finish="calls", calls=(Call("calculator", {"expression": "2 + 2"}, "c1"),))
    model = plait.Scripted([called, "It is 4."], abilities=Abilities(tools=True))
    agent = plait.Agent("tool_calling", model=model, tools=["calculator"], journal=tmp_path / "j.db")
    run = agent.run("What is 2 + 2?")
    text = render_exchanges(run.question, read_exchanges(Timeline(rows_of(tmp_path / "j.db", run))))
    assert "tools: calculator" in text
    assert '< calculator {"expression":"2 + 2"}' in text and '+ calculator {"expression":"2 + 2"}' in text


# -- on the command line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two scripted models that can be any phase."""
    add = '[{"ACTION": "calculator", "ARGUMENTS": ["2 + 2"], "EXPLANATION": "It adds."}]'
    script = {
        "reason": ["Add the two."],
        "react": [add],
        "reply": ["It is 4."],
        "plan": ["Plan: Add.\n#E1 = calculator[2 + 2]"],
        "solve": ["4"],
        "act": ["Thought: so.\nFinal Answer: 4"],
    }
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text(json.dumps({"replies": script}))
    return tmp_path


Tables: TypeAlias = Callable[..., str]


@pytest.fixture
def tables(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tables:
    """`plait classics ...` in the folder: what it prints on stdout."""
    monkeypatch.chdir(folder)

    def call(*words: str, code: int = 0) -> str:
        capfd.readouterr()
        ended = run_in_process(["classics", *words, "--journal", "j.db"])
        out, err = capfd.readouterr()
        assert ended == code and "defect" not in err, (words, ended, err)
        return out

    return call


def runs(folder: Path) -> int:
    return len(Journal(folder / "j.db").runs(limit=1000))


BOTH = ("--models", "scripted:one.json,scripted:two.json", "--tools", "calculator", "--quiet")
ONE = ("--models", "scripted:one.json", "--quiet")


def test_the_command_for_phases_runs_each_combination_once(folder: Path, tables: Tables) -> None:
    words = ("phases", "--question", "What is 2 + 2?", *BOTH)
    told = json.loads(tables(*words, "--json"))
    assert len(told["rows"]) == 8 == runs(folder) and told["unfinished"] == ""
    assert len({tuple(row["models"].values()) for row in told["rows"]}) == 8
    shown = tables(*words, "--markdown")
    assert runs(folder) == 8 and shown.splitlines()[0].startswith("| models | runs | reason s |")
    kept = json.loads(tables("phases", "--comparison", told["comparison"], "--json"))
    assert kept == told and runs(folder) == 8
    only = json.loads(tables(*words, "--model", "reason=scripted:one.json", "--json"))
    assert len(only["rows"]) == 4 and runs(folder) == 8  # those four are on record


def test_the_commands_for_rewoo_and_tasks_draw_their_tables(folder: Path, tables: Tables) -> None:
    told = json.loads(tables("rewoo", "--question", "What is 2 + 2?", "--tools", "calculator", *ONE, "--json"))
    (table,) = told["models"]
    assert table["loops"] == ["react", "rewoo"] and table["rows"][0]["rewoo"]["calls"] == 2
    assert "| in all |" in tables("rewoo", "--comparison", "last", "--markdown")
    count = runs(folder)
    drawn = tables("tasks", "--loop", "react", *ONE, "--why")
    lines = drawn.splitlines()
    assert [line.split()[0] for line in lines[1:7]] == list("ABCDEF") and runs(folder) == count + 6
    assert all(line.endswith("not done 1") for line in lines[1:7]) and "0 of 6" in lines[7]
    assert tables("tasks", "--loop", "react", *ONE, "--why") == drawn and runs(folder) == count + 6


def test_the_command_for_the_wire_shows_a_fresh_run_and_a_recorded_one_alike(folder: Path, tables: Tables) -> None:
    fresh = tables("wire", "What is 2 + 2?", *ONE)
    assert fresh.startswith("Question: What is 2 + 2?\n\n--- request 1 · step 1 · act · scripted:one.json")
    assert tables("wire", "--run", "last") == fresh == tables("wire", "What is 2 + 2?", *ONE)
    assert runs(folder) == 1
    (told,) = json.loads(tables("wire", "--run", "last", "--json"))["runs"]
    assert told["exchanges"][0]["answered"]["text"] == "Thought: so.\nFinal Answer: 4"


def test_wrong_usage_is_told_before_anything_is_run(folder: Path, tables: Tables) -> None:
    for words in (
        ["phases", "--model", "reson=scripted:one.json", *ONE],
        ["phases", "--model", "scripted:one.json", *ONE],
        ["phases", "--hardware", "100", *ONE],
        ["phases", "--models", ","],
        ["phases", "--json", "--markdown", *ONE],
        ["phases", "--suite", "basics:report", "--question", "?", *ONE],
        ["rewoo", "--loops", "react", *ONE],
        ["rewoo", "--loops", "react,nope", *ONE],
        ["tasks", "--comparison", "nope"],
        ["wire", "What?", "--run", "last"],
        ["wire", " ", *ONE],
        ["wire", "--run", "nope"],
    ):
        tables(*words, code=2)
    assert not (folder / "j.db").exists()
