"""The limits of a run."""

from __future__ import annotations

import math

from msgspec import Struct, structs

from plait.core import CodeLimits
from plait.core.errors import ConfigError

_CODE = CodeLimits()


class Limits(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The most that a run may use. None means no limit.

    `steps`: turns of the loop. `calls`: requests to models, failed ones included. `tokens`: input and output together.
    `usd`: money. `seconds`: wall time. `steps`, `calls` and `seconds` are above 0. One model call is kept in reserve,
    so that the model can be asked to answer with what there is. `tool_seconds` is each tool call's time where the tool
    sets none of its own; `retries` how often a failed request is sent again; `repeats` how often the same call may
    bring the same result before the run is stopped (0: never stopped for that). `tools`: with more tools than this, the
    model is shown those that fit the task best, and a tool that finds the others; None shows all, but `codeact` then
    shows none of more than eight and finds them by searching. `depth`: how many levels of child runs it may have, and
    `children`: how many child runs on all levels. What child runs use counts against all limits. `compact_at`: the
    share of the model's context at which old turns are folded or summarized, more than 0 and at most 1; None only does
    so after the model refused a prompt. `code`: what one piece of code may use. Raises `ConfigError` for an invalid
    limit.
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
    depth: int = 4
    children: int = 32
    compact_at: float | None = 0.7
    code: CodeLimits = _CODE

    def __post_init__(self) -> None:
        for name in self.__struct_fields__[:-1]:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            kinds, wanted = ((int, float), "a number") if name in _NUMBERS else ((int,), "a whole number")
            is_number = isinstance(value, kinds) and not isinstance(value, bool) and 0 <= value < math.inf
            if not is_number or (value == 0 and name in _ABOVE_ZERO):
                least = "above 0" if name in _ABOVE_ZERO else "from 0 up"
                none = ", or None for no limit" if name in _OPTIONAL else ""
                raise ConfigError(f"Limits({name}={value!r}) is invalid.", hint=f"Give {wanted} {least}{none}.")
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
_ABOVE_ZERO = ("steps", "calls", "seconds")
_OPTIONAL = ("steps", "calls", "tokens", "tools", "usd", "seconds", "compact_at")
