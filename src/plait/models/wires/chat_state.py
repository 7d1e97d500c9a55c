"""What dialects of chat completions demand of a conversation: state with an assistant's turn, ids of calls, an order.

Pure. State is collected from a reply and added to its message. It holds the fields that the dialect
(`WireOptions.provider`) documents, as the endpoint sent them. The facts come from these pages, as of November 2026:

- DeepSeek, "Thinking Mode": `reasoning_content` must come back with a turn that has tool calls, in all later requests.
  The endpoint refuses such a turn without it. It accepts "", which a turn of another model gets. Older reasoning
  models refuse the field in turns without calls.
- Moonshot, "Use Kimi K2 Thinking Model", and Z.AI, "Thinking Mode": the same field, within a task of several calls.
  Kimi K2.5 and later refuse such a turn without it, and take "" for none. A turn of another model gets one blank.
  With preserved thinking (`"thinking": {"clear_thinking": false}`), Z.AI needs it back with every turn, unchanged.
- OpenRouter, "Reasoning Tokens": `reasoning_details` come back as they came, in the same order.
- Google, "OpenAI compatibility" and "Thought signatures": the `extra_content` of a tool call comes back with it. Gemini
  3 refuses a step whose first call has no signature. A fixed text stands for that of another model's call.
- Mistral, "Reasoning": the thinking parts of the content come back in it. Its API refuses ids of calls that are not
  nine letters or digits (error 3280), and a user's message behind results (error 3230).
- Groq, "Reasoning": the reasoning comes back as `reasoning`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from plait.core import Message
from plait.models.wires.draft import Draft
from plait.models.wires.pending_calls import PendingCall, merge_calls
from plait.models.wires.pieces import GrowingParts, close_part, grow
from plait.models.wires.turns import state_for
from plait.models.wires.wire import CHAT, WireOptions

RESULTS_READ = "I have read the results."
"""Stands between results and a user's message, if the endpoint demands a message of the assistant there."""
DUMMY = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Stands for the signature of a call that another model made."""

_SIGNED = re.compile(r"gemini-(?:[3-9]|\d\d)")
_WITH_CALLS = {
    "deepseek": "reasoning_content",
    "moonshot": "reasoning_content",
    "zai": "reasoning_content",
    "groq": "reasoning",
}
"""The field that a dialect needs back with calls. Only Z.AI needs it with other turns too, if thinking is preserved."""
_NO_REASONING = {"deepseek": "", "moonshot": " "}
"""Stands for the reasoning of a call that another model made, where the endpoint refuses a call without any."""
_ALWAYS = {"openrouter": "reasoning_details", "mistral": "content", "gemini": "extra_content"}


def close_results(messages: list[Message]) -> list[Message]:
    """Return the messages with one of the assistant between results and a user's message."""
    out: list[Message] = []
    for message in messages:
        if out and out[-1].role == "tool" and message.role not in ("tool", "assistant"):
            out.append(Message("assistant", RESULTS_READ))
        out.append(message)
    return out


def add_state(said: dict[str, Any], message: Message, options: WireOptions) -> dict[str, Any]:
    """Return a message of the request with what the dialect needs back with that turn."""
    provider = options.provider
    if message.role != "assistant" or (provider not in _ALWAYS and provider not in _WITH_CALLS):
        return said
    data = state_for(message, CHAT, options.model)
    if not isinstance(data, dict):
        data = {}
    if (field := _ALWAYS.get(provider)) and data.get(field):
        said[field] = data[field]
    thinking = options.params.get("thinking")
    preserves = provider == "zai" and isinstance(thinking, dict) and thinking.get("clear_thinking") is False
    if (field := _WITH_CALLS.get(provider)) and (message.calls or preserves):
        if data.get(field):
            said[field] = data[field]
        elif provider in _NO_REASONING:
            said[field] = _NO_REASONING[provider]
    if provider == "gemini" and message.calls:
        extras = data.get("calls")
        given = extras if isinstance(extras, list) and len(extras) == len(message.calls) else []
        for call, extra in zip(said["tool_calls"], given, strict=False):
            if extra is not None:
                call["extra_content"] = extra
        if _SIGNED.search(options.model) and not any(given):
            said["tool_calls"][0]["extra_content"] = DUMMY
    return said


class StateCollector:
    """Collects what a dialect needs back with a reply, from any number of pieces. `is_needed`: it needs something."""

    def __init__(self, provider: str) -> None:
        self._text_field = _WITH_CALLS.get(provider, "")
        self._field = _ALWAYS.get(provider, "")
        self.is_needed = bool(self._text_field or self._field)
        self._texts: list[str] = []
        self._parts: list[Any] = []
        self._extra: Any = None
        self._extras: dict[PendingCall, Any] = {}

    def take(self, part: Mapping[str, Any], whole: bool) -> None:
        """Take a piece of a message, or a whole one if no piece came."""
        if whole and (self._texts or self._parts or self._extra):
            return
        if isinstance(text := part.get(self._text_field), str):
            self._texts.append(text)
        value = part.get(self._field)
        if whole and isinstance(value, list):
            self._parts = value
        elif isinstance(value, list):
            for each in value:
                _join(self._parts, each)
        elif isinstance(value, str) and value:  # Mistral's text after the thinking parts
            _join(self._parts, {"type": "text", "text": value})
        elif isinstance(value, dict):
            self._extra = value

    def take_call(self, pending: PendingCall, call: Mapping[str, Any]) -> None:
        """Take what stands beside the function of a call."""
        if self._field == "extra_content" and isinstance(call.get("extra_content"), dict):
            self._extras[pending] = call["extra_content"]

    def state(self, draft: Draft) -> dict[str, Any] | None:
        """Return the fields that came; None for none."""
        out: dict[str, Any] = {}
        if (draft.calls or draft.provider == "zai") and any(self._texts):
            out[self._text_field] = "".join(self._texts)
        if self._field != "content" or any(part.get("type") == "thinking" for part in self._parts if _is_table(part)):
            out[self._field] = list(map(close_part, self._parts)) or self._extra
        if self._extras:
            out["calls"] = [self._extras.get(each) for each in merge_calls(draft.calls)]
        return {field: value for field, value in out.items() if value} or None


def _join(parts: list[Any], part: Any, inner: bool = True, is_new: bool = False) -> None:
    """Add a piece to the parts: to the last one if it continues it and is not new. `inner`: parts in it grow too."""
    last = parts[-1] if parts else None
    if not _is_table(part):
        parts.append(part)
        return
    if is_new or not (_is_table(last) and _continues(last, part)):
        is_new, last = True, {}
        parts.append(last)
    for key, value in part.items():
        if inner and key == "thinking" and isinstance(value, list):
            is_first = not isinstance(last.get(key), GrowingParts)
            if is_first:
                last[key] = GrowingParts()
            for each in value:
                _join(last[key], each, inner=False, is_new=is_first)
        elif is_new or value not in (None, ""):
            if key in _GROWING:
                grow(last, key, value)
            else:
                last[key] = value


_GROWING = ("text", "summary")


def _continues(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Return whether a piece continues a part: the same kind and place, and no signed or encrypted part has ended."""
    if last.get("type") != part.get("type") or last.get("index") != part.get("index"):
        return False
    if last.get("id") and part.get("id") and last["id"] != part["id"]:
        return False
    kind = str(part.get("type"))
    return kind in ("text", "thinking", "reasoning.text", "reasoning.summary") and not last.get("signature")


def _is_table(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
