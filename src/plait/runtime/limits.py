"""Limits of a run, and the meter that is held against them. All limits are checked here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median

from msgspec import Struct, structs

from plait.core import CodeLimits, LimitNear, Reply, Usage
from plait.core.errors import ConfigError
from plait.models.base import Model
from plait.models.prices import total
from plait.tools.call_context import BudgetSpent, run_meter

TOKENS_A_BYTE = 0.25
"""Tokens of a byte of a request, until an endpoint has reported some."""

LENGTH_FIELD = 32
"""Bytes by which a request grows that says how long its reply may be."""

SMALLEST_REPLY = 16
"""Tokens: a call that may write less than this is not worth making, unless it is the last one."""


_CODE = CodeLimits()


class Limits(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """What a run may use. None means no limit.

    `steps`: turns of the loop. `calls`: requests to models, failed ones included. `tokens`: input and output together.
    `usd`: money. `seconds`: wall time. One model call is kept in reserve, so that the model can be asked to answer
    with what there is. `tool_seconds` is each tool call's time where the tool sets none of its own;
    `retries` how often a failed request is sent again; `repeats` how often the same call may bring the
    same result before the run is stopped (0: never stopped for that). `tools`: with more tools than this, the model is
    shown those that fit the task best, and a tool that finds the others; None shows all, but `codeact` then shows none
    of more than eight and finds them by searching. `compact_at`: the share of the model's context at which old turns
    are folded or summarized, more than 0 and at most 1; None only does so after the model refused a prompt. `code`:
    what one piece of code may use. Raises `ConfigError` for an invalid limit.
    """

    steps: int | None = 25
    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    tool_seconds: float = 60.0
    retries: int = 3
    repeats: int = 4
    observation_chars: int = 8000
    tools: int | None = None
    compact_at: float | None = 0.7
    code: CodeLimits = _CODE

    def __post_init__(self) -> None:
        for name in self.__struct_fields__[:-1]:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            kinds, wanted = ((int, float), "a number") if name in _NUMBERS else ((int,), "a whole number")
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < math.inf:
                none = ", or None for no limit" if name in _OPTIONAL else ""
                raise ConfigError(f"Limits({name}={value!r}) is invalid.", hint=f"Give {wanted} from 0 up{none}.")
        if self.compact_at is not None and not 0 < self.compact_at <= 1:
            raise ConfigError(
                f"Limits(compact_at={self.compact_at!r}) is invalid.",
                hint="Give a share above 0 and at most 1, or None.",
            )
        if not isinstance(self.code, CodeLimits):
            raise ConfigError(f"Limits(code={self.code!r}) is invalid.", hint="Give plait.CodeLimits(...).")
        if self.code == _CODE:  # msgspec leaves out a default by identity: equal limits are written alike
            structs.force_setattr(self, "code", _CODE)


_NUMBERS = ("usd", "seconds", "tool_seconds", "compact_at")
_OPTIONAL = ("steps", "calls", "tokens", "tools", "usd", "seconds", "compact_at")


class LimitReached(Exception):
    """The reserve is used up as well: the run ends as stopped."""

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit
        self.detail = detail


class Meter:
    """Counts what a run uses, and says when a limit is near. One a run."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
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
        self.outer = run_meter()
        """That of the run whose tool performs this run."""

    @property
    def seconds(self) -> float:
        """Wall seconds of the run, earlier processes included, without the download and start-up of local models."""
        return self._before + self._clock() - self._began

    @property
    def cost(self) -> float | None:
        """USD so far; None where a call's price is not known."""
        return total(self.costs)

    def went_on(self, seconds: float) -> None:
        """Count the time an earlier process spent on this run."""
        self._before += seconds

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

    def request_by_tool(self, model: Model) -> LimitNear | None:
        """Count a request that a tool sends to a model; or what keeps it from being sent.

        The run itself is not brought to its end by that: its own next call finds how much is left.
        """
        if self.limits.usd is not None and not model.rate.is_known:
            return LimitNear("usd", f"a limit in USD is set, but the price of {model.spec} is not known")
        near = self.near or self._check(repair=True)
        if near is None:
            self.requests += 1
        return near

    def took_by_tool(self, usage: Usage, cost: float | None) -> None:
        """Count what a request of a tool's took."""
        self.calls += 1
        self.lost(usage, cost)

    def learn(self, model: Model, body: bytes, usage: Usage) -> None:
        """Remember how many tokens a byte of a model's requests has."""
        if usage.input_tokens and body and not usage.estimated:
            self._density[model.spec] = usage.input_tokens / len(body)

    def prompt_tokens(self, model: Model, body: bytes) -> int:
        """The estimated tokens of a request."""
        return math.ceil((len(body) + LENGTH_FIELD) * self._density.get(model.spec, TOKENS_A_BYTE))

    def asking(self, *, started: bool = False) -> Share:
        """A model call is under way. Its share is reserved: calls that begin meanwhile count it as used."""
        return Share(self, last=self.near is not None and not started)

    @property
    def last_output(self) -> int:
        """Output tokens of the last reply, 0 before there is one."""
        return self._last.usage.output_tokens if self._last is not None else 0

    def excess(self) -> tuple[str, str] | None:
        """The limit that the run is over, and by how much, in words; None where it is over none."""
        limits, tokens, cost = self.limits, self.usage.tokens, self.cost
        if limits.tokens is not None and tokens > limits.tokens:
            about = "about " if self.usage.estimated else ""
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
        """What to throw into the loop in place of the model call it wants, if anything.

        A call that is `started` beside others never gets the one in reserve. Raises `LimitReached` when that
        was used already, and for a limit in USD where the model's price is not known.
        """
        if self.limits.usd is not None and not model.rate.is_known:
            raise LimitReached("usd", f"a limit in USD is set, but the price of {model.spec} is not known")
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
        """The model call that was let through was not made: if it was the one in reserve, it is there again."""
        self._reserve = True

    def before_act(self) -> None:
        """Raises `LimitReached` when a loop that was told to conclude wants to act once more."""
        if self.near is not None:
            raise LimitReached(self.near.limit, self.near.detail)

    def conclude(self, limit: str, detail: str) -> LimitNear:
        """Bring the run to its conclusion for another reason than a number."""
        self.near = LimitNear(limit, detail)
        return self.near

    def was_near(self, limit: str, detail: str) -> None:
        """A recorded run was told that this limit is near."""
        self.near = LimitNear(limit, detail)

    def _check(self, repair: bool) -> LimitNear | None:
        limits, last = self.limits, self._last
        if limits.steps is not None and not repair and self.steps >= limits.steps:
            return LimitNear("steps", f"the limit of {limits.steps} step{'s' * (limits.steps != 1)} is reached")
        if limits.calls is not None and self.requests + 1 >= limits.calls:
            return LimitNear("calls", f"one of {limits.calls} model calls is left")
        if last is None:
            return None
        # The next call and the one in reserve are taken to be like the last one.
        if limits.tokens is not None:
            used = self.usage.tokens + self.reserved_tokens
            if used + 2 * last.usage.tokens > limits.tokens:
                return LimitNear("tokens", f"{used:,} of {limits.tokens:,} tokens are used")
        if limits.usd is not None:
            spent = self.cost
            if spent is None:
                return LimitNear("usd", NO_PRICE)
            if spent + self.reserved_usd + 2 * (last.cost or 0.0) > limits.usd:
                return LimitNear("usd", f"{spent:.5f} of {limits.usd:.5f} USD are used")
        if limits.seconds is not None and self.seconds + 2 * self._usual_seconds() > limits.seconds:
            return LimitNear(
                "seconds",
                f"{self.seconds:.1f} of {limits.seconds:g} seconds are used, and a model call takes about "
                f"{self._usual_seconds():.1f} s",
            )
        return None

    def _usual_seconds(self) -> float:
        """How long a model call takes. The first one also loads the model and reads a prompt that later ones share:
        it counts half where it is the only one, and not at all beside others."""
        first, *others = self._durations
        return median(others) if others else first / 2


