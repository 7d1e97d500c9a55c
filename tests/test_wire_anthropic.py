"""Anthropic's Messages API: every recorded exchange, the exact requests, refusals, and whole runs over HTTP."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import examples, for_each
from models_server import event
from plait.core import Call, Message, ProviderState, Reply, Think, ToolSpec, Usage, assistant, system, user
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    RateLimited,
    ServerFailed,
    Unsupported,
)
from plait.models.base import Abilities, Response
from plait.models.config import ModelConfig
from plait.models.resolve import resolve
from plait.models.wires.chat_completions import GO_ON
from plait.models.wires.refusals import Target, failure
from plait.models.wires.strict_schema import ANTHROPIC, fit_schema
from plait.models.wires.wire import load_wire
from wire_exchanges import (
    STREAMED,
    WHOLE,
    Exchange,
    body_of,
    decode,
    decode_damaged,
    events_of,
    model_of,
    read_exchanges,
    run_tools,
)

HOST = "api.anthropic.com"
ASK = (system("Be brief."), user("How many?"))
IGNORED = {"redacted_thinking", "server_tool_use", "web_fetch_tool_result", "compaction"}
"""Blocks that no reply shows. They are kept in the state."""
FINISH = {"end_turn": "stop", "tool_use": "calls"}
PEOPLE = ToolSpec("people", "People in a city.", {"type": "object", "properties": {"city": {"type": "string"}}})


def body(think: Think, name: str = "claude-sonnet-4-5", **options: Any) -> dict[str, Any]:
    return json.loads(model_of("anthropic", name, **options).encode(think).body)


def plain(value: Any) -> Any:
    """A request's blocks without marks, and without what the service does not depend on."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "tool_result" and isinstance(value["content"], list):
        value = {**value, "content": "".join(each.get("text", "") for each in value["content"])}
    left = ("cache_control", "is_error", "caller") + (("citations",) if value.get("citations") is None else ())
    return {key: plain(each) for key, each in value.items() if key not in left}


def blocks_of(exchange: Exchange) -> list[dict[str, Any]]:
    """The blocks of a response, put together by the simplest rules."""
    events = events_of(exchange)
    if "sse" not in exchange:
        return events[0]["content"]
    blocks = [each["content_block"] for each in events if each["type"] == "content_block_start"]
    for each in events:
        if each["type"] == "content_block_delta":
            for key in ("text", "thinking", "signature"):
                if key in each["delta"]:
                    blocks[each["index"]][key] += each["delta"][key]
    return blocks


# -- recorded exchanges


def test_every_recorded_exchange_arrives_whole() -> None:
    seen = 0
    for name, exchanges in read_exchanges(HOST):
        for exchange in exchanges:
            if exchange["path"].endswith("count_tokens"):
                continue
            reply = decode("anthropic", exchange["request"]["model"], exchange)
            blocks = blocks_of(exchange)
            assert {each["type"] for each in blocks} <= {"text", "thinking", "tool_use"} | IGNORED, name
            assert reply.text == "".join(each["text"] for each in blocks if each["type"] == "text"), name
            assert reply.reasoning == "\n".join(each["thinking"] for each in blocks if each["type"] == "thinking")
            calls = [(each["name"], each["input"], each["id"]) for each in blocks if each["type"] == "tool_use"]
            assert [(call.tool, call.input or {}, call.id) for call in reply.calls] == calls, name
            ends = [each.get("delta", each) for each in events_of(exchange)]
            (reason,) = [each["stop_reason"] for each in ends if each.get("stop_reason")]
            assert reply.finish == FINISH[reason], name
            usage: dict[str, int] = {}
            for each in events_of(exchange):
                usage.update(each.get("usage") or each.get("message", {}).get("usage") or {})
            cached, made = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
            read_tokens = usage["input_tokens"] + cached + made
            assert reply.usage == Usage(read_tokens, usage["output_tokens"], cached, made), name
            opaque = {each["type"] for each in blocks} - {"text", "tool_use"}
            assert reply.state == (ProviderState("anthropic", exchange["request"]["model"], blocks) if opaque else None)
            assert reply.model.startswith("claude-")
            seen += 1
    assert seen >= 53


