"""Streams and bodies of all four wires with repeated, reordered, cut, padded and odd pieces, and what they state.

`make_case` writes one by chance. It knows the text and the calls that the model gave, and whether the bytes hold all of
them: `is_complete`. `read_case` decodes one as a live stream and as a recorded body and reads it as tool calling does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from plait.core import LoopContext, Task, Think, ToolSpec, user
from plait.core.errors import PlaitError
from plait.loops.format import Unreadable
from plait.loops.tool_calling.turns import NativeTurns
from plait.models.base import Response
from plait.models.chat import ChatModel
from plait.models.wires.replies import ReplyReader
from plait.models.wires.wire import load_wire
from plait.runtime.templates.prompts import PromptBook

Json = dict[str, Any]
Called = tuple[str, Json]
WIRES = ("chat", "anthropic", "responses", "gemini")
_TAKES = {"type": "object", "properties": {"city": {"type": "string"}, "text": {"type": "string"}}}
TOOLS = (ToolSpec("weather", "Weather.", _TAKES), ToolSpec("send", "Sends.", _TAKES))
THINK = Think("act", (user("?"),), tools=TOOLS)
FAULT = "upstream connect error 7f3a"
"""The words of each endpoint's error. No answer may hold them."""
KEEP_ALIVES = (
    b"",
    b"ping",
    b": PROCESSING",
    b"null",
    b'{"type": "ping"}',
    b"17",
    b'"ping"',
    b"[]",
    b"keep-alive",
    b"{}",
)
WORDS = (
    "ha ha ",
    "Lyon has 21 degrees. ",
    "naïve café ",
    "日本 ",
    "😀",
    "\n- one\n",
    "Nîmes, ",
    '"quoted" ',
    "a\\b ",
    "= = ",
)
BROKEN_CALLS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "malformed_tool_call")


@dataclass
class Case:
    """One response, and the truth about it. `how` names what is odd."""

    wire: str
    body: bytes
    text: str
    calls: list[Called]
    is_complete: bool
    how: str


@dataclass
class Writing:
    """A reply that is being written: its events or its body, and the choices of form."""

    chance: Random
    text: str
    calls: list[Called]
    events: list[Json] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def pick(self, *ways: str) -> str:
        """Choose a form; the first one is the usual one and half as likely as all others."""
        way = self.chance.choice([ways[0], *ways])
        if way != ways[0]:
            self.odd.append(way)
        return way

    def pieces(self, text: str) -> list[str]:
        """The text cut at random places, also within a character's pair of halves."""
        places = sorted(
            {self.chance.randrange(len(text) + 1) for _ in range(self.chance.randrange(1, 7))} - {0, len(text)}
        )
        return [text[a:b] for a, b in pairwise([0, *places, len(text)])] if text else []

    def shown(self, text: str) -> list[str]:
        """The text in pieces, or as snapshots of all that came so far."""
        pieces = self.pieces(text)
        snapshots = ["".join(pieces[: n + 1]) for n in range(len(pieces))]
        can_be_snapshots = len(pieces) > 2 and len(snapshots[1]) >= 12
        return snapshots if can_be_snapshots and self.pick("pieces", "snapshots") != "pieces" else pieces

    def inputs(self, given: Json) -> list[str]:
        """The JSON of an input in pieces, in one of the forms that endpoints send."""
        text = json.dumps(given, ensure_ascii=self.chance.random() < 0.5)
        way = self.pick("pieces", "input snapshots", "input twice", "{} before the input")
        pieces = self.pieces(text)
        if way == "input snapshots":
            return ["".join(pieces[: n + 1]) for n in range(len(pieces))]
        return [*(["{}"] if way == "{} before the input" else []), *pieces, *([text] if way == "input twice" else [])]


def make_truth(chance: Random) -> tuple[str, list[Called]]:
    """A text, or calls with or without a text before them. Two calls may be equal."""
    text = "".join(chance.choices(WORDS, k=chance.randrange(1, 9))).strip() or "21"
    if chance.random() < 0.5:
        return text, []
    calls = [
        (chance.choice(TOOLS).name, {"city": chance.choice(("Lyon", "Nîmes", "日本"))} | ({"text": text} if n else {}))
        for n in range(chance.randrange(1, 4))
    ]
    return chance.choice(("", text)), calls + calls[:1] * (chance.random() < 0.2)


