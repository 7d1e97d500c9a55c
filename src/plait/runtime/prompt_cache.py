"""Finds requests that break a prefix which the provider had cached: the first byte that differs, and why.

A provider reads the beginning of a prompt from its cache as far as it is byte for byte that of an earlier request. So a
time in the system prompt, or other tools, makes it read the whole prompt again, at the full price. A request is
reported only if both hold: it differs from the last one of its phase and model before the end of what was cached, and
the usage shows that less came from the cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from plait.core import Usage
from plait.core.text import count_shared, escape_hidden

LEAST = 1000
"""Tokens: a smaller loss is not reported. Providers cache no prompt below about this size."""
SHARE = 0.9
"""A request keeps a prefix if it keeps this share of what was cached."""
SHOWN = 24
"""Characters that are shown from the first difference on."""
CAUSES = {
    "time": "a time or a date in the prompt changed",
    "tools": "the tools changed",
    "system": "the system text changed",
    "trimmed": "earlier messages were left out or summarized",
    "shortened": "an earlier message is shorter now",
    "message": "an earlier message changed",
    "setting": "a setting of the request changed",
}
_PROMPT = ("tools", "system", "systemInstruction", "instructions", "messages", "contents", "input", "prompt")
"""The fields that make the prompt, in the order in which providers read them."""
_SYSTEM = ("system", "systemInstruction", "instructions")
_SETTINGS = ("tool_choice", "thinking", "reasoning", "reasoning_effort", "output_config", "response_format", "text")
"""Fields of which providers say that a change ends the use of a cached prefix."""
_MARK = re.compile(rb',"cache_control":\{[^}]*\}')
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.]*)?|\d{1,2}:\d\d(?::\d\d)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\b(?:19|20)\d\d\b"
    r"|\b1[6-9]\d{8,11}|\b(?:Mon|Tues?|Wednes|Wed|Thurs?|Fri|Satur|Sat|Sun)(?:day)?\b"
)
_AROUND = 30
"""Characters on both sides of a difference in which a time is looked for."""


class BrokenPrefix(Struct, frozen=True):
    """Where a request leaves the one before it. `at` is the first byte of its body that differs, `share` the part of
    the earlier prompt that it keeps, `cause` a key of `CAUSES`, `before` and `now` what stands there."""

    at: int
    share: float
    cause: str
    before: str = ""
    now: str = ""


class CacheWatch:
    """Watches the requests of one run. `reported` are the causes that were reported, each once."""

    def __init__(self, notes: Iterable[str]) -> None:
        self._reported = {cause for text in notes for cause, words in CAUSES.items() if words in text}
        self._last: dict[tuple[str, str], tuple[bytes, Usage]] = {}

    def look(self, model: str, phase: str, body: bytes, usage: Usage) -> str:
        """Take the next request and what it used. Returns what to report of it, "" for nothing."""
        before = self._last.get((model, phase))
        self._last[model, phase] = body, usage
        if before is None or not (body and before[0]) or usage.estimated:
            return ""
        cached = before[1].cached_tokens + before[1].cache_write_tokens
        lost = cached - usage.cached_tokens
        if lost < LEAST or usage.cached_tokens >= SHARE * cached:
            return ""
        found = find_break(before[0], body)
        if found is None or found.share >= SHARE * cached / max(1, before[1].input_tokens):
            return ""
        if found.cause in self._reported:
            return ""
        self._reported.add(found.cause)
        words = CAUSES[found.cause]
        if found.before or found.now:
            words += f" ({_quote(found.before)} became {_quote(found.now)})"
        said = f"This request breaks a prefix that the provider had cached, at byte {found.at:,}: {words}."
        return f"{said} {lost:,} tokens were not read from the cache."


def find_break(before: bytes, now: bytes) -> BrokenPrefix | None:
    """Return where a request leaves the prompt of an earlier one; None if it continues it, or cannot be read."""
    try:
        old, new = (msgspec.json.decode(body, type=dict[str, Raw]) for body in (before, now))
        a, b = _split_prompt(old), _split_prompt(new)
    except msgspec.DecodeError:
        return None
    total, kept = sum(len(part) for _, part in a), 0
    for number, (name, part) in enumerate(a):
        other = b[number] if number < len(b) else ("", b"")
        if other == (name, part):
            kept += len(part)
            continue
        same = count_shared(part, other[1]) if other[0] == name else 0
        share = (kept + same) / total
        if number == len(a) - 1 and same >= len(part.rstrip(b'"}]')):
            break  # its last message goes on
        at = _find_place(now, [each for _, each in b[: number + 1]], same)
        is_time = _is_in_time(part, same) and _is_in_time(other[1], same)
        cause = _find_cause(name, number, a, b, is_time)
        shown = [each[same : same + SHOWN].decode("utf-8", "replace") for each in (part, other[1])]
        return BrokenPrefix(at, share, cause, *shown)
    for name in _SETTINGS:
        if bytes(old.get(name, b"")) != bytes(new.get(name, b"")):
            return BrokenPrefix(max(0, now.find(json.dumps(name).encode())), 0.0, "setting", name, name)
    return None


def _split_prompt(body: dict[str, Raw]) -> list[tuple[str, bytes]]:
    """Return the parts of the prompt with their fields, without the marks that say what to cache."""
    out: list[tuple[str, bytes]] = []
    for name in _PROMPT:
        if name not in body:
            continue
        raw = bytes(body[name])
        parts = msgspec.json.decode(raw, type=list[Raw]) if raw[:1] == b"[" else [Raw(raw)]
        out += [(name, _MARK.sub(b"", bytes(part))) for part in parts]
    return out


def _find_cause(
    name: str, number: int, a: Sequence[tuple[str, bytes]], b: Sequence[tuple[str, bytes]], is_time: bool
) -> str:
    if name == "tools" or (number < len(b) and b[number][0] == "tools"):
        return "tools"
    if is_time:
        return "time"
    roles = [_role_of(each[number][1]) if number < len(each) else "" for each in (a, b)]
    if name in _SYSTEM or "system" in roles or "developer" in roles:
        return "system"
    if number >= len(b) or b[number] in a[number + 1 :] or len(b) < len(a):
        return "trimmed"
    return "shortened" if len(b[number][1]) < len(a[number][1]) else "message"


def _is_in_time(part: bytes, at: int) -> bool:
    """Return whether a byte is in a time or a date, or right behind one."""
    before = part[max(0, at - _AROUND) : at].decode("utf-8", "replace")
    text = before + part[at : at + _AROUND].decode("utf-8", "replace")
    return any(found.start() <= len(before) <= found.end() for found in _TIME.finditer(text))


def _role_of(part: bytes) -> str:
    value: Any = json.loads(part)
    return str(value.get("role")) if isinstance(value, dict) else ""


def _find_place(body: bytes, parts: Sequence[bytes], same: int) -> int:
    """Return the place of a byte of the last part in the body: the parts stand there in groups, each in its order."""
    last = parts[-1] if parts else b""
    head = last[: same or 60]
    found = [match.start() for match in re.finditer(re.escape(head), body)]
    again = sum(part[: len(head)] == head for part in parts[:-1])
    return (found[min(again, len(found) - 1)] if found else 0) + same


def _quote(text: str) -> str:
    return f"'{escape_hidden(text)}'" if text else "nothing"
