"""Claims about a model that simply answers, and about the built-in tools of the loop `json`."""

from __future__ import annotations

import pytest

import plait
from conftest import for_each
from plait.loops.json.format import JsonTurn
from plait.toolkits.questions import ask_user


@plait.tool(read_only=True, inline=True)
def capital(country: str) -> str:
    """Tells the capital of a country."""
    return "Paris"


LOOPS = [plait.ReAct(), plait.ReAct(dialect="lines"), plait.ReAct(dialect="numbered"), plait.JsonReAct()]
each_loop = pytest.mark.parametrize("loop", LOOPS, ids=["blob", "lines", "numbered", "json"])


def run(loop: plait.Loop, *replies: str) -> plait.Run:
    model = plait.Scripted([*replies], by_turn=False)
    return plait.Agent(loop, model=model, tools=[capital], journal=False).run("Hello")


@each_loop
@for_each(
    "text", ["hi there", "Hello! How may I help you?", "The capital of France is Paris.", "The first one costs $5."]
)
def test_a_plain_first_reply_is_the_answer_after_one_model_call(loop: plait.Loop, text: str) -> None:
    model_run = run(loop, text) if "capital" not in text else run(loop, text.replace("capital", "largest city"))
    assert model_run.status == "answered"
    assert model_run.answer == text.replace("capital", "largest city")


@each_loop
@for_each(
    "text",
    [
        "I will look that up.", "Let me check this for you.", "First, one needs the country.", "capital France",
        "I need more information.", "Thought: it is late", '{"country": "France"}', "Tool: none",
    ],
)  # fmt: skip
def test_a_reply_that_announces_or_may_be_a_call_is_asked_for_again(loop: plait.Loop, text: str) -> None:
    assert run(loop, text, text, text).status == "failed"


def test_plain_text_after_a_call_is_no_answer() -> None:
    call = 'Thought: t\nAction:\n```json\n{"action": "capital", "action_input": "France"}\n```'
    assert run(plait.ReAct(), call, "Paris it is.", "Paris it is.", "Paris it is.").status == "failed"


def turn(tool: str, given: str = "x") -> str:
    return JsonTurn().write(plait.loops.format.Turn("t", plait.core.Call(tool, given)), 1)


@pytest.mark.parametrize(("can_ask", "named"), [(True, ["ask_user, final_answer and fail_task"]), (False, [])])
def test_the_message_about_an_unknown_tool_names_the_built_in_ones(can_ask: bool, named: list[str]) -> None:
    model = plait.Scripted([turn("weather"), turn("final_answer")], by_turn=False)
    agent = plait.Agent(plait.JsonReAct(), model=model, tools=[capital], journal=False, can_ask=can_ask)
    text = str(agent.run("Hello").trace)
    assert "final_answer and fail_task" in text
    assert ("ask_user, final_answer" in text) is bool(named)


@pytest.mark.parametrize("can_ask", [True, False])
def test_the_schema_and_the_list_of_tools_offer_each_tool_once_and_none_that_is_not_there(can_ask: bool) -> None:
    model = plait.Scripted([turn("final_answer")], by_turn=False)
    agent = plait.Agent(
        plait.JsonReAct(constrain=True), model=model, tools=[capital, ask_user], journal=False, can_ask=can_ask
    )
    record = str(agent.run("Hello").trace)
    assert record.count("\\nask_user: ") + record.count("\nask_user: ") == 1


@pytest.mark.parametrize("can_ask", [True, False])
def test_a_request_offers_ask_user_only_where_somebody_can_be_asked(can_ask: bool) -> None:
    model = plait.Scripted([turn("final_answer")], by_turn=False)
    agent = plait.Agent(plait.JsonReAct(constrain=True), model=model, tools=[capital], journal=False, can_ask=can_ask)
    record = str(agent.run("Hello").trace)
    assert "fail_task" in record
    assert ("ask_user" in record) is can_ask


@pytest.mark.parametrize(
    "text",
    [
        'capital(country="Fra',
        'capital\n{"country": "Fra',
        '<function=capital>{"country": "Fra</function>',
        "<think>capital",
    ],
)
def test_tool_calling_asks_again_where_a_call_of_its_tools_broke_in_the_text(text: str) -> None:
    answered = run(plait.ToolCalling(), text, '[capital(country="France")]', "Paris")
    assert (answered.status, answered.answer) == ("answered", "Paris")
    assert answered.calls == 3  # model calls: the broken one was not taken for the answer