# Each wire as it usually is, with odd forms by choice.


def chat_call(made: Writing, id: str, call: Called, given: Any, form: str) -> Json:
    name, _ = call
    if form == "flat":
        return {"id": id, "type": "function", "name": name, "arguments": given}
    if form == "flat, parameters":
        return {"id": id, "name": name, "parameters": given}
    return {"id": id, "type": "function", "function": {"name": name, "arguments": given}}


def chat_message(made: Writing, ids: list[str], way: str = "wrapped") -> Json:
    """The whole message."""
    calls = [
        chat_call(made, id, call, call[1] if way == "objects" else json.dumps(call[1]), way)
        for id, call in zip(ids, made.calls, strict=True)
    ]
    if way == "function_call" and len(calls) == 1:
        return {"role": "assistant", "content": made.text or None, "function_call": calls[0]["function"]}
    if way == "one call, no list" and len(calls) == 1:
        return {"role": "assistant", "content": made.text or None, "tool_calls": calls[0]}
    return {"role": "assistant", "content": made.text or None, **({"tool_calls": calls} if calls else {})}


CHAT_FORMS = ("wrapped", "flat", "flat, parameters", "objects", "function_call", "one call, no list")


def write_chat(made: Writing) -> None:
    def chunk(delta: Json | None = None, finish: str | None = None, **more: Any) -> Json:
        return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish, **more}]}

    different = len({json.dumps(call) for call in made.calls}) == len(made.calls)
    ways = ["own ids", "no ids", *(["one id for all"] if different else [])]
    how = made.pick(*ways) if made.calls else "own ids"
    ids = ["" if how == "no ids" else "x" if how == "one id for all" else f"call_{n}" for n in range(len(made.calls))]
    made.ids = ids
    out = made.events
    out.append(chunk({"role": "assistant", "content": ""}))
    out += [chunk({"content": piece}) for piece in made.shown(made.text)]
    place = made.pick("own index", "index 0", "no index") if made.calls else ""
    form = made.pick("header", *CHAT_FORMS[:4], "name in each piece", *["function_call"] * (len(made.calls) == 1))
    for n, (id, call) in enumerate(zip(ids, made.calls, strict=True)):
        at = {} if place == "no index" else {"index": 0 if place == "index 0" else n}
        given: list[Any] = made.inputs(call[1]) if form in ("header", "name in each piece", "function_call") else []
        if form == "header":
            made_calls = [
                {**chat_call(made, id, call, "", "wrapped")},
                *({"function": {"arguments": p}} for p in given),
            ]
        elif form == "name in each piece":
            # Where no piece says which call it belongs to, a whole object ends one.
            made_calls = [chat_call(made, id, call, piece, "wrapped") for piece in made.pieces(json.dumps(call[1]))]
        elif form == "function_call":
            first, *rest = given
            parts = [{"name": call[0], "arguments": first}, *({"arguments": piece} for piece in rest)]
            out += [chunk({"function_call": part}) for part in parts]
            continue
        else:
            made_calls = [chat_call(made, id, call, call[1] if form == "objects" else json.dumps(call[1]), form)]
        out += [chunk({"tool_calls": [{**at, **each}]}) for each in made_calls]
        if id and how == "own ids" and made.pick("once", "the same call again") != "once":
            again = chat_call(made, id, call, json.dumps(call[1]), "wrapped")
            out.append(chunk({"tool_calls": [{**({"index": made.chance.choice((n, n + 7))} if at else {}), **again}]}))
    finish = "tool_calls" if made.calls else "stop"
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}
    last = made.pick("finish chunk", "whole message at the end", "whole message beside the end", "no finish_reason")
    if last == "whole message at the end":
        out.append(
            {"object": "chat.completion", "choices": [{"message": chat_message(made, ids), "finish_reason": finish}]}
        )
    elif last == "whole message beside the end":
        out.append(chunk({}, finish, message=chat_message(made, made.chance.choice((ids, [""] * len(ids))))))
    elif last == "finish chunk":
        out.append(chunk({}, finish))
    out.append(usage)
    if last != "no finish_reason" and made.pick("usage at the end", "usage first") != "usage at the end":
        out.insert(0, out.pop())


