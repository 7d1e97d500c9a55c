"""The default loop, and answers that stream while they are written."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import plait
from models_server import Asked, Server, completion, delta, event
from plait.cli.run_output import next_steps
from plait.core import Call, Reply
from plait.core import events as ev
from plait.models.base import Abilities
from plait.server.agents import ServedAgent
from plait.server.chat_format import ChatRequest
from plait.server.completions import CompletionFormat
from plait.server.recorded_reply import Ending

ABOUT = "Lyon has 522,250 people. " * 20


@plait.tool
def people(city: str) -> int:
    """Return the number of people in a city."""
    return 522250


def stream_of(*parts: dict[str, Any]) -> bytes:
    """Return a stream whose deltas are these."""
    return b"".join(delta(**part) for part in parts) + delta("", "stop") + event(b"[DONE]")


async def ask(replies: list[bytes], journal: Path, **fields: Any) -> tuple[plait.Run, list[Any]]:
    """Return the run of an agent with the default loop, and its events."""

    async def handle(asked: Asked) -> None:
        await asked.stream(replies.pop(0))

    async with Server(handle) as server:
        agent = plait.Agent(model=server.model(**fields.pop("model", {})), journal=journal, **fields)
        seen = [each async for each in agent.stream("How many people live in Lyon?")]
    return seen[-1].run, seen


def test_a_model_with_native_tools_runs_as_tool_calling_and_names_it_first(tmp_path: Path) -> None:
    replies = [stream_of({"tool_calls": [call("people", '{"city": "Lyon"}')]}), stream_of({"content": "522,250"})]
    run, seen = asyncio.run(ask(replies, tmp_path / "j.db", tools=[people]))
    assert (run.status, run.answer, run.loop) == ("answered", "522,250", "tool_calling")
    assert isinstance(seen[0], ev.Began) and seen[0].loop == "tool_calling"


def test_a_reply_without_a_call_is_the_answer(tmp_path: Path) -> None:
    run, _ = asyncio.run(ask([stream_of({"content": "hi there"})], tmp_path / "j.db", tools=[people]))
    assert (run.answer, run.calls) == ("hi there", 1)


def test_a_model_without_native_tools_runs_as_react(tmp_path: Path) -> None:
    model = {"abilities": Abilities(tools=False)}
    run, _ = asyncio.run(ask([stream_of({"content": "Final Answer: 7"})], tmp_path / "j.db", model=model))
    assert (run.loop, run.answer) == ("react", "7")


def test_an_endpoint_that_refuses_tools_goes_on_as_react(tmp_path: Path) -> None:
    async def main() -> plait.Run:
        async def handle(asked: Asked) -> None:
            if "tools" in asked.body:
                await asked.answer(400, {"error": {"message": "m does not support tools"}})
            else:
                await asked.answer(200, completion("Thought: I know it.\nFinal Answer: 7"))

        async with Server(handle) as server:
            agent = plait.Agent(model=server.model(), tools=[people], journal=tmp_path / "j.db")
            return await agent.arun("How many?")

    run = asyncio.run(main())
    assert (run.status, run.answer) == ("answered", "7")


def test_an_agent_is_made_without_the_key_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = plait.Agent(model="openai:gpt-5", tools=[people], journal=False)
    assert repr(agent) == "Agent('auto', model='openai:gpt-5', tools=[people], journal=False)"
    with pytest.raises(plait.ConfigError, match="OPENAI_API_KEY"):
        agent.run("q")


def test_auto_takes_no_options_of_a_loop() -> None:
    with pytest.raises(plait.ConfigError, match="The loop 'auto' takes no options, such as dialect"):
        plait.loops.make("auto", {"dialect": "lines"})  # type: ignore[attr-defined]


def test_a_run_is_resumed_forked_and_replayed_with_the_loop_that_was_chosen(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    script = [Reply("", calls=(Call("people", {"city": "Lyon"}, "a"),)), "522,250"]
    run = plait.Agent(model=plait.Scripted(script), tools=[people], journal=journal, approve="always").run("q")
    assert (run.loop, run.status) == ("tool_calling", "waiting")
    agent = plait.Agent(model=plait.Scripted(script), tools=[people], journal=journal)
    resumed = agent.resume(run, "yes")
    assert (resumed.loop, resumed.answer) == ("tool_calling", "522,250")
    assert agent.replay(run.id).requests == 2
    text = agent.using(model=plait.Scripted(["Final Answer: 7"], abilities=Abilities(tools=False)))
    forked = text.fork(run.id, 2)
    assert forked.loop == "tool_calling", "a fork keeps the loop, whatever its model"


def test_an_answer_streams_as_text_and_is_marked_at_its_end(tmp_path: Path) -> None:
    parts = [{"content": part} for part in ("Lyon ", "has ", "522,250.")]
    _, seen = asyncio.run(ask([stream_of(*parts)], tmp_path / "j.db", tools=[people]))
    assert [each.text for each in seen if isinstance(each, ev.Text)] == ["Lyon", " has", " 522,250."]
    assert "".join(each.text for each in seen if isinstance(each, ev.Text | ev.Answer)) == "Lyon has 522,250."
    assert [each.kind for each in seen if isinstance(each, ev.Marked)] == ["answer"]


def test_text_behind_which_calls_come_ends_as_a_thought(tmp_path: Path) -> None:
    first = stream_of({"content": "I look."}, {"tool_calls": [call("people", '{"city": "Lyon"}')]})
    run, seen = asyncio.run(ask([first, stream_of({"content": "7"})], tmp_path / "j.db", tools=[people]))
    told = [each for each in seen if isinstance(each, ev.Text | ev.Thought | ev.Answer | ev.Marked)]
    first, last = (
        (ev.Text(1, "I look.", 1), ev.Marked(1, 1, "thought")),
        (ev.Text(2, "7", 2), ev.Marked(2, 2, "answer")),
    )
    assert told == [*first, *last]
    recorded = [each for each in run.events if isinstance(each, ev.Text | ev.Thought | ev.Answer | ev.Marked)]
    assert recorded == [ev.Thought(1, "I look.", 1), first[1], ev.Answer(2, "7", 2), last[1]]


def test_plain_code_iterates_the_same_events_and_leaving_early_cancels(tmp_path: Path) -> None:
    model = plait.Scripted([Reply("", calls=(Call("people", {"city": "Lyon"}, "a"),)), "7"], delay=0.01)
    agent = plait.Agent(model=model, tools=[people], journal=tmp_path / "j.db")
    seen = list(agent.stream("How many?"))
    assert isinstance(seen[0], ev.Began) and isinstance(seen[-1], ev.Ended) and seen[-1].run.answer == "7"
    for each in agent.stream("How many?"):
        left = each.run if isinstance(each, ev.Began) else ""
        break
    assert agent.resume(left).answer == "7", "the run was cancelled and can be resumed"


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def pieces(events: list[ev.Event], answer: str, tools: bool = True) -> list[str]:
    """Return the content that a server streams for these events, and what it sends at the end."""
    agent = plait.Agent("tool_calling", model=plait.Scripted([]), tools=[people] if tools else [], journal=False)
    made = CompletionFormat(ServedAgent("people", agent), ChatRequest("people", (), stream=True))
    sent = b"".join([*map(made.add, events), made.end(Ending(answer))]).decode()
    deltas = [json.loads(each)["choices"][0]["delta"] for each in re.findall("data: ({.*)", sent)]
    return [each["content"] for each in deltas if "content" in each]


def test_a_server_streams_the_answer_of_tool_calling_while_it_is_written() -> None:
    parts = [ABOUT[:100], ABOUT[100:300], ABOUT[300:].rstrip()]
    events = [ev.Asked(1, "act", "m"), *(ev.Text(1, part) for part in parts), ev.Marked(1, 0, "answer")]
    assert pieces(events, ABOUT.strip()) == [ABOUT[:300].rstrip(), ABOUT[len(ABOUT[:300].rstrip()) :].rstrip()]
    assert pieces([ev.Asked(1, "act", "m"), ev.Text(1, "Hi "), ev.Text(1, "there")], "Hi there", tools=False) == [
        "Hi",
        " there",
    ]


def test_a_sentence_before_a_call_is_not_sent_as_content() -> None:
    events = [
        *(ev.Asked(1, "act", "m"), ev.Text(1, "I look that up."), ev.Marked(1, 0, "thought")),
        *(ev.Asked(2, "act", "m"), ev.Text(2, ABOUT), ev.Marked(2, 0, "answer")),
    ]
    assert "".join(pieces(events, ABOUT.strip())) == ABOUT.strip()


def test_a_long_text_before_a_call_stays_a_paragraph_of_its_own() -> None:
    events = [
        *(ev.Asked(1, "act", "m"), ev.Text(1, ABOUT), ev.Marked(1, 0, "thought")),
        *(ev.Asked(2, "act", "m"), ev.Text(2, "7"), ev.Marked(2, 0, "answer")),
    ]
    assert "".join(pieces(events, "7")) == f"{ABOUT.strip()}\n\n7"


def test_an_answer_that_is_asked_again_is_not_sent_twice() -> None:
    """The first reply names a tool, so the loop asks again within the same step."""
    events = [ev.Asked(1, "act", "m"), ev.Text(1, "I call people."), ev.Asked(1, "act", "m"), ev.Text(1, "7")]
    assert pieces(events, "7") == ["7"]


def test_replay_fork_and_resume_take_a_run_or_its_id_and_nothing_else(tmp_path: Path) -> None:
    agent = plait.Agent(model=plait.Scripted(["Final Answer: 7"]), journal=tmp_path / "j.db")
    run = agent.run("q")
    assert agent.replay(run).whole and agent.fork(run, 1).answer == "7" and agent.resume(run).answer == "7"
    wrong: Any = 3
    for method in (agent.replay, agent.resume, lambda given: agent.fork(given, 1)):
        with pytest.raises(plait.ConfigError, match="3 is not a run"):
            method(wrong)


def test_a_question_of_a_wrong_type_is_reported_with_the_form_that_it_has(tmp_path: Path) -> None:
    agent = plait.Agent(model=plait.Scripted([]), journal=False)
    for wrong in (3, None, plait.attach(b"text", "a.txt")):
        with pytest.raises(plait.ConfigError, match=r"The question is of type .*\[TEXT, plait.attach"):
            agent.run(wrong)  # type: ignore[arg-type]


def test_a_rejected_setting_ends_with_the_command_that_can_change_it(tmp_path: Path) -> None:
    run = plait.Agent(model=plait.Scripted([]), journal=tmp_path / "j.db").run("q")
    line, _ = next_steps(run)
    assert line == f"To continue with another model or setting, run: plait fork {run.id} --at 1 --model NAME"
