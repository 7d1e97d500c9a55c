"""A script of calls and answers fits every loop; a function of the request answers, too."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core import Call, Reply
from plait.core.errors import ConfigError

WEATHER = {"calls": [{"name": "weather", "input": {"city": 'Lyon "é"'}}]}
CHAT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": 'Lyon "é"'})}}
    ],
}
PLANNERS: dict[str, Any] = {
    "rewoo": {"plan": [WEATHER], "solve": [{"answer": "It is sunny."}]},
    "compiler": {"plan": [WEATHER], "join": [{"answer": "It is sunny."}]},
    "phased": {"reason": ["I look."], "react": [WEATHER], "reply": [{"answer": "It is sunny."}]},
}


@plait.tool(read_only=True)
def weather(city: str) -> str:
    """Return the weather."""
    return f"sunny in {city}"


def run(loop: Any, replies: Any, **more: Any) -> plait.Run[Any]:
    agent = plait.Agent(loop, model=plait.Scripted(replies), tools=[weather], journal=False, **more)
    return agent.run("Weather in Lyon?")


TURNS = ["react", "json", "codeact", "tool_calling", *(plait.ReAct(dialect=each) for each in ("lines", "numbered"))]
TURNS += [plait.ReAct(transcript="user"), plait.ReAct(transcript="completion"), plait.JsonReAct(transcript="user")]


@pytest.mark.parametrize("loop", TURNS, ids=str)
@pytest.mark.parametrize("call", [WEATHER, CHAT], ids=["own", "chat"])
def test_one_script_works_for_every_loop_of_turns(loop: Any, call: dict[str, Any]) -> None:
    found = run(loop, [{**call, "text": "I look."} if "calls" in call else call, {"answer": "It is sunny."}])
    assert (found.status, found.answer, found.reason) == ("answered", "It is sunny.", None)
    assert [each.input for each in found.calls_of("weather")] == [{"city": 'Lyon "é"'}]


@pytest.mark.parametrize("loop", PLANNERS)
def test_planners_take_calls_and_answers_by_phase(loop: str) -> None:
    found = run(loop, PLANNERS[loop])
    assert (found.status, found.answer, found.reason) == ("answered", "It is sunny.", None)
    assert [(each.input, each.status) for each in found.calls_of("weather")] == [({"city": 'Lyon "é"'}, "ok")]


@pytest.mark.parametrize("loop", ["react", "json", "codeact", "tool_calling", "phased", "rewoo", "compiler"])
def test_a_typed_answer_is_written_for_every_loop(loop: str) -> None:
    replies: Any = [WEATHER, {"answer": {"city": "Lyon", "sun": True}}]
    if loop in PLANNERS:
        replies = {phase: list(said) for phase, said in PLANNERS[loop].items()}
        replies[[*replies][-1]] = [{"answer": {"city": "Lyon", "sun": True}}]
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "sun": {"type": "boolean"}}}
    found = run(loop, replies, output=schema)
    assert (found.status, found.output) == ("answered", {"city": "Lyon", "sun": True}), found.reason


def test_the_same_dictionaries_stand_in_a_file(tmp_path: Any) -> None:
    file = tmp_path / "replies.json"
    file.write_text(json.dumps([WEATHER, {"answer": "sunny"}]))
    for loop in ("react", "tool_calling"):
        agent = plait.Agent(loop, model=f"scripted:{file}", tools=[weather], journal=False)
        assert agent.run("q").answer == "sunny"


def test_an_error_of_a_function_is_not_called_a_defect_of_the_loop() -> None:
    run = plait.Agent("react", model=plait.Scripted(lambda request: request.messages[9])).run("?")
    assert run.status == "crashed" and "tuple index out of range (test_scripted_turns.py, line" in str(run.reason)
    assert "A function of the script" in str(run.reason) and "loop" not in str(run.reason)


def test_a_function_of_the_request_answers_every_request() -> None:
    def reply(request: Any) -> Any:
        return WEATHER if len(request.messages) < 3 else {"answer": "sunny"}

    for loop in ("react", "tool_calling", "json"):
        assert run(loop, reply).answer == "sunny"
    assert run("tool_calling", {"act": lambda request: "Hello"}).answer == "Hello"

    failing = run("tool_calling", lambda request: {"error": "BadRequest", "message": "No."})
    assert failing.status == "crashed" and failing.reason == "No."

    async def wrong(request: Any) -> str:
        return "x"

    found = run("tool_calling", wrong)
    assert found.status == "crashed" and "awaitable" in str(found.reason)


def test_replies_and_texts_stay_as_they_are() -> None:
    given = Reply("", calls=(Call("weather", {"city": "Nice"}),))
    assert run("tool_calling", [given, "sunny"]).calls_of()[0].input == {"city": "Nice"}
    assert run("react", ["Final Answer: {}"]).answer == "{}"


@for_each(
    ("reply", "words"),
    [
        ({}, "is empty"),
        ({"cals": []}, "has a key 'cals'"),
        ({"calls": [{"input": {}}]}, "is not a reply"),
        ({"calls": ["weather"]}, "is not a reply"),
        ({"tool_calls": [{"function": {"name": "w", "arguments": "{no"}}]}, "is not a reply"),
        (7, "should be text or an object"),
    ],
)
def test_a_wrong_reply_is_an_error_and_not_an_empty_one(reply: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plait.Scripted([reply])


def test_calls_that_a_phase_cannot_take_are_an_error() -> None:
    both = {"calls": [*WEATHER["calls"], *WEATHER["calls"]]}
    assert "makes one call" in str(run("react", [both]).reason)
    assert "makes no calls" in str(run("phased", {"reason": [WEATHER]}).reason)


def test_a_script_is_shared_and_counts_its_attempts() -> None:
    model = plait.Scripted([WEATHER, {"answer": "sunny"}])
    for loop in ("react", "tool_calling", "json"):
        assert plait.Agent(loop, model=model, tools=[weather], journal=False).run("q").answer == "sunny"
    assert model.sent == 6


def test_each_phase_has_its_own_order_without_turns() -> None:
    replies = {"plan": ["Plan: x\n#E1 = weather[Lyon]"], "solve": ["one"]}
    assert (
        plait.Agent("rewoo", model=plait.Scripted(replies, by_turn=False), tools=[weather], journal=False)
        .run("q")
        .answer
        == "one"
    )


REJECTED = [{"answer": {"sun": 1}}, {"answer": {"sun": 1}}, WEATHER, {"answer": {"sun": 2}}]


@pytest.mark.parametrize("loop", ["react", "json", "codeact", "tool_calling"])
@pytest.mark.parametrize("script", [REJECTED[1:], REJECTED, [REJECTED[0], {"answer": {"sun": 3}}, *REJECTED[2:]]])
def test_a_rejected_answer_is_a_reply_that_was_given(loop: str, script: list[Any]) -> None:
    model = plait.Scripted(script)
    schema = {"type": "object", "properties": {"sun": {"type": "integer"}}}
    output = plait.OutputType(schema, checks=[lambda said: None if said["sun"] == 2 else "Call weather first."])
    found = plait.Agent(loop, model=model, tools=[weather], output=output, journal=False).run("Weather in Lyon?")
    assert (found.status, found.output, model.sent) == ("answered", {"sun": 2}, len(script)), found.reason
    assert len(found.calls_of("weather")) == 1


CONVERSATION = [WEATHER, {"answer": "It is sunny in Lyon."}, WEATHER, {"answer": "It is raining there now."}]
SAID = ["Say: how is the weather?", "Go on.", "Go on."]


@pytest.mark.parametrize("loop", [*TURNS, plait.CodeAct(transcript="user"), *PLANNERS], ids=str)
def test_each_run_of_a_conversation_begins_with_the_first_reply(loop: Any, tmp_path: Path) -> None:
    replies: Any = CONVERSATION
    if loop in PLANNERS:
        replies = {**PLANNERS[loop], [*PLANNERS[loop]][-1]: CONVERSATION[1::2]}
    agent = plait.Agent(loop, model=plait.Scripted(replies), tools=[weather], journal=tmp_path / "journal.db")
    runs = [agent.run(question, session="trip") for question in SAID]
    assert [each.answer for each in runs] == ["It is sunny in Lyon."] * 3, [each.reason for each in runs]
    assert [len(each.history) for each in runs] == [0, 1, 2]
    given = agent.run("Go on.", history=runs[-1].messages())
    assert (given.answer, len(given.calls_of("weather"))) == ("It is sunny in Lyon.", 1)


@pytest.mark.parametrize("loop", ["react", "json", "tool_calling"])
def test_texts_that_are_whole_answers_begin_again_too(loop: str, tmp_path: Path) -> None:
    texts = ["The first answer is long.", "The second one is long."]
    agent = plait.Agent(loop, model=plait.Scripted(texts), tools=[weather], journal=tmp_path / "journal.db")
    assert [agent.run(question, session="trip").answer for question in SAID] == texts[:1] * 3
    one = agent.using(model=plait.Scripted(["ok", "no"]))
    assert [one.run(question, session="short").answer for question in ("ok", "ok", "ok")] == ["ok"] * 3


@pytest.mark.parametrize("loop", ["react", "json", "codeact", "tool_calling"])
def test_without_turns_the_replies_go_on_over_the_runs_of_a_conversation(loop: str, tmp_path: Path) -> None:
    script = plait.Scripted(CONVERSATION, by_turn=False)
    agent = plait.Agent(loop, model=script, tools=[weather], journal=tmp_path / "journal.db")
    assert [agent.run(question, session="trip").answer for question in SAID[:2]] == [
        "It is sunny in Lyon.",
        "It is raining there now.",
    ]


def test_a_run_of_a_conversation_that_waits_is_resumed_at_its_place(tmp_path: Path) -> None:
    for loop in ("react", "tool_calling"):
        agent = plait.Agent(
            loop, model=plait.Scripted(CONVERSATION[:2]), tools=[weather], journal=tmp_path / f"{loop}.db"
        )
        agent.run("Go on.", session="trip")
        waiting = agent.using(approve="always").run("Go on.", session="trip")
        assert waiting.status == "waiting"
        assert agent.using(approve="always").resume(waiting, "yes").answer == "It is sunny in Lyon."


def test_any_mapping_is_a_reply() -> None:
    assert run("react", [MappingProxyType({"answer": "sunny"})]).answer == "sunny"
