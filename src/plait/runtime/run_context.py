"""What one run is made of, and what all who perform it share."""

from __future__ import annotations

import asyncio
import difflib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from plait.core import Call, Event, Loop, LoopContext, Task, Waiting
from plait.core import events as ev
from plait.core.errors import BadInput, ConfigError, ReplayDiffers
from plait.core.text import escape_hidden
from plait.journal import codec
from plait.journal.log import AnyLog
from plait.journal.records import NoteRecord, Told, Waits
from plait.journal.timeline import Question
from plait.runtime.approvals import question_id, waiting_with
from plait.runtime.artifacts import ArtifactStore
from plait.runtime.grounding import Grounding, Sources, sources_of
from plait.runtime.limits import Limits, Meter
from plait.runtime.loop_breaker import Breaker
from plait.runtime.phase_models import Phases
from plait.runtime.recorded_effects import Past, PastEffect
from plait.runtime.tracing import UNWATCHED, RunSpan, Tracer
from plait.sandbox import AUTO, Sandbox
from plait.tools import Toolset

Approve: TypeAlias = Literal["never", "effects", "always", "plan"] | Callable[[Call], bool]
"""What needs a person's leave: no call, those of tools with effects, all, those a function picks; or the plan."""

OnInterruptedCall: TypeAlias = Literal["skip", "repeat"]
"""What a resumed run does with a call that may or may not have happened, of a tool that is not repeatable."""

OnWait: TypeAlias = Callable[[Waiting], Awaitable[str | None]]
"""Answers for the person while a run goes on; None leaves the run waiting."""

WaitKind: TypeAlias = Literal["question", "approval", "plan"]

TRIES = 5
"""As often a person at hand is asked who gives an edit that can't be read; then the run waits for them."""

YES = frozenset({"yes", "y", "ok", "approve", "approved"})
"""What gives leave for a call; all else refuses it."""

NO = frozenset({"", "no", "n", "refuse", "refused"})
"""What refuses a call and is no reason for it."""

EDITED = re.compile(r"edit[:\s]\s*(\S.*)", re.IGNORECASE | re.DOTALL)
"""What may be an edit of a call: its input follows."""


class Suspend(Exception):
    """The run must wait for a person."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(waiting.reason)
        self.waiting = waiting


class RecordEnds(Exception):
    """A replay came to where the record ends."""


@dataclass(frozen=True)
class RunSpec:
    """All that one run needs, the same whether it is fresh, resumed, forked or replayed."""

    loop: Loop
    task: Task
    context: LoopContext
    tools: Toolset
    phases: Phases
    limits: Limits
    approve: Approve = "never"
    on_interrupted_call: OnInterruptedCall = "skip"
    on_wait: OnWait | None = None
    grounding: Grounding = "off"
    sandbox: str | Sandbox = AUTO
    fallback: str = ""
    """Said once when code first runs: that it runs in another sandbox than the preferred one, and why."""
    now: float | None = None
    """What code is told of the time, in seconds since 1970; None for the machine's clock."""
    tracer: Tracer = UNWATCHED
    """Who observes the run from outside."""
    data_tokens: tuple[str, ...] = ()
    """Special tokens of the models that no prompt of the loop holds: in a request they can only be data."""
    past: Past = field(default_factory=Past)
    replay: bool = False
    """Perform nothing: stop where the record ends, or at the first difference."""
    trust_until: int = 0
    """Steps below this one are fed from the record without comparing requests (a fork may change them)."""


