"""The events a run's record is made of: what each row of the journal holds.

Effects of a run are numbered 0, 1, 2 ... in the order the loop made them: `n`. An effect that is
started and taken later has its own number. `step` counts the loop's turns from 1.

What is written when:
- think: `Thinking` (with the exact request) before the model is asked; `Got` when an attempt ended,
  and a further `Thinking` before a further attempt; `Thought` with the reply when it is whole.
- act: `Acting` before the calls begin, naming those that begin at once; `Begun` for one that began
  later (after leave was given); `Observed` as each ends. A call that began and has no `Observed` is in doubt.
- ask, or a call that needs leave: `Waits` when the run begins to wait, `Told` with the person's answer.
- execute, continue: `RanRecord` when the code came back, together with the next intent: code does nothing outside but
  by calls, which have their own records.
- take: `TookRecord`, so that replay takes in the same order.
- `Thrown` when `LimitNear`, `ContextOverflow` or `Unsupported` was given to the loop in place of a result, or
  `LimitReached` ended the run.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from plait.core import Call, Exchange, Observation, Ran, Reply, WaitResult, Usage


class Thinking(Struct, frozen=True, omit_defaults=True, tag="thinking"):
    """A model is about to be asked. The row's request is the exact body. `model` is its spec. `most` are the
    tokens that the reply may have where a limit of the run said so, None where none did."""

    n: int
    step: int
    phase: str
    model: str
    path: str
    attempt: int = 0
    most: int | None = None


class Got(Struct, frozen=True, omit_defaults=True, tag="got"):
    """An attempt ended. The row's response is the exact body, if any came; `error` says what was wrong.

    `lost` names an ability that the endpoint turned out not to have. `usage` and `cost` (USD, None where no price is
    known) are what an attempt took that brought no reply, estimated from what was received; None: nothing.
    """

    n: int
    attempt: int
    status: int
    seconds: float
    error: str = ""
    lost: str = ""
    cut: bool = False
    usage: Usage | None = None
    cost: float | None = None


class Thought(Struct, frozen=True, omit_defaults=True, tag="thought"):
    """The reply that the loop was given."""

    n: int
    reply: Reply


class Acting(Struct, frozen=True, omit_defaults=True, tag="acting"):
    """Calls are about to be made; `begun` are the indexes of those that begin at once."""

    n: int
    step: int
    calls: tuple[Call, ...]
    begun: tuple[int, ...] = ()


class Begun(Struct, frozen=True, tag="begun"):
    """Calls of effect `n` that begin now, later than the others."""

    n: int
    begun: tuple[int, ...]


class ObservedRecord(Struct, frozen=True, omit_defaults=True, tag="observed"):
    """Call `i` of effect `n` ended. The row carries the artifacts it gave, as MessagePack: {id: (kind, bytes)}.

    `value_is_text`: only in a stored row, whose observation then has no value: it is the same as the text.
    """

    n: int
    i: int
    observation: Observation
    value_is_text: bool = False


class RanRecord(Struct, frozen=True, omit_defaults=True, tag="ran"):
    """What came of a piece of `code`, or (None) of going on with the one before. `now` is what its clock said, in
    seconds since 1970, `zone` how many seconds its local time was ahead of UTC; `seed` is that of the session's random
    numbers."""

    n: int
    step: int
    ran: Ran
    code: str | None = None
    now: float = 0.0
    seed: int = 0
    zone: int | None = None


class Waits(Struct, frozen=True, omit_defaults=True, tag="waits"):
    """The run waits for a person: about call `i` of effect `n`, or (i is -1) with a question.

    `question` is the id that an answer names. It is worked out from the run, from `n` and `i`, and from what is asked.
    """

    n: int
    step: int
    kind: Literal["question", "approval", "plan"]
    text: str
    i: int = -1
    question: str = ""


class Told(Struct, frozen=True, omit_defaults=True, tag="told"):
    """What the person said. For an approval, `approved` says whether the call may be made, and `input` holds the one
    input that it is made with in place of the model's, if they changed it."""

    n: int
    text: str
    i: int = -1
    approved: bool | None = None
    input: tuple[Any, ...] = ()

    def edit(self, call: Call) -> Call:
        """Return the call with the input that the person put in place of the model's, if they did."""
        return replace(call, input=self.input[0], by_code=False) if self.input else call


