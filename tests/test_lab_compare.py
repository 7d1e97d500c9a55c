"""A comparison runs every cell once, on the record, and goes on where it was, whatever happened in between."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import PLAIT, Shell
from fork_server import run_forked
from models_server import Asked, Server
from patience import patience
from plait.core import Reply, Usage
from plait.core.errors import RateLimited
from plait.journal.results import Results
from plait.journal.store import Journal, wait_for
from plait.lab import Progress, SuiteTask, acompare, compare, load_comparison, report
from plait.lab.classics import make_phase_table
from plait.lab.schedule import EndpointGate
from plait.models.base import Abilities
from plait.models.prices import Rate
from plait.models.rejections import list_rejections
from plait.models.settings import ModelSettings

TASKS = [{"id": name, "question": f"What is {name}?", "answer": name} for name in ("a", "b", "c", "d")]
RIGHT = "Thought: I know.\nFinal Answer: a"


def scripted(*replies: Any, **options: Any) -> plait.Scripted:
    return plait.Scripted(list(replies) or [RIGHT], **options)


def runs_of(journal: Path) -> list[tuple[str, str]]:
    """Label and status of every run in a journal."""
    connection = sqlite3.connect(journal)
    try:
        return connection.execute("SELECT label, status FROM runs ORDER BY n").fetchall()
    finally:
        connection.close()


def test_every_cell_is_a_recorded_run_and_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    journal, model = tmp_path / "j.db", scripted(RIGHT, RIGHT, RIGHT)
    told: list[Progress] = []
    first = compare(TASKS, loops="react,json", models=[model], repeat=2, journal=journal, tell=told.append, name="mine")
    assert (first.cells, len(first.results), first.unfinished, first.whole) == (16, 16, "", True)
    right = {(each.variant.split()[0], each.task): each.grade.success for each in first.results}
    assert [right["react", task["id"]] for task in TASKS] == [True, False, False, False]
    assert not any(ok for (loop, _), ok in right.items() if loop == "json")  # the reply is not in json's format
    labels = [label for label, _ in runs_of(journal)]
    assert len(set(labels)) == len(labels) == 16
    assert [each.finished for each in told] == list(range(17)) and told[-1].left == 0
    sent = model.sent
    again = compare(TASKS, loops="react,json", models=[model], repeat=2, journal=journal, name="mine")
    assert again == first and model.sent == sent and load_comparison("mine", journal) == first


def test_cells_are_shared_between_comparisons_and_a_changed_prompt_makes_new_ones(tmp_path: Path) -> None:
    journal, model = tmp_path / "j.db", scripted()
    small = compare(TASKS, loops="react", models=[model], limit=2, journal=journal)
    large = compare(TASKS, loops="react", models=[model], journal=journal)
    assert large.results[:2] == small.results and len(runs_of(journal)) == 4 and small.name != large.name
    prompts = tmp_path / "prompts" / "react"
    prompts.mkdir(parents=True)
    (prompts / "system.txt").write_text("Answer.")
    compare(TASKS, loops="react", models=[model], prompts=tmp_path / "prompts", journal=journal)
    assert len(runs_of(journal)) == 8
    compare(TASKS, loops="react", models=[model], limits=plait.Limits(steps=3), journal=journal)
    assert len(runs_of(journal)) == 12
    compare(TASKS, loops="react", models=[model], journal=journal, again=True)
    assert len(runs_of(journal)) == 16


def test_equal_tasks_have_runs_of_their_own_and_count_as_one(tmp_path: Path) -> None:
    journal, model = tmp_path / "j.db", scripted(RIGHT)
    tasks = [{"id": name, "question": "How many?", "answer": "a"} for name in "abc"]
    made = compare(tasks, loops="react", models=[model], repeat=2, journal=journal)
    assert made.whole and len({each.run for each in made.results}) == 6 and made.rows[0].tasks == 1
    (listed,) = wait_for(Results(Journal.at(journal).store).list_progress())
    assert (listed["finished"], listed["cells"]) == (6, 6)
    compare(tasks[:2], loops="react", models=[model], repeat=2, journal=journal)
    assert len(runs_of(journal)) == 6  # they are shared with other comparisons all the same


def test_fail_if_wrong_or_worse(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    lines = [json.dumps({"id": str(n), "question": f"{n} + 1?", "answer": "a"}) for n in range(6)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "good.json").write_text(json.dumps([RIGHT]), "utf-8")
    (tmp_path / "bad.json").write_text('["Final Answer: 5"]', "utf-8")
    words = ("compare", "tasks.jsonl", "--loops", "react", "--quiet", "--journal", "j.db", "--models")
    both, bad = "scripted:good.json,scripted:bad.json", "scripted:bad.json,scripted:good.json"
    assert [shell(*words, both, *more).code for more in ((), ("--fail-if", "wrong"), ("--fail-if", "worse"))] == [
        0,
        1,
        1,
    ]
    assert shell(*words, bad, "--fail-if", "worse").code == 0  # the second row is better
    assert shell(*words, both, "--fail-if", "worse", "--limit", "5").code == 0  # too few to tell
    assert shell(*words, "scripted:good.json", "--fail-if", "wrong").code == 0


def test_a_run_that_failed_or_crashed_by_itself_is_a_result(tmp_path: Path) -> None:
    gives_up = '{"thought": "no", "tool": "fail_task", "tool_input": "I can not."}'
    broken = scripted(ValueError("a defect of the model's client"))
    failed = compare(TASKS, loops="json", models=[scripted(gives_up)], journal=tmp_path / "j.db", limit=1)
    crashed = compare(TASKS, loops="json", models=[broken], journal=tmp_path / "k.db", limit=1)
    assert [each.status for each in (*failed.results, *crashed.results)] == ["failed", "crashed"]
    assert crashed.results[0].grade.mark == "crashed" and "ValueError" in crashed.results[0].grade.why


def test_it_stops_at_the_budget_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    rate = Rate("tokens", input=1000.0, output=1000.0)  # USD per million tokens
    model = scripted(Reply(RIGHT, usage=Usage(900, 100)), rate=rate)  # 1 USD a run
    options: dict[str, Any] = {"loops": "react", "models": [model], "journal": tmp_path / "j.db"}
    first = compare(TASKS, budget=2.5, **options)
    assert len(first.results) == 2 and "the budget of 2.5 USD is reached: 2.00000 USD are spent" in first.unfinished
    assert compare(TASKS, budget=2.5, **options).results == first.results
    assert len(compare(TASKS, budget=4.0, **options).results) == 4
    unknown = compare(TASKS, loops="react", models=[scripted(name="x")], budget=1.0, journal=tmp_path / "k.db")
    assert len(unknown.results) == 1 and "price of a model is unknown" in unknown.unfinished


def test_the_budget_counts_what_a_grader_spends(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        'from plait.lab import Grade\n\ndef dear(run, task):\n    return Grade(True, 1.0, "right", cost_usd=1.0)\n'
    )
    tasks = [{**task, "grader": f"{tmp_path}/mine.py:dear"} for task in TASKS]
    model = scripted(Reply(RIGHT, usage=Usage(0, 0)), rate=Rate("tokens"))
    done = compare(tasks, loops="react", models=[model], budget=2.5, journal=tmp_path / "j.db")
    assert len(done.results) == 2 and "2.00000 USD are spent" in done.unfinished


def test_a_cell_that_is_tried_again_has_its_share_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next cell goes first, as long as the budget is enough for both."""
    monkeypatch.setattr("plait.lab.schedule.FIRST_PAUSE", 0.01)
    asked: list[int] = []

    def answer(think: Any) -> Reply:
        asked.append(1)
        if len(asked) in (2, 4):
            raise RateLimited("busy")
        return Reply(RIGHT, usage=Usage(900, 100))

    model = plait.Scripted([answer], rate=Rate("tokens", input=1000.0, output=1000.0))
    done = compare(
        TASKS, loops="react", models=[model], budget=3.0, journal=tmp_path / "j.db", limits=plait.Limits(retries=0)
    )
    assert len(done.results) == 3 and "the budget of 3 USD is reached" in done.unfinished


