"""What Anthropic sends of its own tools in a message: blocks, and the stream that they come in."""

from __future__ import annotations

import json
from typing import Any


def events(*values: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in values)


def blocks_as_events(*blocks: dict[str, Any], reason: str = "end_turn", cached: int = 0) -> bytes:
    """Anthropic's stream of a message with these blocks, each input in two pieces."""
    out: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_creation_input_tokens": cached}}}
    ]
    for i, block in enumerate(blocks):
        given = json.dumps(block["input"]) if "input" in block else ""
        out.append(
            {"type": "content_block_start", "index": i, "content_block": {**block, **({"input": {}} if given else {})}}
        )
        for piece in (given[:5], given[5:]) if given else ():
            delta = {"type": "input_json_delta", "partial_json": piece}
            out.append({"type": "content_block_delta", "index": i, "delta": delta})
        out.append({"type": "content_block_stop", "index": i})
    out.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}})
    return events(*out, {"type": "message_stop"})


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "final 2026"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [{"type": "web_search_result", "url": "https://a.org", "title": "A", "encrypted_content": "x"}],
}
SAID = {
    "type": "text",
    "text": "Spain.",
    "citations": [{"url": "https://a.org", "title": "A", "cited_text": "Spain won"}],
}
