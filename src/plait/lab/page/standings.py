"""What the page draws of each contender: its row of the table, a name, and its tokens by step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from plait.lab.comparison import Comparison, Contender
from plait.lab.page.texts import brief
from plait.lab.result import Result
from plait.lab.table import Row, rows

_KEY = 240
"""Characters of a name in the page."""


class Step(Struct, frozen=True):
    """Mean tokens in and out of one step (counted from 1), over the `runs` that came to it."""

    step: int
    input: float
    output: float
    runs: int


class Standing(Struct, frozen=True):
    """One row: `number` counts from 1, `key` is its whole name and `name` what tells it from the others."""

    number: int
    key: str
    name: str
    row: Row
    by_step: tuple[Step, ...]


def standings(comparison: Comparison) -> tuple[Standing, ...]:
    """A standing for each contender in the order of the table, finished runs or not."""
    names = _names(comparison.contenders)
    found = zip(comparison.contenders, names, rows(comparison), strict=True)
    return tuple(
        Standing(number, brief(each.key, _KEY), brief(name, _KEY), row, _by_step(comparison.of(each)))
        for number, (each, name, row) in enumerate(found, 1)
    )


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of (price, success) that nobody beats: nothing as cheap is better. By rising price."""
    best, found = -1.0, []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if points[i][1] > best:
            best = points[i][1]
            found.append(i)
    return found


def _names(contenders: Sequence[Contender]) -> list[str]:
    """The loop alone where all have the same models, the models alone where all are the same loop."""
    loops, whos = {each.strategy for each in contenders}, {each.who for each in contenders}
    if len(whos) == 1 and len(loops) == len(contenders):
        return [each.strategy for each in contenders]
    if len(loops) == 1 and len(whos) == len(contenders):
        return [each.who for each in contenders]
    return [each.key for each in contenders]


def _by_step(results: Sequence[Result]) -> tuple[Step, ...]:
    found = []
    for step in range(max((len(result.by_step) for result in results), default=0)):
        there = [result.by_step[step] for result in results if len(result.by_step) > step]
        found.append(Step(step + 1, fmean(used for used, _ in there), fmean(out for _, out in there), len(there)))
    return tuple(found)
