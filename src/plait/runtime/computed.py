"""Tells whether a number is what simple arithmetic on known numbers gives.

A sum that a model worked out in its head is no made-up value if it is right. That it is the result of *some* sum of
known numbers proves little where many numbers are known and the result is short: then nearly every number is. So
it counts only where it would not be hit by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from math import isfinite

MOST = 30
"""So many known numbers at most: of more, nearly everything is some sum."""

CHANCE = 0.05
"""A number is taken for computed if at most this share of all numbers written alike (as long, with as many decimals)
could be computed as well."""

ROUNDED = 3
"""A rounded result needs so many digits: 26 would be the quotient of too many things."""


def computed(value: float, decimals: int, numbers: Iterable[float]) -> bool:
    """`value`, written with so many decimals, is the sum, difference, product or quotient of two of the numbers, the
    sum of three or four, or what is left of or comes to a hundred percent (20 percent off: 0.8 and 80)."""
    known = tuple(sorted({abs(number) for number in numbers} - {0.0}))
    if len(known) > MOST:
        return False
    if any(_same(value, each) for each in _percents(known)):
        return True
    size = len(str(int(abs(value))))
    digits = size + decimals
    alike = _alike(known, decimals, size, rounded=digits >= ROUNDED)
    return len(alike) <= CHANCE * 9 * 10 ** (digits - 1) and round(abs(value), decimals) in alike


@lru_cache(maxsize=64)
def _alike(known: tuple[float, ...], decimals: int, size: int, *, rounded: bool) -> frozenset[float]:
    """All results with so many digits before and behind the point: the same for every number of a long text."""
    return frozenset(each for each in _results(known, decimals, rounded=rounded) if len(str(int(each))) == size)


def _results(known: tuple[float, ...], decimals: int, *, rounded: bool) -> Iterator[float]:
    """What can be computed and written with so many decimals: sums are written out, what was multiplied or divided may
    be rounded."""
    pairs = list(combinations(known, 2))
    sums = [each for a, b in pairs for each in (a + b, b - a)]
    sums += [sum(some) for count in (3, 4) if len(known) <= MOST // count for some in combinations(known, count)]
    others = [each for a, b in pairs for each in (a * b, a / b, b / a)]
    for each in filter(isfinite, (*sums, *others)):
        near = round(each, decimals)
        if _same(each, near):
            yield near
    if rounded:
        yield from (round(each, decimals) for each in others if isfinite(each))


def _percents(known: tuple[float, ...]) -> Iterator[float]:
    for each in known:
        if each < 100:
            yield from (1 - each / 100, 1 + each / 100, 100 - each, 100 + each)


def _same(one: float, other: float) -> bool:
    return abs(abs(one) - abs(other)) <= 1e-9 * max(1.0, abs(one))
