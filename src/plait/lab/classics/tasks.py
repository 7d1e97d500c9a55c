"""The table of tasks by model: a row for each task, a column for each model, in each cell the mark and the steps.

The published cells of the six tasks stand in columns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait.lab.classics import published
from plait.lab.classics.tables import PUBLISHED, crash_reason, missing_notes
from plait.lab.comparison import ComparisonData, short_names
from plait.lab.grid import ABSENT, ELLIPSIS, ReportColumn, ReportTable, clean_line, show_value
from plait.lab.results import CellResult

LONGEST = 48
"""The length at which a question is cut."""


def make_task_table(comparison: ComparisonData, *, why: bool = False) -> ReportTable:
    """Make the table of a comparison's tasks; the rows of the comparison are its columns.

    The last row counts what is done. `why`: the notes say what was wrong in each run; why runs crashed they say always.
    """
    found: dict[tuple[str, str], list[CellResult]] = {}
    for result in comparison.results:
        found.setdefault((result.task, result.variant), []).append(result)
    heads = list(map(clean_line, short_names(comparison.contenders, ("who", "loop")).values()))
    tasks = comparison.suite.tasks
    rows: list[dict[str, Any]] = []
    for task in tasks:
        own = {
            head: [_run_json(run) for run in found.get((task.id, each.key), ())]
            for head, each in zip(heads, comparison.contenders, strict=True)
        }
        theirs = zip(published.TASK_MODELS, published.TASK_CELLS.get(task.id, ()), strict=False)
        marks = {
            f"{PUBLISHED} {model}": [{"mark": mark, "steps": steps, "success": mark == "done"}]
            for model, (mark, steps) in theirs
        }
        rows.append({"task": task.id, "question": task.question, "cells": {**own, **marks}})
    notes = ["A cell: how it was done, and in how many steps.", *missing_notes(comparison)]
    for head, each in zip(heads, comparison.contenders, strict=True):
        notes += [f"{head}: {crash}"] if (crash := crash_reason(comparison, each.key)) else []
    if why:
        notes += [
            f"{row['task']}, {head}: {run['mark']}: {clean_line(run['why'])}"
            for row in rows
            for head in heads
            for run in row["cells"][head]
            if run["why"]
        ]
    columns = [ReportColumn("task", show_value("task"), left=True)]
    if any(task.id != task.question for task in tasks):
        columns.append(ReportColumn("what", lambda row: _cut(row["question"]), leave=1, left=True))
    names = list(dict.fromkeys(name for row in rows for name in row["cells"]))
    columns += [_cell_column(name, left=name in heads) for name in names]
    if len(names) > len(heads):
        notes.append(f"Published: {published.TASKS_SOURCE}.")
    done = {name: [run for row in rows for run in row["cells"].get(name, ())] for name in names}
    counts = {name: f"{sum(run['success'] for run in runs):,} of {len(runs):,}" for name, runs in done.items() if runs}
    return ReportTable((*rows, {"task": "done", "question": "", "cells": counts}), tuple(columns), tuple(notes))


def _run_json(run: CellResult) -> dict[str, Any]:
    grade = run.grade
    return {"mark": grade.mark, "steps": run.steps, "run": run.run, "success": grade.success, "why": grade.why}


def _cell_column(name: str, *, left: bool) -> ReportColumn:
    return ReportColumn(name, lambda row: _show_cell(row["cells"].get(name)), left=left, wrap=True)


def _show_cell(cell: Sequence[dict[str, Any]] | str | None) -> str:
    """Return marks and steps, of a crashed run only the mark."""
    if not cell:
        return ABSENT
    if isinstance(cell, str):
        return cell
    return ", ".join(run["mark"] if run["mark"] == "crashed" else f"{run['mark']} {run['steps']}" for run in cell)


def _cut(question: str) -> str:
    text = clean_line(question)
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + ELLIPSIS
