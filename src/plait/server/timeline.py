"""A run as the viewer shows it: steps, and in each the items in the order of the journal.

A timeline takes the rows of a run one by one. Each row adds an item to a step or changes one: a call gets its
observation, a request its reply. `changes` returns what is new since the last call, so a page grows by it; all changes
together are the whole document.

An item is a `model` (a request and its reply), `call`, `code`, `output` (of code that went on), `note` or `wait`. Its
id comes from its effect, so it stays the same whenever the journal is read. A text is [text, number of characters left
out]; `/api/runs/ID/text` gives the rest by item and field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from plait.core import Loop, Observation, Ran
from plait.core import events as ev
from plait.journal.records import (
    Acting,
    Begun,
    Got,
    NoteRecord,
    ObservedRecord,
    RanRecord,
    Resumed,
    Row,
    Thinking,
    Thought,
    Thrown,
    Told,
    Waits,
)
from plait.runtime.costs import PhaseSpending, in_all, merged, spending
from plait.runtime.recorded_events import retell

LONG = 4_000
"""Characters of a text in the document."""
SORTS = {
    "repaired": "repair",
    "unreadable": "repair",
    "replan": "repair",
    "fallback": "repair",
    "calls_as_text": "repair",
    "cut": "cut",
    "shortened": "cut",
    "dropped": "cut",
    "skipped": "cut",
    "circle": "cut",
    "refused": "refusal",
    "error": "error",
    "retry": "error",
    "limit": "limit",
    "loop": "limit",
}
"""How the page marks a note of each kind. All others are warnings."""

JSON: TypeAlias = dict[str, Any]


class ViewerTimeline:
    """The steps of one run by number, and its items by id, in the order they came.

    `loop` separates thought, action and answer; without it all text is thought. `max_text` None: no text is cut.
    """

    def __init__(self, loop: Loop | None = None, *, max_text: int | None = LONG) -> None:
        self.items: dict[str, JSON] = {}
        self.steps: dict[int, JSON] = {}
        self.seq = -1
        self.phases: tuple[PhaseSpending, ...] = ()
        self._loop, self._max_text = loop, max_text
        self._requests: dict[int, Row] = {}
        self._inputs: dict[tuple[int, int], str] = {}
        """The calls' inputs as JSON, which the user may edit; "" for one that is too long."""
        self._changed_items: dict[str, None] = {}
        self._changed_steps: set[int] = set()
        self._last_step = 0

    def changes(self) -> list[JSON]:
        """Return the steps that changed since the last call, each with its items that did."""
        items: dict[int, list[JSON]] = {step: [] for step in sorted(self._changed_steps)}
        for id in self._changed_items:
            items.setdefault(self.items[id]["step"], []).append(self.items[id])
        self._changed_items, self._changed_steps = {}, set()
        return [{**self.steps[step], "items": each} for step, each in sorted(items.items())]

    def text(self, item: str, field: str) -> str | None:
        """Return the text of an item as far as it is held, None if there is none."""
        value = self.items.get(item, {}).get(field)
        return value[0] if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) else None

    def totals(self) -> JSON:
        """Return what the rows so far say that the run used."""
        whole = in_all(self.phases)
        usage = whole.usage
        return {
            "steps": max((n for n, step in self.steps.items() if step["phases"]), default=0),
            "calls": whole.calls,
            "in": usage.input_tokens,
            "out": usage.output_tokens,
            "cached": usage.cached_tokens,
            "estimated": usage.estimated,
            "cost": whole.cost_usd,
            "work": whole.seconds,
        }

    def add(self, row: Row) -> None:
        """Add the next row of the run."""
        self.seq = row.seq
        record = row.record
        match record:
            case Thinking():
                self._add_request(row, record)
            case Got():
                self._add_response(row, record)
            case Thought():
                self._add_reply(row, record)
            case Acting(n=n, step=step, calls=calls, begun=begun):
                for i, call in enumerate(calls):
                    as_json = format_input(call.input)
                    self._inputs[n, i] = as_json if len(as_json) <= LONG else ""
                    shown = "" if call.input is None else call.input if isinstance(call.input, str) else as_json
                    state = "running" if i in begun else "asked"
                    fields = {"tool": call.tool, "input": self._cut(shown), "state": state, "seconds": 0.0}
                    self._add_item(row, step, f"c{n}.{i}", "call", **fields)
            case Begun(n=n, begun=begun):
                for i in begun:
                    self._change(f"c{n}.{i}", state="running")
            case ObservedRecord(n=n, i=i, observation=observation):
                self._add_observation(row, f"c{n}.{i}", observation)
            case RanRecord():
                self._add_code(row, record)
            case NoteRecord(step=step, kind=kind, text=text):
                self._add_note(row, step, kind, text)
            case Thrown(step=step, kind=kind, detail=detail) if kind != "Unsupported":
                self._add_note(row, step, "limit", detail)
            case Waits(n=n, i=i, step=step, kind=kind, text=text):
                asked = {"ask": kind, "text": self._cut(text), "told": None, "approved": None}
                self._add_item(row, step, f"w{n}.{i}", "wait", **asked, given=self._inputs.get((n, i), ""))
            case Told(n=n, i=i, text=text, approved=approved):
                answer = f"made with {format_input(record.input[0])}" if record.input else text
                self._change(f"w{n}.{i}", told=self._cut(answer), approved=approved)
            case Resumed() if self.items:
                self._add_note(row, 0, "resumed", "The run goes on from here.")

    def _add_request(self, row: Row, request: Thinking) -> None:
        self._requests[request.n] = row
        self._spend(row)
        id = f"m{request.n}"
        if id not in self.items:
            named = {"phase": request.phase, "model": request.model}
            self._add_item(row, request.step, id, "model", **named, state="asking", errors=[], wire=[], seconds=0.0)
            step = self.steps[request.step]
            for names, name in ((step["phases"], request.phase), (step["models"], request.model)):
                if name and name not in names:
                    names.append(name)
        else:
            self._change(id, state="asking")
        self.items[id]["wire"].append(row.seq)

    def _add_response(self, row: Row, got: Got) -> None:
        if got.n not in self._requests:
            return
        self._spend(self._requests[got.n], row)
        item = self.items[f"m{got.n}"]
        self._change(item["id"], seconds=round(item["seconds"] + got.seconds, 6))
        self._sum(item["step"], seconds=got.seconds)
        if got.error:
            error = {"attempt": got.attempt + 1, "status": got.status or None, "text": self._cut(got.error)}
            item["errors"].append({**error, "lost": got.lost})
            item["state"] = "failed"
        if got.cut:
            item["cut"] = True

    def _add_reply(self, row: Row, thought: Thought) -> None:
        request, reply = self._requests.get(thought.n), thought.reply
        if request is None:
            return
        self._spend(request, row)
        item = self.items[f"m{thought.n}"]
        parts: JSON = {}
        for number, event in enumerate(retell((request, row), self._loop)):
            if isinstance(event, ev.Thought | ev.Action | ev.Answer) and event.text.strip():
                kind = next(kind for kind, made in ev.WRITTEN.items() if isinstance(event, made))
                parts[f"{kind}{number}"] = self._cut(event.text.strip("\n" if kind == "action" else None))
        item["parts"] = list(parts)
        usage = reply.usage
        used = {"in": usage.input_tokens, "out": usage.output_tokens, "cached": usage.cached_tokens}
        self._change(
            item["id"],
            **parts,
            **({"reasoning": self._cut(reply.reasoning)} if reply.reasoning else {}),
            **({"reply": self._cut(reply.text)} if reply.text.strip() and not parts else {}),
            state="done",
            finish=reply.finish,
            native=[call.tool for call in reply.calls],
            cost=reply.cost,
            **used,
            estimated=usage.estimated,
        )
        self._sum(item["step"], **used)
        step = self.steps[item["step"]]
        step["estimated"] = step["estimated"] or usage.estimated
        step["cost"] = None if reply.cost is None or step["cost"] is None else step["cost"] + reply.cost

    def _add_observation(self, row: Row, id: str, seen: Observation) -> None:
        if id not in self.items:
            return
        self._spend(row)
        note = {"note": self._cut(seen.note)} if seen.note else {}
        self._change(id, state="done", text=self._cut(seen.text), trouble=seen.trouble, seconds=seen.seconds, **note)
        self._sum(self.items[id]["step"], seconds=seen.seconds)

    def _add_code(self, row: Row, record: RanRecord) -> None:
        self._spend(row)
        result = self._describe_result(record.ran)
        if record.code is not None:
            self._add_item(row, record.step, f"x{record.n}", "code", code=self._cut(record.code), **result)
        elif record.ran.output or record.ran.error or record.ran.lost:
            self._add_item(row, record.step, f"x{record.n}", "output", **result)
        self._sum(record.step, seconds=record.ran.seconds)

    def _describe_result(self, ran: Ran) -> JSON:
        result: JSON = {"seconds": ran.seconds, "calls": len(ran.calls), "lost": ran.lost}
        if ran.output:
            result["output"] = self._cut(ran.output)
        if ran.error is not None:
            result["error"] = self._cut(f"{ran.error.type}: {ran.error.message}".removesuffix(": "))
            result["line"], result["limit"] = ran.error.line, ran.error.limit
        return result

    def _add_note(self, row: Row, step: int, word: str, text: str) -> None:
        asked = next((item for item in reversed(self.items.values()) if item["kind"] == "model"), None)
        if word == "retry" and asked is not None and asked["step"] == step and asked["errors"]:
            self._change(asked["id"], errors=[*asked["errors"][:-1], {**asked["errors"][-1], "then": text}])
            return
        sort = SORTS.get(word, "plain" if word == "resumed" else "warning")
        self._add_item(row, step or self._last_step, f"n{row.seq}", "note", word=word, sort=sort, text=self._cut(text))

    def _add_item(self, row: Row, step: int, id: str, kind: str, **fields: Any) -> None:
        self._last_step = max(self._last_step, step)
        if step not in self.steps:
            empty: JSON = {"phases": [], "models": [], "in": 0, "out": 0, "cached": 0, "estimated": False}
            self.steps[step] = {"n": step, "at": row.at, **empty, "cost": 0.0, "seconds": 0.0}
        self.items[id] = {"id": id, "kind": kind, "step": step, "at": row.at}
        self._change(id, **fields)

    def _change(self, id: str, **fields: Any) -> None:
        if id in self.items:
            self.items[id].update(fields)
            self._changed_items[id] = None
            self._changed_steps.add(self.items[id]["step"])

    def _sum(self, number: int, **amounts: float) -> None:
        step = self.steps[number]
        for name, amount in amounts.items():
            step[name] = round(step[name] + amount, 6)

    def _spend(self, *rows: Row) -> None:
        # A request counts by its row alone. What came of it is added with the request's row, which then adds nothing.
        self.phases = merged((*self.phases, *spending(rows)))

    def _cut(self, text: str) -> list[Any]:
        if self._max_text is None or len(text) <= self._max_text:
            return [text, 0]
        return [text[: self._max_text], len(text) - self._max_text]


def build_timeline(rows: Iterable[Row], loop: Loop | None, *, max_text: int | None = LONG) -> ViewerTimeline:
    """Build a timeline from rows."""
    timeline = ViewerTimeline(loop, max_text=max_text)
    for row in rows:
        timeline.add(row)
    return timeline


def format_input(value: Any) -> str:
    """Return a tool's input as JSON, indented if it is long."""
    flat = json.dumps(value, ensure_ascii=False, default=str)
    return flat if len(flat) <= 80 else json.dumps(value, ensure_ascii=False, indent=2, default=str)
