"""The parts of one run, shared by all code that performs it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import structs

from plait.core import Answered, Call, Event, Failed, Loop, LoopContext, Observation, Stopped, Task, Waiting
from plait.core import events as ev
from plait.core.errors import ConfigError, ReplayDiffers
from plait.core.text import escape_hidden
from plait.journal import codec
from plait.journal.log import AnyLog
from plait.journal.records import NoteRecord, UserAnswer, Waits
from plait.journal.store import Journal
from plait.journal.timeline import Question
from plait.models.base import Model
from plait.runtime.approvals import question_id, waiting_with
from plait.runtime.artifacts import ArtifactStore
from plait.runtime.attachments import find_contents
from plait.runtime.background import call_either
from plait.runtime.bound_calls import CallBinder, replace_input
from plait.runtime.calls_in_doubt import CallsInDoubt
from plait.runtime.grounding import Grounding, Sources, sources_of
from plait.runtime.hooks import Hook
from plait.runtime.limits import Limits
from plait.runtime.loop_breaker import Breaker
from plait.runtime.meter import Meter
from plait.runtime.output import TEXT, OutputType
from plait.runtime.phase_models import Phases
from plait.runtime.recorded_effects import Past, PastEffect
from plait.runtime.taint import OutsideContent, Taint
from plait.runtime.tracing import UNWATCHED, RunSpan, Tracer
from plait.sandbox import AUTO, Sandbox
from plait.tools import Toolset
from plait.tools.call_context import call_services
from plait.tools.user_code import show_error

if TYPE_CHECKING:
    from plait.runtime.run import Run

Approve: TypeAlias = Literal["never", "effects", "always", "plan"] | Callable[[Call], bool]
"""Which calls need the user's approval: none, those with effects, all, those a function selects; or the plan."""

OnInterruptedCall: TypeAlias = Literal["skip", "repeat"]
"""The policy of a resumed run for a call of a tool that is not repeatable, if the call may have happened."""

OnWait: TypeAlias = Callable[[Waiting], Awaitable[str | None] | str | None]
"""Answers for the user during a run, as a plain or an async function; None leaves the run waiting."""

WaitKind: TypeAlias = Literal["question", "approval", "plan"]

TRIES = 5
"""Number of times that Plait asks a user at a terminal again after an unreadable edit. Then the run waits."""

YES = frozenset({"yes", "y", "ok", "approve", "approved"})
"""Words that approve a call; all others refuse it."""

NO = frozenset({"", "no", "n", "refuse", "refused"})
"""Words that refuse a call and give no reason."""

EDITED = re.compile(r"edit[:\s]\s*(\S.*)", re.IGNORECASE | re.DOTALL)
"""May be an edit of a call; the new input follows."""


class Suspend(Exception):
    """Raised when the run must wait for the user."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(waiting.reason)
        self.waiting = waiting


class ChildWaits(BaseException):
    """Raised in a tool whose child run waits for the user. Not an `Exception`, so that tools do not catch it."""

    def __init__(self, child: str, waiting: Waiting) -> None:
        super().__init__(waiting.reason)
        self.child, self.waiting = child, waiting


class EndedByTool(Exception):
    """Raised when a call ends the run."""

    def __init__(self, outcome: Answered | Failed | Stopped) -> None:
        super().__init__("a tool ended the run")
        self.outcome = outcome


class RecordEnds(Exception):
    """Raised when a replay reaches the end of the record."""


def _no_model(model: str | Model | None) -> Model:
    raise ConfigError(f"No model is known for {model!r}.", hint="Give a model object.")


def _no_child(*_: Any) -> Awaitable[Run]:
    raise ConfigError("This run can have no child runs.")


@dataclass(frozen=True)
class RunSpec:
    """All that one run needs, whether it is new, resumed, forked or replayed."""

    loop: Loop
    task: Task
    context: LoopContext
    tools: Toolset
    phases: Phases
    limits: Limits
    approve: tuple[Approve, ...] = ()
    """The policies of the run and of the runs above it. A call needs approval if one of them says so."""
    on_interrupted_call: OnInterruptedCall = "skip"
    on_wait: OnWait | None = None
    grounding: Grounding = "off"
    taint: Taint = "off"
    outside: tuple[str, ...] = ()
    """The content from outside in the context at the start (`taint.outside_from_start`)."""
    hooks: tuple[Hook, ...] = ()
    inherited_hooks: tuple[Hook, ...] = ()
    """The hooks of the runs above it, which see its model calls and tool calls."""
    output: OutputType[Any] = TEXT
    sandbox: str | Sandbox = AUTO
    fallback: str = ""
    """A note shown when code first runs: the sandbox is not the preferred one, and why."""
    now: float | None = None
    """The time that code sees, in seconds since 1970; None for the machine's clock."""
    tracer: Tracer = UNWATCHED
    """Observes the run from outside."""
    deps: Any = None
    """The dependencies of tools, as the caller gave them."""
    session: str = ""
    find_model: Callable[[str | Model | None], Model] = _no_model
    """Returns the model that a tool names; for None that of the run."""
    run_child: Callable[..., Awaitable[Run[Any]]] = _no_child
    """Runs an agent as a child of a tool call (`child_runs.run_child`)."""
    data_tokens: tuple[str, ...] = ()
    """Special tokens of the models that no prompt of the loop holds. In a request they can only be data."""
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """The bytes of the question's files, by digest."""
    past: Past = field(default_factory=Past)
    replay: bool = False
    """Perform nothing; stop where the record ends or at the first difference."""
    trust_until: int = 0
    """Steps below this number come from the record, without comparing requests (a fork may change them)."""


