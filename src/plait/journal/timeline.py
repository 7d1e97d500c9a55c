"""A run as typed values: the only reader of the rows of a trace.

Rows refer to each other by the keys of their entries (see `records.py`), which a `Timeline` resolves. Each row gives
one or more `Moment`s: what changed, and the new state of the model call, tool call, piece of code, question or note.
All other code reads a trace this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar

from msgspec import UNSET, convert, to_builtins
from msgspec.structs import asdict, replace

from plait.core import Observation, Reply
from plait.journal.entries import (
    Change,
    ChildRun,
    CodeTurn,
    GuardDecision,
    LoopException,
    ModelAttempt,
    ModelCall,
    Moment,
    OtherWork,
    Question,
    RecordedEntry,
    RecordedNote,
    RecordedResponse,
    ToolCall,
    withhold_result,
)
from plait.journal.keys import Key, question_id, read_key
from plait.journal.records import (
    Asking,
    Decision,
    IntentRecord,
    MadeCall,
    NoteRecord,
    RaisedRecord,
    Record,
    ResultRecord,
    Resumption,
    Row,
)

_Closable = TypeVar("_Closable", Question, ChildRun)
_Changes: TypeAlias = Iterator[tuple[Change, RecordedEntry]]


class Timeline:
    """A run's trace. `moments` are in the order of the rows; the other properties hold the latest state of each entry.

    `run` is the run's id, which the ids of its questions depend on. Rows can be added while the run continues.
    """

    def __init__(self, rows: Iterable[Row] = (), *, run: str = "") -> None:
        self.run = run
        self.moments: list[Moment] = []
        self.seconds = 0.0
        """Seconds of the run, without those in which it only waited: for the user, another process, a retry."""
        self._model_calls: dict[str, ModelCall] = {}
        self._tool_calls: dict[str, ToolCall] = {}
        self._questions: dict[str, Question] = {}
        self._children: dict[str, ChildRun] = {}
        self._other_works: dict[str, OtherWork] = {}
        self._edited: set[str] = set()
        """The keys of calls whose results were replaced in this fork."""
        self._last_at = 0.0
        for row in rows:
            self.add(row)

    def add(self, row: Row, *, keep_body: bool = True) -> list[Moment]:
        """Add the next row and return what it changed. Without `keep_body`, the row's request or response is empty
        here, to save memory in long runs."""
        if self._last_at and not self._has_waited_for(row.record):
            self.seconds += max(0.0, row.at - self._last_at)
        self._last_at = row.at
        made = [
            Moment(row.seq, row.at, change, entry) for change, entry in self._read(row, row.body if keep_body else None)
        ]
        self.moments += made
        return made

    def _has_waited_for(self, record: Record) -> bool:
        """Return whether the run only waited before this row."""
        if isinstance(record, NoteRecord):
            return record.kind == "resumed"
        if isinstance(record, ResultRecord):
            return record.key in self._questions
        if (
            not isinstance(record, IntentRecord)
            or record.work != "request"
            or (key := read_key(record.key)).attempt <= 0
        ):
            return False
        asking = f"{key.n}.{key.i}"
        works = any(each.last.response is None for each in self._model_calls.values()) or any(
            each.begun and each.observation is None for at, each in self._tool_calls.items() if at != asking
        )
        return not works

    @property
    def model_calls(self) -> list[ModelCall]:
        """Return the model calls, in the order they were made."""
        return list(self._model_calls.values())

    @property
    def attempts(self) -> list[tuple[ModelCall, ModelAttempt]]:
        """Return all requests to models with their calls, in the order they were sent."""
        pairs = [(call, attempt) for call in self._model_calls.values() for attempt in call.attempts]
        return sorted(pairs, key=lambda pair: pair[1].seq)

    @property
    def replies(self) -> list[tuple[ModelCall, Reply]]:
        """Return the model calls that have a reply, in the order of the replies."""
        replied = [each.entry for each in self.moments if each.change == "replied"]
        return [(each, each.reply) for each in replied if isinstance(each, ModelCall) and each.reply is not None]

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Return the tool calls, in the order in which the loop asked for them."""
        return sorted(self._tool_calls.values(), key=lambda call: (call.n, call.i))

    @property
    def results(self) -> list[tuple[ToolCall, Observation]]:
        """Return the tool calls that ended, in the order they ended."""
        ended = [each.entry for each in self.moments if each.change == "ended"]
        return [
            (each, each.observation) for each in ended if isinstance(each, ToolCall) and each.observation is not None
        ]

    @property
    def code(self) -> list[CodeTurn]:
        """Return the model's code that ran."""
        return [each.entry for each in self.moments if isinstance(each.entry, CodeTurn)]

    @property
    def code_clock(self) -> float | None:
        """Return the time that the first piece of code saw; None if no code ran."""
        return next((each.now for each in self.code if each.now), None)

    @property
    def questions(self) -> list[Question]:
        """Return the questions of this run to the user, in order. Those of its child runs are in their own records."""
        return list(self._questions.values())

    @property
    def open_questions(self) -> list[Question]:
        """Return the questions that wait for an answer. `find_open_questions` also finds those of child runs."""
        return [each for each in self._questions.values() if each.is_open]

    @property
    def children(self) -> list[ChildRun]:
        """Return the child runs, in the order they were started."""
        return list(self._children.values())

    @property
    def resumptions(self) -> list[Resumption]:
        """Return one entry for each time that another process resumed the run."""
        return [each.entry for each in self.moments if isinstance(each.entry, Resumption)]

    # -- reading rows

    def _read(self, row: Row, body: bytes | None) -> _Changes:
        """Yield what a row changes. A result whose entry did not begin on record, and was not refused, changes
        nothing."""
        record = row.record
        key = read_key(record.key)
        match record:
            case IntentRecord(work="request", asked=asked):
                where = asked.phase, asked.model, asked.path, asked.max_tokens
                attempt = ModelAttempt(row.seq, key.attempt, *where, body or b"")
                of_call = _remove_attempt(record.key)
                before = self._model_calls.get(of_call)
                attempts = (*before.attempts, attempt) if before is not None else (attempt,)
                self._model_calls[of_call] = call = ModelCall(of_call, key.n, key.i, record.step, attempts)
                yield "asked", call
            case IntentRecord(work="call"):
                known = self._tool_calls.get(record.key)
                call_made = MadeCall(record.asked) if record.made is UNSET else record.made
                bound = call_made.call, call_made.by, call_made.words
                planned = ToolCall(record.key, key.n, key.i, record.step, record.asked, *bound)
                if known is None:
                    yield "planned", planned
                self._tool_calls[record.key] = began = replace(planned, begun=True)
                if known is None or not known.begun:  # else it goes on: it waited for a child run, or is made again
                    yield "began", began
            case IntentRecord(work="question" | "decision", asked=Asking() as asked):
                yield from self._ask(key, record, asked)
            case IntentRecord(work="child", asked=asked):
                child = ChildRun(record.key, key.n, key.i, record.step, asked.run, asked.question)
                self._children[record.key] = child
                yield "began", child
            case IntentRecord(work="think" | "code" | "take"):
                pass  # the result says it all
            case IntentRecord(work=work, asked=asked):
                made = None if record.made is UNSET else record.made
                self._other_works[record.key] = other = OtherWork(record.key, key.n, record.step, work, asked, made)
                yield "began", other
            case ResultRecord():
                yield from self._end(row, key, record, body)
                if record.work not in ("question", "decision"):
                    self._close(record.key)
            case RaisedRecord():
                self._close(record.key)
                yield "raised", LoopException(**asdict(record), n=key.n)
            case NoteRecord(kind="edited") if key.i >= 0:
                self._edited.add(record.key)
                yield "noted", RecordedNote(record.key, -1, record.step, record.kind, record.text)
            case NoteRecord(kind="resumed", value=Resumption() as value):
                yield "resumed", value
            case NoteRecord():
                yield "noted", RecordedNote(record.key, key.note, record.step, record.kind, record.text, record.value)

    def _end(self, row: Row, key: Key, record: ResultRecord, body: bytes | None) -> _Changes:
        value, asked = record.value, None if record.asked is UNSET else record.asked
        match record.work:
            case "request":
                found = self._model_calls.get(_remove_attempt(record.key))
                if found is not None:
                    response = RecordedResponse(**asdict(value), seq=row.seq, body=body)
                    attempts = tuple(
                        replace(each, response=response) if each.number == key.attempt else each
                        for each in found.attempts
                    )
                    self._model_calls[found.key] = found = replace(found, attempts=attempts)
                    yield "responded", found
            case "think":
                if record.key in self._model_calls:
                    self._model_calls[record.key] = replied = replace(self._model_calls[record.key], reply=value)
                    yield "replied", replied
            case "call":
                known = self._tool_calls.get(record.key)
                if known is None and asked is not None:
                    known = ToolCall(record.key, key.n, key.i, record.step, asked, asked)
                    yield "planned", known
                elif known is not None and asked is not None:  # asked about, but then refused
                    known = replace(known, planned=asked)
                if known is not None:
                    ended = replace(known, observation=value, artifacts=body, edited=record.key in self._edited)
                    self._tool_calls[record.key] = ended
                    yield "ended", ended
            case "code":
                yield "ran", CodeTurn(**asdict(value), key=record.key, n=key.n, step=record.step, artifacts=body)
            case "question" | "decision" if record.key in self._questions:
                receipt = {"answer": value, "by": record.by, "answered": record.at or row.at}
                self._questions[record.key] = answered = replace(self._questions[record.key], **receipt)
                call = self._tool_calls.get(key.owner)
                if call is not None and not call.begun and isinstance(value, Decision) and value.action == "edit":
                    edited = replace(answered.call or call.call, input=answered.edited_input, by_code=False)
                    self._tool_calls[key.owner] = replace(call, call=edited, changed_by="user")
                yield "answered", answered
            case "decision":
                if key.mark == "!" and value.action in ("change", "refuse"):
                    self._change_result(key.owner, value)
                when: Literal["before", "after"] = "before" if key.mark == "?" else "after"
                decided = (value.action, value.text, value.value)
                yield "decided", GuardDecision(record.key, key.n, key.i, record.step, key.guard, when, *decided)
            case "message":
                yield "noted", RecordedNote(record.key, -1, record.step, "message", value["text"], value)
            case "delivery":
                yield "noted", RecordedNote(record.key, -1, record.step, "delivery", f"the result of call {value}")
            case "question" | "take":
                pass  # nobody asked the question; what was taken has entries of its own
            case "child":
                if record.key in self._children:
                    self._children[record.key] = child = replace(self._children[record.key], end=value)
                    yield "ended", child
            case work:
                other = self._other_works.get(record.key) or OtherWork(record.key, key.n, record.step, work, asked)
                self._other_works[record.key] = other = replace(other, result=value, has_ended=True)
                yield "ended", other

    def _change_result(self, key: str, decision: Decision) -> None:
        """Keep the result of a call as a guard left it: so the loop received it. A remark on it, or an error that it
        came to be, is its result for readers too. What a hook put in its place is not: they see what the tool
        returned."""
        call = self._tool_calls.get(key)
        if call is None or call.observation is None:
            return
        made, change = call.seen or call.observation, decision.value
        if decision.action == "refuse":
            seen = withhold_result(call.call.tool, call.observation, decision.text, by_user=decision.by_user)
        else:
            seen = convert({**to_builtins(made), **change}, Observation)
        if decision.action == "change" and _REMARKS & change.keys():
            own = convert({**to_builtins(call.observation), **change}, Observation)
            call = replace(call, observation=own)
        self._tool_calls[key] = changed = replace(call, changed_result=seen if seen != call.observation else None)
        for i in range(len(self.moments) - 1, -1, -1):
            if self.moments[i].change == "ended" and getattr(self.moments[i].entry, "key", "") == key:
                self.moments[i] = replace(self.moments[i], entry=changed)
                return

    def _ask(self, key: Key, record: IntentRecord, asked: Asking) -> _Changes:
        """A call that a guard asks about is planned, even if it has no row of its own yet."""
        is_about_call = key.mark == "?" and key.i >= 0 and not key.asked
        if is_about_call and asked.call is not None and key.owner not in self._tool_calls:
            planned = ToolCall(key.owner, key.n, key.i, record.step, asked.call, asked.call)
            self._tool_calls[key.owner] = planned
            yield "planned", planned
        for each in self._questions.values():
            its = read_key(each.key)
            if each.is_open and key.mark and (its.owner, its.mark, its.guard) == (key.owner, key.mark, key.guard):
                self._questions[each.key] = replace(each, closed=True)
        id = question_id(self.run, record.key)
        about = (asked.kind, asked.text, self.run, id, asked.call, key.guard, asked.reasons)
        question = Question(record.key, key.n, key.i, record.step, *about)
        self._questions[record.key] = question
        yield "waits", question

    def _close(self, key: str) -> None:
        """Note that an entry has ended, or was raised: nobody waits for what is below it."""
        _close_below(self._questions, key)
        _close_below(self._children, key)


_REMARKS = {"note", "repeated", "trouble"}
"""The fields of an observation that say something about a result."""


def _remove_attempt(key: str) -> str:
    """Return the key of the model call that an attempt belongs to."""
    return key.rpartition("a")[0]


def _close_below(entries: dict[str, _Closable], key: str) -> None:
    for each in entries.values():
        rest = each.key.removeprefix(key)
        if each.is_open and rest != each.key and not rest[:1].isdigit():
            entries[each.key] = replace(each, closed=True)
