"""Skills and memories as people met them elsewhere. README.md names the thread of each test."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import plait
from plait import toolkits

if not hasattr(toolkits, "skills") or not hasattr(toolkits, "memory"):
    pytest.skip("the toolkits skills and memory are not there", allow_module_level=True)
skills = toolkits.skills

COLON = "StarRun collector: progress, errors, tables out. Triggers on: '/run', 'collect'"


def write_skill(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_bytes(text.encode())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    write_skill(folder, "plain", "---\nname: plain\ndescription: Says hello.\n---\n# Hello\n\nSay hello.\n")
    return folder


def described(folder: Path) -> tuple[str, list[str]]:
    """What the model sees of a folder's skills, and the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        (tool,) = skills(folder)
    return tool.description, [str(each.message) for each in seen]


def read(folder: Path, **given: Any) -> str:
    """What the model gets if it reads a skill."""
    call = {"action": "read_skill", "action_input": given}
    replies = [f"Thought: x\nAction:\n```json\n{json.dumps(call)}\n```", "Thought: k\nFinal Answer: ok"]
    run = plait.Agent("react", model=plait.Scripted(replies), tools=list(skills(folder))).run("?")
    (made,) = run.timeline.tool_calls
    assert made.observation is not None
    return made.observation.text


def test_a_description_with_a_colon_is_read_and_a_broken_skill_is_named(place: Path) -> None:
    write_skill(place, "collect", f"---\nname: collect\ndescription: {COLON}\n---\nCollect.\n")
    shown, warned = described(place)
    assert "[plain] Says hello." in shown
    assert f"[collect] {COLON}" in shown and warned == []
    write_skill(place, "broken", "---\nname: broken\ndescription: [a, b\n---\nX\n")
    shown, warned = described(place)
    assert f"[collect] {COLON}" in shown and "[broken]" not in shown
    assert len(warned) == 1 and "broken" in warned[0]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff---\r\nname: odd\r\ndescription: Says hi.\r\n---\r\n# Hi\r\n\r\nSay hi.\r\n",
        "---\nname: odd\ndescription: >-\n  Says\n  hi.\nlicense: MIT\n---\n# Hi\n\n---\n\nSay hi.\n\n---\n",
        "--- \nname: 'odd'\ndescription: \"Says hi.\"\nallowed-tools: Bash(*) Read\nunknown: [1, 2]\n---   \nSay hi.",
    ],
    ids=["byte order mark and CRLF", "rules in the text", "other fields"],
)
def test_forms_of_a_valid_skill_are_read(text: str, place: Path) -> None:
    write_skill(place, "odd", text)
    shown, warned = described(place)
    assert "[odd] Says hi." in shown and warned == []
    assert "Say hi." in read(place, skill="odd")


def test_a_skill_in_chinese_is_shown_as_written(place: Path) -> None:
    write_skill(place, "weather", "---\nname: weather\ndescription: 查询天气的步骤。\n---\n先查城市,再查天气。\n")
    assert "查询天气的步骤。" in described(place)[0] and "先查城市,再查天气。" in read(place, skill="weather")


@pytest.mark.parametrize("file", ["../../secret.txt", "/etc/passwd", "scripts/../../../secret.txt", "link/secret.txt"])
def test_a_file_outside_a_skill_is_not_read(file: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("coal-mine-7")
    (place / "plain" / "link").symlink_to(tmp_path)
    said = read(place, skill="plain", file=file)
    assert "coal-mine-7" not in said and "root:" not in said


def test_the_list_of_a_skills_files_does_not_follow_links(place: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "id_rsa").write_text("key")
    (place / "plain" / "references").symlink_to(tmp_path / "hidden")
    assert "id_rsa" not in read(place, skill="plain")


# Memory


def note(journal: Path, user: str, call: dict[str, Any], session: str | None = None, memory: str = "memory") -> str:
    """Call a tool of a memory for a user; returns what the model gets."""
    replies = [f"Thought: x\nAction:\n```json\n{json.dumps(call)}\n```", "Thought: k\nFinal Answer: ok"]
    agent = plait.Agent("react", model=plait.Scripted(replies), tools=[memory], journal=journal)
    run = agent.run("?", user=user, session=session) if user else agent.run("?", session=session)
    (made,) = run.timeline.tool_calls
    assert run.status == "answered" and made.observation is not None
    return made.observation.text


SEARCH: dict[str, Any] = {"action": "search_notes", "action_input": {}}


def write(text: str, replaces: str = "") -> dict[str, Any]:
    return {"action": "write_note", "action_input": {"text": text, "replaces": replaces}}


def test_two_users_of_one_session_have_notes_of_their_own(journal: Path) -> None:
    note(journal, "alice", write("Alice loves pizza."), session="shared")
    assert "pizza" not in note(journal, "bob", SEARCH, session="shared")
    assert "pizza" in note(journal, "alice", SEARCH, session="another")


def test_a_user_cannot_change_or_replace_what_another_one_noted(journal: Path) -> None:
    said = note(journal, "alice", write("Alice loves pizza."))
    number = said.split()[1]
    for call in (write("Alice hates pizza.", number), {"action": "forget_note", "action_input": {"note": number}}):
        note(journal, "bob", call)
        note(journal, "", call)
    assert "loves pizza" in note(journal, "alice", SEARCH) and "hates" not in note(journal, "alice", SEARCH)


def test_a_note_that_is_changed_stays_its_users(journal: Path) -> None:
    number = note(journal, "alice", write("Alice loves pizza.")).split()[1]
    note(journal, "alice", write("Alice loves pasta.", number))
    found = note(journal, "alice", SEARCH)
    assert "pasta" in found and "pizza" not in found and "pasta" not in note(journal, "bob", SEARCH)


def test_a_note_without_a_user_is_not_shown_to_users(journal: Path) -> None:
    note(journal, "", write("The agent's own note."))
    assert "own note" not in note(journal, "alice", SEARCH) and "own note" in note(journal, "", SEARCH)


def test_agents_share_a_memory_only_by_its_name(journal: Path) -> None:
    note(journal, "alice", write("Trains on Mondays."), memory="memory:fitness")
    assert "Mondays" not in note(journal, "alice", SEARCH, memory="memory:sales")
    assert "Mondays" in note(journal, "alice", SEARCH, memory="memory:fitness")


def test_a_note_with_a_nul_and_half_a_character_is_kept(journal: Path) -> None:
    note(journal, "alice", write("tea 🍵 \x00 \u2028 茶"))
    assert "🍵" in note(journal, "alice", SEARCH)


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_a_linked_skill_is_named_if_it_is_left_out(place: Path, tmp_path: Path) -> None:
    write_skill(tmp_path / "elsewhere", "linked", "---\nname: linked\ndescription: Says hi.\n---\nHi.\n")
    (place / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
    shown, warned = described(place)
    assert "[linked]" in shown or any("linked" in each for each in warned)
