"""The values of a comparison: contenders, results, and the rows, pairs and parts of the table computed from them.

Only finished cells count. Means are over a row's own runs. Two rows are compared on the tasks that both finished, each
task with its success rate. Tokens, money and counts are summed exactly and divided once at the end.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from plait.core.notebook import render_html
from plait.lab import statistics
from plait.lab.results import CellResult
from plait.lab.tasks import Suite
from plait.models.prices import NANO
from plait.runtime.costs import PhaseSpending, merge_spending

_DAY = re.compile(r"(\d{4})(\d\d)(\d\d)-\d{6}-")
_Cells: TypeAlias = "dict[tuple[str, int], CellResult]"
Verdict: TypeAlias = Literal["better", "worse", "no difference seen", "too few to tell", "no common tasks"]


class Contender(Struct, frozen=True):
    """A loop with its models, as the table names it: one row. `models` maps each phase to its model's name.

    `loop` is the loop with the options that are not defaults, `react(dialect=lines)`, or the name of a compared
    `agent`; `who` names the models, and the texts if several are compared; `key` is both, `react @ local`. `texts` are
    the agent's fields `prompts`, `system` and `instructions` that the row changes.
    """

    key: str
    loop: str
    who: str
    models: dict[str, str]
    agent: str = ""
    texts: dict[str, str] = {}


class NotMeasured(Struct, frozen=True, kw_only=True):
    """A cell whose last run ended with an error that says nothing about the loop: an outage or a rejected request.
    `variant` is the contender's key, `error` the error's name, `reason` its text, `run` the run's id."""

    variant: str
    task: str
    repeat: int
    run: str
    error: str
    reason: str


class Comparison(Struct, frozen=True, kw_only=True):
    """The compared contenders and tasks, and the results so far. `print` shows its table.

    `results` has at most one for each contender, task and repeat (0 ... `repeat` - 1), in the order of contenders,
    tasks and repeats. `not_measured` are cells without a result whose last run crashed for a reason outside the loop.
    `unfinished` says why results are missing ("" if none is). `journal` is the file with the runs.
    """

    name: str
    suite: Suite
    contenders: tuple[Contender, ...]
    repeat: int
    results: tuple[CellResult, ...]
    not_measured: tuple[NotMeasured, ...] = ()
    journal: str = ""
    unfinished: str = ""

    def __str__(self) -> str:
        from plait.lab.report import render_text  # it imports this module

        return render_text(self)

    def __repr__(self) -> str:
        """One line: its name, its suite, and how much is finished."""
        done = f"{len(self.results)} of {self.cells} cells"
        return f"Comparison({self.name!r}, suite={self.suite.word!r}, contenders={len(self.contenders)}, {done})"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows, with a row for each contender."""
        rows = []
        for row in self.rows:
            means = ["?" if value is None else f"{value:,.4g}" for value in (row.tokens, row.seconds, row.cost_usd)]
            rows.append((row.loop, row.who, "?" if row.success is None else f"{row.success:.0%}", str(row.n), *means))
        return render_html(
            f"{self.name}: {self.suite.word}",
            [self.unfinished],
            ("loop", "models", "successes", "runs", "tokens", "seconds", "USD"),
            rows,
        )

    @property
    def cells(self) -> int:
        """The number of cells, finished or not."""
        return len(self.suite.tasks) * len(self.contenders) * self.repeat

    @property
    def when(self) -> str:
        """The days (UTC) of its runs: `2026-11-21`, or `first to last`; "" if no run's id has a day."""
        days = sorted({"-".join(day.groups()) for each in self.results if (day := _DAY.match(each.run))})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""

    @property
    def whole(self) -> bool:
        """Whether every cell is finished."""
        return len(self.results) == self.cells

    def of(self, contender: Contender) -> tuple[CellResult, ...]:
        return tuple(each for each in self.results if each.variant == contender.key)

    @property
    def rows(self) -> tuple[TableRow, ...]:
        """The rows of the table, one for each contender; `plait.recommend` reads them."""
        skipped, firsts = Counter(each.variant for each in self.not_measured), self.suite.firsts()
        return tuple(_make_row(each, self.of(each), skipped[each.key], firsts) for each in self.contenders)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Each two rows compared, in the order of rows."""
        by_row = [(row.key, {(each.task, each.repeat): each for each in self.of(row)}) for row in self.contenders]
        firsts = self.suite.firsts()
        found = [_make_pair(*first, *second, firsts) for first, second in combinations(by_row, 2)]
        tested = [at for at, pair in enumerate(found) if pair.p is not None]
        for at, p in zip(tested, statistics.adjust_holm([found[at].p or 0.0 for at in tested]), strict=True):
            pair = found[at]
            word: Verdict = "better" if (pair.difference or 0) > 0 else "worse"
            if p >= statistics.ALPHA:
                least = statistics.least_p(pair.wins_a + pair.wins_b)
                word = "too few to tell" if least >= statistics.ALPHA else "no difference seen"
            found[at] = structs.replace(pair, p_holm=p, word=word)
        return tuple(found)

    def by_phase(self) -> tuple[RowPhases, ...]:
        """Sum what each row's runs spent by phase and model, tool calls and code included."""
        found = []
        for contender in self.contenders:
            results = self.of(contender)
            spent = merge_spending(part for result in results for part in result.phases)
            found.append(RowPhases(key=contender.key, n=len(results), spent=spent))
        return tuple(found)

    def by_field(self, field: str) -> tuple[FieldShare, ...]:
        """Compute each row's success for each value of a field of the tasks' `about`, smallest value first."""
        groups: dict[bytes, tuple[Any, set[str]]] = {}
        for task in self.suite.tasks:
            value = task.about.get(field)
            groups.setdefault(msgspec.json.encode(value, order="deterministic"), (value, set()))[1].add(task.id)
        found, firsts = [], self.suite.firsts()
        for contender in self.contenders:
            results = self.of(contender)
            for value, tasks in sorted(groups.values(), key=lambda group: _sort_key(group[0])):
                tallies = count_by_task((each for each in results if each.task in tasks), firsts)
                right, n = sum(k for k, _ in tallies), sum(n for _, n in tallies)
                found.append(
                    FieldShare(
                        key=contender.key,
                        value=value,
                        tasks=len(tallies),
                        n=n,
                        successes=right,
                        success=right / n if n else None,
                        interval=statistics.success_interval(tallies) if n else None,
                    )
                )
        return tuple(found)


