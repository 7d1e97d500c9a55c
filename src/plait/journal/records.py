"""The records of a run: what each row of the journal holds.

A run is a head (`RunHead`) and rows. Each row belongs to an entry, which is one journaled unit of work, and has its
key. A key is a path that does not depend on timing:

    "3"                      the loop's effect 3, counted from 0
    "3a0"                    the first attempt of its model call
    "3.1"                    its second tool call
    "3.1:m5f0c1a.0"          the first model call that this tool call asked for with a request of this digest
    "3.1:c90ab17.0"          the first child run that it started with a question of this digest
    "3.1:qb7720e.0"          the question to the user that this tool call is, or asks
    "3.1:ub7720e.0"          this tool call went on with the answer
    "3+0"                    the first message, or background result, that its request got with it
    "3~0"                    the first check that the loop made before its effect 3
    "3.1?approvals@5f0c1a"   what the guard `approvals` decided before the call, about this bound input
    "3.1!redact@90ab17"      what the guard `redact` decided after it, about this result
    "n0"                     the loop's first note
    ""                       the run itself

Four kinds of rows: an `IntentRecord` says that work begins, a `ResultRecord` how it ended, `RaisedRecord` what the loop
received in place of a result, a `NoteRecord` is a remark. An intent without a result is work in doubt; that of a
decision is an open question. What was written stands: a later row of the same key and kind replaces an earlier one.

`work` names the kind of work, and tells how the values are read. `Timeline` is the only reader of values:

    work       asked                made          result           body of intent, of result
    request    RequestRecord        -             ResponseRecord       the exact request, the exact response
    think      -                    -             Reply
    call       Call                 MadeCall      Observation      -, the artifacts as MessagePack {id: (kind, bytes)}
    code       the piece, or None   -             CodeResult       -, the artifacts, as of a call
    question   Asking               -             the user's text
    decision   Asking               -             Decision
    take       -                    -             WaitResult
    child      ChildStart           -             ChildEnd
    use        -                    -             -
    message    -                    -             {"number", "text", "by"}
    delivery   -                    -             the key of a call in the background

An unknown kind of work is read as JSON, so that a new kind needs no new record.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from plait.core import Attachment, Call, Exchange, PastCall, Ran, Usage


class CallHolder(Struct, frozen=True, omit_defaults=True):
    """Who makes a call of a tool that can say whether it took effect: the run and the process (its owner string).

    The call's idempotency key follows from the run, the entry's key, and `closed`: how many keys of it were closed."""

    run: str
    process: str
    closed: int = 0


class IntentRecord(Struct, frozen=True, omit_defaults=True, tag="intent"):
    """Work begins. `asked` is the work as the loop wants it, `made` as the guards left it, where that differs."""

    key: str
    step: int
    work: str
    asked: Any = None
    made: Any | UnsetType = UNSET
    holder: CallHolder | None = None


class ResultRecord(Struct, frozen=True, omit_defaults=True, tag="result"):
    """Work has ended. `asked` is there only if the entry has no intent: its work was refused, and never began.
    `value_is_text`: only in a stored row. The value of its observation equals its text, and is left out. Of an
    answer, `by` is the name of the user who gave it ("": not known), `at` when: a fork's row of it has a later time."""

    key: str
    step: int
    work: str
    value: Any = None
    asked: Any | UnsetType = UNSET
    value_is_text: bool = False
    by: str = ""
    at: float = 0.0


class RaisedRecord(Struct, frozen=True, omit_defaults=True, tag="raised"):
    """The loop received an exception in place of a result, or (`LimitReached`, `EndedByRefusal`) the run ended with it.

    `kind` is its class name. `asked` is the digest of the loop's effect. `said` are the words with which an
    endpoint rejected native tools, "" if that was known."""

    key: str
    step: int
    kind: Literal["LimitNear", "LimitReached", "ContextOverflow", "Unsupported", "EndedByRefusal"]
    limit: str = ""
    detail: str = ""
    tokens: int = 0
    room: int = 0
    said: str = ""
    asked: str = ""


class NoteRecord(Struct, frozen=True, omit_defaults=True, tag="note"):
    """A remark of the loop (key "n0", "n1" ...), or of the runtime (key "", or that of the entry it is about).

    A note of kind "resumed" begins the rows of a further process: `value` is then a `Resumption`.
    """

    key: str
    step: int
    kind: str
    text: str = ""
    value: Any = None


