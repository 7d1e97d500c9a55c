"""The table of a comparison as values: a row for each loop with its models, and what became of each two rows.

Theory of operation. All is read off the finished cells; one that is not finished counts nowhere. Means are over a
row's own runs; two rows are compared on the tasks that both finished, each task with its rate of success. Tokens,
money and counts are summed whole, and divided once at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from plait.lab import statistics
from plait.lab.comparison import Comparison, Contender
from plait.lab.counting import mean, tallies, usd
from plait.lab.pairs import Pair, pairs
from plait.lab.parts import ByAbout, ByPhase, by_about, by_phase
from plait.lab.result import Result
from plait.models.prices import NANO

__all__ = ["ByAbout", "ByPhase", "Pair", "Row", "by_about", "by_phase", "pairs", "rows"]


class Row(Struct, frozen=True, kw_only=True):
    """One loop with its models over all its finished runs; None where there is nothing to tell from.

    `n` are the finished runs and `tasks` their tasks; `success` the share that did the task, `interval` its 95 %
    interval and `worth` how many independent runs it stands for (see `statistics.effective`). `score`, `steps`,
    `calls` (of models), the tokens (`cached_tokens` are a part of `input_tokens`, `tokens` is in and out), `repairs`
    and `invented` are means of a run; `repaired` is the share of runs with a repair. `fell_back` runs continued as
    another loop; `calls_as_text` runs wrote tool calls as text because the endpoint took no tools. `not_measured` runs
    gave no result because the endpoint was out or rejected the request. `seconds` is the median, `seconds_p90` what 9
    of 10 runs stay below. `cost_usd` is the mean and `cost_usd_total` the sum, None where one price is not known;
    `grading_usd` is what models that judge cost. `measures` has the mean of each further number of the grader,
    `statuses` how many runs ended how.
    """

    strategy: str
    models: dict[str, str]
    who: str = ""
    key: str = ""
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

    def json(self) -> dict[str, Any]:
        """The row as `plait compare --json` prints it, with every digit."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


def rows(comparison: Comparison) -> tuple[Row, ...]:
    """A row for each contender, in their order."""
    skipped = Counter(each.variant for each in comparison.not_measured)
    return tuple(_row(each, comparison.of(each), skipped[each.key]) for each in comparison.contenders)


def _row(contender: Contender, results: Sequence[Result], not_measured: int) -> Row:
    told, n = tallies(results), len(results)
    right = sum(k for k, _ in told)
    costs = usd(each.cost_usd for each in results)
    seconds = [each.seconds for each in results]
    used = [each.usage for each in results]
    return Row(
        strategy=contender.strategy,
        models=contender.models,
        who=contender.who,
        key=contender.key,
        success=right / n if n else None,
        n=n,
        interval=statistics.interval(told) if n else None,
        steps=mean(each.steps for each in results),
        calls=mean(each.calls for each in results),
        tokens=mean(each.tokens for each in used),
        seconds=statistics.quantile(seconds, 0.5) if n else None,
        cost_usd=float(costs / n / NANO) if n and costs is not None else None,
        tasks=len(told),
        successes=right,
        worth=statistics.effective(told),
        score=mean(each.grade.score for each in results),
        input_tokens=mean(each.input_tokens for each in used),
        output_tokens=mean(each.output_tokens for each in used),
        cached_tokens=mean(each.cached_tokens for each in used),
        estimated=any(each.estimated for each in used),
        seconds_p90=statistics.quantile(seconds, 0.9) if n else None,
        cost_usd_total=float(costs / NANO) if costs is not None else None,
        grading_usd=None if (graded := usd(each.grade.cost_usd for each in results)) is None else float(graded / NANO),
        repairs=mean(each.repairs for each in results),
        repaired=mean(each.repairs > 0 for each in results),
        invented=mean(each.invented for each in results),
        fell_back=sum(each.fell_back for each in results),
        calls_as_text=sum(each.calls_as_text for each in results),
        not_measured=not_measured,
        statuses=dict(Counter(each.status for each in results)),
        measures=_measures(results),
    )


def _measures(results: Iterable[Result]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for each in results:
        for name, value in each.grade.measures.items():
            found.setdefault(name, []).append(value)
    means = {name: mean(values) for name, values in found.items()}
    return {name: value for name, value in means.items() if value is not None}
