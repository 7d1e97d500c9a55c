"""The decoding of chat completions and their dialects: one JSON body or a whole stream, added to a draft. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import msgspec

from plait.core import Call, Usage
from plait.models.prices import round_usd
from plait.models.wires.chat_state import StateCollector
from plait.models.wires.draft import Draft, read_count
from plait.models.wires.hosted_replies import read_message, tables_in
from plait.models.wires.odd_json import mend, read_values
from plait.models.wires.pending_calls import CALL_TYPES, OLDER, read_call


class ChatReader:
    """Read the chunks of one reply, or its whole body."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._state = StateCollector(draft.provider)
        self._messages = 0
        self._index = ""
        self._cited: list[dict[str, Any]] = []
        self._executed: list[dict[str, Any]] = []

    def read(self, event: dict[str, Any]) -> str:
        draft = self._draft
        if isinstance(groq := event.get("x_groq"), dict):  # Groq reports the usage of a stream here
            self._count(groq.get("usage"))
        if isinstance(timings := event.get("timings"), dict):
            self._timings = timings
            self._count(self._usage)
        if usage := event.get("usage"):
            self._count(usage)
        if isinstance(model := event.get("model"), str):
            draft.model = model
        if isinstance(tier := event.get("service_tier") or self._usage.get("service_tier"), str):
            draft.service_tier = tier
        shown = ""
        choices = event.get("choices")
        choices = [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
        self._index = self._index or min([str(each.get("index") or 0) for each in choices], default="")
        for choice in choices:
            if str(choice.get("index") or 0) == self._index:
                draft.began = True
                shown += self._choice(choice)
            if usage := choice.get("usage"):
                self._count(usage)  # Moonshot reports the usage of a stream in its last choice
        draft.is_counted = not choices and (draft.is_counted or bool(event.get("usage")))
        return shown

    def state(self) -> Any:
        draft = self._draft
        if self._cited or self._executed:
            draft.hosted, draft.citations = read_message(self._cited, self._executed)
        return self._state.state(draft) if self._state.is_needed and draft.is_whole and not draft.cut else None

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict) and (usage or self._timings):
            self._usage = usage
            self._draft.usage = usage_of(usage, self._timings)
            self._draft.cost = cost_of(usage)

    def _choice(self, choice: dict[str, Any]) -> str:
        draft, delta, message = self._draft, choice.get("delta"), choice.get("message")
        draft.error = draft.error or choice.get("error")
        # OpenRouter adds the name that the provider itself gave to the end.
        if reason := choice.get("finish_reason"):
            native = choice.get("native_finish_reason")
            draft.end(f"{reason} {native}" if isinstance(native, str) else reason)
        if isinstance(message, dict) and message.get("content") and isinstance(delta, dict):
            delta = {**delta, "content": None}  # the whole message has it, too
        shown = self._message(delta, False, bool(reason)) if isinstance(delta, dict) else ""
        if (text := choice.get("text")) and isinstance(text, str):
            is_said = any(isinstance(part, dict) and part.get("content") for part in (delta, message))
            shown += "" if is_said else draft.write(text, ends=bool(reason))
        return shown + self._message(message, True, bool(reason)) if isinstance(message, dict) else shown

    def _message(self, part: dict[str, Any], whole: bool, ends: bool) -> str:
        """Add a piece of the message, or the `whole` message, which some endpoints send after its pieces."""
        draft, content = self._draft, part.get("content")
        if len(part) == 1 and not whole and isinstance(content, str) and not self._state.is_needed:
            return draft.write(content, ends=ends)
        draft.error = draft.error or part.get("error")
        if self._state.is_needed:
            self._state.take(part, whole)
        thought = part.get("reasoning_content") or part.get("reasoning")
        if not thought and isinstance(details := part.get("reasoning_details"), list):  # OpenRouter's
            texts = [each.get("text") or each.get("summary") for each in details if isinstance(each, dict)]
            thought = "".join([text for text in texts if isinstance(text, str)])
        if thought and isinstance(thought, str):
            draft.add_reasoning(thought, whole)
        if "annotations" in part or "executed_tools" in part:
            self._cited += tables_in(part.get("annotations"))
            self._executed = tables_in(part.get("executed_tools")) or self._executed
        self._messages += whole
        calls, group = part.get("tool_calls") or part.get("tool_call"), self._messages if whole else 0
        if not calls and (calls := part.get("function_call")):  # the older form; some endpoints send both
            group = group or OLDER
        if isinstance(content, dict) and "text" in content:
            content = [content]
        elif content and not isinstance(content, str | list):
            content = msgspec.json.encode(mend(content)[0]).decode()  # JSON of a schema, already read
        if isinstance(content, list):
            calls = calls or [each for each in content if isinstance(each, dict) and each.get("type") in CALL_TYPES]
            content = self._parts(content)
        if not content and (refusal := part.get("refusal")) and isinstance(refusal, str):
            content = refusal
            draft.finish = "filter"
        shown = draft.write(content, whole, ends) if isinstance(content, str) else ""
        for place, call in enumerate(calls if isinstance(calls, list) else [calls] if calls else ()):
            if isinstance(call, dict) and call:
                index = (group, place) if group else call.get("index")
                pending = draft.add_call(index, *read_call(call), group=group)
                self._state.take_call(pending, call)
        return shown

    def _parts(self, parts: list[Any]) -> str:
        texts: list[str] = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
                inner = part.get("thinking") or part.get("text") or ""
                self._draft.add_reasoning(self._parts(inner) if isinstance(inner, list) else str(inner))
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                texts.append(part["text"])
        return "".join(texts)