@dataclass
class RunContext:
    """One run being performed: its job, what it used, and where it is told and recorded."""

    run_spec: RunSpec
    log: AnyLog
    meter: Meter
    breaker: Breaker
    on_event: Callable[[Event], None] | None = None
    span: RunSpan = UNWATCHED
    clock: asyncio.Timeout | None = None
    """The run's time limit, where it is being performed."""
    compared: int = 0
    """Requests that were compared with the record."""
    artifacts: ArtifactStore = field(init=False)
    sources: Sources | None = None
    """What the model may have its values from, where that is looked at."""

    def __post_init__(self) -> None:
        self.artifacts = ArtifactStore(self.run_spec.past.artifacts, self.log.scrub)
        if self.run_spec.grounding != "off":
            self.sources = sources_of(self.run_spec.task, self.run_spec.context.system)

    def say(self, event: Event) -> None:
        """Tell whoever watches."""
        if self.on_event is not None:
            self.on_event(event)

    def remark(self, step: int, kind: str, text: str) -> None:
        """A remark of the runtime's own, told and recorded."""
        self.log.buffer((NoteRecord(-1, step, kind, text), None))
        self.say(ev.Noted(step, kind, text))

    def is_recorded(self, text: str, recorded: str) -> bool:
        """Whether that text stands on the record as `recorded`: secrets are replaced there."""
        return text == recorded or self.log.scrub(codec.encode(text)) == codec.encode(recorded)

    async def wait(
        self, n: int, step: int, i: int, kind: WaitKind, text: str, past: PastEffect, call: Call | None = None
    ) -> Told:
        """What the person says, of a `call` if that needs approval. Raises `Suspend` when nobody is there."""
        asked: Question | Waits | None = past.waits.get(i)
        if asked is None:
            asked = Waits(n, step, kind, text, i, question_id(self.log.run, n, i, kind, text, call))
            await self.log.append((asked, None))
        waiting = waiting_with(asked)
        for _ in range(TRIES):
            answer = await self._ask_person(waiting)
            if answer is None:
                break
            try:
                told = told_by(answer, n, i, kind)
                check_edit(told, call, self.run_spec.tools, self.artifacts)
            except ConfigError as why:  # they are asked again, and told what was wrong
                waiting = structs.replace(waiting, reason=f"{why}\n{asked.text}")
                continue
            await self.log.append((told, None))
            return told
        raise Suspend(waiting_with(asked))

    async def _ask_person(self, waiting: Waiting) -> str | None:
        """Ask the person at hand, if there is one; the run's time stands still meanwhile."""
        if self.run_spec.on_wait is None:
            return None
        until = self.clock.when() if self.clock is not None else None
        if self.clock is not None:
            self.clock.reschedule(None)
        began = time.monotonic()
        answer = await self.run_spec.on_wait(waiting)
        waited = time.monotonic() - began
        self.meter.went_on(-waited)
        if self.clock is not None and until is not None:
            self.clock.reschedule(until + waited)
        return answer


def told_by(answer: str, n: int, i: int, kind: str) -> Told:
    """A person's words as a record: as they are, but for an approval, where yes, ok and approve give leave, `edit JSON`
    gives leave with that input, and anything else refuses and is the reason. Raises `ConfigError` for what begins as an
    edit and is no JSON."""
    if kind != "approval":
        return Told(n, answer, i)
    if edit := EDITED.fullmatch(answer.strip()):
        try:
            return Told(n, answer, i, approved=True, input=(msgspec.json.decode(edit[1]),))
        except msgspec.DecodeError as why:
            if edit[1][0] in '{["':  # else these are words: "edit the text first"
                raise ConfigError(
                    f"The edited input is no JSON: {why}.", hint='Such as: edit {"text": "..."}'
                ) from None
    word = answer.strip().lower()
    yes = word in YES
    return Told(n, "" if yes or word in NO else answer, i, approved=yes)


def check_edit(told: Told, call: Call | None, tools: Toolset, artifacts: ArtifactStore) -> None:
    """Look at the input that the person put in place of a call's, as the tool will. Raises `ConfigError` where it does
    not fit: it is told before the answer is taken, so that nothing is used up by it."""
    tool = tools.get(call.tool) if call is not None else None
    if tool is None or not told.input:
        return
    try:
        tool.bind(artifacts.fill_input(told.input[0], tool))
    except BadInput as why:
        raise ConfigError(f"The edited input does not fit. {why}") from None


def as_told(calls: tuple[Call, ...], told: Mapping[int, Told]) -> tuple[Call, ...]:
    """The calls with the inputs that the person put in place of the model's."""
    return tuple(told[i].edit(call) if i in told else call for i, call in enumerate(calls))


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
    """Words made a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
