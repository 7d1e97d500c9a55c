"""A run over time: steps, attempts at model calls, tool calls, code, questions and child runs, each from when to when.

A row's `id` never changes, and `in` is the id of the row that it is a part of, if there is one. `run` and `step` say
where it is. `at` and `end` are seconds since 1970; `end` is None while it goes on. `state` is done, failed, running, or
waiting (for the user). `tokens` and `cost` (USD, None if unknown) are those of a model's reply, of a step's replies, or
of a whole child run; `wire` is the row of the request. Empty texts and sums of 0 are left out. Steps have no rows of
their own in a journal: they begin and end with their parts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeAlias

from plait.core import Reply
from plait.core.errors import UnknownRun
from plait.core.text import one_line
from plait.journal.entries import ChildRun, CodeTurn, ModelCall, Moment, OtherWork, Question, ToolCall
from plait.journal.keys import read_key
from plait.journal.store import Journal, wait_for
from plait.journal.timeline import Timeline
from plait.runtime.spent import spent_in
from plait.view.timeline import format_input

WaterfallRow: TypeAlias = dict[str, Any]
SHORT = 120
"""Characters of an input or an error."""


def read_waterfall(journal: Journal, run: str) -> list[WaterfallRow]:
    """Read the rows of a run and of all its child runs, in the order in which they began; blocking."""
    rows: list[WaterfallRow] = []
    waiting, known = [(run, "")], {run}
    for name, inside in waiting:  # it grows
        with suppress(UnknownRun):  # it has not begun, or was deleted
            is_over = journal.run(name).status not in ("running", "waiting")
            timeline = Timeline(wait_for(journal.store.read_rows(name, bodies=False)), run=name)
            rows += _RunRows(name, inside).read(timeline, is_over=is_over)
            children = [(child.run, f"{name}/h{child.key}") for child in timeline.children]
            waiting += [each for each in children if each[0] not in known]
            known.update(child for child, _ in children)
    return rows


class _RunRows:
    """The rows of one run, as its moments make them. `inside` is the row of the run itself, "" for the top."""

    def __init__(self, run: str, inside: str) -> None:
        self.run, self.inside = run, inside
        self.rows: dict[str, WaterfallRow] = {}
        self.last = 0.0

    def read(self, timeline: Timeline, *, is_over: bool) -> list[WaterfallRow]:
        for moment in timeline.moments:
            self._add(moment)
        for asked in timeline.questions:
            if asked.closed and self.rows[f"{self.run}/w{asked.question}"]["end"] is None:
                self._end(self.last, f"w{asked.question}", "done")
        if is_over:
            self._close()
        made_by_code = {row["n"]: id for id, row in self.rows.items() if row["kind"] == "code"}
        for row in self.rows.values():
            n = row.pop("n")
            if row["kind"] == "call" and n in made_by_code:
                row["in"] = made_by_code[n]
        # Parts come after what they are a part of.
        for row in reversed(list(self.rows.values())):
            if (whole := self.rows.get(row["in"])) is not None and whole["kind"] in ("step", "code"):
                whole["at"] = min(whole["at"], row["at"])
                if whole["kind"] == "step":
                    whole["end"] = None if None in (row["end"], whole["end"]) else max(whole["end"], row["end"])
                    whole["state"] = row["state"] if row["end"] is None else whole["state"]
        is_said = ("run", "step", "end", "cost", "wire")
        return [{name: each for name, each in row.items() if each or name in is_said} for row in self.rows.values()]

    def _add(self, moment: Moment) -> None:
        at = moment.at
        match moment.change, moment.entry:
            case "asked", ModelCall() as call:
                label = call.model + (f" · {call.phase}" if call.phase else "")
                label += f" · attempt {call.last.number + 1}" if call.last.number else ""
                self._begin(at, f"m{call.key}a{call.last.number}", "model", call, label)["wire"] = moment.seq
            case "responded", ModelCall(last=attempt) as call if attempt.response is not None:
                response = attempt.response
                row = self._end(at, f"m{call.key}a{attempt.number}", "failed" if response.error else "done")
                row["at"] = max(row["at"], at - response.seconds)
                row["note"] = one_line(response.error)[:SHORT]
                if response.usage is not None:
                    self._count(row, Reply("", usage=response.usage, cost=response.cost))
            case "replied", ModelCall(reply=Reply() as reply) as call:
                row = self.rows[f"{self.run}/m{call.key}a{call.last.number}"]
                if row["end"] is None:
                    self._end(at, f"m{call.key}a{call.last.number}", "done")
                self._count(row, reply)
            case "planned" | "began", ToolCall() as call:
                row = self._begin(at, f"c{call.key}", "call", call, call.shown.tool)
                row["note"] = one_line(format_input(call.shown.input))[:SHORT] if call.shown.input is not None else ""
                row["at"] = at  # from its beginning: before, it waited for an approval
                row["state"] = "running" if call.begun else "waiting"
            case "ended", ToolCall() as call:
                row = self._end(at, f"c{call.key}", "failed" if call.status not in ("ok", "open") else "done")
                if call.observation is not None and not any(each["in"] == row["id"] for each in self.rows.values()):
                    row["at"] = max(row["at"], at - call.observation.seconds)
            case "ran", CodeTurn() as code:
                begun = at - code.ran.seconds
                self._begin(begun, f"x{code.key}", "code", code, "code")
                self._end(at, f"x{code.key}", "failed" if code.ran.error else "done")
            case "waits", Question() as asked:
                row = self._begin(at, f"w{asked.question}", "wait", asked, f"waits for the user: {asked.kind}")
                row["state"] = "waiting"
            case "answered", Question() as asked:
                self._end(at, f"w{asked.question}", "done")
                of_call = self.rows.get(f"{self.run}/c{read_key(asked.key).owner}")
                if of_call is not None and of_call["end"] is None:  # its work begins after the wait
                    of_call["at"], of_call["state"] = at, "running"
                    self.rows[of_call["id"]] = self.rows.pop(of_call["id"])
            case "began", ChildRun() as child:
                row = self._begin(at, f"h{child.key}", "child", child, "child run")
                row["child"], row["note"] = child.run, one_line(child.question)[:SHORT]
            case "ended", ChildRun() as child if child.end is not None:
                row = self._end(at, f"h{child.key}", "done" if child.end.status == "answered" else child.end.status)
                spent = spent_in(child.end.totals)
                row["tokens"], row["cost"] = spent.usage.tokens, spent.cost_usd
            case "began" | "ended" as change, OtherWork() as other:
                self._begin(at, f"e{other.key}", "other", other, other.work)
                if change == "ended":
                    self._end(at, f"e{other.key}", "done")
            case "resumed", _:  # a request that was under way when the process ended, ended with it
                self._close(kind="model")
        self.last = at

    def _begin(self, at: float, id: str, kind: str, entry: Any, label: str) -> WaterfallRow:
        """Return the row of an entry; a new one goes into its call, if it belongs to one, else into its step."""
        step, call = f"{self.run}/s{entry.step}", f"{self.run}/c{entry.n}.{getattr(entry, 'i', -1)}"
        sums = {"tokens": 0, "cost": 0.0}
        empty = {"run": self.run, "step": entry.step, "end": None, "state": "running", "note": "", **sums}
        if step not in self.rows:
            name = f"Step {entry.step}" if entry.step else "Before the first step"
            self.rows[step] = {"id": step, "in": self.inside, "kind": "step", "label": name, "at": at, "n": -1, **empty}
            self.rows[step] |= {"end": at, "state": "done"}
        id = f"{self.run}/{id}"
        inside = call if call in self.rows and kind not in ("call", "wait") else step
        return self.rows.setdefault(
            id, {"id": id, "in": inside, "kind": kind, "label": label, "at": at, "n": entry.n, **empty}
        )

    def _end(self, at: float, id: str, state: str) -> WaterfallRow:
        row = self.rows[f"{self.run}/{id}"]
        row["end"], row["state"] = at, state
        return row

    def _close(self, kind: str = "") -> None:
        for row in self.rows.values():
            if row["end"] is None and kind in ("", row["kind"]):
                row["end"], row["state"] = self.last, "failed"

    def _count(self, row: WaterfallRow, reply: Reply) -> None:
        for each in (row, self.rows[f"{self.run}/s{row['step']}"]):
            each["tokens"] += reply.usage.tokens
            each["cost"] = None if reply.cost is None or each["cost"] is None else each["cost"] + reply.cost
