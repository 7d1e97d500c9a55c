"""Earlier turns keep their tool calls: in a session, and as chat messages that a run returns and takes."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from long_run_support import LOOPS, QUESTION, TEXT, in_wire, look, model_of, texts_of
from plait import loops
from plait.core import Exchange, LoopContext, PastCall, Task, Think
from plait.core.errors import ConfigError
from plait.core.events import Observed
from plait.journal.records import SessionTurn
from plait.models.base import Abilities
from plait.models.wires.wire import WIRES
from plait.runtime.conversations.chat_messages import NO_RESULT
from plait.runtime.conversations.sessions import fit_turns
from plait.runtime.run import Run
from plait.runtime.templates.prompts import PromptBook

PAST = (Exchange("What is on page 1?", "Ships.", (PastCall("look", 1, "[page 1] Ships and salt."),)),)


def reader(loop: str, asked: list[Think] | None = None, journal: Path | bool = False, **options: Any) -> plait.Agent:
    """Return an agent that reads the one page of a book, unless it sees the page already."""
    model = model_of(1, [] if asked is None else asked)
    return plait.Agent(LOOPS[loop](2), model=model, tools=[look], journal=journal, **options)  # type: ignore[arg-type]


def pages_read(run: Run) -> int:
    return sum(isinstance(event, Observed) for event in run.events)


@pytest.mark.parametrize("loop", sorted(LOOPS.keys() - {"codeact"}))
def test_the_messages_of_a_run_are_its_question_calls_results_and_answer(loop: str) -> None:
    asked, made, result, answer = reader(loop).run(QUESTION).messages()
    assert asked == {"role": "user", "content": QUESTION}
    (call,) = made["tool_calls"]
    assert (made["role"], made["content"], call["type"], call["function"]["name"]) == (
        "assistant",
        None,
        "function",
        "look",
    )
    assert "1" in call["function"]["arguments"] and json.loads(call["function"]["arguments"])
    assert result == {"role": "tool", "tool_call_id": call["id"], "content": f"[page 1] {TEXT}"}
    assert answer == {"role": "assistant", "content": "Oranges."}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_goes_on_from_the_messages_of_another_without_a_session(loop: str) -> None:
    first = reader(loop).run(QUESTION)
    second = reader(loop).run("And what else?", history=first.messages())
    assert second.answer == "Oranges." and (pages_read(first), pages_read(second)) == (1, 0)
    messages, own = second.messages(), 4 if loop == "codeact" else 2  # its last piece of code ends it
    assert [messages[-own]["content"], messages[-1]["content"]] == ["And what else?", "Oranges."]
    assert messages[:-own] == first.messages()  # whole, although the model saw a shortened result
    third = reader(loop).run("Once more?", history=json.loads(json.dumps(messages)))
    assert pages_read(third) == 0 and len(third.messages()) == len(messages) + own


@pytest.mark.parametrize("loop", LOOPS)
def test_a_session_keeps_results_as_far_as_its_share_of_the_context_goes(loop: str, journal: Path) -> None:
    reader(loop, journal=journal).run(QUESTION, session="book")
    asked: list[Think] = []
    agent = reader(loop, asked, journal)
    run = agent.run("And what else?", session="book")
    assert pages_read(run) == 0 and TEXT.strip() in "".join(texts_of(asked[0]))  # whole
    assert agent.replay(run.id).requests == run.calls
    forgets = reader(loop, journal=journal, history=plait.History(share=0.003))
    assert pages_read(forgets.run("And what else?", session="book")) == 1


@for_each("loop", ["react", "json", "tool_calling", "phased", "codeact", "rewoo", "compiler"])
def test_each_loop_shows_earlier_calls(loop: str) -> None:
    context = LoopContext((look.spec,), PromptBook(loop))
    effect = next(loops.make(loop).run(Task(QUESTION, PAST), context))
    think = effect if isinstance(effect, Think) else effect.effects[0]  # type: ignore[union-attr]
    text = "\n".join(texts_of(think))
    assert text.index("What is on page 1?") < text.index("Ships and salt.") < text.index("Ships.\n")


@pytest.mark.parametrize("wire", WIRES)
def test_native_calls_of_earlier_turns_are_paired_on_each_wire(wire: str) -> None:
    asked: list[Think] = []
    past = (Exchange("One?", "1", (PastCall("look", {"page": 8}, "a"), PastCall("look", {"page": 9}, "b"))),)
    reader("tool_calling", asked).run(QUESTION, history=past)
    assert len(asked) == 2
    for think in asked:
        calls, results = in_wire(wire, think)
        assert calls == results and len(set(calls)) == len(calls) >= 2


def test_calls_as_text_are_shown_in_the_same_form() -> None:
    asked: list[Think] = []
    model = model_of(1, asked)
    model.abilities = model.abilities.without("tools")
    plait.Agent(plait.ToolCalling(), model=model, tools=[look], journal=False).run(QUESTION, history=PAST)
    roles = [message.role for message in asked[0].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert json.loads(asked[0].messages[2].content) == {"name": "look", "arguments": 1}


def test_without_tools_no_native_calls_are_sent() -> None:
    asked: list[Think] = []
    agent = plait.Agent("tool_calling", model=model_of(0, asked), journal=False)
    assert agent.run(QUESTION, history=PAST).status == "answered"
    assert all(not message.calls and message.role != "tool" for message in asked[0].messages)


def test_the_reserved_call_offers_tools_if_earlier_turns_have_calls() -> None:
    asked: list[Think] = []
    agent = reader("tool_calling", asked, limits=plait.Limits(calls=1))
    assert agent.run(QUESTION, history=PAST).status == "stopped"
    assert asked[0].tools


def test_the_newest_calls_fill_the_budget() -> None:
    calls = tuple(PastCall("look", n, f"{n} " + "x" * 300) for n in range(9))
    turns = [SessionTurn(n, "", f"q{n}", "a", 0.0, calls) for n in (1, 2)]
    (first, second), is_hidden = fit_turns(turns, 1000)
    assert is_hidden and first.calls == () and [call.input for call in second.calls] == [5, 6, 7, 8][1:]
    assert all(len(call.result) <= 303 for call in second.calls)
    assert [each.calls for each in fit_turns(turns, 6)[0]] == [(), ()]
    assert fit_turns(turns, 9000) == (tuple(Exchange(each.question, "a", calls) for each in turns), False)


def test_a_run_with_passed_turns_and_no_session_is_resumed_with_them(journal: Path) -> None:
    long = [Exchange(f"q{n}", f"answer {n}") for n in range(9)]
    agent = reader("react", journal=journal, can_ask=True, approve="always")
    waiting = agent.run(QUESTION, history=long)
    assert waiting.status == "waiting"
    question = waiting.outcome.question  # type: ignore[union-attr]
    assert agent.resume(waiting.id, answer="yes", question=question).answer == "Oranges."
    assert agent.replay(waiting.id).whole


MESSAGES: dict[str, tuple[list[Any], str]] = {
    "an unknown role": ([{"role": "user", "content": "a"}, {"role": "narrator", "content": "b"}], r"history\[1\]"),
    "a call without a name": ([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{}]}], "no name"),
    "a number": ([{"role": "user", "content": [5]}], "not text"),
    "no message": (["Hello"], r"history\[0\]"),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_message_of_a_wrong_shape_is_an_error_that_names_its_place(case: str) -> None:
    messages, words = MESSAGES[case]
    with pytest.raises(ConfigError, match=words):
        reader("react").run(QUESTION, history=messages)


def test_system_messages_open_calls_and_parts_of_text_are_read() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "not json"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": " and two?"}]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "assistant", "content": "Yes."},
    ]
    run = reader("react").run(QUESTION, history=messages)
    asked, made, result, answer = run.messages()[:4]
    assert asked == {"role": "user", "content": "(system message: Be brief.)\n\nOne and two?"}
    assert json.loads(made["tool_calls"][0]["function"]["arguments"]) == {"input": "not json"}
    assert result["content"] == NO_RESULT and answer == {"role": "assistant", "content": "Yes."}


CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"page":1}'}}
PNG = b"\x89PNG\r\n\x1a\n rest"
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}}


def said(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


FOREIGN: dict[str, tuple[list[Any], list[str]]] = {
    "a greeting first": ([said("assistant", "How can I help?"), said("user", "q"), said("assistant", "a")],
        ["(nothing was asked yet)", "How can I help?", "q", "a"]),
    "two messages of the user": ([said("user", "Order 8812"), said("user", "I am Ana"), said("assistant", "Thanks")],
        ["Order 8812\n\nI am Ana", "Thanks"]),
    "two of the assistant": ([said("user", "q"), said("assistant", "Hm"), said("assistant", "Yes")],
        ["q", "Hm\n\nYes"]),
    "the user last": ([said("user", "q"), said("assistant", "a"), said("user", "Order 8812")],
        ["q", "a", "Order 8812", "(no answer)"]),
    "a result without its call": ([said("tool", "522250", tool_call_id="x"), said("assistant", "It is 522,250.")],
        ["(nothing was asked yet)", "unknown_tool", "522250", "It is 522,250."]),
    "a call without its result": ([said("user", "q"), said("assistant", "I look.", tool_calls=[CALL])],
        ["q", "look", NO_RESULT, "I look."]),
    "one of two results": ([said("user", "q"), said("assistant", tool_calls=[CALL, {**CALL, "id": "b"}]),
        said("tool", "two", tool_call_id="b"), said("assistant", "a")], ["q", NO_RESULT, "two", "a"]),
    "functions of old": ([said("user", "q"), said("assistant", function_call=CALL["function"]),
        said("function", "7", name="look"), said("assistant", "a")], ["q", "look", "7", "a"]),
    "a system message between": ([said("user", "q"), said("assistant", "a"), said("system", "Order 8812")],
        ["q", "a", "(system message: Order 8812)", "(no answer)"]),
    "empty messages": ([said("user", ""), said("assistant", ""), said("user", "q"), said("assistant"),
        said("user"), said("assistant", "a")], ["q", "a"]),
    "a picture": ([said("user", [{"type": "text", "text": "Look"}, PICTURE]), said("assistant", "a")],
        ["Look\n(attached: image)", "a"]),
    "an address": ([said("user", [{"type": "image_url", "image_url": {"url": "http://localhost/x.png"}}, "Look"]),
        said("assistant", "a")], ["(image_url, not shown: A part of type image_url is no data URL.)\nLook", "a"]),
    "a part of another wire": ([said("assistant", [{"type": "tool_use", "name": "look", "input": {"key": 8812}}])],
        ["tool_use", "8812"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FOREIGN)
@pytest.mark.parametrize("loop", ["react", "tool_calling", "phased", "tool_calling without tools"])
def test_nothing_of_a_foreign_history_is_dropped(case: str, loop: str) -> None:
    messages, words = FOREIGN[case]
    asked: list[Think] = []
    agent = reader(loop.split()[0], asked)
    run = (agent if loop in LOOPS else agent.using(tools=())).run(QUESTION, history=messages)
    assert run.status == "answered"
    shown = "\n".join(
        "\n".join((*(call.tool for call in message.calls), message.content)) for message in asked[0].messages
    )
    at = 0
    for text in words:
        assert text in shown[at:], (text, shown)
        at = shown.index(text, at) + len(text)
    assert not any(message.role in ("user", "assistant") and not (message.content or message.calls)
                   for message in asked[0].messages)  # fmt: skip
    again: list[Think] = []
    model = model_of(1, again)
    agent.using(model=model, tools=agent.tools if loop in LOOPS else ()).run("More?", history=run.messages())
    assert all(text in "\n".join(texts_of(again[0])) for text in (*words[1:2], QUESTION))


def test_calls_and_results_of_a_foreign_history_are_paired_on_each_wire() -> None:
    messages = [message for case in FOREIGN.values() for message in case[0]]
    for wire in WIRES:
        asked: list[Think] = []
        reader("tool_calling", asked).run(QUESTION, history=messages)
        calls, results = in_wire(wire, asked[0])
        assert calls == results and len(set(calls)) == len(calls) >= 5


@pytest.mark.parametrize("images", [True, False])
def test_a_model_gets_the_files_of_earlier_turns_if_it_accepts_them(images: bool, journal: Path) -> None:
    messages = FOREIGN["a picture"][0]
    asked: list[Think] = []
    agent = reader("react", asked, journal, approve="always")
    model = model_of(1, asked, room=20_000)
    model.abilities = Abilities(images=images)
    agent = agent.using(model=model)
    waiting = agent.run(QUESTION, history=messages)
    run = agent.resume(waiting, answer="yes")  # the files come from the journal
    assert run.answer == "Oranges." and len(asked) >= 2
    for think in asked:
        files = [file.digest for message in think.messages for file in message.attachments]
        assert files == [sha256(PNG).hexdigest()] * images
        assert "(attached: image)" in "\n".join(texts_of(think))
    assert agent.replay(run.id).whole


@pytest.mark.parametrize("loop", LOOPS)
def test_earlier_turns_that_do_not_fit_a_context_of_unknown_size_are_left_out(loop: str, journal: Path) -> None:
    earlier = [Exchange(f"Question {n}? {'Ships. ' * 200}", "Salt.") for n in range(20)]
    asked: list[Think] = []
    agent = plait.Agent(LOOPS[loop](2), model=model_of(1, asked, known=False), tools=[look], journal=journal)
    run = agent.run(QUESTION, history=earlier)
    assert run.answer == "Oranges." and pages_read(run) == 1
    shown = "".join(texts_of(asked[0]))
    assert "Question 19?" in shown and "Question 0?" not in shown
    assert agent.replay(run.id).whole
    assert any("earlier turns are left" in str(event) for event in run.events)
