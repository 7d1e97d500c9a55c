"""The hook `retry`: repeats tool calls that failed."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from plait.core import Call, Observation
from plait.core.errors import ConfigError
from plait.runtime.context import Context
from plait.runtime.hooks import Hook


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
