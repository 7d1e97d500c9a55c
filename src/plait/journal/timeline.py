"""A run as typed values: the only reader of the rows of a trace.

Rows refer to each other by numbers, which a `Timeline` resolves. Each row gives one or more `Moment`s: what changed,
and the new state of the model call, tool call, piece of code, question or note. All other code reads a trace this way;
tests/test_one_reader.py checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, TypeGuard

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from plait.core import Call, Observation, Reply
from plait.journal.records import (
    Acting,
    Begun,
    Got,
    HookRecord,
    NoteRecord,
    ObservedRecord,
    RanRecord,
    Record,
    Resumed,
    Row,
    StartRecord,
    Thinking,
    ThoughtRecord,
    Thrown,
    TookRecord,
    UserAnswer,
    Waits,
)


class RecordedResponse(Got, frozen=True, kw_only=True):
    """The end of a request, in row `seq`, with the exact `body` of the response. `status` is 0 if no response came."""

    seq: int
    body: bytes | None


class ModelAttempt(Struct, frozen=True):
    """A request to a model and its response. `number` counts the attempts of a call from 0.

    `request` is the exact body. `max_tokens` is the reply length that the run's limits allowed, if they set one.
    """

    seq: int
    number: int
    phase: str
    model: str
    path: str
    max_tokens: int | None
    request: bytes
    response: RecordedResponse | None = None


class ModelCall(Struct, frozen=True):
    """A model call: its attempts, at least one, and the reply that the loop received.

    `asked_by` is (i, k) for call k that a tool made while call i of effect `n` ran it; None for a call of the loop.
    """

    n: int
    step: int
    attempts: tuple[ModelAttempt, ...]
    reply: Reply | None = None
    asked_by: tuple[int, int] | None = None

    @property
    def id(self) -> str:
        """Return what tells this call from the other model calls of the run."""
        return f"{self.n}" if self.asked_by is None else f"{self.n}.{self.asked_by[0]}.{self.asked_by[1]}"

    @property
    def last(self) -> ModelAttempt:
        return self.attempts[-1]

    @property
    def phase(self) -> str:
        return self.last.phase

    @property
    def model(self) -> str:
        """Return the model of the last attempt."""
        return self.last.model

    @property
    def request(self) -> bytes:
        """Return the exact body of the last attempt."""
        return self.last.request


ChangedBy: TypeAlias = Literal["", "hook", "user"]
"""Who changed the input of a call before it was made; "" for nobody."""


class ToolCall(Struct, frozen=True):
    """Call `i` of effect `n`: as the loop `planned` it, and as it is made (`call`).

    `bound` is the planned call as guards saw it first. `call` differs from it if hooks or the user changed the input
    (`changed_by`). It is in doubt if it has `begun` and has no `observation`. `artifacts` are what it returned, as
    stored.
    """

    n: int
    i: int
    step: int
    planned: Call
    bound: Call
    call: Call
    changed_by: ChangedBy = ""
    begun: bool = False
    observation: Observation | None = None
    artifacts: bytes | None = None

    @property
    def shown(self) -> Call:
        """Return the call in the model's own words, unless its input was changed."""
        return self.call if self.changed_by else self.planned


class Question(Waits, frozen=True):
    """A question to the user, and the answer."""

    answer: UserAnswer | None = None


# One row holds these whole, so that the entry is the record.
CodeTurn = RanRecord
HookDecision = HookRecord
RecordedNote = NoteRecord
LoopException = Thrown
Resumption = Resumed
EffectsStarted = StartRecord
EffectTaken = TookRecord

Entry: TypeAlias = (
    ModelCall
    | ToolCall
    | CodeTurn
    | Question
    | HookDecision
    | RecordedNote
    | LoopException
    | Resumption
    | EffectsStarted
    | EffectTaken
)
Change: TypeAlias = Literal[
    "asked",  # a ModelCall: a further attempt
    "responded",  # its last attempt ended
    "replied",  # it has its reply
    "planned",  # a ToolCall: known, not started
    "began",
    "ended",
    "ran",  # a CodeTurn
    "waits",  # a Question
    "answered",
    "decided",  # a HookDecision
    "noted",
    "raised",  # a LoopException
    "resumed",
    "started",
    "took",
]

_CHANGES: dict[type[Record], Change] = {
    RanRecord: "ran",
    NoteRecord: "noted",
    Thrown: "raised",
    Resumed: "resumed",
    StartRecord: "started",
    TookRecord: "took",
}
"""The change of each record that is an entry itself and belongs to no earlier row."""