def sent_turn(reply: Reply) -> Message:
    return Message("assistant", reply.text.strip(), reply.calls, state=reply.state)


def made_turn(blocks: list[dict[str, Any]]) -> Message:
    """A turn that the client made up, or whose thinking it left out."""
    texts = "".join(each["text"] for each in blocks if each["type"] == "text")
    return Message(
        "assistant",
        texts,
        tuple(Call(each["name"], each["input"], each["id"]) for each in blocks if each["type"] == "tool_use"),
    )


def test_a_recorded_conversation_is_rebuilt_from_its_replies() -> None:
    """Each assistant turn of a recorded request that is a recorded reply is sent from what Plait keeps of it."""
    turns = signed = 0
    for name, exchanges in read_exchanges(HOST):
        replies: list[tuple[Any, Reply]] = []
        for exchange in exchanges:
            request = exchange["request"]
            if exchange["path"].endswith("count_tokens"):
                continue
            messages: list[Message] = []
            for each in request["messages"]:
                if each["role"] == "assistant":
                    known = [reply for blocks, reply in replies if plain(blocks) == plain(each["content"])]
                    kinds = [block["type"] for block in each["content"]]
                    if not known and (set(kinds) - {"text", "tool_use"} or kinds.count("text") > 1):
                        break  # the client made this turn up: no reply of the file has it
                    messages.append(sent_turn(known[0]) if known else made_turn(each["content"]))
                    turns += bool(known)
                    signed += bool(known and known[0].state)
                    continue
                for block in each["content"]:
                    if block["type"] == "tool_result":
                        content = plain(block)["content"]
                        messages.append(Message("tool", content, call_id=block["tool_use_id"]))
                    elif block["type"] == "text":
                        messages.append(user(block["text"]))
            sent = body(Think("act", tuple(messages)), request["model"])["messages"]
            asked = [each for each in plain(request["messages"]) if each["role"] != "system"]
            if messages:
                assert plain(sent) == asked[: len(sent)], name
            replies.append((blocks_of(exchange), decode("anthropic", request["model"], exchange)))
    assert turns >= 18 and signed >= 5


def test_a_stream_in_any_pieces_is_the_same_reply() -> None:
    streams = 0
    for _, exchanges in read_exchanges(HOST):
        for exchange in (each for each in exchanges if "sse" in each):
            crlf = {**exchange, "sse": exchange["sse"].replace("\n", "\r\n")}
            assert decode("anthropic", "m", crlf) == decode("anthropic", "m", exchange)
            streams += 1
    assert streams == 2


# -- responses by hand


def stream(*blocks: dict[str, Any], reason: str = "end_turn", usage: dict[str, Any] | None = None) -> bytes:
    """A message as a stream: each text in pieces of three characters, with pings between them."""
    head = {"model": "claude-x", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}
    out: list[dict[str, Any]] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        empty = {
            key: {} if key == "input" else "" for key in ("text", "thinking", "signature", "input") if key in block
        }
        out.append({"type": "content_block_start", "index": index, "content_block": {**block, **empty}})
        for kind, key, name in (
            ("text_delta", "text", "text"),
            ("thinking_delta", "thinking", "thinking"),
            ("signature_delta", "signature", "signature"),
            ("input_json_delta", "input", "partial_json"),
        ):
            if key in empty:
                given = json.dumps(block[key]) if isinstance(block[key], dict) else block[key]
                size = len(given) if key == "signature" else 3
                for at in range(0, len(given), size):
                    delta = {"type": kind, name: given[at : at + size]}
                    out.append({"type": "content_block_delta", "index": index, "delta": delta})
        out.append({"type": "content_block_stop", "index": index})
    out.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or {"output_tokens": 7}})
    out.append({"type": "message_stop"})
    return b"".join(b"event: " + each["type"].encode() + b"\n" + event(each) for each in out)