class NoteRecord(Struct, frozen=True, tag="note"):
    """A remark of the loop (it has a number of its own) or of the runtime (`n` is -1)."""

    n: int
    step: int
    kind: str
    text: str


class StartRecord(Struct, frozen=True, tag="start"):
    """Effect `n` started others; `tickets` are their numbers."""

    n: int
    tickets: tuple[int, ...]


class TookRecord(Struct, frozen=True, tag="took"):
    """Effect `n` took a finished result. The result itself stands with its own effect (`taken` has no reply
    or observations), except for a piece of a watched reply."""

    n: int
    taken: WaitResult


class Thrown(Struct, frozen=True, omit_defaults=True, tag="thrown"):
    """In place of a result of effect `n` the loop was given an exception: kind is its class name."""

    n: int
    step: int
    kind: Literal["LimitNear", "LimitReached", "ContextOverflow", "Unsupported"]
    limit: str
    detail: str
    tokens: int = 0
    room: int = 0


class Resumed(Struct, frozen=True, omit_defaults=True, tag="resumed"):
    """The run goes on in another process. `models` is what is asked from here on.

    `lost` says why calls are in doubt: the journal lost rows, or may have. `lost_calls` are digests of calls that began
    and whose rows are lost.
    """

    models: dict[str, Any]
    lost: str = ""
    lost_calls: tuple[str, ...] = ()


Record: TypeAlias = (
    Thinking
    | Got
    | Thought
    | Acting
    | Begun
    | ObservedRecord
    | RanRecord
    | Waits
    | Told
    | NoteRecord
    | StartRecord
    | TookRecord
    | Thrown
    | Resumed
)


class Row(Struct, frozen=True):
    """One row: its place in the run, when (seconds since 1970), the record, and the exact bytes it carries."""

    seq: int
    at: float
    record: Record
    body: bytes | None = None


class RunHead(Struct, frozen=True, omit_defaults=True):
    """What a run was started with: enough to start it again.

    `loop` is {"name": ..., "options": {...}}; `models` maps a phase ("" for all) to what
    `Model.describe` gave; `tools` are the specs as the model saw them and `sources` the words they were
    loaded by ("" for one given in Python); `settings` has limits, approval and the like. `session` is the
    conversation the run is a turn of, `history` the recent turns that the loop was shown. `given` are all turns before
    it, where whoever asked brought them along and they are more than is shown. `label` is what the run is found again
    by.
    """

    run: str
    question: str
    loop: dict[str, Any]
    models: dict[str, Any]
    tools: tuple[dict[str, Any], ...] = ()
    sources: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    parent: str = ""
    fork_at: int = 0
    plait: str = ""
    session: str = ""
    history: tuple[Exchange, ...] = ()
    label: str = ""
    given: tuple[Exchange, ...] = ()

    def address(self, phase: str, path: str) -> str:
        """Where a request went: the endpoint's address and the path under it, the path alone where no server is."""
        model: dict[str, Any] = self.models.get(phase) or self.models.get("") or {}
        return "/".join(filter(None, (str(model.get("endpoint", "")).rstrip("/"), path)))


class SessionTurn(Struct, frozen=True):
    """A turn of a conversation, as far as a later turn is told of it.

    `number` counts the session's turns from 1. `answer` is the reply as text, None where none was given.
    `started` is in seconds since 1970.
    """

    number: int
    run: str
    question: str
    answer: str | None
    started: float


class SessionRow(Struct, frozen=True):
    """A conversation as listed: its name, how many turns it has, and of the last one the question and when it began."""

    name: str
    turns: int
    question: str
    started: float


class RunRow(Struct, frozen=True):
    """A run as listed: its head, state and sums. `outcome` is None while it is going on."""

    head: RunHead
    status: str
    """running, or the outcome's status"""
    outcome: dict[str, Any] | None
    totals: dict[str, Any]
    started: float
    updated: float
    owner: str
    """host:pid:start of the process that performs it, "" when none does"""
