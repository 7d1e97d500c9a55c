"""Asks a model: one think effect, from the request through retries to the reply, each attempt on the record.

If a model cannot be used and its phase has fallback models, the row of the failed attempt names the next one, and the
run asks that one from there. A resumed run reads these rows first, so it asks the same models.

Each attempt is counted and may use its share of the run's limits (`meter.Share`). What an attempt took that brought no
reply is estimated from what was received, and stands on the record with it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from msgspec import structs

from plait.core import LimitNear, Reply, Think, Usage, WaitResult
from plait.core import events as ev
from plait.core.errors import BadRequest, ContextOverflow, ModelError, Unsupported
from plait.journal.log import AnyLog
from plait.journal.records import Got, Thinking, ThoughtRecord, Thrown
from plait.journal.timeline import LoopException, ModelAttempt
from plait.loops import splitter_of
from plait.models.base import Model, Request
from plait.models.prices import SERVICE_TIER, cost_of_reply
from plait.models.rate_limits import RateLimit, RequestTurn, limiter_of
from plait.models.rejections import remember_rejection
from plait.models.settings import split_settings
from plait.models.wires.replies import read_partial_reply
from plait.models.wires.wire import CHAT, Wire, load_wire
from plait.runtime.meter import LimitReached, Meter, Share
from plait.runtime.partial_output import PartialAnswer, find_answer_tool, is_only_answer
from plait.runtime.phase_models import Phases, without_special_tokens
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.reply_listener import ReplyListener
from plait.runtime.run_context import RecordEnds, RunContext, differs, sentence, text_of
from plait.runtime.run_hooks import RunHooks
from plait.runtime.tracing import ModelSpan

LONGEST_WAIT = 60.0
"""Seconds: an endpoint that asks for a longer pause is taken to be out for this run."""
_INSTEAD = {"max_tokens": "sent as 'max_completion_tokens'", "prefill": "sent as a message to continue"}
"""The words of a note about a rejected ability that is sent in another way."""
NOTED_WAIT = 1.0
"""Seconds: a longer wait for a rate limit is noted."""


async def ask_model(
    phases: Phases,
    think: Think,
    *,
    n: int,
    step: int,
    log: AnyLog,
    past: PastEffect,
    retries: int,
    on_text: Callable[[str], None] | None,
    on_note: Callable[[str, str], None],
    find_contents: Callable[[bytes], Mapping[str, bytes]],
    span: ModelSpan,
    meter: Meter,
    share: Share,
    asked_by: tuple[int, int] | None = None,
) -> Reply:
    """The reply to a think effect. `on_note` gets the kind and text of a note before the model is asked again.
    `find_contents` gives the files that a request refers to. `asked_by` names the tool call that asks, if it is not the
    loop.

    Raises `ContextOverflow`, `Unsupported` or `LimitNear` for the loop, `LimitReached` where a limit leaves no room,
    or another `ModelError` when all is lost.
    """
    rejected: dict[str, str] = {}  # abilities, with the endpoint's words
    for earlier in past.attempts:
        if earlier.response is not None and earlier.response.lost:
            phases.lost(earlier.model, earlier.response.lost)
            rejected[earlier.response.lost] = earlier.response.error.partition(": ")[2]
    attempt = len(past.attempts)
    failures = 0
    while True:
        model = phases.of(think.phase)
        if think.tools and not model.abilities.tools:
            # Found out by an attempt of this effect, in this process or in one that ended right behind it.
            if said := rejected.get("tools", ""):
                _remember(log, model, "tools", said)
            raise Unsupported(f"{model.spec} takes no native tools", "tools", said)
        request = model.encode(think)
        turn = await _wait_for_turn(model, request, meter, on_note)
        if phases.of(think.phase) is not model:
            turn.give_back()  # another call of the run found in the meantime that this model cannot be used
            continue
        try:
            max_tokens = share.attempt(model, request.body, think.max_tokens)
        except BaseException:
            turn.give_back()
            raise
        limited = limit_reply(think, max_tokens) if max_tokens != think.max_tokens else think
        if limited is not think:
            request = model.encode(limited)
        given = max_tokens if limited is not think else None
        request = structs.replace(request, contents=find_contents(request.body))
        asked = Thinking(n, step, think.phase, model.spec, request.path, attempt, given, asked_by)
        await log.append((asked, request.body))
        span.record_attempt(request)
        began = time.perf_counter()
        try:
            response = await model.send(request, limited, on_text)
            seconds = time.perf_counter() - began - response.startup
            meter.exclude_startup(response.startup)
            reply = response.reply or model.decode(response, limited)
        except asyncio.CancelledError as why:
            came = getattr(why, "response", None)
            # Where no request was sent, the model was still being fetched or loaded: that is no time of the phase.
            seconds = time.perf_counter() - began if came is not None else 0.0
            usage, cost = _count_lost(meter, model, limited, why, seconds)
            status, body = (came.status, came.body) if came is not None else (0, None)
            got = Got(n, attempt, status, seconds, "cancelled", usage=usage, cost=cost, asked_by=asked_by)
            log.buffer((got, body))
            raise
        except ModelError as why:
            seconds = time.perf_counter() - began
            usage, cost = _count_lost(meter, model, limited, why, seconds)
            span.record_failure(why)
            answer = why.response
            lost, words = (why.ability, why.said or why.message) if isinstance(why, Unsupported) else ("", "")
            status = answer.status if answer is not None else 0
            is_given_up = not why.retry or failures >= retries or (why.after or 0.0) > LONGEST_WAIT
            following = phases.fallback(think.phase, model) if is_given_up and why.allows_fallback else None
            fallback = following.spec if following is not None else ""
            error = f"{type(why).__name__}: {why}"
            got = Got(n, attempt, status, seconds, error, lost, False, usage, cost, fallback, asked_by)
            await log.append((got, answer.body if answer is not None else None))
            attempt += 1
            if following is not None:
                phases.leave(model.spec)
                share.may_repeat()
                on_note("model_change", f"{why.message} From here the run asks {fallback} instead of {model.spec}.")
                span.record_fallback(following)
                failures = 0
                continue
            if isinstance(why, ContextOverflow):
                raise
            if lost and getattr(model.abilities, lost, False):
                phases.lost(model.spec, lost)
                rejected[lost] = words
                if lost != "tools":
                    instead = _INSTEAD.get(lost, "left out")
                    on_note("retry", f"{model.spec} does not take '{lost}': {instead}, asking again")
                continue
            if isinstance(why, Unsupported):  # The request does not hold what the endpoint refuses.
                raise BadRequest(why.message) from why
            if is_given_up:
                raise
            failures += 1
            share.may_repeat()
            wait = _pause(why, failures)
            on_note("retry", f"{why.message} Trying again in {wait:.1f} s ({failures} of {retries}).")
            with meter.counted(waiting=1):
                await asyncio.sleep(wait)
            continue
        meter.learn(model, request.body, reply.usage)
        turn.settle(reply.usage.tokens)
        cost = cost_of_reply(reply, model.rate, seconds)
        named = reply.model
        reply = structs.replace(reply, seconds=seconds, cost=cost, model=model.spec)
        span.record_reply(reply, named)
        log.buffer(
            (Got(n, attempt, response.status, seconds, cut=response.cut, asked_by=asked_by), response.body),
            (ThoughtRecord(n, reply, asked_by), None),
        )
        for ability, said in rejected.items():  # asking without it has helped
            _remember(log, model, ability, said)
        return reply


def _remember(log: AnyLog, model: Model, ability: str, said: str) -> None:
    """Store a rejection for later runs, with the endpoint's words as the journal would store them."""
    remember_rejection(model, ability, log.scrub(said.encode("utf-8", "replace")).decode("utf-8", "replace"))