def whole(*blocks: dict[str, Any], reason: str = "end_turn", **usage: int) -> dict[str, Any]:
    counts = {"input_tokens": 5, "output_tokens": 7, **usage}
    return {"type": "message", "model": "claude-x", "content": list(blocks), "stop_reason": reason, "usage": counts}


def read(given: bytes | dict[str, Any], **fields: Any) -> Reply:
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return model_of("anthropic", "claude-x").decode(Response(200, data), Think("act", **fields))


THOUGHT = {"type": "thinking", "thinking": "Which country?", "signature": "c2ln+/=="}
HIDDEN = {"type": "redacted_thinking", "data": "EqkE"}
SAID = {"type": "text", "text": "Let me look."}
USED = {"type": "tool_use", "id": "toolu_1", "name": "people", "input": {"city": "Nîmes"}}


@pytest.mark.parametrize("streamed", [True, False])
def test_blocks_of_all_kinds(streamed: bool) -> None:
    searched = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "u"}]}
    blocks = (THOUGHT, HIDDEN, searched, found, SAID, USED, {**USED, "id": "toolu_2", "input": {}})
    reply = read(stream(*blocks, reason="tool_use") if streamed else whole(*blocks, reason="tool_use"))
    assert (reply.text, reply.reasoning, reply.finish) == ("Let me look.", "Which country?", "calls")
    assert reply.calls == (Call("people", {"city": "Nîmes"}, "toolu_1"), Call("people", None, "toolu_2"))
    assert reply.state == ProviderState("anthropic", "claude-x", list(blocks))
    assert (reply.usage, reply.model) == (Usage(5, 7), "claude-x")


@for_each(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "paused"),
        ("refusal", "filter"),
        ("tool_use", "calls"),
        ("a_new_reason", "stop"),
    ],
)
def test_the_reasons_to_stop(reason: str, finish: str) -> None:
    for given in (whole(SAID, reason=reason), stream(SAID, reason=reason)):
        reply = read(given)
        assert (reply.text, reply.finish) == ("Let me look.", finish)


def test_cached_tokens_are_part_of_the_input() -> None:
    counts = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 30}
    assert read(whole(SAID, **counts)).usage == Usage(135, 7, 100, 30)
    late = {"input_tokens": 9, "output_tokens": 8, "cache_read_input_tokens": 100, "cache_creation_input_tokens": None}
    assert read(stream(SAID, usage=late)).usage == Usage(109, 8, 100)


def test_a_damaged_response_is_a_reply_or_an_error_of_plait() -> None:
    number = examples(20_000)
    assert decode_damaged(HOST, "anthropic", "claude-opus-5", number) > number / 2


def test_what_is_unknown_never_loses_a_reply() -> None:
    odd = [
        {"type": "a_new_event", "index": 0},
        {"type": "content_block_start", "index": 3, "content_block": {"type": "new_block", "x": "a"}},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "new_delta", "x": "b", "y": [1]}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": " More."}},
        {"type": "content_block_delta", "index": 3},
        {"type": "content_block_start", "content_block": None},
        [],
    ]
    data = stream(SAID)
    at = data.index(b"event: message_delta")
    reply = read(data[:at] + b"".join(map(event, odd)) + data[at:])
    assert (reply.text, reply.finish) == ("Let me look. More.", "stop")
    assert reply.state is not None and reply.state.data[1] == {"type": "new_block", "x": "ab", "y": [1]}


