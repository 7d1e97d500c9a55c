"""What is being written is told as it stands, and nothing of it where it can't be told apart or is over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plait.core import Usage
from plait.core import events as ev
from plait.journal.store import Journal
from plait.models import embedded
from plait.window.live import events_of
from plait.window.performing import Performing
from plait.window.writing import MOST, Writing
from window_support import Held, action, answer, react


def replied(step: int) -> ev.Replied:
    return ev.Replied(step, "act", "m", "", Usage(), 0.0, None)


def test_pieces_of_one_kind_are_one_text_and_a_whole_reply_is_told_no_more() -> None:
    writing = Writing()
    for event in (ev.Asked(1, "act", "m"), ev.Thought(1, "I "), ev.Thought(1, "look."), ev.Action(1, "look(")):
        writing.heard(event)
    assert writing.told() == [{"step": 1, "parts": [["thought", "I look."], ["action", "look("]]}]
    writing.heard(replied(1))
    assert writing.told() == []


def test_before_the_first_word_the_stage_of_the_model_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = [True]
    monkeypatch.setattr(embedded, "is_loading", lambda: loading[0])
    writing = Writing()
    writing.heard(ev.Asked(1, "act", "local:m"))
    writing.heard(ev.Asked(2, "act", "openai:m"))
    assert [(each["stage"], each["seconds"]) for each in writing.told()] == [("loading model", 0), ("", 0)]
    loading[0] = False
    assert writing.told()[0]["stage"] == "reading prompt"
    writing.heard(ev.Thought(1, "I"))
    assert writing.told()[0] == {"step": 1, "parts": [["thought", "I"]]}


def test_replies_written_at_once_are_told_by_their_steps_and_not_at_all_in_one_step() -> None:
    writing = Writing()
    for event in (ev.Asked(1, "work", "m"), ev.Asked(2, "work", "m"), ev.Thought(2, "b"), ev.Thought(1, "a")):
        writing.heard(event)
    assert {each["step"]: each["parts"] for each in writing.told()} == {1: [["thought", "a"]], 2: [["thought", "b"]]}
    for event in (ev.Asked(1, "work", "m"), ev.Thought(1, "c"), replied(1), ev.Thought(1, "d")):
        writing.heard(event)
    assert [each["step"] for each in writing.told()] == [2]


def test_a_reply_that_begins_anew_leaves_nothing_of_the_first_try() -> None:
    writing = Writing()
    for event in (ev.Asked(1, "act", "m"), ev.Thought(1, "I was"), ev.Noted(1, "retry", "again"), ev.Thought(1, "Now")):
        writing.heard(event)
    assert writing.told() == [{"step": 1, "parts": [["thought", "Now"]]}]


def test_of_a_long_text_the_end_is_told_and_half_a_character_is_sent() -> None:
    writing = Writing()
    writing.heard(ev.Asked(1, "act", "m"))
    for _ in range(1000):
        writing.heard(ev.Answer(1, "0123456789"))
    writing.heard(ev.Answer(1, "end\ud83d"))
    [[kind, text]] = writing.told()[0]["parts"]
    assert (kind, len(text)) == ("answer", MOST)
    assert text.endswith("789end?")


@pytest.mark.parametrize("here", [True, False])
async def test_a_run_of_this_process_is_told_while_it_is_written(tmp_path: Path, here: bool) -> None:
    model = Held([action("population", {"town": "Lyon"}, "I look at Lyon, then at the rest."), answer("522250")])
    agent = react(tmp_path / "journal.db", model=model)
    performing = Performing("plait", None)  # type: ignore[arg-type]
    performing.go(lambda say: agent.arun("?", emit=say))
    await performing.begun()
    writing = performing.writing if here else None
    stream = events_of(Journal.at(tmp_path / "journal.db"), performing.run, None, writing=lambda: writing)
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
    run = await performing.done()
    assert run.answer == "522250"
    if not here:
        assert told == []
        return
    texts = {step["step"]: step["parts"] for steps in told for step in steps if step["parts"]}
    assert texts[1][0] == ["thought", "I look at Lyon, then at the rest."[: len(texts[1][0][1])]]
    assert texts[1][0][1]
    assert set(texts) == {1, 2}
