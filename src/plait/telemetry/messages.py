"""What was said, in the form that the conventions give to messages: a role and parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plait.core import Exchange, Reply
from plait.core.text import shorten

MOST = 20_000
"""Characters of one text; a longer one is shortened in its middle. A batch that is too large is lost as a whole."""

_FINISH = {"calls": "tool_call", "filter": "content_filter", "circle": "length"}


def text(value: Any) -> str:
    """A value as JSON, its long texts shortened."""
    return msgspec.json.encode(_short(value), enc_hook=str).decode()


def sent(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request's body."""
    if "messages" not in body:
        return [_said("user", str(body.get("prompt", "")))]
    return [_message(each) for each in body["messages"]]


def got(reply: Reply) -> list[dict[str, Any]]:
    """A reply as the one message that it is."""
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    if reply.text or not reply.calls:
        parts.append({"type": "text", "content": reply.text})
    for call in reply.calls:
        parts.append({"type": "tool_call", "id": call.id or None, "name": call.tool, "arguments": call.input})
    finish = _FINISH.get(reply.finish, reply.finish)
    return [{"role": "assistant", "parts": parts, "finish_reason": finish}]


def asked(history: tuple[Exchange, ...], question: str) -> list[dict[str, Any]]:
    """What a run was asked, behind the turns that it was shown."""
    before = [_said(*each) for turn in history for each in (("user", turn.question), ("assistant", turn.answer))]
    return [*before, _said("user", question)]


def answered(answer: Any) -> list[dict[str, Any]]:
    """A run's answer."""
    words = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    return [{**_said("assistant", words), "finish_reason": "stop"}]


def _said(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content, role = message.get("content"), str(message.get("role", ""))
    if role == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}
        return {"role": role, "parts": [part]}
    parts: list[dict[str, Any]] = []
    if isinstance(content, str) and content:
        parts.append({"type": "text", "content": content})
    elif content:
        parts.append({"type": "text", "content": msgspec.json.encode(content).decode()})
    for call in message.get("tool_calls") or ():
        made = call.get("function", {})
        parts.append(
            {"type": "tool_call", "id": call.get("id"), "name": made.get("name"), "arguments": made.get("arguments")}
        )
    return {"role": role, "parts": parts}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value, MOST)[0] if len(value) > MOST else value
    if isinstance(value, Mapping):
        return {str(key): _short(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(each) for each in value]
    return value