async def _wait_for_turn(
    model: Model, request: Request, meter: Meter, on_note: Callable[[str, str], None]
) -> RequestTurn:
    """Wait until the endpoint's rate limit allows the request. The time is not the model's."""
    limit: RateLimit | None = getattr(model, "rate_limit", None)
    if limit is None:
        return RequestTurn()

    def note_wait(seconds: float) -> None:
        if seconds > NOTED_WAIT:
            on_note("rate_limit", f"{model.endpoint} is limited to {limit}. Waiting {seconds:.1f} s.")

    return await limiter_of(model.endpoint, limit).wait(meter.prompt_tokens(model, request.body), note_wait)


def limit_reply(think: Think, max_tokens: int | None) -> Think:
    """The effect with that many tokens for its reply; as it is for None."""
    return think if max_tokens is None else structs.replace(think, max_tokens=max_tokens)


def _count_lost(
    meter: Meter, model: Model, think: Think, why: BaseException, seconds: float
) -> tuple[Usage | None, float | None]:
    """Count the tokens and USD of an attempt without a reply, and return them."""
    part = taken_by(why, think, load_wire(getattr(model, "wire", CHAT)))
    if part is None:
        return None, None
    usage, cost = part.usage, cost_of_reply(part, model.rate, seconds)
    meter.lost(usage, cost)
    return usage, cost


