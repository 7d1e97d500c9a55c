"""What is being written is told as it stands, and nothing of it where it can't be told apart or is over."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import for_each
from plait.core import Call, Observation, Usage
from plait.core import events as ev
from plait.journal.store import Journal
from plait.models import embedded
from plait.server.runs import ActiveRun
from plait.view.live import NOBODY, follow_run
from plait.view.live_texts import LONGEST, LiveTexts, PartialReplies
from window_support import Held, action, answer, react


def replied(step: int) -> ev.Replied:
    return ev.Replied(step, "act", "m", "", Usage(), 0.0, None)


def test_pieces_of_one_kind_are_one_text_and_a_whole_reply_is_told_no_more() -> None:
    replies = PartialReplies()
    for event in (ev.Asked(1, "act", "m"), ev.Thought(1, "I "), ev.Thought(1, "look."), ev.Action(1, "look(")):
        replies.add(event)
    assert replies.steps() == [{"step": 1, "parts": [["thought", "I look."], ["action", "look("]]}]
    replies.add(replied(1))
    assert replies.steps() == []


def test_before_the_first_word_the_stage_of_the_model_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = [True]
    monkeypatch.setattr(embedded, "is_loading", lambda name: loading[0])
    replies = PartialReplies()
    replies.add(ev.Asked(1, "act", "local:m"))
    replies.add(ev.Asked(2, "act", "openai:m"))
    assert [(each["stage"], each["seconds"]) for each in replies.steps()] == [("loading model", 0), ("", 0)]
    loading[0] = False
    assert replies.steps()[0]["stage"] == "reading prompt"
    replies.add(ev.Thought(1, "I"))
    assert replies.steps()[0] == {"step": 1, "parts": [["thought", "I"]]}


def test_replies_written_at_once_are_told_by_their_steps_and_not_at_all_in_one_step() -> None:
    replies = PartialReplies()
    for event in (ev.Asked(1, "work", "m"), ev.Asked(2, "work", "m"), ev.Thought(2, "b"), ev.Thought(1, "a")):
        replies.add(event)
    assert {each["step"]: each["parts"] for each in replies.steps()} == {1: [["thought", "a"]], 2: [["thought", "b"]]}
    for event in (ev.Asked(1, "work", "m"), ev.Thought(1, "c"), replied(1), ev.Thought(1, "d")):
        replies.add(event)
    assert [each["step"] for each in replies.steps()] == [2]


@dataclass
class Trip:
    city: str


@for_each(
    "events, parts",
    [
        ([ev.Text(1, "It is "), ev.Text(1, "42.")], [["text", "It is 42."]]),
        ([ev.Text(1, "It is "), ev.Answer(1, "42.")], [["answer", "It is 42."]]),
        (
            [ev.Text(1, "I "), ev.Thought(1, "look."), ev.Action(1, "f()")],
            [["thought", "I look."], ["action", "f()"]],
        ),
        ([ev.PartialOutput(1, Trip("L")), ev.PartialOutput(1, Trip("Lyon"))], [["output", '{\n "city": "Lyon"\n}']]),
        ([ev.PartialOutput(1, "Ly"), ev.PartialOutput(1, "Lyon")], [["output", "Lyon"]]),
        ([ev.PartialOutput(1, 4), ev.Answer(1, "42")], [["answer", "42"]]),
        ([ev.Answer(1, '{"city'), ev.PartialOutput(1, {"city": ""})], [["answer", '{"city']]),
        ([ev.Text(1, "I was"), ev.Noted(1, "retry", "again"), ev.Text(1, "Now")], [["text", "Now"]]),
    ],
)
def test_a_text_that_may_be_the_answer_streams_and_comes_once(events: list[ev.Event], parts: list[list[str]]) -> None:
    replies = PartialReplies()
    for event in [ev.Asked(1, "act", "m"), *events]:
        replies.add(event)
    assert replies.steps() == [{"step": 1, "parts": parts}]


def test_a_reply_that_begins_anew_leaves_nothing_of_the_first_try() -> None:
    replies = PartialReplies()
    for event in (ev.Asked(1, "act", "m"), ev.Thought(1, "I was"), ev.Noted(1, "retry", "again"), ev.Thought(1, "Now")):
        replies.add(event)
    assert replies.steps() == [{"step": 1, "parts": [["thought", "Now"]]}]


def test_progress_of_a_tool_is_told_until_its_call_ends() -> None:
    replies = PartialReplies()
    replies.add(ev.Noted(1, "progress", "work: half\ud83d", {"done": 1}))
    told = {"text": "work: half?", "data": {"done": 1}}
    assert replies.steps() == [{"step": 1, "parts": [], "progress": told}]
    replies.add(ev.ChildEvent("c", "p", ev.Thought(1, "of a child")))
    replies.add(ev.Observed(1, Call("work", {}), Observation("done")))
    assert replies.steps() == []


def test_of_a_long_text_the_end_is_told_and_half_a_character_is_sent() -> None:
    replies = PartialReplies()
    replies.add(ev.Asked(1, "act", "m"))
    for _ in range(1000):
        replies.add(ev.Answer(1, "0123456789"))
    replies.add(ev.Answer(1, "end\ud83d"))
    [[kind, text]] = replies.steps()[0]["parts"]
    assert (kind, len(text)) == ("answer", LONGEST)
    assert text.endswith("789end?")


@pytest.mark.parametrize("here", [True, False])
async def test_a_run_of_this_process_is_told_while_it_is_written(tmp_path: Path, here: bool) -> None:
    model = Held([action("population", {"town": "Lyon"}, "I look at Lyon, then at the rest."), answer("522250")])
    agent = react(tmp_path / "journal.db", model=model)
    journal = Journal.at(tmp_path / "journal.db")
    texts = LiveTexts(journal.store)
    active = ActiveRun(texts, "plait", "", None)
    active.task = asyncio.ensure_future(active.perform(partial(agent.arun, "?")))
    await active.begun()
    stream = follow_run(journal, active.run, None, writing=texts.watch(active.run) if here else NOBODY)
    told: list[Any] = []
    async for each in stream:
        text = each.decode()
        if text.startswith("event: writing"):
            assert "id:" not in text, "a browser that comes back must not skip a row for it"
            told.append(json.loads(text.split("data: ")[1])["steps"])
            if any(step["parts"] for step in told[-1]):
                model.go.set()
        elif not here:
            model.go.set()
    run = await active.done()
    assert run.answer == "522250"
    if not here:
        assert told == []
        return
    texts = {step["step"]: step["parts"] for steps in told for step in steps if step["parts"]}
    assert texts[1][0] == ["thought", "I look at Lyon, then at the rest."[: len(texts[1][0][1])]]
    assert texts[1][0][1]
    assert set(texts) == {1, 2}