def test_half_the_input_of_a_call_is_reported_and_sent_back_as_an_object() -> None:
    data = stream(THOUGHT, {**USED, "input": {"city": "Nic"}}, reason="max_tokens")
    end = {"type": "input_json_delta", "partial_json": 'c"}'}
    last = event({"type": "content_block_delta", "index": 1, "delta": end})
    assert last in data
    reply = read(data.replace(last, b""))
    assert reply.finish == "length"
    assert isinstance(reply.calls[0].input, str)
    messages = (
        user("q"),
        Message("assistant", "", reply.calls, state=reply.state),
        Message("tool", "bad", call_id="x"),
    )
    sent = body(Think("act", messages), "claude-x")["messages"][1]["content"]
    assert sent[0] == THOUGHT
    assert list(sent[1]["input"]) == ["input"]


def test_a_reply_that_plait_cuts_has_no_state() -> None:
    """Its blocks may be halves, without their signatures."""
    data = stream(THOUGHT, {"type": "text", "text": "One. Stop here and more."})
    reply = model_of("anthropic", "claude-x").decode(
        Response(200, data[: data.index(b"message_delta")], cut=True), Think("act", stop=("Stop",))
    )
    assert (reply.text, reply.state) == ("One. ", None)


# -- requests


def test_the_bytes_of_a_request() -> None:
    think = Think("act", ASK, stop=("\nObservation:", "\n\n"), temperature=0.0, max_tokens=9, tools=(PEOPLE,))
    request = model_of("anthropic", "claude-sonnet-4-5").encode(think)
    assert request.path == "messages"
    assert request.body == (
        b'{"model":"claude-sonnet-4-5",'
        b'"tools":[{"name":"people","description":"People in a city.","input_schema":{"type":"object",'
        b'"properties":{"city":{"type":"string"}}},"cache_control":{"type":"ephemeral"}}],'
        b'"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"How many?",'
        b'"cache_control":{"type":"ephemeral"}}]}],'
        b'"max_tokens":9,"stop_sequences":["\\nObservation:"],"temperature":0.0,"stream":true}'
    )
    assert model_of("anthropic", "claude-sonnet-4-5").encode(think).body == request.body


def test_marks_follow_the_conversation_and_are_at_most_four() -> None:
    messages = list(ASK)
    for n in range(30):
        calls = tuple(Call("people", {"city": str(i)}, f"c{n}-{i}") for i in range(3))
        messages.append(Message("assistant", "", calls))
        messages += [Message("tool", "1", call_id=call.id) for call in calls]
        sent = body(Think("act", tuple(messages), tools=(PEOPLE, PEOPLE)))
        assert json.dumps(sent).count("cache_control") == 4
        last = [turn for turn in sent["messages"] if turn["role"] == "user"][-2:]
        assert all("cache_control" in turn["content"][-1] for turn in last)
        # Each request begins with the one before, whose end is marked again.
        longer = body(Think("act", (*messages, user("more")), tools=(PEOPLE, PEOPLE)))
        assert plain(longer)["messages"][:-1] == plain(sent)["messages"][:-1]
    none = body(Think("act", tuple(messages), tools=(PEOPLE,)), params={"cache_control": False})
    assert "cache_control" not in json.dumps(none)
    own = body(Think("act", ASK), params={"cache_control": {"type": "ephemeral", "ttl": "1h"}})
    assert own["cache_control"] == {"type": "ephemeral", "ttl": "1h"} and json.dumps(own).count("cache_control") == 1


def test_messages_alternate_and_hold_no_empty_text() -> None:
    said = (
        *(system("A"), user("one"), user("  "), user("two"), assistant("three"), assistant("")),
        *(system("four"), user("five"), assistant("six \n")),
    )
    sent = plain(body(Think("act", said)))
    assert [(turn["role"], [each["text"] for each in turn["content"]]) for turn in sent["messages"]] == [
        ("user", ["one", "two"]),
        ("assistant", ["three"]),
        ("user", ["four", "five"]),
        ("assistant", ["six"]),
    ]
    assert plain(body(Think("act", (system("Only this."),))))["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Only this."}]}
    ]
    assert plain(body(Think("act", prompt="Q: 2+2")))["messages"][0]["content"][0]["text"] == "Q: 2+2"