Record: TypeAlias = IntentRecord | ResultRecord | RaisedRecord | NoteRecord


# -- the values


class RequestRecord(Struct, frozen=True, omit_defaults=True):
    """An attempt to ask a model. `model` is the model's spec. `max_tokens` is the reply's maximum number of tokens if a
    guard set one, else None."""

    phase: str
    model: str
    path: str
    max_tokens: int | None = None


LOST = "Lost: the process ended before the reply"
"""The error of an attempt that was interrupted."""


class ResponseRecord(Struct, frozen=True, omit_defaults=True):
    """The end of an attempt; `error` says what was wrong. `status` is 0 if no response came.

    `lost` names an ability that the endpoint turned out not to have. `usage` and `cost` (USD, None if no price is
    known) are estimates for an attempt without a reply; None if it took nothing. `fallback` is the spec of the model
    that the run asks instead from here, "" if it stays with this one."""

    status: int
    seconds: float
    error: str = ""
    lost: str = ""
    cut: bool = False
    usage: Usage | None = None
    cost: float | None = None
    fallback: str = ""


class MadeCall(Struct, frozen=True, omit_defaults=True):
    """A call as guards saw it and as the tool gets it: bound by name, with types and defaults. `by` says who changed
    its input, "" if nobody. `words` has the JSON that a guard or the user gave for a parameter, where `call` has
    another."""

    call: Call
    by: Literal["", "hook", "user"] = ""
    words: dict[str, Any] = {}


class CodeResult(Struct, frozen=True, omit_defaults=True):
    """What became of a piece of code, or (`code` is None) of continuing the last one. `now` is the code's clock in
    seconds since 1970, `zone` the local offset from UTC in seconds, `seed` the seed of the session's random numbers."""

    ran: Ran
    code: str | None = None
    now: float = 0.0
    seed: int = 0
    zone: int | None = None


class Asking(Struct, frozen=True, omit_defaults=True):
    """A question to the user. `call` is the call to approve, as it would be made; None for another question. `reasons`
    are the sentences at the end of `text` that say why a guard asks. `state` is what a tool that asks needs to go on in
    another process; None if it cannot."""

    kind: Literal["question", "approval", "plan"]
    text: str
    call: Call | None = None
    reasons: tuple[str, ...] = ()
    state: Any = None


class Decision(Struct, frozen=True, omit_defaults=True):
    """What a guard, or the user whom it asked, decided. `value`: for "change" the fields that differ (of a value that
    is no object: the value), for "edit" the user's input; `bound` is that input as the tool gets it. `text` is the
    reason of a refusal, or the user's words. `by_user`: the user decided."""

    action: Literal["change", "refuse", "yes", "edit"]
    value: Any = None
    text: str = ""
    bound: Any = None
    by_user: bool = False


class ChildStart(Struct, frozen=True, omit_defaults=True):
    """A child run that a tool call starts."""

    run: str
    question: str = ""


class ChildEnd(Struct, frozen=True, omit_defaults=True):
    """The end of a child run. `totals` are those of its row: what it used, and what the guards of its parent must
    know."""

    status: str
    totals: dict[str, Any] = {}


class Resumption(Struct, frozen=True, omit_defaults=True):
    """Another process goes on with the run. `models` are the models asked from here. `lost` says why rows may be
    missing that say what the run did: its calls with effects need approval. `request` names the request that resumed
    it, if a client may send that again."""

    models: dict[str, Any]
    lost: str = ""
    request: str = ""


class Row(Struct, frozen=True):
    """A row: its number in the run, when (seconds since 1970), the record, and its exact bytes."""

    seq: int
    at: float
    record: Record
    body: bytes | None = None


class ParentCall(Struct, frozen=True):
    """The entry of a run's tool call that started a child run; `key` is that of the child's entry."""

    run: str
    key: str


