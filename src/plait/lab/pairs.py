"""Each two rows of a comparison on the tasks both finished: who wins how many, and whether that can be chance."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from plait.lab import statistics
from plait.lab.comparison import Comparison
from plait.lab.counting import by_task, rate
from plait.lab.result import Result

Word: TypeAlias = Literal["better", "worse", "no difference seen", "too few to tell", "no common tasks"]


class Pair(Struct, frozen=True, kw_only=True):
    """Two rows (`a` and `b` are their keys) on the `tasks` both finished; nothing else counts here.

    A task is won by the row with the higher rate of success; `differ` are the tasks that either won, `both_right` and
    `both_wrong` those that all runs of both did, or none. `difference` is the mean of success of `a` less `b`. `p` is
    the sign-flip test's, `p_holm` the same adjusted for all pairs of the table, and `word` what it says of `a`.
    `seeable` is how large a true difference would have been seen 4 times of 5 at this many tasks. `tokens_ratio` is the
    tokens of `a` over those of `b`, with its 95 % interval.
    """

    a: str
    b: str
    tasks: int
    wins_a: int
    wins_b: int
    both_right: int
    both_wrong: int
    difference: float | None
    p: float | None
    p_holm: float | None
    word: Word
    seeable: float | None
    tokens_ratio: float | None
    tokens_interval: tuple[float, float] | None

    @property
    def differ(self) -> int:
        """On how many tasks they did not do alike."""
        return self.wins_a + self.wins_b

    def json(self) -> dict[str, Any]:
        """The pair as `plait compare --json` prints it."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


def pairs(comparison: Comparison) -> tuple[Pair, ...]:
    """Each two rows compared, in the order of rows."""
    kept = [(each.key, by_task(comparison.of(each))) for each in comparison.contenders]
    found = [_pair(*first, *second) for first, second in combinations(kept, 2)]
    tested = [at for at, pair in enumerate(found) if pair.p is not None]
    for at, adjusted in zip(tested, statistics.holm([found[at].p or 0.0 for at in tested]), strict=True):
        found[at] = structs.replace(found[at], p_holm=adjusted, word=_word(found[at], adjusted))
    return tuple(found)


def _pair(a: str, of_a: dict[str, list[Result]], b: str, of_b: dict[str, list[Result]]) -> Pair:
    common = [task for task in of_a if task in of_b]
    rates = [(rate(of_a[task]), rate(of_b[task])) for task in common]
    apart = [first - second for first, second in rates]
    tokens = statistics.ratio([(_tokens(of_a[task]), _tokens(of_b[task])) for task in common])
    unit = 1 / max((len(runs[task]) for task in common for runs in (of_a, of_b)), default=1)
    square = float(sum((each * each for each in apart), Fraction(0)) / len(common)) if common else 0.0
    return Pair(
        a=a,
        b=b,
        tasks=len(common),
        wins_a=sum(each > 0 for each in apart),
        wins_b=sum(each < 0 for each in apart),
        both_right=sum(first == second == 1 for first, second in rates),
        both_wrong=sum(first == second == 0 for first, second in rates),
        difference=float(sum(apart, Fraction(0)) / len(common)) if common else None,
        p=statistics.sign_flip(apart) if common else None,
        p_holm=None,
        word="no common tasks",
        seeable=statistics.seeable(len(common), square, unit),
        tokens_ratio=tokens[0] if tokens else None,
        tokens_interval=tokens[1] if tokens else None,
    )


def _word(pair: Pair, p: float) -> Word:
    if p < statistics.ALPHA:
        return "better" if (pair.difference or 0) > 0 else "worse"
    return "too few to tell" if statistics.least_p(pair.differ) >= statistics.ALPHA else "no difference seen"


def _tokens(runs: Sequence[Result]) -> float:
    return sum(each.usage.tokens for each in runs) / len(runs)
