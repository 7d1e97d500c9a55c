"""The further tables, shown on demand: by phase, by a field of the tasks, and each two rows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from plait.lab import words
from plait.lab.grid import Column, line
from plait.lab.parts import ByAbout, ByPhase
from plait.lab.table import Pair, Row
from plait.runtime.spending import CODE, TOOLS, PhaseSpending, in_all, shown

HUNDREDTHS = 100
MILLISECOND = 1_000
"""What seconds are shown to, in microseconds."""


def phase_columns(rows: Sequence[Row], by_phase: Sequence[ByPhase]) -> list[Column]:
    """Each row's phases, then "in all": means of a run, which add up as they are shown."""
    name = words.namer(rows)
    costs = [float(Fraction(part.nanos or 0, each.n * 10**9)) for each in by_phase for part in each.spent if each.n]
    digits = words.usd_digits(costs)
    heads = ("loop", "phase", "model", "calls", "retries", "in", "cached", "out", "seconds", "USD")
    lines: list[tuple[str, ...]] = []
    for each in by_phase:
        if each.n:
            lines += _phases(name(each.key), each, digits)
    leave = {"retries": 4, "cached": 3, "calls": 2, "model": 1}
    cells = list(zip(*lines, strict=True)) or [()] * len(heads)
    return [Column(head, cells[at], leave.get(head, 0), at < 3) for at, head in enumerate(heads)]


def _phases(name: str, each: ByPhase, digits: int) -> list[tuple[str, ...]]:
    models = [part for part in each.spent if not part.is_work]

    def told(parts: Sequence[int | None], unit: int, places: int, scale: int = 1) -> list[str]:
        exact = [None if part is None else Fraction(part * scale, each.n) for part in parts]
        some, total = shown(exact, unit, places)
        return [*some, total] if places else [f"{int(each):,}" for each in (*some, total)]

    numbers = [
        told([part.calls for part in models], 1, 2, HUNDREDTHS),
        told([part.retries for part in models], 1, 2, HUNDREDTHS),
        told([part.usage.input_tokens for part in models], 1, 0),
        told([part.usage.cached_tokens for part in models], 1, 0),
        told([part.usage.output_tokens for part in models], 1, 0),
    ]
    seconds = told([part.micros for part in each.spent], MILLISECOND, 3)
    usd = told([part.nanos for part in each.spent], 10 ** (9 - digits), digits)
    asked = iter(zip(*numbers, strict=True))
    lines: list[tuple[str, ...]] = []
    for part, took, cost in zip((*each.spent, in_all(each.spent)), seconds, usd, strict=True):
        if part.is_work:
            what = {TOOLS: "(tool calls)", CODE: "(pieces of code)"}[part.phase]
            made = told([part.calls], 1, 2, HUNDREDTHS)[0]
            lines.append((name, part.phase, f"{made} {what}", "", "", "", "", "", took, ""))
            continue
        lines.append((name, line(part.phase), line(part.model), *_estimated(part, next(asked)), took, cost))
    return lines


def _estimated(part: PhaseSpending, numbers: Sequence[str]) -> list[str]:
    """The numbers of calls and tokens, those of tokens marked where they are a guess."""
    sign = "~" if part.usage.estimated else ""
    return [*numbers[:2], *(sign + each for each in numbers[2:])]


def about_columns(rows: Sequence[Row], by_about: Sequence[ByAbout]) -> list[Column]:
    """A line for each row, a column for each value, success in it."""
    name = words.namer(rows)
    keys = list(dict.fromkeys(each.key for each in by_about))
    count = len(by_about) // len(keys) if keys else 0
    found = [Column("loop", tuple(map(name, keys)), left=True)]
    for at in range(count):
        same = by_about[at::count]
        value, tasks = same[0].value, max(each.tasks for each in same)
        head = f"{'-' if value is None else line(str(value))} ({tasks:,} {'task' if tasks == 1 else 'tasks'})"
        found.append(Column(head, tuple(words.percent(each.success, each.interval) for each in same)))
    return found


def pair_columns(rows: Sequence[Row], pairs: Sequence[Pair]) -> list[Column]:
    """Each two rows: tasks, who wins how many, p, what it says of the first, and the ratio of tokens."""
    name = words.namer(rows)

    def ratio(pair: Pair) -> str:
        if pair.tokens_ratio is None:
            return "-"
        between = pair.tokens_interval
        return f"{pair.tokens_ratio:.2f}" + (f" ({between[0]:.2f}-{between[1]:.2f})" if between else "")

    return [
        Column("row", tuple(name(pair.a) for pair in pairs), left=True),
        Column("is", tuple(pair.word for pair in pairs), left=True),
        Column("against", tuple(name(pair.b) for pair in pairs), left=True),
        Column("tasks", tuple(words.number(pair.tasks) for pair in pairs), 3),
        Column("wins", tuple(f"{pair.wins_a:,} to {pair.wins_b:,}" for pair in pairs)),
        Column("both right", tuple(words.number(pair.both_right) for pair in pairs), 5),
        Column("both wrong", tuple(words.number(pair.both_wrong) for pair in pairs), 5),
        Column("p", tuple(words.p_words(pair.p) for pair in pairs), 4),
        Column("p (Holm)", tuple(words.p_words(pair.p_holm) for pair in pairs)),
        Column("tokens", tuple(ratio(pair) for pair in pairs), 2),
    ]
