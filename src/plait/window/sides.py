"""Two runs side by side, and where they first differ.

What is compared is what was decided, not what it took: settings, then step by step each request, what the model said,
what was called with what and what came of it, then the end. Times, tokens, prices, ids of runs, attempts that failed
and breaks are left out. Things of a step are compared in the order of the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from plait.journal.records import Row, RunRow, Thinking
from plait.runtime.retell import recorded_loop
from plait.window.telling import Teller, as_text, told

WORDS = {
    "model": "what the model said",
    "call": "a call of a tool",
    "code": "a piece of code",
    "output": "what the code printed",
    "note": "a remark",
    "wait": "what the person was asked or said",
}
FIELDS = {
    "model": ("phase", "model", "text"),
    "call": ("tool", "input", "state", "trouble", "text", "note"),
    "code": ("code", "output", "error"),
    "output": ("output", "error"),
    "note": ("word", "text"),
    "wait": ("ask", "text", "told", "approved"),
}
"""What is compared of an item."""
TOOK = ("retry", "resumed")
"""Remarks on what it took: they are left out."""
AROUND = 240
"""Characters told of both at the first difference."""


class Side(Struct, frozen=True):
    """A run as it is compared: its row, its record told in full, and a digest of each request by its row's `seq`."""

    row: RunRow
    teller: Teller
    requests: dict[int, str]


class Difference(Struct, frozen=True):
    """Where two runs first differ: `what` in words, the step (0: before the first or at the end), the items on both
    sides ("" where one has none), and a piece of each, which part at its character `at`; "…" where it is cut."""

    what: str
    step: int
    items: tuple[str, str]
    a: str
    b: str
    at: int = 0


def side(row: RunRow, rows: Iterable[Row]) -> Side:
    """A run, read whole."""
    requests: dict[int, str] = {}

    def seen() -> Iterable[Row]:
        for each in rows:
            if isinstance(each.record, Thinking):
                requests[each.seq] = hashlib.blake2b(each.body or b"", digest_size=12).hexdigest()
            yield each

    return Side(row, told(seen(), recorded_loop(row.head), most=None), requests)


def first_difference(a: Side, b: Side) -> Difference | None:
    """Where the two first differ; None where they are the same to the end."""
    for what, one, two in _settings(a, b):
        if one != two:
            return _difference(what, 0, ("", ""), one, two)
    for step in sorted({*a.teller.steps, *b.teller.steps}):
        found = _in_step(a, b, step)
        if found is not None:
            return found
    ends = [_end(each.row) for each in (a, b)]
    return _difference("how it ended", 0, ("", ""), *ends) if ends[0] != ends[1] else None


def same_steps(a: Side, b: Side) -> list[int]:
    """The steps that are alike in both, requests included."""
    return [step for step in a.teller.steps if step in b.teller.steps and _in_step(a, b, step) is None]


def _settings(a: Side, b: Side) -> list[tuple[str, str, str]]:
    pairs = []
    for what, get in (
        ("the question", lambda head: head.question),
        ("the loop", lambda head: as_text(head.strategy)),
        ("the models", lambda head: as_text({phase: model["spec"] for phase, model in head.models.items()})),
        ("the tools", lambda head: ", ".join(tool["name"] for tool in head.tools)),
        ("the conversation before", lambda head: as_text(msgspec.to_builtins(head.history))),
    ):
        pairs.append((what, get(a.row.head), get(b.row.head)))
    return pairs


def _in_step(a: Side, b: Side, step: int) -> Difference | None:
    ones, twos = (_items(side, step) for side in (a, b))
    for one, two in zip_longest(ones, twos):
        ids = (one["id"] if one else "", two["id"] if two else "")
        if one is None or two is None or one["kind"] != two["kind"]:
            texts = [_brief(each) for each in (one, two)]
            return _difference(WORDS[(one or two)["kind"]], step, ids, *texts)
        # Of several attempts the last was answered: those before it are what it took.
        if one["kind"] == "model" and a.requests[one["wire"][-1]] != b.requests[two["wire"][-1]]:
            return _difference("the request", step, ids, "", "")
        for field in FIELDS[one["kind"]]:
            first, second = (_field(each, field) for each in (one, two))
            if first != second:
                return _difference(WORDS[one["kind"]], step, ids, first, second)
    return None


def _items(side: Side, step: int) -> list[dict[str, Any]]:
    return [each for each in side.teller.items.values() if each["step"] == step and each.get("word") not in TOOK]


def _field(item: dict[str, Any], field: str) -> str:
    if item["kind"] == "model" and field == "text":
        names = [*item.get("parts", ()), "reasoning", "reply"]
        return "\n".join(item[name][0] for name in names if name in item)
    value = item.get(field)
    return value[0] if isinstance(value, list) else "" if value is None else str(value)


def _brief(item: dict[str, Any] | None) -> str:
    if item is None:
        return ""
    return " ".join(filter(None, (_field(item, field) for field in FIELDS[item["kind"]])))


def _end(row: RunRow) -> str:
    outcome = row.outcome or {}
    said = outcome.get("answer") if outcome.get("answer") is not None else outcome.get("reason")
    return f"{row.status}: {said if isinstance(said, str) else as_text(said)}"


def _difference(what: str, step: int, items: tuple[str, str], a: str, b: str) -> Difference:
    at = next((i for i, (one, two) in enumerate(zip(a, b, strict=False)) if one != two), min(len(a), len(b)))
    start = max(0, at - AROUND // 3)
    # Up to `at` both are the same, so both begin with the same word.
    start = next((i + 1 for i in range(start, at) if start and a[i].isspace()), start)
    before = "…" if start else ""
    one, two = (f"{before}{text[start : start + AROUND]}{'…' if text[start + AROUND :] else ''}" for text in (a, b))
    return Difference(what, step, items, one, two, at - start + len(before))
