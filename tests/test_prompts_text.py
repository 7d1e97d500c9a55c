"""What prompts are sent as: an empty system prompt sends nothing, and line ends go by the rules of docs/prompts.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import plait
from plait import loops
from plait.journal.records import Thinking


def requests(run: plait.Run) -> list[list[dict[str, Any]]]:
    """The messages of each request."""
    bodies = [json.loads(row.body or b"{}") for row in run.trace if isinstance(row.record, Thinking)]
    return [body["messages"] for body in bodies if "messages" in body]


@plait.tool(read_only=True)
def look(at: str) -> str:
    """Looks."""
    return at


@pytest.mark.parametrize("loop", loops.names())
def test_an_empty_system_prompt_sends_no_message(loop: str) -> None:
    model = plait.Scripted(["Final Answer: x"] * 9, by_turn=False)
    run = plait.Agent(loop, model=model, tools=[look], system="", journal=False).run("What is there?")
    asked = requests(run)
    assert asked and all(message["content"] or message.get("tool_calls") for each in asked for message in each)
    assert asked[0][0]["role"] == "user"


def test_a_template_of_the_users_keeps_the_line_ends_that_it_asks_for_and_is_given_the_tools(tmp_path: Path) -> None:
    (tmp_path / "react").mkdir()
    (tmp_path / "react" / "question.j2").write_bytes(
        b"{% if question %}one{% endif +%}\ntwo{% if question %}three{% endif %}\nfour\r\n"
        b"{% for tool in tools %}{{ tool.name }}: {{ tool.description }}{% endfor +%}\n"
    )
    agent = plait.Agent(
        "react", model=plait.Scripted(["Final Answer: x"]), tools=[look], prompts=tmp_path, journal=False
    )
    assert requests(agent.run("?"))[0][-1]["content"] == "one\ntwothreefour\nlook: Looks."