class RunHead(Struct, frozen=True, omit_defaults=True):
    """The settings a run started with: enough to start it again.

    `loop` is {"name": ..., "options": {...}}. `models` maps a phase ("" for all) to the result of `Model.describe`.
    `tools` are the specs that the model saw; `sources` are the words they were loaded by ("" for one given in Python).
    `settings` has limits, approval and other settings. `session` is the run's conversation, `history` the recent turns
    that the loop saw, `given` all turns before it if the caller passed them and not all are shown whole. `label` is a
    name for finding the run again, `agent` the name of the agent that made it: it is never imported. `attachments` are
    the files of the question. `parent` is the run that a fork comes from, `taken` the number of rows that the fork took
    over (0 in older journals), `caller` the call that started a child run. `user`, `tags`, `metadata` (JSON) are what
    the caller says of the run; a child run has the user and the tags of its parent.
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
    attachments: tuple[Attachment, ...] = ()
    caller: ParentCall | None = None
    user: str = ""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    agent: str = ""
    taken: int = 0

    @property
    def agent_words(self) -> tuple[str, ...]:
        """The words by which a printed command names the agent, if its name is a place such as `support:agent`."""
        return ("-a", quote(self.agent)) if ":" in self.agent or self.agent.endswith(".py") else ()

    @property
    def has_begun(self) -> bool:
        """Return whether the run has begun: of one that waits in a queue, the journal has only who asks what."""
        return bool(self.plait)

    @property
    def files(self) -> tuple[Attachment, ...]:
        """Return the files of the question and of the earlier turns."""
        earlier = (file for turn in (*self.given, *self.history) for file in turn.attachments)
        return tuple(dict.fromkeys((*self.attachments, *earlier)))

    def address(self, phase: str, path: str, spec: str = "") -> str:
        """Return where a request went: the endpoint's address and path; the path alone if there is no server. `spec` is
        the model that was asked, if the phase has fallback models."""
        model: dict[str, Any] = self.models.get(phase) or self.models.get("") or {}
        model = next((each for each in model.get("members", ()) if each.get("spec") == spec), model)
        return "/".join(filter(None, (str(model.get("endpoint", "")).rstrip("/"), path)))


class SessionTurn(Struct, frozen=True):
    """A turn of a conversation, as a later turn sees it.

    `number` counts the session's turns from 1. `answer` is the reply as text, None if there is none. `started` is in
    seconds since 1970, and so is `updated`, when it began, went on or ended last. `calls` are the tool calls of a turn
    that the caller passed; those of a recorded turn are in its run. `attachments` are the files of the question, which
    has their names.
    """

    number: int
    run: str
    question: str
    answer: str | None
    started: float
    calls: tuple[PastCall, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    updated: float = 0.0


class LastTurn(NamedTuple):
    """The last turn of a session as it was read: its run, "" for none, and when that was updated."""

    run: str = ""
    updated: float = 0.0

    @classmethod
    def of(cls, turns: Sequence[SessionTurn]) -> LastTurn:
        """Return the last one of the turns that were read."""
        return cls(turns[-1].run, turns[-1].updated) if turns else cls()


class SessionRow(Struct, frozen=True):
    """A conversation as listed: its name, its number of turns, the question and start of the last turn, the first
    question, and the number of the last run."""

    name: str
    turns: int
    question: str
    started: float
    first: str = ""
    n: int = 0


class RunTotals(Struct, frozen=True):
    """What a run used, with what it can be grouped by: a `RunRow` without its head, which may be large."""

    run: str
    label: str
    user: str
    agent: str
    tags: tuple[str, ...]
    fork_at: int
    started: float
    totals: dict[str, Any]
    """empty until the run ends"""
    status: str
    """that in the journal: "running" also for an interrupted run"""
    has_succeeded: bool
    """it was answered, and is neither graded as no success nor rated as bad"""
    models: tuple[str, ...] = ()
    """its models, if they were asked for"""


class RunRow(Struct, frozen=True):
    """A run as listed: its head, state and sums. `outcome` is None while it is running."""

    head: RunHead
    status: str
    """running, or the outcome's status"""
    outcome: dict[str, Any] | None
    totals: dict[str, Any]
    started: float
    updated: float
    owner: str
    """host:pid:start of the process that performs it; "" if none does"""
    grade: dict[str, Any] | None = None
    """the `plait.lab.Grade` of a comparison, as JSON; None if none graded the run"""
    n: int = 0
    """number in its store: runs that began later have greater ones"""
    rating: str = ""
    """good or bad, as a user rated it; "" if nobody did"""

    @property
    def id(self) -> str:
        return self.head.run

    @property
    def verdict(self) -> str:
        """Return the status for people, with grade and rating if there are any: `answered, graded wrong, rated bad`."""
        graded = f", graded {self.grade['mark']}" if self.grade is not None else ""
        return self.status + graded + (f", rated {self.rating}" if self.rating else "")