class TableRow(Struct, frozen=True, kw_only=True):
    """One loop with its models over all its finished runs; a figure is None if there is no run to compute it from.

    `n` counts the runs, `tasks` their tasks. `success` is the share of successful runs, `interval` its 95 % interval,
    `worth` the number of independent runs (see `statistics.effective_runs`). `score`, `steps`, `calls` (of models),
    tokens (`cached_tokens` are part of `input_tokens`, `tokens` is in and out), `repairs` and `invented` are means of a
    run; `repaired` is the share of runs with a repair. `fell_back` runs continued as another loop; `calls_as_text` runs
    wrote tool calls as text. `not_measured` runs gave no result. `seconds` is the median, `seconds_p90` the 90th
    percentile. `cost_usd` is the mean and `cost_usd_total` the sum, None if a price is unknown; `grading_usd` is the
    cost of judges. `measures` has means of a grader's other numbers, `statuses` the number of runs by status.
    """

    loop: str
    models: dict[str, str]
    who: str = ""
    key: str = ""
    agent: str = ""
    texts: dict[str, str] = {}
    success: float | None
    n: int
    interval: tuple[float, float] | None
    steps: float | None = None
    calls: float | None = None
    tokens: float | None = None
    seconds: float | None = None
    cost_usd: float | None = None
    tasks: int = 0
    successes: int = 0
    worth: float = 0.0
    score: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    estimated: bool = False
    seconds_p90: float | None = None
    cost_usd_total: float | None = None
    grading_usd: float | None = None
    repairs: float | None = None
    repaired: float | None = None
    invented: float | None = None
    fell_back: int = 0
    calls_as_text: int = 0
    not_measured: int = 0
    statuses: dict[str, int] = {}
    measures: dict[str, float] = {}


class Pair(Struct, frozen=True, kw_only=True):
    """Two rows (`a` and `b` are their keys) on the `tasks` that both finished, each with as many runs of both rows.

    The row with the higher success rate wins a task. `both_right` and `both_wrong` are the tasks in which all runs of
    both rows succeeded, or failed. `difference` is the mean success of `a` minus that of `b`. `p` is the sign-flip
    test's, `p_holm` the same adjusted for all pairs of the table, and `word` its verdict on `a`. `seeable` is the size
    of a true difference that would have been detected 4 times of 5. `tokens_ratio` is the tokens of `a` over those of
    `b`.
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
    word: Verdict
    seeable: float | None
    tokens_ratio: float | None
    tokens_interval: tuple[float, float] | None


class RowPhases(Struct, frozen=True, kw_only=True):
    """What a row's `n` runs spent, a part for each phase and model; sums that add up."""

    key: str
    n: int
    spent: tuple[PhaseSpending, ...]


class FieldShare(Struct, frozen=True, kw_only=True):
    """A row's success on the tasks with one `value` of a field of `about` (None: tasks without the field)."""

    key: str
    value: Any
    tasks: int
    n: int
    successes: int
    success: float | None
    interval: tuple[float, float] | None


def short_names(rows: Sequence[Contender | TableRow], parts: tuple[str, ...] = ("loop", "who")) -> dict[str, str]:
    """Name rows by their key: by the first of these fields that is unique, else by the key itself. A row whose key is
    its loop (that of recorded runs) has no other name."""
    for part in parts:
        names = {row.key: row.key if row.key == row.loop else str(getattr(row, part)) for row in rows}
        if len(set(names.values())) == len(rows):
            return names
    return {row.key: row.key for row in rows}


