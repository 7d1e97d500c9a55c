"""The wire: exact bodies, and the difference to the request before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from journal_rows import is_request, request, response
from plait.journal.records import Row, RunHead
from plait.journal.store import Journal
from plait.journal.timeline import Timeline
from plait.view.http_exchanges import ChangeMark, body_text, exact_body, mark_changes, read_exchanges, utf16_length
from window_support import begin, codeact, react


def restored(before: str, marks: Sequence[ChangeMark]) -> str:
    """What the marks make of a text, as the page does it."""
    coded, at, parts = before.encode("utf-16-le", "surrogatepass"), 0, []
    for sign, what in marks:
        if isinstance(what, str):
            parts.append(what)
            continue
        if sign == "=":
            parts.append(coded[2 * at : 2 * (at + what)].decode("utf-16-le", "surrogatepass"))
        at += what
    return "".join(parts)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_the_marks_make_the_later_text_of_the_earlier(a: str, b: str, c: str, d: str) -> None:
    for before, after in ((a + b + c, a + d + c), (a, b), (a + b, b + a), (a * 3, a * 4)):
        marks = mark_changes(before, after)
        assert restored(before, marks) == after
        assert sum(n for sign, n in marks if isinstance(n, int) and sign in "=-") == utf16_length(before)


def test_what_is_added_is_all_that_is_marked() -> None:
    assert mark_changes('[{"a":1}]', '[{"a":1},{"b":2}]') == (("=", 8), ("+", ',{"b":2}'), ("=", 1))
    assert mark_changes("same", "same") == (("=", 4),)
    assert mark_changes("", "new") == (("+", "new"),)


def test_whole_words_stand_for_a_word_that_changed() -> None:
    assert ("+", "biking") in mark_changes("the dog is baking now", "the dog is biking now")


def test_a_long_change_is_told_whole() -> None:
    before, after = " ".join(map(str, range(9_000))), " ".join(map(str, range(9_000, 0, -1)))
    assert restored(before, mark_changes(before, after)) == after


def test_every_request_can_be_made_again_from_the_one_before(tmp_path: Path) -> None:
    for make in (react, codeact):
        run = begin(make(tmp_path / "j.db"))
        head = Journal.at(tmp_path / "j.db").head(run.id)
        sent = {row.seq: row.body for row in run.trace if is_request(row.record)}
        made: dict[int, str] = {}
        found = list(read_exchanges(head, run.timeline))
        for each in found:
            made[each.seq] = restored(made[each.before], each.marks) if each.before is not None else each.request
            assert made[each.seq].encode() == sent[each.seq]
        assert [each.before for each in found][1:] == [each.seq for each in found][:-1]
        assert len(found) == 3


def test_the_bodies_are_byte_for_byte_and_of_one_step_where_one_is_asked_for(tmp_path: Path) -> None:
    run = begin(react(tmp_path / "j.db"))
    head = Journal.at(tmp_path / "j.db").head(run.id)
    (second,) = read_exchanges(head, run.timeline, steps=frozenset({2}))
    assert second.step == 2 and second.before == 0 and second.marks
    bodies = {row.seq: row.body for row in run.trace}
    assert exact_body(run.trace, second.seq) == bodies[second.seq]
    assert second.answered is not None and exact_body(run.trace, second.answered) == bodies[second.answered]
    assert exact_body(run.trace, 10_000) is None
    observed = next(row.seq for row in run.trace if getattr(row.record, "work", "") != "request")
    assert exact_body(run.trace, observed) is None


def test_attempts_without_a_response_and_bytes_that_are_no_text() -> None:
    head = RunHead(
        "r", "?", {"name": "react", "options": {}}, {"": {"spec": "x", "endpoint": "http://localhost:1/v1/"}}
    )
    rows = [
        Row(0, 1.0, request("0a0", model="x"), b'{"a": "\xff"}'),
        Row(1, 2.0, response("0a0", 0, error="nobody answered")),
        Row(2, 3.0, request("0a1", model="x"), b'{"a": 1}'),
    ]
    first, second = read_exchanges(head, Timeline(rows))
    assert first.odd and first.request == '{"a": "\\xff"}' and first.response is None
    assert (first.path, first.error, first.status) == (
        "http://localhost:1/v1/chat/completions",
        "nobody answered",
        None,
    )
    assert (second.attempt, second.before, second.answered) == (2, 0, None)
    assert body_text(None) == ("", False)
