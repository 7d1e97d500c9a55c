"""Limits of a run, and the meter that is held against them. All limits are checked here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from plait.core import LimitNear, Reply, Usage
from plait.models.prices import total


class Limits(Struct, frozen=True, omit_defaults=True):
    """What a run may use. None means no limit.

    `steps`: turns of the loop. `calls`: model calls. `tokens`: input and output together. `usd`: money.
    `seconds`: wall time. One model call is kept in reserve, so that the model can be asked to answer
    with what there is. `tool_seconds` is each tool call's time where the tool sets none of its own;
    `retries` how often a failed request is sent again; `repeats` how often the same call may bring the
    same result before the run is stopped (0: never stopped for that).
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
        self.usage = Usage()
        self.costs: list[float | None] = []
        self.near: LimitNear | None = None
        self._reserve = True
        self._last: Reply | None = None
        self._clock = clock
        self._began = clock()
        self._before = 0.0
        self._under_way = 0

    @property
    def seconds(self) -> float:
        """Wall seconds the run has been performed, earlier processes included."""
        return self._before + self._clock() - self._began

    @property
    def cost(self) -> float | None:
        """USD so far; None where a call's price is not known."""
        return total(self.costs)

    def went_on(self, seconds: float) -> None:
        """Count the time an earlier process spent on this run."""
        self._before += seconds

    def asked(self, reply: Reply) -> None:
        """Count one model call and what it took."""
        self.calls += 1
        self.usage = self.usage + reply.usage
        self.costs.append(reply.cost)
        self._last = reply

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A model call is under way: others that begin meanwhile count it."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def before_think(self, *, repair: bool, started: bool = False) -> LimitNear | None:
        """What to throw into the loop in place of the model call it wants, if anything.

        A call that is `started` beside others never gets the one in reserve. Raises `LimitReached` when that
        was used already.
        """
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
        if limits.calls is not None and self.calls + self._under_way + 1 >= limits.calls:
            return LimitNear("calls", f"one of {limits.calls} model calls is left")
        if last is None:
            return None
        # The next call and the one in reserve are taken to be like the last one.
        if limits.tokens is not None and self.usage.tokens + 2 * last.usage.tokens > limits.tokens:
            return LimitNear("tokens", f"{self.usage.tokens:,} of {limits.tokens:,} tokens are used")
        if limits.usd is not None:
            spent = self.cost
            if spent is None:
                return LimitNear("usd", "a limit in USD is set, but the price of this model is not known")
            if spent + 2 * (last.cost or 0.0) > limits.usd:
                return LimitNear("usd", f"{spent:.5f} of {limits.usd:.5f} USD are used")
        if limits.seconds is not None and self.seconds + 2 * last.seconds > limits.seconds:
            return LimitNear("seconds", f"{self.seconds:.1f} of {limits.seconds:g} seconds are used")
        return None
