"""What a sandbox is: something that opens sessions; and a session: one namespace that pieces of code run in.

Theory of operation. Code comes back at every call out of the sandbox and waits, so whoever holds the session makes the
calls, or never answers. That is how `stop()` can't be swallowed: it is a call that nobody answers. A session is
deterministic: given the same pieces of code, times, zones and results it does the same, so that a resumed run makes its
session again by feeding it what is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plait.core.code import CodeError, CodeLimits

PRELUDE = "import asyncio, json, math, re\nfrom datetime import date, datetime, time, timedelta\n"
"""Runs when a session is opened: the names that code finds there."""


@dataclass(frozen=True)
class Settings:
    """How a session is made. `seed` is where its random numbers begin. `functions` are the names of the tools: a call
    of one goes out of the sandbox, and so does a call of any name that is not defined (an error comes back)."""

    functions: frozenset[str] = frozenset()
    limits: CodeLimits = field(default_factory=CodeLimits)
    seed: int = 0


@dataclass(frozen=True)
class OutCall:
    """A call out of the sandbox. Arguments are plain Python values (`worker_values.CROSSING` names their types) and
    `ArtifactHandle`s, nested at will. `size` is about how many bytes they take."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    size: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Result:
    """What a call gave: a value (as in `OutCall`), or an exception to raise: its Python name and message."""

    value: Any = None
    error: str = ""
    message: str = ""


@dataclass(frozen=True)
class SandboxTurn:
    """What came of a piece of code; as `plait.core.Ran`, with the calls as the sandbox knows them."""

    output: str = ""
    calls: tuple[OutCall, ...] = ()
    error: CodeError | None = None
    lost: bool = False
    seconds: float = 0.0


class SandboxSession(Protocol):
    """One namespace. Not for use by two at once."""

    async def run(self, code: str, now: float, zone: int | None = None) -> SandboxTurn:
        """Run a piece of code to its end or to its next calls. `now` is what its clock says all the while, in seconds
        since 1970, `zone` how many seconds its local time is ahead of UTC, None for this machine's. A piece before it
        that still waits is given up. Never raises for what the code does."""
        ...

    async def go_on(self, results: Sequence[Result]) -> SandboxTurn:
        """Go on with the code that waits: one result for each of its calls, in order."""
        ...

    async def close(self) -> None:
        """End it, and whatever it still does. May be called twice, and while it runs."""
        ...


class Sandbox(Protocol):
    """Opens sessions."""

    @property
    def name(self) -> str:
        """The word it is chosen by."""
        ...

    async def open(self, settings: Settings) -> SandboxSession:
        """A new session. Raises `ConfigError` when this machine can't confine it, or what it needs isn't installed."""
        ...
