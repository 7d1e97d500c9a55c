"""Reading a request: whatever comes, it is understood or refused by name; and what is understood has its shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.core import Waiting
from plait.server import chat_format
from plait.server.auth import Caller, RunLabel
from plait.server.chat_format import ChatMessage
from plait.server.conversations import conversation_key
from plait.server.errors import RequestRejected

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
        wanted = chat_format.parse_request(json.dumps(asked).encode(), {})
    except RequestRejected as why:
        assert why.status == 400 and str(why) and json.dumps(why.body())
        return
    assert wanted.messages[-1].role == "user" and wanted.question.strip()
    assert [each.role for each in wanted.messages] == ["user", "assistant"] * (len(wanted.messages) // 2) + ["user"]
    assert len(wanted.history) == len(wanted.messages) // 2


@given(st.binary(max_size=60))
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(RequestRejected):
        chat_format.parse_request(body, {})


def test_half_a_surrogate_pair_is_refused() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}'
    with pytest.raises(RequestRejected) as why:
        chat_format.parse_request(body, {})
    assert why.value.status == 400


def test_half_a_surrogate_pair_in_an_answer_is_told_as_text() -> None:
    assert chat_format.answer_text("It is \ud800 5.") == "It is ? 5."
    assert json.loads(chat_format.answer_text({"is": "\ud800"})) == {"is": "\ud800"}
    assert chat_format.question_text(Waiting("question", "Which \udc00?")) == "Which ??"


def test_a_conversations_key_tells_who_said_what() -> None:
    one = (ChatMessage("user", "a"), ChatMessage("assistant", "b"), ChatMessage("user", "c"))
    assert conversation_key(one) == conversation_key((ChatMessage("user", " a\n"), *one[1:]))
    others = [
        one[:2],
        (ChatMessage("user", "ab"), *one[1:]),
        (ChatMessage("user", "a"), ChatMessage("user", "b"), ChatMessage("user", "c")),
    ]
    assert len({conversation_key(each) for each in (one, *others)}) == 4


@pytest.mark.parametrize("label", ["", "a1b2c3", "serve:", "serve:a:b", "serve:a:b:c:d", "x:a:b:c"])
def test_a_label_of_anything_else_is_no_mark(label: str) -> None:
    assert RunLabel.parse(label) is None
    assert RunLabel.parse(str(RunLabel("o", "a", "k"))) == RunLabel("o", "a", "k")


def test_a_client_can_name_no_session_of_another() -> None:
    one, two = Caller("1111111111111111", False), Caller("2222222222222222", False)
    assert two.session(one.session("trip")) != one.session("trip")
    assert one.name_session(one.session("trip")) == "trip"
    assert Caller("3333333333333333", True).session(one.session("trip")) == one.session("trip")