def calls_and_results(state: ProviderState | None = None) -> tuple[Message, ...]:
    calls = (Call("people", {"city": "Lyon"}, "functions.people:0"), Call("people", [1], "b"))
    turn = Message("assistant", "Look.", calls, state=state)
    return (*ASK, turn, Message("tool", "522250", call_id="functions.people:0"), Message("tool", "1", call_id="b"))


FITTED = sha256(b"functions.people:0").hexdigest()


def test_results_are_blocks_of_one_user_message() -> None:
    sent = plain(body(Think("act", (*calls_and_results(), user("Answer now.")), tools=(PEOPLE,))))["messages"]
    assert sent[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "tool_use", "id": FITTED, "name": "people", "input": {"city": "Lyon"}},
                {"type": "tool_use", "id": "b", "name": "people", "input": {"input": [1]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": FITTED, "content": "522250"},
                {"type": "tool_result", "tool_use_id": "b", "content": "1"},
                {"type": "text", "text": "Answer now."},
            ],
        },
    ]


def test_the_error_of_a_call_is_marked_as_one() -> None:
    results = (Message("tool", "No city.", call_id="a", failed=True), Message("tool", "", call_id="b", failed=True))
    asked = (*ASK, Message("assistant", "", (Call("people", None, "a"), Call("people", None, "b"))), *results)
    error, empty = body(Think("act", asked, tools=(PEOPLE,)), params={"cache_control": False})["messages"][-1][
        "content"
    ]
    assert error == {"type": "tool_result", "tool_use_id": "a", "content": "No city.", "is_error": True}
    assert "is_error" not in empty  # the service refuses an empty error


def test_a_run_marks_the_result_of_a_failed_tool(journal: Path) -> None:
    def people(city: str) -> int:
        """People in a city."""
        raise plait.ToolError(f"{city} is not known.")

    call = {"type": "tool_use", "id": "toolu_1", "name": "people", "input": {"city": "Oz"}}
    replies = [stream(call, reason="tool_use"), stream({"type": "text", "text": "Unknown."}, reason="end_turn")]
    model = {"wire": "anthropic", "name": "claude-sonnet-4-5", "abilities": STREAMED}
    _, asked = run_tools(model, [people], journal, *replies, wait=False)
    result = asked[1].body["messages"][-1]["content"][0]
    assert (result["is_error"], "Oz is not known." in result["content"]) == (True, True)


def test_the_state_goes_back_unchanged_with_the_ids_of_the_run() -> None:
    blocks = [THOUGHT, HIDDEN, {"type": "text", "text": "\n"}, SAID, USED, {**USED, "id": "toolu_2"}]
    state = ProviderState("anthropic", "claude-sonnet-4-5", blocks)
    sent = body(Think("act", calls_and_results(state), tools=(PEOPLE,)))["messages"][1]["content"]
    assert sent == [THOUGHT, HIDDEN, SAID, {**USED, "id": FITTED}, {**USED, "id": "b"}]
    assert json.dumps(sent[0]) == json.dumps(THOUGHT)
    more = ProviderState("anthropic", "claude-sonnet-4-5", [*blocks, {**USED, "id": "toolu_3"}])
    assert body(Think("act", calls_and_results(more)))["messages"][1]["content"] == sent
    for other in (
        ProviderState("anthropic", "claude-opus-5", blocks),
        ProviderState("chat", "claude-sonnet-4-5", {"reasoning_content": "x"}),
    ):
        turn = body(Think("act", calls_and_results(other)))["messages"][1]["content"]
        assert [each["type"] for each in turn] == ["text", "tool_use", "tool_use"]


def test_a_history_with_calls_brings_their_tools() -> None:
    sent = body(Think("act", calls_and_results()))
    assert plain(sent["tools"]) == [{"name": "people", "input_schema": {"type": "object"}}]
    assert sent["tool_choice"] == {"type": "none"}
    words = body(Think("act", calls_and_results(), tools=(PEOPLE,)), abilities=Abilities(tools=False))
    assert "tools" not in words and "tool_use" not in json.dumps(words)
    assert "Calling people with" in words["messages"][1]["content"][0]["text"]


