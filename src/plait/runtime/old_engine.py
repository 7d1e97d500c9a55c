"""Drives a loop: performs each effect, or returns its recorded result.

Theory of operation. `Engine` holds the generator and numbers its effects. For each effect it looks at the record first
(`Past`). An effect with a recorded result is only compared, not performed. So resuming and replaying are the same
walk; they differ in what happens where the record ends. Every performed effect is recorded before (intent) and after
(result). A run ends in one place, `Engine.run`, with one of six outcomes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast, get_args

import msgspec
from msgspec import structs

from plait.core import (
    Act,
    Answered,
    AskUser,
    Cancelled,
    CheckAnswer,
    CheckGrounding,
    ContextOverflow,
    Continue,
    Crashed,
    Effect,
    Event,
    Execute,
    Failed,
    LimitNear,
    LoopRun,
    Note,
    Outcome,
    PlaitError,
    Reply,
    Start,
    Stopped,
    Think,
    Unsupported,
    WaitNext,
    WaitResult,
)
from plait.core import events as ev
from plait.core.errors import JournalError, ReplayDiffers
from plait.journal.log import AnyLog
from plait.journal.records import NoteRecord
from plait.journal.store import Journal
from plait.runtime.call_model import Thinker
from plait.runtime.call_tools import Actor
from plait.runtime.grounding import answer_warning, describe_findings
from plait.runtime.loop_breaker import Breaker
from plait.runtime.make_call import GRACE
from plait.runtime.meter import LimitReached, Meter
from plait.runtime.output_check import OutputCheck, OutputRejected
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.run_code import Executor
from plait.runtime.run_context import EndedByTool, RecordEnds, RunContext, RunSpec, Suspend, differs, sentence
from plait.runtime.run_hooks import HookRefused, RunHooks
from plait.runtime.started_effects import Tickets
from plait.runtime.tracing import UNWATCHED, RunSpan
from plait.tools.end_run import find_ending

logger = logging.getLogger("plait")

_OUTCOMES = get_args(Outcome)


class Engine:
    """One run. Make one, await `run`, read what it used from `totals`."""

    def __init__(
        self,
        run_spec: RunSpec,
        log: AnyLog,
        on_event: Callable[[Event], None] | None = None,
        span: RunSpan = UNWATCHED,
        journal: Journal | None = None,
    ) -> None:
        self.run_spec = run_spec
        meter = Meter(run_spec.limits, children=run_spec.past.children)
        if meter.parent is not None and not run_spec.replay:
            meter.parent.children[log.run] = meter
        breaker = Breaker(run_spec.limits.repeats, run_spec.tools)
        self.run_context = RunContext(run_spec, log, meter, breaker, on_event, span, journal=journal)
        self._hooks = RunHooks(self.run_context)
        self._actor = Actor(self.run_context, self._hooks)
        self._tickets = Tickets(self.run_context, self._perform_started, self._number, self._actor.at_once)
        self._thinker = Thinker(self.run_context, self._hooks, self._tickets.piece)
        self._executor = Executor(self.run_context)
        self._ended: dict[str, Any] | None = None
        self._next = 0
        self._notes = 0
        self._last: Reply | None = None
        """The reply that the loop was given last."""
        self._refused = 0
        self._output = OutputCheck(self.run_context, self._note)
        self._loop: LoopRun | None = None
        self._effect: Any = None
        """The effect that the loop waits for; then its result, or the exception that the loop gets instead."""
        self._result: Any = None
        self._thrown: LimitNear | ContextOverflow | Unsupported | None = None
        self._returned: Any = None
        """The outcome that the loop returned."""

    async def run(self) -> Outcome:
        """Take the loop to its end. Never raises, but for cancellation from outside after it is recorded,
        and `ReplayDiffers` in a replay."""
        try:
            async with asyncio.timeout(self._time()) as clock:
                self.run_context.meter.deadline = clock
                try:
                    while self._advance():
                        try:
                            self._given(await self._perform_next(self._effect))
                        except (LimitNear, ContextOverflow, Unsupported) as why:
                            self._thrown = why
                    outcome = await self._after_hooks(self._settled(self._returned))
                finally:
                    if not clock.expired():
                        clock.reschedule(None)  # it must not cancel what ends the run
                    try:
                        self._close_loop()
                    finally:
                        try:
                            await self._tickets.close()
                        finally:
                            await self._executor.close()
        except TimeoutError as why:
            # Not every TimeoutError is our time limit: the loop, or a model, may raise one of its own.
            limit = f"The limit of {self.run_spec.limits.seconds} seconds is reached."
            outcome = Stopped("seconds", limit) if clock.expired() else self._ended_by(why)
        except asyncio.CancelledError as why:
            outcome = _cancelled(why)
        except EndedByTool as why:
            outcome = await self._end_as_tool_says(why)
        except Exception as why:
            outcome = self._ended_by(why)
        except BaseException as why:
            if find_ending(why) is None:
                raise
            hint = "Raise it in a tool. A hook refuses with plait.Refuse."
            outcome = Crashed("plait.EndRun was raised outside of a tool.", error="EndRun", hint=hint)
        outcome = self._over_limit(outcome)
        await self._close_objects()
        self._ended = self.totals()
        self.run_context.meter.is_over = True
        if not self.run_spec.replay:
            try:
                await self._end(outcome)
            except asyncio.CancelledError:
                pass  # Cancelled while it waits for the disk: what was handed to the journal is written all the same.
            except JournalError as why:
                # The journal cannot store the outcome, so the caller at least gets the reason.
                outcome = Crashed(why.message, error="JournalError", hint=why.hint)
        return outcome

    async def _after_hooks(self, outcome: Outcome) -> Outcome:
        return await self._hooks.end_with(outcome, self._next, self.run_context.meter.steps)

    async def _end_as_tool_says(self, why: EndedByTool) -> Outcome:
        try:
            return await self._after_hooks(why.outcome)
        except asyncio.CancelledError as found:
            return _cancelled(found)
        except Exception as found:
            return self._ended_by(found)

    async def _close_objects(self) -> None:
        """Close the objects that the run made for its tools. How the run ended does not depend on it."""
        for owner in reversed(self.run_spec.tools.made_objects):
            closing = asyncio.ensure_future(owner.close())
            with suppress(asyncio.CancelledError):  # cancelled once more
                await asyncio.wait([closing], timeout=GRACE)
            name, step = type(owner.item).__name__, self.run_context.meter.steps
            for why in closing.result() if closing.done() else [f"it takes more than {GRACE:g} seconds"]:
                self.run_context.remark(step, "close", f"{name} could not be closed: {sentence(why)}")

    async def _end(self, outcome: Outcome) -> None:
        await self.run_context.log.end(outcome.status, msgspec.to_builtins(outcome), self.totals())

    def totals(self) -> dict[str, Any]:
        """Return what the run used so far. It does not change after the end of the run."""
        if self._ended is not None:
            return self._ended
        meter, usage = self.run_context.meter, self.run_context.meter.usage
        return {
            "steps": meter.steps,
            "calls": meter.calls,
            "requests": meter.requests,
            **structs.asdict(usage),
            "cost_usd": meter.cost,
            "seconds": round(meter.seconds, 6),
            **({"tree": meter.tree_total.json()} if meter.children else {}),
            **({"outside": True} if self.run_context.outside.sources else {}),
            **({"in_doubt": True} if self.run_context.calls_in_doubt.tree else {}),
        }

    # -- the walk

    def _advance(self) -> bool:
        """Run the loop up to its next effect that takes time. Returns False when the loop has returned its outcome."""
        if self._loop is None:
            self._loop = self.run_spec.loop.run(self.run_spec.task, self.run_spec.context)
            if self.run_spec.past.effects and not self.run_spec.replay:
                self.run_context.meter.went_on(self.run_spec.past.seconds)
        while True:
            thrown, self._thrown = self._thrown, None
            result, self._result = self._result, None
            try:
                effect = self._loop.send(result) if thrown is None else self._loop.throw(thrown)
            except StopIteration as end:
                self._returned = cast(Outcome, end.value)
                return False
            try:
                match effect:
                    case CheckAnswer() if not self._hooks.decides_answers:
                        self._result = self._check_answer(effect)
                    case CheckGrounding():
                        self._result = self._doubted(effect)
                    case Note():
                        self._note(effect)
                    case _:
                        self._effect = effect
                        return True
            except (LimitNear, ContextOverflow, Unsupported) as why:
                self._thrown = why

    def _given(self, result: Any) -> None:
        """Keep the result of an effect for the loop."""
        self._result = result
        if isinstance(reply := result.reply if isinstance(result, WaitResult) else result, Reply):
            self._last = reply

    def _close_loop(self) -> None:
        if self._loop is not None:
            self._loop.close()

    def _settled(self, outcome: Outcome) -> Outcome:
        """A loop that answered only because a limit was near has been stopped, with that answer; but one that went in
        circles, and was asked for its answer, has given it if nothing in it is made up. A loop whose last reply was cut
        or refused has been stopped by that: what it made of the reply is no answer, and no failure of its own."""
        if type(outcome) not in _OUTCOMES:
            raise TypeError(f"it returned {type(outcome).__name__}, which is no outcome")
        msgspec.to_builtins(outcome)  # an answer that JSON can't hold is an error of the loop, said here
        near = self.run_context.meter.near
        if near is not None and isinstance(outcome, Answered):
            outcome = Stopped(near.limit, sentence(near.detail), outcome.answer)
        if self._last is not None and (how := self._last.how_cut):
            return self._output.end_with(_cut_short(outcome, how, self._last.text.strip()), self._notes, self._next)
        if isinstance(outcome, Stopped) and outcome.limit == "loop" and self._founded(outcome.answer):
            outcome = Answered(outcome.answer)
        return self._output.end_with(outcome, self._notes, self._next)

    def _over_limit(self, outcome: Outcome) -> Outcome:
        """A run that used more than it might is stopped, and says by how much."""
        if (excess := self.run_context.meter.excess()) is None:
            return outcome
        limit, words = excess
        match outcome:
            case Answered(answer=answer):
                return Stopped(limit, sentence(words), answer)
            case Failed(reason=reason):
                return Stopped(limit, f"{sentence(words)} {sentence(reason)}")
            case Stopped(limit=first, reason=reason, answer=answer):
                return Stopped(first, f"{sentence(reason)} {sentence(words)}", answer)
        return outcome

    def _founded(self, answer: Any) -> bool:
        """There is an answer, it fits the output, it was looked at, and nothing in it is made up."""
        sources, policy = self.run_context.sources, self.run_spec.grounding
        if answer is None or sources is None or policy == "note" or not self.run_spec.output.fits(answer):
            return False
        return not sources.in_answer(answer)

    def _ended_by(self, why: Exception) -> Outcome:
        match why:
            case ReplayDiffers() | RecordEnds() if self.run_spec.replay:
                raise why
            case Suspend():
                return why.waiting
            case OutputRejected():
                return Failed(sentence(str(why)), kind="output")
            case HookRefused():
                return Failed(str(why), kind="refused")
            case LimitReached() | LimitNear():
                how = self._last.how_cut if self._last is not None else ""
                stopped = Stopped(why.limit, sentence(why.detail))
                return _cut_short(stopped, how, "") if how else stopped
            case ContextOverflow():
                # A turn that is asked again with less counts once, and so does one whose prompt never fitted.
                self.run_context.meter.steps += self.run_context.meter.near is None
                return Stopped("context", f"The prompt does not fit the model's context: {why}")
            case Unsupported():
                said = f": {why.said.rstrip('.')}." if why.said else "."
                hint = "Use --loop auto (tool calling, otherwise react) or --loop react, or choose another model."
                return Crashed(f"{why.message}{said}", error="Unsupported", hint=hint)
            case ExceptionGroup():
                return self._ended_by(why.exceptions[0])
            case PlaitError():
                return Crashed(why.message, error=type(why).__name__, hint=why.hint)
            case _:
                logger.debug("the loop broke", exc_info=why)
                name = getattr(self.run_spec.loop, "name", type(self.run_spec.loop).__name__)
                return Crashed(
                    f"The loop '{name}' broke: {type(why).__name__}: {why}",
                    error=type(why).__name__,
                    hint="This is a defect of the loop, not of the task; logging at level DEBUG shows where.",
                )

    def _perform_next(self, effect: Effect) -> Awaitable[Any]:
        """Perform the loop's effect under the next number. A check of an answer has none."""
        if isinstance(effect, CheckAnswer):
            return self._check_answer_with_hooks(effect)
        return self._perform(self._number(), effect)

    def _number(self) -> int:
        n = self._next
        self._next += 1
        return n

    def _perform(self, n: int, effect: Effect, started: bool = False) -> Awaitable[Any]:
        """Perform effect `n`, or return what is recorded of it."""
        past = self.run_spec.past.effect(n)
        if not past.is_recorded:
            if self.run_spec.replay:
                raise RecordEnds
        elif past.kind not in ("", type(effect).__name__):
            raise differs(n, self.run_context.meter.steps, f"effect {past.kind}", f"effect {type(effect).__name__}")
        match effect:
            case Think():
                return self._thinker.perform(n, effect, past, started=started)
            case Act():
                return self._actor.perform(n, effect, past)
            case Execute() | Continue():
                return self._executor.perform(n, effect, past)
            case AskUser():
                return self._ask(n, effect, past)
            case Start():
                return self._tickets.start(effect, past, n)
            case WaitNext():
                return self._tickets.take(n, effect, past)
            case _:
                raise TypeError(f"it yielded {type(effect).__name__}, which is not an effect")

    async def _perform_started(self, n: int, effect: Effect) -> Any:
        return await self._perform(n, effect, started=True)

    async def _ask(self, n: int, effect: AskUser, past: PastEffect) -> str:
        asked = next(iter(past.waits.get(-1, ())), None)
        answer = asked.answer if asked is not None else None
        if asked is not None and not self.run_context.is_recorded(effect.question, asked.text):
            # The person was asked something else: what they said to it is no answer to this.
            raise differs(n, self.run_context.meter.steps, asked.text, effect.question)
        if answer is None:
            if self.run_context.run_spec.replay:
                raise RecordEnds
            answer = await self.run_context.wait(
                n, self.run_context.meter.steps, -1, effect.kind, effect.question, past
            )
        if self.run_context.sources is not None:
            self.run_context.sources.add(answer.text)
        return answer.text

    def _check_answer(self, effect: CheckAnswer) -> str:
        """Return what speaks against an answer: its type, the user's checks, then its grounding."""
        objection = self._output.check(effect.answer, self._notes, self._next)
        return objection if objection or effect.only_output else self._check_answer_grounding(effect.answer)

    async def _check_answer_with_hooks(self, effect: CheckAnswer) -> str:
        objection = self._check_answer(effect)
        if objection or self.run_context.meter.near is not None:
            return objection  # at a limit, a refused answer ends the run
        answer = self.run_spec.output.read(effect.answer)
        objection = await self._hooks.before_answer(answer, self._next, self.run_context.meter.steps)
        return self._output.count_objection(objection) if objection else ""

    def _check_answer_grounding(self, answer: Any) -> str:
        """Return the values of an answer that stand nowhere, in words for the model. Nothing has to be recorded."""
        sources, policy = self.run_context.sources, self.run_spec.grounding
        found = sources.in_answer(answer) if sources is not None else ()
        if not found:
            return ""
        self._note(Note("unfounded", f"the answer has what {describe_findings(found)}"))
        self._refused += 1
        if policy == "note" or self.run_context.meter.near is not None or (policy != "refuse" and self._refused > 1):
            return ""
        if why := self.run_context.breaker.refuse_answer(answer):
            self._note(Note("loop", sentence(why)))
            raise self.run_context.meter.conclude("loop", why)
        return answer_warning(found)

    def _doubted(self, effect: CheckGrounding) -> tuple[str, ...]:
        """Return the made-up values that the model gets a note about, or that stop an effect."""
        sources, policy, context = self.run_context.sources, self.run_spec.grounding, self.run_spec.context
        if sources is None or policy in ("off", "note") or (effect.strict and policy != "refuse"):
            return ()
        found = [*sources.in_words(effect.text), *sources.in_code(effect.code)]
        for call in effect.calls if policy == "refuse" else ():
            found += sources.find_invented(call, context.tool(call.tool)) if call.tool != context.search else ()
        return tuple(dict.fromkeys(found))

    def _note(self, effect: Note) -> None:
        if effect.kind == "compacted":  # the model no longer sees old results, and may call for them again
            self.run_context.breaker.forget_calls()
        number, self._notes = self._notes, self._notes + 1
        if number not in self.run_spec.past.notes and not self.run_spec.replay:
            self.run_context.log.buffer(
                (NoteRecord(number, self.run_context.meter.steps, effect.kind, effect.text), None)
            )
            self.run_context.say(ev.Noted(self.run_context.meter.steps, effect.kind, effect.text))

    def _time(self) -> float | None:
        if self.run_spec.replay or self.run_spec.limits.seconds is None:
            return None
        return max(0.0, self.run_spec.limits.seconds - self.run_spec.past.seconds)


def _cancelled(why: asyncio.CancelledError) -> Cancelled:
    """Return the outcome of a cancelled run, with the reason that was given: not the note that anyio gives."""
    reason = str(why.args[0]) if why.args else ""
    return Cancelled(reason) if reason and not reason.startswith("Cancelled via cancel scope ") else Cancelled()


def _cut_short(outcome: Outcome, how: str, text: str) -> Outcome:
    """Return the outcome of a run whose last reply was cut or refused. `text` is the part that arrived."""
    cut = f"The model's last reply {how}."
    match outcome:
        case Answered(answer=answer):
            return Stopped("reply", cut, answer)
        case Failed(reason=reason, kind="format"):
            return Stopped("reply", f"{cut} {sentence(reason)}", text or None)
        case Stopped(limit=limit, reason=reason, answer=answer):
            return Stopped(limit, f"{sentence(reason)} {cut}", answer)
    return outcome
