"""The record of a run as the page shows it, and text of others made safe to show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from plait.core import Call, Event
from plait.core import events as ev
from plait.core.errors import PlaitError
from plait.core.notebook import escape_json
from plait.core.text import show_hidden
from plait.lab.results import CellResult

EventsReader: TypeAlias = Callable[[str], Sequence[Event] | None]
"""Reads a run's events by its id. Returns None, or raises `PlaitError`, if it cannot."""

IN_PAGE, LINKED, LEFT_OUT, UNREADABLE = 1, 2, 0, -1
"""Where a run's record is: in the page, on the server that shows the page, only in the journal, nowhere."""
_TITLE = 80
"""The length of a call's input beside the tool's name."""
LONG, SHORT = 4_000, 300
"""The length at which texts of a record are cut, and texts of a cell's tooltip."""


def choose_records(
    results: Iterable[CellResult], read_events: EventsReader, room: int
) -> tuple[dict[str, str], dict[str, int]]:
    """Return records as JSON by run, at most `room` bytes, and where each run's record is. If they do not fit, the
    records of right answers are left out, the last first, then others."""
    found: dict[str, str] = {}
    sizes: dict[str, int] = {}
    state: dict[str, int] = {}
    right: list[str] = []  # the runs in the page whose answers are right, in order
    total = 0
    full = False  # a right answer's record was left out: so are all that come later
    for result in results:
        if result.grade.success and full:
            state[result.run] = LEFT_OUT
            continue
        try:
            events = read_events(result.run)
        except PlaitError:
            events = None
        if events is None:
            state[result.run] = UNREADABLE
            continue
        text = json_block(make_record(events))
        found[result.run], sizes[result.run], state[result.run] = text, len(text.encode()), IN_PAGE
        total += sizes[result.run]
        if result.grade.success:
            right.append(result.run)
        while total > room:
            full = True
            out = right.pop() if right else result.run
            total -= sizes.pop(out)
            del found[out]
            state[out] = LEFT_OUT
    return found, state


def make_record(events: Iterable[Event]) -> dict[str, Any]:
    """Return a run's steps: number, phases, models, tokens, seconds of the models, and the parts in order. A part is
    [kind, title, text, characters left out]. Texts are cut at `LONG` characters."""
    steps: dict[int, dict[str, Any]] = {}
    number = 0
    for event in events:
        if isinstance(event, ev.Began | ev.Ended | ev.ChildEvent):
            continue
        number = event.step or number
        step = steps.setdefault(
            number, {"n": number, "phases": [], "models": [], "in": 0, "out": 0, "s": 0.0, "parts": []}
        )
        if isinstance(event, ev.Replied):
            for name, value in (("phases", event.phase), ("models", event.model)):
                if value and (shown := show_hidden(value)) not in step[name]:
                    step[name].append(shown)
            step["in"] += event.usage.input_tokens
            step["out"] += event.usage.output_tokens
            step["s"] = round(step["s"] + event.seconds, 3)
            written = {part[0] for part in step["parts"]} & set(ev.WRITTEN)
            if not written and event.text.strip():
                step["parts"].append(_part("reply", event.phase, event.text))
        else:
            step["parts"].extend(_parts(event))
    for step in steps.values():
        # Drop calls that the action or the code shows, or that their observation names in full.
        kinds, calls = {part[0] for part in step["parts"]}, [part for part in step["parts"] if part[0] == "call"]
        is_shown = bool(kinds & {"action", "code"}) or all(len(part[2]) <= _TITLE for part in calls)
        if is_shown and kinds & {"observation", "trouble"}:
            step["parts"] = [part for part in step["parts"] if part[0] != "call"]
    return {"steps": [step for step in steps.values() if step["parts"] or step["phases"]]}


def _parts(event: Event) -> Iterable[list[Any]]:
    match event:
        case ev.Thought(text=text) | ev.Action(text=text) | ev.Answer(text=text):
            if text.strip():
                yield _part(ev.kind_of(event), "", text.strip("\n"))
        case ev.Called(call=call):
            yield _part("call", call.tool, plain_text(call.input) if call.input is not None else "")
        case ev.Observed(call=call, observation=seen):
            trouble = f"{_name_call(call)}: {seen.trouble}" if seen.trouble else _name_call(call)
            yield _part("trouble" if seen.trouble else "observation", trouble, seen.text, seen.seconds)
            if seen.note:
                yield _part("note", "to the model", seen.note)
        case ev.Executing(code=code):
            yield _part("code", "", code)
        case ev.Executed(ran=ran):
            if ran.output:
                yield _part("output", "", ran.output, ran.seconds)
            if ran.error is not None:
                where = f" in line {ran.error.line}" if ran.error.line else ""
                yield _part("trouble", f"{ran.error.type}{where}", ran.error.message)
        case ev.Noted(kind=kind, text=text):
            yield _part("note", kind, text)


def _part(kind: str, title: str, text: str, seconds: float | None = None) -> list[Any]:
    shown, missing = cut_text(text, LONG)
    took = f" ({seconds:.2f} s)" if seconds else ""
    return [kind, shorten(title, 2 * _TITLE) + took, shown, missing]


def _name_call(call: Call) -> str:
    given = "" if call.input is None else plain_text(call.input).replace("\n", " ")
    return f"{call.tool}({given[:_TITLE]}{'…' if len(given) > _TITLE else ''})"


# -- text


def cut_text(text: str, max_chars: int = LONG) -> tuple[str, int]:
    """Return the beginning of a text, with hidden characters shown, and how many characters are left out."""
    return show_hidden(text[:max_chars]), max(0, len(text) - max_chars)


def shorten(text: str, max_chars: int = SHORT) -> str:
    """Return the beginning of a text, which says how much is left out."""
    shown, missing = cut_text(text, max_chars)
    return f"{shown} … ({missing:,} more characters)" if missing else shown


def plain_text(value: Any) -> str:
    """Return any JSON value as text: text unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def json_block(value: Any) -> str:
    """Return JSON for an HTML script element: nothing in it can end that element."""
    return escape_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