def test_a_prefill_is_continued_or_asked_for() -> None:
    think = Think("act", ASK, prefill="Thought: \n")
    can = Abilities(prefill=True)
    assert plain(body(think, abilities=can))["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Thought:"}],
    }
    thinking = {"thinking": {"type": "adaptive"}}
    for sent in (body(think), body(think, abilities=can, params=thinking)):
        assert [turn["role"] for turn in sent["messages"]] == ["user", "assistant", "user"]
        assert sent["messages"][-1]["content"][0]["text"] == GO_ON


@for_each(
    ("name", "limit"),
    [
        ("claude-3-opus-latest", 4096),
        ("claude-3-5-haiku-20241022", 8192),
        ("claude-3-7-sonnet-latest", 32_000),
        ("claude-opus-4-20250514", 32_000),
        ("claude-fable-5", 32_000),
        ("another", 8192),
    ],
)
def test_max_tokens_is_always_sent(name: str, limit: int) -> None:
    assert body(Think("act", ASK), name)["max_tokens"] == limit
    assert body(Think("act", ASK, max_tokens=50), name)["max_tokens"] == 50
    assert body(Think("act", ASK, max_tokens=50), name, params={"max_tokens": 90})["max_tokens"] == 50
    assert body(Think("act", ASK), name, params={"max_tokens": 90})["max_tokens"] == 90


def test_params_are_added_and_foreign_ones_left_out() -> None:
    params = {"seed": 7, "top_k": 40, "temperature": 0.2, "output_config": {"effort": "high"}, "metadata": None}
    think = Think("act", ASK, schema={"type": "object", "properties": {"a": {"type": "string"}}})
    sent = body(think, abilities=Abilities(schema=True), params=params)
    assert (sent["top_k"], sent["temperature"]) == (40, 0.2) and "seed" not in sent and "metadata" not in sent
    assert sent["output_config"] == {
        "format": {
            "type": "json_schema",
            "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        },
        "effort": "high",
    }
    assert "temperature" not in body(think, abilities=Abilities(temperature=False), params=params)
    assert body(Think("act", ASK, temperature=1.7))["temperature"] == 1.0


def test_thinking_fits_the_rest_of_the_request() -> None:
    fixed = {"thinking": {"type": "enabled", "budget_tokens": 3000}}
    sent = body(Think("act", ASK, temperature=0.3), params=fixed)
    assert sent["thinking"] == fixed["thinking"] and "temperature" not in sent
    assert body(Think("act", ASK, max_tokens=2500), params=fixed)["thinking"]["budget_tokens"] == 1250
    assert "thinking" not in body(Think("act", ASK, max_tokens=900), params=fixed)
    high = {"thinking": {"type": "enabled", "budget_tokens": 40_000}}
    assert body(Think("act", ASK), params=high)["max_tokens"] == 72_000
    # A tool loop that another model began has no thinking in front.
    foreign = calls_and_results(ProviderState("chat", "gpt-5", {}))
    assert "thinking" not in body(Think("act", foreign, tools=(PEOPLE,)), params=fixed)
    own = calls_and_results(ProviderState("anthropic", "claude-sonnet-4-5", [THOUGHT, USED, USED]))
    assert "thinking" in body(Think("act", own, tools=(PEOPLE,)), params=fixed)
    assert "thinking" in body(Think("act", (*own, assistant("a"), user("b"))), params=fixed)
    assert "thinking" in body(Think("act", foreign, tools=(PEOPLE,)), params={"thinking": {"type": "adaptive"}})


@for_each(
    "name, binds",
    [
        *[(each, True) for each in ("claude-opus-5-5", "claude-fable-5-1", "claude-haiku-5-5", "claude-sonnet-6")],
        *[(each, False) for each in ("claude-opus-5", "claude-fable-5", "claude-opus-4-7", "claude-opus-5-20260701")],
    ],
)
def test_thinking_that_no_longer_fits_is_to_be_dropped_by_models_that_check_it(name: str, binds: bool) -> None:
    binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    asked = Think("act", ASK, tools=(PEOPLE,))
    headers = load_wire("anthropic").make_headers("k", name)
    assert ("anthropic-beta" in headers) == binds
    assert body(asked, name).get("thinking") == ({**binding, "type": "adaptive"} if binds else None)
    assert "thinking" not in body(Think("act", ASK), name)  # without tools, no thinking comes back
    shown = body(asked, name, params={"thinking": {"type": "adaptive", "display": "summarized"}})["thinking"]
    assert shown == {**(binding if binds else {}), "type": "adaptive", "display": "summarized"}
    own = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    assert body(asked, name, params={"thinking": own})["thinking"] == own


def test_a_schema_is_closed_or_left_out() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    given = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/inner"}, "minItems": 2, "maxItems": 9},
            "b": {"oneOf": [{"type": "string", "maxLength": 5, "format": "x"}, {"type": "null"}]},
        },
        "$defs": {"inner": inner},
    }
    closed = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert fit_schema(given, ANTHROPIC) == {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
            "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "$defs": {"inner": {**closed, "additionalProperties": False}},
        "additionalProperties": False,
    }
    tree = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}
    for open_schema in (
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "array", "items": {}},
        {"$ref": "#/$defs/tree", "$defs": {"tree": tree}},
        {"type": "string", "not": {"const": "x"}},
    ):
        assert fit_schema(open_schema, ANTHROPIC) is None
    assert "output_config" not in body(Think("act", ASK, schema={"type": "object"}), abilities=Abilities(schema=True))


