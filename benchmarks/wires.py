"""The wires beside chat completions: an endpoint's replies, and the least code of a loop written by hand.

A reply is a text, or the inputs of calls of the tool `add`, as in `loopback.SCRIPTS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Json = dict[str, Any]


def event(data: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def pieces(text: str) -> list[str]:
    """A text as a stream has it."""
    return [text[at : at + 20] for at in range(0, len(text), 20)]


class Wire(NamedTuple):
    """A protocol. `path` and `log` are where its requests go and where they hold the conversation.

    `write` makes a reply as one body and as a stream. `join` makes the body of a stream's events. `turn` is what goes
    back of a body, `call` the first call in it, and `result` the message with that call's result.
    """

    path: Callable[[str, bool], str]
    log: str
    write: Callable[[str | list[str]], tuple[Json, list[Json]]]
    join: Callable[[Iterable[Json]], Json]
    turn: Callable[[Json], list[Json]]
    call: Callable[[Json], Json | None]
    result: Callable[[Json, str], Json]


# Anthropic's Messages


def write_message(reply: str | list[str]) -> tuple[Json, list[Json]]:
    if isinstance(reply, str):
        blocks: list[Json] = [{"type": "text", "text": reply}]
    else:
        blocks = [{"type": "tool_use", "id": f"call_{n}", "name": "add", "input": {"n": n}} for n in reply]
    end = {"stop_reason": "end_turn" if isinstance(reply, str) else "tool_use"}
    usage = {"input_tokens": 300, "output_tokens": 30}
    body = {"type": "message", "role": "assistant", "model": "loopback", "content": blocks, "usage": usage, **end}
    events: list[Json] = [{"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}]
    for index, block in enumerate(blocks):
        empty = {**block, **({"text": ""} if "text" in block else {"input": {}})}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        if "text" in block:
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    return body, [*events, {"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"}]


def join_message(events: Iterable[Json]) -> Json:
    blocks: list[Json] = []
    given = ""
    for each in events:
        if each["type"] == "content_block_start":
            blocks.append(each["content_block"])
        elif each["type"] == "content_block_delta":
            blocks[-1]["text"] = blocks[-1].get("text", "") + each["delta"].get("text", "")
            given += each["delta"].get("partial_json", "")
        elif each["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
            blocks[-1] = {"type": "tool_use", "id": blocks[-1]["id"], "name": "add", "input": json.loads(given)}
    return {"content": blocks}


def call_in_message(body: Json) -> Json | None:
    return next((each for each in body["content"] if each["type"] == "tool_use"), None)


def message_result(call: Json, text: str) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": text}]}


# OpenAI's Responses


def write_response(reply: str | list[str]) -> tuple[Json, list[Json]]:
    if isinstance(reply, str):
        content = [{"type": "output_text", "text": reply, "annotations": []}]
        items: list[Json] = [{"type": "message", "id": "msg_1", "role": "assistant", "content": content}]
    else:
        items = [
            {
                "type": "function_call",
                "id": f"fc_{n}",
                "call_id": f"call_{n}",
                "name": "add",
                "arguments": f'{{"n": "{n}"}}',
            }
            for n in reply
        ]
    usage = {"input_tokens": 300, "output_tokens": 30, "total_tokens": 330}
    body = {"object": "response", "status": "completed", "model": "loopback", "output": items, "usage": usage}
    events: list[Json] = [{"type": "response.created", "response": {**body, "status": "in_progress", "output": []}}]
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        begun = {**item, **({"content": []} if "content" in item else {"arguments": ""})}
        events.append({"type": "response.output_item.added", "item": begun, **at})
        kind, text = (
            ("output_text", str(reply)) if "content" in item else ("function_call_arguments", item["arguments"])
        )
        events += [{"type": f"response.{kind}.delta", "delta": piece, **at} for piece in pieces(text)]
        events.append({"type": "response.output_item.done", "item": item, **at})
    return body, [*events, {"type": "response.completed", "response": body}]


def join_response(events: Iterable[Json]) -> Json:
    body: Json = next(each["response"] for each in events if each["type"] == "response.completed")
    return body


def call_in_response(body: Json) -> Json | None:
    found = next((each for each in body["output"] if each["type"] == "function_call"), None)
    return found and {**found, "input": json.loads(found["arguments"])}


def response_result(call: Json, text: str) -> Json:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


# Gemini


def write_content(reply: str | list[str]) -> tuple[Json, list[Json]]:
    if isinstance(reply, str):
        whole: list[Json] = [{"text": reply}]
        parts: list[Json] = [{"text": piece} for piece in pieces(reply)]
    else:
        whole = parts = [{"functionCall": {"id": f"call_{n}", "name": "add", "args": {"n": n}}} for n in reply]
    usage = {"usageMetadata": {"promptTokenCount": 300, "candidatesTokenCount": 30}, "modelVersion": "loopback"}

    def chunk(parts: list[Json], **more: Any) -> Json:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, **more}], **usage}

    last = {"finishReason": "STOP"}
    return chunk(whole, **last), [chunk([part], **(last if part is parts[-1] else {})) for part in parts]


def join_content(events: Iterable[Json]) -> Json:
    parts = [part for each in events for part in each["candidates"][0]["content"]["parts"]]
    if "text" in parts[0]:
        parts = [{"text": "".join(part["text"] for part in parts)}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}}]}


def call_in_content(body: Json) -> Json | None:
    parts = body["candidates"][0]["content"]["parts"]
    found = next((part["functionCall"] for part in parts if "functionCall" in part), None)
    return found and {**found, "input": found["args"]}


def content_result(call: Json, text: str) -> Json:
    response = {"id": call["id"], "name": call["name"], "response": {"result": text}}
    return {"role": "user", "parts": [{"functionResponse": response}]}


WIRES: dict[str, Wire] = {
    "anthropic": Wire(
        lambda model, stream: "messages",
        "messages",
        write_message,
        join_message,
        lambda body: [{"role": "assistant", "content": body["content"]}],
        call_in_message,
        message_result,
    ),
    "responses": Wire(
        lambda model, stream: "responses",
        "input",
        write_response,
        join_response,
        lambda body: body["output"],
        call_in_response,
        response_result,
    ),
    "gemini": Wire(
        lambda model, stream: f"models/{model}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent"),
        "contents",
        write_content,
        join_content,
        lambda body: [body["candidates"][0]["content"]],
        call_in_content,
        content_result,
    ),
}
