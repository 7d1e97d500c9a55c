"""Mistakes in a user's folder of prompts: its layout, the names of its files, unused templates, misspelt fields."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core.errors import ConfigError
from plait.runtime.templates.prompts import fields_of

CALL = 'Thought: I look.\nAction:\n```json\n{"action": "look", "action_input": "here"}\n```'


@plait.tool(read_only=True)
def look(at: str) -> str:
    """Looks."""
    return at


def write(folder: Path, **texts: str) -> Path:
    """Write the template LOOP/NAME.j2 for each `LOOP_NAME=text`."""
    for name, text in texts.items():
        path = folder / f"{name.replace('_', '/', 1)}.j2"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def agent(loop: Any, folder: Path, replies: tuple[str, ...] = ("Final Answer: x",)) -> plait.Agent:
    return plait.Agent(loop, model=plait.Scripted(replies), tools=[look], prompts=folder, journal=False)


def warned(loop: Any, folder: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent(loop, folder)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("given", ["reactor/phased", "reactor/phased/", "reactor/../reactor/phased"])
def test_a_folder_one_level_too_deep_names_the_right_one(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reactor", phased_reply="x")
    with pytest.raises(ConfigError, match="has no folder 'phased'") as caught:
        agent("phased", Path(given))
    assert caught.value.hint == "Its prompts lie in it directly: use --prompts reactor."
    monkeypatch.chdir("reactor/phased")
    with pytest.raises(ConfigError) as caught:
        agent("phased", Path())
    assert caught.value.hint == "Its prompts lie in it directly: use --prompts ..."


def test_a_flat_folder_says_where_the_files_belong(tmp_path: Path) -> None:
    (tmp_path / "reply.txt").write_text("x")
    with pytest.raises(ConfigError, match="has no folder 'phased'") as caught:
        agent("phased", tmp_path)
    assert caught.value.hint == f"Its prompts lie in it directly: move them to {tmp_path / 'phased'}."


def test_a_folder_without_prompts_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Prompts.")
    (tmp_path / "react").mkdir()
    with pytest.raises(ConfigError, match="has no prompts for the loop 'react'") as caught:
        agent("react", tmp_path)
    assert "plait prompts copy react" in str(caught.value.hint)


def test_a_folder_for_other_loops_only_warns(tmp_path: Path) -> None:
    """A comparison of loops, or `plait.toml`, may name one folder for several loops."""
    (said,) = warned("phased", write(tmp_path, react_system="Action", json_system="thought"))
    assert said.endswith("has no prompts for the loop 'phased', only for: json, react. Plait uses its own prompts.")
    assert warned("react", tmp_path) == []


def test_a_folder_for_the_fallback_loop_is_enough(tmp_path: Path) -> None:
    assert warned(plait.ReWOO(fallback="react"), write(tmp_path, react_question="{{ question }}")) == []


@pytest.mark.parametrize(("loop", "wrong", "right"), [("react", "sytem", "system"), ("phased", "replay", "reply")])
def test_a_misspelt_file_is_an_error_with_the_nearest_name(loop: str, wrong: str, right: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{wrong}.j2 is not used: the loop '{loop}' has no prompt") as caught:
        agent(loop, write(tmp_path, **{f"{loop}_{wrong}": "x"}))
    assert caught.value.hint == f"Did you mean {right}?"


@pytest.mark.parametrize(
    "use",
    [
        "{% include 'head.j2' %}",
        "{% include ['absent.j2', 'head.j2'] %}",
        "{% include 'he' ~ dialect ~ '.j2' ignore missing %}",
        "{% set file = 'head.j2' %}{% include file %}",
    ],
)
def test_a_file_that_an_own_template_includes_may_have_any_name(use: str, tmp_path: Path) -> None:
    assert warned("react", write(tmp_path, react_head="Action", react_system=use)) == []
    write(tmp_path, react_system="Action")
    with pytest.raises(ConfigError, match=r"head\.j2 is not used"):
        agent("react", tmp_path)


@pytest.mark.parametrize(
    ("name", "needs"),
    [("earlier", "transcript=user"), ("completion", "transcript=completion"), ("format_lines", "dialect=lines")],
)
def test_a_template_that_the_options_do_not_use_warns_in_one_line(name: str, needs: str, tmp_path: Path) -> None:
    (said,) = warned("react", write(tmp_path, **{f"react_{name}": "{{ question }}"}))
    assert f"react/{name} in" in said and f"is not used: it needs {needs}, and the loop has" in said
    assert "\n" not in said
    option, _, value = needs.partition("=")
    assert warned(plait.ReAct(**{option: value}), tmp_path) == []  # type: ignore[arg-type]


def test_a_folder_for_both_transcripts_does_not_warn(tmp_path: Path) -> None:
    folder = write(tmp_path, react_earlier="{{ question }}", react_question="{{ question }}")
    assert warned("react", folder) == warned(plait.ReAct(transcript="user"), folder) == []


def test_a_misspelt_field_names_the_fields_that_exist(tmp_path: Path) -> None:
    folder = write(tmp_path, react_earlier="{{ question }}{% for turn in turns %}{{ turn.replly }}{% endfor %}")
    run = agent(plait.ReAct(transcript="user"), folder, (CALL, "Final Answer: x")).run("?")
    assert run.status == "crashed"
    assert "no field 'replly'; the fields are number, observation, reply, text, tool" in str(run.reason)


def test_fields_are_those_of_mappings_and_objects() -> None:
    assert fields_of({"b": 1, "a": 2}) == ["a", "b"]
    assert fields_of("text") == fields_of([1]) == fields_of(None) == []