# -- the host


def test_the_host_speaks_this_wire_and_can_speak_the_old_one() -> None:
    model = resolve("anthropic:claude-opus-4-8", env={"ANTHROPIC_API_KEY": "k"})
    assert (model.wire, model.endpoint) == ("anthropic", "https://api.anthropic.com/v1")
    assert (model.abilities.temperature, model.abilities.prefill, model.abilities.schema) == (False, False, True)
    old = resolve("anthropic:claude-sonnet-4-0", env={"ANTHROPIC_API_KEY": "k"})
    assert (old.abilities.temperature, old.abilities.prefill, old.abilities.schema) == (True, True, False)
    assert not resolve("anthropic:claude-opus-4-1", env={"ANTHROPIC_API_KEY": "k"}).abilities.schema
    table = {"base_url": "https://api.anthropic.com/v1", "kind": "anthropic", "wire": "chat", "model": "claude-opus-5"}
    other = resolve("mine", ModelConfig.from_mapping({"endpoints": {"mine": table}}), env={})
    assert other.wire == "chat" and not other.abilities.schema
    assert other.encode(Think("act", ASK)).path == "chat/completions"


# -- refusals


def error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}).encode()


@for_each(
    ("status", "kind", "message", "expected"),
    [
        (400, "invalid_request_error", "max_tokens: Field required", BadRequest),
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", ContextOverflow),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
            ContextOverflow,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
            AuthenticationError,
        ),
        (400, "invalid_request_error", "Output blocked by content filtering policy", ContentFiltered),
        (400, "invalid_request_error", "`temperature` is deprecated for this model.", Unsupported),
        (400, "invalid_request_error", "'claude-3' does not support output format.", BadRequest),
        (401, "authentication_error", "invalid x-api-key", AuthenticationError),
        (402, "billing_error", "There is a problem with your billing.", AuthenticationError),
        (403, "permission_error", "Your API key does not have permission.", AuthenticationError),
        (404, "not_found_error", "model: claude-9", BadRequest),
        (408, "timeout_error", "Request timed out", ServerFailed),
        (409, "conflict_error", "Conflict", ServerFailed),
        (413, "request_too_large", "Request exceeds the maximum size", ContextOverflow),
        (422, "invalid_request_error", "Unprocessable", BadRequest),
        (429, "rate_limit_error", "This request would exceed your organization's rate limit", RateLimited),
        (500, "api_error", "Internal server error", ServerFailed),
        (502, "api_error", "Bad gateway", ServerFailed),
        (503, "api_error", "Unavailable", ServerFailed),
        (529, "overloaded_error", "Overloaded", ServerFailed),
    ],
)
def test_refusals(status: int, kind: str, message: str, expected: type[ModelError]) -> None:
    asked = model_of("anthropic", "claude-3", abilities=Abilities(schema=True)).encode(
        Think("act", ASK, temperature=0.1, schema={"type": "object", "properties": {"a": {"type": "string"}}})
    )
    target = Target("http://h/v1", "claude-3", secrets=("k",))
    headers = {"Retry-After": "7"}
    made = failure(status, error(kind, message), target, asked=asked.body, path=asked.path, headers=headers)
    assert type(made) is expected
    assert made.retry == (expected in (RateLimited, ServerFailed))
    assert made.after == (7 if made.retry else None)
    if "tokens >" in message:
        assert isinstance(made, ContextOverflow) and (made.tokens, made.room) == (208310, 200000)