@dataclass
class RunContext:
    """A run in progress: its specification, what it used, its listener and its record."""

    run_spec: RunSpec
    log: AnyLog
    meter: Meter
    breaker: Breaker
    on_event: Callable[[Event], None] | None = None
    span: RunSpan = UNWATCHED
    journal: Journal | None = None
    children: list[Run] = field(default_factory=list)
    """The child runs, if there is no journal to read them from."""
    compared: int = 0
    """Number of requests compared with the record."""
    artifacts: ArtifactStore = field(init=False)
    binder: CallBinder = field(init=False)
    results: dict[str, Observation] = field(default_factory=dict)
    """The results that are too long to be shown, by effect and call, such as "3.0"."""
    sources: Sources | None = None
    """Where the model may take values from, if Plait checks that."""
    outside: OutsideContent = field(init=False)
    """What the model has seen from outside."""
    calls_in_doubt: CallsInDoubt = field(init=False)
    """The calls in doubt of the tree of runs that this one belongs to, and of its session."""

    def __post_init__(self) -> None:
        self.artifacts = ArtifactStore(self.run_spec.past.artifacts, self.log.scrub)
        self.binder = CallBinder(self.run_spec.tools, self.artifacts, self.log.scrub)
        self.outside = OutsideContent(self.run_spec.taint, self.run_spec.outside)
        services = call_services()
        self.calls_in_doubt = services.calls_in_doubt if services is not None else CallsInDoubt()
        self.calls_in_doubt.tree += self.run_spec.past.calls_in_doubt
        if self.run_spec.session and self.journal is not None:
            self.calls_in_doubt.unread.append((self.journal, self.run_spec.session, self.log.run))
        if self.run_spec.grounding != "off":
            self.sources = sources_of(
                self.run_spec.task, self.run_spec.context.system, self.run_spec.context.instructions
            )

    def find_contents(self, body: bytes) -> dict[str, bytes]:
        """Return the bytes of the files that a request refers to, by digest. Raises `JournalError`."""
        return find_contents(body, self.run_spec.contents, self.artifacts)

    def say(self, event: Event) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def remark(self, step: int, kind: str, text: str) -> None:
        """Report and record a note of the runtime."""
        self.log.buffer((NoteRecord(-1, step, kind, text), None))
        self.say(ev.Noted(step, kind, text))

    def is_recorded(self, text: str, recorded: str) -> bool:
        """Return whether `recorded` is the stored form of this text, in which secrets are replaced."""
        return text == recorded or self.log.scrub(codec.encode(text)) == codec.encode(recorded)

    async def wait(
        self,
        n: int,
        step: int,
        i: int,
        kind: WaitKind,
        text: str,
        past: PastEffect,
        call: Call | None = None,
        point: str = "",
    ) -> UserAnswer:
        """Return the user's answer. Raises `Suspend` if nobody answers.

        `call` is the call to approve, if any. `point` is the point of a hook that asks about something else.
        """
        asked: Question | Waits | None = past.hook_waits.get((point, i))
        if not point:
            asked = next((each for each in past.waits.get(i, ()) if each.answer is None), None)
            if asked is not None and asked.call is not None and not self.binder.is_recorded(call, asked.call):
                asked = None  # it is about an input that the user has changed since
            elif asked is not None and text != asked.text and text.startswith(asked.text):
                asked = None  # the question says more by now: the call is in doubt since
        if asked is None:
            id = question_id(self.log.run, n, i, f"{kind}{point}", text, call)
            about = replace_input(call) if call is not None and kind == "approval" else None
            asked = Waits(n, step, kind, text, i, id, point=point, call=about)
            await self.log.append((asked, None))
        waiting = first = waiting_with(asked)
        for _ in range(TRIES):
            answer = await self.ask_person(waiting)
            if answer is None:
                break
            try:
                read = bind_edit(read_user_answer(answer, asked), call, self.binder)
            except ConfigError as why:  # ask again, and say what was wrong
                waiting = structs.replace(waiting, reason=f"{why}\n{asked.text}")
                continue
            await self.log.append((read, None))
            return read
        raise Suspend(first)

    async def wait_for_child(self, n: int, step: int, i: int, waits: ChildWaits, past: PastEffect) -> Suspend:
        """Record that a child run of call `i` waits for the user; return what ends this run as waiting."""
        waiting = waits.waiting
        if past.of_children.get(waiting.question, waits) is not None:  # not recorded yet, or its answer did not fit
            call = Call(waiting.tool, waiting.input) if waiting.tool else None
            asked = Waits(n, step, waiting.kind, waiting.reason, i, waiting.question, waits.child, call=call)
            await self.log.append((asked, None))
        return Suspend(waiting)

    async def ask_person(self, waiting: Waiting) -> str | None:
        """Ask the user at the terminal, if there is one. The run's time stands still meanwhile.

        Raises `ConfigError` if the function `on_wait` returns no text.
        """
        if self.run_spec.on_wait is None:
            return None
        try:
            with self.meter.counted(waiting=1):
                answer = await call_either(self.run_spec.on_wait, waiting)
        except (Exception, SystemExit) as why:
            raise ConfigError(
                f"The function on_wait= failed: {show_error(why)}.",
                hint="It gets a Waiting and returns a text or None. Correct it, then resume the run.",
            ) from why
        if answer is not None and not isinstance(answer, str):
            raise ConfigError(
                f"The function on_wait= returned {answer!r}.", hint='Return a text, such as "yes", or None.'
            )
        return answer


