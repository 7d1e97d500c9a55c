"""The table of time and money by phase: a row for each combination of phase models.

Sums are exact (whole microseconds, whole billionths of a dollar), and the means of a row add up as they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from msgspec import Struct, structs

from plait.core.errors import ConfigError
from plait.lab.classics.tables import ABSENT, ClassicTable, judged_results, missing_notes
from plait.lab.comparison import ComparisonData
from plait.lab.grid import TableColumn, clean_line, merge_in_order
from plait.lab.report import UNKNOWN_PRICE
from plait.lab.results import CellResult
from plait.runtime.costs import UNKNOWN_COST, PhaseSpending, in_all, merge_spending, round_spending, runs_until

MILLISECOND, CENT_MILLI = 1_000, 10_000
"""The units shown: seconds to three decimals (in microseconds), USD to five (in billionths)."""

Place: TypeAlias = tuple[str, bool]
"""A phase, and whether it means tool calls or code."""


class PhaseRow(Struct, frozen=True):
    """A row. `spent` are sums over `runs` runs, of which `judged` were judged and `right` were right.

    `paid_back_after` is a number of runs, "never", "?" (a price is unknown), None if nothing is compared.
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
        """The mean cost of a run in billionths of a dollar; None if a price is unknown."""
        nanos = in_all(self.spent).nanos
        return None if nanos is None or not self.runs else Fraction(nanos, self.runs)

    @property
    def phases(self) -> dict[Place, PhaseSpending]:
        """The spending of each phase with any model, in the order of first use."""
        parts: dict[Place, list[PhaseSpending]] = {}
        for part in self.spent:
            parts.setdefault((part.phase, part.is_work), []).append(part)
        return {place: in_all(each) for place, each in parts.items()}

    def json(self) -> dict[str, Any]:
        """Return the row with every digit: sums over its runs."""
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


class PhaseTable(Struct, frozen=True):
    """The table, its rows in the order of the comparison."""

    rows: tuple[PhaseRow, ...]
    hardware: float | None = None
    notes: tuple[str, ...] = ()

    def draw(self) -> ClassicTable:
        """Return the means of a run: seconds and USD by phase and in all, as `plait costs --mean` shows them."""
        places = merge_in_order(row.phases for row in self.rows)
        cells = [_row_cells(row, places) for row in self.rows]
        columns = [
            TableColumn("models", tuple(clean_line(row.who) for row in self.rows), left=True),
            TableColumn("runs", tuple(f"{row.runs:,}" for row in self.rows)),
        ]
        if any(row.judged for row in self.rows):
            right = (f"{row.right:,} of {row.judged:,}" if row.judged else ABSENT for row in self.rows)
            columns.append(TableColumn("right", tuple(right)))
        heads = [f"{clean_line(phase)} {unit}" for phase, work in places for unit in (("s",) if work else ("s", "USD"))]
        for at, head in enumerate((*heads, "in all s", "in all USD")):
            columns.append(TableColumn(head, tuple(row[at] for row in cells)))
        if self.hardware is not None:
            after = (row.paid_back_after for row in self.rows)
            paid = (ABSENT if n is None else f"{n:,} runs" if isinstance(n, int) else n for n in after)
            columns.append(TableColumn("paid back after", tuple(paid)))
        unknown = any(row.runs and row.nanos is None for row in self.rows)
        return ClassicTable(tuple(columns), (*self.notes, *([UNKNOWN_PRICE] if unknown else [])))

    def json(self) -> dict[str, Any]:
        """Return the rows."""
        return {"rows": [row.json() for row in self.rows]}


def make_phase_table(comparison: ComparisonData, *, loop: str = "phased", hardware: float | None = None) -> PhaseTable:
    """Make the table of a loop in a comparison.

    `hardware`: also compute the break-even: after how many runs hardware at this price in USD is cheaper than the first
    row. Raises `ConfigError` if the loop is not in the comparison, or if there is no second row to compare.
    """
    contenders = [each for each in comparison.contenders if each.loop.partition("(")[0] == loop]
    if not contenders:
        raise ConfigError(f"The loop {loop} is not in {comparison.name}.", hint="Compare it first.")
    if hardware is not None and len(contenders) < 2:
        raise ConfigError(
            "Hardware is compared with the first row, and there is only one row.",
            hint="Name a model without the hardware first, then one with it: --models openai:NAME,local.",
        )
    rows: list[PhaseRow] = []
    every: list[CellResult] = []
    for each in contenders:
        results = comparison.of(each)
        every += results
        graded = judged_results(comparison, results)
        row = PhaseRow(
            who=each.who if each.loop == loop else f"{each.loop} {each.who}",
            models=each.models,
            runs=len(results),
            right=sum(result.grade.success for result in graded),
            judged=len(graded),
            spent=merge_spending(part for result in results for part in result.phases),
        )
        if hardware is not None and rows and row.runs and rows[0].runs:
            row = structs.replace(row, paid_back_after=_break_even(hardware, rows[0].nanos, row.nanos))
        rows.append(row)
    notes = list(missing_notes(comparison))
    if len({row.runs for row in rows}) > 1:
        notes.append("The rows are not about the same tasks: some runs are not finished.")
    if crashed := sum(result.status == "crashed" for result in every):
        notes.append(f"{crashed:,} of {len(every):,} runs crashed; the means count what they took.")
    return PhaseTable(tuple(rows), hardware, tuple(notes))


def _break_even(hardware: float, before: Fraction | None, after: Fraction | None) -> int | str:
    if before is None or after is None:
        return UNKNOWN_COST
    runs = runs_until(hardware, before - after)
    return "never" if runs is None else runs


def _row_cells(row: PhaseRow, places: Sequence[Place]) -> list[str]:
    if not row.runs:
        return [ABSENT] * (sum(1 if work else 2 for _, work in places) + 2)
    phases = row.phases
    seconds, all_seconds = round_spending([Fraction(each.micros, row.runs) for each in phases.values()], MILLISECOND, 3)
    nanos = [None if each.nanos is None else Fraction(each.nanos, row.runs) for each in phases.values()]
    usd, all_usd = round_spending(nanos, CENT_MILLI, 5)
    by_place = dict(zip(phases, zip(seconds, usd, strict=True), strict=True))
    cells: list[str] = []
    for place in places:
        cells += by_place.get(place, (ABSENT, ABSENT))[: 1 if place[1] else 2]
    return [*cells, all_seconds, all_usd]
