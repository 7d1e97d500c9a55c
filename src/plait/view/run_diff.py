"""The first difference of two runs.

The comparison covers decisions: the settings; then, for each step, the requests, the model's replies, the calls with
their inputs and results; and the end. It ignores times, tokens, prices, ids, failed attempts and pauses. Plait compares
the items of a step in the order of the journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from plait.core.text import count_shared
from plait.journal.records import Row, RunRow
from plait.runtime.recorded_events import recorded_loop
from plait.view.timeline import ViewerTimeline, format_input

LABELS = {
    "model": "what the model said",
    "call": "a call of a tool",
    "code": "a piece of code",
    "output": "what the code printed",
    "note": "a remark",
    "wait": "what the person was asked or said",
}
"""The page's name for each kind of item."""
FIELDS = {
    "model": ("phase", "model", "text"),
    "call": ("tool", "input", "state", "trouble", "text", "note"),
    "code": ("code", "output", "error"),
    "output": ("output", "error"),
    "note": ("word", "text"),
    "wait": ("ask", "text", "told", "approved"),
}
"""The fields that are compared, by the item's kind."""
IGNORED_NOTES = ("retry", "model_change", "rate_limit", "resumed")
CONTEXT = 240
"""Characters of both texts around the first difference."""


class ComparedRun(Struct, frozen=True):
    """A run to compare: its row, its whole timeline, and a digest of each request by its row's `seq`."""

    row: RunRow
    timeline: ViewerTimeline
    requests: dict[int, str]


class RunDifference(Struct, frozen=True):
    """Where two runs first differ. `what` names it, `step` is 0 before the first step and at the end.

    `items` are the ids of the items, "" if a run has none. `a` and `b` are parts of both texts, cut at "…", which
    differ from character `at`.
    """

    what: str
    step: int
    items: tuple[str, str]
    a: str
    b: str
    at: int = 0


def load_compared(row: RunRow, rows: Iterable[Row]) -> ComparedRun:
    timeline, requests = ViewerTimeline(recorded_loop(row.head), row.head.run, max_text=None), {}
    for each in rows:
        moments = timeline.add(each, keep_body=False)
        if any(moment.change == "asked" for moment in moments):
            requests[each.seq] = hashlib.blake2b(each.body or b"", digest_size=12).hexdigest()
    return ComparedRun(row, timeline, requests)


def first_difference(a: ComparedRun, b: ComparedRun) -> RunDifference | None:
    """Return where two runs first differ; None if they are the same to the end."""
    for (what, one), (_, other) in zip(_settings(a), _settings(b), strict=True):
        if one != other:
            return _locate(what, 0, ("", ""), one, other)
    for step in sorted({*a.timeline.steps, *b.timeline.steps}):
        if (found := _difference_in_step(a, b, step)) is not None:
            return found
    ends = []
    for each in (a, b):
        outcome = each.row.outcome or {}
        end = outcome.get("answer") if outcome.get("answer") is not None else outcome.get("reason")
        ends.append(f"{each.row.status}: {end if isinstance(end, str) else format_input(end)}")
    return _locate("how it ended", 0, ("", ""), *ends) if ends[0] != ends[1] else None


def equal_steps(a: ComparedRun, b: ComparedRun) -> list[int]:
    """Return the steps that are the same in both, including the requests."""
    return [step for step in a.timeline.steps if step in b.timeline.steps and _difference_in_step(a, b, step) is None]


def _settings(run: ComparedRun) -> list[tuple[str, str]]:
    head = run.row.head
    return [
        ("the question", head.question),
        ("the loop", format_input(head.loop)),
        ("the models", format_input({phase: model["spec"] for phase, model in head.models.items()})),
        ("the tools", ", ".join(tool["name"] for tool in head.tools)),
        ("the conversation before", format_input(msgspec.to_builtins(head.history))),
    ]


def _difference_in_step(a: ComparedRun, b: ComparedRun, step: int) -> RunDifference | None:
    for one, other in zip_longest(_items_of(a, step), _items_of(b, step)):
        ids = (one["id"] if one else "", other["id"] if other else "")
        if one is None or other is None or one["kind"] != other["kind"]:
            return _locate(LABELS[(one or other)["kind"]], step, ids, _join_fields(one), _join_fields(other))
        # Only the last of several attempts has an answer.
        if one["kind"] == "model" and a.requests[one["wire"][-1]] != b.requests[other["wire"][-1]]:
            return _locate("the request", step, ids, "", "")
        for field in FIELDS[one["kind"]]:
            first, second = _field(one, field), _field(other, field)
            if first != second:
                return _locate(LABELS[one["kind"]], step, ids, first, second)
    return None


def _items_of(run: ComparedRun, step: int) -> list[dict[str, Any]]:
    items = run.timeline.items.values()
    return [each for each in items if each["step"] == step and each.get("word") not in IGNORED_NOTES]


def _field(item: dict[str, Any], field: str) -> str:
    if item["kind"] == "model" and field == "text":
        names = [*item.get("parts", ()), "reasoning", "reply"]
        return "\n".join(item[name][0] for name in names if name in item)
    value = item.get(field)
    return value[0] if isinstance(value, list) else "" if value is None else str(value)


def _join_fields(item: dict[str, Any] | None) -> str:
    return "" if item is None else " ".join(filter(None, (_field(item, field) for field in FIELDS[item["kind"]])))


def _locate(what: str, step: int, items: tuple[str, str], a: str, b: str) -> RunDifference:
    at = count_shared(a, b)
    start = max(0, at - CONTEXT // 3)
    # Both are the same up to `at`, so both parts begin with the same whole word.
    start = next((i + 1 for i in range(start, at) if start and a[i].isspace()), start)
    before = "…" if start else ""
    one, other = (f"{before}{text[start : start + CONTEXT]}{'…' if text[start + CONTEXT :] else ''}" for text in (a, b))
    return RunDifference(what, step, items, one, other, at - start + len(before))
