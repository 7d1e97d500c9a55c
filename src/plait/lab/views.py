"""The further tables, shown on demand: by phase, by a field of the tasks, each two rows, and each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from plait.lab import words
from plait.lab.grid import ELLIPSIS, Column, line
from plait.lab.parts import ByAbout, ByPhase
from plait.lab.result import Result
from plait.lab.table import Pair, Row
from plait.runtime.spending import CODE, TOOLS, PhaseSpending, in_all, shown

WHY = 100
"""Letters of what was wrong with a run."""
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


def cell_columns(rows: Sequence[Row], results: Sequence[Result]) -> list[Column]:
    """A line for each finished cell: how it was graded, what it took, its run on record, and what was wrong."""
    name = words.namer(rows)
    repeated = any(each.repeat for each in results)

    def why(each: Result) -> str:
        said = line(each.grade.why or (each.reason or "" if each.status != "answered" else ""))
        return said if len(said) <= WHY else said[: WHY - 1] + ELLIPSIS

    def column(head: str, cell: Callable[[Result], str], leave: int = 0, left: bool = False) -> Column:
        return Column(head, tuple(map(cell, results)), leave, left)

    return [
        column("loop", lambda each: name(each.variant), left=True),
        column("task", lambda each: line(each.task), left=True),
        *([column("time", lambda each: str(each.repeat + 1))] if repeated else []),
        column("grade", lambda each: line(each.grade.mark), left=True),
        column("steps", lambda each: words.number(each.steps), 3),
        column("tokens", lambda each: words.number(each.usage.tokens), 4),
        column("seconds", lambda each: words.number(each.seconds, 2), 2),
        column("run", lambda each: each.run, left=True),
        column("why", why, 1, left=True),
    ]


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