def chat_body(made: Writing) -> Json:
    made.ids = [made.pick("id", "") and f"call_{n}" for n in range(len(made.calls))]
    message = chat_message(made, made.ids, made.pick(*CHAT_FORMS) if made.calls else "wrapped")
    finish = made.pick("tool_calls" if made.calls else "stop", "eos")
    return {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def claude_blocks(made: Writing) -> list[Json]:
    made.ids = [f"toolu_{n}" for n in range(len(made.calls))]
    text = [{"type": "text", "text": made.text}] if made.text else []
    return text + [
        {"type": "tool_use", "id": id, "name": name, "input": given}
        for id, (name, given) in zip(made.ids, made.calls, strict=True)
    ]


def write_claude(made: Writing) -> None:
    out, blocks = made.events, claude_blocks(made)
    out.append({"type": "message_start", "message": {"model": "m", "content": [], "usage": {"input_tokens": 9}}})
    place = made.pick("own index", "index 0")

    def write(n: int, block: Json, way: str) -> None:
        at = {"index": 0 if place == "index 0" else n}
        empty = {**block, **({"text": ""} if "text" in block else {"input": {}})}
        start = block if way == "input in the start" else empty
        out.extend([{"type": "content_block_start", **at, "content_block": start}] * (1 + (way == "start twice")))
        if "text" in block:
            deltas = [{"type": "text_delta", "text": piece} for piece in made.shown(block["text"])]
        elif way == "input in the start":
            deltas = []
        else:
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *made.inputs(block["input"]))
            ]
        out.extend({"type": "content_block_delta", **at, "delta": delta} for delta in deltas)
        out.append({"type": "content_block_stop", **at})

    for n, block in enumerate(blocks):
        ways = ["block", "start twice", *(["input in the start"] if "input" in block else [])]
        write(n, block, made.pick(*ways))
        if "input" in block and made.pick("once", "the same block again") != "once":
            write(made.chance.choice((n, n + 7)), block, "block")
    reason = "tool_use" if made.calls else "end_turn"
    end = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}}
    if made.pick("once", "whole message at the end") != "once":
        out.append({"type": "message", "content": blocks, "stop_reason": reason})
    how = made.pick("both ends", "no message_stop", "no message_delta")
    out += ([] if how == "no message_delta" else [end]) + (
        [] if how == "no message_stop" else [{"type": "message_stop"}]
    )


def claude_body(made: Writing) -> Json:
    reason = "tool_use" if made.calls else "end_turn"
    blocks = claude_blocks(made)
    way = made.pick("input", "arguments", "input as text")
    for block in blocks:
        if way == "arguments" and "input" in block:
            block["arguments"] = block.pop("input")
        elif way == "input as text" and "input" in block:
            block["input"] = json.dumps(block["input"])
    return {"type": "message", "model": "m", "content": blocks, "stop_reason": reason}


def response_items(made: Writing) -> list[Json]:
    made.ids = [f"call_{n}" for n in range(len(made.calls))]
    content = [{"type": "output_text", "text": made.text}]
    text = [{"type": "message", "id": "msg_0", "role": "assistant", "content": content}] if made.text else []
    return text + [
        {"type": "function_call", "id": f"fc_{n}", "call_id": id, "name": name, "arguments": json.dumps(given)}
        for n, (id, (name, given)) in enumerate(zip(made.ids, made.calls, strict=True))
    ]


