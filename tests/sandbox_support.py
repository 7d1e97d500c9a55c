"""What the tests of the sandboxes share: opening a backend, and driving a piece of code to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from plait.core.code import CodeError
from plait.core.errors import ConfigError
from plait.sandbox import OutCall, Result, Sandbox, SandboxSession, SandboxTurn, Settings, sandbox

BACKENDS = ("monty", "process")
NOW = 1_700_000_000.25


def backend(name: str) -> Sandbox:
    """The sandbox of that name; skips where this machine can't confine it."""
    try:
        return sandbox(name)
    except (ConfigError, ImportError) as reason:
        pytest.skip(f"no {name} sandbox here: {reason}")


async def opened(name: str, settings: Settings) -> SandboxSession:
    """A session of that sandbox; skips where this machine can't confine it."""
    try:
        return await backend(name).open(settings)
    except ConfigError as reason:
        pytest.skip(f"no {name} sandbox here: {reason}")


@dataclass
class Whole:
    """A piece of code from its start to its end: what it printed in all, and the turns it came back with."""

    turns: list[SandboxTurn] = field(default_factory=list)

    @property
    def output(self) -> str:
        return "".join(turn.output for turn in self.turns)

    @property
    def error(self) -> CodeError | None:
        return self.turns[-1].error

    @property
    def lost(self) -> bool:
        return any(turn.lost for turn in self.turns)

    @property
    def calls(self) -> list[list[OutCall]]:
        """The calls of each turn that came with some."""
        return [list(turn.calls) for turn in self.turns if turn.calls]


def answer(call: OutCall, tools: Mapping[str, Callable[..., Any]]) -> Result:
    """What the tool of that name gives; an unknown one is a NameError, as the runtime says it."""
    if call.name not in tools:
        return Result(error="NameError", message=f"name '{call.name}' is not defined")
    try:
        return Result(tools[call.name](*call.args, **call.kwargs))
    except Exception as problem:
        return Result(error=type(problem).__name__, message=str(problem))


async def whole(
    session: SandboxSession, code: str, tools: Mapping[str, Callable[..., Any]] | None = None, now: float = NOW
) -> Whole:
    """Run a piece of code to its end, its calls made by `tools`."""
    told = Whole([await session.run(code, now)])
    while told.turns[-1].calls:
        told.turns.append(await session.go_on([answer(call, tools or {}) for call in told.turns[-1].calls]))
    return told