def group_by_task(results: Iterable[CellResult], firsts: Mapping[str, str] = {}) -> dict[str, list[CellResult]]:
    """Group results by task, in the order in which the tasks occur. `firsts`, of `Suite.firsts`, joins equal tasks."""
    found: dict[str, list[CellResult]] = {}
    for each in results:
        found.setdefault(firsts.get(each.task, each.task), []).append(each)
    return found


def count_by_task(results: Iterable[CellResult], firsts: Mapping[str, str]) -> list[tuple[int, int]]:
    groups = group_by_task(results, firsts).values()
    return [(sum(each.grade.success for each in runs), len(runs)) for runs in groups]


def _make_row(row: Contender, results: Sequence[CellResult], skipped: int, firsts: Mapping[str, str]) -> TableRow:
    tallies, n = count_by_task(results, firsts), len(results)
    right = sum(k for k, _ in tallies)
    costs, grading = _sum_nanos(each.cost_usd for each in results), _sum_nanos(each.grade.cost_usd for each in results)
    seconds = [each.seconds for each in results]
    used = [each.usage for each in results]
    measures: dict[str, list[float]] = {}
    for each in results:
        for name, value in each.grade.measures.items():
            measures.setdefault(name, []).append(value)
    means = {name: _mean(values) for name, values in measures.items()}
    return TableRow(
        loop=row.loop,
        models=row.models,
        who=row.who,
        key=row.key,
        agent=row.agent,
        texts=row.texts,
        success=right / n if n else None,
        n=n,
        interval=statistics.success_interval(tallies) if n else None,
        steps=_mean(each.steps for each in results),
        calls=_mean(each.calls for each in results),
        tokens=_mean(each.tokens for each in used),
        seconds=statistics.quantile(seconds, 0.5) if n else None,
        cost_usd=float(costs / n / NANO) if n and costs is not None else None,
        tasks=len(tallies),
        successes=right,
        worth=statistics.effective_runs(tallies),
        score=_mean(each.grade.score for each in results),
        input_tokens=_mean(each.input_tokens for each in used),
        output_tokens=_mean(each.output_tokens for each in used),
        cached_tokens=_mean(each.cached_tokens for each in used),
        estimated=any(each.estimated for each in used),
        seconds_p90=statistics.quantile(seconds, 0.9) if n else None,
        cost_usd_total=None if costs is None else float(costs / NANO),
        grading_usd=None if grading is None else float(grading / NANO),
        repairs=_mean(each.repairs for each in results),
        repaired=_mean(each.repairs > 0 for each in results),
        invented=_mean(each.invented for each in results),
        fell_back=sum(each.fell_back for each in results),
        calls_as_text=sum(each.calls_as_text for each in results),
        not_measured=skipped,
        statuses=dict(Counter(each.status for each in results)),
        measures={name: mean for name, mean in means.items() if mean is not None},
    )


def _make_pair(a: str, of_a: _Cells, b: str, of_b: _Cells, firsts: Mapping[str, str]) -> Pair:
    # As many runs of both rows in each task: else differences of equal rows are skewed, and the test is not exact.
    both = [cell for cell in of_a if cell in of_b]
    grouped = (group_by_task((of[cell] for cell in both), firsts).values() for of in (of_a, of_b))
    common = list(zip(*grouped, strict=True))
    rates = [(_rate(first), _rate(second)) for first, second in common]
    differences = [first - second for first, second in rates]
    tokens = statistics.ratio([(_mean_tokens(first), _mean_tokens(second)) for first, second in common])
    unit = 1 / max((len(first) for first, _ in common), default=1)
    square = float(sum((each * each for each in differences), Fraction(0)) / len(common)) if common else 0.0
    return Pair(
        a=a,
        b=b,
        tasks=len(common),
        wins_a=sum(each > 0 for each in differences),
        wins_b=sum(each < 0 for each in differences),
        both_right=sum(first == second == 1 for first, second in rates),
        both_wrong=sum(first == second == 0 for first, second in rates),
        difference=float(sum(differences, Fraction(0)) / len(common)) if common else None,
        p=statistics.sign_flip_p(differences) if common else None,
        p_holm=None,
        word="no common tasks",
        seeable=statistics.seeable_difference(len(common), square, unit),
        tokens_ratio=tokens[0] if tokens else None,
        tokens_interval=tokens[1] if tokens else None,
    )


def _rate(runs: Sequence[CellResult]) -> Fraction:
    return Fraction(sum(each.grade.success for each in runs), len(runs))


def _mean_tokens(runs: Sequence[CellResult]) -> float:
    return sum(each.usage.tokens for each in runs) / len(runs)


def _mean(values: Iterable[float]) -> float | None:
    finite = [each for each in values if math.isfinite(each)]
    return math.fsum(finite) / len(finite) if finite else None


def _sum_nanos(costs: Iterable[float | None]) -> Fraction | None:
    """Return the sum in billionths of a dollar, each cost rounded once; None if one is unknown."""
    given = list(costs)
    known = [round(cost * NANO) for cost in given if cost is not None]
    return Fraction(sum(known)) if len(known) == len(given) else None


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Sort numbers by size, then text, then tasks without a value."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
    return (2, 0.0, "") if value is None else (1, 0.0, text)
