"""The meter of a run, which counts what it uses. All limits are checked here."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from statistics import median

from plait.core import LimitNear, Reply, Usage
from plait.core.errors import ToolError
from plait.models.base import Model
from plait.models.prices import total
from plait.models.wires.contents import count_referenced_tokens
from plait.runtime.limits import Limits
from plait.runtime.spent import Spent
from plait.tools.call_context import call_services

TOKENS_A_BYTE = 0.25
"""Tokens of a byte of a request, until an endpoint has reported some."""

LENGTH_FIELD = 32
"""Bytes by which a request grows that says how long its reply may be."""

SMALLEST_REPLY = 16
"""Tokens: a call that may write less than this is not worth making, unless it is the last one."""


class LimitReached(Exception):
    """The reserved call is used, too: the run ends as stopped."""

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit
        self.detail = detail


class BudgetSpent(ToolError):
    """The limits of the run allow no further model call or child run for its tools."""

    def __init__(self, why: LimitNear | LimitReached) -> None:
        super().__init__(f"A limit of the run is reached: {why.detail}.", hint="Answer from what is known.")


class Meter:
    """Counts what a run uses, and says when a limit is near. One a run.

    `parent` is the meter of the run whose tool performs this run. A child's use counts in all meters above it.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        children: Mapping[str, Spent] | None = None,
    ) -> None:
        self.limits = limits
        self.steps = 0
        self.calls = 0
        self.requests = 0
        """Requests that were sent, or are about to be: replies and failed attempts."""
        self.waiting = 0
        """Model calls that were started together and have not claimed their share yet."""
        self.reserved_tokens = 0
        self.reserved_usd = 0.0
        self._durations: list[float] = []
        self._density: dict[str, float] = {}
        self.usage = Usage()
        self.costs: list[float | None] = []
        self.near: LimitNear | None = None
        self._reserve = True
        self._last: Reply | None = None
        self._clock = clock
        self._began = clock()
        self._before = 0.0
        self.deadline: asyncio.Timeout | None = None
        # The model calls of the loop and the tool calls under way, and how many of them wait for a user or a retry.
        self._working = self._waiting = 0
        self._paused_at: float | None = None
        self._left: float | None = None  # seconds until the deadline when the run began to wait
        services = call_services()
        self.parent: Meter | None = services.meter if services is not None else None
        self.children: dict[str, Meter | Spent] = dict(children or {})
        """The meters of the child runs by run; what a run used that is over, or that an earlier process performed."""
        self.is_over = False

    @property
    def seconds(self) -> float:
        """Seconds of the run, earlier processes included.

        Without the time in which the run only waited, and without the download and start-up of local models.
        """
        now = self._clock() if self._paused_at is None else self._paused_at
        return self._before + now - self._began

    @property
    def cost(self) -> float | None:
        """USD so far, without child runs; None where a call's price is not known."""
        return total(self.costs)

    @property
    def tree_total(self) -> Spent:
        """What the run and its child runs used so far."""
        spent = Spent(1, self.requests, self.calls, self.usage, self.cost)
        for child in list(self.children.values()):  # a tool's thread may add one meanwhile
            spent += child if isinstance(child, Spent) else child.tree_total
        return spent

    @property
    def tree_reserve(self) -> tuple[float, float]:
        """Tokens and USD that calls under way may use, those of child runs included."""
        below = [child.tree_reserve for child in list(self.children.values()) if isinstance(child, Meter)]
        return self.reserved_tokens + sum(each[0] for each in below), self.reserved_usd + sum(each[1] for each in below)

    @property
    def above(self) -> Iterator[tuple[int, Meter]]:
        """The meters of the runs above this one, the nearest first, each with its distance."""
        meter, distance = self.parent, 1
        while meter is not None:
            yield distance, meter
            meter, distance = meter.parent, distance + 1

    @property
    def last_usage(self) -> int:
        """Tokens of the last model call, about what the reserved one will take."""
        return self._last.usage.tokens if self._last is not None else 0

    @property
    def last_cost(self) -> float:
        """USD of the last model call, about what the reserved one will cost."""
        return (self._last.cost or 0.0) if self._last is not None else 0.0

    def reserve_child(self, run: str) -> None:
        """Count a child run that is about to begin. Raises `BudgetSpent` if the limits allow no further one."""
        for distance, meter in [(0, self), *self.above]:
            limits = meter.limits
            if distance + 1 > limits.depth:
                levels = f"{limits.depth} level{'s' * (limits.depth != 1)} of child runs"
                raise BudgetSpent(LimitNear("depth", f"{levels} are allowed"))
            if meter.tree_total.runs > limits.children:
                raise BudgetSpent(LimitNear("children", f"the run has its {limits.children} child runs"))
        self.children[run] = Spent(1)

    def went_on(self, seconds: float) -> None:
        """Count the time an earlier process spent on this run."""
        self._before += seconds

    @contextmanager
    def counted(self, *, working: int = 0, waiting: int = 0) -> Iterator[None]:
        """Count work or a wait. The run's time and its deadline stand still while all work waits."""
        self._count(working=working, waiting=waiting)
        try:
            yield
        finally:
            self._count(working=-working, waiting=-waiting)

    def _count(self, *, working: int = 0, waiting: int = 0) -> None:
        self._working += working
        self._waiting += waiting
        is_paused = 0 < self._waiting >= self._working
        if is_paused == (self._paused_at is not None):
            return
        now, deadline = self._clock(), self.deadline
        with suppress(RuntimeError):  # the deadline has passed
            if self._paused_at is None:
                self._paused_at = now
                if deadline is not None and (until := deadline.when()) is not None:
                    self._left = until - asyncio.get_running_loop().time()
                    deadline.reschedule(None)
            else:
                self._before -= now - self._paused_at
                self._paused_at = None
                if deadline is not None and self._left is not None:
                    deadline.reschedule(asyncio.get_running_loop().time() + self._left)
        if self.parent is not None:  # the tool call that started this child run waits, too
            self.parent._count(waiting=1 if is_paused else -1)

    def exclude_startup(self, seconds: float) -> None:
        """Do not count the time in which a local model was downloaded and loaded."""
        self._before -= seconds

    def count_reply(self, reply: Reply) -> None:
        """Count one reply and what it took."""
        self.calls += 1
        self.usage = self.usage + reply.usage
        self.costs.append(reply.cost)
        self._durations.append(reply.seconds)
        self._last = reply

    def lost(self, usage: Usage, cost: float | None) -> None:
        """Count what an attempt took that brought no reply."""
        self.usage = self.usage + usage
        self.costs.append(cost)

    def before_tool_request(self, model: Model) -> None:
        """Raise `BudgetSpent` if a tool may not ask a model. The run goes on: its next call finds what is left."""
        try:
            self._require_price(model)
        except LimitReached as why:
            raise BudgetSpent(why) from None
        if near := self.near or self._check(repair=True):
            raise BudgetSpent(near)

    def count_tool_reply(self, usage: Usage, cost: float | None) -> None:
        """Count the reply to a tool's question, which says nothing about the calls of the loop."""
        self.calls += 1
        self.lost(usage, cost)

    def learn(self, model: Model, body: bytes, usage: Usage) -> None:
        """Remember how many tokens a byte of a model's requests has."""
        if usage.input_tokens and body and not usage.estimated and not count_referenced_tokens(body):
            self._density[model.spec] = usage.input_tokens / len(body)

    def prompt_tokens(self, model: Model, body: bytes) -> int:
        """The estimated tokens of a request, its attached files included."""
        text = math.ceil((len(body) + LENGTH_FIELD) * self._density.get(model.spec, TOKENS_A_BYTE))
        return text + count_referenced_tokens(body)

    def asking(self, *, started: bool = False, by_tool: bool = False) -> Share:
        """A model call is under way. Its share is reserved: calls that begin meanwhile count it as used."""
        return Share(self, last=self.near is not None and not started and not by_tool, by_tool=by_tool)

    @property
    def last_output(self) -> int:
        """Output tokens of the last reply, 0 before there is one."""
        return self._last.usage.output_tokens if self._last is not None else 0

    def excess(self) -> tuple[str, str] | None:
        """The limit that the run is over, and by how much, in words; None where it is over none."""
        limits, spent = self.limits, self.tree_total
        tokens, cost = spent.usage.tokens, spent.cost_usd
        if limits.tokens is not None and tokens > limits.tokens:
            about = "about " if spent.usage.estimated else ""
            over = tokens - limits.tokens
            return "tokens", f"the run used {about}{tokens:,} tokens, {over:,} more than its limit of {limits.tokens:,}"
        if limits.usd is not None and cost is not None and cost > limits.usd:
            more = cost - limits.usd
            return (
                "usd",
                f"the run cost {cost:.5f} USD, {more:.5f} more than its limit of {limits.usd:.5f}",
            )
        return None

    def before_think(self, model: Model, *, repair: bool, started: bool = False) -> LimitNear | None:
        """Return the exception for the loop in place of the model call that it wants; None if the call may start.

        A call that is `started` beside others never gets the one in reserve. Raises `LimitReached` when that
        was used already, and for a limit in USD where the model's price is not known.
        """
        self._require_price(model)
        if self.near is not None:
            if started:
                return self.near
            if not self._reserve:
                raise LimitReached(self.near.limit, self.near.detail)
            self._reserve = False
            return None
        near = self._check(repair)
        if near:
            self.near = near
        return near

    def not_asked(self) -> None:
        """Note that an allowed model call was not made. If it was the reserved one, the reserve is available again."""
        self._reserve = True

    def before_act(self) -> None:
        """Raise `LimitReached` if a loop wants to act although it had to conclude."""
        if self.near is not None:
            raise LimitReached(self.near.limit, self.near.detail)

    def conclude(self, limit: str, detail: str) -> LimitNear:
        """Make the run conclude for a reason other than a number, or for the one on record."""
        self.near = LimitNear(limit, detail)
        return self.near

    def _require_price(self, model: Model) -> None:
        """Raise `LimitReached` if a limit in USD is set, here or above, and the model's price is not known."""
        if model.rate.is_known:
            return
        if self.limits.usd is not None or any(meter.limits.usd is not None for _, meter in self.above):
            raise LimitReached("usd", f"a limit in USD is set, but the price of {model.spec} is not known")

    def _check(self, repair: bool) -> LimitNear | None:
        limits = self.limits
        if limits.steps is not None and not repair and self.steps >= limits.steps:
            return LimitNear("steps", f"the limit of {limits.steps} step{'s' * (limits.steps != 1)} is reached")
        if near := self._check_numbers(self, 0):
            return near
        for distance, meter in self.above:
            if near := self._check_numbers(meter, distance):
                return LimitNear(near.limit, f"{near.detail}, in the run whose tool this is")
        return None

    def _check_numbers(self, meter: Meter, distance: int) -> LimitNear | None:
        """Return which limit of `meter`, this one or one `distance` levels above, is near for the next call of this
        run. Each run keeps a call in reserve; the next one and that of this run are taken to be like the last one."""
        limits, last, spent = meter.limits, self._last, meter.tree_total
        if limits.calls is not None and spent.requests + 1 + distance >= limits.calls:
            left = (
                f"{distance + 1} of {limits.calls} model calls are"
                if distance
                else f"one of {limits.calls} model calls is"
            )
            return LimitNear("calls", f"{left} left")
        if last is None:
            return None
        reserved_tokens, reserved_usd = meter.tree_reserve
        if limits.tokens is not None:
            used = spent.usage.tokens + int(reserved_tokens)
            if used + 2 * self.last_usage + (meter.last_usage if distance else 0) > limits.tokens:
                return LimitNear("tokens", f"{used:,} of {limits.tokens:,} tokens are used")
        if limits.usd is not None:
            cost = spent.cost_usd
            if cost is None:
                return LimitNear("usd", NO_PRICE)
            if cost + reserved_usd + 2 * self.last_cost + (meter.last_cost if distance else 0.0) > limits.usd:
                return LimitNear("usd", f"{cost:.5f} of {limits.usd:.5f} USD are used")
        if limits.seconds is not None and meter.seconds + (2 + distance) * self._usual_seconds() > limits.seconds:
            return LimitNear(
                "seconds",
                f"{meter.seconds:.1f} of {limits.seconds:g} seconds are used, and a model call takes about "
                f"{self._usual_seconds():.1f} s",
            )
        return None

    def _usual_seconds(self) -> float:
        """Return the usual seconds of a model call. The first call also loads the model and reads a prompt that later
        ones share: it counts half if it is the only one, and not at all beside others."""
        first, *others = self._durations
        return median(others) if others else first / 2


