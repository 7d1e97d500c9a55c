"""The records of a run: what each row of the journal holds.

The effects of a run are numbered 0, 1, 2 ... in the order the loop made them: `n`. An effect that is started and taken
later has its own number. `step` counts the loop's turns from 1.

What is written when:
- think: `Thinking` (with the exact request) before the model is asked; `Got` when an attempt ended, and a further
  `Thinking` before a further attempt; `ThoughtRecord` with the complete reply.
- act: `Acting` before the calls start, with the indexes of those that start at once; `Begun` for one that starts
  later (after approval); `Observed` as each ends. A call that started and has no `Observed` is in doubt.
- ask, or a call that needs approval: `Waits` when the run begins to wait, `UserAnswer` with the user's answer.
- execute, continue: `RanRecord` when the code came back, in one write with the next intent. Code affects the outside
  only through calls, which have their own records.
- take: `TookRecord`, so that a replay takes in the same order.
- hooks: `HookRecord` with what the hooks decided at a point of an effect, also if they changed nothing.
- `Thrown` when the loop received `LimitNear`, `ContextOverflow` or `Unsupported` instead of a result, or when
  `LimitReached` ended the run.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from plait.core import Attachment, Call, Exchange, Observation, PastCall, Ran, Reply, Usage, WaitResult


class Thinking(Struct, frozen=True, omit_defaults=True, tag="thinking"):
    """A request to a model, written before it is sent. The row's request is the exact body. `model` is the model's
    spec. `max_tokens` is the reply's maximum number of tokens if a limit of the run set one, else None. `asked_by` is
    (i, k) for request k of the tool that call i of effect `n` runs, None for a request of the loop."""

    n: int
    step: int
    phase: str
    model: str
    path: str
    attempt: int = 0
    max_tokens: int | None = field(default=None, name="most")
    asked_by: tuple[int, int] | None = None


class Got(Struct, frozen=True, omit_defaults=True, tag="got"):
    """The end of an attempt. The row's response is the exact body, if any came; `error` says what was wrong.

    `lost` names an ability that the endpoint turned out not to have. `usage` and `cost` (USD, None if no price is
    known) are estimates for an attempt without a reply; None if it took nothing. `fallback` is the spec of the model
    that the run asks instead from here, "" if it stays with this one. `asked_by` is that of the request.
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
    fallback: str = ""
    asked_by: tuple[int, int] | None = None


class ThoughtRecord(Struct, frozen=True, omit_defaults=True, tag="thought"):
    """The reply that the loop received, or the tool that asked for it (`asked_by`)."""

    n: int
    reply: Reply
    asked_by: tuple[int, int] | None = None


class Acting(Struct, frozen=True, omit_defaults=True, tag="acting"):
    """Calls that are about to be made, as the model wrote them; `begun` has the indexes of those that start at once.

    `bound` has the inputs that guards saw, by index: names, types and defaults as the tool gets them. A call whose
    input was in this form is left out.
    """

    n: int
    step: int
    calls: tuple[Call, ...]
    begun: tuple[int, ...] = ()
    bound: dict[int, Any] = {}


class Begun(Struct, frozen=True, tag="begun"):
    """Calls of effect `n` that start now, later than the others."""

    n: int
    begun: tuple[int, ...]


class ObservedRecord(Struct, frozen=True, omit_defaults=True, tag="observed"):
    """The end of call `i` of effect `n`. The row holds the call's artifacts as MessagePack: {id: (kind, bytes)}.

    `value_is_text`: only in a stored row. Its observation has no value, because the value equals the text.
    """

    n: int
    i: int
    observation: Observation
    value_is_text: bool = False


class RanRecord(Struct, frozen=True, omit_defaults=True, tag="ran"):
    """The result of a piece of `code`, or (None) of continuing the last one. `now` is the code's clock in seconds since
    1970, `zone` the local offset from UTC in seconds, `seed` the seed of the session's random numbers."""

    n: int
    step: int
    ran: Ran
    code: str | None = None
    now: float = 0.0
    seed: int = 0
    zone: int | None = None


class Waits(Struct, frozen=True, omit_defaults=True, tag="waits"):
    """The run waits for the user: about call `i` of effect `n`, or (i is -1) with a question.

    `question` is the id that an answer names. It depends on the run, on `n` and `i`, and on what is asked. `child` is
    the child run of call `i` that asks, "" if the run itself asks. `point` is the point of a hook that asks, "" if none
    does, or if the hook asks for approval of the call. `call` is the call to approve, as it would be made.
    """

    n: int
    step: int
    kind: Literal["question", "approval", "plan"]
    text: str
    i: int = -1
    question: str = ""
    child: str = ""
    point: str = ""
    call: Call | None = None


class UserAnswer(Struct, frozen=True, omit_defaults=True, tag="told"):
    """The user's answer. For an approval, `approved` says whether the call may be made. `input` holds the user's input
    in place of the model's, if they changed it: as guards see it, and as the user wrote it. `question` is the id of a
    question that a hook asked, or a child run, whose text is then as the user wrote it; "" for other questions."""

    n: int
    text: str
    i: int = -1
    approved: bool | None = None
    input: tuple[Any, ...] = ()
    question: str = ""

    def edit(self, call: Call) -> Call:
        """Return the call with the user's input in place of the model's, if they changed it."""
        return replace(call, input=self.input[0], by_code=False) if self.input else call