def read_user_answer(answer: str, asked: Question | Waits) -> UserAnswer:
    """Turn the user's answer to a question into a record.

    For an approval: yes, ok and approve approve the call, `edit JSON` approves it with that input, and any other text
    refuses it and is the reason. Raises `ConfigError` for an edit that is not JSON.
    """
    n, i, of_hook = asked.n, asked.i, bool(asked.point)
    if asked.kind != "approval":
        return UserAnswer(n, answer, i)
    if edit := EDITED.fullmatch(answer.strip()):
        if of_hook:
            raise ConfigError("Only a tool call can be edited.", hint="Answer yes or no, or no with a reason.")
        try:
            return UserAnswer(n, answer, i, approved=True, input=(msgspec.json.decode(edit[1]),))
        except msgspec.DecodeError as why:
            if edit[1][0] in '{["':  # other text is plain words: "edit the text first"
                raise ConfigError(
                    f"The edited input is no JSON: {why}.", hint='Such as: edit {"text": "..."}'
                ) from None
    word = answer.strip().lower().rstrip(".!")
    yes = word in YES
    text = "" if yes or word in NO else answer
    return UserAnswer(n, text, i, approved=yes, question=asked.question if of_hook else "")


def bind_edit(answer: UserAnswer, call: Call | None, binder: CallBinder) -> UserAnswer:
    """Return the answer also with the user's input as the tool will get it, if the user changed a call.

    Raises `ConfigError` if the input does not fit. The user learns it before the answer is accepted, so the question
    stays open.
    """
    if call is None or not answer.input:
        return answer
    bound = binder.bind(structs.replace(answer.edit(call), by_code=False))
    if bound.error:
        raise ConfigError(f"The edited input does not fit. {bound.error}")
    return structs.replace(answer, input=(bound.call.input, answer.input[0]))


def differs(n: int, step: int, expected: str, found: str) -> ReplayDiffers:
    where = next(
        (k for k, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    start = max(0, where - 60)
    shown = "\n".join(difflib.ndiff([expected[start : where + 80]], [found[start : where + 80]]))
    return ReplayDiffers(
        f"The run differs from its record at step {step} (effect {n}, character {where:,}):\n{shown}\n",
        at=step,
        expected=expected,
        found=found,
        hint="The code, the prompts or the model's settings have changed since. Fork the run to go on from here.",
    )


def text_of(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def lines_of(calls: tuple[Call, ...]) -> str:
    return "\n".join(f"{call.tool} {input_of(call)}" for call in calls)


def input_of(call: Call) -> str:
    return escape_hidden(msgspec.json.encode(call.input).decode())


def sentence(text: str) -> str:
    """Capitalize a text and end it with a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
