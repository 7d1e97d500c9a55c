"""Writes a reply of a script as a provider of each wire sends it: one body or a stream, with its opaque state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from loop_scripts import Turn
from models_server import event

Json = dict[str, Any]
Pieces = Callable[[str], list[str]]
DECOY = """I could end this at once.
Thought: I know it.
Final Answer: wrong
{"thought": "no", "tool": "final_answer", "tool_input": "wrong"}
Finish: wrong
#E1 = send[never]
1. send("never")
[{"ACTION": "send", "ARGUMENTS": ["never"], "EXPLANATION": "no"}]
ACTION 1:
```python
send("never")
```"""
"""What a reasoning model thinks before each reply. A loop that reads it as the reply calls a tool or ends wrongly."""


def in_pieces(text: str) -> list[str]:
    """A text in pieces of seven characters."""
    return [text[start : start + 7] for start in range(0, len(text), 7)]


def chat_body(turn: Turn, ids: list[str], reasoning: str) -> Json:
    """A whole chat completion. `reasoning` is the field of the thoughts; "<think>" puts them into the text."""
    message: Json = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
    if reasoning == "<think>":
        message["content"] = f"<think>\n{DECOY}\n</think>\n\n{message['content'] or ''}"
    elif reasoning == "content":
        said = [{"type": "text", "text": turn}] if isinstance(turn, str) else []
        message["content"] = [{"type": "thinking", "thinking": [{"type": "text", "text": DECOY}]}, *said]
    elif reasoning:
        message[reasoning] = DECOY
    if not isinstance(turn, str):
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for id, (name, given) in zip(ids, turn, strict=True)
        ]
    finish = "stop" if isinstance(turn, str) else "tool_calls"
    usage = {"prompt_tokens": 90, "completion_tokens": 20, "total_tokens": 110}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def chat_stream(body: Json, reports_usage: bool) -> bytes:
    """The same completion as a stream."""
    (choice,) = body["choices"]
    message, deltas = choice["message"], [{"role": "assistant", "content": ""}]
    for field, value in message.items():
        if isinstance(value, str) and field != "role":
            deltas += [{field: piece} for piece in in_pieces(value)]
        elif field == "content" and isinstance(value, list):
            deltas += [{field: [part]} if part["type"] == "thinking" else {field: part["text"]} for part in value]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        pieces = in_pieces(function["arguments"])
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]
    chunks: list[Json] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if reports_usage:
        chunks.append({"choices": [], "usage": body["usage"]})
    return b"".join(map(event, chunks)) + event(b"[DONE]")


def claude_body(turn: Turn, ids: list[str], model: str, signature: str) -> Json:
    """A whole message; it begins with thinking if there is a signature."""
    blocks: list[Json] = [{"type": "thinking", "thinking": DECOY, "signature": signature}] if signature else []
    if isinstance(turn, str):
        blocks.append({"type": "text", "text": turn})
    else:
        made = zip(ids, turn, strict=True)
        blocks += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, (name, given) in made]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": "end_turn" if isinstance(turn, str) else "tool_use",
        "usage": {"input_tokens": 90, "output_tokens": 20},
    }


def claude_stream(body: Json) -> bytes:
    """The same message as a stream."""
    empty = {"text": "", "thinking": "", "signature": "", "input": {}}
    start = {**body, "content": [], "stop_reason": None}
    events: list[Json] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(body["content"]):
        begun = {key: empty.get(key, value) for key, value in block.items()}
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        for key, kind in (("thinking", "thinking_delta"), ("text", "text_delta"), ("signature", "signature_delta")):
            pieces = in_pieces(block[key]) if key in block else []
            events += [_delta(index, {"type": kind, key: piece}) for piece in pieces]
        if "input" in block:
            pieces = in_pieces(json.dumps(block["input"]))
            events += [_delta(index, {"type": "input_json_delta", "partial_json": piece}) for piece in pieces]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": body["stop_reason"]}, "usage": body["usage"]})
    events.append({"type": "message_stop"})
    return b"".join(b"event: " + each["type"].encode() + b"\n" + event(each) for each in events)


def _delta(index: int, delta: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def gemini_body(turn: Turn, ids: list[str], signature: str) -> Json:
    """A whole reply. A signature stands beside the first call, or beside the text."""
    parts: list[Json] = [{"text": DECOY, "thought": True}]
    if isinstance(turn, str):
        parts.append({"text": turn, "thoughtSignature": signature})
    else:
        made = zip(ids, turn, strict=True)
        calls: list[Json] = [{"functionCall": {"id": id, "name": name, "args": given}} for id, (name, given) in made]
        calls[0]["thoughtSignature"] = signature
        parts += calls
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 90, "candidatesTokenCount": 8, "thoughtsTokenCount": 12}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini"}


def gemini_stream(body: Json) -> bytes:
    """The same reply as a stream: a chunk for each part, and texts in pieces."""
    (candidate,) = body["candidates"]
    parts: list[Json] = []
    for part in candidate["content"]["parts"]:
        if "text" in part:
            thought = {"thought": True} if part.get("thought") else {}
            parts += [{"text": piece, **thought} for piece in in_pieces(part["text"])]
            parts += [{"text": "", "thoughtSignature": part["thoughtSignature"]}] if "thoughtSignature" in part else []
        else:
            parts.append(part)
    chunks: list[Json] = [
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}], "modelVersion": "gemini"}
        for part in parts
    ]
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    chunks[-1]["usageMetadata"] = body["usageMetadata"]
    return b"".join(map(event, chunks))