def write_responses(made: Writing) -> None:
    out, items = made.events, response_items(made)
    ids = made.pick("item ids", "other ids in each event", "no item ids")
    place = made.pick("own index", "index 0", *(["no index"] if ids == "item ids" else []))
    place = "own index" if ids != "item ids" else place
    parts = made.pick("all events", "no deltas", "no done items", "only done items")

    def at(n: int, item: Json) -> Json:
        named = {} if ids == "no item ids" else {"item_id": item["id"]}
        if ids == "other ids in each event":
            named = {"item_id": f"{item['id']}_{len(out)}"}
        return named | ({} if place == "no index" else {"output_index": 0 if place == "index 0" else n})

    for n, item in enumerate(items):
        kind = "function_call_arguments" if "arguments" in item else "output_text"
        text = item.get("arguments") or item["content"][0]["text"]
        pieces = made.inputs(made.calls[n - len(items)][1]) if "arguments" in item else made.shown(text)
        begun = {**item, "content": []} if "content" in item else {**item, "arguments": ""}
        if parts != "only done items":
            out.append({"type": "response.output_item.added", "item": begun, **at(n, item)})
        if parts not in ("only done items", "no deltas"):
            for piece in pieces:
                out.append({"type": f"response.{kind}.delta", "delta": piece, **at(n, item)})
        if parts != "only done items":
            out.append({"type": f"response.{kind}.done", "text": text, "arguments": text, **at(n, item)})
        if parts != "no done items":
            out.append({"type": "response.output_item.done", "item": item, **at(n, item)})
    held = made.pick("whole output", "empty output", "no output")
    held = "whole output" if parts == "no done items" else held
    output = {"whole output": {"output": items}, "empty output": {"output": []}}.get(held, {})
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    out.append({"type": "response.completed", "response": {"status": "completed", "usage": usage, **output}})
    numbers = made.pick("numbers", "events twice", "all numbers 0")
    out[:] = [{**each, "sequence_number": 0 if numbers == "all numbers 0" else n} for n, each in enumerate(out)]
    if numbers == "events twice":
        out[:] = [each for one in out for each in [one] * made.chance.choice((1, 1, 2))]


def responses_body(made: Writing) -> Json:
    items = response_items(made)
    if made.pick("arguments", "objects") != "arguments":
        for item in items:
            if "arguments" in item:
                item["arguments"] = json.loads(item["arguments"])
    return {"object": "response", "status": "completed", "model": "m", "output": items}


def gemini_chunk(parts: list[Json], reason: str = "", **more: Any) -> Json:
    candidate = {"content": {"role": "model", "parts": parts}, **({"finishReason": reason} if reason else {}), **more}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4}}


def write_gemini(made: Writing) -> None:
    has_ids = made.pick("ids", "no ids") == "ids"
    made.ids = [f"id_{n}" if has_ids else "" for n in range(len(made.calls))]
    out = made.events
    out += [gemini_chunk([{"text": piece}]) for piece in made.shown(made.text)]
    way = made.pick("args", "args as text", "function_call")
    for id, (name, given) in zip(made.ids, made.calls, strict=True):
        call = {
            **({"id": id} if id else {}),
            "name": name,
            "args": json.dumps(given) if way == "args as text" else given,
        }
        part = {"function_call" if way == "function_call" else "functionCall": call}
        out.append(gemini_chunk([part]))
        if id and made.pick("once", "the same call again") != "once":
            out.append(gemini_chunk([part]))
    if not out or made.pick("end apart", "end with the last part") == "end apart":
        out.append(gemini_chunk([], "STOP"))
    else:
        out[-1]["candidates"][0]["finishReason"] = "STOP"


def gemini_body(made: Writing) -> Json:
    made.ids = ["" for _ in made.calls]
    parts = [{"text": made.text}] if made.text else []
    return gemini_chunk(parts + [{"functionCall": {"name": name, "args": given}} for name, given in made.calls], "STOP")


WRITERS: dict[str, tuple[Callable[[Writing], None], Callable[[Writing], Json]]] = {
    "chat": (write_chat, chat_body),
    "anthropic": (write_claude, claude_body),
    "responses": (write_responses, responses_body),
    "gemini": (write_gemini, gemini_body),
}


# What happens on the way: first what keeps all content, then what loses some of it.


def encode(made: Writing, event: Json) -> bytes:
    """The JSON of an event: escaped, or as UTF-8. The same event has the same bytes."""
    return json.dumps(event, ensure_ascii=len(json.dumps(event)) % 2 == 0).encode()


