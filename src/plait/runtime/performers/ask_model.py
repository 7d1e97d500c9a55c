"""Asks models: a model call from the request through its attempts to the reply.

Theory of operation. A model call makes attempts until one has a reply. Each attempt is an entry of its own (see
`send_request.py`), so that it is on record and guards see it. An attempt is admitted before the pause or the queue that
comes before it: what it may use is reserved, and a limit that leaves no room for it is found at once.

If a model cannot be used and its phase has fallback models, the record of the failed attempt names the next one, and
the run asks that one from there. A resumed run goes through the recorded attempts first, so it asks the same models.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs, to_builtins

from plait.core import LimitNear, Reply, Think
from plait.core import events as ev
from plait.core.errors import BadRequest, ContextOverflow, ModelError, Unsupported
from plait.journal.records import Asking, NoteRecord, ResponseRecord, ResultRecord
from plait.models.base import Model
from plait.models.presets import HOSTS
from plait.models.prices import SERVICE_TIER
from plait.models.rate_limits import RateLimit, RequestTurn, limiter_of
from plait.models.rejections import remember_rejection
from plait.models.settings import split_settings
from plait.runtime.conversations.attachments import find_contents
from plait.runtime.guard import Attempt, Entry, LimitReached, RecordEnds, Suspend
from plait.runtime.performers.base import BasePerformer
from plait.runtime.performers.send_request import SendRequest, ask_about_request
from plait.runtime.phase_models import Phases, without_special_tokens
from plait.runtime.prompt_cache import CacheWatch
from plait.runtime.reply_listener import ReplyListener
from plait.runtime.run_journal import NOTHING, FoundEntry
from plait.runtime.spent import Spent
from plait.runtime.tally import is_truncated
from plait.runtime.tracing import ModelSpan

if TYPE_CHECKING:
    from plait.runtime.engine import Engine

NOTED_WAIT = 1.0
"""Seconds: a longer wait for a rate limit is noted."""
_INSTEAD = {"max_tokens": "sent as 'max_completion_tokens'", "prefill": "sent as a message to continue"}
"""The words of a note about a rejected ability that is sent in another way."""


class AskModel(BasePerformer):
    """Performs `Think`, and what tools ask models. The result is a `Reply`."""

    work = "think"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._cuts_noted: set[str] = set()
        """The models of which a cut prompt was noted."""
        self._suspended: dict[str, AskForReply] = {}
        """The model calls that wait for the user in this process, by key."""
        self._tiers_noted: set[tuple[str, str]] = set()
        self._cache: CacheWatch | None = None

    def step_of(self, effect: Think) -> int:
        return self.engine.steps + (not effect.repair)

    async def take(self, key: str, effect: Think, *, started: bool, beside: int) -> Reply:
        engine = self.engine
        call = self._suspended.pop(key, None)
        if call is None:
            call = await self._begin_turn(key, effect, is_new=not started)
            engine.steps += call.counts
        entry = Entry(engine.run_id, key, call.step, call.asked, call.asked, started=started, beside=beside)
        try:
            return await call.ask_or_recall(entry)
        except Suspend:
            self._suspended[key] = call
            raise
        except (Unsupported, ContextOverflow):
            engine.steps -= call.counts  # the turn is still to come, in another form
            raise
        except (LimitNear, LimitReached):
            engine.steps -= call.counts and not call.attempts
            raise

    async def prepare_raised(self, key: str, effect: Think) -> None:
        call = await self._begin_turn(key, effect, is_new=False)
        call.compare_attempts(Entry(self.engine.run_id, key, call.step, call.asked, call.asked))
        raised = self.engine.journal.raised(key)
        kind = raised.kind if raised is not None else ""
        if kind == "EndedByRefusal" or (kind in ("LimitNear", "LimitReached") and call.attempts):
            self.engine.steps += call.counts

    async def _begin_turn(self, key: str, effect: Think, *, is_new: bool) -> AskForReply:
        engine, step = self.engine, self.step_of(effect)
        effect = await engine.performers.news.put_into(key, effect, step=step, is_new=is_new)
        effect = without_special_tokens(effect, engine.run_spec.data_tokens)
        return AskForReply(self, effect, engine.run_spec.phases, step, counts=not effect.repair and engine.near is None)

    async def ask_for_tool(self, call: Entry, think: Think, phases: Phases, counts: Counter[str]) -> Reply:
        """Return a model's reply to a question of a tool call. `counts` counts the requests of this call, by digest.
        The same request of the same call has the recorded reply. Raises `LimitNear`, `LimitReached`, `ModelError`,
        `ConfigError`, or `EndedByRefusal` if a guard refuses it or wants to ask the user about it."""
        engine = self.engine
        think = without_special_tokens(think, engine.run_spec.data_tokens)
        digest = engine.journal.digest([phases.spec(think.phase), to_builtins(think, enc_hook=repr)])
        number, counts[digest] = counts[digest], counts[digest] + 1
        key = f"{call.key}:m{digest}.{number}"
        entry = Entry(engine.run_id, key, call.step, think, think, started=call.started, by_tool=True)
        return await AskForReply(self, think, phases, call.step).ask_or_recall(entry)

    def note_truncated_prompt(self, step: int, model: Model, body: bytes, reply: Reply) -> None:
        """Note, once for a model, that a local server seems to have dropped a part of the prompt."""
        provider = getattr(model, "provider", "")
        is_local = not provider or (provider in HOSTS and HOSTS[provider].local)
        if not is_local or model.spec in self._cuts_noted or not is_truncated(body, reply.usage):
            return
        self._cuts_noted.add(model.spec)
        said = f"{model.spec} reports only {reply.usage.input_tokens:,} tokens for a request of {len(body):,} bytes. "
        said += "If it counts cached tokens, too, it dropped the beginning, with instructions and tools: give it a "
        self.engine.remark("truncated", f"{said}larger context (Ollama: OLLAMA_CONTEXT_LENGTH).", step)

    def find_broken_prefix(self, phase: str, body: bytes, reply: Reply) -> str:
        """Return what to report of a request that breaks what its provider had cached; "" for nothing."""
        if self._cache is None:
            if not (reply.usage.cached_tokens or reply.usage.cache_write_tokens):
                return ""
            records = (row.record for row in self.engine.run_spec.past.rows)
            notes = (each.text for each in records if isinstance(each, NoteRecord) and each.kind == "cache")
            self._cache = CacheWatch(notes)
        return self._cache.look(reply.model, phase, body, reply.usage)

    def note_service_tier(self, step: int, model: Model, reply: Reply) -> None:
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
        self.engine.remark("price", said, step)


class AskForReply(BasePerformer):
    """One model call. `asked` is the request as the loop, or a tool, wants it. `counts`: it is a turn of the loop."""

    work = "think"

    def __init__(self, owner: AskModel, asked: Think, phases: Phases, step: int, *, counts: bool = False) -> None:
        super().__init__(owner.engine)
        self._owner, self.asked, self._phases, self.step, self.counts = owner, asked, phases, step, counts
        self.attempts = 0
        """Attempts so far, those on record included."""
        self._rejected: dict[str, str] = {}
        """Abilities that the endpoint does not have, with its words."""
        self._reply: Reply | None = None
        """The reply of an attempt. It may be from an earlier process, which ended before the call had its result."""
        self._is_compared = False
        self._is_asked = False
        self._has_replied = False
        """Whether the model has replied in this process, so that the reply is still to be reported."""
        self._listener: ReplyListener | None = None
        self._holds_text = False
        self._body = b""
        """The request of the last attempt."""

    async def ask_or_recall(self, entry: Entry) -> Reply:
        """Return the reply as the guards leave it: the recorded one, or the model's."""
        engine = self.engine
        with await engine.chain.admit(entry, self) as admitted:
            # Go through the attempts on record: compare each, and learn from it what the model cannot do.
            self.attempts = 0
            while (recorded := self._next_recorded(entry)) is not None:
                at, sending, found = recorded
                self._learn(found, await self.engine.perform(at, sending))
                self._body = at.effect.body
                if self._reply is None and self.engine.journal.find(entry.key).value is UNSET:
                    self._reply = sending.decode_recorded(at)
            self._is_compared = True
            if (reply := admitted.found.value) is UNSET:
                if engine.journal.replay:
                    raise RecordEnds
                reply = await self._ask(entry)
                engine.journal.buffer(ResultRecord(entry.key, entry.step, "think", reply))
            found_break = self._owner.find_broken_prefix(entry.effect.phase, self._body, reply)
            if found_break and self._has_replied:
                engine.remark("cache", found_break, self.step, entry.key)
        made: Reply = await engine.chain.settle(admitted, reply)
        if self._has_replied:
            if self._listener is not None:
                if self._holds_text:
                    self._listener(made.text)
                self._listener.close(made)
            if entry.by_tool:
                engine.say(ev.Noted(self.step, "tool_model", made.text))
            for hosted in made.hosted:
                engine.say(ev.HostedCalled(self.step, hosted))
            said = (made.model, made.text, made.usage, made.seconds, made.cost, made.citations)
            engine.say(ev.Replied(self.step, entry.effect.phase, *said))
        return made

    # -- what is on record

    def restore(self, entry: Entry, found: FoundEntry) -> None:
        """Take the request as the guards left it: the record has only what they changed."""
        self.engine.chain.decisions.follow_before(entry)

    def compare_attempts(self, entry: Entry) -> None:
        """Compare the attempts on record of a model call that brought an exception, and learn from them."""
        self.restore(entry, self.engine.journal.find(entry.key))
        while (recorded := self._next_recorded(entry)) is not None:
            at, sending, found = recorded
            sending.restore(at, found)
            if found.value is not UNSET:
                self._learn(found, found.value)

    def _next_recorded(self, entry: Entry) -> tuple[Entry, SendRequest, FoundEntry] | None:
        key = f"{entry.key}a{self.attempts}"
        found = self.engine.journal.find(key)
        if found is NOTHING:
            return None
        is_trusted = self._is_compared or entry.by_tool or self.step < self.engine.run_spec.trust_until
        sending = SendRequest(self.engine, self._phases, compares=not is_trusted)
        think: Think = entry.effect
        attempt = Attempt(think, self._phases.of(think.phase), b"", None, self.attempts)
        self.attempts += 1
        return self._entry_of(entry, key, attempt), sending, found

    def _learn(self, found: FoundEntry, response: ResponseRecord) -> None:
        spec = found.asked.model
        if response.lost:
            self._phases.lost(spec, response.lost)
            self._rejected[response.lost] = response.error.partition(": ")[2]
        if response.fallback:
            self._phases.leave(spec)

    def _entry_of(self, entry: Entry, key: str, attempt: Attempt) -> Entry:
        at = Entry(entry.run, key, entry.step, attempt, attempt, started=entry.started, by_tool=entry.by_tool)
        at.beside = entry.beside
        return at

    # -- new attempts

    def bind(self, entry: Entry) -> None:
        model = self._phases.of(self.asked.phase)
        if self.asked.tools and not model.abilities.tools:
            raise Unsupported(f"{model.spec} takes no native tools", "tools")

    async def _ask(self, entry: Entry) -> Reply:
        """Ask the model, if no recorded attempt has a reply. Raises `ContextOverflow`, `Unsupported` or `LimitNear` for
        the loop, `LimitReached` if a limit leaves no room, or another `ModelError` if no further attempt can help."""
        engine, think, by_tool = self.engine, entry.effect, entry.by_tool
        model = self._phases.of(think.phase)
        if not self._is_asked:
            self._is_asked = True
            if not by_tool and engine.on_event is not None:
                engine.written.begin()
            engine.say(ev.Asked(self.step, think.phase, model.spec))
            self._holds_text = self._reply is not None or engine.chain.holds_text(Think)
            is_needed = not by_tool and (engine.on_event is not None or entry.effect.watch)
            self._listener = ReplyListener(engine, entry, self.attempts > 0) if is_needed else None
        if self._reply is None:
            with engine.clock.counted(working=int(not by_tool)), engine.span.model(self.step, think, model) as span:
                try:
                    self._reply = await self._make_attempts(entry, span)
                except BaseException:
                    if self._listener is not None:
                        self._listener.again()
                    raise
        reply = self._reply
        engine.tally.own += Spent(calls=1, usage=reply.usage, cost_usd=reply.cost)
        self._has_replied = True
        model = self._phases.find_model(think.phase, reply.model)
        for ability, said in self._rejected.items():  # asking without it has helped
            self._remember(model, ability, said)
        if not by_tool:
            if reply.finish == "circle":
                engine.remark("circle", _describe_circle(reply), self.step)
            self._owner.note_service_tier(self.step, model, reply)
        return reply

    async def _make_attempts(self, entry: Entry, span: ModelSpan) -> Reply:
        engine, think, phases = self.engine, entry.effect, self._phases
        on_text = self._listener if not self._holds_text else None
        retries, failures, pause = engine.run_spec.agent.limits.retries, 0, 0.0
        note: tuple[str, str] | None = None
        """The kind and text of what is still to be said of the last attempt."""
        while True:
            model = phases.of(think.phase)
            if think.tools and not model.abilities.tools:
                # Found out by an attempt of this call, in this process or in one that ended right behind it.
                if note is not None:
                    self._say_again(*note)
                if said := self._rejected.get("tools", ""):
                    self._remember(model, "tools", said)
                raise Unsupported(f"{model.spec} takes no native tools", "tools", said)
            request = model.encode(think)
            contents = find_contents(request.body, engine.run_spec.contents, engine.artifacts)
            request = structs.replace(request, contents=contents)
            sending = SendRequest(engine, phases, request, failures=failures, on_text=on_text, span=span)
            attempt = Attempt(think, model, request.body, think.max_tokens, self.attempts)
            at = self._entry_of(entry, f"{entry.key}a{self.attempts}", attempt)
            with await engine.chain.admit(at, sending) as admitted:
                if note is not None:
                    self._say_again(*note)
                    note = None
                if pause:
                    with engine.clock.counted(waiting=1):
                        await asyncio.sleep(pause)
                    pause = 0.0
                turn = await self._wait_for_turn(model, at.effect.body)
                if phases.of(think.phase) is not model:
                    # Another call of the run found in the meantime what this model cannot do.
                    turn.give_back()
                    admitted.release()
                    continue
                response: ResponseRecord = await engine.journal.entry(
                    at, "request", sending.describe(at), sending.perform
                )
            self.attempts += 1
            self._body = at.effect.body
            if (reply := sending.reply) is not None:
                self._reply = reply
                self._owner.note_truncated_prompt(self.step, model, at.effect.body, reply)
                engine.tally.estimate.learn(model, at.effect.body, reply.usage)
                turn.settle(reply.usage.tokens)
            try:
                await engine.chain.settle(admitted, response)
            finally:
                if sending.cancelled is not None:
                    raise sending.cancelled
            if reply is not None:
                return reply
            why, following = sending.failure, sending.following
            assert why is not None
            if following is not None:
                phases.leave(model.spec)
                span.record_fallback(following)
                said = f"{why.message} From here the run asks {following.spec} instead of {model.spec}."
                note, failures = ("model_change", said), 0
            elif isinstance(why, Unsupported):
                if not getattr(model.abilities, why.ability, False):
                    raise BadRequest(why.message) from why  # the request does not hold what the endpoint refuses
                phases.lost(model.spec, why.ability)
                self._rejected[why.ability] = why.said or why.message
                if why.ability != "tools":
                    instead = _INSTEAD.get(why.ability, "left out")
                    note = ("retry", f"{model.spec} does not take '{why.ability}': {instead}, asking again")
            elif isinstance(why, ContextOverflow) or sending.is_given_up:
                raise why
            else:
                failures += 1
                pause = _pause(why, failures)
                note = ("retry", f"{why.message} Trying again in {pause:.1f} s ({failures} of {retries}).")
                await engine.log.append()  # what failed is on the disk during the pause

    def _say_again(self, kind: str, text: str) -> None:
        """Note why the model is asked again. The text so far is no part of the reply."""
        if self._listener is not None:
            self._listener.again()
        self.engine.remark(kind, text, self.step)

    async def _wait_for_turn(self, model: Model, body: bytes) -> RequestTurn:
        """Wait until the endpoint's rate limit allows the request. The time is not the model's."""
        limit: RateLimit | None = getattr(model, "rate_limit", None)
        if limit is None:
            return RequestTurn()

        def note_wait(seconds: float) -> None:
            if seconds > NOTED_WAIT:
                self._say_again("rate_limit", f"{model.endpoint} is limited to {limit}. Waiting {seconds:.1f} s.")

        tokens = self.engine.tally.estimate.prompt_tokens(model, body)
        return await limiter_of(model.endpoint, limit).wait(tokens, note_wait)

    def _remember(self, model: Model, ability: str, said: str) -> None:
        """Store a rejection for later runs, with the endpoint's words as the journal would store them."""
        words = self.engine.log.scrub(said.encode("utf-8", "replace")).decode("utf-8", "replace")
        remember_rejection(model, ability, words)

    # -- what guards decide

    def ask(self, entry: Entry, question: str, result: Any) -> Asking:
        return ask_about_request(entry, question)


def _pause(why: ModelError, failures: int) -> float:
    """Return the seconds before the next attempt: what the endpoint asks for, else doubling, with some chance in it."""
    if why.after is not None:
        return why.after
    return min(0.25 * 2.0**failures, 10.0) * random.uniform(0.75, 1.25)


def _describe_circle(reply: Reply) -> str:
    """Return where a reply went in circles, and what is left of it."""
    written = sum(len(str(call.input)) for call in reply.calls)
    if isinstance(reply.calls[-1].input if reply.calls else None, str):
        return f"The input of a call went in circles: cut after {written:,} characters."
    if reply.reasoning and not reply.text:
        return f"The reasoning went in circles: cut after {len(reply.reasoning):,} characters."
    return f"The reply went in circles: cut after {len(reply.text):,} characters."