def test_a_refused_effort_is_not_a_refused_schema() -> None:
    asked = model_of("anthropic", "m", params={"output_config": {"effort": "max"}}).encode(Think("act", ASK))
    said = "output_config.effort: this model does not support the effort parameter."
    assert type(failure(400, error("invalid_request_error", said), Target("h", "m"), asked=asked.body)) is BadRequest


def test_a_refused_prefill_is_left_out_next_time() -> None:
    said = "This model does not support assistant message prefill. The conversation must end with a user message."
    asked = model_of("anthropic", "m", abilities=Abilities(prefill=True)).encode(Think("act", ASK, prefill="A:"))
    made = failure(400, error("invalid_request_error", said), Target("h", "m"), asked=asked.body)
    assert isinstance(made, Unsupported) and made.ability == "prefill"


@pytest.mark.parametrize(("kind", "expected"), [("overloaded_error", ServerFailed), ("rate_limit_error", RateLimited)])
def test_an_error_inside_a_stream(kind: str, expected: type[ModelError]) -> None:
    data = stream(SAID)
    broken = data[: data.index(b"event: content_block_stop")]
    inside = event({"type": "error", "error": {"type": kind, "message": "Overloaded"}})
    for named in (b"event: error\n", b""):
        with pytest.raises(expected):
            read(broken + named + inside)


# -- whole runs


@plait.tool
def get_user_country() -> str:
    """The user's country."""
    return "Mexico"


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_run_sends_the_thinking_back(journal: Path, streamed: bool, wait: bool) -> None:
    ((first, second),) = [each for name, each in read_exchanges(HOST) if name == "anthropic_tool_with_thinking"]
    replies = [json.loads(body_of(each)) for each in (first, second)]
    sent_back = [stream(*each["content"], reason=each["stop_reason"]) if streamed else each for each in replies]
    model = {
        "wire": "anthropic",
        "name": "claude-sonnet-4-0",
        "abilities": STREAMED if streamed else WHOLE,
        "params": {"thinking": first["request"]["thinking"]},
    }
    run, asked = run_tools(model, [get_user_country], journal, *sent_back, wait=wait)
    assert (run.status, run.answer) == ("answered", replies[1]["content"][0]["text"])
    assert [each.path for each in asked] == ["/v1/messages"] * len(asked)
    assert asked[0].headers["x-api-key"] == "sk-secret" and asked[0].headers["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in asked[0].headers
    assert plain(asked[-1].body["messages"][1:]) == plain(second["request"]["messages"][1:])
    assert asked[-1].body["thinking"] == first["request"]["thinking"]
