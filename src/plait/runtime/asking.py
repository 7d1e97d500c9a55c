"""Asks a model: one think effect, from the request through retries to the reply, each attempt on the record.

Each attempt is counted and may use its share of the run's limits (`limits.Share`). What an attempt took that brought no
reply is estimated from what was received, and stands on the record with it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from msgspec import structs

from plait.core import Lacking, PromptTooLong, Reply, Think, Usage
from plait.core.errors import ModelError, TooLong, Unsupported, UsageError
from plait.journal.log import AnyLog
from plait.journal.records import Got, RunHead, Thinking, Thought
from plait.loops.escape import without_tokens
from plait.models.base import Model
from plait.models.replies import usage_received
from plait.models.special_tokens import special_tokens_of
from plait.runtime.limits import Meter, Share
from plait.runtime.past import PastEffect
from plait.runtime.tracing import ModelSpan

LONGEST_WAIT = 60.0
"""Seconds: an endpoint that asks for a longer pause is taken to be out for this run."""


class Phases:
    """The model of each phase, and what was found out about it in this run."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models: MutableMapping[str, Model] = dict(models)

    def of(self, phase: str) -> Model:
        """The model that a phase asks: its own, or the one for all (key "")."""
        model = self._models.get(phase) or self._models.get("")
        if model is None and "." in phase:
            # A loop that another fell back to, where only that one's phases were given models.
            model = next(iter(self._models.values()), None)
        if model is None:
            raise UsageError(
                f"The phase '{phase}' has no model.",
                hint="Give model=..., or one for this phase in models={...}.",
            )
        return model

    def lost(self, phase: str, ability: str) -> None:
        """A phase's endpoint turned out not to have an ability."""
        found = self.of(phase)
        for key, model in self._models.items():
            if model is found:
                self._models[key] = model.without(ability)

    def secrets(self) -> tuple[str, ...]:
        """All that must never be written down."""
        return tuple({secret for model in self._models.values() for secret in model.secrets})

    def describe(self) -> dict[str, dict[str, object]]:
        """What the record keeps of each phase's model."""
        return {phase: model.describe() for phase, model in self._models.items()}

    def specs(self) -> dict[str, str]:
        """Each phase's model as the user wrote it."""
        return {phase: model.spec for phase, model in self._models.items()}


def known_models(models: Mapping[str, Model], head: RunHead | None) -> dict[str, Model]:
    """The models without what a recorded run already knew their endpoints could not do."""
    known = dict(models)
    for phase, said in (head.models if head is not None else {}).items():
        if phase not in known or said.get("spec") != known[phase].spec:
            continue
        for ability, able in said.get("abilities", {}).items():
            if not able and getattr(known[phase].abilities, ability, False):
                known[phase] = known[phase].without(ability)
    return known


def special_tokens(models: Mapping[str, Model], head: RunHead | None) -> tuple[str, ...]:
    """The special tokens of a run's models; of a recorded run those on its record, so that a replay needs no file."""
    found: set[str] = set()
    for phase, model in models.items():
        said = head.models.get(phase, {}) if head is not None else {}
        recorded = said.get("spec") == model.spec
        found.update(said.get("special_tokens", ()) if recorded else special_tokens_of(model))
    return tuple(sorted(found))


