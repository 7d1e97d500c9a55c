"""The table of two loops on the same tasks: calls and tokens side by side, a row for each task and a total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from plait.core.errors import ConfigError
from plait.lab.classics.tables import ABSENT, ClassicTable, judged_results, missing_notes
from plait.lab.comparison import ComparisonData, Contender, group_by_task
from plait.lab.grid import TableColumn, clean_line
from plait.lab.results import CellResult


class LoopTotals(Struct, frozen=True):
    """The spending of a loop on a task over all its runs: `right` of `runs` are right (None: not judged).

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
    """The table of two loops with the same models. `in_all` sums the tasks that both loops have finished."""

    loops: tuple[str, str]
    who: str
    rows: tuple[TaskTotals, ...]
    in_all: TaskTotals
    notes: tuple[str, ...] = ()

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

    Raises `ConfigError` if the comparison does not have both with the same models.
    """
    if len(loops) != 2:
        raise ConfigError(f"{len(loops)} loops are named.", hint="Name two: --loops react,rewoo.")
    first, second = ([each for each in comparison.contenders if each.loop == loop] for loop in loops)
    made = [
        _make_table(comparison, one, other)
        for one in first
        for other in second
        if one.who == other.who and one.key != other.key
    ]
    if not made:
        raise ConfigError(
            f"{loops[0]} and {loops[1]} are not both in {comparison.name} with the same models.",
            hint="plait compare SUITE --loops react,rewoo compares them.",
        )
    return tuple(made)


def _make_table(comparison: ComparisonData, one: Contender, other: Contender) -> LoopTable:
    by_task = [group_by_task(comparison.of(each)) for each in (one, other)]
    rows, both = [], []
    for task in comparison.suite.tasks:
        # A task with a missing run counts for neither loop: the sums of both are about the same runs.
        results = [each.get(task.id, []) for each in by_task]
        finished = [len(each) >= comparison.repeat for each in results]
        totals = [_totals(comparison, each) if done else None for each, done in zip(results, finished, strict=True)]
        rows.append(TaskTotals(task.id, *totals))
        both += [results] if all(finished) else []
    in_all = TaskTotals("in all", *(_totals(comparison, [each for task in both for each in task[at]]) for at in (0, 1)))
    return LoopTable((one.loop, other.loop), one.who, tuple(rows), in_all, missing_notes(comparison))


def _totals(comparison: ComparisonData, results: Sequence[CellResult]) -> LoopTotals:
    graded = judged_results(comparison, results)
    return LoopTotals(
        tuple(result.run for result in results),
        sum(result.grade.success for result in graded) if graded else None,
        sum(result.calls for result in results),
        sum(result.usage.tokens for result in results),
        any(result.usage.estimated for result in results),
        any(result.fell_back for result in results),
    )


def _show_right(side: LoopTotals | None) -> str:
    if side is None or side.right is None:
        return ABSENT
    if len(side.runs) == 1:
        return "yes" if side.right else "no"
    return f"{side.right:,} of {len(side.runs):,}"


def _show_tokens(side: LoopTotals | None) -> str:
    return ABSENT if side is None else f"{'~' * side.estimated}{side.tokens:,}{'*' * side.fell_back}"
