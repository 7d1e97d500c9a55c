"""Reading a request: whatever comes, it is understood or refused by name; and what is understood has its shape."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import for_each
from plait.core import Waiting
from plait.journal.served_runs import RunLabel
from plait.server import chat_format
from plait.server.auth import Caller
from plait.server.chat_format import NO_TEXT, ChatMessage, ChatRequest, question_text
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
    said = [each for each in asked["messages"] if each["role"] == "assistant" and each["content"]]
    assert wanted.earlier.turns or not said


@given(st.binary(max_size=60))
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(RequestRejected):
        chat_format.parse_request(body, {})


def parse(*messages: dict[str, Any], **more: Any) -> ChatRequest:
    return chat_format.parse_request(json.dumps({"model": "m", "messages": messages, **more}).encode(), {})


HI = {"role": "user", "content": "Hi."}
TOOL = {"type": "function", "function": {"name": "f"}}


@for_each(
    "fields",
    [
        {"stream": None, "stream_options": None, "thoughts": None, "session": None, "n": None, "n_": 3},
        {"stream_options": {"include_usage": None}, "n": 1.0, "stop": "", "tools": None, "functions": []},
        {"tools": [], "tool_choice": "auto", "function_call": "none", "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": "none"},
        {"functions": [{"name": "f"}], "function_call": "none"},
        {"response_format": {"type": "text"}, "modalities": ["text"], "audio": None, "prediction": None},
        {"logprobs": False, "top_logprobs": 0, "logit_bias": {}},
        {"max_completion_tokens": 5, "max_tokens": None, "temperature": None, "top_p": 1, "seed": 7, "store": True},
        {"reasoning_effort": "low", "service_tier": "auto", "verbosity": "low", "guided_json": None, "grammar": ""},
    ],
)
def test_fields_of_clients_that_change_nothing_are_accepted(fields: dict[str, Any]) -> None:
    assert parse(HI, **fields) == parse(HI)


@for_each(
    ("fields", "named"),
    [
        ({"tools": [TOOL]}, "tools"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"modalities": "image"}, "modalities"),
        ({"modalities": [{"image": {}}]}, "modalities"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"guided_choice": ["yes", "no"]}, "guided_choice"),
        ({"grammar": "root ::= [0-9]"}, "grammar"),
    ],
)
def test_a_field_that_an_agent_cannot_follow_is_named_with_what_to_change(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestRejected, match=rf"'{named}' can't be used here\. .* Leave it out\.") as why:
        parse(HI, **fields)
    assert why.value.param == named


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}, "strict": None}},
        {"type": "json_schema", "schema": {"type": "array"}},
        {"type": "json_object", "schema": {"type": "array"}},
    ],
)
def test_the_schema_of_an_answer_is_read_in_every_known_form(form: dict[str, Any]) -> None:
    assert parse(HI, response_format=form).output == {"type": "array"}


def data_url(content: bytes, head: str = "data:image/png;base64,") -> str:
    return head + base64.b64encode(content).decode()


PNG = b"\x89PNG\r\n\x1a\n rest"
PICTURE = {"type": "image_url", "image_url": {"url": data_url(PNG)}}
LETTER = {"type": "file", "file": {"filename": "a.txt", "file_data": data_url(b"Dear Ann", "data:text/plain;base64,")}}


@for_each(
    ("parts", "count"),
    [
        ([PICTURE], 1),
        ([PICTURE, LETTER, PICTURE], 3),
        ([{"type": "text", "text": ""}, LETTER], 1),
        ([{"type": "text", "text": " \n"}, PICTURE, {"type": "text", "text": None}], 1),
        ([{"type": "image_url", "image_url": data_url(PNG)}], 1),
        ([{"type": "input_image", "image_url": data_url(PNG)}], 1),
        ([{"type": "input_file", "filename": "a.pdf", "file_data": data_url(b"%PDF-1.4")}], 1),
        ([{"type": "image_url", "image_url": {"url": data_url(PNG, "data:image/png;name=a.png;base64,")}}], 1),
        ([{"type": "image_url", "image_url": {"url": "data:;base64,iVBORw0K\nGgog\n"}}], 1),
    ],
)
def test_a_message_of_files_alone_is_a_question_and_a_turn(parts: list[dict[str, Any]], count: int) -> None:
    message = {"role": "user", "content": parts}
    now = parse({"role": "system", "content": ""}, message)
    assert (now.question, len(now.parts)) == (NO_TEXT, 1 + count)
    later = parse(message, {"role": "assistant", "content": "A dot."}, HI)
    (turn,) = later.earlier.turns
    assert f"{NO_TEXT}\n(attached: " in f"{NO_TEXT}\n{turn.question}" and later.question == "Hi."
    assert len(turn.attachments) == count and len(later.earlier.contents) == len(set(turn.attachments))
    # A client may send the words as a message of its own, before or after.
    for pair in ((message, HI), (HI, message)):
        asked = parse(*pair)
        assert (asked.question, len(asked.parts)) == ("Hi.", 1 + count)


@for_each(
    "messages",
    [
        [{"role": "developer", "content": None}, {"role": "system", "content": [{"type": "text", "text": ""}]}, HI],
        [{"role": "user", "name": "ann", "content": ["Hi."]}],
        [{"role": "user", "content": {"type": "input_text", "text": "Hi."}}],
        [{"role": "user", "content": ""}, HI],
        [HI, {"role": "user", "content": []}, {"role": "system", "content": " "}],
        [{"role": "assistant", "content": None}, HI, {"role": "assistant", "content": ""}],
    ],
)
def test_empty_parts_and_messages_beside_the_question_are_accepted(messages: list[dict[str, Any]]) -> None:
    assert parse(*messages).question == "Hi." and len(parse(*messages).messages) == 1


def test_empty_turns_before_the_question_are_accepted() -> None:
    said = {"role": "assistant", "refusal": None, "tool_calls": None, "function_call": None, "annotations": []}
    thought = {"type": "thinking", "thinking": "Hm."}
    for content, text in (
        (None, ""),
        ([], ""),
        ([thought, {"type": "text", "text": "Yes."}], "Yes."),
        ([{"type": "refusal", "refusal": "No."}], "No."),
    ):
        turns = parse({"role": "user", "content": None}, {**said, "content": content}, HI).earlier.turns
        assert [(turn.question, turn.answer) for turn in turns] == [("", text)] * bool(text)


def test_messages_with_calls_their_results_and_parts_of_other_kinds_are_turns() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    wanted = parse(
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "How can I help?"},
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
        {"role": "assistant", "content": [PICTURE, {"type": "input_audio"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}]},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "And"},
        {"role": "user", "content": "now?"},
    )
    assert (wanted.system, wanted.question) == ("Be brief.", "Be brief.\n\nAnd\n\nnow?")
    greeting, turn, picture = wanted.earlier.turns
    assert (greeting.question, greeting.answer, turn.question) == ("", "How can I help?", "Hi.")
    assert [(each.tool, each.result) for each in turn.calls] == [("look", "5")]
    assert "input_audio" in turn.answer and "(attached: image)" in turn.answer and turn.attachments
    assert "is no data URL" in picture.question and "Be brief" not in str(wanted.earlier)
    assert [each.role for each in wanted.messages] == ["user", "assistant"] * 3 + ["user"]
    empty = {"role": "assistant", "content": "", "tool_calls": None}
    assert parse(HI, empty, {"role": "system", "content": "Be kind."}).question == "Be kind.\n\nHi."
    odd = {"role": "user", "content": [{"type": {}, "text": "x"}, {"type": ["text"]}]}
    assert '["text"]' in parse(odd, {"role": "assistant", "content": "a"}, HI).earlier.turns[0].question
    with pytest.raises(RequestRejected, match="End with the question"):
        parse(HI, {"role": "tool", "tool_call_id": "1", "content": None})


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


@for_each(
    ("messages", "words"),
    [
        ([user()], "'messages[0].content' is empty. Send a question, an image or a file."),
        ([HI, {"role": "assistant", "content": "Yes?"}, user({"type": "text", "text": " "})], "'messages[2].content'"),
        ([{"role": "system", "content": "Be brief."}, user(None)], "'messages[1].content' is empty"),
        ([user({"type": "input_audio", "input_audio": {}})], "type 'input_audio'. Agents take text, images and files"),
        ([user({"type": "video_url"}, PICTURE)], "(types text, image_url, file)"),
        ([user({"text": "no type"})], "a part of type None"),
        ([user(5)], "is not text"),
        ([user({"type": "text"})], "is not text"),
        ([{"role": "system", "content": [PICTURE]}, HI], "'image_url'. A message of the role system takes text"),
        ([user({"type": "file", "file": {"file_id": "file-1"}})], "no file id is known. Send the content: data:"),
        ([user({"type": "image_url", "image_url": {"url": data_url(PNG, "data:image/png;base64,é")}})], "not valid"),
        ([user({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}})], "is empty"),
        ([HI, {"role": "assistant", "tool_calls": [{"id": "1"}]}, HI], "messages[1] is invalid"),
        ([HI, {"role": "tool", "content": "5"}], "End with the question"),
        ([HI, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}], "End with the question"),
        ([HI, {"role": ["user"], "content": "x"}], "needs a role: system, developer, user, assistant"),
        ([], "'messages' is missing, or empty. Send chat completions"),
    ],
)
def test_a_message_that_is_refused_is_named_with_what_is_accepted(messages: list[Any], words: str) -> None:
    with pytest.raises(RequestRejected) as why:
        parse(*messages)
    assert words in str(why.value) and why.value.param and why.value.param.startswith("messages")


def test_a_body_may_begin_with_a_byte_order_mark_and_is_utf_8() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Zürich?"}]}, ensure_ascii=False)
    assert chat_format.parse_request(body.encode("utf-8-sig"), {}).question == "Zürich?"
    for coding in ("latin-1", "utf-16"):
        with pytest.raises(RequestRejected, match=r"The body is not JSON: .* Send JSON in UTF-8\."):
            chat_format.parse_request(body.encode(coding), {})


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


@for_each("label", ["", "a1b2c3", "serve:", "serve:a:b", "serve:a:b:c:d", "x:a:b:c"])
def test_a_label_of_anything_else_is_no_mark(label: str) -> None:
    assert RunLabel.parse(label) is None
    assert RunLabel.parse(str(RunLabel("o", "a", "k"))) == RunLabel("o", "a", "k")


def test_a_client_can_name_no_session_of_another() -> None:
    one, two = Caller("1111111111111111", False), Caller("2222222222222222", False)
    assert two.session(one.session("trip")) != one.session("trip")
    assert one.name_session(one.session("trip")) == "trip"
    assert Caller("3333333333333333", True).session(one.session("trip")) == one.session("trip")


@for_each(
    ("text", "shown"),
    [
        ('May \'send\' be called with {"to":"ann","text":"Hi? Ann"}?', 'send(to="ann", text="Hi? Ann")'),
        (
            "May 'pay' be called with {\"usd\":12345678901234567.89}? It costs.",
            "pay(usd=12345678901234567.89) It costs.",
        ),
        ("May 'pay' be called with [\"Ada\",5000]?", 'pay(["Ada",5000])'),
        ("May 'now' be called with null?", "now(null)"),
        ("May 'x' be called with {\"a b\":1}?", 'x({"a b":1})'),
        ('May \'x\' be called with {"a":"\\u202e"}?', 'x(a="\\u202e")'),
        ("May 'x' be called with {broken?", "May 'x' be called with {broken?"),
        ("Is this right?", "Is this right?"),
    ],
)
def test_an_approval_shows_the_call_exactly(text: str, shown: str) -> None:
    asked = question_text(Waiting("approval", text, question="abcd"))
    assert asked.startswith(f"Approve this call?\n\n{shown}\n\nSay yes abcd")
