"""Claims about names of tools that a loop or an endpoint cannot write: each loop calls the tool by one that fits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import Call, Reply, Think
from plait.core.errors import ConfigError
from plait.tools.names import fit_names, is_free_in_python, make_python_name

NAMES = ("get-weather", "3D_Services", "köln_wetter", "天気", "wetter.heute", "print")
WIRE = re.compile(r"[a-zA-Z0-9_-]{1,64}")

REPLIES: dict[str, list[str]] = {
    "react": ['Thought: t\nAction:\n```\n{"action": "NAME", "action_input": "Lyon"}\n```\n', "Final Answer: done"],
    "json": [
        '{"thought": "t", "tool": "NAME", "tool_input": "Lyon"}',
        '{"thought": "t", "tool": "final_answer", "tool_input": "done"}',
    ],
    "phased": ["t", '[{"ACTION": "NAME", "ARGUMENTS": ["Lyon"], "EXPLANATION": "e"}]', "done"],
    "rewoo": ["Plan: t\n#E1 = NAME[Lyon]", "done"],
    "compiler": ['1. NAME("Lyon")\n2. join()', "Thought: t\nAction: finish(done)", "done"],
    "codeact": ['THOUGHT 1: t\nACTION 1:\n```python\nprint(NAME("Lyon"))\n```\n', 'stop("done")', "FINAL ANSWER: done"],
}


def tool_named(name: str, seen: list[str], **marks: Any) -> plait.Tool:
    def function(town: str) -> str:
        """Tells the weather."""
        seen.append(town)
        return f"sunny in {town}"

    return plait.tool(name=name or "-", read_only=True, **marks)(function)


def called(loop: str, name: str, tools: list[plait.Tool], **options: Any) -> tuple[plait.Run, list[Think]]:
    """A run whose model calls the tool as the request names it."""
    asked: list[Think] = []
    agent = plait.Agent(loop, model=plait.Scripted([]), tools=tools, journal=False)
    fit = next(made.name for made, given in zip(agent._parts.toolset, tools, strict=True) if given.name == name)

    def reply(text: str) -> Any:
        def answer(think: Think) -> Reply | str:
            asked.append(think)
            return text.replace("NAME", fit)

        return answer

    if loop == "tool_calling":
        replies: list[Any] = [Reply("", calls=(Call(fit, {"town": "Lyon"}, id="1"),)), "done"]
        replies = [lambda think, one=one: (asked.append(think), one)[1] for one in replies]
    else:
        replies = [reply(text) for text in REPLIES[loop]]
    model = plait.Scripted(replies, by_turn=False)
    return plait.Agent(loop, model=model, tools=tools, journal=False, **options).run("Weather?"), asked


@pytest.mark.parametrize("loop", [*REPLIES, "tool_calling"])
@pytest.mark.parametrize("name", NAMES)
def test_every_loop_calls_a_tool_of_any_name(loop: str, name: str) -> None:
    seen: list[str] = []
    _, asked = called(loop, name, [tool_named(name, seen)])
    assert seen == ["Lyon"]
    for think in asked:
        assert all(WIRE.fullmatch(spec.name) for spec in think.tools)


def test_a_tool_named_like_a_function_of_python_leaves_that_function_alone() -> None:
    seen: list[str] = []
    _, asked = called("codeact", "print", [tool_named("print", seen)])
    assert asked[1].messages[-1].content.count("sunny in Lyon") == 1 and seen == ["Lyon"]


def test_names_that_become_alike_stay_apart_and_none_is_reserved() -> None:
    names = ["get-weather", "get_weather", "get.weather", "天気", "気天", "print", "print_tool", "class"]
    made = fit_names(names, {"python"}, lambda name: name == "tool_class")
    assert made["get_weather"] == "get_weather" and made["print_tool"] == "print_tool"
    assert len(set(made.values())) == len(names)
    assert all(is_free_in_python(name) for name in made.values())
    assert made["class"] != "tool_class"
    assert fit_names(names, {""}, lambda name: False) == {name: name for name in names}


def test_tools_that_exclude_each_other_still_do_by_their_other_names() -> None:
    one, two = tool_named("by-air", [], excludes=("by-sea",)), tool_named("by-sea", [])
    tools = plait.Agent("codeact", model=plait.Scripted([]), tools=[one, two], journal=False)._parts.toolset
    assert [(tool.name, tool.excludes) for tool in tools] == [("by_air", ("by_sea",)), ("by_sea", ())]


def test_an_approve_function_gets_the_name_that_its_author_gave() -> None:
    asked_for: list[str] = []

    def approve(call: Call) -> bool:
        asked_for.append(call.tool)
        return False

    called("codeact", "get-weather", [tool_named("get-weather", [])], approve=approve)
    assert asked_for == ["get-weather"]


def test_a_run_with_such_names_is_replayed_from_its_record(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    tools = [tool_named("get-weather", []), tool_named("print", [])]
    texts = [REPLIES["codeact"][0].replace("NAME", "get_weather"), "FINAL ANSWER: done"]
    agent = plait.Agent("codeact", model=plait.Scripted(texts, by_turn=False), tools=tools, journal=journal)
    run = agent.run("Weather?")
    assert run.answer == "done"
    replayed = agent.replay(run.id)
    assert replayed.whole and replayed.requests == 2


def test_a_servers_tool_that_was_renamed_for_python_is_found_at_the_server() -> None:
    from types import SimpleNamespace

    from plait.tools.mcp.server import McpServer
    from plait.tools.mcp.tools import McpToolSource

    listed = SimpleNamespace(name="print")
    source = McpToolSource(McpServer(command=("x",)))
    assert source.find_tool([listed], make_python_name("print")) is listed  # type: ignore[list-item]


def test_a_name_that_no_prompt_can_hold_is_refused_with_what_a_name_may_have() -> None:
    for name in ("two words", "a\nb", "a(b)", "a\u200bb", "-a", "", "x" * 65):
        with pytest.raises(ConfigError, match="letters, digits"):
            tool_named(name, [])
