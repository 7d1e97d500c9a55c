"""Example values in descriptions of tools are no evidence, and the tools that ship have none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import plait
from journal_rows import is_result
from plait.core.errors import ConfigError
from plait.tools import load, toolkit_names
from plait.tools.load import FOLDERS

EXAMPLE = re.compile(r"\d{4}-\d\d-\d\d|\b(?:such as|as in|like) [\"'A-Z\d]|\d+ ?[*/+] ?\d|\d+%|\d\.\d", re.MULTILINE)


def words_for(name: str, folder: Path) -> str:
    (folder / "facts.json").write_text('{"Lyon": 1}')
    (folder / "mail").mkdir(exist_ok=True)
    (folder / "mail" / "SKILL.md").write_text("---\nname: mail\ndescription: Writes letters.\n---\nBe short.\n")
    words = {"lookup": f"lookup:{folder / 'facts.json'}", "ask-model": "ask-model:local"}
    return {**words, **{each: f"{each}:{folder}" for each in FOLDERS}}.get(name, name)


@pytest.mark.parametrize("name", [name for name in toolkit_names() if name != "all"])
def test_a_tool_that_ships_has_no_example_value_in_its_description(name: str, tmp_path: Path) -> None:
    try:
        tools = load(words_for(name, tmp_path))
    except ConfigError as why:
        assert name == "shell", why
        pytest.skip(f"no shell here: {why}")
    for tool in tools:
        spec = tool.spec
        about = [each.get("description", "") for each in spec.parameters.get("properties", {}).values()]
        text = json.dumps([spec.description, *about], ensure_ascii=False)
        assert EXAMPLE.search(text) is None, text


def test_a_value_that_only_a_search_for_tools_or_an_unknown_name_showed_is_made_up(tmp_path: Path) -> None:
    sent: list[str] = []

    def archive() -> str:
        """Sends old reports away, as it did on 2026-03-05 to ana@example.org."""
        return "nothing"

    def send(text: str) -> str:
        """Sends a text."""
        sent.append(text)
        return "sent"

    def turn(tool: str, given: object) -> str:
        return json.dumps({"thought": "t", "tool": tool, "tool_input": given})

    replies = [
        turn("method_search", "sends old reports away"),
        turn("archives", None),
        turn("send", "Today is 2026-03-05"),
        turn("final_answer", "done"),
    ]
    agent = plait.Agent(
        "json",
        model=plait.Scripted(replies, by_turn=False),
        tools=[send, archive],
        limits=plait.Limits(tools=1),
        history=plait.History(embedder=lambda texts: [[float(len(text)), 1.0] for text in texts]),
        grounding="refuse",
        journal=tmp_path / "j.db",
    )
    run = agent.run("Send a text.")
    seen = [row.record.value for row in run.rows() if is_result(row.record)]
    assert "2026-03-05" in seen[0].text, "the search has shown it"
    assert seen[2].trouble == "refused" and sent == []
