"""A run told as a document: whole at once and growing row by row, it is the same."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plait
from plait import Agent
from plait.core import Call, Reply, Waiting
from plait.core.errors import RateLimited
from plait.journal.codec import encode
from plait.journal.records import Row, RunHead
from plait.journal.store import Journal
from plait.runtime.recorded_events import recorded_loop
from plait.view.html_file import render_html
from plait.view.live import run_document
from plait.view.run_view import open_questions, plan_view
from plait.view.timeline import SORTS, ViewerTimeline, build_timeline
from window_support import HIDDEN, HOSTILE, action, answer, begin, codeact, population, react, rewoo, written


def read(agent: plait.Agent, question: str = "How many people live in Lyon and Nice?") -> tuple[plait.Run, RunHead]:
    run = begin(agent, question)
    assert not isinstance(agent.journal, bool)
    return run, Journal.at(agent.journal).head(run.id)


def merged(changes: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What a page has after all these changes: steps by number, items by id, in the order they came."""
    steps: dict[int, dict[str, Any]] = {}
    items: dict[int, dict[str, dict[str, Any]]] = {}
    for news in changes:
        for step in json.loads(encode(news)):
            held = items.setdefault(step["n"], {})
            held.update({item["id"]: item for item in step.pop("items")})
            steps[step["n"]] = step
    return [{**steps[n], "items": list(items[n].values())} for n in sorted(steps)]


@pytest.mark.parametrize("make", [react, rewoo, codeact])
def test_a_run_told_row_by_row_is_the_run_told_at_once(tmp_path: Path, make: Callable[[Path], plait.Agent]) -> None:
    run, head = read(make(tmp_path / "j.db"))
    timeline = ViewerTimeline(recorded_loop(head))
    changes = []
    for row in run.trace:
        timeline.add(row)
        changes.append(timeline.changes())
    at_once = build_timeline(run.trace, recorded_loop(head)).changes()
    assert merged(changes) == json.loads(encode(at_once))
    assert len(changes) > 5


@pytest.mark.parametrize("make", [react, rewoo, codeact])
def test_the_sums_are_those_of_the_run(tmp_path: Path, make: Callable[[Path], plait.Agent]) -> None:
    run, head = read(make(tmp_path / "j.db"))
    timeline = build_timeline(run.trace, recorded_loop(head))
    sums = timeline.totals()
    assert timeline.phases == run.phases
    assert (sums["steps"], sums["calls"]) == (run.steps, run.calls)
    assert (sums["in"], sums["out"]) == (run.usage.input_tokens, run.usage.output_tokens)
    steps = timeline.changes()
    assert sum(step["in"] for step in steps) == sums["in"]
    assert sum(step["seconds"] for step in steps) == pytest.approx(sums["work"], abs=1e-4)


def test_a_step_has_thought_call_and_observation_in_order(tmp_path: Path) -> None:
    run, head = read(react(tmp_path / "j.db"))
    first = build_timeline(run.trace, recorded_loop(head)).changes()[0]
    model, call = first["items"]
    assert (first["phases"], first["models"]) == (["act"], ["scripted:scripted"])
    assert model[model["parts"][0]][0] == "I need both towns."
    assert (call["tool"], call["input"][0], call["text"][0]) == ("population", '{"town": "Lyon"}', "522250")


def test_code_its_calls_and_its_output_stand_where_they_happened(tmp_path: Path) -> None:
    run, head = read(codeact(tmp_path / "j.db"))
    steps = build_timeline(run.trace, recorded_loop(head)).changes()
    kinds = [item["kind"] for item in steps[0]["items"] if item["kind"] != "note"]
    assert kinds == ["model", "code", "call", "output"]
    assert steps[0]["items"][-1]["output"][0] == "a 522250\n"
    assert "ZeroDivisionError" in steps[1]["items"][-1]["error"][0]


def test_failed_attempts_repairs_and_limits_are_told(tmp_path: Path) -> None:
    script = [RateLimited("busy", after=0.01), "nonsense", action("population", {"town": "Lyon"}), answer("522250")]
    run, head = read(react(tmp_path / "j.db", script))
    items = build_timeline(run.trace, recorded_loop(head)).items.values()
    errors = [wrong for item in items if item["kind"] == "model" for wrong in item["errors"]]
    assert [wrong["attempt"] for wrong in errors] == [1]
    assert {item["sort"] for item in items if item["kind"] == "note"} >= {"repair"}
    assert set(SORTS.values()) == {"repair", "cut", "refusal", "error", "limit", "plain"}