class Moment(Struct, frozen=True):
    """The change of a row: the entry after it. `seq` is the row's number, `at` its time (seconds since 1970)."""

    seq: int
    at: float
    change: Change
    entry: Entry


class Timeline:
    """A run's trace. `moments` are in the order of the rows; the other properties hold the latest state of each entry.

    Rows can be added while the run continues.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.moments: list[Moment] = []
        self.seconds = 0.0
        """Seconds of the run, without those in which it only waited: for the user, another process, a retry."""
        self._model_calls: dict[tuple[int, tuple[int, int] | None], ModelCall] = {}
        self._tool_calls: dict[tuple[int, int], ToolCall] = {}
        self._questions: dict[tuple[int, int, str], Question] = {}
        self._asked: dict[tuple[int, int], str] = {}
        """The last questions about calls, which an answer need not name."""
        self._decided: dict[tuple[int, int], HookRecord] = {}
        """What hooks decided about calls that are not planned yet."""
        self._last_at = 0.0
        for row in rows:
            self.add(row)

    def add(self, row: Row, *, keep_body: bool = True) -> list[Moment]:
        """Add the next row and return what it changed.

        Without `keep_body`, the row's request or response is empty here, to save memory in long runs.
        """
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
        if not isinstance(record, Thinking) or not record.attempt:
            return isinstance(record, Resumed | UserAnswer)
        asking = (record.n, record.asked_by[0]) if record.asked_by is not None else None
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
        """Return the tool calls, in the order they were planned."""
        return list(self._tool_calls.values())

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
        """Return the questions to the user, in order."""
        return list(self._questions.values())

    @property
    def open_questions(self) -> list[Question]:
        """Return the questions without an answer."""
        return [each for each in self._questions.values() if each.answer is None]

    @property
    def answered_questions(self) -> list[Question]:
        """Return the questions with an answer, in the order of the answers."""
        answered = [each.entry for each in self.moments if each.change == "answered"]
        return [each for each in answered if isinstance(each, Question)]

    @property
    def resumptions(self) -> list[Resumption]:
        """Return one entry for each time that another process resumed the run."""
        return [each.entry for each in self.moments if isinstance(each.entry, Resumption)]

    # -- reading rows

    def _read(self, row: Row, body: bytes | None) -> Iterator[tuple[Change, Entry]]:
        """Yield what a row changes. A row whose effect has no start on record changes nothing."""
        record = row.record
        match record:
            case Thinking():
                yield "asked", self._add_attempt(row.seq, record, body)
            case Got(n=n, asked_by=by) if (n, by) in self._model_calls:
                yield "responded", self._add_response(row.seq, record, body)
            case ThoughtRecord(n=n, reply=reply, asked_by=by) if (n, by) in self._model_calls:
                self._model_calls[n, by] = call = replace(self._model_calls[n, by], reply=reply)
                yield "replied", call
            case Acting(n=n, step=step):
                for i, each in enumerate(record.calls):
                    bound = replace(each, input=record.bound[i]) if i in record.bound else each
                    planned = ToolCall(n, i, step, each, bound, bound)
                    yield "planned", self._put_call(self._decide_call(planned, self._decided.pop((n, i), None)))
                yield from self._begin_calls(n, record.begun)
            case Begun(n=n):
                yield from self._begin_calls(n, record.begun)
            case ObservedRecord(n=n, i=i, observation=observation) if (n, i) in self._tool_calls:
                ended = replace(self._tool_calls[n, i], observation=observation, artifacts=body)
                yield "ended", self._put_call(ended)
            case Waits(n=n, i=i):
                asked = Question(**asdict(record))
                # A child run may ask several questions during one call, each by its id. Hooks ask more of them.
                self._questions[n, i, record.question] = asked
                if not (record.child or record.point):
                    self._asked[n, i] = record.question
                yield "waits", asked
            case UserAnswer(n=n, i=i, question=id) if (
                key := (n, i, id or self._asked.get((n, i), ""))
            ) in self._questions:
                self._questions[key] = answered = replace(self._questions[key], answer=record)
                if (n, i) in self._tool_calls and not id and record.input:
                    known = self._tool_calls[n, i]
                    self._put_call(replace(known, call=record.edit(known.call), changed_by="user"))
                yield "answered", answered
            case HookRecord(n=n, i=i):
                if record.point == "before_tool" and (n, i) in self._tool_calls:
                    self._put_call(self._decide_call(self._tool_calls[n, i], record))
                elif record.point == "before_tool":
                    self._decided[n, i] = record
                yield "decided", record
            case RanRecord() | NoteRecord() | Thrown() | Resumed() | StartRecord() | TookRecord():
                yield _CHANGES[type(record)], record

    def _add_attempt(self, seq: int, asked: Thinking, body: bytes | None) -> ModelCall:
        attempt = ModelAttempt(seq, asked.attempt, asked.phase, asked.model, asked.path, asked.max_tokens, body or b"")
        before = self._model_calls.get((asked.n, asked.asked_by))
        attempts = before.attempts if before is not None else ()
        call = ModelCall(asked.n, asked.step, (*attempts, attempt), asked_by=asked.asked_by)
        self._model_calls[asked.n, asked.asked_by] = call
        return call

    def _add_response(self, seq: int, got: Got, body: bytes | None) -> ModelCall:
        response = RecordedResponse(**asdict(got), seq=seq, body=body)
        call = self._model_calls[got.n, got.asked_by]
        attempts = tuple(
            replace(each, response=response) if each.number == got.attempt else each for each in call.attempts
        )
        self._model_calls[got.n, got.asked_by] = call = replace(call, attempts=attempts)
        return call

    def _begin_calls(self, n: int, begun: Sequence[int]) -> Iterator[tuple[Change, Entry]]:
        for i in begun:
            if (n, i) in self._tool_calls:
                yield "began", self._put_call(replace(self._tool_calls[n, i], begun=True))

    def _decide_call(self, call: ToolCall, decided: HookRecord | None) -> ToolCall:
        if decided is None or not decided.changed:
            return call
        return replace(call, call=convert(decided.value, Call), changed_by="hook")

    def _put_call(self, call: ToolCall) -> ToolCall:
        self._tool_calls[call.n, call.i] = call
        return call


# -- forks


def select_rows_before(rows: Sequence[Row], at: int) -> tuple[list[Row], int]:
    """Return the rows that a fork from step `at` takes over, and the number of the last step.

    A question without an answer, and the approval of a call that was not made, are for the run that asked: a fork asks
    anew. What a loop did after a limit was near is not taken over either: a fork has limits of its own.
    """
    steps = _steps_of_effects(rows)
    near = next((row for row in rows if isinstance(row.record, Thrown) and row.record.kind in _LIMITS), None)
    kept = [row for row in rows if _step_of(row.record, steps) < at and not (near and _is_after(row, near))]
    timeline = Timeline(kept)
    asked = {(each.n, each.i) for each in timeline.questions if each.i < 0 and each.answer is not None}
    made = {(each.n, each.i) for each in timeline.tool_calls if each.begun or each.observation is not None}
    used = [row for row in kept if not _is_about_call(row.record) or (row.record.n, row.record.i) in asked | made]
    return used, max(steps.values(), default=0)


def _is_about_call(record: Record) -> TypeGuard[Waits | UserAnswer | HookRecord]:
    """Say whether a row counts only if its call was made, or its question answered."""
    return isinstance(record, Waits | UserAnswer) or (isinstance(record, HookRecord) and record.i >= 0)


_LIMITS = ("LimitNear", "LimitReached")


def _is_after(row: Row, near: Row) -> bool:
    """Say whether a row is that of the limit, or of an effect after it. Results of earlier effects may come later."""
    if isinstance(row.record, NoteRecord):
        return row.seq > near.seq
    assert isinstance(near.record, Thrown)
    return not isinstance(row.record, Resumed) and row.record.n >= near.record.n


def _step_of(record: Record, steps: dict[int, int]) -> float:
    """Return the step of a row; infinite for a row of the runtime, which a fork never takes over."""
    if isinstance(record, NoteRecord):
        return record.step if record.n >= 0 else float("inf")
    if isinstance(record, HookRecord) or (isinstance(record, Waits) and record.point):
        return record.step
    return float("inf") if isinstance(record, Resumed) else steps.get(record.n, 0)


def _steps_of_effects(rows: Sequence[Row]) -> dict[int, int]:
    """Return the step of each effect. A start belongs to the first step that it started, a take to the last started
    one."""
    steps: dict[int, int] = {}
    for row in rows:
        record = row.record
        if isinstance(record, Waits) and record.point:
            continue  # one about an answer has the number of the next effect
        if isinstance(record, Thinking | Acting | RanRecord | Waits | Thrown):
            steps.setdefault(record.n, record.step)
    begun = dict(steps)
    for row in rows:
        record = row.record
        if isinstance(record, StartRecord | TookRecord):
            before = max((step for n, step in begun.items() if n < record.n), default=0)
            started = record.tickets if isinstance(record, StartRecord) else ()
            steps[record.n] = min((begun[n] for n in started if n in begun), default=before)
    return steps
