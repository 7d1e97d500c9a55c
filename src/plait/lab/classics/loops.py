"""The table of two loops on the same tasks: calls and tokens side by side, a row for each task and a total."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from plait.core.errors import UsageError
from plait.lab.classics.tables import ABSENT, ClassicTable, judged_results, missing_notes
from plait.lab.comparison import ComparisonData, Contender, group_by_task
from plait.lab.grid import TableColumn, clean_line
from plait.lab.results import CellResult


class LoopTotals(Struct, frozen=True):
    """What a loop took for a task, all its runs together: `right` of `runs` are right (None: nobody judged).

    `calls` are those of models, `tokens` input and output. `estimated`: the endpoint reported none. `fell_back`: a run
    continued as another loop.
    """

    runs: tuple[str, ...]
    right: int | None
    calls: int
    tokens: int
    estimated: bool = False
    fell_back: bool = False


class TaskTotals(Struct, frozen=True):
    """A task as both loops did it; None for a loop that has not finished it."""

    task: str
    first: LoopTotals | None
    second: LoopTotals | None

    @property
    def ratio(self) -> float | None:
        """The second's tokens over the first's; None if a side is missing or used none."""
        if self.first is None or self.second is None or not self.first.tokens:
            return None
        return self.second.tokens / self.first.tokens


class LoopTable(Struct, frozen=True):
    """The table of two loops with the same models."""

    loops: tuple[str, str]
    who: str
    rows: tuple[TaskTotals, ...]
    notes: tuple[str, ...] = ()

    @property
    def in_all(self) -> TaskTotals:
        """The sums over the tasks that both loops have finished."""
        both = [(row.first, row.second) for row in self.rows if row.first is not None and row.second is not None]
        return TaskTotals("in all", _sum(first for first, _ in both), _sum(second for _, second in both))

    def draw(self) -> ClassicTable:
        """Return a row for each task, and the sums."""
        rows = (*self.rows, self.in_all)
        columns = [TableColumn("task", tuple(clean_line(row.task) for row in rows), left=True)]
        for at, loop in enumerate(self.loops):
            sides = [row.second if at else row.first for row in rows]
            if any(side and side.right is not None for side in sides):
                columns.append(TableColumn(f"{loop} right", tuple(map(_show_right, sides))))
            columns.append(TableColumn(f"{loop} calls", tuple(ABSENT if s is None else f"{s.calls:,}" for s in sides)))
            columns.append(TableColumn(f"{loop} tokens", tuple(map(_show_tokens, sides))))
        ratios = tuple(ABSENT if row.ratio is None else f"{row.ratio:.2f}" for row in rows)
        columns.append(TableColumn(f"{self.loops[1]} / {self.loops[0]}", ratios))
        finished = [side for row in self.rows for side in (row.first, row.second) if side is not None]
        notes = list(self.notes)
        if len(finished) < 2 * len(self.rows):
            notes.append("In all: the tasks that both loops have finished.")
        if any(side.estimated for side in finished):
            notes.append("~: tokens estimated from the length of the text.")
        if any(side.fell_back for side in finished):
            notes.append("*: a run went on as another loop.")
        return ClassicTable(tuple(columns), tuple(notes), f"models: {clean_line(self.who)}")

    def json(self) -> dict[str, Any]:
        """Return the rows and their sum with every digit."""

        def row_json(row: TaskTotals) -> dict[str, Any]:
            sides = zip(self.loops, msgspec.to_builtins((row.first, row.second)), strict=True)
            return {"task": row.task, **dict(sides), "ratio": row.ratio}

        return {
            "models": self.who,
            "loops": list(self.loops),
            "rows": [row_json(row) for row in self.rows],
            "in_all": row_json(self.in_all),
        }


def make_loop_tables(comparison: ComparisonData, loops: Sequence[str] = ("react", "rewoo")) -> tuple[LoopTable, ...]:
    """Make a table for each model that both loops were compared with. `loops` are named as in the comparison.

    Raises `UsageError` if the comparison does not have both with the same models.
    """
    if len(loops) != 2:
        raise UsageError(f"{len(loops)} loops are named.", hint="Name two: --strategies react,rewoo.")
    first, second = ([each for each in comparison.contenders if each.strategy == loop] for loop in loops)
    made = [
        _make_table(comparison, one, other)
        for one in first
        for other in second
        if one.who == other.who and one.key != other.key
    ]
    if not made:
        raise UsageError(
            f"{loops[0]} and {loops[1]} are not both in {comparison.name} with the same models.",
            hint="plait compare SUITE --strategies react,rewoo compares them.",
        )
    return tuple(made)


def _make_table(comparison: ComparisonData, one: Contender, other: Contender) -> LoopTable:
    first, second = group_by_task(comparison.of(one)), group_by_task(comparison.of(other))
    rows = [
        TaskTotals(task.id, *(_totals(comparison, by_task.get(task.id, ())) for by_task in (first, second)))
        for task in comparison.suite.tasks
    ]
    return LoopTable((one.strategy, other.strategy), one.who, tuple(rows), missing_notes(comparison))


def _totals(comparison: ComparisonData, results: Sequence[CellResult]) -> LoopTotals | None:
    """Return None if a run is missing: the sums of both loops are about the same runs."""
    if len(results) < comparison.repeat:
        return None
    graded = judged_results(comparison, results)
    return LoopTotals(
        tuple(result.run for result in results),
        sum(result.grade.success for result in graded) if graded else None,
        sum(result.calls for result in results),
        sum(result.usage.tokens for result in results),
        any(result.usage.estimated for result in results),
        any(result.fell_back for result in results),
    )


def _sum(sides: Iterable[LoopTotals]) -> LoopTotals:
    sides = tuple(sides)
    right = [side.right for side in sides if side.right is not None]
    return LoopTotals(
        tuple(run for side in sides for run in side.runs),
        sum(right) if right else None,
        sum(side.calls for side in sides),
        sum(side.tokens for side in sides),
        any(side.estimated for side in sides),
        any(side.fell_back for side in sides),
    )


def _show_right(side: LoopTotals | None) -> str:
    if side is None or side.right is None:
        return ABSENT
    if len(side.runs) == 1:
        return "yes" if side.right else "no"
    return f"{side.right:,} of {len(side.runs):,}"


def _show_tokens(side: LoopTotals | None) -> str:
    return ABSENT if side is None else f"{'~' * side.estimated}{side.tokens:,}{'*' * side.fell_back}"
