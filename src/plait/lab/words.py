"""Numbers of the table as words, and what stands below it: how sure it is, what differs, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from plait.lab.comparison import Comparison, NotMeasured
from plait.lab.grid import line
from plait.lab.table import Pair, Row
from plait.runtime.spending import UNKNOWN_COST, in_units

UNKNOWN_PRICE = "?: a price is not known. [prices] of plait.toml tells it for new runs (--again)."
CHANGED = (
    "changed: runs that continued as another loop, or wrote tool calls as text because the endpoint takes no tools."
)
MOST = 12
"""Pairs named one by one; of more, the rest are counted."""


def percent(share: float | None, interval: tuple[float, float] | None = None) -> str:
    """`67 % (47-82)`, "-" where there is nothing; 0 % and 100 % only where it is none and all."""
    if share is None:
        return "-"
    whole = min(max(round(share * 100), int(share > 0)), 99 + int(share == 1))  # not 100 % where one run failed
    return f"{whole} %" + (f" ({interval[0] * 100:.0f}-{interval[1] * 100:.0f})" if interval else "")


def success(row: Row) -> str:
    """A row's share of success, or that it was not measured."""
    return "not measured" if not row.n and row.not_measured else percent(row.success, row.interval)


def changed(row: Row) -> str:
    """How many runs were not of the loop that the row names: `2 other loop`, `32 calls as text`, "-" for none."""
    parts = [f"{row.fell_back:,} other loop" if row.fell_back else ""]
    parts += [f"{row.calls_as_text:,} calls as text" if row.calls_as_text else ""]
    return ", ".join(filter(None, parts)) or "-"


def number(value: float | None, digits: int = 0) -> str:
    """A number with thousands parted, "-" where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def usd(value: float | None, digits: int = 5) -> str:
    """A sum of money, "?" where a price is not known."""
    return UNKNOWN_COST if value is None else f"{value:,.{digits}f}"


def usd_digits(values: Sequence[float | None]) -> int:
    """Decimals at which the smallest sum that is not 0 has two digits, from 5 to 9."""
    for digits in range(5, 9):
        if all(not value or value >= 10.0 ** (1 - digits) for value in values):
            return digits
    return 9


def adding(parts: Sequence[float | None]) -> list[str]:
    """Parts, and then their sum, in whole numbers that add up as they are shown."""
    known = [Fraction(part) for part in parts if part is not None]
    if len(known) < len(parts):
        return ["-"] * (len(parts) + 1)
    cut, total = in_units(known, 1)
    return [f"{each:,}" for each in (*cut, total)]


def p_words(p: float | None) -> str:
    """`0.031`, `< 0.001`, "-" where there is none."""
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def namer(rows: Sequence[Row]) -> Callable[[str], str]:
    """How a row is called by its key: by its loop, or by its models, where that tells it from all others."""
    for names in ({row.key: row.strategy for row in rows}, {row.key: row.who for row in rows}):
        if len(set(names.values())) == len(rows):
            return {key: line(name) for key, name in names.items()}.__getitem__
    return line


def notes(comparison: Comparison, rows: Sequence[Row], pairs: Sequence[Pair]) -> list[str]:
    """Sentences below the table, the most important first."""
    name = namer(rows)
    said = [*not_measured(comparison), *_missing(comparison, rows)]
    if any(row.n for row in rows):
        said += [_how(comparison), *_apart(pairs, name), *_ended(rows, name), _totals(rows)]
    if any(row.n and row.cost_usd is None for row in rows):
        said.append(UNKNOWN_PRICE)
    if any(row.estimated for row in rows):
        said.append("~: tokens estimated from the length of the text.")
    return said


def not_measured(comparison: Comparison) -> list[str]:
    """A sentence for each row and reason that cells were not measured, with the id of one run."""
    found: dict[tuple[str, str], list[NotMeasured]] = {}
    for each in comparison.not_measured:
        found.setdefault((each.variant, each.reason), []).append(each)
    said = []
    for (variant, reason), cells in found.items():
        whole = len(comparison.suite.tasks) * comparison.repeat
        count = f"{len(cells):,} of {_count(whole, 'run')} tried and rejected"
        said.append(f"Not measured: {line(variant)}: {count}: {line(reason).rstrip('.')}. See run {cells[0].run}.")
    return said


def _missing(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    said, missing = [], comparison.cells - len(comparison.results)
    if missing > 0 or comparison.unfinished:
        count, why = f"{missing:,} of {_count(comparison.cells, 'cell')}", line(comparison.unfinished).rstrip(".")
        reason = f": {why}" if why and count not in why else ""  # it may say no more than this
        said.append(f"Not finished: {count}{reason}.")
    if len({row.n for row in rows}) > 1:
        said.append("The rows don't have the same runs; two rows are compared on the tasks both finished.")
    return said


def _how(comparison: Comparison) -> str:
    how = "Success: the share of runs that did the task, with a 95 % interval (Wilson's)"
    if comparison.repeat > 1:
        how += "; runs of one task resemble each other and count as fewer"
    return f"{how}. Seconds: the median (p90: 9 of 10 runs took less). All else: the mean of a run."


def _apart(pairs: Sequence[Pair], name: Callable[[str], str]) -> list[str]:
    """Which rows differ, and which can't be told apart."""
    said = []
    differ = [pair for pair in pairs if pair.word in ("better", "worse")]
    if differ:
        said.append("Differ (sign-flip test on the same tasks, p adjusted by Holm for all pairs):")
        said += [f"  {_won(pair, name)}" for pair in differ[:MOST]]
        said += [f"  and {_count(len(differ) - MOST, 'more pair')}"] if len(differ) > MOST else []
    alike = [pair for pair in pairs if pair.word == "no difference seen"]
    if alike:
        sizes = [pair.seeable for pair in alike]
        known = [size for size in sizes if size is not None]
        most = (
            f" Tested alone, a true difference of {_points(known)} would have been seen 4 times of 5." if known else ""
        )
        said.append(f"No difference seen: {_named(alike, name, tested=True)}.{most}")
    few = [pair for pair in pairs if pair.word == "too few to tell"]
    if few:
        said.append(f"Too few to tell: {_named(few, name)}. Fewer than 6 tasks differ: that can always be chance.")
    none = [pair for pair in pairs if pair.word == "no common tasks"]
    if none:
        said.append(f"No task that both finished: {_named(none, name)}.")
    return said


