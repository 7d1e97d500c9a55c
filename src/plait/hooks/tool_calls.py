"""The hooks `rate` and `retry`: how often tools are called, and which failed calls are repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from plait.core import Call, Observation
from plait.core.errors import ConfigError
from plait.models.rate_limits import RateLimit, RateLimiter
from plait.runtime.calls.context import Context
from plait.runtime.hooks import Hook


class LimitToolRate(Hook):
    """Lets a call wait until its tool was called at most so often in the last minute, in all runs with this hook.

    `per_minute` maps names of tools to calls per minute. The wait counts against the run's time limit. Raises
    `ConfigError` for a number below 1.
    """

    def __init__(self, per_minute: Mapping[str, int]) -> None:
        numbers = per_minute.values() if isinstance(per_minute, Mapping) else ()
        if not numbers or not all(type(number) is int and number > 0 for number in numbers):
            hint = 'Give calls per minute, at least 1: {"search": 10}, or rate:search=10.'
            raise ConfigError(f"LimitToolRate({per_minute!r}) is invalid.", hint=hint)
        self._per_minute = dict(per_minute)
        self._limiters = {tool: RateLimiter(RateLimit(number)) for tool, number in per_minute.items()}

    @property
    def name(self) -> str:
        return f"rate:{','.join(f'{tool}={number}' for tool, number in self._per_minute.items())}"

    async def before_tool(self, context: Context[Any], call: Call) -> None:
        if (limiter := self._limiters.get(call.tool)) is not None:
            await limiter.wait(0, lambda seconds: context.logger.info("%s waits %.1f s", call.tool, seconds))


class RetryTools(Hook):
    """Repeats a failed call up to `attempts` times in all, with pauses of `wait`, 2 * `wait`, 4 * `wait` ... seconds.

    Only calls of read-only and idempotent tools are repeated; `tools` names those to repeat, none for all. Raises
    `ConfigError` for invalid numbers.
    """

    def __init__(self, attempts: int = 3, *, wait: float = 0.5, tools: Iterable[str] = ()) -> None:
        fits = type(attempts) is int and attempts > 0 and type(wait) in (int, float) and 0 <= wait < inf
        if not fits or isinstance(tools, str):
            hint = "attempts is a whole number from 1, wait a number of seconds from 0, tools a list of names."
            raise ConfigError(f"RetryTools({attempts!r}, wait={wait!r}, tools={tools!r}) is invalid.", hint=hint)
        self._attempts, self._wait, self._tools = attempts, wait, tuple(tools)

    @property
    def name(self) -> str:
        tools = "".join(f",{tool}" for tool in self._tools)
        return f"retry:{self._attempts},{self._wait:g}{tools}"

    def on_tool_error(self, context: Context[Any], call: Call, observation: Observation, attempt: int) -> float | None:
        if attempt >= self._attempts or (self._tools and call.tool not in self._tools):
            return None
        return float(self._wait * 2.0 ** (attempt - 1))
