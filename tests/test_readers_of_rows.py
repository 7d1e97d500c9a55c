"""Readers of runs, on rows made by hand: events, the viewer, open questions of a tree, calls in doubt, costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journal_rows import answer, ask, begin, end, end_child, reply, request, response, rows, start_child
from plait.core import Call, Observation, Reply, Usage
from plait.core import events as ev
from plait.core.errors import SessionWaits, StaleAnswer
from plait.journal.keys import question_id
from plait.journal.owner import owner_of_this_process
from plait.journal.records import (
    Decision,
    IntentRecord,
    MadeCall,
    ParentCall,
    Record,
    ResultRecord,
    RunHead,
)
from plait.journal.store import Journal
from plait.journal.timeline import Timeline
from plait.runtime.approvals import require_open_question
from plait.runtime.calls_in_doubt import read_calls_in_doubt, read_calls_of
from plait.runtime.conversations.sessions import require_answered
from plait.runtime.recorded_events import make_events
from plait.server.chat_format import ChatMessage
from plait.server.conversations import ConversationState, find_answered_question
from plait.view.live import run_document
from plait.view.timeline import ViewerTimeline

SEND = Call("send", {"text": "Lyon"})
ASKING: tuple[Record, ...] = (begin("1.0", Call("helper", "go")), start_child("1.0:c5f.0", "r-1"))
HELPER = {"name": "helper", "read_only": True}


async def record(
    journal: Journal, run: str, *records: Record, status: str = "waiting", totals: Any = None, **head: Any
) -> None:
    made = RunHead(run, "q", {"name": "react", "options": {}}, {"": {"spec": "m"}}, **head)
    log = await journal.store.begin(made, owner_of_this_process(), [(each, None) for each in records])
    await log.end(status, {"type": status, "reason": "", "kind": "approval"}, totals or {})


async def record_tree(journal: Journal) -> str:
    """A run that waits with a question of its child run; the id of that question."""
    key = "0.0?approvals@5f"
    await record(journal, "r", *ASKING, session="s")
    await record(journal, "r-1", ask(key, "Send it?", call=SEND), caller=ParentCall("r", "1.0:c5f.0"))
    return question_id("r-1", key)


def kinds(*records: Record) -> list[tuple[str, str]]:
    events = make_events(Timeline(rows(*records)), None)
    return [(each.kind, each.text) for each in events if isinstance(each, ev.Noted)]


def test_answers_are_events_in_the_words_of_the_user() -> None:
    edit = Decision("edit", {"text": "Nice"}, bound={"text": "Nice", "copy": False})
    key = "1.0?approvals@5f"
    for said, told in (
        (Decision("yes"), "approved"),
        (Decision("refuse", text="Not now."), "refused: Not now."),
        (Decision("refuse"), "refused"),
        (edit, 'approved, with {"text":"Nice","copy":false}'),
        (Decision("edit", {"text": "Nice"}), 'approved, with {"text":"Nice"}'),  # nobody has bound it yet
    ):
        assert kinds(ask(key, "Send it?", call=SEND), answer(key, said)) == [("approval", "Send it?"), ("told", told)]
    assert kinds(ask("3", "Which?"), answer("3", "This.")) == [("question", "Which?"), ("told", "This.")]


def test_an_unknown_kind_of_work_is_shown_as_its_name_and_json() -> None:
    sleep = IntentRecord("2", 1, "sleep", {"seconds": 5}), ResultRecord("2", 1, "sleep", {"slept": 5.0})
    assert kinds(*sleep) == [("sleep", '{"seconds":5}'), ("sleep", '{"seconds":5} -> {"slept":5.0}')]
    viewer = ViewerTimeline()
    for row in rows(*sleep):
        viewer.add(row)
    ((step,), (item,)) = (viewer.changes(), viewer.items.values())
    assert step["items"] == [item]
    assert (item["kind"], item["word"], item["text"][0]) == ("note", "sleep", '{"seconds":5} -> {"slept":5.0}')


def test_the_viewer_shows_a_call_once_with_its_questions_and_the_model_s_own_input() -> None:
    viewer = ViewerTimeline(run="r")
    first, second = "1.0?hook@5f", "1.0?approvals@90"
    written = Call("send", "Lyon")
    records = (
        ask(first, "Is it fine?", call=SEND),
        answer(first, Decision("yes")),
        ask(second, "May it?", call=SEND),
        answer(second, Decision("refuse", text="no")),
        end("1.0", Observation("Refused.", "refused"), asked=written),
    )
    for row in rows(*records):
        viewer.add(row)
    call, one, other = viewer.items.values()
    assert (call["id"], call["input"][0], call["state"], call["trouble"]) == ("c1.0", "Lyon", "done", "refused")
    assert [(each["kind"], each["call"], each["told"][0], each["approved"]) for each in (one, other)] == [
        ("wait", "1.0", "", True),
        ("wait", "1.0", "no", False),
    ]
    assert one["given"] == '{"text": "Lyon"}' and one["id"] == f"w{question_id('r', first)}"


async def test_the_page_of_a_run_shows_what_its_child_run_asks(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    id = await record_tree(journal)
    shown = run_document(journal, "r")
    assert shown["waiting"] == [{"item": f"w{id}", "ask": "approval", "question": id}]
    (wait,) = [item for step in shown["steps"] for item in step["items"] if item["kind"] == "wait"]
    assert (wait["id"], wait["text"][0], wait["step"], wait["told"]) == (f"w{id}", "Send it?", 1, None)


async def test_an_answer_names_a_question_of_any_run_of_the_tree(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    id = await record_tree(journal)
    assert [(await require_open_question(journal.store, run, id)).run for run in ("r", "r-1")] == ["r-1", "r-1"]
    with pytest.raises(StaleAnswer, match="names no question of run r") as refused:
        await require_open_question(journal.store, "r", None)
    assert [each.question for each in refused.value.waits] == [id]
    with pytest.raises(SessionWaits, match="Send it") as waits:
        await require_answered("s", journal.store)
    assert [each.question for each in waits.value.waits] == [id]
    state = ConversationState("s", "r", is_known=True)
    assert find_answered_question(journal, state, [ChatMessage("user", f"yes {id}")]) == id
    with pytest.raises(StaleAnswer, match="names no question"):
        find_answered_question(journal, state, [ChatMessage("user", "yes")])


async def test_an_answered_question_of_a_child_run_is_known_as_answered(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    key = "0.0?approvals@5f"
    await record(journal, "r", *ASKING)
    answered = ask(key, "Send it?", call=SEND), answer(key, Decision("yes")), ask("2", "Which?")
    await record(journal, "r-1", *answered, caller=ParentCall("r", "1.0:c5f.0"))
    with pytest.raises(StaleAnswer, match="was answered before") as refused:
        await require_open_question(journal.store, "r", question_id("r-1", key))
    assert [each.reason for each in refused.value.waits] == ["Which?"]
    with pytest.raises(StaleAnswer, match="asks no question"):
        await require_open_question(journal.store, "r", "aaaaaaaa")


async def test_calls_in_doubt_are_those_that_began_and_neither_ended_nor_can_be_made_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    made = MadeCall(Call("send", {"text": "Lyon", "copy": False}))
    records = (*ASKING, begin("1.1", SEND, made=made), end("1.2", "done"), begin("1.2", Call("other")))
    totals = {"guards": {"approvals": [["r", "1.1", "send", {}]]}}
    await record(journal, "r", *records, status="cancelled", totals=totals, tools=(HELPER,))
    doubtful = begin("0.0", Call("pay", 5)), end("0.0", Observation("?", "in_doubt"))
    carried = {"guards": {"approvals": [["r-1", "0.0", "pay", 5]]}}
    await record(journal, "r-1", *doubtful, status="answered", totals=carried, caller=ParentCall("r", "1.0:c5f.0"))
    found = await read_calls_in_doubt(journal.store, journal.head("r"), journal.timeline("r"))
    assert [each.run for each in found] == ["r"] * 4 + ["r-1"] * 2
    assert [each.call for each in found] == [
        made.call,
        SEND,
        Call("other"),
        Call("other"),
        Call("pay", 5),
        Call("pay", 5),
    ]
    await record(journal, "clean", *doubtful, status="answered")
    assert await read_calls_of(journal.store, [journal.run("clean")]) == []


async def test_the_costs_of_a_child_run_are_those_of_its_tool(tmp_path: Path) -> None:
    from plait.cli.costs import tree_cost_row

    journal = Journal(tmp_path / "j.db")
    asked = request("0a0"), response("0a0"), reply("0", Reply("x", usage=Usage(10, 5), cost=0.5))
    await record(journal, "r", *asked, *ASKING, end_child("1.0:c5f.0"), end("1.0", "ok"), status="answered")
    await record(journal, "r-1", *asked, status="answered", caller=ParentCall("r", "1.0:c5f.0"))
    spent = {each.phase: (each.calls, each.cost_usd) for each in tree_cost_row(journal.run("r"), journal).spent}
    assert (spent["act"], spent["run:helper"]) == ((1, 0.5), (1, 0.5))
