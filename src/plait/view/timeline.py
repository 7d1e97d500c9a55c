"""A run as the viewer shows it: steps, each with its items in the order of the journal.

Each row adds an item to a step or changes one: a call gets its observation, a request its reply. `changes` returns what
is new since the last call; all changes together are the whole document.

`items.py` describes the items. An item's id comes from its entry, so it never changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from plait.core import Loop, Usage
from plait.core import events as ev
from plait.journal.entries import (
    ChildRun,
    CodeTurn,
    LoopException,
    ModelCall,
    Moment,
    OtherWork,
    Question,
    RecordedNote,
    ToolCall,
)
from plait.journal.keys import read_key
from plait.journal.records import Resumption, Row
from plait.journal.timeline import Timeline
from plait.runtime.calls.artifacts import find_artifacts
from plait.runtime.costs import PhaseSpending, in_all, merge_spending, read_spending
from plait.runtime.recorded_events import describe_work, split_reply
from plait.tools.render import describe_packed
from plait.view.items import FailedAttempt, ItemFields, ItemKind, Text, TokenCounts

LONG = 4_000
"""Characters of a text in the document."""
MOST = 500
"""Hits of a search that are returned."""
AROUND = 60
"""Characters of an excerpt before and after the words."""
_KINDS = {
    "repair": "repaired unreadable replan fallback calls_as_text",
    "cut": "cut shortened compacted dropped skipped circle",
    "refusal": "refused",
    "error": "error retry model_change",
    "limit": "rate_limit limit loop",
    "plain": "message delivery review cancel",
}
SORTS = {kind: sort for sort, kinds in _KINDS.items() for kind in kinds.split()}
"""The mark of each kind of note on the page. All other kinds are warnings."""
_SERVER = re.compile(r"^The MCP server (.+?) asks you(?: to open an address)?\. It says:$", re.MULTILINE)

JSON: TypeAlias = dict[str, Any]


def _count_tokens(usage: Usage) -> TokenCounts:
    """Return the tokens by the names that the page uses."""
    return {
        "in": usage.input_tokens,
        "out": usage.output_tokens,
        "cached": usage.cached_tokens,
        "cache_writes": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def question_item(asked: Question) -> str:
    """Return the id of the item that shows a question."""
    return f"w{asked.question}"


class ViewerTimeline:
    """The steps of one run by number, and its items by id, in the order they came.

    `loop` separates thought, action and answer; without it all text is thought. `run` is the run's id, which the ids
    of its questions depend on. `max_text` None: no text is cut.
    """

    def __init__(self, loop: Loop | None = None, run: str = "", *, max_text: int | None = LONG) -> None:
        self.items: dict[str, JSON] = {}
        self.steps: dict[int, JSON] = {}
        self.seq = -1
        self.phases: tuple[PhaseSpending, ...] = ()
        self.trace = Timeline(run=run)
        self._loop, self._max_text = loop, max_text
        self._changed_items: dict[str, None] = {}
        self._changed_steps: set[int] = set()
        self._last_step = 0

    def changes(self) -> list[JSON]:
        """Return the steps that changed since the last call, each with its changed items."""
        items: dict[int, list[JSON]] = {step: [] for step in sorted(self._changed_steps)}
        for id in self._changed_items:
            items.setdefault(self.items[id]["step"], []).append(self.items[id])
        self._changed_items, self._changed_steps = {}, set()
        return [{**self.steps[step], "items": each} for step, each in sorted(items.items())]

    def text(self, item: str, field: str) -> str | None:
        """Return the text of an item as far as it is stored; None if there is none."""
        value = self.items.get(item, {}).get(field)
        return value[0] if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) else None

    def search(self, words: str) -> JSON:
        """Return where words occur in all texts, in upper or lower case: the first `hits`, and the `count` of all.

        A hit has its `step`, `item` and `field`, and the text `before`, `found` and `after`.
        """
        pattern = re.compile(re.escape(words), re.IGNORECASE)
        hits: list[JSON] = []
        count = 0
        for id, item in self.items.items():
            texts = {name: text for name in item if (text := self.text(id, name)) is not None}
            texts |= {f"attempt {error['attempt']}": error["text"][0] for error in item.get("errors", ())}
            texts |= {"tool": item["tool"]} if item["kind"] == "call" else {}
            for field, text in texts.items():
                for match in pattern.finditer(text) if words else ():
                    count += 1
                    if count <= MOST:
                        start, end = match.span()
                        parts = {"before": text[max(0, start - AROUND) : start], "found": match[0]}
                        parts["after"] = text[end : end + AROUND]
                        hits.append({"step": item["step"], "item": id, "field": field, **parts})
        return {"hits": hits, "count": count}

    def totals(self) -> JSON:
        """Return what the run used, from the rows so far."""
        whole = in_all(self.phases)
        steps = max((n for n, step in self.steps.items() if step["phases"]), default=0)
        used = {"calls": whole.calls, "cost": whole.cost_usd, "work": whole.seconds}
        return {"steps": steps, **used, **_count_tokens(whole.usage), "estimated": whole.usage.estimated}

    def add(self, row: Row, *, keep_body: bool = True) -> list[Moment]:
        """Add the next row of the run, and return what it changed."""
        self.seq = row.seq
        moments = self.trace.add(row, keep_body=keep_body)
        for moment in moments:
            if (part := read_spending(moment)) is not None:
                self.phases = merge_spending((*self.phases, part))
            self._show(moment)
        return moments

    def _show(self, moment: Moment) -> None:
        match moment.change, moment.entry:
            case "asked", ModelCall() as asked:
                self._show_request(moment.seq, moment.at, asked)
            case "responded", ModelCall() as asked:
                self._show_response(asked)
            case "replied", ModelCall() as asked:
                self._show_reply(asked)
            case "planned", ToolCall() as call:
                fields: ItemFields = {"tool": call.planned.tool, "input": self._input_of(call), "seconds": 0.0}
                self._add_item(moment.at, call.step, f"c{call.key}", "call", {**fields, "state": "asked"})
            case "began", ToolCall() as call:
                self._change(f"c{call.key}", {"state": "running", "input": self._input_of(call)})
            case "ended", ToolCall(observation=seen) as call if seen is not None:
                shown: ItemFields = {"text": self._cut(seen.text), "trouble": seen.trouble, "seconds": seen.seconds}
                if files := find_artifacts((call.seen or seen).value):
                    shown["files"] = files
                if seen.note:
                    shown["note"] = self._cut(seen.note)
                if call.edited:
                    shown["edited"] = True
                self._change(f"c{call.key}", shown | {"state": "done", "input": self._input_of(call)})
                self._sum(call.step, seconds=seen.seconds)
            case _, ChildRun() as child if (of_call := self.items.get(f"c{child.n}.{child.i}")) is not None:
                ends = of_call.get("children", {}) | {child.run: child.end.status if child.end is not None else ""}
                self._change(of_call["id"], {"children": ends})
            case _, CodeTurn() as code:
                result: ItemFields = {"seconds": code.ran.seconds, "lost": code.ran.lost}
                if code.ran.made:
                    result["files"] = {at.id: at.about for at in code.ran.made}
                if code.ran.output:
                    result["output"] = self._cut(code.ran.output)
                if (error := code.ran.error) is not None:
                    result["error"] = self._cut(f"{error.type}: {error.message}".removesuffix(": "))
                    result["line"] = error.line
                if code.code is not None:
                    self._add_item(moment.at, code.step, f"x{code.n}", "code", result | {"code": self._cut(code.code)})
                elif code.ran.output or code.ran.error or code.ran.lost or code.ran.made:
                    self._add_item(moment.at, code.step, f"x{code.n}", "output", result)
                self._sum(code.step, seconds=code.ran.seconds)
            case _, OtherWork() as other:
                id = f"e{other.key}"
                if id not in self.items:
                    self._add_item(moment.at, other.step, id, "note", {"word": other.work, "sort": "plain"})
                self._change(id, {"text": self._cut(describe_work(other))})
            case _, RecordedNote(kind="edited"):
                pass  # its call says so
            case _, RecordedNote(step=step, kind=kind, text=text):
                self._show_note(moment, step, kind, text)
            case _, LoopException(step=step, kind=kind, detail=detail) if kind not in ("Unsupported", "EndedByRefusal"):
                self._show_note(moment, step, "limit", detail)
            case "waits", Question() as asked:
                key = read_key(asked.key)
                self._show_question(moment.at, asked.step, asked, key.owner if key.mark == "?" else "")
            case "answered", Question() as asked:
                self._show_answer(asked)
            case _, Resumption() if self.items:
                self._show_note(moment, 0, "resumed", "The run goes on from here.")

    def show_child_questions(self, child: ChildRun, questions: Iterable[Question]) -> None:
        """Show questions of a child run, whose rows are in its own record, as questions about the call of this run."""
        step, call = child.step, f"{child.n}.{child.i}"
        for asked in questions:
            if question_item(asked) not in self.items:
                self._show_question(self.steps[step]["at"] if step in self.steps else 0.0, step, asked, call)
            if not asked.is_open and self.items[question_item(asked)]["told"] is None:
                self._show_answer(asked)

    def _show_question(self, at: float, step: int, asked: Question, call: str) -> None:
        given, tool, why = "", "", asked.text
        if asked.call is not None:
            given, tool = format_input(asked.call.input), asked.call.tool
            if why.startswith(f"May '{tool}' be called with "):
                why = " ".join(asked.reasons)
        shown: ItemFields = {"ask": asked.kind, "text": self._cut(asked.text), "told": None, "approved": None}
        about: ItemFields = {"call": call, "tool": tool, "given": given if len(given) <= LONG else ""}
        about["why"] = self._cut(why)
        # The words of the server stand below this line, each line of them after a ">".
        if read_key(asked.key).asked.startswith("q") and (named := _SERVER.findall(asked.text)):
            about["server"] = named[-1]
        self._add_item(at, step, question_item(asked), "wait", shown | about)

    def _show_answer(self, asked: Question) -> None:
        answer, item = asked.answer, self.items[question_item(asked)]
        receipt: ItemFields = {"approved": None, "by": asked.by, "answered": asked.answered}
        if answer is None or isinstance(answer, str):
            text = answer or ""
        else:
            receipt["approved"] = answer.action != "refuse"
            text = answer.text
            if answer.action == "edit":
                receipt["changed"] = format_input(asked.edited_input)
                text = f"made with {receipt['changed']}"
            of_call = self.items.get(f"c{item['call']}", {})
            is_own = of_call.get("tool") == item["tool"]  # else the question is about a call of a child run
            if is_own and ("changed" in receipt or "changed" not in of_call):  # a change stands, whoever agrees to it
                self._change(of_call["id"], receipt)
        self._change(item["id"], {**receipt, "told": self._cut(text)})

    def _show_request(self, seq: int, at: float, call: ModelCall) -> None:
        id = f"m{call.key}"
        if id not in self.items:
            named: ItemFields = {"phase": call.phase, "model": call.model}
            asking: ItemFields = {"state": "asking", "errors": [], "wire": [], "seconds": 0.0}
            self._add_item(at, call.step, id, "model", named | asking)
            step = self.steps[call.step]
            for names, name in ((step["phases"], call.phase), (step["models"], call.model)):
                if name and name not in names:
                    names.append(name)
        else:
            self._change(id, {"state": "asking"})
        self.items[id]["wire"].append(seq)

    def _show_response(self, call: ModelCall) -> None:
        item, response = self.items[f"m{call.key}"], call.last.response
        if response is None:
            return
        self._change(item["id"], {"seconds": round(item["seconds"] + response.seconds, 6)})
        self._sum(item["step"], seconds=response.seconds)
        if response.error:
            text, attempt = self._cut(response.error), call.last.number + 1
            error: FailedAttempt = {"attempt": attempt, "status": response.status or None, "text": text}
            item["errors"].append({**error, "lost": response.lost})
            item["state"] = "failed"

    def _show_reply(self, call: ModelCall) -> None:
        item, reply = self.items[f"m{call.key}"], call.reply
        if reply is None:
            return
        parts: dict[str, Text] = {}
        for number, event in enumerate(split_reply(call, self._loop), 1):
            if isinstance(event, ev.Thought | ev.Action | ev.Answer) and event.text.strip():
                kind = ev.kind_of(event)
                parts[f"{kind}{number}"] = self._cut(event.text.strip("\n" if kind == "action" else None))
        is_plain = not parts
        for number, hosted in enumerate(reply.hosted):
            parts[f"hosted{number}"] = self._cut(f"{hosted.title}\n{hosted.text}".strip())
        if reply.citations:
            parts["sources0"] = self._cut("\n".join(map(str, reply.citations)))
        item.update(parts)
        usage = reply.usage
        used = _count_tokens(usage)
        shown: ItemFields = {"parts": list(parts), "state": "done", "finish": reply.finish, "cost": reply.cost}
        if reply.reasoning:
            shown["reasoning"] = self._cut(reply.reasoning)
        if reply.text.strip() and is_plain:
            shown["reply"] = self._cut(reply.text)
        self._change(item["id"], {**shown, **used, "estimated": usage.estimated})
        self._sum(item["step"], **used)
        step = self.steps[item["step"]]
        step["estimated"] = step["estimated"] or usage.estimated
        step["cost"] = None if reply.cost is None or step["cost"] is None else step["cost"] + reply.cost

    def _input_of(self, call: ToolCall) -> Text:
        """Return the input of a call as the model gave it."""
        given = call.planned.input
        text = "" if given is None else given if isinstance(given, str) else format_input(given)
        return self._cut(describe_packed(text) if call.planned.by_code else text)

    def _show_note(self, moment: Moment, step: int, word: str, text: str) -> None:
        asked = next((item for item in reversed(self.items.values()) if item["kind"] == "model"), None)
        if word == "retry" and asked is not None and asked["step"] == step and asked["errors"]:
            asked["errors"][-1]["then"] = text
            self._change(asked["id"], {})
            return
        sort = SORTS.get(word, "plain" if word in ("resumed", "todo") else "warning")
        shown: ItemFields = {"word": word, "sort": sort, "text": self._cut(text)}
        self._add_item(moment.at, step or self._last_step, f"n{moment.seq}", "note", shown)

    def _add_item(self, at: float, step: int, id: str, kind: ItemKind, fields: ItemFields) -> None:
        self._last_step = max(self._last_step, step)
        if step not in self.steps:
            empty: JSON = {"phases": [], "models": [], **_count_tokens(Usage()), "estimated": False}
            self.steps[step] = {"n": step, "at": at, **empty, "cost": 0.0, "seconds": 0.0}
        self.items[id] = {"id": id, "kind": kind, "step": step, "at": at}
        self._change(id, fields)

    def _change(self, id: str, fields: ItemFields) -> None:
        if id in self.items:
            self.items[id].update(fields)
            self._changed_items[id] = None
            self._changed_steps.add(self.items[id]["step"])

    def _sum(self, number: int, **amounts: float) -> None:
        step = self.steps[number]
        for name, amount in amounts.items():
            step[name] = round(step[name] + amount, 6)

    def _cut(self, text: str) -> Text:
        if self._max_text is None or len(text) <= self._max_text:
            return [text, 0]
        return [text[: self._max_text], len(text) - self._max_text]


def build_timeline(
    rows: Iterable[Row], loop: Loop | None, run: str = "", *, max_text: int | None = LONG
) -> ViewerTimeline:
    timeline = ViewerTimeline(loop, run, max_text=max_text)
    for row in rows:
        timeline.add(row)
    return timeline


def format_input(value: Any) -> str:
    """Return a tool's input as JSON, indented if it is long."""
    flat = json.dumps(value, ensure_ascii=False, default=str)
    return flat if len(flat) <= 80 else json.dumps(value, ensure_ascii=False, indent=2, default=str)
