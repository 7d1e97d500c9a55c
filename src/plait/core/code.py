"""Code as action, as a loop sees it: the effect of a piece of code, and its limits."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from plait.core.artifacts import ArtifactHandle
from plait.core.attachments import Attachment
from plait.core.errors import ConfigError
from plait.core.tools import Call

CodeLimit: TypeAlias = Literal["", "time", "memory", "recursion", "output", "tool_calls"]
"""The limit that ended a piece of code, or ""."""


class CodeLimits(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The limits of one piece of code, which one `Execute` runs to its end.

    `seconds`: its running time, without the time in which it waits for calls. `memory_mb`: of the whole session.
    `recursion`: depth of nested calls. `output_chars`: printed characters; more are cut. `tool_calls`: calls out of the
    sandbox. `call_bytes`, `call_items` and `call_depth` limit the arguments of one call: their size as JSON, the number
    of values, and the depth of nesting. `sent_bytes`: the arguments of all calls together.
    """

    seconds: float = 10.0
    memory_mb: int = 256
    recursion: int = 1000
    output_chars: int = 50_000
    tool_calls: int = 100
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
    """Why a piece of code ended early: the exception's type by its Python name, its message, and the place. `line`
    counts the lines of the code from 1, 0 if unknown; `source` is that line. `limit` is the limit that ended it."""

    type: str
    message: str
    line: int = 0
    source: str = ""
    limit: CodeLimit = ""


class Ran(Struct, frozen=True, omit_defaults=True):
    """The effect of a piece of code until it ended, or until it waits for calls.

    `output` is its output (stdout and stderr in one) since the last `Ran`. `calls` are the calls out of the sandbox
    that it waits for: those of one `gather` together, all others one at a time. `error` says why it ended early.
    `lost`: the session and its variables are gone, and the next piece gets a new one. `undone`: the piece was ended,
    and the variables are as they were before it. `seconds` is its running time without waiting. `made` are the files
    that it has made, such as charts, and `attachments` those of them that models may see.
    """

    output: str = ""
    calls: tuple[Call, ...] = ()
    error: CodeError | None = None
    lost: bool = False
    seconds: float = 0.0
    undone: bool = False
    made: tuple[ArtifactHandle, ...] = ()
    attachments: tuple[Attachment, ...] = ()

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an error."""
        return not self.calls