def completion(text: str) -> dict[str, Any]:
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }


async def test_an_outage_is_no_result_and_the_cell_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.lab.schedule.FIRST_PAUSE", 0.01)
    down = True

    async def answer(asked: Asked) -> None:
        await (asked.answer(503, {"error": "down"}) if down else asked.answer(200, completion(RIGHT)))

    async with Server(answer) as server:
        options: dict[str, Any] = {
            "loops": "react",
            "models": [server.model()],
            "journal": tmp_path / "j.db",
            "limits": plait.Limits(retries=0),
        }
        said: list[str] = []
        first = await acompare(TASKS, **options, tell=lambda progress: said.append(progress.said))
        assert not first.results and "does not answer: " in first.unfinished and "(503" in first.unfinished
        assert [re.findall("Pausing, attempt (.)", each) for each in said if each] == [["2"], ["3"], ["4"], ["5"], []]
        table = report.render_text(first)
        assert "not answered: " in table and "rejected" not in table
        down = False
        second = await acompare(TASKS, **options)
        assert len(second.results) == 4 and not second.unfinished
        assert {each.status for each in second.results} == {"answered"}
        labels = [label for label, _ in runs_of(tmp_path / "j.db")]
        assert len(labels) == len(set(labels)) == 4  # the runs that met the outage were gone on with


