"""The hook `rate`: limits how often tools are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.core import Call
from plait.core.errors import ConfigError
from plait.models.rate_limits import RateLimit, RateLimiter
from plait.runtime.context import Context
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