class HookRecord(Struct, frozen=True, omit_defaults=True, tag="hook"):
    """What the hooks decided at `point` of effect `n`: about call `i`, or (i is -1) about the model call.

    For an answer, `n` is the number of the next effect, and `i` counts the decisions there: -1, -2 ...

    `hooks` are the names of those that decided something, and `text` is the reason of a refusal or the question of an
    "ask". If they changed the value, `changed` is set, and `value` holds the new one; for a request, the fields that
    differ. At `before_tool`, `value` always is the call to make; its `words` are what the hooks wrote for a parameter,
    where the value made of it has another JSON form. Hooks decide about it again after the user edited it.
    """

    n: int
    step: int
    point: str
    i: int = -1
    action: Literal["pass", "refuse", "ask"] = "pass"
    hooks: tuple[str, ...] = ()
    text: str = ""
    changed: bool = False
    value: Any = None


class NoteRecord(Struct, frozen=True, tag="note"):
    """A note of the loop (which has its own number) or of the runtime (`n` is -1)."""

    n: int
    step: int
    kind: str
    text: str


class StartRecord(Struct, frozen=True, tag="start"):
    """Effect `n` started others; `tickets` are their numbers."""

    n: int
    tickets: tuple[int, ...]


class TookRecord(Struct, frozen=True, tag="took"):
    """Effect `n` took a finished result. The result itself is recorded with its own effect (`taken` has no reply or
    observations), except for a piece of a watched reply."""

    n: int
    taken: WaitResult


class Thrown(Struct, frozen=True, omit_defaults=True, tag="thrown"):
    """The loop received an exception instead of a result of effect `n`. `kind` is its class name.

    `said` are the words with which an endpoint rejected native tools, "" if that was known before.
    """

    n: int
    step: int
    kind: Literal["LimitNear", "LimitReached", "ContextOverflow", "Unsupported"]
    limit: str
    detail: str
    tokens: int = 0
    room: int = 0
    said: str = ""


class Resumed(Struct, frozen=True, omit_defaults=True, tag="resumed"):
    """Another process resumes the run. `models` are the models asked from here.

    `lost` says why calls are in doubt: the journal lost rows, or may have. `lost_calls` are digests of calls that
    started and whose rows are lost.
    """

    models: dict[str, Any]
    lost: str = ""
    lost_calls: tuple[str, ...] = ()


Record: TypeAlias = (
    Thinking
    | Got
    | ThoughtRecord
    | Acting
    | Begun
    | ObservedRecord
    | RanRecord
    | Waits
    | UserAnswer
    | HookRecord
    | NoteRecord
    | StartRecord
    | TookRecord
    | Thrown
    | Resumed
)


class Row(Struct, frozen=True):
    """A row: its number in the run, when (seconds since 1970), the record, and its exact bytes."""

    seq: int
    at: float
    record: Record
    body: bytes | None = None


class ParentCall(Struct, frozen=True):
    """The tool call that started a child run: call `i` of effect `n` of a run."""

    run: str
    n: int
    i: int


class RunHead(Struct, frozen=True, omit_defaults=True):
    """The settings a run started with: enough to start it again.

    `loop` is {"name": ..., "options": {...}}. `models` maps a phase ("" for all) to the result of `Model.describe`.
    `tools` are the specs that the model saw; `sources` are the words they were loaded by ("" for one given in Python).
    `settings` has limits, approval and other settings. `session` is the run's conversation, `history` the recent turns
    that the loop saw, `given` all turns before it if the caller passed them and not all are shown whole. `label` is a
    name for finding the run again. `attachments` are the files of the question. `parent` is the run that a fork comes
    from, `caller` the call that started a child run.
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

    def address(self, phase: str, path: str, spec: str = "") -> str:
        """Return where a request went: the endpoint's address and path; the path alone if there is no server.

        `spec` is the model that was asked, if the phase has fallback models.
        """
        model: dict[str, Any] = self.models.get(phase) or self.models.get("") or {}
        model = next((each for each in model.get("members", ()) if each.get("spec") == spec), model)
        return "/".join(filter(None, (str(model.get("endpoint", "")).rstrip("/"), path)))


class SessionTurn(Struct, frozen=True):
    """A turn of a conversation, as a later turn sees it.

    `number` counts the session's turns from 1. `answer` is the reply as text, None if there is none. `started` is in
    seconds since 1970. `calls` are the tool calls of a turn that the caller passed; those of a recorded turn are in its
    run.
    """

    number: int
    run: str
    question: str
    answer: str | None
    started: float
    calls: tuple[PastCall, ...] = ()


class SessionRow(Struct, frozen=True):
    """A conversation as listed: its name, its number of turns, and the question and start of the last turn."""

    name: str
    turns: int
    question: str
    started: float


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

    @property
    def verdict(self) -> str:
        """Return the status for people, with the grade if there is one: `answered, graded wrong`."""
        return f"{self.status}, graded {self.grade['mark']}" if self.grade is not None else self.status
