"""The table of costs: a row for each run, or for each combination of phase models, a column for each phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from plait.cli.spent import ABSENT, CENT_MILLI, MILLISECOND, Head, rate_words, shown
from plait.cli.text import clean
from plait.journal.records import Resumed, Row, RunHead, RunRow, Thinking
from plait.lab.grid import in_turn
from plait.models.prices import NANO, UNKNOWN, Rate
from plait.runtime.spending import MICRO, PhaseSpending, in_all, in_units, merged, spending

THOUSANDTHS = 1000
"""To so much the mean of a count is given."""

Column: TypeAlias = tuple[str, bool]
"""A phase, and whether it stands for tool calls."""


@dataclass(frozen=True)
class Line:
    """A row of the table: one run, or several of the same loop and models. `spent` are sums over the runs."""

    runs: tuple[str, ...]
    strategy: str
    combination: tuple[Any, ...]
    spent: tuple[PhaseSpending, ...]
    rates: Mapping[tuple[str, str], Rate]
    wall: float | None

    @property
    def columns(self) -> dict[Column, tuple[PhaseSpending, ...]]:
        """The phases in the order of their first use, each with its rows."""
        found: dict[Column, tuple[PhaseSpending, ...]] = {}
        for row in self.spent:
            key = (row.phase, row.is_work)
            found[key] = (*found.get(key, ()), row)
        return found

    @property
    def models(self) -> dict[str, str]:
        """The model of each phase; two that one phase asked are joined by a plus."""
        return {
            phase: "+".join(row.model for row in rows) for (phase, tools), rows in self.columns.items() if not tools
        }

    @property
    def mean_nanos(self) -> Fraction | None:
        """What a run cost, in billionths of a dollar; None where a price is not known."""
        nanos = in_all(self.spent).nanos
        return None if nanos is None else Fraction(nanos, len(self.runs))

    def json(self) -> dict[str, Any]:
        """The line with every number in full; those of several runs are means that add up as well."""
        phases = [row.json() for row in self.spent]
        whole = in_all(self.spent).json()
        if len(self.runs) > 1:
            _mean(phases, whole, len(self.runs))
        for row, each in zip(self.spent, phases, strict=True):
            rate = self.rates.get((row.phase, row.model))
            each["rate"] = None if rate is None or not rate.known else rate_words(rate)
        for name in ("phase", "model"):
            del whole[name]
        return {
            "runs": list(self.runs),
            "strategy": self.strategy,
            "models": self.models,
            "phases": phases,
            "in_all": whole,
            "wall_seconds": self.wall,
        }


def line_of(row: RunRow, rows: Sequence[Row]) -> Line:
    """A recorded run as a line."""
    spent = spending(rows)
    described = [row.head.models, *(each.record.models for each in rows if isinstance(each.record, Resumed))]
    rates = {(part.phase, part.model): _rate(part, described) for part in spent if not part.is_work}
    asked: dict[str, tuple[str, ...]] = {phase: (spec,) for phase, spec in _configured(row.head).items()}
    used: dict[str, tuple[str, ...]] = {}
    for each in rows:
        if isinstance(each.record, Thinking) and each.record.model not in used.get(each.record.phase, ()):
            used[each.record.phase] = (*used.get(each.record.phase, ()), each.record.model)
    combination = (row.head.strategy["name"], *sorted({**asked, **used}.items()))
    return Line((row.head.run,), row.head.strategy["name"], combination, spent, rates, row.totals.get("seconds"))


def averaged(lines: Iterable[Line]) -> list[Line]:
    """The lines with those of the same loop and models made one, in the order of the first of each."""
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(line.combination, []).append(line)
    return [_together(group) if len(group) > 1 else group[0] for group in groups.values()]


def table(lines: Sequence[Line], *, mean: bool, tokens: bool) -> tuple[list[Head], list[list[str]]]:
    """The table's heads and its rows of cells, the columns of all lines' phases in it."""
    columns = in_turn(line.columns for line in lines)
    heads: list[Head] = [("runs" if mean else "run", mean), ("loop", False), ("models", False)]
    for column in columns:
        name = _label(column, columns)
        heads += [(f"{name} s", True), *([] if column[1] else [(f"{name} USD", True)])]
    heads += [("in all s", True), ("in all USD", True)]
    if tokens:
        names = [*(_label(column, columns) for column in columns if not column[1]), "in all"]
        heads += [(f"{name} {kind}", True) for name in names for kind in ("in", "cached", "out")]
    return heads, [_cells(line, columns, mean=mean, tokens=tokens) for line in lines]


def _cells(line: Line, columns: Sequence[Column], *, mean: bool, tokens: bool) -> list[str]:
    count, here = len(line.runs), line.columns
    present = [column for column in columns if column in here]
    sums = [in_all(here[column]) for column in present]
    seconds, all_seconds = shown([Fraction(each.micros, count) for each in sums], MILLISECOND, 3)
    nanos = [None if each.nanos is None else Fraction(each.nanos, count) for each in sums]
    usd, all_usd = shown(nanos, CENT_MILLI, 5)
    cells = [str(count) if mean else line.runs[0], line.strategy, clean(_who(line.models))]
    for column in columns:
        at = present.index(column) if column in here else -1
        cells += [seconds[at] if at >= 0 else ABSENT]
        cells += [] if column[1] else [usd[at] if at >= 0 else ABSENT]
    cells += [all_seconds, all_usd]
    if tokens:
        kinds = ("input_tokens", "cached_tokens", "output_tokens")
        rounded = {kind: shown([Fraction(getattr(each.usage, kind), count) for each in sums], 1, 0) for kind in kinds}
        for column in columns:
            if not column[1]:
                at = present.index(column) if column in here else -1
                cells += [rounded[kind][0][at] if at >= 0 else ABSENT for kind in kinds]
        cells += [rounded[kind][1] for kind in kinds]
    return cells


def _label(column: Column, columns: Sequence[Column]) -> str:
    phase, tools = column
    return f"{clean(phase)} (model)" if not tools and (phase, True) in columns else clean(phase)


def _who(models: Mapping[str, str]) -> str:
    different = set(models.values())
    return different.pop() if len(different) == 1 else " ".join(f"{phase}={spec}" for phase, spec in models.items())


def _configured(head: RunHead) -> dict[str, str]:
    """The model that each phase of the run's loop was to ask, as far as the loop is known here."""
    from plait.loops import phases_of
    from plait.runtime.retell import recorded_loop

    specs = {phase: str(model["spec"]) for phase, model in head.models.items()}
    loop = recorded_loop(head)
    phases = phases_of(loop) if loop is not None else tuple(specs)
    return {phase: specs.get(phase, specs.get("", "")) for phase in phases}


