"""The statistics of the table: intervals, paired tests, power, quantiles.

The runs of a row are a sample, and so are its tasks. Runs of one task resemble each other, so 5 runs of 20 tasks carry
less information than 100 tasks: intervals use an *effective* number of runs. Rows are compared task by task, so that
hard and easy tasks do not blur the difference. Tests are exact. The test suite compares all figures with SciPy and
statsmodels; docs/lab.md says why these packages are not used here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from statistics import NormalDist

ALPHA = 0.05
"""Maximum share of equal pairs that are called different (over all pairs of a table together)."""
POWER = 0.8
FINEST = 2520
"""Differences of rates are tested in multiples of 1/FINEST at most; 1 to 10 runs a task divide it."""
_Z95 = NormalDist().inv_cdf(1 - ALPHA / 2)
_ZPOWER = NormalDist().inv_cdf(POWER)


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a proportion; (0, 1) if n is 0. Both arguments may be fractions. Wilson 1927, J. Am.
    Stat. Assoc. 22:209."""
    if n <= 0:
        return 0.0, 1.0
    share, z2 = successes / n, _Z95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low = 0.0 if successes <= 0 else max(0.0, middle - half)
    return low, 1.0 if successes >= n else min(1.0, middle + half)


def effective_runs(tallies: Sequence[tuple[int, int]]) -> float:
    """Return how many independent runs these runs are worth; a tally is (successes, runs) of one task.

    With m tasks, n runs in all, k_i of n_i successes in task i and overall share p, the variance of p with tasks as
    clusters is v = m/(m-1) * sum((k_i - n_i p)^2) / n^2, and n_eff = p(1-p)/v. The result is limited to m (all runs of
    a task end alike) and n (they are independent). If p is 0 or 1, or there is one task, v is undefined and the result
    is m. With one run a task it is always n. Korn and Graubard 1998, Survey Methodology 24:193; in Wilson's interval:
    Franco et al. 2019, J. Surv. Stat. Methodol. 7:334.
    """
    tallies = [tally for tally in tallies if tally[1] > 0]
    tasks, runs, right = len(tallies), sum(n for _, n in tallies), sum(k for k, _ in tallies)
    if tasks < 2 or right in (0, runs):
        return float(tasks)
    share = Fraction(right, runs)
    spread = sum(((k - n * share) ** 2 for k, n in tallies), Fraction(0))
    if spread == 0:
        return float(runs)
    variance = Fraction(tasks, tasks - 1) * spread / runs**2
    return float(min(Fraction(runs), max(Fraction(tasks), share * (1 - share) / variance)))


