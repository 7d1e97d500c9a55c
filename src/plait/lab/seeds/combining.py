"""Time and money by phase: a row for each combination of phase models.

Sums are exact (whole microseconds, whole billionths of a dollar) and the means of a row add up as they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from msgspec import Struct, structs

from plait.core.errors import UsageError
from plait.lab.comparison import Comparison
from plait.lab.grid import Column, in_turn, line
from plait.lab.result import Result
from plait.lab.seeds.asking import judged
from plait.lab.seeds.drawn import Drawn, missing
from plait.lab.words import UNKNOWN_PRICE
from plait.runtime.spending import UNKNOWN_COST, PhaseSpending, in_all, merged, runs_until, shown

MILLISECOND, CENT_MILLI = 1_000, 10_000
"""What is shown: seconds to three decimals (in microseconds), USD to five (in billionths)."""
ABSENT, NEVER = "-", "never"

Place: TypeAlias = tuple[str, bool]
"""A phase, and whether it stands for tool calls or code."""


class Combination(Struct, frozen=True):
    """A row. `spent` are sums over `runs` runs of `judged` judged ones, of which `right` were right.

    `paid_back_after` is a number of runs, "never", "?" (a price is not known), None where nothing is compared.
    """

    who: str
    models: dict[str, str]
    runs: int
    right: int
    judged: int
    spent: tuple[PhaseSpending, ...]
    paid_back_after: int | str | None = None

    @property
    def nanos(self) -> Fraction | None:
        """What a run cost in the mean, in billionths of a dollar; None where a price is not known."""
        nanos = in_all(self.spent).nanos
        return None if nanos is None or not self.runs else Fraction(nanos, self.runs)

    @property
    def phases(self) -> dict[Place, PhaseSpending]:
        """What each phase spent, whichever model it asked, in the order of their first use."""
        parts: dict[Place, list[PhaseSpending]] = {}
        for part in self.spent:
            parts.setdefault((part.phase, part.is_work), []).append(part)
        return {place: in_all(each) for place, each in parts.items()}

    def json(self) -> dict[str, Any]:
        """The row with every digit: sums over its runs."""
        whole = in_all(self.spent).json()
        del whole["phase"], whole["model"]
        return {
            "models": self.models,
            "runs": self.runs,
            "right": self.right,
            "judged": self.judged,
            "phases": [part.json() for part in self.spent],
            "in_all": whole,
            "paid_back_after_runs": "not known" if self.paid_back_after == UNKNOWN_COST else self.paid_back_after,
        }


class Combined(Struct, frozen=True):
    """The table: its rows in the order of the comparison."""

    rows: tuple[Combination, ...]
    hardware: float | None = None
    notes: tuple[str, ...] = ()

    def drawn(self) -> Drawn:
        """Means of a run: seconds and USD by phase and in all, as `plait costs --mean` has them."""
        places = in_turn(row.phases for row in self.rows)
        cells = [_cells(row, places) for row in self.rows]
        columns = [
            Column("models", tuple(line(row.who) for row in self.rows), left=True),
            Column("runs", tuple(f"{row.runs:,}" for row in self.rows)),
        ]
        if any(row.judged for row in self.rows):
            columns.append(Column("right", tuple(_right(row) for row in self.rows)))
        heads: list[str] = []
        for phase, work in places:
            heads += [f"{line(phase)} s", *([] if work else [f"{line(phase)} USD"])]
        heads += ["in all s", "in all USD"]
        columns += [Column(head, tuple(row[at] for row in cells)) for at, head in enumerate(heads)]
        if self.hardware is not None:
            columns.append(Column("paid back after", tuple(_paid(row.paid_back_after) for row in self.rows)))
        notes = list(self.notes)
        if any(row.runs and row.nanos is None for row in self.rows):
            notes.append(UNKNOWN_PRICE)
        return Drawn(tuple(columns), tuple(notes))

    def json(self) -> dict[str, Any]:
        """The rows."""
        return {"rows": [row.json() for row in self.rows]}


def combined(comparison: Comparison, *, loop: str = "phased", hardware: float | None = None) -> Combined:
    """The rows of a loop in a comparison. `hardware`: after how many runs so many USD are paid, by what a run costs
    less than one of the first row.

    Raises `UsageError` where the loop is not in it, and where there is no second row to compare with the first.
    """
    contenders = [each for each in comparison.contenders if each.strategy.partition("(")[0] == loop]
    if not contenders:
        raise UsageError(f"The loop {loop} is not in {comparison.name}.", hint="Compare it first.")
    if hardware is not None and len(contenders) < 2:
        raise UsageError(
            "Hardware is compared with the first row, and there is only one row.",
            hint="Name a model without the hardware first, then one with it: --models openai:NAME,local.",
        )
    rows: list[Combination] = []
    for each in contenders:
        results = comparison.of(each)
        graded = judged(comparison, results)
        row = Combination(
            who=each.who if each.strategy == loop else f"{each.strategy} {each.who}",
            models=each.models,
            runs=len(results),
            right=sum(result.grade.success for result in graded),
            judged=len(graded),
            spent=merged(part for result in results for part in result.phases),
        )
        if hardware is not None and rows:
            row = _with_paid(row, rows[0], hardware)
        rows.append(row)
    notes = (*missing(comparison), *_uneven(rows), *_crashed([comparison.of(each) for each in contenders]))
    return Combined(tuple(rows), hardware, notes)


def _with_paid(row: Combination, first: Combination, hardware: float) -> Combination:
    if not row.runs or not first.runs:
        return row
    before, after = first.nanos, row.nanos
    if before is None or after is None:
        return structs.replace(row, paid_back_after=UNKNOWN_COST)
    runs = runs_until(hardware, before - after)
    return structs.replace(row, paid_back_after=NEVER if runs is None else runs)


def _uneven(rows: Sequence[Combination]) -> tuple[str, ...]:
    if len({row.runs for row in rows}) > 1:
        return ("The rows are not about the same tasks: some runs are not finished.",)
    return ()


def _crashed(rows: Sequence[Sequence[Result]]) -> tuple[str, ...]:
    runs = [result for results in rows for result in results]
    crashed = sum(result.status == "crashed" for result in runs)
    return (f"{crashed:,} of {len(runs):,} runs crashed; the means count what they took.",) if crashed else ()


def _cells(row: Combination, places: Sequence[Place]) -> list[str]:
    here = row.phases
    present = [place for place in places if place in here]
    count = max(row.runs, 1)
    seconds, all_seconds = shown([Fraction(here[place].micros, count) for place in present], MILLISECOND, 3)
    nanos = [None if (each := here[place].nanos) is None else Fraction(each, count) for place in present]
    usd, all_usd = shown(nanos, CENT_MILLI, 5)
    cells: list[str] = []
    for place in places:
        at = present.index(place) if place in here else -1
        cells += [seconds[at] if at >= 0 else ABSENT]
        cells += [] if place[1] else [usd[at] if at >= 0 else ABSENT]
    return [*cells, *((all_seconds, all_usd) if row.runs else (ABSENT, ABSENT))]


def _right(row: Combination) -> str:
    return f"{row.right:,} of {row.judged:,}" if row.judged else ABSENT


def _paid(after: int | str | None) -> str:
    return ABSENT if after is None else f"{after:,} runs" if isinstance(after, int) else after
