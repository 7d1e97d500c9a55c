"""Sums, means and tallies over finished cells: summed without loss, divided once at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from plait.lab.result import Result
from plait.models.prices import NANO


def by_task(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results of each task, tasks in the order they come in."""
    found: dict[str, list[Result]] = {}
    for each in results:
        found.setdefault(each.task, []).append(each)
    return found


def tallies(results: Iterable[Result]) -> list[tuple[int, int]]:
    """Successes and runs of each task."""
    return [(sum(each.grade.success for each in runs), len(runs)) for runs in by_task(results).values()]


def rate(runs: Sequence[Result]) -> Fraction:
    """The share of runs that did their task."""
    return Fraction(sum(each.grade.success for each in runs), len(runs))


def mean(values: Iterable[float]) -> float | None:
    """The mean of those values that are finite; None where there are none."""
    finite = [each for each in values if math.isfinite(each)]
    return math.fsum(finite) / len(finite) if finite else None


def usd(costs: Iterable[float | None]) -> Fraction | None:
    """The sum in billionths of a dollar, each rounded once; None where one is not known."""
    total = 0
    for cost in costs:
        if cost is None:
            return None
        total += round(cost * NANO)
    return Fraction(total)
