"""The record of a run as the page holds it: steps, each with what was thought, done and observed in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from plait.core import Call, Event
from plait.core import events as ev
from plait.core.errors import PlaitError
from plait.lab.page.texts import LONG, block, brief, cut, plain, visible
from plait.lab.result import Result

Reader: TypeAlias = Callable[[str], Sequence[Event] | None]
"""Gives a run's events by its id; None, or a `PlaitError`, when they can't be read."""

HELD, LINKED, LEFT_OUT, UNREADABLE = 1, 2, 0, -1
"""Where a run's record is: in the page, on the server that shows the page, in the journal only, nowhere."""
_TITLE = 80
"""Characters of a call's input beside the tool's name."""


def held(results: Iterable[Result], record: Reader, room: int) -> tuple[dict[str, str], dict[str, int]]:
    """Records as JSON by run, at most `room` bytes of them, and what became of each run's record.

    When they don't fit, those of right answers are left out, the last first; then whatever else does not fit.
    """
    found: dict[str, str] = {}
    sizes: dict[str, int] = {}
    state: dict[str, int] = {}
    right: list[str] = []  # the runs held whose answers are right, in order
    total = 0
    full = False  # a right answer's record was left out: so are all that come later
    for result in results:
        if result.grade.success and full:
            state[result.run] = LEFT_OUT
            continue
        text = _read(result.run, record)
        if text is None:
            state[result.run] = UNREADABLE
            continue
        found[result.run], sizes[result.run], state[result.run] = text, len(text.encode()), HELD
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


def record_of(events: Iterable[Event]) -> dict[str, Any]:
    """A run's steps: number, phases, models, tokens, seconds of the models, and the parts in their order.

    A part is [kind, title, text, characters left out]. Texts are cut at `LONG` characters.
    """
    steps: dict[int, dict[str, Any]] = {}
    number = 0
    for event in events:
        if isinstance(event, ev.Began | ev.Ended):
            continue
        number = event.step or number
        step = steps.setdefault(number, _empty(number))
        if isinstance(event, ev.Replied):
            _add_reply(step, event)
        else:
            step["parts"].extend(_parts(event))
    for step in steps.values():
        step["parts"] = _without_doubles(step["parts"])
    return {"steps": [step for step in steps.values() if step["parts"] or step["phases"]]}


def _empty(number: int) -> dict[str, Any]:
    return {"n": number, "phases": [], "models": [], "in": 0, "out": 0, "cached": 0, "s": 0.0, "parts": []}


def _add_reply(step: dict[str, Any], reply: ev.Replied) -> None:
    for name, value in (("phases", reply.phase), ("models", reply.model)):
        if value and (shown := visible(value)) not in step[name]:
            step[name].append(shown)
    step["in"] += reply.usage.input_tokens
    step["out"] += reply.usage.output_tokens
    step["cached"] += reply.usage.cached_tokens
    step["s"] = round(step["s"] + reply.seconds, 3)
    written = {part[0] for part in step["parts"]} & set(ev.WRITTEN)
    if not written and reply.text.strip():
        step["parts"].append(_part("reply", reply.phase, reply.text))


def _parts(event: Event) -> Iterable[list[Any]]:
    match event:
        case ev.Thought(text=text) | ev.Action(text=text) | ev.Answer(text=text):
            if text.strip():
                kind = next(kind for kind, made in ev.WRITTEN.items() if isinstance(event, made))
                yield _part(kind, "", text.strip("\n"))
        case ev.Called(call=call):
            yield _part("call", call.tool, plain(call.input) if call.input is not None else "")
        case ev.Observed(call=call, observation=seen):
            trouble = f"{_named(call)}: {seen.trouble}" if seen.trouble else _named(call)
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
    shown, missing = cut(text, LONG)
    took = f" ({seconds:.2f} s)" if seconds else ""
    return [kind, brief(title, 2 * _TITLE) + took, shown, missing]


def _named(call: Call) -> str:
    given = "" if call.input is None else plain(call.input).replace("\n", " ")
    return f"{call.tool}({given[:_TITLE]}{'…' if len(given) > _TITLE else ''})"


def _without_doubles(parts: list[list[Any]]) -> list[list[Any]]:
    """A call that stands in the action or the code, or whose observation names it whole, is not told again."""
    kinds = {part[0] for part in parts}
    observed = bool(kinds & {"observation", "trouble"})
    told = observed and (bool(kinds & {"action", "code"}) or all(len(p[2]) <= _TITLE for p in parts if p[0] == "call"))
    return [part for part in parts if part[0] != "call"] if told else parts


def _read(run: str, record: Reader) -> str | None:
    try:
        events = record(run)
    except PlaitError:
        return None
    return None if events is None else block(record_of(events))
