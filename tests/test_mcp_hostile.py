"""MCP servers that mean harm or are written badly: what they list and say stays what it is, and no run dies of it."""

from __future__ import annotations

import asyncio
import json
import keyword
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from journal_rows import is_request, is_result
from mcp_support import ODD, command, pids
from mcp_talker import act, done
from plait import Agent, ConfigError, Scripted, Tool
from plait.tools.mcp import connection

MISFIT = "(The result does not fit the tool's output schema: result.n must be a whole number, not 'no number'.)"
LOOPS = ["react", "json", "tool_calling", "rewoo", "compiler", "phased", "codeact"]


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    connection.close()


def odd(folder: Path, kind: str, **options: Any) -> tuple[Tool, ...]:
    return plait.mcp(command(folder / "log", kind, script=ODD), **options)


def seen(run: plait.Run) -> list[str]:
    return [row.record.value.text for row in run.rows() if is_result(row.record)]


def run_of(*script: str, tools: tuple[Tool, ...], **fields: Any) -> plait.Run:
    return Agent("react", model=Scripted(list(script)), tools=tools, journal=False, **fields).run("Go.")


def test_names_are_made_safe_and_unique_and_still_reach_their_tools(tmp_path: Path) -> None:
    tools = odd(tmp_path, "names")
    names = [tool.name for tool in tools]
    assert names[:6] == ["a_b", "a_b_2", "a_b_3", "tool_class", "tool_2fa", "tool_e3b0c4"]
    assert len(set(names)) == len(names) == 11, "the second of two that are named alike can't be called"
    assert all(
        name.isidentifier() and name.isascii() and len(name) <= 64 and not keyword.iskeyword(name) for name in names
    )

    async def reached() -> list[str]:
        return [str(await tool()).partition(":")[0] for tool in tools]

    assert asyncio.run(reached())[:4] == ["a b", "a_b", "a-b", "class"]


def test_a_thousand_tools_are_listed_and_one_is_called(tmp_path: Path) -> None:
    tools = odd(tmp_path, "many")
    assert len(tools) == 1000
    script = [act("method_search", description="the town number 731"), act("tool_731"), done()]
    found, called = seen(run_of(*script, tools=tools, limits=plait.Limits(tools=5)))
    assert "tool_731" in found and called == "tool_731: {}"


def test_of_sixty_tools_those_that_fit_are_shown_and_the_others_found(tmp_path: Path) -> None:
    tools = odd(tmp_path, "sixty")
    agent = Agent(
        "react", model=Scripted([act("opera_Oslo"), done()]), tools=tools, journal=False, limits=plait.Limits(tools=6)
    )
    run = agent.run("When does the opera of Oslo begin?")
    body = next(bytes(row.body or b"").decode() for row in run.rows() if is_request(row.record))
    assert "opera_Oslo" in body and "bread_Nice:" not in body and "method_search" in body
    assert seen(run) == ["opera_Oslo: {}"]


@pytest.mark.parametrize("loop", LOOPS)
def test_every_loop_takes_every_schema(loop: str, tmp_path: Path) -> None:
    tools = odd(tmp_path, "schemas")
    agent = Agent(loop, model=Scripted(["?"] * 20), tools=tools, journal=False, limits=plait.Limits(tools=20))
    run = agent.run("Go.")
    assert run.steps >= 1 and "?" in str([row.record for row in run.rows()]), "its model was asked with them"


def test_schemas_that_refer_to_themselves_are_handed_on_and_their_input_too(tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in odd(tmp_path, "schemas")}
    assert tools["recursive"].spec.parameters["properties"]["tree"] == {"$ref": "#/$defs/node"}
    assert len(json.dumps(tools["large"].spec.parameters)) < 60_000
    assert list(tools["large"].spec.parameters["properties"])[:2] == ["p0", "p1"]
    script = [
        act("recursive", tree={"left": {"value": 1}}),
        act("loop", x=1),
        act("broken", a=1, d="x"),
        act("none"),
        done(),
    ]
    run = run_of(*script, tools=tuple(tools.values()))
    assert seen(run) == [
        'recursive: {"tree": {"left": {"value": 1}}}',
        'loop: {"x": 1}',
        'broken: {"a": 1, "d": "x"}',
        "none: {}",
    ]


def test_a_huge_description_is_cut_and_stays_on_its_line(tmp_path: Path) -> None:
    (tool,) = odd(tmp_path, "huge")
    assert len(tool.spec.description) < 4_100 and tool.spec.description.endswith("more characters)")
    run = run_of(done("7"), tools=(tool,))
    body = next(bytes(row.body or b"").decode() for row in run.rows() if is_request(row.record))
    assert "\\nFinal Answer: 0" not in body and run.answer == "7"


def test_a_call_that_is_never_answered_ends_with_its_time(tmp_path: Path) -> None:
    run = run_of(act("silent"), done("7"), tools=odd(tmp_path, "bad", timeout=0.5))
    assert run.answer == "7" and "gave no result within 0.5 seconds" in seen(run)[0]


def test_garbage_on_its_stdout_and_answers_that_are_none_are_survived(tmp_path: Path) -> None:
    tools = odd(tmp_path, "bad")
    run = run_of(act("garbage"), act("schema"), act("garbage"), done(), tools=tools)
    texts = seen(run)
    assert texts[0] == texts[2] == "garbage: {}"
    assert json.loads(texts[1]) == {"n": "no number", "text": f"x\n\n{MISFIT}"}, "a result that does not fit is kept"
    assert len(pids(tmp_path / "log")) == 1


def test_a_list_of_tools_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its list does not end"):
        odd(tmp_path, "endless")
