"""The decoding of Anthropic's messages: one JSON body or a whole stream, added to a draft. Pure.

Sources: Anthropic's documentation, pages "Streaming messages", "Handling stop reasons" and "Extended thinking"
(2025). Blocks of server tools are not shown; they are kept in the state with all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plait.core import Usage
from plait.core.replies import Finish
from plait.models.wires.draft import Draft, read_count

_FINISH: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "tool_use": "calls",
    "refusal": "filter",
}
"""Stop reasons with a meaning of their own. `pause_turn`: the server paused a turn with its own tools."""


class MessagesReader:
    """Read the events of one message, or a whole message. Unknown events and blocks are kept or skipped."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._thought = False

    def read(self, data: bytes) -> str:
        """Add an event or a whole body and return the text that is now certain. Raises `msgspec.DecodeError`."""
        draft = self._draft
        event = msgspec.json.decode(data)
        if not isinstance(event, dict):
            return ""
        kind = event.get("type")
        if kind == "error" or event.get("error"):
            draft.error = event.get("error") or event
        elif kind == "message_start":
            self._begin(event.get("message"))
        elif kind == "content_block_start":
            return self._start(event.get("index"), event.get("content_block"))
        elif kind == "content_block_delta":
            return self._extend(event.get("index"), event.get("delta"))
        elif kind == "message_delta":
            self._end(event.get("delta"), event.get("usage"))
        elif kind == "message_stop":
            draft.done = True
        elif isinstance(event.get("content"), list):
            self._begin(event)
            shown = "".join([self._start(i, block) for i, block in enumerate(event["content"])])
            self._end(event, None)
            return shown
        return ""

    def _begin(self, message: Any) -> None:
        self._draft.began = True
        if not isinstance(message, dict):
            return
        if isinstance(message.get("model"), str):
            self._draft.model = message["model"]
        self._count(message.get("usage"))

    def _end(self, message: Any, usage: Any) -> None:
        draft = self._draft
        self._count(usage)
        reason = message.get("stop_reason") if isinstance(message, dict) else None
        if isinstance(reason, str):
            draft.finish = _FINISH.get(reason, "stop")
            draft.state = self._state()

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.update({key: value for key, value in usage.items() if value is not None})
            self._draft.usage = usage_of_message(self._usage)
            if isinstance(tier := self._usage.get("service_tier"), str):
                self._draft.service_tier = tier

    def _start(self, index: Any, block: Any) -> str:
        if not isinstance(block, dict):
            return ""
        draft, index = self._draft, index if isinstance(index, int) else len(self._blocks)
        draft.began = True
        self._blocks[index] = dict(block)
        kind = block.get("type")
        if kind == "tool_use":
            draft.add_call(index, str(block.get("id") or ""), str(block.get("name") or ""), value=block.get("input"))
        elif kind == "thinking":
            self._think(block.get("thinking"), new=True)
        elif kind == "text" and isinstance(block.get("text"), str):
            return draft.write(block["text"])
        return ""

    def _extend(self, index: Any, delta: Any) -> str:
        if not isinstance(delta, dict):
            return ""
        index = index if isinstance(index, int) else max(self._blocks, default=0)
        block = self._blocks.setdefault(index, {"type": str(delta.get("type")).removesuffix("_delta")})
        shown = ""
        for key, value in delta.items():
            if key == "partial_json" and isinstance(value, str):
                self._inputs.setdefault(index, []).append(value)
                if block.get("type") == "tool_use":
                    self._draft.add_call(index, arguments=value)
            elif key == "citation":
                block["citations"] = [*(block.get("citations") or ()), value]
            elif key != "type":
                before = block.get(key)
                block[key] = before + value if isinstance(before, str) and isinstance(value, str) else value
        if block.get("type") == "text" and isinstance(delta.get("text"), str):
            shown = self._draft.write(delta["text"])
        elif block.get("type") == "thinking":
            self._think(delta.get("thinking"))
        return shown

    def _think(self, text: Any, new: bool = False) -> None:
        if new and self._thought:
            self._draft.add_reasoning("\n")
        if isinstance(text, str) and text:
            self._thought = True
            self._draft.add_reasoning(text)

    def _state(self) -> list[dict[str, Any]] | None:
        """Return all blocks in order if one is neither text nor a call; None if text and calls say everything."""
        blocks = [self._whole(index) for index in sorted(self._blocks)]
        return None if all(block.get("type") in ("text", "tool_use") for block in blocks) else blocks

    def _whole(self, index: int) -> dict[str, Any]:
        block, text = self._blocks[index], "".join(self._inputs.get(index, ()))
        if text.strip():
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                value = text
            block = {**block, "input": value if isinstance(value, dict) else {"input": value}}
        return block


def usage_of_message(usage: Mapping[str, Any]) -> Usage | None:
    """Return the usage of a message; None if nothing is reported. `input_tokens` there excludes cached tokens."""
    cached = read_count(usage.get("cache_read_input_tokens"))
    stored = read_count(usage.get("cache_creation_input_tokens"))
    read = read_count(usage.get("input_tokens")) + cached + stored
    written = read_count(usage.get("output_tokens"))
    kept = usage.get("cache_creation")
    hour = read_count(kept.get("ephemeral_1h_input_tokens")) if isinstance(kept, Mapping) else 0
    return Usage(read, written, cached, stored, cache_write_1h_tokens=min(hour, stored)) if read or written else None
