"""Sends one request to a model: an attempt of a model call, which is an entry of its own.

An attempt has a result however it ends: a response, an error of the endpoint, or that it was cancelled. If the process
ended first, it is recorded as lost. What an attempt took that brought no reply is estimated from what was received, and
is on record with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from plait.core import Reply, Think, Usage
from plait.core.errors import ModelError, Unsupported
from plait.journal.records import LOST, Asking, Decision, RequestRecord, ResponseRecord
from plait.models.base import Model, Request, Response
from plait.models.prices import cost_of_reply
from plait.models.wires.odd_json import mend
from plait.models.wires.replies import read_partial_reply
from plait.models.wires.wire import CHAT, Wire, load_wire
from plait.runtime.guard import Attempt, EndedByRefusal, Entry
from plait.runtime.performers.base import BasePerformer
from plait.runtime.phase_models import Phases
from plait.runtime.run_journal import EntryWork, FoundEntry
from plait.runtime.run_spec import differs
from plait.runtime.spent import Spent
from plait.runtime.tracing import UNWATCHED, ModelSpan

if TYPE_CHECKING:
    from plait.runtime.engine import Engine

LONGEST_WAIT = 60.0
"""Seconds: an endpoint that asks for a longer pause is taken to be out for this run."""


class SendRequest(BasePerformer):
    """Performs one `Attempt`; the result is a `Response` of the record. Make one for each attempt.

    `request` is the encoded request of a new attempt. `failures` counts the retries before it. A recorded attempt is
    compared with what would be sent now, unless `compares` is False. Afterwards, `reply` is the reply, `failure` what
    went wrong, and `cancelled` the cancellation that the caller has to raise. After a failure, `following` is the model
    to ask instead; `is_given_up` says that this one must not be asked again.
    """

    work = "request"

    def __init__(
        self,
        engine: Engine,
        phases: Phases,
        request: Request | None = None,
        *,
        failures: int = 0,
        on_text: Callable[[str], None] | None = None,
        span: ModelSpan = UNWATCHED,
        compares: bool = True,
    ) -> None:
        super().__init__(engine)
        self._phases, self._failures, self._on_text, self._span = phases, failures, on_text, span
        self._request = request or Request("", b"")
        self._compares = compares
        self._answer: tuple[ResponseRecord, bytes] | None = None
        self.reply: Reply | None = None
        self.failure: ModelError | None = None
        self.cancelled: asyncio.CancelledError | None = None
        self.following: Model | None = None
        self.is_given_up = False

    def rebind(self, entry: Entry, changed: Attempt, decision: Decision) -> None:
        """Encode the request again, for a shorter reply."""
        attempt: Attempt = entry.effect
        made = attempt.model.encode(limit_reply(attempt.think, changed.max_tokens))
        self._request = structs.replace(self._request, body=made.body)
        entry.effect = dataclasses.replace(attempt, body=made.body, max_tokens=changed.max_tokens)

    def restore(self, entry: Entry, found: FoundEntry) -> None:
        asked: RequestRecord = found.asked
        attempt, body = entry.effect, found.body or b""
        think, step = attempt.think, entry.step
        if asked.phase != think.phase:
            raise differs(entry.key, step, f"phase {asked.phase}", f"phase {think.phase}")
        model = self._phases.find_model(think.phase, asked.model)
        if self._compares:
            made = model.encode(limit_reply(think, asked.max_tokens))
            if made.body != body and (now := self.engine.log.scrub(made.body)) != body:
                raise differs(entry.key, step, _text_of(body), _text_of(now))
            if made.path != asked.path:
                raise differs(entry.key, step, asked.path, made.path)
            self.engine.compared += 1
        max_tokens = think.max_tokens if asked.max_tokens is None else asked.max_tokens
        entry.effect = dataclasses.replace(attempt, model=model, body=body, max_tokens=max_tokens)
        self._request = Request(asked.path, body)
        if found.value is not UNSET:
            self._answer = found.value, found.answer or b""

    def describe(self, entry: Entry) -> EntryWork:
        attempt: Attempt = entry.effect
        changed = None if attempt.max_tokens == attempt.think.max_tokens else attempt.max_tokens
        asked = RequestRecord(attempt.think.phase, attempt.model.spec, self._request.path, changed)
        return EntryWork(asked, body=attempt.body, settle_doubt=partial(self._describe_lost, attempt))

    async def perform(self, entry: Entry) -> tuple[ResponseRecord, bytes | None]:
        engine, attempt = self.engine, entry.effect
        model, think = attempt.model, limit_reply(attempt.think, attempt.max_tokens)
        engine.tally.own += Spent(requests=1)
        self._span.record_attempt(self._request)
        began = time.perf_counter()
        try:
            response = await model.send(self._request, think, self._on_text)
            seconds = time.perf_counter() - began - response.startup
            engine.clock.exclude_startup(response.startup)
            reply = response.reply or model.decode(response, think)
        except asyncio.CancelledError as why:
            self.cancelled = why
            came: Response | None = getattr(why, "response", None)
            # Where no request was sent, the model was still being fetched or loaded: that is no time of the phase.
            seconds = time.perf_counter() - began if came is not None else 0.0
            usage, cost = self._count_lost(model, taken_by(why, think, _wire_of(model)), seconds)
            status, body = (came.status, came.body) if came is not None else (0, None)
            return ResponseRecord(status, seconds, "cancelled", usage=usage, cost=cost), body
        except ModelError as why:
            self.failure = why
            seconds = time.perf_counter() - began
            usage, cost = self._count_lost(model, taken_by(why, think, _wire_of(model)), seconds)
            self._span.record_failure(why)
            retries = engine.run_spec.agent.limits.retries
            self.is_given_up = not why.retry or self._failures >= retries or (why.after or 0.0) > LONGEST_WAIT
            if self.is_given_up and why.allows_fallback:
                self.following = self._phases.fallback(think.phase, model)
            status, body = (why.response.status, why.response.body) if why.response is not None else (0, None)
            lost = why.ability if isinstance(why, Unsupported) else ""
            fallback = self.following.spec if self.following is not None else ""
            said = f"{type(why).__name__}: {why}"
            return ResponseRecord(status, seconds, said, lost, usage=usage, cost=cost, fallback=fallback), body
        self.reply = _finish(reply, model, seconds)
        self._span.record_reply(self.reply, reply.model)
        return ResponseRecord(response.status, seconds, cut=response.cut), response.body

    async def _describe_lost(self, attempt: Attempt) -> tuple[ResponseRecord, None]:
        """Return what is recorded of an attempt whose process ended: it may have been sent, so its prompt counts."""
        think = limit_reply(attempt.think, attempt.max_tokens)
        usage, cost = self._count_lost(attempt.model, read_partial_reply(b"", think, _wire_of(attempt.model)), 0.0)
        return ResponseRecord(0, 0.0, LOST, usage=usage, cost=cost), None

    def _count_lost(self, model: Model, part: Reply | None, seconds: float) -> tuple[Usage | None, float | None]:
        """Count the tokens and USD of an attempt without a reply, and return them. `part` is what it took."""
        if part is None:
            return None, None
        usage, cost = part.usage, cost_of_reply(part, model.rate, seconds)
        self.engine.tally.own += Spent(usage=usage, cost_usd=cost)
        return usage, cost

    def decode_recorded(self, entry: Entry) -> Reply | None:
        """Return the reply in the recorded response; None if the attempt brought none."""
        if self._answer is None or self._answer[0].error:
            return None
        attempt, (response, body) = entry.effect, self._answer
        think = limit_reply(attempt.think, attempt.max_tokens)
        reply = attempt.model.decode(Response(response.status, body, response.cut), think)
        return _finish(reply, attempt.model, response.seconds)

    def ask(self, entry: Entry, question: str, result: Any) -> Asking:
        return ask_about_request(entry, question)


def ask_about_request(entry: Entry, question: str) -> Asking:
    """Return a guard's question about a request or a reply. Raises `EndedByRefusal` for the request of a tool."""
    if entry.by_tool:
        raise EndedByRefusal(f"{question} A question that a tool asks a model cannot wait for an approval.")
    return Asking("approval", question)


