"""How sure a share is after so many tries.

With every share from 0 to 1 held equally likely before, the share after `k` successes in `n` tries has a Beta
distribution, and its tail is a binomial one: P(share >= x | k of n) = P(Binomial(n + 1, x) <= k). There is no integral
to be solved.
"""

from __future__ import annotations

import math

MOST = 1_000_000
"""Where looking for a number of tasks ends."""


def sure(successes: int, n: int, at_least: float) -> float:
    """How probable it is that the true share is at least so high, after `successes` in `n` tries."""
    if at_least <= 0:
        return 1.0
    if at_least >= 1:
        return 0.0
    return at_most(successes, n + 1, at_least)


def at_most(k: int, n: int, p: float) -> float:
    """P(Binomial(n, p) <= k), summed from the side that has less."""
    if k >= n:
        return 1.0
    odds = p / (1 - p)
    if k < n * p:
        return min(1.0, _sum(k, n, p, 1 / odds, down=True))
    return max(0.0, 1 - _sum(k + 1, n, p, odds, down=False))


def more_tasks(share: float, n: int, at_least: float, goal: float = 0.95) -> int | None:
    """About how many tasks beyond `n` make it so sure, if the share stays as it is.

    None where no number does, because the share is not above what is asked, and where it is more than a million.
    """

    def enough(tasks: int) -> bool:
        return sure(math.floor(share * tasks + 1e-9), tasks, at_least) >= goal

    if share <= at_least and at_least > 0:
        return None
    few, many = n, max(n, 1)
    while not enough(many):
        few, many = many, many * 2
        if many > MOST:
            return None
    # Successes are whole, so that it grows in small jerks: the bound is right up to one of these.
    while few < many:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle + 1, many)
    return many - n


def _sum(start: int, n: int, p: float, ratio: float, *, down: bool) -> float:
    """The probabilities of `start` and all below it (or above), which get smaller from one to the next."""
    logs = math.lgamma(n + 1) - math.lgamma(start + 1) - math.lgamma(n - start + 1)
    term = math.exp(logs + start * math.log(p) + (n - start) * math.log1p(-p))
    total, at = 0.0, start
    while term > total * 1e-17 and term > 0:
        total += term
        term *= (at / (n - at + 1) if down else (n - at) / (at + 1)) * ratio
        at += -1 if down else 1
    return total