def _rate(part: PhaseSpending, described: Iterable[Mapping[str, Any]]) -> Rate:
    """The rate of a phase's model as the record has it."""
    import msgspec

    for models in described:
        for model in (models.get(part.phase), models.get(""), *models.values()):
            if model is not None and model.get("spec") == part.model:
                return msgspec.convert(model.get("rate", {}), Rate)
    return UNKNOWN


def _together(group: Sequence[Line]) -> Line:
    walls = [line.wall for line in group]
    known = [wall for wall in walls if wall is not None]
    return Line(
        runs=tuple(run for line in group for run in line.runs),
        strategy=group[0].strategy,
        combination=group[0].combination,
        spent=merged(row for line in group for row in line.spent),
        rates={key: rate for line in reversed(group) for key, rate in line.rates.items()},
        wall=round(sum(known) / len(known), 6) if len(known) == len(walls) else None,
    )


def _mean(phases: Sequence[dict[str, Any]], whole: dict[str, Any], runs: int) -> None:
    """Make sums over so many runs means, those of the phases still adding up to the whole's."""

    def divide(kind: str, scale: int, parts: Sequence[dict[str, Any]], total: dict[str, Any] | None) -> None:
        known = [part for part in parts if part[kind] is not None]
        units, all_units = in_units([Fraction(round(part[kind] * scale), runs) for part in known], 1)
        for part, each in zip(known, units, strict=True):
            part[kind] = each / scale
        if total is not None and total[kind] is not None:
            total[kind] = all_units / scale

    models = [phase for phase in phases if phase["model"]]
    tools = [phase for phase in phases if not phase["model"]]
    for kind in ("calls", "retries"):
        divide(kind, THOUSANDTHS, models, whole)
        divide(kind, THOUSANDTHS, tools, None)
    for kind in ("input_tokens", "output_tokens", "cached_tokens"):
        divide(kind, THOUSANDTHS, [phase["usage"] for phase in phases], whole["usage"])
    divide("seconds", MICRO, phases, whole)
    divide("cost_usd", NANO, phases, whole)
