"""The four classic tables say what is on the record: each number of them is found there again."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec import structs

import plait
from cli_support import run_in_process
from journal_rows import is_request, is_result
from lab_results import comparison, contender, result, spent
from plait.core import Reply, Usage
from plait.core.errors import ServerFailed
from plait.journal.store import Journal
from plait.journal.timeline import Timeline
from plait.lab import CellResult, Comparison, Contender, Grade, Suite, SuiteTask, compare
from plait.lab.classics import (
    make_phase_table,
    make_task_table,
    make_token_tables,
    make_wire_table,
    question_suite,
    read_exchanges,
    render_exchanges,
    replace_published_models,
)
from plait.lab.classics.phases import PHASES
from plait.lab.classics.published import TASK_MODELS
from plait.lab.grid import ReportTable, fence_text
from plait.models.prices import Rate

# -- phases


def phased(name: str, rate: Rate, tokens: int = 100) -> plait.Scripted:
    """A model for all phases of `phased`, that reports so many tokens in and out a call."""
    usage = Usage(tokens, tokens)
    add = '[{"ACTION": "calculator", "ARGUMENTS": ["2 + 2"], "EXPLANATION": "It adds."}]'
    script = {"reason": "Add the two.", "react": add, "reply": "It is 4."}
    return plait.Scripted({phase: [Reply(text, usage=usage)] for phase, text in script.items()}, name=name, rate=rate)


def test_each_named_row_is_run_and_costs_what_its_runs_cost(tmp_path: Path) -> None:
    dear, cheap = phased("dear", Rate("tokens", input=10.0, output=30.0)), phased("cheap", Rate("tokens", input=1.0))
    wanted = [(dear, cheap, dear), (dear, cheap, cheap), (cheap, cheap, dear), (cheap, cheap, cheap)]
    done = compare(
        question_suite("What is 2 + 2?"),
        tools=["calculator"],
        loops="phased",
        models=[dear],
        rows=[dict(zip(PHASES, models, strict=True)) for models in wanted],
        journal=tmp_path / "j.db",
    )
    table = make_phase_table(done, hardware=1.0)
    own = rows_of_kind(table, "own")
    assert [tuple(row["models"].values()) for row in own] == [tuple(model.spec for model in row) for row in wanted]
    # 100 tokens in and out: 0.004 USD a dear call, 0.0001 a cheap one.
    assert [row["usd"] for row in own] == [0.0081, 0.0042, 0.0042, 0.0003]
    assert [row["break_even"] for row in own] == [None, 257, 257, 129]  # 1 / 0.0039, 1 / 0.0078, up
    assert [row["tokens"] for row in own] == [600] * 4
    assert own[0]["rates"]["scripted:dear"] == "10 in, 30 out USD per 1,000,000 tokens"
    assert [row["usd"] for row in own] == [each.cost_usd for each in done.results]
    text = table.text()
    assert re.split(r"  +", text.splitlines()[0]) == ["row", *PHASES, "seconds", "USD", "tokens", "break-even"]
    assert text.splitlines()[2].split()[-3:] == ["0.00420", "600", "257"]
    assert rows_of_kind(table, "published")[-1]["break_even"] == 3  # 1 / 0.38524, up


def test_the_sums_of_phases_are_those_of_plait_costs(tmp_path: Path) -> None:
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
    theirs = [[row[heads.index(name)] for name in (">in all s", ">in all USD", ">runs")] for row in rows]
    table = make_phase_table(done)
    head, *ours = csv.reader(io.StringIO(table.csv()))
    assert [[row[head.index(name)] for name in ("seconds", "USD", "runs")] for row in ours[:2]] == theirs
    assert [row[head.index("right")] for row in ours] == ["3 of 3"] * 2 + [""] * 7


def test_prices_that_are_not_known_and_runs_that_are_missing_are_told() -> None:
    known, unknown = spent("reason", "a", 1, (1, 1), 0.5, 0.001), spent("reason", "b", 1, (1, 1), 0.5, None)
    made = made_by_hand({"a": [{"phases": (known,)}, {"phases": (known,)}], "b": [{"phases": (unknown,)}]}, "phased")
    table = make_phase_table(made, hardware=10)
    assert [row["break_even"] for row in rows_of_kind(table, "own")] == [None, "?"]
    text = table.text()
    assert "?: a price is unknown." in text and "not about the same tasks" in text and "Not finished" in text
    never = make_phase_table(
        made_by_hand({"a": [{"phases": (known,)}], "b": [{"phases": (known,)}]}, "phased"), hardware=1
    )
    assert rows_of_kind(never, "own")[1]["break_even"] == "never"


def test_a_crashed_row_shows_the_reason_in_place_of_its_numbers() -> None:
    known = spent("reason", "a", 1, (1, 1), 0.5, 0.001)
    crashed = {"phases": (known,), "status": "crashed", "reason": "the endpoint sent " + "nothing " * 20}
    made = made_by_hand({"a": [{"phases": (known,)}], "b": [crashed], "c": [{"phases": (known,)}]}, "phased")
    table = make_phase_table(made, hardware=1)
    lines = table.text().splitlines()
    assert max(map(len, lines)) <= 100 and "0.00100" not in lines[2] and "crashed: the endpoint sent" in lines[2]
    assert lines[1].startswith("own  ") and lines[3].strip().startswith("nothing")
    assert "See run run-phased @ b-t1-0." in " ".join(table.text().split())
    row = list(csv.reader(io.StringIO(table.csv())))[2]
    assert row[:4] == ["own", "b", "b", "b"] and row[4].startswith("crashed: the endpoint") and set(row[5:]) == {""}
    assert "| own | b | b | b | crashed: the endpoint" in table.markdown() and "<td>crashed: the end" in table.html()


def test_a_published_model_is_replaced_by_the_first_name_or_pattern_that_fits() -> None:
    found = replace_published_models({"gpt-4": "a", "gpt-*": "b", "*": "c"})
    assert [tuple(row.values()) for row in found[:3]] == [("b", "b", "b"), ("a", "a", "a"), ("b", "b", "b")]
    assert found[-1] == {"reason": "c", "react": "c", "reply": "c"} and len(found) == 7
    for wrong in ({"gpt-*": "b"}, {"*": "b", "gpt-5": "a"}):
        with pytest.raises(plait.ConfigError):
            replace_published_models(wrong)


def rows_of_kind(table: ReportTable, kind: str) -> list[dict[str, Any]]:
    return [row for row in table.rows if row["row"] == kind]


def made_by_hand(rows: dict[str, list[dict[str, Any]]], loop: str) -> Comparison:
    """A comparison of a loop with models by name, a result a task as far as there are."""
    contenders = tuple(Contender(f"{loop} @ {who}", loop, who, dict.fromkeys(PHASES, who)) for who in rows)
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
    (table,) = make_token_tables(done)
    assert [(row["task"], row["react"]["tokens"], row["rewoo"]["tokens"]) for row in table.rows] == [
        ("ann", 730, 635),
        ("bob", 730, 635),
        ("in all", 1460, 1270),
        ("published", 3265, 2661),
    ]
    whole = table.rows[2]
    assert (whole["react"]["calls"], whole["react"]["right"]) == (4, 2)
    assert (whole["rewoo"]["calls"], whole["rewoo"]["right"]) == (4, 0)
    assert (whole["difference"], whole["share"]) == (190, 190 / 1460)
    lines = [re.split(r"  +", line) for line in table.text(150).splitlines()[2:]]
    assert lines[3] == ["in all", "2 of 2", "4", "1,460", "0 of 2", "4", "1,270", "190", "13.0 %"]
    assert lines[4] == ["published", "-", "-", "3,265", "-", "-", "2,661", "604", "18.5 %"]


def test_a_task_that_one_loop_has_not_finished_is_in_no_sum() -> None:
    made = comparison({"react": ["+", "+", "-"], "rewoo": ["+", " ", "+"]}, unfinished="the budget is reached")
    (table,) = make_token_tables(made)
    assert table.rows[1]["rewoo"] is None and table.rows[1]["share"] is None
    assert table.rows[3]["react"]["tokens"] == 2 * 1050
    text = table.text()
    assert "the tasks that both loops have finished" in text and "Not finished: the budget is reached." in text
    for wrong in (("react", "json"), ("react", "react"), ("react",)):
        with pytest.raises(plait.ConfigError):
            make_token_tables(made, wrong)


def test_a_task_with_a_crashed_run_shows_the_reason_and_is_in_no_sum() -> None:
    made = comparison({"react": ["+", "+"], "rewoo": ["+", "+"]})
    results = [structs.replace(each, status="crashed", reason="It broke.") for each in made.results[-1:]]
    (table,) = make_token_tables(structs.replace(made, results=(*made.results[:-1], *results)))
    assert table.rows[1]["crash"] == "rewoo crashed: It broke. See run run-rewoo @ local-t2-0."
    (line,) = (line for line in table.text().splitlines() if line.startswith("t2"))
    assert line.startswith("t2         rewoo crashed: It broke. See run")
    assert table.rows[2]["react"]["tokens"] == table.rows[2]["rewoo"]["tokens"] == 1050


def test_published_totals_stand_only_beside_the_loops_that_they_are_of() -> None:
    (table,) = make_token_tables(comparison({"json": ["+"], "rewoo": ["+"]}), ("json", "rewoo"))
    assert [row["task"] for row in table.rows] == ["t1", "in all"]


def test_a_run_that_went_on_as_another_loop_and_a_guess_of_tokens_have_their_marks() -> None:
    made = comparison({"react": ["+"], "rewoo": ["+"]}, fell_back=True, usage=Usage(10, 5, estimated=True))
    text = make_token_tables(made)[0].text()
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
    table = make_task_table(made, why=True)
    lines = [re.split(r"  +", line) for line in table.text(200).splitlines()]
    assert lines[0] == ["task", "what", "a", "b", *(f"published {name}" for name in TASK_MODELS)]
    assert lines[1] == ["A", "Say the date.", "done 3", "not done 9", "done 4", "done 3", "done 4"]
    assert lines[2][0] == "B" and lines[2][2:] == ["flaw 5", "-", "done 5", "done 7", "done 7"]
    assert lines[2][1].endswith("…")
    assert lines[3] == ["done", "1 of 2", "0 of 1", "2 of 2", "2 of 2", "2 of 2"]
    assert table.notes[1:4] == ("A, a: done: of a", "A, b: not done: of b", "B, a: flaw: of a")
    assert "what" not in make_task_table(made).text(90).splitlines()[0]
    assert table.rows[1]["cells"]["b"] == []


def test_a_crashed_cell_has_no_steps_and_its_reason_stands_below() -> None:
    made = comparison({"codeact": ["+", "-"]}, status="crashed", reason="It broke.", grade=Grade(False, 0.0, "crashed"))
    table = make_task_table(made)
    lines = table.text().splitlines()
    assert lines[1].split() == ["t1", "0?", "crashed"] and "published" not in lines[0]
    assert "local: 2 of 2 runs crashed: It broke. See run run-codeact @ local-t1-0." in table.text()


def test_long_names_of_models_fit_in_100_columns_in_each_table() -> None:
    names = [f"openai:a-model-with-{'a-very-' * 12}long-name-{n}" for n in range(4)]
    known = spent("reason", "a", 1, (10**7, 1), 0.5, 0.001)
    wide = make_phase_table(made_by_hand({name: [{"phases": (known,)}] * 3 for name in names}, "phased"), hardware=1500)
    made = comparison({f"codeact({n})": ["+"] * 6 for n in range(4)}, who=names)
    pair = comparison({"react": ["+"], "rewoo(max_parse_errors=12345678901234567890)": ["+"]}, who=names[0])
    loops = [each.loop for each in pair.contenders]
    for table in (wide, make_task_table(six(made)), *make_token_tables(pair, loops)):
        assert max(map(len, table.text().splitlines())) <= 100, table.text()
    for number in range(4):
        assert any(line.strip().startswith("own") and f"-{number}" in line for line in wide.text().splitlines())
        assert f"|{names[number]}|".replace("|", " | ") in wide.markdown() and names[number] in wide.csv()


def six(made: Comparison) -> Comparison:
    """The same comparison about the tasks A to F."""
    tasks = tuple(SuiteTask(id=letter, question="Send it.") for letter in "ABCDEF")
    results = tuple(structs.replace(each, task="ABCDEF"[int(each.task[1:]) - 1]) for each in made.results)
    return structs.replace(made, suite=structs.replace(made.suite, tasks=tasks), results=results)


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
    bodies = [json.loads(row.body) for row in rows_of(journal, run) if is_request(row.record)]
    replies = [row.record.value.text for row in rows_of(journal, run) if is_result(row.record, "think")]
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
    shown = fence_text(render_exchanges(run.question, found))
    assert "\x1b" not in shown and shown.startswith("``````text\nQuestion: What ") and "Thought: ````` and" in shown


def test_a_long_line_goes_on_in_the_next_one_and_no_letter_is_lost(tmp_path: Path) -> None:
    answer = "Thought: " + "many words  with spaces " * 12 + "x" * 250 + "\n\ttab\nFinal Answer: 4"
    agent = plait.Agent("react", model=plait.Scripted([answer]), journal=tmp_path / "j.db")
    run = agent.run("What is it?")
    found = read_exchanges(Timeline(rows_of(tmp_path / "j.db", run)))
    shown = render_exchanges(run.question, found)
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.replace("\n  ", "") == render_exchanges(run.question, found, width=None)


def test_the_tokens_of_requests_stand_beside_the_published_ones(tmp_path: Path) -> None:
    model = plait.Scripted([Reply(BLOB, usage=Usage(1200, 30)), Reply("Final Answer: 4", usage=Usage(1300, 5))])
    run = plait.Agent("react", model=model, tools=["calculator"], journal=tmp_path / "j.db").run("What is 2 + 2?")
    found = read_exchanges(Timeline(rows_of(tmp_path / "j.db", run)))
    lines = make_wire_table(found).text().splitlines()[2:8]
    assert [re.split(r"  +", line) for line in lines] == [
        ["request", "in", "out", "published in", "published out"],
        ["1", "1,200", "30", "313", "56"],
        ["2", "1,300", "5", "464", "40"],
        ["3", "-", "-", "520", "40"],
        ["4", "-", "-", "580", "20"],
        ["in all", "2,500", "35", "1,877", "156"],
    ]
    failed = plait.Scripted([ServerFailed("it is down"), "Final Answer: 4"])
    run = plait.Agent("react", model=failed, journal=tmp_path / "j.db").run("What is 2 + 2?")
    shown = make_wire_table(read_exchanges(Timeline(rows_of(tmp_path / "j.db", run)))).text()
    assert "\n1        ServerFailed: it is down\n2 " in shown
    assert make_wire_table(found, beside=False).csv() == "request,in,out\n1,1200,30\n2,1300,5\nin all,2500,35\n"


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


def test_the_command_for_phases_runs_each_named_row_once(folder: Path, tables: Tables) -> None:
    same = ("--question", "What is 2 + 2?", *BOTH)
    words = (
        "phases",
        *(f"--row=reason=scripted:{one}.json,react=scripted:one.json" for one in ("one", "two")),
        *same[:2],
    )
    words = (*words, "--model", "reply=scripted:two.json", "--tools", "calculator", "--quiet")
    told = json.loads(tables(*words, "--json"))
    (table,) = told["tables"]
    own = [tuple(row["models"].values()) for row in table["rows"] if row["row"] == "own"]
    assert own == [
        ("scripted:one.json", "scripted:one.json", "scripted:two.json"),
        ("scripted:two.json", "scripted:one.json", "scripted:two.json"),
    ]
    assert len(table["rows"]) == 2 + 7 and runs(folder) == 2 and told["unfinished"] == ""
    assert tables(*words, "--markdown").startswith("| row | reason | react | reply | seconds | USD | tokens |")
    kept = json.loads(tables("phases", "--comparison", told["comparison"], "--json"))
    assert kept == told and runs(folder) == 2
    assert len(json.loads(tables("phases", *same, "--json"))["tables"][0]["rows"]) == 2 + 7  # a row for each model


def test_the_seven_published_rows_are_run_with_ones_own_models(folder: Path, tables: Tables) -> None:
    mapping = "gpt-*=scripted:one.json,*=scripted:two.json"
    words = ("phases", "--published", mapping, "--question", "What is 2 + 2?", "--tools", "calculator", "--quiet")
    rows = list(csv.DictReader(io.StringIO(tables(*words, "--csv"))))
    assert [row["row"] for row in rows] == ["own", "published"] * 7 and runs(folder) == 3
    assert rows[12]["reply"] == "scripted:two.json" and rows[13]["reply"] == "llongorca-13b"
    tables(*words, "--row", "reason=local", code=2)
    tables("phases", "--comparison", "last", "--published", "*=scripted:three.json", code=2)


def test_the_commands_for_tokens_and_tasks_draw_their_tables(folder: Path, tables: Tables) -> None:
    told = json.loads(tables("tokens", "--question", "What is 2 + 2?", "--tools", "calculator", *ONE, "--json"))
    (table,) = told["tables"]
    assert table["rows"][0]["rewoo"]["calls"] == 2 and table["rows"][-1]["difference"] == 604
    assert "| in all |" in tables("tokens", "--comparison", "last", "--markdown")
    count = runs(folder)
    drawn = tables("tasks", "--loop", "react", *ONE, "--why")
    lines = [re.split(r"  +", line) for line in drawn.splitlines()[1:8]]
    assert [line[0] for line in lines] == [*"ABCDEF", "done"] and runs(folder) == count + 6
    assert all("not done 1" in line for line in lines[:6]) and "0 of 6" in lines[6]
    assert tables("tasks", "--loop", "react", *ONE, "--why") == drawn and runs(folder) == count + 6


def test_other_wordings_of_the_tasks_are_asked_and_graded_as_the_six(folder: Path, tables: Tables) -> None:
    (folder / "words.txt").write_text("".join(f"Wording {letter}.\n\n" for letter in "ABCDEF"))
    words = ("tasks", "--tasks", "words.txt", "--loop", "react", *ONE, "--limit", "2")
    (table,) = json.loads(tables(*words, "--json"))["tables"]
    assert [row["question"] for row in table["rows"]] == ["Wording A.", "Wording B.", ""]
    assert {row.head.question for row in Journal(folder / "j.db").runs(limit=9)} == {"Wording A.", "Wording B."}
    assert table["rows"][0]["cells"]["scripted:one.json"][0]["mark"] == "not done"
    (folder / "words.txt").write_text("One.\n")
    tables(*words, code=2)


def test_prompts_system_and_options_of_the_loop_are_those_of_plait_run(folder: Path, tables: Tables) -> None:
    (folder / "own" / "react").mkdir(parents=True)
    (folder / "own" / "react" / "question.j2").write_text("Asked: {{ question }}")
    (folder / "system.txt").write_text("A system of its own.")
    words = ("--prompts", "own", "--system", "system.txt", "--set", "dialect=lines", *ONE)
    shown = tables("wire", "What is 2 + 2?", *words)
    assert "\n[system]\n+ A system of its own.\n[user]\n+ Asked: What is 2 + 2?\n" in shown
    (head,) = (row.head for row in Journal(folder / "j.db").runs(limit=9))
    assert head.loop["options"]["dialect"] == "lines"
    tables("tokens", "--question", "2 + 2?", "--tools", "calculator", *words)  # rewoo has no dialect, react has
    tables("tokens", "--question", "2 + 2?", *ONE, "--set", "nothing=1", code=2)


def test_a_crashed_run_ends_the_command_with_1_and_its_reason(folder: Path, tables: Tables) -> None:
    (folder / "bad.json").write_text(json.dumps({"replies": {"": [{"error": "ContentFiltered", "message": "No."}]}}))
    shown = tables("phases", "--models", "scripted:bad.json", "--question", "2 + 2?", "--quiet", code=1)
    assert "crashed: " in shown.splitlines()[1] and "No." in shown.splitlines()[1]


def test_each_command_writes_each_format(folder: Path, tables: Tables) -> None:
    for command, *others in (["phases"], ["tokens"], ["tasks", "--loop", "react"], ["wire", "What?"]):
        asked = () if command in ("tasks", "wire") else ("--question", "What is 2 + 2?")
        words = (command, *others, *asked, "--tools", "calculator", *ONE)
        text = tables(*words, "--html", "page.html")
        assert max(map(len, text.splitlines())) <= 100 and "ublished" in text
        page = (folder / "page.html").read_text()
        assert page.count("<table>") == 1 and "ublished" in page and "<script" not in page and "://" not in page
        assert "ublished" in tables(*words, "--markdown") and "|---|" in tables(*words, "--markdown")
        assert json.loads(tables(*words, "--json"))["table"] == command
        heads, *rows = csv.reader(io.StringIO(tables(*words, "--csv")))
        assert rows and all(len(row) == len(heads) for row in rows)


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
        ["phases", "--row", "reson=scripted:one.json", *ONE],
        ["phases", "--row", "reason", *ONE],
        ["phases", "--published", "gpt-4=local", *ONE],
        ["tasks", "--tasks", "nothing.txt", *ONE],
        ["phases", "--html", "nowhere/page.html", *ONE],
        ["phases", "--model", "scripted:one.json", *ONE],
        ["phases", "--hardware", "100", *ONE],
        ["phases", "--models", ","],
        ["phases", "--json", "--markdown", *ONE],
        ["phases", "--suite", "basics:report", "--question", "?", *ONE],
        ["tokens", "--loops", "react", *ONE],
        ["tokens", "--loops", "react,nope", *ONE],
        ["tasks", "--comparison", "nope"],
        ["wire", "What?", "--run", "last"],
        ["wire", " ", *ONE],
        ["wire", "--run", "nope"],
    ):
        tables(*words, code=2)
    assert not (folder / "j.db").exists()
