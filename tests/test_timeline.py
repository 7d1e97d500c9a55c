"""A timeline resolves what the rows of a trace say by key only."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal_rows import answer, ask, begin, end, end_child, reply, request, response, resumed, rows, start_child
from plait.core import Call, Observation, Ran, Reply, WaitResult
from plait.journal import codec
from plait.journal.entries import (
    ChildRun,
    CodeTurn,
    GuardDecision,
    LoopException,
    ModelAttempt,
    ModelCall,
    OtherWork,
    RecordedNote,
)
from plait.journal.forks import select_rows_before
from plait.journal.keys import question_id
from plait.journal.open_questions import find_open_questions, read_questions
from plait.journal.owner import owner_of_this_process
from plait.journal.records import (
    CodeResult,
    Decision,
    IntentRecord,
    MadeCall,
    NoteRecord,
    ParentCall,
    RaisedRecord,
    Record,
    ResultRecord,
    Row,
    RunHead,
)
from plait.journal.store import Journal
from plait.journal.timeline import Timeline

TAKE, SEND = Call("take", 1), Call("send", {"text": "Lyon"})


def changes(timeline: Timeline) -> list[str]:
    return [moment.change for moment in timeline.moments]


def test_a_model_call_has_its_attempts_with_their_own_responses_and_its_reply() -> None:
    timeline = Timeline(
        rows(
            request("0a0", model="a:m"),
            response("0a0", 500, 0.5, "broken"),
            request("0a1", model="b:m"),
            response("0a1"),
            reply("0", "Yes."),
        )
    )
    (call,) = timeline.model_calls
    assert [(each.model, each.request, each.number) for each in call.attempts] == [("a:m", b"0", 0), ("b:m", b"2", 1)]
    assert [each.response and (each.response.status, each.response.body) for each in call.attempts] == [
        (500, b"1"),
        (200, b"3"),
    ]
    assert (call.key, call.n, call.i, call.reply, call.model, call.request) == ("0", 0, -1, Reply("Yes."), "b:m", b"2")
    assert changes(timeline) == ["asked", "responded", "asked", "responded", "replied"]
    first = timeline.moments[0].entry
    attempt = ModelAttempt(0, 0, "act", "a:m", "chat/completions", None, b"0")
    assert first == ModelCall("0", 0, -1, 1, (attempt,))


def test_what_a_tool_asks_a_model_belongs_to_its_call() -> None:
    key = "3.1:m5f0c1a.0"
    timeline = Timeline(rows(begin("3.1", TAKE), request(f"{key}a0"), response(f"{key}a0"), reply(key, "Four.")))
    ((call, said),) = timeline.replies
    assert (call.key, call.n, call.i, said.text) == (key, 3, 1, "Four.")


def test_a_call_is_known_as_planned_and_as_made() -> None:
    made = MadeCall(Call("send", {"text": "Lyon", "copy": False}))
    timeline = Timeline(rows(begin("1.0", SEND, made=made), end("1.0", "sent")))
    ((call, seen),) = timeline.results
    assert (call.planned, call.call, call.shown, call.changed_by) == (SEND, made.call, SEND, "")
    assert (call.begun, seen.text, call.artifacts) == (True, "sent", b"1")
    assert changes(timeline) == ["planned", "began", "ended"]


def test_a_call_that_a_user_edited_is_planned_by_its_question_and_made_as_edited() -> None:
    edit = Decision("edit", {"text": "Nice"}, bound={"text": "Nice", "copy": False})
    made = MadeCall(Call("send", edit.bound), "user")
    question = "1.1?approvals@5f"
    records: tuple[Record, ...] = (
        begin("1.0", TAKE, 2),
        end("1.0", "1", 2),
        ask(question, "May it?", 2, call=SEND),
        answer(question, edit, 2),
    )
    timeline = Timeline(rows(*records), run="r")
    _, known = timeline.tool_calls
    assert (known.call.input, known.changed_by, known.begun, known.step) == (edit.bound, "user", False, 2)
    (asked,) = timeline.questions
    assert (asked.question, asked.guard, asked.answer) == (question_id("r", question), "approvals", edit)
    for row in rows(*records, begin("1.1", SEND, 2, made), end("1.1", "sent", 2))[4:]:
        timeline.add(row)
    _, sent = timeline.tool_calls
    assert (sent.planned, sent.call, sent.changed_by, sent.shown) == (SEND, made.call, "user", made.call)
    assert changes(timeline) == ["planned", "began", "ended", "planned", "waits", "answered", "began", "ended"]


def test_a_refused_call_is_planned_and_ends_without_having_begun() -> None:
    (call,) = (timeline := Timeline(rows(end("1.0", Observation("No.", "refused"), asked=SEND)))).tool_calls
    assert (call.planned, call.begun, call.observation) == (SEND, False, Observation("No.", "refused"))
    assert changes(timeline) == ["planned", "ended"]


def test_a_call_that_is_made_again_began_once() -> None:
    (call,) = (timeline := Timeline(rows(begin("1.0", SEND), begin("1.0", SEND)))).tool_calls
    assert call.begun and call.observation is None and changes(timeline) == ["planned", "began"]


def test_a_guard_s_own_decision_is_told_from_the_user_s() -> None:
    change = Decision("change", {"input": {"text": "Nice"}})
    timeline = Timeline(
        rows(answer("1.0?word@5f", change, 2), answer("1.0!redact@90", Decision("refuse", text="No."), 2))
    )
    assert [moment.entry for moment in timeline.moments] == [
        GuardDecision("1.0?word@5f", 1, 0, 2, "word", "before", "change", value=change.value),
        GuardDecision("1.0!redact@90", 1, 0, 2, "redact", "after", "refuse", "No."),
    ]
    assert not timeline.questions and not timeline.tool_calls


def test_of_several_questions_of_a_guard_about_one_entry_the_last_is_open() -> None:
    first, second, other = "1.0?approvals@5f", "1.0?approvals@90", "1.0?hook@5f"
    timeline = Timeline(rows(ask(first, "a", call=SEND), ask(second, "b", call=SEND), ask(other, "c", call=SEND)))
    assert [each.text for each in timeline.open_questions] == ["b", "c"]


@pytest.mark.parametrize(
    "last",
    [
        end("1.1", "done", asked=SEND),
        RaisedRecord("1", 1, "LimitNear", "steps", "near"),
    ],
)
def test_a_question_is_closed_when_its_entry_has_a_result_or_its_act_is_raised(last: Record) -> None:
    timeline = Timeline(rows(ask("1.1?approvals@5f", "a", call=SEND), ask("1.10?approvals@5f", "b", call=SEND), last))
    still = [each.text for each in timeline.open_questions]
    assert still == (["b"] if isinstance(last, ResultRecord) else [])


def test_the_loop_s_question_has_a_text_as_answer() -> None:
    timeline = Timeline(rows(ask("3", "Which?"), answer("3", "This.")))
    (question,) = timeline.questions
    assert (question.kind, question.n, question.i, question.guard, question.answer) == ("question", 3, -1, "", "This.")


def test_code_notes_exceptions_and_child_runs_have_entries() -> None:
    taken = WaitResult(2, piece="Plan")
    timeline = Timeline(
        rows(
            IntentRecord("0", 1, "code", "x = 1"),
            ResultRecord("0", 1, "code", CodeResult(Ran("1"), "x = 1", 12.0)),
            NoteRecord("n0", 1, "repaired", "A quote was missing."),
            NoteRecord("1.0", 1, "hook", "Changed."),
            RaisedRecord("1", 1, "ContextOverflow", detail="too long", tokens=9, room=5),
            ResultRecord("4", 1, "take", taken),
            start_child("1.0:c90.0", "r-1"),
            end_child("1.0:c90.0", calls=1),
        )
    )
    code, note, hook, raised, began, ended = (moment.entry for moment in timeline.moments)
    assert isinstance(code, CodeTurn) and (code.n, code.code, code.ran) == (0, "x = 1", Ran("1"))
    assert timeline.code_clock == 12.0
    assert note == RecordedNote("n0", 0, 1, "repaired", "A quote was missing.")
    assert isinstance(hook, RecordedNote) and (hook.key, hook.number) == ("1.0", -1)
    assert isinstance(raised, LoopException) and (raised.n, raised.tokens, raised.room) == (1, 9, 5)
    assert isinstance(began, ChildRun) and began.is_open and began.run == "r-1"
    assert isinstance(ended, ChildRun) and not ended.is_open and ended.end and ended.end.totals == {"calls": 1}


def test_an_unknown_kind_of_work_is_read_as_json() -> None:
    sleep = rows(IntentRecord("2", 1, "sleep", {"seconds": 5}), ResultRecord("2", 1, "sleep", None))
    read = [Row(each.seq, each.at, codec.decode_record(codec.encode_record(each.record).decode())) for each in sleep]
    timeline = Timeline(read)
    assert [moment.entry for moment in timeline.moments] == [
        OtherWork("2", 2, 1, "sleep", {"seconds": 5}),
        OtherWork("2", 2, 1, "sleep", {"seconds": 5}, has_ended=True),
    ]


def test_rows_without_those_before_them_change_nothing() -> None:
    orphans = response("0a0"), reply("0", "x"), end("1.0", "x"), answer("3", "yes"), end_child("1.0:c90.0")
    assert not Timeline(rows(*orphans)).moments


def test_the_time_between_two_processes_and_before_an_answer_does_not_count() -> None:
    told = ask("3", "Which?"), answer("3", "This."), NoteRecord("n0", 1, "x", "y")
    records = [Row(0, 100.0, told[0]), Row(1, 500.0, told[1]), Row(2, 501.0, told[2]), Row(3, 900.0, resumed())]
    assert Timeline(records).seconds == 1.0


def test_a_decision_of_a_guard_took_time_and_the_user_s_did_not() -> None:
    question = "1.0?approvals@5f"
    timeline = Timeline(rows(ask(question, "a", call=SEND), answer(question, Decision("yes"))))
    assert timeline.seconds == 0.0
    assert Timeline(rows(request("0a0"), answer(question, Decision("yes")))).seconds == 1.0


def test_bodies_can_be_left_out() -> None:
    timeline = Timeline()
    for row in rows(request("0a0"), response("0a0")):
        timeline.add(row, keep_body=False)
    (attempt,) = timeline.model_calls[0].attempts
    assert attempt.request == b"" and attempt.response is not None and attempt.response.body is None


# -- forks


def keys_before(at: int, *records: Record) -> list[str]:
    kept, _ = select_rows_before(rows(*records), at)
    return [row.record.key for row in kept]


def test_a_fork_takes_the_steps_before_and_no_remarks_of_the_runtime() -> None:
    records = (
        request("0a0"),
        reply("0", "x"),
        NoteRecord("n0", 1, "repaired", "t"),
        NoteRecord("0", 1, "retry", "t"),
        resumed(),
        request("1a0", 2),
    )
    assert keys_before(2, *records) == ["0a0", "0", "n0"]
    assert select_rows_before(rows(*records), 2)[1] == 2


def test_a_fork_asks_anew_and_takes_no_approval_of_a_call_that_was_not_made() -> None:
    made, unmade, loose = "1.0?approvals@5f", "1.1?approvals@5f", "1.2?hook@90"
    records: tuple[Record, ...] = (
        ask(made, "a", call=SEND),
        ask(unmade, "b", call=SEND),
        answer(made, Decision("yes")),
        answer(unmade, Decision("yes")),
        answer(loose, Decision("change", {})),
        begin("1.0", SEND),
        ask("2", "Which?"),
        answer("2", "This."),
        ask("3", "And?"),
    )
    assert keys_before(2, *records) == [made, made, "1.0", "2", "2"]


def test_a_fork_takes_nothing_of_a_loop_whose_limit_was_near_and_no_child_run_that_goes_on() -> None:
    records: tuple[Record, ...] = (
        begin("1.0", SEND),
        start_child("1.0:c90.0", "r-1"),
        end_child("1.0:c90.0"),
        begin("1.1", SEND),
        start_child("1.1:c90.0", "r-2"),
        RaisedRecord("2", 1, "LimitNear", "steps", "near"),
        end("1.0", "late"),
        NoteRecord("n0", 1, "stopping", "t"),
        request("3a0"),
    )
    assert keys_before(2, *records) == ["1.0", "1.0:c90.0", "1.0:c90.0", "1.1", "1.0"]


# -- trees of runs


async def test_the_open_questions_of_a_tree_come_in_the_order_of_the_calls(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    me = owner_of_this_process()

    async def record(run: str, caller: ParentCall | None, *records: Record, status: str = "waiting") -> None:
        head = RunHead(run, "q", {"name": "react", "options": {}}, {}, caller=caller)
        log = await journal.store.begin(head, me, [(each, None) for each in records])
        await log.end(status, {"type": status, "reason": ""}, {})

    await record(
        "r",
        None,
        begin("1.1", TAKE),
        start_child("1.1:c5f.0", "r-1"),
        ask("1.2?approvals@5f", "third", call=SEND),
        ask("1.0?approvals@5f", "first", call=SEND),
        begin("1.3", TAKE),
        start_child("1.3:c5f.0", "r-ended"),
        begin("1.4", TAKE),
        start_child("1.4:c5f.0", "r-unborn"),
    )
    await record("r-1", ParentCall("r", "1.1:c5f.0"), ask("0", "second"), ask("2", "old"), answer("2", "yes"))
    await record("r-ended", ParentCall("r", "1.3:c5f.0"), ask("0", "over"), status="answered")
    found = await find_open_questions(journal.store, "r")
    assert [(each.run, each.text) for each in found] == [("r", "first"), ("r-1", "second"), ("r", "third")]
    assert [each.question for each in found] == [question_id(each.run, each.key) for each in found]
    assert {each.text for each in await read_questions(journal.store, "r")} == {
        "first",
        "second",
        "third",
        "old",
        "over",
    }
    assert [row.head.run for row in journal.children("r")] == ["r-1", "r-ended"]
