"""Code as action, as a loop sees it: what a piece of code did, and what it may use up."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.core.tools import Call

CodeLimit: TypeAlias = Literal["", "time", "memory", "recursion", "output", "calls"]
"""The limit that ended a piece of code, "" where none did."""


class CodeLimits(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """What one piece of code may use up. A piece is what one `Execute` runs, to its end.

    `seconds` of its own running, time in which it waits for calls not counted. `memory_mb` of the whole session.
    `recursion` in calls that stand open. `output_chars` printed: what is beyond is cut. `calls` out of the sandbox.
    `call_bytes`, `call_items` and `call_depth` of the arguments of one call: their size as JSON, how many values they
    hold, and how deep they are nested. `sent_bytes` of the arguments of all calls together.
    """

    seconds: float = 10.0
    memory_mb: int = 256
    recursion: int = 1000
    output_chars: int = 50_000
    calls: int = 100
    call_bytes: int = 1_000_000
    call_items: int = 100_000
    call_depth: int = 50
    sent_bytes: int = 10_000_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            kinds, what = ((int, float), "a number") if name == "seconds" else ((int,), "a whole number")
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
                raise ConfigError(f"The limit '{name}' of code is {value!r}.", hint=f"Give {what} above zero.")


class CodeError(Struct, frozen=True, omit_defaults=True):
    """Why a piece of code ended early: the exception's type by its Python name, its message, and where.

    `line` counts the lines of the code from 1, 0 where it is not known; `source` is that line. `limit` says which
    limit it was that ended it.
    """

    type: str
    message: str
    line: int = 0
    source: str = ""
    limit: CodeLimit = ""


class Ran(Struct, frozen=True, omit_defaults=True):
    """What a piece of code did until it ended, or until it came to calls that it waits for.

    `output` is what it printed since it last came back (stdout and stderr in one). `calls`, when there are any, are
    the calls out of the sandbox that it waits for: those of one `gather` together, all others one at a time. `error`
    says why it ended early. `lost` says that the session is gone with all its names, so that the next piece begins
    with none. `seconds` is what it ran, waiting not counted.
    """

    output: str = ""
    calls: tuple[Call, ...] = ()
    error: CodeError | None = None
    lost: bool = False
    seconds: float = 0.0

    @property
    def done(self) -> bool:
        """It ended, well or not: it waits for nothing."""
        return not self.calls
