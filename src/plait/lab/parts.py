"""A comparison parted: what each phase spent, and success by a field of the tasks, such as their steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from plait.lab import statistics
from plait.lab.comparison import Comparison
from plait.lab.counting import tallies
from plait.runtime.spending import PhaseSpending, merged


class ByPhase(Struct, frozen=True, kw_only=True):
    """What a row's runs spent, a part for each phase and model. `spent` are sums over its `n` runs that add up."""

    key: str
    n: int
    spent: tuple[PhaseSpending, ...]

    def json(self) -> dict[str, Any]:
        """Sums of each phase, with every digit."""
        return {"key": self.key, "n": self.n, "phases": [part.json() for part in self.spent]}


class ByAbout(Struct, frozen=True, kw_only=True):
    """A row's success on the tasks that have one `value` of a field of `Task.about` (None: they have not the field)."""

    key: str
    value: Any
    tasks: int
    n: int
    successes: int
    success: float | None
    interval: tuple[float, float] | None


def by_phase(comparison: Comparison) -> tuple[ByPhase, ...]:
    """What each row's runs spent by phase and model, tool calls and code included, in the order of their first use."""
    found = []
    for contender in comparison.contenders:
        results = comparison.of(contender)
        spent = merged(part for result in results for part in result.phases)
        found.append(ByPhase(key=contender.key, n=len(results), spent=spent))
    return tuple(found)


def by_about(comparison: Comparison, field: str) -> tuple[ByAbout, ...]:
    """Success of each row within each value that tasks have for a field of `Task.about`, smallest value first."""
    value_of = {task.id: task.about.get(field) for task in comparison.suite.tasks}
    values = sorted(_once(value_of.values()), key=_order)
    found = []
    for contender in comparison.contenders:
        results = comparison.of(contender)
        for value in values:
            told = tallies([each for each in results if _same(value_of.get(each.task), value)])
            right, n = sum(k for k, _ in told), sum(n for _, n in told)
            found.append(
                ByAbout(
                    key=contender.key,
                    value=value,
                    tasks=len(told),
                    n=n,
                    successes=right,
                    success=right / n if n else None,
                    interval=statistics.interval(told) if n else None,
                )
            )
    return tuple(found)


def _once(values: Iterable[Any]) -> list[Any]:
    """Each value once; they may be lists."""
    return list({_name(value): value for value in values}.values())


def _same(one: Any, other: Any) -> bool:
    return _name(one) == _name(other)


def _name(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers by size, then text, then what has no value."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return (2, 0.0, "") if value is None else (1, 0.0, value if isinstance(value, str) else _name(value).decode())
