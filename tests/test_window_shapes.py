"""Reading a request: whatever comes, it is understood or refused by name; and what is understood has its shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.core import Waiting
from plait.window import shapes
from plait.window.callers import Caller
from plait.window.conversations import key_of
from plait.window.errors import Rejected
from plait.window.marks import Mark, mark_of
from plait.window.shapes import Said

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
content = st.text(max_size=8) | st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"]), "text": st.text(max_size=5) | anything}),
    max_size=3,
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": content | anything}
)
requests = st.fixed_dictionaries(
    {"model": st.text(max_size=5) | anything, "messages": st.lists(message | anything, max_size=6) | anything},
    optional=dict.fromkeys(
        ("stream", "stream_options", "session", "thoughts", "n", "tools", "stop", "response_format"), anything
    ),
)


@given(requests)
def test_a_request_is_understood_or_refused_by_name(asked: dict[str, Any]) -> None:
    try:
        wanted = shapes.read(json.dumps(asked).encode(), {})
    except Rejected as why:
        assert why.status == 400 and str(why) and json.dumps(why.body())
        return
    assert wanted.said[-1].role == "user" and wanted.question.strip()
    assert [each.role for each in wanted.said] == ["user", "assistant"] * (len(wanted.said) // 2) + ["user"]
    assert len(wanted.history) == len(wanted.said) // 2


@given(st.binary(max_size=60))
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(Rejected):
        shapes.read(body, {})


def test_half_a_surrogate_pair_is_refused() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}'
    with pytest.raises(Rejected) as why:
        shapes.read(body, {})
    assert why.value.status == 400


def test_half_a_surrogate_pair_in_an_answer_is_told_as_text() -> None:
    assert shapes.text_of("It is \ud800 5.") == "It is ? 5."
    assert json.loads(shapes.text_of({"is": "\ud800"})) == {"is": "\ud800"}
    assert shapes.asks(Waiting("question", "Which \udc00?")) == "Which ??"


def test_a_conversations_key_tells_who_said_what() -> None:
    one = (Said("user", "a"), Said("assistant", "b"), Said("user", "c"))
    assert key_of(one) == key_of((Said("user", " a\n"), *one[1:]))
    others = [one[:2], (Said("user", "ab"), *one[1:]), (Said("user", "a"), Said("user", "b"), Said("user", "c"))]
    assert len({key_of(each) for each in (one, *others)}) == 4


@pytest.mark.parametrize("label", ["", "a1b2c3", "serve:", "serve:a:b", "serve:a:b:c:d", "x:a:b:c"])
def test_a_label_of_anything_else_is_no_mark(label: str) -> None:
    assert mark_of(label) is None
    assert mark_of(str(Mark("o", "a", "k"))) == Mark("o", "a", "k")


def test_a_client_can_name_no_session_of_another() -> None:
    one, two = Caller("1111111111111111", False), Caller("2222222222222222", False)
    assert two.session(one.session("trip")) != one.session("trip")
    assert one.named(one.session("trip")) == "trip"
    assert Caller("3333333333333333", True).session(one.session("trip")) == one.session("trip")