NO_PRICE = "a limit in USD is set, but the price of this model is not known"


class Share:
    """The share of the limits that one model call may use: computed before each attempt, reserved until its end.

    `last` marks the call kept in reserve, after which the run ends. A call `by_tool` never brings the run to its end.
    """

    def __init__(self, meter: Meter, *, last: bool, by_tool: bool = False) -> None:
        self.attempts = 0
        self._meter = meter
        self._last = last
        self._by_tool = by_tool
        self._tokens = 0
        self._usd = 0.0
        self._waits = meter.waiting > 0

    def __enter__(self) -> Share:
        self._meter.requests += 1
        self._meter._count(working=not self._by_tool)  # a tool that asks is counted already
        return self

    def __exit__(self, *_: object) -> None:
        if not self.attempts:
            self._meter.requests -= 1
        self._meter._count(working=-(not self._by_tool))
        self.release()

    def release(self) -> None:
        """Give back what was reserved."""
        self._meter.reserved_tokens -= self._tokens
        self._meter.reserved_usd -= self._usd
        self._tokens, self._usd = 0, 0.0

    def attempt(self, model: Model, body: bytes, wanted: int | None) -> int | None:
        """Count an attempt, and say how many tokens its reply may have: `wanted`, or less where a limit asks for it.

        Raises `LimitNear` where only the call in reserve is left, `LimitReached` where not even that is.
        """
        self.release()
        meter = self._meter
        again = int(self.attempts > 0)  # the first attempt is counted already
        self.may_repeat(again)
        for _, outer in meter.above:
            if outer.limits.calls is not None and outer.tree_total.requests + again >= outer.limits.calls:
                why = f"one of {outer.limits.calls} model calls is left"
                raise LimitReached("calls", f"the run whose tool this is has no model call left for it: {why}")
        meter.requests += again
        limited = any(each.limits.tokens is not None or each.limits.usd is not None for _, each in self._meters())
        max_tokens = self._limit_tokens(model, body, wanted) if limited else wanted
        self.attempts += 1
        return max_tokens

    def _meters(self) -> list[tuple[int, Meter]]:
        return [(0, self._meter), *self._meter.above]

    def may_repeat(self, again: int = 1) -> None:
        """Raises what `attempt` does where the limit of calls leaves no room for a further attempt.

        `again` is 0 for the first one: while a hook looked at its request, others may have been counted.
        """
        max_calls, sent = self._meter.limits.calls, self._meter.tree_total.requests
        if max_calls is not None and sent + again - int(self._last) >= max_calls:
            done = f"{sent} of {max_calls} requests were sent, and the last failed"
            raise self._over("calls", done if again else f"one of {max_calls} model calls is left")

    def _limit_tokens(self, model: Model, body: bytes, wanted: int | None) -> int | None:
        meter = self._meter
        prompt = meter.prompt_tokens(model, body)
        together = max(1, meter.waiting) if self._waits else 1
        if self._waits and meter.waiting:
            meter.waiting -= 1
        self._waits = False
        rooms: list[tuple[float, str, str]] = []
        price = 0.0
        least = 1 if self._last else min(SMALLEST_REPLY, wanted or SMALLEST_REPLY)
        for distance, each in self._meters():
            limits, spent, (reserved_tokens, reserved_usd) = each.limits, each.tree_total, each.tree_reserve
            # A run above keeps what its own last call may take, and shares the rest among its children.
            if distance:
                reserved_tokens, reserved_usd = reserved_tokens + each.last_usage, reserved_usd + each.last_cost
                together = max(
                    1, sum(isinstance(child, Meter) and not child.is_over for child in list(each.children.values()))
                )
            # What `_room` asks for: prompts, and tokens of replies.
            is_only = self._last or (meter.calls == 0 and together == 1)
            calls, replies = (1, least) if is_only else (together + 1, 2 * together * least + meter.last_output)
            lacks = "does not cover another call" + ("" if is_only else " and the final answer")
            if limits.tokens is not None:
                left = limits.tokens - spent.usage.tokens - reserved_tokens
                need = prompt * calls + replies
                words = f"the rest of the limit, {max(0, int(left)):,} tokens, {lacks} (about {need:,})"
                rooms.append((self._room(left, prompt, 1.0, together), "tokens", words))
            if limits.usd is not None:
                base = model.rate.cost(Usage(prompt, 0)) or 0.0
                price = ((model.rate.cost(Usage(prompt, 1_000_000)) or 0.0) - base) / 1_000_000
                left_usd = limits.usd - (spent.cost_usd or 0.0) - reserved_usd
                need_usd = base * calls + price * replies
                words = f"the rest of the budget, {max(0.0, left_usd):.5f} USD, {lacks} (about {need_usd:.5f})"
                rooms.append((self._room(left_usd, base, price, together), "usd", words))
                self._usd = base
        room, limit, words = min(rooms)
        if room < least:
            self._usd = 0.0
            raise self._over(limit, words)
        max_tokens = wanted if math.isinf(room) else min(int(room), wanted or int(room))
        self._tokens, self._usd = prompt + (max_tokens or 0), self._usd + price * (max_tokens or 0)
        meter.reserved_tokens += self._tokens
        meter.reserved_usd += self._usd
        return max_tokens

    def _room(self, left: float, prompt: float, price: float, together: int) -> float:
        """Output tokens that `left` has room for, where a prompt takes `prompt` and a token of the reply `price`.

        Calls that begin together get equal parts. Half of the rest is kept for the call in reserve, whose prompt
        will hold this reply as well.
        """
        whole = left - prompt
        if price <= 0:
            return math.inf if whole >= 0 else 0.0
        usual = self._meter.last_output * price
        half = ((left - prompt - usual) / together - prompt) / 2
        if self._last or (self._meter.calls == 0 and together == 1 and half < SMALLEST_REPLY * price):
            return whole / price  # a small budget is for one call
        return min(half, whole) / price

    def _over(self, limit: str, words: str) -> Exception:
        near = self._meter.near
        if self._by_tool:
            return near or LimitNear(limit, words)
        if near is None and not self._last:
            return self._meter.conclude(limit, words)
        if near is not None and not self._last:
            return near
        return LimitReached(near.limit, near.detail) if near is not None else LimitReached(limit, words)