async def test_an_endpoint_that_fails_at_one_task_only_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.lab.schedule.FIRST_PAUSE", 0.01)

    async def answer(asked: Asked) -> None:
        bad = "What is b?" in asked.raw.decode()
        await (asked.answer(500, {"error": "no"}) if bad else asked.answer(200, completion(RIGHT)))

    async with Server(answer) as server:
        done = await acompare(
            TASKS,
            loops="react",
            models=[server.model()],
            journal=tmp_path / "j.db",
            limits=plait.Limits(retries=0),
        )
        assert {each.task for each in done.results} == {"a", "c", "d"}
        assert [each.task for each in done.not_measured] == ["b"] and "fails at b (ServerFailed)" in done.unfinished


async def test_an_outage_after_a_finished_cell_gives_no_cell_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.lab.schedule.FIRST_PAUSE", 0.01)
    number = 0

    async def answer(asked: Asked) -> None:
        nonlocal number
        number += 1
        await (asked.answer(503, {"error": "down"}) if 2 <= number <= 5 else asked.answer(200, completion(RIGHT)))

    async with Server(answer) as server:
        options: dict[str, Any] = {"models": [server.model()], "limits": plait.Limits(retries=0)}
        done = await acompare(TASKS, loops="react", journal=tmp_path / "j.db", **options)
        assert len(done.results) == 4 and not done.unfinished


async def test_a_rejected_request_is_not_measured_and_is_sent_again_by_the_next_comparison(tmp_path: Path) -> None:
    missing = True

    async def answer(asked: Asked) -> None:
        if missing and asked.body["model"] == "nope":
            await asked.answer(404, {"error": {"message": "The model `nope` does not exist."}})
        else:
            await asked.answer(200, completion(RIGHT))

    async with Server(answer) as server:
        options: dict[str, Any] = {
            "loops": "react",
            "models": [server.model(spec="test:good"), server.model(spec="test:nope", name="nope")],
            "journal": tmp_path / "j.db",
        }
        done = await acompare(TASKS, **options)
        good, nope = done.rows
        assert (good.n, good.not_measured) == (4, 0)
        assert (nope.n, nope.not_measured, nope.success, nope.cost_usd) == (0, 3, None, None)
        assert not done.whole and [pair["word"] for pair in report.as_object(done)["pairs"]] == ["no common tasks"]
        shown = report.render_text(done)
        assert " rejected: " in shown and "not answered" not in shown
        assert "not measured" in shown and "The model `nope` does not exist" in shown
        assert f"See run {done.not_measured[0].run}." in shown and "0.00000" not in shown.split("test:nope")[1][:80]
        assert report.render_text(load_comparison("last", tmp_path / "j.db")) == shown
        missing = False
        again = await acompare(TASKS, **options)
        assert again.whole and not again.not_measured and again.rows[1].n == 4


