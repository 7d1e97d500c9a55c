"""A timeline resolves what the rows of a trace say by number only."""

from __future__ import annotations

from plait.core import Call, Observation, Reply
from plait.journal.records import (
    Acting,
    Begun,
    Got,
    NoteRecord,
    ObservedRecord,
    Record,
    Resumed,
    Row,
    Thinking,
    ThoughtRecord,
    UserAnswer,
    Waits,
)
from plait.journal.timeline import Timeline

TAKE, SEND = Call("take", 1), Call("send", {"text": "Lyon"})


def rows(*records: Record, bodies: bool = True) -> list[Row]:
    return [Row(seq, 100.0 + seq, record, b"%d" % seq if bodies else None) for seq, record in enumerate(records)]


def asked(attempt: int, model: str = "a:m") -> Thinking:
    return Thinking(0, 1, "react", model, "/chat", attempt)


def test_a_model_call_has_its_attempts_with_their_own_responses_and_its_reply() -> None:
    records = (
        asked(0),
        Got(0, 0, 500, 0.5, "broken"),
        asked(1, "b:m"),
        Got(0, 1, 200, 1.0),
        ThoughtRecord(0, Reply("Yes.")),
    )
    timeline = Timeline(rows(*records))
    (call,) = timeline.model_calls
    assert [(each.model, each.request, each.number) for each in call.attempts] == [("a:m", b"0", 0), ("b:m", b"2", 1)]
    assert [each.response and (each.response.status, each.response.body) for each in call.attempts] == [
        (500, b"1"),
        (200, b"3"),
    ]
    assert call.reply == Reply("Yes.") and (call.model, call.request) == ("b:m", b"2")
    assert [moment.change for moment in timeline.moments] == ["asked", "responded", "asked", "responded", "replied"]
    first = timeline.moments[0].entry
    assert first == call.__class__(0, 1, (call.attempts[0].__class__(0, 0, "react", "a:m", "/chat", None, b"0"),))


def test_a_call_that_a_person_edited_is_known_as_planned_and_as_made() -> None:
    edit = UserAnswer(1, "edit", 1, approved=True, input=({"text": "Nice"},))
    timeline = Timeline(
        rows(
            Acting(1, 2, (TAKE, SEND), (0,)),
            ObservedRecord(1, 0, Observation("1")),
            Waits(1, 2, "approval", "May it?", 1, "abcdefgh"),
            edit,
            Begun(1, (1,)),
            ObservedRecord(1, 1, Observation("sent")),
        )
    )
    _, sent = timeline.tool_calls
    assert (sent.planned, sent.call.input, sent.step) == (SEND, {"text": "Nice"}, 2)
    assert [(call.i, seen.text) for call, seen in timeline.results] == [(0, "1"), (1, "sent")]
    (question,) = timeline.questions
    assert (question.question, question.answer, timeline.open_questions) == ("abcdefgh", edit, [])
    began = [moment.entry for moment in timeline.moments if moment.change == "began"]
    assert [(each.i, each.observation) for each in began] == [(0, None), (1, None)]  # type: ignore[union-attr]


def test_a_call_that_began_and_has_no_result_is_in_doubt() -> None:
    (call,) = Timeline(rows(Acting(1, 2, (SEND,), (0,)))).tool_calls
    assert call.begun and call.observation is None


def test_rows_without_those_before_them_change_nothing() -> None:
    orphans = Got(0, 0, 200, 1.0), ThoughtRecord(0, Reply("x")), Begun(1, (0,)), ObservedRecord(1, 0, Observation("x"))
    assert not Timeline(rows(*orphans, UserAnswer(1, "yes", 0))).moments


def test_the_time_between_two_processes_and_before_an_answer_does_not_count() -> None:
    told = Waits(3, 1, "question", "Which?"), UserAnswer(3, "This."), NoteRecord(0, 1, "x", "y")
    records = [Row(0, 100.0, told[0]), Row(1, 500.0, told[1]), Row(2, 501.0, told[2]), Row(3, 900.0, Resumed({}))]
    assert Timeline(records).seconds == 1.0


def test_bodies_can_be_left_out() -> None:
    timeline = Timeline()
    for row in rows(asked(0), Got(0, 0, 200, 1.0)):
        timeline.add(row, keep_body=False)
    (attempt,) = timeline.model_calls[0].attempts
    assert attempt.request == b"" and attempt.response is not None and attempt.response.body is None