NO_PRICE = "a limit in USD is set, but the price of this model is not known"


class Share:
    """What one model call may use: worked out before each attempt, reserved until the call has ended.

    `last` marks the call kept in reserve, after which the run ends.
    """

    def __init__(self, meter: Meter, *, last: bool) -> None:
        self.attempts = 0
        self._meter = meter
        self._last = last
        self._tokens = 0
        self._usd = 0.0
        self._waits = meter.waiting > 0

    def __enter__(self) -> Share:
        self._meter.requests += 1
        return self

    def __exit__(self, *_: object) -> None:
        if not self.attempts:
            self._meter.requests -= 1
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
        meter, limits = self._meter, self._meter.limits
        if meter.outer is not None:
            try:
                meter.outer.request(model)
            except BudgetSpent as why:
                raise LimitReached(
                    why.limit, f"the run whose tool this is has no model call left: {why.detail}"
                ) from None
        if self.attempts:
            self.may_repeat()
            meter.requests += 1
        max_tokens = (
            self._limit_tokens(model, body, wanted) if limits.tokens is not None or limits.usd is not None else wanted
        )
        self.attempts += 1
        return max_tokens

    def may_repeat(self) -> None:
        """Raises what `attempt` does where the limit of calls leaves no room for a further attempt."""
        meter, max_calls = self._meter, self._meter.limits.calls
        if max_calls is not None and meter.requests + (0 if self._last else 1) >= max_calls:
            raise self._over("calls", f"{meter.requests} of {max_calls} requests were sent, and the last failed")

    def _limit_tokens(self, model: Model, body: bytes, wanted: int | None) -> int | None:
        meter, limits = self._meter, self._meter.limits
        prompt = meter.prompt_tokens(model, body)
        together = max(1, meter.waiting) if self._waits else 1
        if self._waits and meter.waiting:
            meter.waiting -= 1
        self._waits = False
        rooms: list[tuple[float, str, str]] = []
        if limits.tokens is not None:
            left = limits.tokens - meter.usage.tokens - meter.reserved_tokens
            words = f"{max(0, left):,} of {limits.tokens:,} tokens are left, and the prompt takes about {prompt:,}"
            rooms.append((self._room(left, prompt, 1.0, together), "tokens", words))
        price = 0.0
        if limits.usd is not None:
            base = model.rate.cost(Usage(prompt, 0)) or 0.0
            price = ((model.rate.cost(Usage(prompt, 1_000_000)) or 0.0) - base) / 1_000_000
            left_usd = limits.usd - (meter.cost or 0.0) - meter.reserved_usd
            words = f"{max(0.0, left_usd):.5f} of {limits.usd:.5f} USD are left, and the prompt costs about {base:.5f}"
            rooms.append((self._room(left_usd, base, price, together), "usd", words))
            self._usd = base
        room, limit, words = min(rooms)
        least = 1 if self._last else min(SMALLEST_REPLY, wanted or SMALLEST_REPLY)
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
        if near is None and not self._last:
            return self._meter.conclude(limit, words)
        if near is not None and not self._last:
            return near
        return LimitReached(near.limit, near.detail) if near is not None else LimitReached(limit, words)
