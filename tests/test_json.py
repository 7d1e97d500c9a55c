"""json: what ends a reply behind its object comes from the prompt in use, and cuts nothing within the object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core import Think
from plait.models.wires.reply_text import TextFilter

PHRASE = "\nThe result of "
FINAL = {"thought": "t", "tool": "final_answer"}


def lookup(name: str) -> str:
    """Looks a name up."""
    return "4"


async def answer(*replies: str, chunk: int = 0, prompts: Path | None = None) -> Any:
    model = plait.Scripted(list(replies), by_turn=False, chunk=chunk)
    return await plait.Agent("json", model=model, tools=[lookup], prompts=prompts, journal=False).arun("What?")


@for_each("chunk", [0, 1, 7])
@for_each("raw", [False, True])
async def test_an_answer_that_holds_the_label_of_a_result_is_whole(raw: bool, chunk: int) -> None:
    text = f'It is "4".{PHRASE}lookup: was 4.'
    reply = json.dumps({**FINAL, "tool_input": text})
    run = await answer(reply.replace("\\n", "\n") if raw else reply, chunk=chunk)
    assert run.status == "answered" and run.answer == text


@pytest.mark.parametrize("chunk", [0, 1, 7])
async def test_what_a_model_makes_up_behind_its_object_is_cut(chunk: int) -> None:
    call = json.dumps({"thought": "t", "tool": "lookup", "tool_input": "a {"})
    made_up = f"{call}{PHRASE}lookup: 12\n{json.dumps({**FINAL, 'tool_input': '12'})}"
    run = await answer(made_up, json.dumps({**FINAL, "tool_input": "4"}), chunk=chunk)
    assert run.answer == "4"
    assert "12" not in run.rows()[2].record.value.text


async def test_the_label_of_a_users_own_template_ends_a_reply_and_no_stop_is_sent(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "result.j2").write_text("\nAntwort von {{ tool }}: {{ text }}")
    asked: list[Think] = []
    model = plait.Scripted([lambda think: (asked.append(think), json.dumps({**FINAL, "tool_input": "z"}))[1]])
    run = await plait.Agent("json", model=model, prompts=tmp_path, journal=False).arun("What?")
    assert run.answer == "z"
    assert asked[0].stop_after_object == ("\nAntwort von ",) and asked[0].stop == ()
    assert b'"stop"' not in model.encode(asked[0]).body


@pytest.mark.parametrize("template", ["{{ tool }}: {{ text }}", "- {{ tool }}", "no value at all"])
async def test_a_template_that_says_too_little_before_its_first_value_ends_no_reply(
    template: str, tmp_path: Path
) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "result.j2").write_text(template)
    run = await answer(json.dumps({**FINAL, "tool_input": "z"}), prompts=tmp_path)
    assert run.answer == "z"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"a": "x\nEND y"}\nEND z', '{"a": "x\nEND y"}'),
        ('{"a": "\\"}\nEND"} {"b": 1}\nEND', '{"a": "\\"}\nEND"} {"b": 1}'),
        ('I write {x}.\n{"a": {"b": "\nEND"}}x\nEND', 'I write {x}.\n{"a": {"b": "\nEND"}}x'),
        ("\nEND of no object", "\nEND of no object"),
    ],
)
def test_only_behind_the_first_object_the_label_counts(text: str, kept: str) -> None:
    for size in (1, 3, len(text)):
        filter = TextFilter(after_object=("\nEND",))
        pieces = [filter.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join(pieces) + filter.close() == kept


def test_a_reply_that_goes_on_behind_a_prefill_is_in_its_object() -> None:
    filter = TextFilter(after_object=("\nEND",), before='{"a": "x')
    assert filter.feed('\nEND"}\nEND no') + filter.close() == '\nEND"}'


@pytest.mark.parametrize("transcript", ["user", "completion"])
def test_the_log_may_be_one_message_or_one_raw_prompt(transcript: Any, tmp_path: Path) -> None:
    call = json.dumps({"thought": "t", "tool": "lookup", "tool_input": "a"})
    asked: list[Think] = []

    def reply(text: str) -> Any:
        return lambda think: (asked.append(think), text)[1]

    replies = [reply(call), reply("{no object"), reply(json.dumps({**FINAL, "tool_input": "4"}))]
    model = plait.Scripted(replies, by_turn=False)
    loop = plait.JsonReAct(transcript=transcript)
    run = plait.Agent(loop, model=model, tools=[lookup], journal=tmp_path / "runs.db").run("What?")
    assert (run.status, run.answer, run.calls) == ("answered", "4", 3)
    first, second, third = (think.prompt or think.messages[1].content for think in asked)
    assert first.rstrip().endswith("The task: What?")
    assert f"{call}\nThe result of lookup: 4" in second
    assert "could not be used" in (asked[2].messages[-1].content if transcript == "user" else third)
