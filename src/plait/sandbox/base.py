"""The interface of sandboxes. A sandbox opens sessions; a session is one namespace that pieces of code run in.

Code stops at each call out of the sandbox and waits for the holder of the session. So code cannot catch `stop()`: it is
a call without an answer. A session is deterministic: the same code, times, zones and results have the same effect. A
resumed run rebuilds its session from the record.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plait.core.code import CodeError, CodeLimit, CodeLimits
from plait.core.errors import ConfigError
from plait.sandbox.piece_limits import MESSAGE_CHARS, SOURCE_CHARS, cut

PRELUDE = "import asyncio, json, math, re\nfrom datetime import date, datetime, time, timedelta\n"
"""Code that runs when a session opens. It defines the names that code finds there."""

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = """
import sys
from types import ModuleType
module, here, *arguments = sys.argv[1:]
for name in ("plait", "plait.sandbox"):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [here if "." in name else here + "/.."]
del here
__import__(module, fromlist=["start"]).start(*arguments)
"""
"""The program of a confined process. It gets the files of this folder and no other file of the package."""


@dataclass(frozen=True)
class Settings:
    """The settings of a session. `seed` starts its random numbers. `functions` are the names of the tools. A call of a
    tool leaves the sandbox; so does a call of an undefined name, which gets an error back."""

    functions: frozenset[str] = frozenset()
    limits: CodeLimits = field(default_factory=CodeLimits)
    seed: int = 0


@dataclass(frozen=True)
class OutCall:
    """A call out of the sandbox. Arguments are plain Python values (types in `worker_values.CROSSING`) and
    `ArtifactHandle`s, nested in any way. `size` is roughly their size in bytes."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    size: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Result:
    """The result of a call: a value (as in `OutCall`), or an exception to raise, with its Python name and message."""

    value: Any = None
    error: str = ""
    message: str = ""


@dataclass(frozen=True)
class SandboxTurn:
    """The result of a piece of code, like `plait.core.Ran`, with the calls as the sandbox knows them. `files` are those
    that the code has made, each with its name."""

    output: str = ""
    calls: tuple[OutCall, ...] = ()
    error: CodeError | None = None
    lost: bool = False
    seconds: float = 0.0
    files: tuple[tuple[str, bytes], ...] = ()


def code_error(code: str, kind: str, message: str, line: int = 0, limit: CodeLimit = "") -> CodeError:
    """Return the error of a piece of code, with the source of its line. Long texts are cut."""
    lines = code.splitlines()
    source = cut(lines[line - 1], SOURCE_CHARS) if 0 < line <= len(lines) else ""
    return CodeError(kind, cut(message, MESSAGE_CHARS), line, source, limit)


def check_results(results: Sequence[Result], waiting: int) -> None:
    """Raise `ConfigError` if there is not one result for each call that the code waits for."""
    if not waiting or len(results) != waiting:
        hint = "Give one result for each call of the last turn."
        raise ConfigError(f"{len(results)} results were given; the code waits for {waiting}.", hint=hint)


class SandboxSession(Protocol):
    """One namespace. Only one task may use it at a time."""

    async def run(self, code: str, now: float, zone: int | None = None) -> SandboxTurn:
        """Run a piece of code to its end or its next calls. Gives up an earlier piece that still waits.

        `now` is the time that its clock shows throughout, in seconds since 1970. `zone` is the local offset from UTC in
        seconds; None for this machine's. Never raises for what the code does.
        """
        ...

    async def go_on(self, results: Sequence[Result]) -> SandboxTurn:
        """Continue the waiting code with one result for each of its calls, in order."""
        ...

    async def close(self) -> None:
        """End the session and anything that it still runs. May be called twice, and while code runs."""
        ...


class Sandbox(Protocol):
    @property
    def name(self) -> str:
        """Return the name that selects this sandbox."""
        ...

    async def open(self, settings: Settings) -> SandboxSession:
        """Open a session. Raises `ConfigError` if this machine cannot confine code, or a package is missing."""
        ...
