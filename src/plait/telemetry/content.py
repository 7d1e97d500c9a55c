"""The texts of spans: without secrets, as valid UTF-8, and in the conventions' form of messages."""

from __future__ import annotations

from typing import Any

import msgspec

from plait.core import Call, Exchange, Reply, Think
from plait.core import Message as ChatMessage
from plait.core.messages import map_texts
from plait.core.text import shorten
from plait.journal.codec import encode
from plait.runtime.tracing import Scrub

MAX_TEXT = 20_000
"""Maximum characters of one text. Longer ones are shortened in the middle, because a collector rejects large
batches."""

FINISH_REASONS = {
    "calls": "tool_call",
    "filter": "content_filter",
    "circle": "length",
    "full": "length",
    "broken": "error",
}
"""The conventions' names for why a reply ended, where they differ from Plait's."""

Message = dict[str, Any]


class SpanContent:
    """Clean the texts of one run's spans. `wanted`: questions, answers and other content may leave the process."""

    def __init__(self, scrub: Scrub, *, wanted: bool) -> None:
        self._scrub = scrub
        self.wanted = wanted

    def clean_text(self, text: str) -> str:
        """Remove secrets, and shorten a long text."""
        return shorten(str(self.clean_value(text)), MAX_TEXT)[0]

    def clean_value(self, value: Any) -> Any:
        """Remove secrets from an attribute's value."""
        if isinstance(value, str):
            return self._scrub(value.encode("utf-8", "replace")).decode("utf-8", "replace")
        return [self.clean_value(each) for each in value] if isinstance(value, (list, tuple)) else value

    def clean_json(self, value: Any) -> str:
        """Return a value as JSON without secrets, its long texts shortened."""
        raw = self._scrub(encode(value))  # before texts are shortened: half a secret would not be found
        try:
            short = map_texts(msgspec.json.decode(raw), lambda text: shorten(text, MAX_TEXT)[0])
            return msgspec.json.encode(short, enc_hook=str).decode()
        except msgspec.DecodeError:  # the secret was not a text
            return self.clean_text(raw.decode("utf-8", "replace"))

    def read_body(self, raw: bytes) -> dict[str, Any]:
        """Return a request's body without secrets, or {} if it is not a JSON object."""
        try:
            body = msgspec.json.decode(self._scrub(raw))
        except msgspec.DecodeError:
            return {}
        return body if isinstance(body, dict) else {}


def format_request(think: Think) -> list[Message]:
    """Return the messages that a model gets, the same on every wire."""
    return [_format_message(each) for each in think.messages] or [_text_message("user", think.prompt)]


def format_reply(reply: Reply) -> list[Message]:
    """Return a model's reply as one message."""
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    for each in reply.hosted:
        parts.append({"type": "tool_call", "id": None, "name": each.tool, "arguments": each.input})
        parts.append({"type": "tool_call_response", "id": None, "response": each.text})
    if reply.text or not reply.calls:
        parts.append({"type": "text", "content": reply.text})
    parts += [_format_call(call) for call in reply.calls]
    finish = FINISH_REASONS.get(reply.finish, reply.finish)
    return [{"role": "assistant", "parts": parts, "finish_reason": finish}]


def format_question(history: tuple[Exchange, ...], question: str) -> list[Message]:
    """Return a run's question, after the turns that the run was given."""
    turns = [(turn.question, turn.answer) for turn in history]
    before = [
        _text_message(role, text) for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return [*before, _text_message("user", question)]


def format_answer(answer: Any) -> list[Message]:
    """Return a run's answer as one message."""
    text = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    return [{**_text_message("assistant", text), "finish_reason": "stop"}]


def _text_message(role: str, text: str) -> Message:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _format_message(message: ChatMessage) -> Message:
    if message.role == "tool":
        part = {"type": "tool_call_response", "id": message.call_id or None, "response": message.content}
        return {"role": message.role, "parts": [part]}
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.content}] if message.content else []
    parts += [_format_call(call) for call in message.calls]
    return {"role": message.role, "parts": parts}


def _format_call(call: Call) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id or None, "name": call.tool, "arguments": call.input}
