"""The entries of a run as a `Timeline` gives them: model calls, tool calls, pieces of code, questions, notes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from plait.core import Call, Observation, Reply
from plait.core.text import sentence
from plait.journal.records import ChildEnd, CodeResult, Decision, RaisedRecord, ResponseRecord, Resumption


class RecordedResponse(ResponseRecord, frozen=True, kw_only=True):
    """The end of a request, in row `seq`, with the exact `body` of the response. `status` is 0 if no response came."""

    seq: int
    body: bytes | None


class ModelAttempt(Struct, frozen=True):
    """A request to a model and its response. `number` counts the attempts of a call from 0. `request` is the exact
    body. `max_tokens` is the reply length that a guard allowed, if one set it."""

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

    The loop made it as its effect `n` (`i` is -1), or the tool that call `i` of effect `n` ran. `key` tells it from the
    other model calls of the run.
    """

    key: str
    n: int
    i: int
    step: int
    attempts: tuple[ModelAttempt, ...]
    reply: Reply | None = None

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

    `call` has the names and types that the tool gets; hooks or the user may have changed its input (`changed_by`).
    `words` has the JSON that they gave for a parameter, where `call` has another. A call that has `begun`, and has no
    `observation`, is in doubt if its tool must not be called twice. `observation` is the tool's result;
    `changed_result` what the loop received instead, if a guard changed or withheld it. `artifacts` are what the tool
    returned, as stored. `edited`: the user gave this fork another result than the tool returned.
    """

    key: str
    n: int
    i: int
    step: int
    planned: Call
    call: Call
    changed_by: ChangedBy = ""
    words: dict[str, Any] = {}
    begun: bool = False
    observation: Observation | None = None
    changed_result: Observation | None = None
    artifacts: bytes | None = None
    edited: bool = False

    @property
    def seen(self) -> Observation | None:
        """Return the result as the loop received it; None if there is none yet."""
        return self.changed_result or self.observation

    @property
    def status(self) -> str:
        """Return "ok", the kind of error ("raised", "refused" ...), or "open" without a result."""
        return "open" if self.seen is None else self.seen.trouble or "ok"

    @property
    def shown(self) -> Call:
        """Return the call in the model's own words, unless its input was changed."""
        return self.call if self.changed_by else self.planned


def say_refused(reason: str) -> str:
    """Return that the user refused something, with the user's reason if there is one."""
    return f"the person refused it: {reason}" if reason else "the person refused it"


def withhold_result(tool: str, made: Observation, reason: str, *, by_user: bool) -> Observation:
    """Return what the loop receives in place of a result that a guard, or the user whom it asked, withholds."""
    reason = say_refused(reason) if by_user else reason
    withheld = f"Error: the result of '{tool}' is withheld."
    text = reason if reason.startswith(withheld) else f"{withheld} {sentence(reason)}"
    return Observation(text, trouble="refused", seconds=made.seconds, outside=made.outside)


class CodeTurn(CodeResult, frozen=True, kw_only=True):
    """A piece of code that ran, or went on, as effect `n`. `artifacts` are the files that it made."""

    key: str
    n: int
    step: int
    artifacts: bytes | None = None


class Question(Struct, frozen=True):
    """A question of run `run` to the user, and the answer.

    The loop asks as its effect `n`, or a `guard` about the entry that is named in `key`: call `i`, or (-1) another. The
    answer to a loop is a text. `reasons` are the sentences at the end of the `text` that say why a guard asks.
    `question` is the id that an answer names. `by` is the name of the user who answered ("" if that is not known),
    `answered` when (seconds since 1970). `closed`: nobody waits for an answer any more, because a later question
    replaced it, or what it is about has ended.
    """

    key: str
    n: int
    i: int
    step: int
    kind: Literal["question", "approval", "plan"]
    text: str
    run: str = ""
    question: str = ""
    call: Call | None = None
    guard: str = ""
    reasons: tuple[str, ...] = ()
    answer: Decision | str | None = None
    by: str = ""
    answered: float = 0.0
    closed: bool = False

    @property
    def is_open(self) -> bool:
        return self.answer is None and not self.closed

    @property
    def edited_input(self) -> Any:
        """Return the input that the user gave in place of the call's; as the tool gets it, if that is known."""
        edit = self.answer
        return None if edit is None or isinstance(edit, str) else edit.value if edit.bound is None else edit.bound


class GuardDecision(Struct, frozen=True):
    """What a guard decided without the user, before or after an entry: call `i` of effect `n`, or (-1) another. See
    `Decision` for the other fields."""

    key: str
    n: int
    i: int
    step: int
    guard: str
    when: Literal["before", "after"]
    action: Literal["change", "refuse", "yes", "edit"]
    text: str = ""
    value: Any = None


class RecordedNote(Struct, frozen=True):
    """A remark of the loop, which counts them (`number`), or (-1) of the runtime."""

    key: str
    number: int
    step: int
    kind: str
    text: str
    value: Any = None


class LoopException(RaisedRecord, frozen=True, kw_only=True):
    """What the loop received in place of the result of effect `n`, or what ended the run."""

    n: int


class ChildRun(Struct, frozen=True):
    """A child run that call `i` of effect `n` started. `closed`: the call ended, or never will, before its `end`."""

    key: str
    n: int
    i: int
    step: int
    run: str
    question: str
    end: ChildEnd | None = None
    closed: bool = False

    @property
    def is_open(self) -> bool:
        return self.end is None and not self.closed


class OtherWork(Struct, frozen=True):
    """An entry of a kind of work that this module does not know: its values are what JSON holds."""

    key: str
    n: int
    step: int
    work: str
    asked: Any = None
    made: Any = None
    result: Any = None
    has_ended: bool = False


RecordedEntry: TypeAlias = (
    ModelCall
    | ToolCall
    | CodeTurn
    | Question
    | GuardDecision
    | RecordedNote
    | LoopException
    | Resumption
    | ChildRun
    | OtherWork
)
Change: TypeAlias = Literal[
    "asked",  # a ModelCall: a further attempt
    "responded",  # its last attempt ended
    "replied",  # it has its reply
    "planned",  # a ToolCall: known, not started
    "began",  # a ToolCall, a ChildRun, OtherWork
    "ended",
    "ran",  # a CodeTurn
    "waits",  # a Question
    "answered",
    "decided",  # a GuardDecision
    "noted",
    "raised",  # a LoopException
    "resumed",
]


class Moment(Struct, frozen=True):
    """The change of a row: the entry after it. `seq` is the row's number, `at` its time (seconds since 1970)."""

    seq: int
    at: float
    change: Change
    entry: RecordedEntry
