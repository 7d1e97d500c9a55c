"""Ollama, llama.cpp, vLLM, LM Studio and SGLang as people met them. README.md names the thread of each test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from endpoint_runs import FINAL, WARM, run_against, run_agent, run_plait

import plait
from models_server import Asked, delta, event, whole_stream
from plait.loops.json.loop import JsonReAct
from plait.models.base import Abilities

DONE = event(b"[DONE]")
NATIVE = {"index": 0, "id": "a", "function": {"name": "weather", "arguments": '{"city": "Lyon"}'}}
CALL = delta(tool_calls=[NATIVE], finish="tool_calls") + DONE
JSON_ANSWER = whole_stream('{"thought": "x", "tool": "final_answer", "tool_input": "21"}')


def refusal(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def chunk(finish: str | None = None, usage: Any = None, **part: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": part, "finish_reason": finish}], "usage": usage})


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}


# Ollama


def test_ollama_dropped_the_users_message_the_run_shows_less_and_answers(journal: Path) -> None:
    @plait.tool(read_only=True)
    def read_page(number: int) -> str:
        """A page."""
        return "word " * 3000

    call = {"index": 0, "id": "a", "function": {"name": "read_page", "arguments": '{"number": 1}'}}
    too_long = (500, refusal("no user query found in messages", type="api_error"))
    replies = (delta(tool_calls=[call], finish="tool_calls") + DONE, too_long, WARM)
    made = run_agent([], [read_page], *replies, model={"provider": "ollama"}, journal=journal)
    assert (made.status, made.answer, len(made.bodies)) == ("answered", "21 degrees.", 3)
    assert len(made.requests[2].raw) < len(made.requests[1].raw) / 2
    assert made.replays()


@pytest.mark.parametrize("provider, is_noted", [("ollama", True), ("", True), ("openai", False)])
def test_a_prompt_that_the_server_cut_silently_is_noted_once(provider: str, is_noted: bool) -> None:
    long = "The river is calm. " * 3000
    first = delta(tool_calls=[NATIVE], finish="tool_calls") + event({"choices": [], "usage": usage(2051)}) + DONE
    replies = (first, whole_stream("21 degrees.", usage=usage(2051)))
    made = run_against(*replies, model={"provider": provider}, question=f"{long} How warm is it in Lyon?")
    notes = [note for note in made.notes if "reports only 2,051 tokens" in note]
    assert (made.status, len(notes)) == ("answered", int(is_noted))
    assert all("OLLAMA_CONTEXT_LENGTH" in note for note in notes)


def test_a_cut_prompt_does_not_shrink_later_estimates() -> None:
    from plait.core import Usage
    from plait.runtime.tally import TokenEstimate

    estimate, model, body = TokenEstimate(), plait.Scripted([]), b"x" * 63_000
    estimate.learn(model, body, Usage(2051, 5))
    assert estimate.prompt_tokens(model, body) > 15_000


def test_the_system_prompt_reaches_ollama_and_the_record_shows_it(journal: Path) -> None:
    made = run_against(WARM, model={"provider": "ollama"}, instructions="Speak like a sailor.", journal=journal)
    assert "Speak like a sailor." in made.bodies[0]["messages"][0]["content"]
    assert made.bodies[0]["messages"][0]["role"] == "system"
    shown = run_plait("show", made.run.id, "--wire", "--journal", str(journal))
    assert "Speak like a sailor." in shown


def test_a_model_without_tools_in_ollama_gets_a_loop_in_text() -> None:
    said = "registry.ollama.ai/library/deepseek-r1:1.5b does not support tools"
    no_tools = (400, refusal(said, type="api_error", param=None, code=None))
    made = run_against(no_tools, FINAL, loop="auto", model={"provider": "ollama"})
    assert (made.status, made.answer) == ("answered", "21 degrees.")
    assert any("takes no native tools" in note for note in made.notes)


def test_calls_before_the_chunk_that_ends_with_stop_are_made() -> None:
    made = run_against(delta(tool_calls=[NATIVE]) + delta(finish="stop") + DONE, WARM)
    assert (made.answer, made.cities) == ("21 degrees.", ["Lyon"])


# llama.cpp


def test_a_grammar_that_llama_cpp_cannot_start_names_the_schema_and_the_way_out() -> None:
    said = "Failed to initialize samplers: Unexpected empty grammar stack after accepting piece: <think> (248068)"
    refused = (400, refusal(said, code=400, type="invalid_request_error"))
    model = {"provider": "llamacpp", "abilities": Abilities(schema=True)}
    made = run_against(refused, loop=JsonReAct(constrain=True), model=model)
    assert "response_format" in made.bodies[0]
    assert (made.status, len(made.bodies)) == ("crashed", 1)
    assert any("--set constrain=false" in note for note in made.notes)
    assert run_against(JSON_ANSWER, loop=JsonReAct(constrain=False), model=model).answer == "21"


TEMPLATE = 'Unknown method: keys at row 57, column 46:\n {%- for json_key in param_fields.keys() | reject("in", x) %}'


NEWER = (
    "Unable to generate parser for this template. Automatic parser generation failed: \n------------\n"
    "While executing CallExpression at line 1, column 84 in source:\n...unction.parameters.properties.keys() %}...\n"
)
RENDERING = 'Error rendering prompt with jinja template: "Cannot call something"'


@pytest.mark.parametrize("said", [TEMPLATE, NEWER, RENDERING])
def test_a_chat_template_that_cannot_write_tools_leads_to_a_loop_in_text(said: str) -> None:
    made = run_against((500, refusal(said, code=500, type="server_error")), FINAL, loop="auto")
    assert (made.status, made.answer, len(made.bodies), made.pauses) == ("answered", "21 degrees.", 2, [])


def test_an_error_about_a_line_of_json_is_no_lack_of_tools() -> None:
    said = "Invalid JSON in the arguments of a tool call at line 1, column 84"
    made = run_against(*[(400, refusal(said))] * 2, loop="auto")
    assert made.status == "crashed" and not any("takes no native tools" in note for note in made.notes)


def test_a_template_that_refuses_system_messages_is_no_lack_of_tools() -> None:
    said = "System role not supported at row 4, column 28"
    made = run_against(*[(500, refusal(said, code=500))] * 4, loop="auto")
    assert made.status == "crashed" and "System role not supported" in made.reason


def test_reasoning_of_gpt_oss_is_not_sent_back_beside_content_and_calls() -> None:
    first = chunk(role="assistant", content="I look. ") + chunk(reasoning_content="The user asks. ") + CALL
    made = run_against(first, WARM, model={"provider": "llamacpp"})
    assert made.cities == ["Lyon"]
    turn = next(each for each in made.bodies[1]["messages"] if each["role"] == "assistant")
    assert turn["tool_calls"] and not {"reasoning_content", "reasoning", "thinking"} & turn.keys()


# vLLM


def test_a_call_without_arguments_of_a_tool_without_parameters_is_made_and_sent_back_as_an_object() -> None:
    called: list[str] = []

    @plait.tool(read_only=True)
    def today() -> str:
        """The date."""
        called.append("today")
        return "2026-11-26"

    for function in ({"name": "today"}, {"name": "today", "arguments": ""}, {"name": "today", "arguments": None}):
        first = delta(tool_calls=[{"index": 0, "id": "a", "function": function}], finish="tool_calls") + DONE
        made = run_agent([], [today], first, WARM, question="Which day is it?")
        (call,) = next(each for each in made.bodies[1]["messages"] if each["role"] == "assistant")["tool_calls"]
        assert (made.answer, call["function"]["arguments"]) == ("21 degrees.", "{}")
    assert called == ["today"] * 3


def test_a_parser_that_leaves_the_calls_in_the_text_loses_none() -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Lyon"}}\n</tool_call>'
    made = run_against(whole_stream(text[:30], text[30:]), WARM)
    assert (made.answer, made.cities) == ("21 degrees.", ["Lyon"])


def test_usage_that_is_null_in_each_chunk_is_asked_for_and_estimated() -> None:
    made = run_against(chunk(content="21 ") + chunk("stop", content="degrees.") + DONE)
    assert made.bodies[0]["stream_options"] == {"include_usage": True}
    assert made.answer == "21 degrees." and made.run.usage.estimated and made.run.usage.input_tokens > 100


def test_later_pieces_of_a_call_with_empty_ids_belong_to_it() -> None:
    first = {"index": 0, "id": "call-1", "function": {"name": "weather", "arguments": ""}}
    more = [{"index": 0, "id": "", "function": {"name": None, "arguments": text}} for text in ('{"city": ', '"Lyon"}')]
    second = {**first, "id": "call-2", "function": {"name": "weather", "arguments": '{"city": "Nice"}'}}
    pieces = b"".join(delta(tool_calls=[each]) for each in (first, *more, second))
    made = run_against(pieces + delta(finish="tool_calls") + DONE, WARM)
    assert sorted(made.cities) == ["Lyon", "Nice"]


# LM Studio


async def as_strict_as_lm_studio(asked: Asked) -> None:
    form = asked.body.get("response_format", {"type": "text"})
    if form["type"] not in ("json_schema", "text"):
        await asked.answer(400, {"error": "'response_format.type' must be 'json_schema' or 'text'"})
    else:
        await asked.stream(JSON_ANSWER)


@pytest.mark.parametrize("constrain", [True, False])
@pytest.mark.parametrize("schema", [True, False])
def test_lm_studio_never_gets_json_object(constrain: bool, schema: bool) -> None:
    model = {"provider": "lmstudio", "abilities": Abilities(schema=schema)}
    made = run_against(as_strict_as_lm_studio, loop=JsonReAct(constrain=constrain), model=model)
    assert (made.status, made.answer) == ("answered", "21")


# SGLang


def test_null_roles_and_contents_until_the_reasoning_ends_are_nothing() -> None:
    thinks = chunk(role=None, content=None, reasoning_content="hm", tool_calls=None)
    made = run_against(thinks * 3 + chunk("stop", role=None, content="21", reasoning_content=None) + DONE)
    assert (made.status, made.answer) == ("answered", "21")


def test_text_and_a_call_in_one_chunk_are_both_kept() -> None:
    made = run_against(chunk(content="I look it up.", tool_calls=[NATIVE]) + chunk("tool_calls") + DONE, WARM)
    turn = next(each for each in made.bodies[1]["messages"] if each["role"] == "assistant")
    assert (made.cities, turn["content"]) == (["Lyon"], "I look it up.")