def _won(pair: Pair, name: Callable[[str], str]) -> str:
    first, second, won, lost = pair.a, pair.b, pair.wins_a, pair.wins_b
    if pair.word == "worse":
        first, second, won, lost = second, first, lost, won
    of = f"of {_count(pair.tasks, 'task')} {won} to {lost}"
    return f"{name(first)} is better than {name(second)}: {of}, p {p_words(pair.p_holm)}"


def _named(pairs: Sequence[Pair], name: Callable[[str], str], *, tested: bool = False) -> str:
    words = [
        f"{name(pair.a)} and {name(pair.b)}" + (f" ({pair.wins_a} to {pair.wins_b}, p {p_words(pair.p_holm)})" * tested)
        for pair in pairs[:MOST]
    ]
    words += [f"{len(pairs) - MOST:,} more"] if len(pairs) > MOST else []
    return "; ".join(words)


def _points(sizes: Sequence[float]) -> str:
    low, high = (round(each * 100) for each in (min(sizes), max(sizes)))
    return f"about {low} points" if low == high else f"about {low} to {high} points"


def _ended(rows: Sequence[Row], name: Callable[[str], str]) -> list[str]:
    said = []
    for row in rows:
        others = [f"{count:,} {status}" for status, count in row.statuses.items() if status != "answered"]
        said += [f"{name(row.key)} ({', '.join(others)})"] if others else []
    ended = [f"Ended otherwise than answered: {'; '.join(said)}."] if said else []
    if any(row.fell_back or row.calls_as_text for row in rows):
        ended.append(CHANGED)
    return ended


def _totals(rows: Sequence[Row]) -> str:
    runs = sum(row.n for row in rows)
    tokens = round(sum((row.tokens or 0) * row.n for row in rows))
    costs, graded = [row.cost_usd_total for row in rows if row.n], [row.grading_usd for row in rows if row.n]
    whole = None if None in costs else sum(each or 0 for each in costs)
    grading = None if None in graded else sum(each or 0 for each in graded)
    words = f"In all {_count(runs, 'run')}, {tokens:,} tokens, {usd(whole, usd_digits([whole]))} USD"
    return words + ("." if grading == 0 else f", and grading {usd(grading, usd_digits([grading]))} USD.")


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")
