"""The decoding of Anthropic's messages: one JSON body or a whole stream, added to a draft. Pure.

Sources: Anthropic's documentation, pages "Streaming messages", "Handling stop reasons" and "Extended thinking"
(2025). Blocks of server tools are kept in the state with all others, and read as hosted calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.core import Usage
from plait.models.wires.draft import Draft, read_count
from plait.models.wires.hosted_replies import read_blocks
from plait.models.wires.pending_calls import CALL_TYPES, PendingCall, read_call, read_input
from plait.models.wires.pieces import GrowingText, close_part, grow


class MessagesReader:
    """Read the events of one message, or a whole message. Unknown events and blocks are kept or skipped."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._usage: dict[str, Any] = {}
        self._blocks: list[tuple[dict[str, Any], PendingCall | None]] = []
        self._open: dict[str, dict[str, Any]] = {}
        self._thought = False
        self._messages = 0

    def read(self, event: dict[str, Any]) -> str:
        draft, kind, index = self._draft, event.get("type"), event.get("index")
        is_content = kind in ("content_block_start", "content_block_delta")
        draft.is_counted = kind == "message_delta" or (draft.is_counted and not is_content)
        if kind == "message_start":
            self._begin(event.get("message"))
        elif kind == "content_block_start":
            return self._start(index, event.get("content_block"))
        elif kind == "content_block_delta":
            return self._extend(index, event.get("delta"))
        elif kind == "content_block_stop":
            self._open.pop(str(index), None)
        elif kind == "message_delta":
            self._end(event.get("delta"), event.get("usage"))
        elif kind == "message_stop":
            draft.is_done = True
        elif (content := event.get("content")) is not None:
            parts = content if isinstance(content, list) else [content]
            texts = [{"type": "text", "text": each} if isinstance(each, str) else each for each in parts]
            blocks = [each for each in texts if isinstance(each, dict)]
            # A whole message: the body, or what some endpoints send after the events.
            self._begin(event)
            self._end(event, None)
            if not self._blocks:
                return "".join([self._start(number, block) for number, block in enumerate(blocks)])
            self._messages += 1
            for place, block in enumerate(blocks):
                if block.get("type") in CALL_TYPES:
                    draft.add_call((self._messages, place), *read_call(block), group=self._messages)
            said = [block.get("text") for block in blocks if block.get("type") == "text"]
            return draft.write("".join([text for text in said if isinstance(text, str)]), whole=True)
        return ""

    def state(self) -> list[dict[str, Any]] | None:
        """Return all blocks in order if one is neither text nor a call; None if text and calls say everything."""
        blocks = [_close(block) for block in self._draft.without_repeated(self._blocks)]
        self._draft.hosted, self._draft.citations = read_blocks(blocks)
        is_plain = all(block.get("type") in ("text", *CALL_TYPES) for block in blocks)
        return None if is_plain or self._draft.finish is None else blocks

    def _begin(self, message: Any) -> None:
        self._draft.began = True
        if not isinstance(message, dict):
            return
        if isinstance(message.get("model"), str):
            self._draft.model = message["model"]
        self._count(message.get("usage"))

    def _end(self, message: Any, usage: Any) -> None:
        self._count(usage)
        self._draft.end(message.get("stop_reason") if isinstance(message, dict) else None)

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.update({key: value for key, value in usage.items() if value is not None})
            self._draft.usage = usage_of_message(self._usage)
            if isinstance(tier := self._usage.get("service_tier"), str):
                self._draft.service_tier = tier

    def _start(self, index: Any, given: Any) -> str:
        if not isinstance(given, dict):
            return ""
        draft, place = self._draft, str(len(self._blocks) if index is None else index)
        draft.began = True
        kind, before = given.get("type"), self._open.get(place, {})
        pending = draft.add_call(place, *read_call(given)) if kind in CALL_TYPES else None
        block: dict[str, Any] = {"type": kind}
        _add(block, given)
        if before and before["type"] == kind and before.get("id") == block.get("id"):
            return ""  # the same event again
        self._open[place] = block
        self._blocks.append((block, pending))
        if kind == "thinking":
            self._think(given.get("thinking"), new=True)
        elif kind == "text" and isinstance(given.get("text"), str):
            return draft.write(given["text"])
        return ""

    def _extend(self, index: Any, delta: Any) -> str:
        if not isinstance(delta, dict):
            return ""
        place = next(reversed(self._open), "") if index is None else str(index)
        if place not in self._open and "partial_json" in delta:  # behind the block's end, or its start never came
            self._draft.add_call(place, given=delta["partial_json"])
            return ""
        if place not in self._open:
            self._open[place] = {"type": str(delta.get("type")).removesuffix("_delta")}
            self._blocks.append((self._open[place], None))
        block = self._open[place]
        _add(block, delta)
        if block["type"] in CALL_TYPES:
            self._draft.add_call(place, given=delta.get("partial_json"))
        elif block["type"] == "text" and isinstance(delta.get("text"), str):
            return self._draft.write(delta["text"])
        elif block["type"] == "thinking":
            self._think(delta.get("thinking"))
        return ""

    def _think(self, text: Any, new: bool = False) -> None:
        if new and self._thought:
            self._draft.add_reasoning("\n")
        if isinstance(text, str) and text:
            self._thought = True
            self._draft.add_reasoning(text)


def _add(block: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece to a block: texts grow, other values are replaced."""
    for key, value in piece.items():
        if key == "citation":
            block["citations"] = [*(block.get("citations") or ()), value]
        elif key != "type":
            grow(block, key, value)


def _close(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as it goes back to the service, where an input is an object."""
    pieces = block.get("partial_json")
    whole: dict[str, Any] = close_part(block)
    if (text := whole.pop("partial_json", "")) and not isinstance(pieces, GrowingText):
        whole["input"] = text
    elif isinstance(pieces, GrowingText) and text.strip():
        value = read_input(text, pieces)
        whole["input"] = value if isinstance(value, dict) else {"input": value}
    return whole


def usage_of_message(usage: Mapping[str, Any]) -> Usage | None:
    """Return the usage of a message; None if nothing is reported. `input_tokens` there excludes cached tokens."""
    cached = read_count(usage.get("cache_read_input_tokens"))
    stored = read_count(usage.get("cache_creation_input_tokens"))
    read = read_count(usage.get("input_tokens")) + cached + stored
    written = read_count(usage.get("output_tokens"))
    kept = usage.get("cache_creation")
    hour = read_count(kept.get("ephemeral_1h_input_tokens")) if isinstance(kept, Mapping) else 0
    return Usage(read, written, cached, stored, cache_write_1h_tokens=min(hour, stored)) if read or written else None
