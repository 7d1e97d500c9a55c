"""The table of tasks by model: a row for each task, a column for each model, in each cell the mark and the steps.

The published cells of the six tasks stand in columns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from plait.core.text import one_line
from plait.lab.classics import published
from plait.lab.classics.tables import PUBLISHED, crash_reason, missing_notes
from plait.lab.comparison import Comparison, short_names
from plait.lab.grid import ABSENT, ELLIPSIS, ReportTable, make_column, show_value
from plait.lab.results import CellResult

LONGEST = 48
"""The length at which a question is cut."""


def make_task_table(comparison: Comparison, *, why: bool = False) -> ReportTable:
    """Make the table of a comparison's tasks; the rows of the comparison are its columns. The last row counts what is
    done. `why`: the notes say what was wrong in each run; why runs crashed they say always."""
    found: dict[tuple[str, str], list[CellResult]] = {}
    for result in comparison.results:
        found.setdefault((result.task, result.variant), []).append(result)
    heads = list(map(one_line, short_names(comparison.contenders, ("who", "loop")).values()))
    tasks = comparison.suite.tasks
    rows: list[dict[str, Any]] = []
    for task in tasks:
        own = {
            head: [
                {"mark": run.grade.mark, "steps": run.steps, "run": run.run, "success": run.grade.success}
                | {"why": run.grade.why}
                for run in found.get((task.id, each.key), ())
            ]
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
            f"{row['task']}, {head}: {run['mark']}: {one_line(run['why'])}"
            for row in rows
            for head in heads
            for run in row["cells"][head]
            if run["why"]
        ]
    names = list(dict.fromkeys(name for row in rows for name in row["cells"]))
    done = {name: [run for row in rows for run in row["cells"].get(name, ())] for name in names}
    counts = {name: f"{sum(run['success'] for run in runs):,} of {len(runs):,}" for name, runs in done.items() if runs}
    rows.append({"task": "done", "question": "", "cells": counts})
    column = partial(make_column, rows)
    columns = [column("task", show_value("task"), left=True)]
    if any(task.id != task.question for task in tasks):
        columns.append(column("what", lambda row: _cut(row["question"]), leave=1, left=True))
    columns += [column(name, partial(_show_cell, name), left=name in heads, wrap=True) for name in names]
    if len(names) > len(heads):
        notes.append(f"Published: {published.TASKS_SOURCE}.")
    return ReportTable(tuple(rows), tuple(columns), tuple(notes))


def _show_cell(name: str, row: dict[str, Any]) -> str:
    """Return marks and steps, of a crashed run only the mark."""
    cell: Sequence[dict[str, Any]] | str | None = row["cells"].get(name)
    if not cell:
        return ABSENT
    if isinstance(cell, str):
        return cell
    return ", ".join(run["mark"] if run["mark"] == "crashed" else f"{run['mark']} {run['steps']}" for run in cell)


def _cut(question: str) -> str:
    text = one_line(question)
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + ELLIPSIS