def without_special_tokens(think: Think, tokens: Sequence[str]) -> Think:
    """The request with these tokens made plain text in all that it shows."""
    if not tokens:
        return think
    messages = tuple(
        structs.replace(message, content=text)
        if (text := without_tokens(message.content, tokens)) is not message.content
        else message
        for message in think.messages
    )
    return structs.replace(
        think,
        messages=messages,
        prompt=without_tokens(think.prompt, tokens),
        prefill=without_tokens(think.prefill, tokens),
    )


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
    on_retry: Callable[[str], None],
    span: ModelSpan,
    meter: Meter,
    share: Share,
) -> Reply:
    """The reply to a think effect.

    Raises `PromptTooLong`, `Lacking` or `LimitNear` for the loop, `LimitReached` where a limit leaves no room, or a
    `ModelError` when all is lost.
    """
    for got, _ in past.got:
        if got.lost:
            phases.lost(think.phase, got.lost)
    attempt = len(past.thinking)
    failures = 0
    while True:
        model = phases.of(think.phase)
        if think.tools and not model.abilities.tools:
            # Found out by an attempt of this effect, in this process or in one that ended right behind it.
            raise Lacking("tools", f"{model.spec} takes no native tools")
        request = model.encode(think)
        most = share.attempt(model, request.body, think.max_tokens)
        limited = limit_reply(think, most) if most != think.max_tokens else think
        if limited is not think:
            request = model.encode(limited)
        given = most if limited is not think else None
        await log.append((Thinking(n, step, think.phase, model.spec, request.path, attempt, given), request.body))
        span.asked(request)
        began = time.perf_counter()
        try:
            response = await model.send(request, limited, on_text)
            seconds = time.perf_counter() - began - response.startup
            reply = response.reply or model.decode(response, limited)
        except asyncio.CancelledError as why:
            came = getattr(why, "response", None)
            # Where no request was sent, the model was still being fetched or loaded: that is no time of the phase.
            seconds = time.perf_counter() - began if came is not None else 0.0
            usage, cost = _count_lost(meter, model, limited, why, seconds)
            status, body = (came.status, came.body) if came is not None else (0, None)
            log.buffer((Got(n, attempt, status, seconds, "cancelled", usage=usage, cost=cost), body))
            raise
        except ModelError as why:
            seconds = time.perf_counter() - began
            usage, cost = _count_lost(meter, model, limited, why, seconds)
            span.failed(why)
            answer = why.response
            lost = why.ability if isinstance(why, Unsupported) else ""
            status = answer.status if answer is not None else 0
            await log.append(
                (
                    Got(n, attempt, status, seconds, f"{type(why).__name__}: {why}", lost, usage=usage, cost=cost),
                    answer.body if answer is not None else None,
                )
            )
            attempt += 1
            if isinstance(why, TooLong):
                raise PromptTooLong(str(why), why.tokens, why.room) from why
            if lost and getattr(model.abilities, lost, False):
                phases.lost(think.phase, lost)
                if lost != "tools":
                    on_retry(f"{model.spec} does not take '{lost}': left out, asking again")
                continue
            failures += 1
            if not why.retry or failures > retries:
                raise
            share.may_repeat()
            wait = _pause(why, failures)
            on_retry(f"{why.message} Trying again in {wait:.1f} s ({failures} of {retries}).")
            await asyncio.sleep(wait)
            continue
        meter.learn(model, request.body, reply.usage)
        cost = model.rate.cost(reply.usage, seconds)
        named = reply.model
        reply = structs.replace(reply, seconds=seconds, cost=cost, model=model.spec)
        span.replied(reply, named)
        log.buffer(
            (Got(n, attempt, response.status, seconds, cut=response.cut), response.body),
            (Thought(n, reply), None),
        )
        return reply


def limit_reply(think: Think, most: int | None) -> Think:
    """The effect with that many tokens for its reply; as it is for None."""
    return think if most is None else structs.replace(think, max_tokens=most)


def _count_lost(
    meter: Meter, model: Model, think: Think, why: BaseException, seconds: float
) -> tuple[Usage | None, float | None]:
    """What an attempt took that brought no reply: its tokens and USD, counted."""
    usage = taken_by(why, think)
    if usage is None:
        return None, None
    cost = model.rate.cost(usage, seconds)
    meter.lost(usage, cost)
    if meter.outer is not None:
        meter.outer.took(model.spec, usage, cost)
    return usage, cost


def taken_by(why: BaseException, think: Think) -> Usage | None:
    """The tokens that an attempt took which brought no reply, estimated; None where it took none.

    A request that the endpoint refused, or that never reached it, took none. One that was sent and broke off, timed out
    or was cancelled took its prompt and what was received.
    """
    response = getattr(why, "response", None)
    if response is not None and response.status not in (0, 200):
        return None
    sent = response is not None or getattr(why, "sent", False)
    return usage_received(response.body if response is not None else b"", think) if sent else None


def _pause(why: ModelError, failures: int) -> float:
    """Seconds to wait before the next attempt: what the endpoint asks for, else doubling, with some chance in it."""
    if why.after is not None:
        if why.after > LONGEST_WAIT:
            raise why
        return why.after
    return min(0.25 * 2.0**failures, 10.0) * random.uniform(0.75, 1.25)