def limit_reply(think: Think, max_tokens: int | None) -> Think:
    """Return the effect with that many tokens for its reply; as it is for None."""
    return think if max_tokens in (None, think.max_tokens) else structs.replace(think, max_tokens=max_tokens)


def taken_by(why: BaseException, think: Think, wire: Wire) -> Reply | None:
    """Return the part of a reply that an attempt received before it failed, with its tokens; None if it took none. A
    request that the endpoint refused, or that never reached it, took none. One that was sent and broke off, timed out
    or was cancelled took its prompt and what was received."""
    response = getattr(why, "response", None)
    if response is not None and response.status not in (0, 200):
        return None
    sent = response is not None or getattr(why, "sent", False)
    return read_partial_reply(response.body if response is not None else b"", think, wire) if sent else None


def _finish(reply: Reply, model: Model, seconds: float) -> Reply:
    """Return the reply as text that can be stored, with its time, its price and the model that was asked."""
    cost = cost_of_reply(reply, model.rate, seconds)
    calls = tuple(structs.replace(each, tool=mend(each.tool)[0], input=mend(each.input)[0]) for each in reply.calls)
    said = {"text": mend(reply.text)[0], "reasoning": mend(reply.reasoning)[0], "calls": calls}
    return structs.replace(reply, seconds=seconds, cost=cost, model=model.spec, **said)


def _wire_of(model: Model) -> Wire:
    return load_wire(getattr(model, "wire", CHAT))


def _text_of(body: bytes) -> str:
    return body.decode("utf-8", "replace")