def success_interval(tallies: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of successes, for the effective number of runs."""
    runs, right = sum(n for _, n in tallies), sum(k for k, _ in tallies)
    if runs == 0:
        return 0.0, 1.0
    worth = effective_runs(tallies)
    return wilson_interval(worth if right == runs else worth * (right / runs), worth)


def sign_flip_p(differences: Iterable[Fraction | int]) -> float:
    """Return the p of the two-sided sign-flip test.

    Each difference is one task's: the first row's success rate minus the other's. If the rows are alike, both signs are
    equally likely. Of all 2^m choices of signs, the test counts those whose sum is at least as far from 0. With one run
    a task it is McNemar's exact test (1947, Psychometrika 12:153). Fisher 1935, The Design of Experiments, section 21.
    Rates finer than `FINEST` are rounded to it, and the test stays exact.
    """
    given = [Fraction(each) for each in differences]
    unit = min(FINEST, math.lcm(*(each.denominator for each in given)))
    whole = [round(each * unit) for each in given]
    sizes = sorted(abs(each) for each in whole if each)
    if not sizes:
        return 1.0
    step = math.gcd(*sizes)
    sizes = [size // step for size in sizes]
    low = (sum(sizes) - abs(sum(whole)) // step) // 2  # the sum in the rarer direction
    ways = _count_subsets(sizes, low)
    return float(min(Fraction(1), Fraction(2 * ways, 1 << len(sizes))))


def _count_subsets(sizes: Sequence[int], max_sum: int) -> int:
    """Count the subsets that sum up to at most `max_sum`. One integer holds the counts for all sums, each in a slot of
    bits that it cannot outgrow. One shift and one addition then add a size."""
    if sizes[-1] == 1:
        n = len(sizes)
        ways = total = 1
        for k in range(max_sum):
            ways = ways * (n - k) // (k + 1)
            total += ways
        return total
    slot = len(sizes) + 1
    keep = (1 << slot * (max_sum + 1)) - 1
    counts = 1
    for size in sizes:
        counts = (counts + (counts << slot * size)) & keep
    return counts % ((1 << slot) - 1)  # the sum of the slots, as 9 leaves the sum of decimal digits


def adjust_holm(ps: Sequence[float]) -> list[float]:
    """Adjust the p of several tests: the chance that any p below 0.05 is wrong is at most 1 in 20. Holm 1979, Scand. J.
    Stat. 6:65."""
    adjusted, so_far = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=lambda at: ps[at])):
        so_far = max(so_far, min(1.0, (len(ps) - rank) * ps[at]))
        adjusted[at] = so_far
    return adjusted


def least_p(differing: int) -> float:
    """Return the smallest p that this many differing tasks can give; it is below 0.05 from 6 tasks on."""
    return min(1.0, 2.0 ** (1 - differing))


def seeable_difference(tasks: int, mean_square: float, unit: float = 1.0) -> float | None:
    """Return the size of a true difference that this many tasks show (p < 0.05) at least 4 times of 5.

    The result is the least d, from 0 to 1, with m d - u >= z(.975) sqrt(m s) + z(.8) sqrt(m (s - d^2)). m is the number
    of tasks. s is the mean square of their differences (with one run a task: the share of tasks that differ), but at
    least u d. u is the smallest difference of a task: 1 with one run a task, 1/r with r. With one run it is the sample
    size of McNemar's test (Miettinen 1968, Biometrics 24:339; Connor 1987, Biometrics 43:207) solved for the
    difference, with a correction for continuity. None: no difference can be detected.
    """
    if least_p(tasks) >= ALPHA:
        return None

    def is_seen(d: float) -> bool:
        square = max(mean_square, unit * d)
        return tasks * d - unit >= _Z95 * math.sqrt(tasks * square) + _ZPOWER * math.sqrt(
            tasks * max(0.0, square - d * d)
        )

    if not is_seen(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if is_seen(middle) else (middle, high)
    return high


def quantile(values: Iterable[float], share: float) -> float:
    """Return a quantile of the values, which must not be empty, as numpy does. Hyndman and Fan's type 7 (1996, Am.
    Stat. 50:361)."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * share
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def ratio(pairs: Sequence[tuple[float, float]], *, seed: int = 1) -> tuple[float, tuple[float, float] | None] | None:
    """Return the ratio of two sums and its 95 % interval; a pair is one task's two numbers.

    The interval is a percentile bootstrap: tasks are drawn with replacement 1,000 times (less often from more than
    2,000) with a seeded generator, so the result is reproducible. Efron 1979, Ann. Stat. 7:1. The interval is None if
    there are fewer than 2 tasks or a draw's second sum is 0; the result is None if the second sum is 0.
    """
    over, under = [a for a, _ in pairs], [b for _, b in pairs]
    first, second, tasks = sum(over), sum(under), range(len(pairs))
    if second <= 0:
        return None
    if len(pairs) < 2:
        return first / second, None
    dice = random.Random(seed)
    draws = []
    for _ in range(max(200, min(1000, 2_000_000 // len(pairs)))):
        chosen = dice.choices(tasks, k=len(tasks))
        above, below = sum(map(over.__getitem__, chosen)), sum(map(under.__getitem__, chosen))
        if below <= 0:
            return first / second, None
        draws.append(above / below)
    return first / second, (quantile(draws, 0.025), quantile(draws, 0.975))
