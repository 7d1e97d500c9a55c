"""A run as one JSON document: its steps, and in each what was thought, done and observed, in the order of the record.

Theory of operation. A `Teller` takes the rows of a run's record one by one. Each row makes an item of a step, or
changes one that is there (`steps.py`): a call that began gets its observation, a request its reply. `changes()` gives
what is new since it was last asked, so that a page that has the document so far grows by it; all changes together are
the document.

An item is `model` (a request and its reply), `call`, `code`, `output` (code that went on), `note` or `wait`. Items are
named for their effect, so that a name stands for the same thing whenever the record is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from plait.core import Call, Observation, Ran, Strategy
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
from plait.runtime.retell import retell
from plait.runtime.spending import PhaseSpending, in_all, merged, spending
from plait.window.steps import JSON, LONG, Steps

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
"""What sort of thing a remark of that kind tells of; all others are warnings."""


class Teller(Steps):
    """Tells one run. `loop` tells thought, action and answer apart; without it all is thought. `most` None: no cut."""

    def __init__(self, loop: Strategy | None = None, *, most: int | None = LONG) -> None:
        super().__init__(most)
        self.loop = loop
        self.seq = -1
        self.phases: tuple[PhaseSpending, ...] = ()
        self._asked: dict[int, Row] = {}
        self._step: dict[int, int] = {}
        self._given: dict[tuple[int, int], str] = {}
        """The calls' inputs as JSON, which a person may edit; "" for one too long for that."""

    def take(self, row: Row) -> None:
        """The next row of the record."""
        self.seq = row.seq
        record = row.record
        match record:
            case Thinking():
                self._asks(row, record)
            case Got():
                self._got(row, record)
            case Thought():
                self._replied(row, record)
            case Acting(n=n, step=step, calls=calls):
                self._step[n] = step
                for i, call in enumerate(calls):
                    given = as_text(call.input)
                    self._given[n, i] = given if len(given) <= LONG else ""
                    self._call(row, n, i, call, "running" if i in record.begun else "asked")
            case Begun(n=n):
                for i in record.begun:
                    self._change(f"c{n}.{i}", state="running")
            case ObservedRecord(n=n, i=i, observation=observation):
                self._observed(row, n, i, observation)
            case RanRecord():
                self._ran(row, record)
            case NoteRecord(step=step, kind=kind, text=text):
                self._note(row, step, kind, text)
            case Thrown(step=step, kind=kind, detail=detail) if kind != "Lacking":
                self._note(row, step, "limit", detail)
            case Waits(n=n, i=i, step=step, kind=kind, text=text):
                self._step.setdefault(n, step)
                waits = {"ask": kind, "text": self._text(text), "told": None, "approved": None}
                self._item(row, step, f"w{n}.{i}", "wait", **waits, given=self._given.get((n, i), ""))
            case Told(n=n, i=i, text=text, approved=approved):
                said = f"made with {as_text(record.input[0])}" if record.input else text
                self._change(f"w{n}.{i}", told=self._text(said), approved=approved)
            case Resumed():
                if self.items:
                    self._note(row, 0, "resumed", "The run goes on from here.")
            case _:
                pass

    def sums(self) -> JSON:
        """What the record so far says that the run took."""
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

    # -- what models are asked and say

    def _asks(self, row: Row, asks: Thinking) -> None:
        self._step[asks.n] = asks.step
        self._asked[asks.n] = row
        self._spend(row)
        id = f"m{asks.n}"
        if id not in self.items:
            named = {"phase": asks.phase, "model": asks.model}
            self._item(row, asks.step, id, "model", **named, state="asking", errors=[], wire=[], seconds=0.0)
            step = self.steps[asks.step]
            for names, name in ((step["phases"], asks.phase), (step["models"], asks.model)):
                if name and name not in names:
                    names.append(name)
        else:
            self._change(id, state="asking")
        self.items[id]["wire"].append(row.seq)

    def _got(self, row: Row, got: Got) -> None:
        if got.n not in self._asked:
            return
        self._spend(self._asked[got.n], row)
        item = self.items[f"m{got.n}"]
        seconds = round(item["seconds"] + got.seconds, 6)
        self._change(item["id"], seconds=seconds)
        self._add(item["step"], seconds=got.seconds)
        if got.error:
            wrong = {"attempt": got.attempt + 1, "status": got.status or None, "text": self._text(got.error)}
            item["errors"].append({**wrong, "lost": got.lost})
            item["state"] = "failed"
        if got.cut:
            item["cut"] = True

    def _replied(self, row: Row, thought: Thought) -> None:
        asked, reply = self._asked.get(thought.n), thought.reply
        if asked is None:
            return
        self._spend(asked, row)
        item = self.items[f"m{thought.n}"]
        told: JSON = {}
        for number, event in enumerate(retell((asked, row), self.loop)):
            if isinstance(event, ev.Thought | ev.Action | ev.Answer) and event.text.strip():
                kind = next(kind for kind, made in ev.WRITTEN.items() if isinstance(event, made))
                told[f"{kind}{number}"] = self._text(event.text.strip("\n" if kind == "action" else None))
        item["parts"] = list(told)
        usage = reply.usage
        self._change(
            item["id"],
            **told,
            **({"reasoning": self._text(reply.reasoning)} if reply.reasoning else {}),
            **({"reply": self._text(reply.text)} if reply.text.strip() and not told else {}),
            state="done",
            finish=reply.finish,
            native=[call.tool for call in reply.calls],
            cost=reply.cost,
            **{"in": usage.input_tokens, "out": usage.output_tokens, "cached": usage.cached_tokens},
            estimated=usage.estimated,
        )
        used = {"in": usage.input_tokens, "out": usage.output_tokens, "cached": usage.cached_tokens}
        self._add(item["step"], **used)
        step = self.steps[item["step"]]
        step["estimated"] = step["estimated"] or usage.estimated
        step["cost"] = None if reply.cost is None or step["cost"] is None else step["cost"] + reply.cost

    # -- what is done and observed

    def _call(self, row: Row, n: int, i: int, call: Call, state: str) -> None:
        given = "" if call.input is None else call.input if isinstance(call.input, str) else as_text(call.input)
        self._item(
            row, self._step[n], f"c{n}.{i}", "call", tool=call.tool, input=self._text(given), state=state, seconds=0.0
        )

    def _observed(self, row: Row, n: int, i: int, seen: Observation) -> None:
        id = f"c{n}.{i}"
        if id not in self.items:
            return
        self._spend(row)
        told = {"text": self._text(seen.text), "trouble": seen.trouble, "seconds": seen.seconds}
        self._change(id, state="done", **told, **({"note": self._text(seen.note)} if seen.note else {}))
        self._add(self.items[id]["step"], seconds=seen.seconds)

    def _ran(self, row: Row, record: RanRecord) -> None:
        self._step[record.n] = record.step
        self._spend(row)
        told = self._came_of(record.ran)
        if record.code is not None:
            self._item(row, record.step, f"x{record.n}", "code", code=self._text(record.code), **told)
        elif record.ran.output or record.ran.error or record.ran.lost:
            self._item(row, record.step, f"x{record.n}", "output", **told)
        self._add(record.step, seconds=record.ran.seconds)

    def _came_of(self, ran: Ran) -> JSON:
        told: JSON = {"seconds": ran.seconds, "calls": len(ran.calls), "lost": ran.lost}
        if ran.output:
            told["output"] = self._text(ran.output)
        if ran.error is not None:
            told["error"] = self._text(f"{ran.error.type}: {ran.error.message}".removesuffix(": "))
            told["line"], told["limit"] = ran.error.line, ran.error.limit
        return told

    # -- within

    def _note(self, row: Row, step: int, word: str, text: str) -> None:
        tried = next((item for item in reversed(self.items.values()) if item["kind"] == "model"), None)
        if word == "retry" and tried is not None and tried["step"] == step and tried["errors"]:
            self._change(tried["id"], errors=[*tried["errors"][:-1], {**tried["errors"][-1], "then": text}])
            return
        sort = SORTS.get(word, "plain" if word == "resumed" else "warning")
        self._item(row, step or self._last, f"n{row.seq}", "note", word=word, sort=sort, text=self._text(text))

    def _spend(self, *rows: Row) -> None:
        # A request counts by its row alone; what came of it is told with the request's row, which then adds nothing.
        self.phases = merged((*self.phases, *spending(rows)))


def told(rows: Iterable[Row], loop: Strategy | None, *, most: int | None = LONG) -> Teller:
    """A teller that has taken these rows."""
    teller = Teller(loop, most=most)
    for row in rows:
        teller.take(row)
    return teller


def as_text(value: Any) -> str:
    """A tool's input as it is shown: JSON, indented where it is long."""
    flat = json.dumps(value, ensure_ascii=False, default=str)
    return flat if len(flat) <= 80 else json.dumps(value, ensure_ascii=False, indent=2, default=str)
