"""Guards for the tests of the chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from core_runs import (
    Tried,
    tried,
)
from plait.core import Call, LimitNear, Observation
from plait.journal.records import Decision
from plait.runtime.guard import Entry, Guard, Refuse


class Spy(Guard):
    """Notes what it is told about tool calls, as "before 0.1"; a result that it cannot decide about is "told 0.1"."""

    points = (Call,)
    order = 99.0

    def __init__(self) -> None:
        self.log: list[str] = []
        self.inputs: list[Any] = []

    def start(self, context: Any) -> Guard:
        return self

    async def before(self, entry: Entry) -> Any:
        self.log.append(f"before {entry.key}")
        self.inputs.append(entry.effect.input)
        return entry.effect

    def restore(self, entry: Entry, decision: Decision | None) -> None:
        self.log.append(f"restore {entry.key}")

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self.log.append(f"{'after' if fresh else 'told'} {entry.key}")
        return result

    def release(self, entry: Entry) -> None:
        self.log.append(f"release {entry.key}")


def spied(walk: Any, *guards: Callable[[], Any], first: bool = False, **settings: Any) -> tuple[Tried, list[Spy]]:
    """Return a run with a spy behind all other guards, or before them. Each process adds its spy to the list."""
    spies: list[Spy] = []

    def make() -> Spy:
        spies.append(Spy())
        if first:
            spies[-1].order = -1.0  # type: ignore[misc]
        return spies[-1]

    return tried(walk, make, *guards, **settings), spies


def before_calls(decide: Callable[[Call], Any], name: str = "rule", **fields: Any) -> Callable[[], Guard]:
    """Return a kind of guard that decides about calls."""

    async def before(self: Guard, entry: Entry) -> Any:
        return decide(entry.effect)

    return type(name, (Guard,), {"points": (Call,), "before": before, **fields})


def after_calls(decide: Callable[[Call, Observation], Any], name: str = "rule") -> Callable[[], Guard]:
    """Return a kind of guard that decides about results of calls."""

    async def after(self: Guard, entry: Entry, result: Any, fresh: bool) -> Any:
        return decide(entry.effect, result) if fresh and isinstance(result, Observation) else result

    return type(name, (Guard,), {"points": (), "points_after": (Call,), "after": after})


def set_input(call: Call, **given: Any) -> Call:
    return structs.replace(call, input={**call.input, **given})


def raise_limit(call: Call) -> Call:
    if call.tool == "pay":
        raise LimitNear("rule", "the rule says so")
    return call


def refuse_pay(call: Call) -> Any:
    return Refuse("no payments") if call.tool == "pay" else call