def lines_of(made: Writing, data: list[bytes], wire: str) -> bytes:
    """A stream with these data, in one of the forms that servers send."""
    name = made.pick(b"data: ".decode(), "data:", "DATA: ", "  data : ", "").encode()
    gap = b"\n\n"
    how = made.pick("blank lines", "no blank lines", "comments", "several lines", "names", "padding")
    out: list[bytes] = []
    for each in data:
        if how == "several lines" and each[:1] == b"{" and name:
            each = json.dumps(json.loads(each), indent=1).encode().replace(b"\n", b"\n" + name)
        if how == "names":
            each = each + b"\nid: " + str(len(out)).encode() + b"\nretry: 10"
        out.append((b": keep-alive\n" if how == "comments" else b"\x00\n" if how == "padding" else b"") + name + each)
    end = made.pick("\n", "\r\n", "\r").encode()
    text = (b"\n" if how == "no blank lines" else gap).join(out) + gap * (made.chance.random() < 0.9)
    return (b"\xef\xbb\xbf" if made.pick("", "BOM") else b"") + text.replace(b"\n", end)


def finish_case(made: Writing, wire: str, events: list[Json] | None, body: Json | None) -> bytes:
    if events is None:
        raw = encode(made, body or {})
        before, after = (
            made.pick("", "\n\n \n", "\ufeff", ": keep-alive\n\n"),
            made.pick("", "\n\n", "\n\x00\x00", "\n[DONE]"),
        )
        return before.encode() + raw + after.encode()
    data = [encode(made, each) for each in events]
    for _ in range(made.chance.choice((0, 0, 1, 3))):
        data.insert(made.chance.randrange(len(data) + 1), made.chance.choice(KEEP_ALIVES))
        made.odd.append("keep-alive")
    needs_end = wire == "chat" and "no finish_reason" in made.odd
    end = made.pick("[DONE]", "DONE", "[done]", *([] if needs_end else ["no [DONE]"]))
    return lines_of(made, data + ([] if end == "no [DONE]" else [end.encode()]), wire)


def lose(made: Writing, wire: str, events: list[Json]) -> tuple[str, bytes]:
    """Take something away: what it was, and the response."""
    chance = made.chance
    ends = ("finish_reason", "stop_reason", "finishReason", "response.completed", "message_stop")
    # The part of a stream that has content but no end.
    body = [
        each
        for each in events
        if not any(f'"{end}": "' in json.dumps(each) or end in str(each.get("type")) for end in ends)
    ]
    body = [each for each in body if "usage" not in each]
    body = body or events[:1]
    way = chance.choice(("cut", "event cut", "error event", "error at the end", "broken call", "bad input"))
    if way == "bad input" and not made.calls:
        way = "cut"
    data = [encode(made, each) for each in body]
    if way == "cut":
        raw = b"".join(b"data: " + each + b"\n\n" for each in data)
        return way, raw[: chance.randrange(len(raw) // 2, len(raw) + 1)]
    if way == "event cut":
        at = chance.randrange(len(data))
        data[at] = data[at][: chance.randrange(2, len(data[at]))]
        data += [encode(made, each) for each in events if each not in body]
        return way, b"".join(b"data: " + each + b"\n\n" for each in data) + b"data: [DONE]\n\n"
    if way in ("error event", "error at the end"):
        error = chance.choice(
            (
                {"error": {"message": FAULT, "code": 502}},
                {"error": FAULT},
                {"type": "error", "error": {"type": "overloaded_error", "message": FAULT}},
                {"object": "error", "message": FAULT, "code": 500},
            )
        )
        at = len(data) if way == "error at the end" else chance.randrange(len(data) + 1)
        data.insert(at, encode(made, error))
        return way, b"".join(b"data: " + each + b"\n\n" for each in data) + b"data: [DONE]\n\n"
    if way == "broken call":
        reason = chance.choice(BROKEN_CALLS)
        end: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason.lower()}]}
        if wire == "anthropic":
            end = {"type": "message_delta", "delta": {"stop_reason": reason.lower()}}
        elif wire == "responses":
            details = {"status": "incomplete", "incomplete_details": {"reason": reason.lower()}}
            end = {"type": "response.incomplete", "response": details}
        elif wire == "gemini":
            end = gemini_chunk([], reason, finishMessage=chance.choice((FAULT, f"Malformed function call: {FAULT}")))
        data.append(encode(made, end))
        return way, b"".join(b"data: " + each + b"\n\n" for each in data) + b"data: [DONE]\n\n"
    odd = chance.choice((b"\xff", b"\xc3", b"\\ud800"))
    raw = b"".join(b"data: " + encode(made, each) + b"\n\n" for each in events)
    # The first and the last character of each city.
    for city in ("Lyon", "Nîmes", "日本"):
        for written in (
            city.encode(),
            json.dumps(city)[1:-1].encode(),
            json.dumps(json.dumps(city)[1:-1])[1:-1].encode(),
        ):
            raw = raw.replace(written, odd)
    return way, raw


