"""What a user's own templates can do in CodeAct, and the search of a user's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import plait
from docs_support import ROOT
from plait.core.events import Called
from plait.runtime.run import Run
from plait.runtime.templates.prompts import shipped_prompts, variables_of


@plait.tool(read_only=True)
def people(city: str, year: int | None = None, unit: str = "one") -> int:
    """Counts the people of a city."""
    return 522250


@plait.tool(name="method_search", read_only=True)
def own_search(words: str) -> str:
    """Finds functions."""
    return f"`people(city: str) -> int`: found for {words!r}."


@plait.tool(name="method_search", read_only=True)
def printing_search(words: str) -> None:
    """Finds functions."""
    print(f"printed for {words!r}")


PLAN = "1. Count the people.\n2. Say it."


def code(n: int, text: str) -> str:
    return f" so.\nACTION {n}:\n```python\n{text}\n```"


def run_with(tmp_path: Path, replies: list[str], templates: dict[str, str] | None = None, **more: Any) -> Run:
    for name, text in (templates or {}).items():
        (tmp_path / "codeact").mkdir(exist_ok=True)
        (tmp_path / "codeact" / name).write_text(text)
    model = plait.Scripted(replies, by_turn=False)
    settings = {"loop": "codeact", "tools": [own_search, people], **more}
    prompts = tmp_path if templates else None
    agent = plait.Agent(model=model, prompts=prompts, journal=tmp_path / "runs.db", **settings)
    run = agent.run("How many?")
    assert agent.replay(run.id).outcome == run.outcome
    return run


def last_messages(run: Run) -> list[str]:
    return [message["content"] for message in json.loads(run.timeline.model_calls[-1].request)["messages"]]


@pytest.mark.parametrize("count", [1, 9])
def test_a_tool_named_method_search_is_the_search_of_all_others(tmp_path: Path, count: int) -> None:
    others = [plait.tool(name=f"spare_{n}", read_only=True)(lambda: None) for n in range(count - 1)]
    replies = [PLAN, code(2, "method_search('towns')\nstop(people('Lyon'))")]
    run = run_with(tmp_path, replies, tools=[own_search, people, *others])
    calls = [event.call for event in run.events if isinstance(event, Called)]
    assert [call.tool for call in calls] == ["method_search", "method_search", "people"]
    assert [call.input for call in calls[:2]] == [{"words": "Count the people"}, {"words": "towns"}]
    rules, *_, observation, _ = last_messages(run)
    assert "people(" not in rules
    assert observation == "OBSERVATION 1:\n`people(city: str) -> int`: found for 'Count the people'."
    assert run.answer == "522250"


def test_a_search_may_print_instead_of_returning(tmp_path: Path) -> None:
    run = run_with(tmp_path, [PLAN, code(2, "stop()")], tools=[printing_search, people])
    assert last_messages(run)[-2] == "OBSERVATION 1:\nprinted for 'Count the people'"


def test_the_users_search_and_plaits_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(plait.ConfigError, match="Two tools are named method_search"):
        run_with(tmp_path, [PLAN], limits=plait.Limits(tools=1))


def test_a_template_writes_what_a_search_found(tmp_path: Path) -> None:
    line = "{% for tool in hits %}{{ tool.name }} gives {{ tool.result }},{% for each in tool.arguments %}"
    each = " {{ each.name }} {{ each.inner_type }} {{ each.nullable }} {{ each.default }};{% endfor %}{% endfor %}"
    run = run_with(tmp_path, [PLAN, code(2, "stop()")], {"search_result.j2": line + each})
    shown = "people gives int, city str False ; year int True None; unit str False 'one';"
    assert last_messages(run)[-2] == f"OBSERVATION 1:\n{shown}"


def test_templates_receive_the_exact_reply_the_number_and_the_phase(tmp_path: Path) -> None:
    templates = {
        "steps.j2": "",
        "first.j2": "[{{ reply }}]",
        "opening.j2": "THOUGHT {{ n }}:\nI see that{{ ' ' }}",
        "observation.j2": "{{ n }}: {{ output }}",
        "completion.j2": "{{ phase }}\n{% for turn in turns %}{{ turn.observation }}|{% endfor %}{{ opening }}",
    }
    loop = plait.CodeAct(transcript="completion", stop="END")
    run = run_with(tmp_path, [PLAN, code(2, "print(7)"), code(3, "stop()")], templates, loop=loop)
    first, _, third = (json.loads(call.request) for call in run.timeline.model_calls)
    assert first["prompt"] == "decompose\n"
    found = "1: `people(city: str) -> int`: found for 'Count the people'."
    assert third["prompt"] == f"act\n{found}|2: 7|THOUGHT 3:\nI see that "
    assert third["stop"] == ["END"]


def test_nothing_can_be_imported_where_imports_are_off(tmp_path: Path) -> None:
    replies = [code(1, "import math\nprint(math.pi)"), code(2, "stop()")]
    run = run_with(tmp_path, replies, loop=plait.CodeAct(imports=False), tools=[people])
    rules, *_, observation, _ = last_messages(run)
    assert "Nothing can be imported." in rules
    assert "ImportError in line 1, `import math`" in observation and "3.14" not in observation


def test_a_variable_that_a_template_sets_in_a_branch_is_known(tmp_path: Path) -> None:
    template = "{% if output %}{% set said = output.upper() %}{{ said }}{% endif %}"
    run = run_with(tmp_path, [PLAN, code(2, "stop()")], {"observation.j2": template})
    assert "PEOPLE(CITY" in last_messages(run)[-2]


def test_the_page_of_prompts_lists_every_variable() -> None:
    page = (ROOT / "docs" / "prompts.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page[page.index("## The prompts of `codeact`") :]))
    react = page.partition("| prompt of `react` |")[2].partition("### ")[0]
    listed |= set(re.findall(r"`(\w+)`", react))
    for name, text in shipped_prompts("codeact").items():
        assert variables_of(text) <= listed, name