def calls_in_error(error: Any) -> tuple[Call, ...]:
    """Return the calls in an endpoint's error that says that it could not accept them; nothing for any other error.

    Groq answers `tool_use_failed` (400) if a call does not fit its schema, with the model's text in
    `failed_generation` (its documentation, "Tool use", November 2026). The loop can tell the model what is wrong with
    the call, as for any other wrong call.
    """
    text = error.get("failed_generation") if isinstance(error, Mapping) else None
    if not isinstance(text, str):
        return ()
    tagged: list[tuple[str, str]] = _TAGGED.findall(text)
    found: list[Any] = []
    for piece in [json for _, json in tagged] or _WRAPPED.findall(text) or [text]:
        values, rest = read_values(piece)
        if rest or len(values) != 1:
            return ()
        found += values[0] if isinstance(values[0], list) else values
    if tagged:
        return tuple(Call(name, given or None) for (name, _), given in zip(tagged, found, strict=False))
    calls: list[Call] = []
    for each in found:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or not name:
            return ()
        calls.append(Call(name, each.get("arguments", each.get("parameters")) or None))
    return tuple(calls)


_TAGGED = re.compile(r"<function=([\w.-]+)>?\s*(\{.*?\})\s*(?:</function>|\Z)", re.S)
_WRAPPED = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)
"""Calls in the form of Llama's and of Qwen's chat templates."""


def usage_of(usage: Mapping[str, Any], timings: Mapping[str, Any]) -> Usage | None:
    """Return the reported usage, or None. Input includes cached tokens and cache writes, output includes reasoning."""
    if not timings and len(usage) == len(_PLAIN) and usage.keys() == _PLAIN:
        read, written = read_count(usage["prompt_tokens"]), read_count(usage["completion_tokens"])
        return Usage(read, max(written, read_count(usage["total_tokens"]) - read)) if read or written else None
    cached = _first_count(
        (usage.get("prompt_tokens_details"), "cached_tokens"),
        (usage.get("input_tokens_details"), "cached_tokens"),
        *((usage, name) for name in _CACHED),
        (timings, "cache_n"),
    )
    stored = _first_count(
        (usage.get("prompt_tokens_details"), "cache_write_tokens"),
        (usage.get("input_tokens_details"), "cache_write_tokens"),
        (usage, "cache_creation_input_tokens"),
    )
    if "prompt_tokens" in usage:
        read = read_count(usage["prompt_tokens"])
    elif "input_tokens" in usage:
        read = read_count(usage["input_tokens"])
        if usage.keys() & {"cache_read_input_tokens", "cache_creation_input_tokens"}:
            read += cached + stored  # Anthropic's own count leaves out cached tokens
    else:
        return None
    # With some (xAI, Gemini), reasoning that is billed as output is only in the total.
    written = read_count(usage.get("completion_tokens", usage.get("output_tokens")))
    written = max(written, read_count(usage.get("total_tokens")) - read)
    reasoning = _first_count(
        (usage.get("completion_tokens_details"), "reasoning_tokens"),
        (usage.get("output_tokens_details"), "reasoning_tokens"),
        (usage.get("output_tokens_details"), "thinking_tokens"),
        (usage, "reasoning_tokens"),
    )
    if not (read or written):
        return None
    cached = min(cached, read)
    return Usage(read, written, cached, min(stored, read - cached), min(reasoning, written))


_PLAIN = {"prompt_tokens", "completion_tokens", "total_tokens"}
_CACHED = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
"""The names that DeepSeek, Anthropic and Moonshot use for cached tokens."""


def cost_of(usage: Mapping[str, Any]) -> float | None:
    """Return the cost in USD that an endpoint reports with its usage; None if it reports none."""
    if "cost" not in usage and "cost_in_usd_ticks" not in usage:
        return None
    if (ticks := _amount(usage.get("cost_in_usd_ticks"))) is not None:  # xAI
        return round_usd(ticks / 10**10)
    cost = usage.get("cost")
    usd = _amount(cost.get("total_cost") if isinstance(cost, dict) else cost)  # a table: Perplexity
    if usd is not None and usage.get("is_byok"):
        # OpenRouter with a user's own key: the cost is its fee, and the provider's price comes on top.
        details = usage.get("cost_details")
        upstream = _amount(details.get("upstream_inference_cost")) if isinstance(details, dict) else None
        usd = None if upstream is None else usd + upstream
    return None if usd is None else round_usd(usd)


def _amount(value: Any) -> Decimal | None:
    with suppress(ArithmeticError, TypeError, ValueError):  # a number of many digits is read as a text
        found = Decimal(str(value))
        return found if not isinstance(value, bool) and 0 <= found < 10**12 else None
    return None


def _first_count(*places: tuple[Any, str]) -> int:
    """Return the first count above 0 in these tables; 0 if there is none."""
    counts = (read_count(table.get(name)) for table, name in places if isinstance(table, Mapping))
    return next(filter(None, counts), 0)
