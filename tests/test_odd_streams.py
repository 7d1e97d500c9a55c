"""Streams and bodies as endpoints really send them: repeated, older, flat, damaged and cut. Effects happen once."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import LONG, examples, for_each
from models_server import Asked, Server, completion, delta, event
from odd_streams import MODELS, THINK, judge, make_case, read_case
from plait.core import Call, Reply, Think
from plait.core import events as ev
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    BadResponse,
    ContextOverflow,
    ModelError,
    RateLimited,
    ServerFailed,
)
from plait.core.secrets import Scrubber
from plait.models.base import Response
from plait.models.wires.refusals import Target, failure
from plait.models.wires.stream import scrub_pieces
from wire_exchanges import Imitation

Json = dict[str, Any]
DONE = event(b"[DONE]")
LYON = {"city": "Lyon"}
MADE = (Call("weather", LYON, "a"),)


def native(
    given: Any = '{"city": "Lyon"}', id: str | None = "a", index: int | None = 0, name: str | None = "weather"
) -> Json:
    """A call, or a piece of one; None leaves a field out."""
    function = {"arguments": given, **({} if name is None else {"name": name})}
    return {**({} if index is None else {"index": index}), **({} if id is None else {"id": id}), "function": function}


def calls(*each: Json, finish: str | None = None) -> bytes:
    return delta(tool_calls=list(each), finish=finish)


def whole(finish: str = "stop", **message: Any) -> bytes:
    """A chunk with the whole message in place of a piece."""
    return event({"object": "chat.completion", "choices": [{"message": message, "finish_reason": finish}]})


def claude(*events: Json, reason: str | None = "end_turn") -> bytes:
    end = {"type": "message_delta", "delta": {"stop_reason": reason}}
    return b"".join(map(event, [*events, *([end] if reason else [])]))


def block(index: int, fields: Json, *deltas: Json) -> list[Json]:
    """The events of a block of a message."""
    start = {"type": "content_block_start", "index": index, "content_block": fields}
    pieces = [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
    return [start, *pieces, {"type": "content_block_stop", "index": index}]


USE = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
INPUT = {"type": "input_json_delta", "partial_json": '{"city": "Lyon"}'}
HI = {"type": "text_delta", "text": "Hi"}
SAYS_HI = block(0, {"type": "text", "text": ""}, HI)


def gemini(*parts: Json, reason: str = "STOP", **more: Any) -> bytes:
    return event(
        {"candidates": [{"content": {"parts": list(parts)}, **({"finishReason": reason} if reason else {}), **more}]}
    )


def item(**fields: Any) -> Json:
    return {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city": "Lyon"}', **fields}


def response(kind: str, **fields: Any) -> bytes:
    return event({"type": f"response.{kind}", **fields})


def completed(*output: Json) -> bytes:
    return response("completed", response={"status": "completed", "output": list(output)})


def read(wire: str, body: bytes, think: Think = THINK) -> Reply:
    return MODELS[wire].decode(Response(200, body), think)


TEXTS = {
    "message in place of the last piece": ("chat", delta("Hel") + delta("lo") + whole(content="Hello"), "Hello"),
    "message beside the last piece": (
        "chat",
        delta("Hel") + event({"choices": [{"delta": {}, "message": {"content": "Hello"}, "finish_reason": "stop"}]}),
        "Hello",
    ),
    "message beside a piece": (
        "chat",
        delta("Hel")
        + event({"choices": [{"delta": {"content": "lo"}, "message": {"content": "Hello"}, "finish_reason": "stop"}]}),
        "Hello",
    ),
    "a message in place of each piece": ("chat", whole("", content="Hel") + whole(content="lo"), "Hello"),
    "the last piece repeats all": (
        "chat",
        delta("Lyon has ") + delta("21 degrees.") + delta("Lyon has 21 degrees.", "stop"),
        "Lyon has 21 degrees.",
    ),
    "equal pieces are text": ("chat", delta("ha ") + delta("ha ") + delta("ha ", "stop"), "ha ha ha "),
    "pieces that begin alike are text": ("chat", delta("ha") + delta("haha", "stop"), "hahaha"),
    "long equal pieces are text": ("chat", delta("=" * 500) * 2 + delta("=" * 500, "stop"), "=" * 1500),
    "snapshots": (
        "chat",
        delta("Lyon") + delta("Lyon has 21 ") + delta("Lyon has 21 degrees.") + delta("", "stop"),
        "Lyon has 21 degrees.",
    ),
    "snapshots of Gemini": (
        "gemini",
        gemini({"text": "Lyon"}, reason="")
        + gemini({"text": "Lyon has 21 "}, reason="")
        + gemini({"text": "Lyon has 21 degrees."}),
        "Lyon has 21 degrees.",
    ),
    "a character in two pieces": (
        "chat",
        b'data: {"choices":[{"delta":{"content":"Caf\xc3"}}]}\n\ndata: {"choices":[{"delta":{"content":"\xa9"}}]}\n\n'
        + DONE,
        "Café",
    ),
    "halves of a character in two pieces": ("chat", delta("x\ud83d") + delta("\ude00", "stop"), "x😀"),
    "half of a character": ("chat", delta("x\ud83d") + delta("y", "stop"), "x�y"),
    "a byte that is not UTF-8": (
        "chat",
        b'data: {"choices":[{"delta":{"content":"Caf\xe9"},"finish_reason":"stop"}]}\n\n',
        "Caf�",
    ),
    "NaN and Infinity in the usage": (
        "chat",
        delta("Hi", "stop") + event(b'{"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":1e999}}'),
        "Hi",
    ),
    "NUL in the text and around it": (
        "chat",
        b'\x00{"choices":[{"message":{"content":"a\x00b"},"finish_reason":"stop"}]}\x00\n\x00',
        "a�b",
    ),
    "comments before a body": (
        "chat",
        b': WAIT\n\n{\n"choices": [\n{"message": {"content": "Hi"}, "finish_reason": "stop"}\n]}',
        "Hi",
    ),
    "lines of JSON": (
        "chat",
        b'{"choices":[{"delta":{"content":"Hi"}}]}\n{"choices":[{"delta":{},"finish_reason":"stop"}]}\n',
        "Hi",
    ),
    "an event named ping": ("chat", delta("Hi") + b'event: ping\ndata: {"wait\n\n' + delta("", "stop"), "Hi"),
    "usage, then the end": ("chat", delta("Hi") + event({"choices": [], "usage": {"prompt_tokens": 1}}), "Hi"),
    "usage of Gemini, then the end": (
        "gemini",
        gemini({"text": "Hi"}, reason="") + event({"usageMetadata": {"promptTokenCount": 1}}),
        "Hi",
    ),
    "a delta without a reason": (
        "anthropic",
        claude(*SAYS_HI, {"type": "message_delta", "delta": {}}, reason=None),
        "Hi",
    ),
    "a whole message behind its events": (
        "anthropic",
        claude(*SAYS_HI, {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}),
        "Hi",
    ),
    "two blocks with one index": ("anthropic", claude(*SAYS_HI, *SAYS_HI), "HiHi"),
    "the same start twice": ("anthropic", claude(SAYS_HI[0], *SAYS_HI), "Hi"),
    "damage, then the whole message": (
        "chat",
        delta("He") + event(b'{"choices":[{"delta":{"con') + whole(content="Hello"),
        "Hello",
    ),
    "damage behind the end": ("chat", delta("Hi", "stop") + event(b'{"usage": {"pro') + DONE, "Hi"),
    "an event twice": (
        "responses",
        response("output_text.delta", delta="Hi", sequence_number=0)
        + response("output_text.delta", delta=" you", sequence_number=1) * 2
        + completed(),
        "Hi you",
    ),
    "an event twice, once with another": (
        "responses",
        b"\n".join(
            b'{"type": "response.output_text.delta", "delta": "%s", "sequence_number": %d}%s' % each
            for each in ((b"Hi", 0, b""), (b" you", 1, b"\n"), (b" you", 1, b""), (b"!", 2, b"\n"))
        )
        + completed(),
        "Hi you!",
    ),
    "events that are all number 0": (
        "responses",
        response("output_text.delta", delta="ha", sequence_number=0) * 2 + completed(),
        "haha",
    ),
    "the last piece is missing": (
        "responses",
        response("output_text.delta", delta="Hi")
        + completed({"type": "message", "content": [{"type": "output_text", "text": "Hi you"}]}),
        "Hi you",
    ),
    "a reason behind the text": ("chat", delta("Hi") + delta("", "stop") + delta(" you"), "Hi you"),
    "the older field beside each piece": (
        "chat",
        b"".join(event({"choices": [{"delta": {"content": each}, "text": each}]}) for each in ("ha", "ha")) + DONE,
        "haha",
    ),
    "a choice with another number": (
        "chat",
        event({"choices": [{"index": 1, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}),
        "Hi",
    ),
    "events wrapped twice": (
        "chat",
        b"".join(b"data: event: message\ndata: " + each for each in (delta("Hi"), delta(" you", "stop"))),
        "Hi you",
    ),
    "a call of nothing": (
        "chat",
        calls(native("", "", 0, "")) + delta("Hi", tool_calls=[native(None, "b", 1, None)]) + delta("", "stop"),
        "Hi",
    ),
    "an older call of nothing": (
        "chat",
        json.dumps(completion("Hi", function_call={"name": "", "arguments": "{}"})).encode(),
        "Hi",
    ),
    "one part": ("chat", json.dumps(completion("", content={"type": "text", "text": "Hi"})).encode(), "Hi"),
    "JSON of a schema, already read": ("chat", json.dumps(completion("", content={"a": [1]})).encode(), '{"a":[1]}'),
    "an empty refusal": ("chat", delta("", refusal="") + delta("Hi", "stop"), "Hi"),
    "a success code": (
        "chat",
        json.dumps({**completion("Hi"), "code": 200, "base_resp": {"status_code": 0}}).encode(),
        "Hi",
    ),
    "a content that is a text": (
        "anthropic",
        event({"type": "message", "content": "Hi", "stop_reason": "end_turn"}),
        "Hi",
    ),
    "a list of texts": ("anthropic", event({"content": ["Hi", " you"], "stop_reason": "end_turn"}), "Hi you"),
    "other names of the fields": (
        "gemini",
        event({"candidates": [{"content": {"parts": {"text": "Hi"}}, "finish_reason": "STOP"}], "usage_metadata": {}}),
        "Hi",
    ),
    "a reply within a response": (
        "gemini",
        event({"response": {"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]}}),
        "Hi",
    ),
    "two candidates without a number": (
        "gemini",
        event({"candidates": [{"content": {"parts": [{"text": t}]}, "finishReason": "STOP"} for t in ("Hi", "Ho")]}),
        "Hi",
    ),
    "an item with a text": ("responses", completed({"type": "message", "content": "Hi"}), "Hi"),
    "only the text of all": (
        "responses",
        json.dumps({"status": "completed", "output": [], "output_text": "Hi"}).encode(),
        "Hi",
    ),
    "only the end of the text": ("responses", response("output_text.done", text="Hi") + completed(), "Hi"),
    "the end of the text": (
        "responses",
        response("output_text.delta", delta="Hi") + response("output_text.done", text="Hi") + completed(),
        "Hi",
    ),
}


@for_each(("wire", "body", "text"), TEXTS.values())
def test_the_text_arrives_once_and_whole(wire: str, body: bytes, text: str) -> None:
    reply = read(wire, body)
    assert (reply.text, reply.finish, reply.calls) == (text, "stop", ())


NICE = '{"city": "Nice"}'
BOTH = [("weather", LYON), ("weather", {"city": "Nice"})]
CALLS: dict[str, tuple[str, bytes, list[tuple[str, Any]]]] = {
    "repeated in the message": (
        "chat",
        calls(native()) + whole("tool_calls", tool_calls=[native(index=None)]),
        BOTH[:1],
    ),
    "repeated with another id": ("chat", calls(native()) + whole("tool_calls", tool_calls=[native(id="b")]), BOTH[:1]),
    "repeated without ids": (
        "chat",
        calls(native(id=None)) + whole("tool_calls", tool_calls=[native(id=None)] * 2),
        BOTH[:1] * 2,
    ),
    "repeated at another index": ("chat", calls(native()) + calls(native(index=1), finish="tool_calls"), BOTH[:1]),
    "repeated in pieces": (
        "chat",
        calls(native(""))
        + calls(native('{"city"', None, 0, None))
        + calls(native(': "Lyon"}', None, 0, None))
        + calls(native('{"city":"Lyon"}'), finish="tool_calls"),
        BOTH[:1],
    ),
    "a header twice": ("chat", calls(native()) + calls(native(""), finish="tool_calls"), BOTH[:1]),
    "half, then the whole message": (
        "chat",
        calls(native('{"city": "Ly')) + whole("tool_calls", tool_calls=[native()]),
        BOTH[:1],
    ),
    "equal without ids": ("chat", calls(native(id=None), native(id=None, index=1), finish="tool_calls"), BOTH[:1] * 2),
    "equal with two ids": ("chat", calls(native(), native(id="b", index=1), finish="tool_calls"), BOTH[:1] * 2),
    "one id, two inputs": ("chat", calls(native()) + calls(native(NICE), finish="tool_calls"), BOTH),
    "one index, no ids, in pieces": (
        "chat",
        calls(native("", None))
        + calls(native('{"city": "Lyon"}', None, 0, None))
        + calls(native("", None))
        + calls(native(NICE, None, 0, None), finish="tool_calls"),
        BOTH,
    ),
    "no index, ids on each piece": (
        "chat",
        calls(native('{"city"', "a", None))
        + calls(native('{"city"', "b", None))
        + calls(native(':"Lyon"}', "a", None))
        + calls(native(':"Nice"}', "b", None), finish="tool_calls"),
        BOTH,
    ),
    "one index, ids on each piece": (
        "chat",
        calls(native('{"city"'))
        + calls(native('{"city"', "b"))
        + calls(native(':"Lyon"}', name=None))
        + calls(native(':"Nice"}', "b", name=None), finish="tool_calls"),
        BOTH,
    ),
    "snapshots of the input": (
        "chat",
        calls(native('{"city"'))
        + calls(native('{"city": "Ly', None, 0, None))
        + calls(native('{"city": "Lyon"}', None, 0, None), finish="tool_calls"),
        BOTH[:1],
    ),
    "the input twice": ("chat", calls(native()) + calls(native(name=None), finish="tool_calls"), BOTH[:1]),
    "{} before the input": ("chat", calls(native("{}")) + calls(native(name=None), finish="tool_calls"), BOTH[:1]),
    "an older call": (
        "chat",
        delta(function_call={"name": "weather", "arguments": '{"city":'})
        + delta(function_call={"arguments": '"Lyon"}'}, finish="function_call"),
        BOTH[:1],
    ),
    "an older call and a call": (
        "chat",
        delta(function_call=native()["function"]) + calls(native(), finish="tool_calls"),
        BOTH[:1],
    ),
    "an older call in a body": (
        "chat",
        json.dumps(completion("", "function_call", function_call=native()["function"])).encode(),
        BOTH[:1],
    ),
    "flat": ("chat", calls({"id": "a", "name": "weather", "arguments": LYON}, finish="tool_calls"), BOTH[:1]),
    "flat, with the tool as the function": (
        "chat",
        calls({"function": "weather", "parameters": '{"city": "Lyon"}'}, finish="tool_calls"),
        BOTH[:1],
    ),
    "no list": ("chat", json.dumps(completion("", "tool_calls", tool_calls=native(LYON))).encode(), BOTH[:1]),
    "in the content": (
        "chat",
        json.dumps(
            completion("", content=[{"type": "tool_use", "id": "a", "name": "weather", "input": LYON}])
        ).encode(),
        BOTH[:1],
    ),
    "[DONE] without a reason": ("chat", calls(native()) + DONE, BOTH[:1]),
    "a block twice": ("anthropic", claude(*block(0, USE, INPUT), *block(1, USE, INPUT), reason="tool_use"), BOTH[:1]),
    "a block again, with another input": (
        "anthropic",
        claude(*block(0, USE, INPUT), *block(0, USE, {**INPUT, "partial_json": NICE}), reason="tool_use"),
        BOTH,
    ),
    "an input as text": (
        "anthropic",
        claude(*block(0, {**USE, "input": '{"city": "Lyon"}'}), reason="tool_use"),
        BOTH[:1],
    ),
    "an item at its end and in the response": (
        "responses",
        response("output_item.done", item=item(), output_index=0)
        + completed(item())
        + response("done", response={"output": [item()]}),
        BOTH[:1],
    ),
    "all items at index 0": (
        "responses",
        response("output_item.done", item=item(), output_index=0)
        + response("output_item.done", item=item(call_id="b", arguments=NICE), output_index=0)
        + completed(),
        BOTH,
    ),
    "an input where the item begins": ("responses", response("output_item.added", item=item()) + completed(), BOTH[:1]),
    "a part twice": (
        "gemini",
        gemini({"functionCall": {"id": "a", "name": "weather", "args": LYON}}, reason="") * 2 + gemini(),
        BOTH[:1],
    ),
    "a part twice without an id": (
        "gemini",
        gemini({"functionCall": {"name": "weather", "args": LYON}}, reason="") * 2 + gemini(),
        BOTH[:1] * 2,
    ),
    "args as text": ("gemini", gemini({"function_call": {"name": "weather", "args": '{"city": "Lyon"}'}}), BOTH[:1]),
    "a name in pieces": (
        "chat",
        calls(native("", name="wea")) + calls(native("", None, name="ther")) + calls(native(id=None, name=None)) + DONE,
        BOTH[:1],
    ),
    "a name that grows": ("chat", calls(native("", name="wea")) + calls(native(), finish="tool_calls"), BOTH[:1]),
    "an id for each piece": (
        "chat",
        calls(native("")) + calls(native('{"city": ', "b")) + calls(native('"Lyon"}', "c"), finish="tool_calls"),
        BOTH[:1],
    ),
    "the name again behind its input": (
        "chat",
        calls(native(id=None)) + calls(native("", None), finish="tool_calls"),
        BOTH[:1],
    ),
    "two pieces of one call in an event": (
        "chat",
        calls(native('{"city"'), native(': "Lyon"}', None, 0, None), finish="tool_calls"),
        BOTH[:1],
    ),
    "a call of nothing behind it": (
        "chat",
        calls(native()) + calls(native("", "", 1, ""), finish="tool_calls"),
        BOTH[:1],
    ),
    "within a tag": ("chat", calls(native('{"city": "Lyon"}\n</tool_call>'), finish="tool_calls"), BOTH[:1]),
    "within a fence": ("chat", calls(native('```json\n{"city": "Lyon"}\n```'), finish="tool_calls"), BOTH[:1]),
    "no input in words": ("chat", calls(native("None"), finish="tool_calls"), [("weather", None)]),
    "an empty text in quotes": ("chat", calls(native('""'), finish="tool_calls"), [("weather", None)]),
    "a custom call": (
        "chat",
        calls({"type": "custom", "id": "a", "custom": {"name": "weather", "input": "Lyon"}}, finish="tool_calls"),
        [("weather", "Lyon")],
    ),
    "another name of the input": (
        "chat",
        calls({"id": "a", "function": {"name": "weather", "params": LYON}}, finish="tool_calls"),
        BOTH[:1],
    ),
    "an input beside the function": (
        "chat",
        calls({"id": "a", "function": {"name": "weather", "arguments": ""}, "input": LYON}, finish="tool_calls"),
        BOTH[:1],
    ),
    "an object as a piece": (
        "anthropic",
        claude(*block(0, USE, {**INPUT, "partial_json": LYON}), reason="tool_use"),
        BOTH[:1],
    ),
    "{} behind the input": (
        "anthropic",
        claude(*block(0, {**USE, "input": LYON}, {**INPUT, "partial_json": "{}"}), reason="tool_use"),
        BOTH[:1],
    ),
    "a piece behind the end of its block": (
        "anthropic",
        claude(
            *block(0, USE, {**INPUT, "partial_json": '{"city": '}),
            block(0, USE, {**INPUT, "partial_json": '"Lyon"}'})[1],
            reason="tool_use",
        ),
        BOTH[:1],
    ),
    "only the end of the input": (
        "responses",
        response("output_item.added", item=item(arguments=""), output_index=0)
        + response("function_call_arguments.done", arguments='{"city": "Lyon"}', output_index=0)
        + completed(),
        BOTH[:1],
    ),
    "other names of the fields": (
        "gemini",
        event(
            {
                "candidates": [
                    {
                        "content": {"parts": [{"function_call": {"name": "weather", "args": LYON}}]},
                        "finish_reason": "STOP",
                    }
                ]
            }
        ),
        BOTH[:1],
    ),
}


@for_each(("wire", "body", "made"), CALLS.values())
def test_each_call_is_made_once(wire: str, body: bytes, made: list[tuple[str, Any]]) -> None:
    reply = read(wire, body)
    assert [(call.tool, call.input) for call in reply.calls] == made and reply.finish == "calls"


BAD = "Malformed function call: call:weather{"
BROKEN = {
    "malformed": (
        "gemini",
        gemini({"text": "Let me check."}, reason="MALFORMED_FUNCTION_CALL", finishMessage=BAD),
        BAD,
    ),
    "unexpected": ("gemini", gemini(reason="UNEXPECTED_TOOL_CALL"), ""),
    "a whole call before it": (
        "gemini",
        gemini({"functionCall": {"name": "weather", "args": LYON}}, reason="MALFORMED_FUNCTION_CALL"),
        "",
    ),
    "another wire's word": ("chat", delta("Let me", "malformed_tool_call"), ""),
    "the provider's own word": (
        "chat",
        event(
            {
                "choices": [
                    {
                        "delta": {"content": "Let me"},
                        "finish_reason": "stop",
                        "native_finish_reason": "MALFORMED_FUNCTION_CALL",
                    }
                ]
            }
        ),
        "",
    ),
    "Claude": ("anthropic", claude(*SAYS_HI, reason="malformed_tool_use"), ""),
    "responses": (
        "responses",
        response(
            "incomplete", response={"status": "incomplete", "incomplete_details": {"reason": "malformed_function_call"}}
        ),
        "",
    ),
    "a byte that is not UTF-8": (
        "chat",
        calls(native('{"city": "N?mes"}'), finish="tool_calls").replace(b"?", b"\xee"),
        "",
    ),
    "half of a character": ("chat", calls(native('{"city": "\\ud800"}'), finish="tool_calls"), ""),
    "NaN": ("chat", calls(native('{"city": NaN}'), finish="tool_calls"), ""),
    "NaN as a value": (
        "gemini",
        gemini({"functionCall": {"name": "weather", "args": {"city": 17}}}).replace(b"17", b"NaN"),
        "",
    ),
    "a control character": (
        "gemini",
        gemini({"functionCall": {"name": "weather", "args": {"city": "?"}}}).replace(b"?", b"\x01"),
        "",
    ),
    "too deep": ("chat", calls(native('{"a":' * 300 + "1" + "}" * 300), finish="tool_calls"), ""),
    "half an input, [DONE]": ("chat", calls(native('{"city": "Ly')) + DONE, ""),
    "no input, [DONE]": ("chat", calls(native("")) + DONE, ""),
    "no input, usage": ("chat", calls(native("")) + event({"choices": [], "usage": {"prompt_tokens": 1}}), ""),
    "no input, message_stop": ("anthropic", claude(*block(0, USE)[:1], {"type": "message_stop"}, reason=None), ""),
    "an object of JavaScript": ("chat", calls(native("[object Object]"), finish="tool_calls"), ""),
    "an input that could not be written": ("chat", calls(native(False), finish="tool_calls"), ""),
    "an input in pieces": (
        "gemini",
        gemini({"functionCall": {"name": "weather", "willContinue": True}}, {"functionCall": {"partialArgs": [{}]}}),
        "",
    ),
}


@for_each(("wire", "body", "unread"), BROKEN.values())
def test_a_call_that_cannot_be_read_is_broken_and_what_stands_before_it_is_no_text(
    wire: str, body: bytes, unread: str
) -> None:
    reply = read(wire, body)
    assert (reply.text, reply.finish, reply.unread) == ("", "broken", unread)


def test_a_copied_replacement_character_in_an_input_is_no_damage() -> None:
    assert read("chat", calls(native('{"city": "�"}'), finish="tool_calls")).calls == (
        Call("weather", {"city": "�"}, "a"),
    )


@pytest.mark.parametrize(
    "body",
    [
        calls(native("")) + calls(finish="length"),
        calls(native('{"city": "Ly')) + calls(finish="length"),
        claude(*block(0, USE)[:1], reason="max_tokens"),
    ],
)
def test_the_input_of_a_call_that_was_cut_is_text_or_none_which_no_loop_runs(body: bytes) -> None:
    reply = read("anthropic" if b"content_block" in body else "chat", body)
    assert reply.finish == "length" and isinstance(reply.calls[0].input, str | None)


FAULTS: dict[str, tuple[str, bytes, type[ModelError], str]] = {
    "just ends": ("chat", delta("Hel"), BadResponse, "broke off"),
    "a reason that is none": ("chat", delta("Hel", "null"), BadResponse, "broke off"),
    "half an event": ("chat", delta("Hel") + b'data: {"choices":[{"del', BadResponse, "broke off"),
    "an event that was cut": (
        "chat",
        delta("He") + event(b'{"choices":[{"del') + delta("o", "stop"),
        BadResponse,
        "cannot be read",
    ),
    "half a body": ("chat", json.dumps(completion("Hel")).encode()[:-9], BadResponse, "not a reply"),
    "half a call and no end": (
        "responses",
        response("output_item.added", item=item(arguments="")),
        BadResponse,
        "broke off",
    ),
    "blocks and no end": ("anthropic", claude(*SAYS_HI, reason=None), BadResponse, "broke off"),
    "no candidates": (
        "gemini",
        event({"candidates": [], "usageMetadata": {"promptTokenCount": 1}}),
        BadResponse,
        "not a reply",
    ),
    "an error as a reason": ("chat", delta("Upstream is down", "error"), ServerFailed, "'error'"),
    "an error in a choice": (
        "chat",
        event({"choices": [{"delta": {"content": "x"}, "error": {"message": "m\ud800", "code": 502}}]}),
        ServerFailed,
        "m�",
    ),
    "an error in a piece": ("chat", delta(error={"message": "down"}), ServerFailed, "down"),
    "an error object": (
        "chat",
        delta("Hel") + event({"object": "error", "message": "down", "code": 50001}) + DONE,
        ServerFailed,
        "down",
    ),
    "an error of another wire": (
        "gemini",
        gemini({"text": "x"}) + event({"type": "error", "error": {"message": "down"}}),
        ServerFailed,
        "down",
    ),
    "an error in a line": ("chat", delta("Hel") + event(b"[ERROR] upstream is down") + DONE, ServerFailed, "upstream"),
    "an error by its type": (
        "chat",
        delta("Hel") + event({"type": "upstream_error", "message": "down"}) + DONE,
        ServerFailed,
        "down",
    ),
    "details of an error": ("chat", delta("Hel") + event({"detail": "too slow"}) + DONE, ServerFailed, "too slow"),
    "errors": ("chat", json.dumps({"success": False, "errors": [{"message": "down"}]}).encode(), ServerFailed, "down"),
    "a status of its own": (
        "chat",
        delta("Hel") + event({"choices": [], "base_resp": {"status_code": 1000, "status_msg": "down"}}) + DONE,
        ServerFailed,
        "down",
    ),
}


@for_each(("wire", "body", "kind", "words"), FAULTS.values())
def test_what_is_no_whole_reply_is_a_typed_error(wire: str, body: bytes, kind: type[ModelError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        read(wire, body)
    assert caught.value.retry


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"error": "Context size has been exceeded."}, ContextOverflow),
        ({"code": 1113, "msg": "Insufficient balance", "success": False}, AuthenticationError),
        ({"error": {"message": "model 'x' not found, try pulling it first"}}, BadRequest),
        ({"type": "rate_limit_error", "message": "slow down"}, RateLimited),
    ],
)
def test_an_error_in_a_reply_is_of_its_kind(said: Json, kind: type[ModelError]) -> None:
    for body in (json.dumps(said).encode(), delta("Hel") + event(said) + DONE):
        with pytest.raises(kind):
            read("chat", body)


@pytest.mark.parametrize(
    ("wire", "body", "finish"),
    [
        ("chat", delta("It is", "length") + delta("", "stop"), "length"),
        ("chat", delta(refusal="No.") + delta("", "stop"), "filter"),
        ("chat", delta("It is", "incomplete"), "length"),
        ("anthropic", claude(*SAYS_HI, reason="max_tokens") + claude(), "length"),
    ],
)
def test_a_later_stop_does_not_complete_what_was_cut(wire: str, body: bytes, finish: str) -> None:
    assert read(wire, body).finish == finish


def test_a_huge_cost_is_none() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "cost": 1e300}
    assert read("chat", json.dumps(completion("Hi", usage=usage)).encode()).cost is None


def test_the_words_of_an_error_that_is_not_utf_8_remain() -> None:
    made = failure(400, b'{"error":{"message":"mod\xe8le inconnu"}}', Target("http://h", "m"))
    assert isinstance(made, BadRequest) and "mod�le inconnu" in made.message


def test_a_state_holds_no_call_that_is_not_made() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "S"}
    reply = read(
        "anthropic", claude(*block(0, thought), *block(1, USE, INPUT), *block(2, USE, INPUT), reason="tool_use")
    )
    assert reply.state is not None and reply.state.data == [thought, {**USE, "input": LYON}]
    part = {"functionCall": {"id": "a", "name": "weather", "args": LYON}, "thoughtSignature": "S"}
    reply = read("gemini", gemini(part, reason="") * 2 + gemini())
    assert reply.state is not None and reply.state.data == [part]


def test_streams_and_bodies_by_chance_are_read_as_they_state() -> None:
    for number in range(examples(12_000)):
        chance = random.Random(f"bodies {number}")
        case = make_case(chance)
        outcome = read_case(case, chance)
        assert not judge(case, outcome), (number, case, outcome)


@for_each(
    "body",
    [
        b"data: " + b"[" * LONG + b"\n\n",
        b'data: {"a\n' * (LONG // 8) + b"\n\n",
        b'{"choices": ' + b"\x00" * LONG,
        b"".join(calls(native('{"city":', "a")) for _ in range(LONG // 64)),
        b"".join(calls(native('{"city": 1}', None)) for _ in range(LONG // 64)),
        delta("x" * LONG) + whole("", content="x") * (LONG // 64),
        b"".join(event({"type": "content_block_start", "index": n, "content_block": USE}) for n in range(LONG // 64)),
    ],
)
def test_a_hostile_stream_ends_in_a_reply_or_a_typed_error(body: bytes) -> None:
    for wire in MODELS:
        try:
            read(wire, body)
        except ModelError:
            continue


# Whole runs: the loop asks again where a call was broken, in its own form.


@plait.tool
def weather(city: str) -> str:
    """The weather of a city."""
    ASKED.append(city)
    return f"{city}: 21 degrees"


ASKED: list[str] = []


def run(wire: str, *replies: Any, loop: str = "tool_calling", **options: Any) -> tuple[plait.Run, int, list[ev.Event]]:
    """A run against these replies: the run, how many requests it made, and its events."""
    ASKED.clear()

    async def main() -> tuple[plait.Run, int, list[ev.Event]]:
        async with Server(Imitation(*replies)) as server:
            agent = plait.Agent(loop, model=server.model(wire=wire), tools=[weather], **options)
            events = [each async for each in agent.stream("How warm is it in Lyon?")]
            ended = events[-1]
            assert isinstance(ended, ev.Ended)
            return ended.run, len(server.asked), events

    return asyncio.run(main())


WARM = gemini({"text": "21 degrees."})


@pytest.mark.parametrize(
    "message", [BAD, "Malformed function call", "The model produced an invalid function call.", ""]
)
@pytest.mark.parametrize("streamed", [True, False])
def test_an_endpoints_error_text_is_no_answer_and_the_model_is_asked_again(message: str, streamed: bool) -> None:
    bad = gemini({"text": "Let me check. "}, reason="MALFORMED_FUNCTION_CALL", finishMessage=message)
    made, requests, events = run("gemini", bad if streamed else json.loads(bad[6:]), WARM)
    assert (made.status, made.answer, requests, ASKED) == ("answered", "21 degrees.", 2, [])
    kinds = {each.part: each.kind for each in events if isinstance(each, ev.Marked)}
    pieces = [each for each in events if isinstance(each, ev.Answer | ev.Text)]
    assert "".join(each.text for each in pieces if kinds[each.part] == "answer") == "21 degrees."


def test_a_broken_call_whose_words_are_a_call_is_made() -> None:
    said = "Malformed function call: print(default_api.weather(city='Lyon'))"
    made, requests, _ = run("gemini", gemini(reason="MALFORMED_FUNCTION_CALL", finishMessage=said), WARM)
    assert (made.answer, requests, ASKED) == ("21 degrees.", 2, ["Lyon"])


def test_an_endpoint_that_breaks_each_call_ends_the_run_with_its_words() -> None:
    made, requests, _ = run("gemini", *[gemini(reason="MALFORMED_FUNCTION_CALL", finishMessage=BAD)] * 3)
    assert (made.status, made.answer, requests) == ("stopped", None, 3)
    assert BAD in str(made.reason)


IN_TEXT = {
    "react": ["Final Answer: 21 degrees."],
    "json": ['{"thought": "x", "tool": "final_answer", "tool_input": "21 degrees."}'],
    "phased": ["I think.", "[]", "21 degrees."],
    "rewoo": ["Plan: look\n#E1 = weather[Lyon]", "21 degrees."],
}


@pytest.mark.parametrize(("loop", "at"), [(loop, at) for loop, said in IN_TEXT.items() for at in range(len(said))])
def test_loops_in_text_ask_again_for_a_reply_with_a_broken_call(loop: str, at: int) -> None:
    replies = [gemini({"text": text}) for text in IN_TEXT[loop]]
    replies.insert(at, gemini({"text": "Final Answer: wrong"}, reason="UNEXPECTED_TOOL_CALL", finishMessage=BAD))
    if (loop, at) == ("phased", 0):
        replies.pop(1)  # the words of this phase are for the model's own use, and may be none
    made, requests, _ = run("gemini", *replies, loop=loop)
    assert (made.status, made.answer, requests) == ("answered", "21 degrees.", len(replies))


def test_no_call_is_made_with_a_damaged_input_and_the_next_request_says_why() -> None:
    bad = calls(native('{"city": "N?mes"}'), finish="tool_calls").replace(b"?", b"\xee")
    made, requests, events = run("chat", bad, delta("Fine.", "stop"))
    assert (made.status, made.answer, requests, ASKED) == ("answered", "Fine.", 2, [])
    assert any(isinstance(each, ev.Noted) and "cannot be read" in each.text for each in events)


@pytest.mark.parametrize("keep_alive", [b"", b"ping", b": PROCESSING", b"null", b'{"type": "ping"}', b"12", b"[]"])
def test_keep_alives_are_skipped_and_cost_no_request(keep_alive: bytes) -> None:
    body = delta("Hel") + event(keep_alive) + delta("lo") + delta(finish="stop") + event(b"DONE")
    made, requests, _ = run("chat", body)
    assert (made.answer, requests) == ("Hello", 1)


@pytest.mark.parametrize(
    ("loop", "first"),
    [
        ("react", delta("Final Answer: 21 ") + delta("degrees.") + whole(content="Final Answer: 21 degrees.")),
        ("tool_calling", calls(native()) + whole("tool_calls", tool_calls=[native(index=None)])),
        ("tool_calling", json.loads(json.dumps(completion("", "function_call", function_call=native()["function"])))),
    ],
)
def test_a_run_does_everything_once(loop: str, first: Any) -> None:
    made, _, _ = run("chat", first, delta("21 degrees.", "stop"), loop=loop)
    assert (made.status, made.answer) == ("answered", "21 degrees.")
    assert ([] if loop == "react" else ["Lyon"]) == ASKED


@pytest.mark.parametrize(
    ("wire", "first"),
    [
        ("chat", delta("Let me check.", "tool_calls")),
        (
            "anthropic",
            claude(*block(0, {"type": "text", "text": "Let me check."}), block(1, USE, INPUT)[1], reason="tool_use"),
        ),
    ],
)
def test_an_announced_call_that_did_not_come_is_asked_for_again(wire: str, first: bytes) -> None:
    answer = {"chat": delta("21 degrees.", "tool_calls"), "anthropic": claude(*SAYS_HI)}[wire]
    made, requests, _ = run(wire, first, answer)
    assert (made.status, requests, ASKED) == ("answered", 2, []) and made.answer in ("21 degrees.", "Hi")


@pytest.mark.parametrize(
    "name",
    ["functions.weather:0", "weather:12", "weather<|channel|>commentary", "default_api:weather", " weather\n"],
)
def test_a_tools_name_is_found_within_what_endpoints_leave_around_it(name: str) -> None:
    made, _, _ = run("chat", calls(native(name=name), finish="tool_calls"), delta("21 degrees.", "stop"))
    assert (made.answer, ASKED) == ("21 degrees.", ["Lyon"])


async def test_a_stream_ends_with_its_end_also_if_the_connection_stays_open_and_201_is_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plait.models.http.END_SECONDS", 0.01)

    async def handler(asked: Asked) -> None:
        asked.writer.write(
            b"HTTP/1.1 201 Created\r\nContent-Type: text/event-stream\r\n\r\n" + delta("Hi", "stop") + DONE
        )
        await asked.writer.drain()
        await asyncio.sleep(600)

    async with Server(handler) as server:
        model = server.model(wire="chat")
        response = await asyncio.wait_for(model.send(model.encode(THINK), THINK), 60)
    assert response.reply is not None and response.reply.text == "Hi"


KEY = "sk-0123456789abcdef"


@pytest.mark.parametrize("name", [b"data: ", b"DATA:", b"", b"  data : "])
def test_a_key_in_pieces_is_removed_from_events_in_odd_forms(name: bytes) -> None:
    lines = [name + b'{"choices":[{"delta":{"content":"%s"}}]}' % part for part in (b"\xff sk-0123", b"456789abcdef")]
    cleaned = scrub_pieces(b"\n\n".join(lines), Scrubber([KEY]))
    assert b"sk-0123" not in cleaned and b"456789abcdef" not in cleaned


async def test_a_key_in_pieces_that_cannot_be_found_is_an_error_and_not_stored(journal: Path) -> None:
    def lines(text: str) -> bytes:
        return b'data: {"choices":\ndata: [{"delta": {"content": "%s"}}]}\n\n' % text.encode()

    async def handler(asked: Asked) -> None:
        await asked.stream(lines("sk-0123") + lines("456789abcdef") + DONE)

    async with Server(handler) as server:
        made = await plait.Agent("react", model=server.model(key=KEY, wire="chat"), journal=journal).arun("Which key?")
    stored = b"".join(path.read_bytes() for path in journal.parent.glob(f"{journal.name}*"))
    assert made.status == "crashed" and "secret in pieces" in str(made.reason)
    assert b"456789abcdef" not in stored