def taken_by(why: BaseException, think: Think, wire: Wire) -> Reply | None:
    """The part of a reply that an attempt received before it failed, with its tokens; None where it took none.

    A request that the endpoint refused, or that never reached it, took none. One that was sent and broke off, timed out
    or was cancelled took its prompt and what was received.
    """
    response = getattr(why, "response", None)
    if response is not None and response.status not in (0, 200):
        return None
    sent = response is not None or getattr(why, "sent", False)
    return read_partial_reply(response.body if response is not None else b"", think, wire) if sent else None


def _pause(why: ModelError, failures: int) -> float:
    """Seconds to wait before the next attempt: what the endpoint asks for, else doubling, with some chance in it."""
    if why.after is not None:
        return why.after
    return min(0.25 * 2.0**failures, 10.0) * random.uniform(0.75, 1.25)


class Thinker:
    """Performs the think effects of one run. `on_piece` gets the text of watched replies as it comes."""

    def __init__(self, run_context: RunContext, hooks: RunHooks, on_piece: Callable[[WaitResult], None]) -> None:
        self.run_context = run_context
        self._hooks = hooks
        self._on_piece = on_piece
        self._tiers_noted: set[tuple[str, str]] = set()
        # A recorded change of models holds from the start: effects that overlap may be performed in another order.
        for _, attempt in run_context.run_spec.past.timeline.attempts:
            if attempt.response is not None and attempt.response.fallback:
                run_context.run_spec.phases.leave(attempt.model)

    async def perform(self, n: int, effect: Think, past: PastEffect, *, started: bool = False) -> Reply:
        """Return the reply: the recorded one, or the model's. A `started` effect never uses the reserved call."""
        effect = without_special_tokens(effect, self.run_context.run_spec.data_tokens)
        meter = self.run_context.meter
        step = meter.steps + (0 if effect.repair else 1)
        if past.thrown is None and not past.attempts:
            await self._may_begin(n, effect, step, started)
        elif past.thrown is not None and not past.attempts:
            self._rethrow(past.thrown)
        counts = not effect.repair and meter.near is None
        meter.steps += counts
        try:
            effect = await self._hooks.before_model(n, step, effect, past)
            if (recorded := self._recorded(n, effect, past, step)) is not None:
                return await self._hooks.after_model(n, step, recorded, past)
            model = self.run_context.run_spec.phases.of(effect.phase)
            self.run_context.say(ev.Asked(step, effect.phase, model.spec))
            # If another process made an attempt, pieces of it may have been taken: the reply begins again.
            listener = self._listener(n, effect, step, again=bool(past.attempts))
            with meter.asking(started=started) as share, self.run_context.span.model(step, effect, model) as span:
                reply = await ask_model(
                    self.run_context.run_spec.phases,
                    effect,
                    n=n,
                    step=step,
                    log=self.run_context.log,
                    past=past,
                    retries=self.run_context.run_spec.limits.retries,
                    on_text=listener if not self._hooks.has("after_model") else None,
                    on_note=partial(self._say_again, step, listener),
                    find_contents=self.run_context.find_contents,
                    span=span,
                    meter=meter,
                    share=share,
                )
        except (LimitNear, LimitReached, Unsupported, ContextOverflow) as why:
            if isinstance(why, Unsupported | ContextOverflow):
                meter.steps -= counts  # The turn is still to come, in another form.
            if past.thrown is None:
                await self._record_thrown(n, step, why)
            raise
        meter.count_reply(reply)
        if reply.finish == "circle":
            self.run_context.remark(step, "circle", _circle(reply))
        self._note_service_tier(step, model, reply)
        if self._hooks.has("after_model"):
            reply = await self._hooks.after_model(n, step, reply, past)
            if listener is not None:
                listener(reply.text)
        if listener is not None:
            listener.close(reply)
        self.run_context.say(
            ev.Replied(step, effect.phase, reply.model, reply.text, reply.usage, reply.seconds, reply.cost)
        )
        return reply

    def _note_service_tier(self, step: int, model: Model, reply: Reply) -> None:
        """Note, once for a model and tier, that a reply's service tier has no price of its own."""
        tier, rate = reply.service_tier, model.rate
        if reply.cost_reported or not rate.is_known or rate.has_service_tier(tier):
            return
        if (model.spec, tier) in self._tiers_noted:
            return
        self._tiers_noted.add((model.spec, tier))
        name = split_settings(model.spec)[0]
        said = f"{name} answered in the service tier {tier!r}. Plait knows no price for that tier and counts the "
        said += f'ordinary one. Add the price to plait.toml: [prices."{name}{SERVICE_TIER}{tier}"].'
        self.run_context.remark(step, "price", said)

    def _recorded(self, n: int, effect: Think, past: PastEffect, step: int) -> Reply | None:
        """Return the recorded reply, or raise what was thrown in its place; None if the model is to be asked."""
        if past.attempts:
            self._same_request(n, effect, past, step)
            count_attempts(self.run_context.meter, past.attempts)
        if past.thrown is not None:
            self._rethrow(past.thrown)
        if past.reply is not None:
            self.run_context.meter.count_reply(past.reply)
            return past.reply
        if self.run_context.run_spec.replay:
            raise RecordEnds
        return None

    async def _may_begin(self, n: int, effect: Think, step: int, started: bool) -> None:
        """Raise, and record, what keeps a new effect from being performed: a limit, or a missing ability."""
        model = self.run_context.run_spec.phases.of(effect.phase)
        try:
            if (near := self.run_context.meter.before_think(model, repair=effect.repair, started=started)) is not None:
                raise near
            if effect.tools and not model.abilities.tools:
                raise Unsupported(f"{model.spec} takes no native tools", "tools")
        except (LimitNear, LimitReached, Unsupported) as why:
            await self._record_thrown(n, step, why)
            raise

    async def _record_thrown(
        self, n: int, step: int, why: LimitNear | LimitReached | Unsupported | ContextOverflow
    ) -> None:
        """Record what the loop receives in place of a reply."""
        match why:
            case LimitNear():
                thrown, said = Thrown(n, step, "LimitNear", why.limit, why.detail), sentence(why.detail)
            case LimitReached():
                thrown, said = Thrown(n, step, "LimitReached", why.limit, why.detail), ""
            case Unsupported():
                thrown, said = Thrown(n, step, "Unsupported", why.ability, why.message, said=why.said), ""
            case ContextOverflow():
                thrown = Thrown(n, step, "ContextOverflow", "context", str(why), why.tokens, why.room)
                said = "The prompt is too long for the model; showing it less."
        await self.run_context.log.append((thrown, None))
        if said:
            self.run_context.say(ev.Noted(step, "limit", said))
        if isinstance(why, Unsupported | ContextOverflow):
            self.run_context.meter.not_asked()

    def _say_again(self, step: int, listener: ReplyListener | None, kind: str, text: str) -> None:
        if listener is not None:
            listener.again()
        self.run_context.remark(step, kind, text)

    def _rethrow(self, thrown: LoopException) -> NoReturn:
        if thrown.kind == "LimitNear":
            raise self.run_context.meter.conclude(thrown.limit, thrown.detail)
        if thrown.kind == "LimitReached":
            raise LimitReached(thrown.limit, thrown.detail)
        if thrown.kind == "Unsupported":
            raise Unsupported(thrown.detail, thrown.limit, thrown.said)
        raise ContextOverflow(thrown.detail, tokens=thrown.tokens, room=thrown.room)

    def _same_request(self, n: int, effect: Think, past: PastEffect, step: int) -> None:
        """Compare every recorded attempt of this effect with the request the loop makes now."""
        for asked in past.attempts:
            if asked.phase != effect.phase:
                raise differs(n, step, f"phase {asked.phase}", f"phase {effect.phase}")
            if step < self.run_context.run_spec.trust_until:
                continue
            phases = self.run_context.run_spec.phases
            made = phases.find_model(effect.phase, asked.model).encode(limit_reply(effect, asked.max_tokens))
            if (found := self.run_context.log.scrub(made.body)) != asked.request or made.path != asked.path:
                raise differs(n, step, text_of(asked.request), text_of(found))
            self.run_context.compared += 1
            if asked.response is not None and asked.response.lost:
                phases.lost(asked.model, asked.response.lost)

    def _listener(self, n: int, effect: Think, step: int, *, again: bool) -> ReplyListener | None:
        """Return the listener for the text of an unfinished reply; None if nobody needs it."""
        loop = self.run_context.run_spec.loop
        shows = self.run_context.on_event is not None
        split = (lambda: splitter_of(loop, effect.phase)) if shows else None
        on_piece = self._on_piece if effect.watch else None
        if split is None and on_piece is None:
            return None
        output = self.run_context.run_spec.output
        only_answer = is_only_answer(effect, output.spec)

        def follow_answer() -> PartialAnswer:
            return PartialAnswer(output, lambda value: self.run_context.say(ev.PartialOutput(step, value)))

        held = self._hooks.has("before_answer", "after_answer")  # no text of an answer before the hooks have seen it
        partial_answer = follow_answer if split is not None and output.spec is not None and not held else None
        say, tool = self._say_but_answers if held else self.run_context.say, find_answer_tool(effect, output.spec)
        return ReplyListener(n, step, split, say, on_piece, again, partial_answer, only_answer, tool)

    def _say_but_answers(self, event: ev.Event) -> None:
        if not isinstance(event, ev.Answer | ev.Text):
            self.run_context.say(event)


def count_attempts(meter: Meter, attempts: Sequence[ModelAttempt]) -> None:
    """Count the attempts on record, and what those took that brought no reply."""
    meter.requests += len(attempts)
    for attempt in attempts:
        if attempt.response is not None and attempt.response.usage is not None:
            meter.lost(attempt.response.usage, attempt.response.cost)


def _circle(reply: Reply) -> str:
    """Where a reply went in circles, and what is left of it."""
    written = sum(len(str(call.input)) for call in reply.calls)
    if isinstance(reply.calls[-1].input if reply.calls else None, str):
        return f"The input of a call went in circles: cut after {written:,} characters."
    if reply.reasoning and not reply.text:
        return f"The reasoning went in circles: cut after {len(reply.reasoning):,} characters."
    return f"The reply went in circles: cut after {len(reply.text):,} characters."
