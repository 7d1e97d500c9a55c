"""What dialects of chat completions need back with an assistant's turn: collected from a reply, added to a message.

Pure. A reply's state holds the fields as the endpoint sent them, whatever the endpoint. A request gets only those that
its dialect documents. The facts come from these pages, as of November 2026:

- DeepSeek, "Thinking Mode": `reasoning_content` must come back with a turn that has tool calls, in all later requests.
  The endpoint refuses such a turn without it. It accepts "", which a turn of another model gets. Older reasoning
  models refuse the field in turns without calls.
- Moonshot, "Use Kimi K2 Thinking Model", and Z.AI, "Thinking Mode": the same field, within a task of several calls.
- OpenRouter, "Reasoning Tokens": `reasoning_details` come back as they came, in the same order.
- Google, "OpenAI compatibility" and "Thought signatures": the `extra_content` of a tool call comes back with it. Gemini
  3 refuses a step whose first call has no signature. A fixed text stands for that of another model's call.
- Mistral, "Reasoning": the thinking parts of the content come back in it.
- Groq, "Reasoning": the reasoning comes back as `reasoning`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from plait.core import Message
from plait.models.wires.draft import Draft
from plait.models.wires.turns import state_for
from plait.models.wires.wire import CHAT, WireOptions

DUMMY = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Stands for the signature of a call that another model made."""

_SIGNED = re.compile(r"gemini-(?:[3-9]|\d\d)")
_WITH_CALLS = {
    "deepseek": "reasoning_content",
    "moonshot": "reasoning_content",
    "zai": "reasoning_content",
    "groq": "reasoning",
}
"""The field that a dialect needs back with calls, and only with them."""
_ALWAYS = {"openrouter": "reasoning_details", "mistral": "content", "gemini": "extra_content"}


def add_state(said: dict[str, Any], message: Message, options: WireOptions) -> dict[str, Any]:
    """Return a message of the request with what the dialect needs back with that turn."""
    provider, data = options.provider, state_for(message, CHAT, options.model)
    if message.role != "assistant":
        return said
    if not isinstance(data, dict):
        data = {}
    if (field := _ALWAYS.get(provider)) and data.get(field):
        said[field] = data[field]
    if (field := _WITH_CALLS.get(provider)) and message.calls:
        if data.get(field):
            said[field] = data[field]
        elif provider == "deepseek":
            said[field] = ""
    if provider == "gemini" and message.calls:
        _sign_calls(said["tool_calls"], data.get("calls"), bool(_SIGNED.search(options.model)))
    return said


def _sign_calls(calls: list[dict[str, Any]], extras: Any, needed: bool) -> None:
    """Add to each call what came with it. If a signature is needed and there is none, the first call gets `DUMMY`."""
    given = extras if isinstance(extras, list) and len(extras) == len(calls) else []
    for call, extra in zip(calls, given, strict=False):
        if extra is not None:
            call["extra_content"] = extra
    if needed and not any(given):
        calls[0]["extra_content"] = DUMMY


class StateCollector:
    """Collects the fields of a reply that a dialect may need back, from any number of pieces."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._content: list[Any] = []
        self._extras: dict[int, Any] = {}
        self._extra: Any = None

    def take(self, part: Mapping[str, Any]) -> None:
        """Take a message or a piece of one."""
        for field in ("reasoning_content", "reasoning"):
            if isinstance(part.get(field), str):
                self._texts.setdefault(field, []).append(part[field])
        details = part.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            _join(self._details, detail)
        content = part.get("content")
        if isinstance(content, list):
            for each in content:
                _join(self._content, each)
        elif isinstance(content, str) and content and self._content:
            _join(self._content, {"type": "text", "text": content})
        if isinstance(part.get("extra_content"), dict):
            self._extra = part["extra_content"]

    def take_call(self, position: int, call: Mapping[str, Any]) -> None:
        """Take what stands beside the function of the call at `position` of the reply's calls."""
        if isinstance(call.get("extra_content"), dict):
            self._extras[position] = call["extra_content"]

    def state(self, draft: Draft) -> dict[str, Any] | None:
        """Return the fields that came; None for none. Plain reasoning only matters in a turn with calls."""
        out: dict[str, Any] = {}
        if self._details:
            out["reasoning_details"] = self._details
        if any(isinstance(part, dict) and part.get("type") == "thinking" for part in self._content):
            out["content"] = self._content
        if self._extra is not None:
            out["extra_content"] = self._extra
        if self._extras:
            out["calls"] = [self._extras.get(position) for position in range(len(draft.calls))]
        if draft.calls and not out:
            out = {field: "".join(texts) for field, texts in self._texts.items() if any(texts)}
        return out or None


def _join(parts: list[Any], part: Any) -> None:
    """Add a piece to the parts. A piece that continues the last part becomes part of it."""
    last = parts[-1] if parts else None
    if not (isinstance(part, dict) and isinstance(last, dict) and _continues(last, part)):
        parts.append(_copy(part))
        return
    for key, value in part.items():
        before = last.get(key)
        if key in ("text", "summary") and isinstance(value, str) and isinstance(before, str):
            last[key] = before + value
        elif key == "thinking" and isinstance(value, list) and isinstance(before, list):
            for each in value:
                _join(before, each)
        elif value not in (None, ""):
            last[key] = value


def _continues(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Return whether a piece continues a part: the same kind and place, and no signed or encrypted part has ended."""
    if last.get("type") != part.get("type") or last.get("index") != part.get("index"):
        return False
    if last.get("id") and part.get("id") and last["id"] != part["id"]:
        return False
    kind = str(part.get("type"))
    return kind in ("text", "thinking", "reasoning.text", "reasoning.summary") and not last.get("signature")


def _copy(part: Any) -> Any:
    """Return a part that may change: its tables and lists are new."""
    if isinstance(part, dict):
        return {key: _copy(value) for key, value in part.items()}
    return [_copy(each) for each in part] if isinstance(part, list) else part
