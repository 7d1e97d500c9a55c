"""What a terminal and a notebook show of the public values: one line, and escaped HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import Answered, Crashed, Failed, Stopped, Waiting
from plait.lab import compare

HOSTILE = "<script>alert(1)</script>\u202e\x1b[2J"


@plait.tool(read_only=True)
def echo(text: str) -> str:
    """Give the text back."""
    return text


def html_of(value: Any) -> str:
    html = value._repr_html_()
    assert isinstance(html, str)
    assert "<script" not in html and "\u202e" not in html and "\x1b" not in html
    return html


@pytest.fixture
def run() -> plait.Run:
    script = [f"Thought: t\nAction: echo\nAction Input: {HOSTILE}", f"Thought: t\nFinal Answer: {HOSTILE}"]
    return plait.Agent(model=plait.Scripted(script), tools=[echo], journal=False).run(f"Say {HOSTILE}")


def test_a_run_is_one_line(run: plait.Run) -> None:
    shown = repr(run)
    assert shown.startswith("Run(answered, answer=") and "\n" not in shown and "\x1b" not in shown
    assert len(shown) < 250 and run.id in shown and "steps=2" in shown


def test_a_notebook_shows_a_run_with_a_table_of_its_steps(run: plait.Run) -> None:
    html = html_of(run)
    assert "answered" in html and "&lt;script&gt;" in html and html.count("<tr>") == 4
    assert "act: scripted" in html and "echo(" in html


def test_an_agent_shows_what_is_not_the_default() -> None:
    assert repr(plait.Agent(journal=False)) == "Agent('auto', model='local', journal=False)"
    limits = plait.Limits(steps=3, code=plait.CodeLimits(seconds=1.0))
    agent = plait.Agent(plait.ReAct(dialect="lines"), tools=[echo, "calculator"], limits=limits, system=HOSTILE * 9)
    assert repr(agent).startswith(
        "Agent('react(dialect=lines)', model='local', tools=[echo, calculator], "
        "limits=Limits(steps=3, code=CodeLimits(seconds=1.0)), system='<script>"
    )
    assert "\n" not in repr(agent) and "\x1b" not in repr(agent)
    assert "&lt;script&gt;" in html_of(agent)


def test_limits_and_history_show_what_is_not_the_default() -> None:
    assert repr(plait.Limits()) == "Limits()"
    assert repr(plait.Limits(usd=0.5, tools=3)) == "Limits(usd=0.5, tools=3)"
    assert repr(plait.History(share=0.5)) == "History(share=0.5)"


def test_outcomes_are_one_line() -> None:
    assert repr(Answered("a\nb")) == r"Answered(answer='a\nb')"
    assert repr(Failed("no")) == "Failed(reason='no')"
    assert repr(Stopped("steps", "why")) == "Stopped(limit='steps', reason='why')"
    assert repr(Waiting("question", "why")) == "Waiting(kind='question', reason='why')"
    assert repr(Crashed("why")) == "Crashed(reason='why')"


def test_a_plan_is_one_line_and_a_table() -> None:
    plan = plait.Plan((plait.Step("E1", "echo", HOSTILE), plait.Step("E2", "", why="Think.", needs=("E1",))))
    assert repr(plan).startswith("Plan(E1 = echo('<script>") and repr(plan).endswith("; E2: 'Think.')")
    assert "&lt;script&gt;" in html_of(plan)


def test_a_comparison_is_one_line_and_a_table(tmp_path: Path) -> None:
    tasks = [{"id": HOSTILE, "question": HOSTILE, "answer": "4"}]
    made = compare(tasks, loops="react", models=[plait.Scripted(["Final Answer: 4"])], journal=tmp_path / "j.db")
    assert repr(made).startswith("Comparison('") and "1 of 1 cells" in repr(made) and "\n" not in repr(made)
    assert "100%" in html_of(made)