def make_case(chance: Random) -> Case:
    """A response by chance: two of three hold all that the model gave."""
    wire = chance.choice(WIRES)
    made = Writing(chance, *make_truth(chance))
    write_stream, write_body = WRITERS[wire]
    loses = chance.random() < 0.33
    if not loses and chance.random() < 0.25:
        body = write_body(made)
        return Case(
            wire, finish_case(made, wire, None, body), made.text, made.calls, True, f"body, {', '.join(made.odd)}"
        )
    write_stream(made)
    if loses:
        way, raw = lose(made, wire, made.events)
        return Case(wire, raw, made.text, made.calls, False, f"{way}: {', '.join(made.odd)}")
    raw = finish_case(made, wire, made.events, None)
    return Case(wire, raw, made.text, made.calls, True, ", ".join(made.odd))


# Reading.


MODELS = {wire: ChatModel(spec=f"t:{wire}", name="m", endpoint="http://h/v1", wire=wire) for wire in WIRES}
TURNS = NativeTurns(Task("?"), LoopContext(TOOLS, PromptBook("tool_calling")), None)


@dataclass
class Outcome:
    """What came of a response: an answer, calls, a request to write again (`asks`), or a typed error."""

    answer: str | None = None
    calls: list[Called] = field(default_factory=list)
    asks: str = ""
    error: str = ""


def read_case(case: Case, chance: Random) -> Outcome:
    """Decode a response in pieces and as a whole, and read the reply."""
    model = MODELS[case.wire]
    response = Response(200, case.body)
    try:
        reader = ReplyReader(load_wire(case.wire), THINK)
        shown = "".join(text for piece in _cut(case.body, chance) for text in reader.feed(piece))
        live = reader.finish(response, model.target, b"")
    except PlaitError as why:
        try:
            model.decode(response, THINK)
        except PlaitError as again:
            assert str(why) == str(again)
            return Outcome(error=str(why))
        raise AssertionError("a live stream is an error, and its record is not") from why
    assert model.decode(response, THINK) == live, "a live stream and its record differ"
    assert live.finish == "broken" or live.text.startswith(shown), "the text that was shown is not the reply's"
    try:
        turn = TURNS.read(live, ())
    except Unreadable as why:
        return Outcome(asks=str(why))
    if not turn.answered:
        return Outcome(calls=[(call.tool, call.input) for call in turn.calls])
    return Outcome(asks=live.how_cut) if live.how_cut else Outcome(answer=turn.answer)


def _cut(body: bytes, chance: Random) -> Iterator[bytes]:
    places = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(6)))
    return (body[a:b] for a, b in pairwise([0, *places, len(body)]) if a < b)


def judge(case: Case, outcome: Outcome) -> str:
    """What is wrong with an outcome: "doubled", "wrong answer", "lost"; "" for nothing."""
    left = list(case.calls)
    for call in outcome.calls:
        if call not in left:
            return "doubled"
        left.remove(call)
    if outcome.answer is not None and (FAULT in outcome.answer or case.calls or outcome.answer != case.text.strip()):
        return "wrong answer"
    if case.is_complete and (left or (not case.calls and outcome.answer is None)):
        return "lost"
    return ""