async def test_a_prompt_that_the_content_filter_refuses_is_a_result_of_the_loop(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> None:
        bad = "What is b?" in asked.raw.decode()
        refusal = {"error": {"code": "content_filter", "message": "The prompt triggered the content policy."}}
        await (asked.answer(400, refusal) if bad else asked.answer(200, completion(RIGHT)))

    async with Server(answer) as server:
        done = await acompare(TASKS, loops="react", models=[server.model()], journal=tmp_path / "j.db")
    assert {each.task: each.status for each in done.results}["b"] == "crashed" and done.whole


async def test_the_table_of_phases_compares_no_price_with_a_row_that_was_not_measured(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> None:
        await asked.answer(404, {"error": {"message": "The model does not exist."}})

    async with Server(answer) as server:
        rate = Rate("tokens", input=1.0, output=1.0)
        models = [server.model(spec="test:a", rate=rate), server.model(spec="test:b", rate=rate)]
        done = await acompare(TASKS, loops="phased", models=models, journal=tmp_path / "j.db")
    table = make_phase_table(done, hardware=1500)
    assert [row["break_even"] for row in table.rows if row["row"] == "own"] == [None, None]
    lines = [line for line in table.text(300).splitlines() if line.startswith("own")]
    assert len(lines) == 2 and all("crashed: " in line and "does not exist" in line for line in lines)


async def test_a_run_whose_tool_calls_became_text_is_counted(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> None:
        if "tools" in asked.body:
            await asked.answer(400, {"error": {"message": "tools is not supported by this model"}})
        else:
            await asked.answer(200, completion("a"))

    async with Server(answer) as server:
        models = [server.model(abilities=Abilities(tools=False)), server.model(spec="test:expected")]
        options = {"journal": tmp_path / "j.db", "tools": ["calculator"], "limit": 1}
        done = await acompare(TASKS, loops="tool_calling", models=models, **options)
    known, expected = done.rows
    assert known.calls_as_text == 1 and "1 calls as text" in report.render_text(done)
    assert (expected.n, expected.not_measured) == (0, 1)  # its endpoint rejects what the loop is for


async def test_a_rejected_setting_of_an_axis_is_not_measured_and_nothing_is_learned_of_it(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> None:
        if asked.body.get("temperature") == 2:
            await asked.answer(400, {"error": {"message": "temperature: must be 1"}})
        else:
            await asked.answer(200, completion("Thought: ok\nFinal Answer: a"))

    async with Server(answer) as server:
        models = [
            server.model(spec=f"test:m@temperature={value}", settings=ModelSettings(temperature=value))
            for value in (1, 2)
        ]
        done = await acompare(TASKS, loops="react", models=models, journal=tmp_path / "j.db", limit=1)
        assert [(row.n, row.not_measured) for row in done.rows] == [(1, 0), (0, 1)]
        assert list_rejections(models[0]) == []


async def test_an_endpoint_that_says_too_many_is_asked_by_fewer_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.lab.schedule.FIRST_PAUSE", 0.01)
    busy = most = refused = 0

    async def answer(asked: Asked) -> None:
        nonlocal busy, most, refused
        busy += 1
        most = max(most, busy)
        try:
            await asyncio.sleep(0.02)
            if busy > 2:
                refused += 1
                await asked.answer(429, {"error": "slow down"}, Retry_After="0")
            else:
                await asked.answer(200, completion(RIGHT))
        finally:
            busy -= 1

    tasks = [{"id": str(n), "question": f"What is {n}?", "answer": "a"} for n in range(30)]
    async with Server(answer) as server:
        done = await acompare(
            tasks,
            loops="react",
            models=[server.model()],
            jobs=8,
            journal=tmp_path / "j.db",
            limits=plait.Limits(retries=0),
        )
    assert len(done.results) == 30 and all(each.grade.success for each in done.results)
    assert most > 2 and 0 < refused < 30


async def test_a_gate_lets_through_as_many_as_it_may_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, inside, most = EndpointGate("x", 3), 0, 0

    async def one() -> None:
        nonlocal inside, most
        async with gate.through():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    await asyncio.gather(*(one() for _ in range(9)))
    assert most == 3
    await gate.note_outage("too many", began=time.monotonic(), after=0.2, lasting=False, busy=True)
    began = time.monotonic()
    await asyncio.wait_for(one(), 5)
    assert time.monotonic() - began >= 0.2 and gate.now == 1


def test_phases_with_models_of_their_own_give_the_product(tmp_path: Path) -> None:
    models = {name: scripted(name=name) for name in ("one", "two", "three")}
    done = compare(
        TASKS,
        loops="phased,react",
        models=[models["one"]],
        phases={"reason": [models["one"], models["two"]], "reply": [models["three"], models["one"]]},
        limit=1,
        journal=tmp_path / "j.db",
    )
    assert [each.who for each in done.contenders] == [
        "reason=scripted:one react=scripted:one reply=scripted:three",
        "scripted:one",
        "reason=scripted:two react=scripted:one reply=scripted:three",
        "reason=scripted:two react=scripted:one reply=scripted:one",
        "scripted:one",
    ]


def test_wrong_input_is_told_before_anything_is_run(tmp_path: Path) -> None:
    model = scripted()
    wrong: list[dict[str, Any]] = [
        {"loops": "reakt"},
        {"phases": {"reson": [model]}},
        {"repeat": 0},
        {"jobs": 0},
        {"limit": 0},
        {"journal": False},
        {"model": "local"},
        {"tools": ["no-such-tool"]},
        {"loops": "react(dialekt=lines)"},
    ]
    for changes in wrong:
        with pytest.raises(plait.ConfigError):
            compare(TASKS, **{"loops": "react", "models": [model], "journal": tmp_path / "j.db", **changes})
    with pytest.raises(plait.ConfigError, match="No grader is named"):
        compare([SuiteTask(id="1", question="?", grader="exakt")], models=[model], journal=tmp_path / "j.db")
    assert model.sent == 0 and not (tmp_path / "j.db").exists()


# -- on the command line


def files(folder: Path, delay: float = 0.0, count: int = 4) -> None:
    (folder / "tasks.jsonl").write_text(
        "".join(json.dumps({"question": f"What is {n}?", "answer": "a"}) + "\n" for n in range(count))
    )
    (folder / "script.json").write_text(json.dumps({"replies": [RIGHT] * 6, "delay": delay}))


def plait_compare(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [PLAIT, "compare", "tasks.jsonl", "--models", "scripted:script.json", "--journal", "j.db", *words]
    return run_forked(command, cwd=folder, **options)


def test_the_command_prints_the_table_and_what_is_on_record_is_shown_again(tmp_path: Path) -> None:
    files(tmp_path)
    done = plait_compare(tmp_path, "--loops", "react,json", "--name", "mine", "--json", "--cells")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(row["loop"], row["success"], row["n"]) for row in told["rows"]] == [
        ("react", 1.0, 4),
        ("json", 0.0, 4),
    ]
    wanted = {"loop", "models", "success", "n", "interval", "steps", "calls", "tokens", "seconds", "cost_usd"}
    assert all(wanted <= set(row) for row in told["rows"])
    assert told["rows"][0]["models"] == {"act": "scripted:script.json"} and len(told["cells"]) == 8
    assert "8 of 8" in done.stderr
    again = run_forked(
        [PLAIT, "results", "show", "mine", "--journal", "j.db", "--csv", "--html", "t.html"], cwd=tmp_path
    )
    assert again.returncode == 0, again.stderr
    assert [row["loop"] for row in csv.DictReader(io.StringIO(again.stdout))] == ["react", "json"]
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")
    listed = run_forked([PLAIT, "results", "list", "--journal", "j.db"], cwd=tmp_path)
    assert "mine" in listed.stdout and "8 of 8" in listed.stdout


def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path: Path) -> None:
    files(tmp_path, delay=0.05, count=20)
    command = [PLAIT, "compare", "tasks.jsonl", "--models", "scripted:script.json", "--journal", "j.db"]
    words = ["--loops", "react,json", "--jobs", "3"]
    process = subprocess.Popen([*command, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + patience(60)
        while time.monotonic() < until:
            with_result = finished(tmp_path / "j.db")
            if with_result >= 7:
                break
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.communicate()
    before = finished(tmp_path / "j.db")
    assert 7 <= before < 40
    done = plait_compare(tmp_path, *words, "--json", "--cells")
    assert done.returncode == 0, done.stderr
    labels = [label for label, _ in runs_of(tmp_path / "j.db")]
    assert len(labels) == len(set(labels)) == 40  # no cell has a second run, those cut off were gone on with
    assert {status for _, status in runs_of(tmp_path / "j.db")} <= {"answered", "failed"}
    (tmp_path / "other").mkdir()
    files(tmp_path / "other", count=20)
    whole = plait_compare(tmp_path / "other", *words, "--json", "--cells")
    # The requests that the kill cut off may have been sent: they count.
    counted = ("tokens", "input_tokens", "tokens_ratio", "tokens_interval")
    timeless = ("seconds", "seconds_p90", "run", *counted)
    ours, theirs = (
        {key: told[key] for key in ("rows", "pairs")} for told in map(json.loads, (done.stdout, whole.stdout))
    )
    assert without(ours, *timeless) == without(theirs, *timeless)
    tokens = [(a["input_tokens"], b["input_tokens"]) for a, b in zip(ours["rows"], theirs["rows"], strict=True)]
    assert all(0 <= a - b <= 3 / 20 * b for a, b in tokens), tokens  # three jobs of twenty tasks


def finished(journal: Path) -> int:
    try:
        connection = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
        try:
            return int(connection.execute("SELECT count(*) FROM kept WHERE kind = 'result'").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return 0


def without(value: Any, *names: str) -> Any:
    if isinstance(value, dict):
        return {key: without(each, *names) for key, each in value.items() if key not in names}
    return [without(each, *names) for each in value] if isinstance(value, list) else value


def test_a_run_that_ended_before_it_was_graded_is_graded_and_not_run_again(tmp_path: Path) -> None:
    journal, model = tmp_path / "j.db", scripted()
    first = compare(TASKS, loops="react", models=[model], journal=journal)
    Journal.at(journal).close()
    connection = sqlite3.connect(journal)
    connection.execute("DELETE FROM kept WHERE kind = 'result'")
    connection.commit()
    connection.close()
    sent = model.sent
    assert compare(TASKS, loops="react", models=[model], journal=journal).results == first.results
    assert model.sent == sent


def test_ctrl_c_cancels_and_the_same_command_goes_on(tmp_path: Path) -> None:
    files(tmp_path, delay=0.3, count=6)
    command = [PLAIT, "compare", "tasks.jsonl", "--models", "scripted:script.json", "--journal", "j.db"]
    process = subprocess.Popen(
        [*command, "--loops", "react"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + patience(60)
    while finished(tmp_path / "j.db") < 2 and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "The same command continues where it stopped" in err
    files(tmp_path, count=6)
    done = plait_compare(tmp_path, "--loops", "react", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["rows"][0]["n"] == 6
    assert len(runs_of(tmp_path / "j.db")) == 6


def test_wrong_usage_ends_with_code_2_and_a_line(tmp_path: Path) -> None:
    files(tmp_path)
    for words in (
        ["--csv", "--json"],
        ["--cells", "--csv"],
        ["--model", "local"],
        ["--html", "no/such/folder/x.html"],
        ["--loops", "nope"],
        ["--address", "x"],
        ["--budget", "-1"],
    ):
        done = plait_compare(tmp_path, *words)
        assert done.returncode == 2 and "Error" in done.stderr and "Traceback" not in done.stderr, (words, done.stderr)
    assert not (tmp_path / "j.db").exists()


def test_tasks_in_python_are_read_as_those_of_a_file(tmp_path: Path) -> None:
    def compared(*tasks: dict[str, Any]) -> Any:
        return plait.compare(tasks, loops="react", models=[scripted()], journal=tmp_path / "j.db")

    done = compared({"question": "How many?", "answer": 40}, {"id": "b", "question": "Is it?", "answer": True})
    assert [(task.id, task.grader) for task in done.suite.tasks] == [("1", "number"), ("b", "yesno")]
    assert str(done).startswith("tasks: 2 tasks") and "Success: the share" in str(done)
    for wrong, said in (({"anser": 1}, "Did you mean 'answer'"), ({}, "'answer' is missing")):
        with pytest.raises(plait.ConfigError) as told:
            compared({"question": "How many?", "answer": 1}, {"question": "What?", **wrong})
        assert "task 2" in str(told.value) and said in str(told.value)


async def test_a_person_may_judge_runs_and_their_last_word_counts(tmp_path: Path) -> None:
    journal = Journal.at(tmp_path / "j.db")
    run = await plait.Agent("react", model=scripted(), journal=journal.place).arun("What is a?")
    results = Results(journal.store)
    await results.rate(run.id[:12], False, "too short")
    await results.rate(run.id, True)
    assert [(rating.good, rating.why) for rating in (await results.list_ratings()).values()] == [(True, "")]
    assert (await results.list_ratings([run.id])).keys() == {run.id} and not await results.list_ratings(["other"])
    with pytest.raises(plait.ConfigError):
        await results.rate("nope", True)
