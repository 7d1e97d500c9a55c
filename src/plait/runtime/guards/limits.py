"""The guard of the limits of numbers: steps, model calls, tokens, USD, seconds, child runs and their depth.

Theory of operation. A run keeps one model call in reserve. When a limit is near, the loop receives `LimitNear` in place
of the next model call; then it may ask a model once more, for its answer. The tally says what is used. This guard holds
what is under way: for a model call the request that it has not sent yet, for an attempt the tokens and USD that it may
take, for a child run its place until it has begun. The limits hold for the tree of runs: an entry of a child run is
compared with the limits of all runs above it, and held there as well. Each of these runs keeps a call in reserve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, NoReturn

from plait.core import Answered, Call, Continue, Execute, Failed, LimitNear, Outcome, Reply, Stopped, Think, Usage
from plait.core.text import sentence
from plait.journal.records import Decision
from plait.models.base import Model
from plait.runtime.clock import RunClock
from plait.runtime.guard import LIMITS, Attempt, Entry, Finish, Guard, LimitReached, StartChild
from plait.runtime.limits import Limits
from plait.runtime.spent import Spent
from plait.runtime.tally import Tally

SMALLEST_REPLY = 16
"""Tokens: a call that may write less than this is not worth making, unless it is the last one."""


@dataclass(slots=True)
class _Held:
    """What an entry under way may use that the tally does not hold yet.

    `guard` is that of its run. Of a model call: `is_last` if it is the one in reserve, after which the run ends, and
    `request` until its next attempt holds the request. Of an attempt: `tokens`, and `usd`.
    """

    entry: Entry
    guard: LimitGuard
    is_last: bool = False
    request: bool = False
    tokens: float = 0.0
    usd: float = 0.0


class LimitGuard(Guard):
    """The limits of one run. `tally` and `clock` are those of the run; `model_of` returns the model of a phase.

    It raises `LimitNear` where only the reserved model call is left, `LimitReached` where not even that is. After a
    `LimitNear` that the loop has received, also one of another guard, the loop has to conclude. If a tool wants a model
    call or a child run, both signals mean that it does not get it, and the run goes on.
    """

    name = "limits"
    order = LIMITS
    holds_text = may_ask = False
    points_after = (Finish,)

    def __init__(self, limits: Limits, tally: Tally, clock: RunClock, model_of: Callable[[str], Model]) -> None:
        self.limits, self.tally, self.clock = limits, tally, clock
        self.near: LimitNear | None = None
        """The signal that the loop has received."""
        self._model_of = model_of
        self._concluding: tuple[str, str] | None = None
        """The model call that uses the reserve."""
        self._held: dict[tuple[str, str], _Held] = {}
        """What the entries of this run and of the runs below it hold."""
        self._last: Reply | None = None
        """The last reply to the loop. The next call, and the one in reserve, are taken to be like it."""
        self._durations: dict[tuple[str, str], float] = {}
        """The seconds of each model call: a reply is told again if a guard asked the user about it."""
        self._put_below(())

    @property
    def _line(self) -> tuple[LimitGuard, ...]:
        """Return this guard and those of the runs above it, the nearest first."""
        return (self, *self._above)

    def for_child(self, own: Guard | None) -> Guard | None:
        """Put the limits of a child run below these."""
        if isinstance(own, LimitGuard):
            own._put_below(self._line)
        return own

    def _put_below(self, above: tuple[LimitGuard, ...]) -> None:
        self._above = above
        each = [guard.limits for guard in self._line]
        self._has_usd = any(limits.usd is not None for limits in each)
        self._has_amounts = self._has_usd or any(limits.tokens is not None for limits in each)
        # This guard sees attempts only if there is a limit for them.
        self._sees_attempts = self._has_amounts or any(limits.calls is not None for limits in each)
        kinds = (Think, Call, Execute, Continue, StartChild)
        self.points = (*kinds, Attempt) if self._sees_attempts else kinds

    # -- the way of an entry

    async def before(self, entry: Entry) -> Any:
        """Reserve what the effect may use. Return an attempt with a shorter reply if the limits have no room for the
        one that is wanted. Raises `LimitNear`, `LimitReached`."""
        match entry.effect:
            case Think() as think:
                # One that is started beside others, or that a tool makes, never gets the reserve.
                if self._has_usd and not entry.by_tool:  # a tool may ask any model: its attempts say which
                    _require_price(self._model_of(think.phase))
                if (near := self.near) is not None:
                    if entry.by_tool or entry.started:
                        raise LimitNear(near.limit, near.detail)
                    if self._concluding is not None:
                        raise LimitReached(near.limit, near.detail)
                else:
                    most = self.limits.steps
                    if most is not None and entry.step > most and not (think.repair or entry.by_tool):
                        raise LimitNear("steps", f"the limit of {most} step{'s' * (most != 1)} is reached")
                    for distance, guard in enumerate(self._line):
                        guard._leave_room(distance, self)
                self._hold_think(entry)
            case Attempt():
                return self._admit_attempt(entry)
            case Call() | Execute() | Continue():
                if self.near is not None:
                    raise LimitReached(self.near.limit, self.near.detail)
            case StartChild():
                # Let a child run begin.
                child: StartChild = entry.effect
                if child.run not in self.tally.children:  # else it began in an earlier process
                    for distance, guard in enumerate(self._line):
                        depth, children = guard.limits.depth, guard.limits.children
                        if distance + 1 > depth:
                            raise LimitNear("depth", f"{depth} level{'s' * (depth != 1)} of child runs are allowed")
                        if guard._find_use()[0].runs > children:
                            raise LimitNear("children", f"the run has its {children} child runs")
                self._hold(_Held(entry, self))
        return entry.effect

    def restore(self, entry: Entry, decision: Decision | None) -> None:
        """Reserve again. What is on record, attempts that only began too, is in the tally from the start."""
        match entry.effect:
            case Think():
                self._hold_think(entry)
            case StartChild() if not entry.recorded:
                self._hold(_Held(entry, self))

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        """Give back what was reserved. Return the outcome of a run that used more than it may as `Stopped`."""
        is_replied = isinstance(entry.effect, Think) and isinstance(result, Reply)
        if is_replied and not entry.by_tool:
            self._last = result
            self._durations[entry.id] = result.seconds
        elif isinstance(result, LimitNear):
            self.near = self.near or result
        self._give_back(entry, is_replied)
        return self._stop(result) if isinstance(entry.effect, Finish) else result

    def release(self, entry: Entry) -> None:
        """Give back what was reserved."""
        self._give_back(entry, is_replied=False)

    def _hold(self, held: _Held) -> None:
        for guard in self._line:
            guard._held[held.entry.id] = held

    def _give_back(self, entry: Entry, is_replied: bool) -> None:
        """Hold nothing more for an entry. If a model was not asked after all, the reserve is there again."""
        for guard in self._line if entry.id in self._held else ():
            guard._held.pop(entry.id, None)
        if self._concluding == entry.id and not is_replied:
            self._concluding = None

    # -- what is used

    def _find_use(self) -> tuple[Spent, float, float]:
        """Return what this run and those below it used, with the requests and child runs that are about to begin; and
        the tokens and USD that requests under way may take."""
        spent, tokens, usd, requests, runs = self.tally.tree_total, 0.0, 0.0, 0, 0
        for held in self._held.values():
            tokens, usd = tokens + held.tokens, usd + held.usd
            match held.entry.effect:
                case Attempt():  # once it begins it is in the tally
                    requests += not held.entry.begun
                case StartChild(run=run):
                    runs += run not in held.guard.tally.children
                case _:
                    requests += held.request
        return spent + Spent(runs, requests) if runs or requests else spent, tokens, usd

    # -- model calls

    def _hold_think(self, entry: Entry) -> None:
        is_last = self.near is not None and not (entry.started or entry.by_tool)
        if is_last:
            self._concluding = entry.id
        if self._sees_attempts and not entry.recorded:
            self._hold(_Held(entry, self, is_last, request=True))

    def _leave_room(self, distance: int, asking: LimitGuard) -> None:
        """Raise `LimitNear` if the next call of a run would use what is in reserve here. `asking` is the guard of that
        run, `distance` levels below."""
        limits, last = self.limits, asking._last
        if limits.calls is limits.tokens is limits.usd is limits.seconds is None:
            return
        where = ", in the run whose tool this is" if distance else ""
        spent, held_tokens, held_usd = self._find_use()
        if limits.calls is not None and spent.requests + 1 + distance >= limits.calls:
            left = f"{distance + 1} of {limits.calls} model calls are" if distance else _one_call(limits.calls)
            raise LimitNear("calls", f"{left} left{where}")
        if last is None:
            return
        own = self._last.usage.tokens if distance and self._last is not None else 0
        used = spent.usage.tokens + int(held_tokens)
        if limits.tokens is not None and used + 2 * last.usage.tokens + own > limits.tokens:
            raise LimitNear("tokens", f"{used:,} of {limits.tokens:,} tokens are used{where}")
        if limits.usd is not None:
            cost = spent.cost_usd
            if cost is None:
                raise LimitNear("usd", f"a limit in USD is set, but the price of this model is not known{where}")
            own_cost = self._last.cost or 0.0 if distance and self._last is not None else 0.0
            if cost + held_usd + 2 * (last.cost or 0.0) + own_cost > limits.usd:
                raise LimitNear("usd", f"{cost:.5f} of {limits.usd:.5f} USD are used{where}")
        if limits.seconds is not None:
            # The first call also loads the model and reads a prompt that later ones share: it counts half if it is the
            # only one, and not at all beside others.
            first, *others = asking._durations.values()
            usual = median(others) if others else first / 2
            if (seconds := self.clock.seconds) + (2 + distance) * usual > limits.seconds:
                took = f"{seconds:.1f} of {limits.seconds:g} seconds are used"
                raise LimitNear("seconds", f"{took}, and a model call takes about {usual:.1f} s{where}")

    # -- attempts

    def _admit_attempt(self, entry: Entry) -> Attempt:
        """Reserve what an attempt may take. Return it with a shorter reply if the limits have no room for all of it."""
        attempt: Attempt = entry.effect
        think = self._held.get((entry.run, entry.key.rpartition("a")[0]))
        call, is_last = (think.entry, think.is_last) if think is not None else (entry, False)
        if self._has_usd and call.by_tool:
            _require_price(attempt.model)
        own = think is not None and think.request  # it is among the requests already
        for distance, guard in enumerate(self._line):
            if (most := guard.limits.calls) is None:
                continue
            others = guard._find_use()[0].requests - own
            if distance and others + 1 >= most:
                why = f"the run whose tool this is has no model call left for it: {_one_call(most)} left"
                raise LimitReached("calls", why)
            if not distance and others + 1 - is_last >= most:
                failed = f"{others} of {most} requests were sent, and the last failed"
                self._raise_over("calls", failed if attempt.number else f"{_one_call(most)} left", is_last)
        held = _Held(entry, self, is_last)
        if self._has_amounts:
            max_tokens = self._limit_reply(held, call)
            if max_tokens != attempt.max_tokens:
                return replace(attempt, max_tokens=max_tokens)  # it is encoded again, and comes here again
        if think is not None:
            think.request = False
        self._hold(held)
        return attempt

    def _limit_reply(self, held: _Held, call: Entry) -> int | None:
        """Return how many tokens the reply may have: as many as wanted, or less if a limit asks for it. Sets what the
        attempt then holds. `call` is the model call that makes it."""
        attempt: Attempt = held.entry.effect
        model, wanted, is_last = attempt.model, attempt.max_tokens, held.is_last
        mine = held.entry.decided.get(self.name)
        # It comes here again with the length that this guard asked for. The field for it is in the estimate.
        is_mine = mine is not None and isinstance(mine.value, Attempt) and mine.value.max_tokens == wanted
        prompt = self.tally.estimate.prompt_tokens(model, mine.value.body if mine and is_mine else attempt.body)
        base = price = 0.0
        if self._has_usd:
            base = model.rate.cost(Usage(prompt, 0)) or 0.0
            price = ((model.rate.cost(Usage(prompt, 1_000_000)) or 0.0) - base) / 1_000_000
        together = 1 + call.beside if call.started and not attempt.number else 1
        least = 1 if is_last else min(SMALLEST_REPLY, wanted or SMALLEST_REPLY)
        usual = self._last.usage.output_tokens if self._last is not None else 0
        rooms: list[tuple[float, str, str]] = []
        for distance, guard in enumerate(self._line):
            limits, (spent, held_tokens, held_usd) = guard.limits, guard._find_use()
            if distance:  # a run above keeps what its own last call may take, and shares the rest among its children
                if guard._last is not None:
                    held_tokens += guard._last.usage.tokens
                    held_usd += guard._last.cost or 0.0
                children = list(guard.tally.children.values())
                together = max(1, sum(isinstance(each, Tally) and not each.is_over for each in children))
            is_only = is_last or (self.tally.own.calls == 0 and together == 1)
            prompts, replies = (1, least) if is_only else (together + 1, 2 * together * least + usual)
            lacks = "does not cover another call" + ("" if is_only else " and the final answer")
            find_room = partial(_find_room, together, usual, is_last, is_only)
            if limits.tokens is not None:
                left = limits.tokens - spent.usage.tokens - held_tokens
                need = prompt * prompts + replies
                words = f"the rest of the limit, {max(0, int(left)):,} tokens, {lacks} (about {need:,})"
                rooms.append((find_room(left, prompt, 1.0), "tokens", words))
            if limits.usd is not None:
                left = limits.usd - (spent.cost_usd or 0.0) - held_usd
                need_usd = base * prompts + price * replies
                words = f"the rest of the budget, {max(0.0, left):.5f} USD, {lacks} (about {need_usd:.5f})"
                rooms.append((find_room(left, base, price), "usd", words))
        room, limit, words = min(rooms)
        if room < least:
            self._raise_over(limit, words, is_last)
        max_tokens = wanted if math.isinf(room) else min(int(room), wanted or int(room))
        held.tokens, held.usd = prompt + (max_tokens or 0), base + price * (max_tokens or 0)
        return max_tokens

    def _raise_over(self, limit: str, detail: str, is_last: bool) -> NoReturn:
        """Raise what the loop, or a tool, receives in place of a model call for which a limit leaves no room."""
        if (near := self.near) is not None:
            limit, detail = near.limit, near.detail
        raise (LimitReached if is_last else LimitNear)(limit, detail)

    # -- child runs, and the end

    def _stop(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a run that used more than it may as `Stopped`, which says by how much."""
        limits, spent = self.limits, self.tally.tree_total
        tokens, cost = spent.usage.tokens, spent.cost_usd
        if limits.tokens is not None and tokens > limits.tokens:
            about, over = "about " if spent.usage.estimated else "", tokens - limits.tokens
            words = f"the run used {about}{tokens:,} tokens, {over:,} more than its limit of {limits.tokens:,}"
            limit = "tokens"
        elif limits.usd is not None and cost is not None and cost > limits.usd:
            words = f"the run cost {cost:.5f} USD, {cost - limits.usd:.5f} more than its limit of {limits.usd:.5f}"
            limit = "usd"
        else:
            return outcome
        match outcome:
            case Answered(answer=answer):
                return Stopped(limit, sentence(words), answer)
            case Failed(reason=reason):
                return Stopped(limit, f"{sentence(words)} {sentence(reason)}")
            case Stopped(limit=first, reason=reason, answer=answer):
                return Stopped(first, f"{sentence(reason)} {sentence(words)}", answer)
        return outcome


def _find_room(
    together: int, usual: int, is_last: bool, is_only: bool, left: float, prompt: float, price: float
) -> float:
    """Return the output tokens that a model call has room for in what is `left` of a limit, if its prompt takes
    `prompt` and an output token `price`. `together` calls get equal parts, `usual` are the output tokens of a reply.
    Half is kept for the call in reserve, whose prompt will hold this reply as well, unless no other follows (`is_last`)
    or a small budget is for one call (`is_only`: there is no other one yet)."""
    whole = left - prompt
    if price <= 0:
        return math.inf if whole >= 0 else 0.0
    half = ((left - prompt - usual * price) / together - prompt) / 2
    is_for_one = is_last or (is_only and half < SMALLEST_REPLY * price)
    return (whole if is_for_one else min(half, whole)) / price


def _require_price(model: Model) -> None:
    if not model.rate.is_known:
        raise LimitReached("usd", f"a limit in USD is set, but the price of {model.spec} is not known")


def _one_call(most: int) -> str:
    return f"one of {most} model calls is"
