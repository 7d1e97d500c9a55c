"""The table of two loops on the same tasks: calls and tokens side by side, a row for each task, a total, and the
published totals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from plait.core.errors import ConfigError
from plait.lab.classics import published
from plait.lab.classics.tables import ESTIMATED, PUBLISHED, crash_reason, judged_results, missing_notes
from plait.lab.comparison import Comparison, Contender, group_by_task
from plait.lab.grid import ABSENT, ReportTable, TableColumn, make_column, show_value
from plait.lab.results import CellResult


def make_token_tables(comparison: Comparison, loops: Sequence[str] = ("react", "rewoo")) -> tuple[ReportTable, ...]:
    """Make a table for each model that both loops were compared with. `loops` are named as in the comparison.

    A row has each loop's runs, how many are right (None: not judged), calls of models and tokens in and out; None for a
    loop that has not finished the task. `difference` is the first loop's tokens less the second's, `share` the same as
    a share of the first's. The row "in all" sums the tasks that both loops have finished. Raises `ConfigError` if the
    comparison does not have both with the same models.
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


def _make_table(comparison: Comparison, one: Contender, other: Contender) -> ReportTable:
    loops = (one.loop, other.loop)
    by_task = [group_by_task(comparison.of(each)) for each in (one, other)]
    rows, both = [], []
    for task in comparison.suite.tasks:
        # A task with a missing or crashed run counts for neither loop: the sums of both are about the same runs.
        results = [each.get(task.id, []) for each in by_task]
        crashes = [(each.loop, crash_reason(comparison, each.key, task.id)) for each in (one, other)]
        crash = " ".join(f"{loop} {why}" for loop, why in crashes if why)
        finished = [len(each) >= comparison.repeat and not crash for each in results]
        sides = [_totals(comparison, each) if done else None for each, done in zip(results, finished, strict=True)]
        rows.append(_make_row(task.id, loops, sides, crash))
        both += [results] if all(finished) else []
    sums = [_totals(comparison, [each for task in both for each in task[at]]) if both else None for at in (0, 1)]
    tasks, rows = rows, [*rows, _make_row("in all", loops, sums)]
    notes = [f"Difference: tokens of {one.loop} less those of {other.loop}. Share: of those of {one.loop}."]
    notes += missing_notes(comparison)
    totals = [row[loop] for row in tasks for loop in loops]
    if None in totals:
        notes.append("In all: the tasks that both loops have finished.")
    if any(each and each["estimated"] for each in totals):
        notes.append(ESTIMATED)
    if any(each and each["fell_back"] for each in totals):
        notes.append("*: a run went on as another loop.")
    if {loop.partition("(")[0] for loop in loops} == set(published.LOOP_TOKENS):
        theirs = [{**_NOTHING, "tokens": published.LOOP_TOKENS[loop.partition("(")[0]]} for loop in loops]
        rows.append(_make_row(PUBLISHED, loops, theirs))
        notes.append(f"Published: {published.TOKENS_SOURCE}, one question.")
    is_judged = any(each and each["right"] is not None for each in totals)
    columns = _make_columns(rows, loops, one.who, is_judged)
    return ReportTable(tuple(rows), columns, tuple(notes), f"models: {one.who}")


def _make_columns(
    rows: Sequence[dict[str, Any]], loops: Sequence[str], who: str, is_judged: bool
) -> tuple[TableColumn, ...]:
    def show_estimated(row: dict[str, Any]) -> str:
        return "yes" if any(row[loop] and row[loop]["estimated"] for loop in loops) else "no"

    column = partial(make_column, rows)
    columns = [column("task", show_value("task"), left=True)]
    for loop in loops:
        if is_judged:
            columns.append(column(f"{loop} right", partial(_show_right, loop), leave=1))
        columns.append(column(f"{loop} calls", partial(_show_calls, loop), leave=2))
        columns.append(column(f"{loop} tokens", partial(_show_tokens, loop)))
    return (
        *columns,
        column("difference", show_value("difference", ",")),
        column("share", lambda row: ABSENT if row["share"] is None else f"{row['share'] * 100:.1f} %"),
        column("estimated", show_estimated, csv_only=True),
        column("models", lambda _: who, csv_only=True),
    )


_NOTHING: dict[str, Any] = {"runs": [], "right": None, "calls": None, "estimated": False, "fell_back": False}


def _totals(comparison: Comparison, results: Sequence[CellResult]) -> dict[str, Any]:
    graded = judged_results(comparison, results)
    return {
        "runs": [result.run for result in results],
        "right": sum(result.grade.success for result in graded) if graded else None,
        "calls": sum(result.calls for result in results),
        "tokens": sum(result.usage.tokens for result in results),
        "estimated": any(result.usage.estimated for result in results),
        "fell_back": any(result.fell_back for result in results),
    }


def _make_row(
    name: str, loops: Sequence[str], sides: Sequence[dict[str, Any] | None], crash: str = ""
) -> dict[str, Any]:
    first, second = (None if side is None else side["tokens"] for side in sides)
    difference = None if first is None or second is None else first - second
    share = difference / first if difference is not None and first else None
    return {
        "task": name,
        **dict(zip(loops, sides, strict=True)),
        "difference": difference,
        "share": share,
        "crash": crash,
    }


def _show_right(loop: str, row: dict[str, Any]) -> str:
    side = row[loop]
    if side is None or side["right"] is None:
        return ABSENT
    if len(side["runs"]) == 1:
        return "yes" if side["right"] else "no"
    return f"{side['right']:,} of {len(side['runs']):,}"


def _show_calls(loop: str, row: dict[str, Any]) -> str:
    return show_value("calls", ",")(row[loop] or _NOTHING)


def _show_tokens(loop: str, row: dict[str, Any]) -> str:
    side = row[loop]
    return ABSENT if side is None else f"{'~' * side['estimated']}{side['tokens']:,}{'*' * side['fell_back']}"