def test_a_run_that_waits_says_for_what_and_what_was_said(tmp_path: Path) -> None:
    script = [action("send", {"text": "hello"}), answer("sent")]
    agent = react(tmp_path / "j.db", script, approve="effects")
    run, head = read(agent)
    journal = Journal.at(tmp_path / "j.db")
    row = journal.run(run.id)
    asked = run.outcome.question  # type: ignore[union-attr]
    expected = [{"item": f"w{asked}", "ask": "approval", "question": asked}]
    assert open_questions(row, run.timeline.open_questions) == expected
    assert build_timeline(run.trace, recorded_loop(head), run.id).items[f"w{asked}"]["told"] is None
    done = agent.resume(run, "yes")
    after = journal.run(run.id)
    item = build_timeline(done.trace, recorded_loop(head), run.id).items[f"w{asked}"]
    assert (item["approved"], open_questions(after, done.timeline.open_questions)) == (True, [])
    assert done.status == "answered"


def test_a_question_of_a_child_run_is_shown_beside_the_call_that_waits_for_it(tmp_path: Path) -> None:
    """On the page and in the file. The child's question is about a call of its own, with the key of another call."""
    path = tmp_path / "j.db"
    child = react(path, [action("send", {"text": "hello"}), answer("sent")], approve="effects")
    calls = [Call("population", {"town": "Lyon"}, "1"), Call("ask", {"question": "Send it."}, "2")]
    tools = (population, child.as_tool("ask", "Has it sent."))
    model = plait.Scripted([Reply("", calls=tuple(calls)), "done"])
    run = Agent("tool_calling", model=model, tools=tools, journal=path).run("Send.")
    assert isinstance(run.outcome, Waiting)
    journal, id = Journal.at(path), run.outcome.question
    text = render_html(journal.run(run.id), journal)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    for shown in (json.loads(data[1]), run_document(journal, run.id)):
        assert shown["waiting"] == [{"item": f"w{id}", "ask": "approval", "question": id}]
        items = {item["id"]: item for step in shown["steps"] for item in step["items"]}
        assert items[f"w{id}"]["call"] == "1.1" and '"hello"' in items[f"w{id}"]["text"][0]
        assert "c1.1" in items and items["c1.1"]["tool"] == "ask"


def test_a_loop_that_is_not_known_here_is_told_as_thought(tmp_path: Path) -> None:
    run, head = read(react(tmp_path / "j.db"))
    stranger = RunHead(head.run, head.question, {"name": "of another package", "options": {}}, head.models)
    assert recorded_loop(stranger) is None
    assert build_timeline(run.trace, None).items["m0"]["parts"] == ["thought1"]


def test_long_texts_are_cut_and_can_be_read_on(tmp_path: Path) -> None:
    run = asyncio.run(written(tmp_path / "j.db", 1, observation="x" * 10_000_000))
    rows = Journal.at(tmp_path / "j.db").rows(run)
    cut = build_timeline(rows, None)
    assert cut.items["c1.0"]["text"] == ["x" * 4_000, 9_996_000]
    assert len(encode(cut.changes())) < 10_000
    assert build_timeline(rows, None, max_text=None).text("c1.0", "text") == "x" * 10_000_000
    assert cut.text("c1.0", "no such field") is None and cut.text("c9.9", "text") is None


def test_what_is_hostile_stays_as_it_is_and_is_json_all_the_same(tmp_path: Path) -> None:
    run = asyncio.run(written(tmp_path / "j.db", 1, observation=HOSTILE + HIDDEN, question=HOSTILE))
    timeline = build_timeline(Journal.at(tmp_path / "j.db").rows(run), None)
    items = json.loads(encode(timeline.changes()))[0]["items"]
    assert items[-1]["text"][0] == HOSTILE + HIDDEN


def test_the_plan_is_drawn_without_a_style_of_its_own(tmp_path: Path) -> None:
    run, _ = read(rewoo(tmp_path / "j.db"))
    row = Journal.at(tmp_path / "j.db").run(run.id)
    plan = plan_view(row, run.timeline)
    assert plan is not None
    assert (plan["steps"], plan["found"]) == (2, 2)
    assert "<style" not in plan["svg"] and "<rect" in plan["svg"]


def test_no_row_of_any_kind_breaks_the_telling(tmp_path: Path) -> None:
    """Rows without those before them, as a salvaged journal has them: what can't be told is left out."""
    rows: list[Row] = []
    for make in (react, rewoo, codeact):
        run, _ = read(make(tmp_path / "j.db"))
        rows += run.trace
    for start in range(len(rows)):
        timeline = ViewerTimeline()
        for row in rows[start : start + 4]:
            timeline.add(row)
        json.loads(encode(timeline.changes()))
