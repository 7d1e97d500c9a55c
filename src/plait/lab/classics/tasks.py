"""The table of tasks by model: a row for each task, a column for each model, in each cell the mark and the steps."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from plait.lab.classics.tables import ABSENT, ClassicTable, missing_notes
from plait.lab.comparison import ComparisonData, Contender
from plait.lab.grid import ELLIPSIS, TableColumn, clean_line
from plait.lab.results import CellResult

LONGEST = 48
"""The length at which a question is cut."""


class TaskTable(Struct, frozen=True):
    """The table. `tasks` are ids and questions. `cells` has the results of each task in each column."""

    columns: tuple[Contender, ...]
    tasks: tuple[tuple[str, str], ...]
    cells: tuple[tuple[tuple[CellResult, ...], ...], ...]
    notes: tuple[str, ...] = ()

    def draw(self, *, why: bool = False) -> ClassicTable:
        """Return the table and, with `why`, what was wrong below it."""
        heads = self._heads()
        columns = [TableColumn("task", (*(clean_line(id) for id, _ in self.tasks), "done"), left=True)]
        if any(id != question for id, question in self.tasks):
            columns.append(TableColumn("what", (*(_cut(asked) for _, asked in self.tasks), ""), leave=1, left=True))
        for at, head in enumerate(heads):
            runs = [run for row in self.cells for run in row[at]]
            done = f"{sum(run.grade.success for run in runs):,} of {len(runs):,}" if runs else ABSENT
            marks = (", ".join(f"{clean_line(run.grade.mark)} {run.steps}" for run in row[at]) for row in self.cells)
            columns.append(TableColumn(head, (*(cell or ABSENT for cell in marks), done), left=True))
        notes = ["A cell: how it was done, and in how many steps.", *self.notes]
        if why:
            notes += [
                f"{clean_line(task[0])}, {head}: {clean_line(run.grade.mark)}: {clean_line(run.grade.why)}"
                for task, row in zip(self.tasks, self.cells, strict=True)
                for head, cell in zip(heads, row, strict=True)
                for run in cell
                if run.grade.why
            ]
        return ClassicTable(tuple(columns), tuple(notes))

    def json(self) -> dict[str, Any]:
        """Return a row for each task, its cells by column."""
        return {
            "columns": [{"loop": each.loop, "models": each.models} for each in self.columns],
            "rows": [
                {"task": task, "question": question, "cells": [[_run_json(run) for run in cell] for cell in row]}
                for (task, question), row in zip(self.tasks, self.cells, strict=True)
            ],
        }

    def _heads(self) -> list[str]:
        """Name the columns by models, by loops, or by both: whatever is unique."""
        for names in ([each.who for each in self.columns], [each.loop for each in self.columns]):
            if len(set(names)) == len(names):
                return list(map(clean_line, names))
        return [clean_line(each.key) for each in self.columns]


def make_task_table(comparison: ComparisonData) -> TaskTable:
    """Make the table of a comparison's tasks; the rows of the comparison are its columns."""
    found: dict[tuple[str, str], list[CellResult]] = {}
    for result in comparison.results:
        found.setdefault((result.task, result.variant), []).append(result)
    cells = tuple(
        tuple(tuple(found.get((task.id, each.key), ())) for each in comparison.contenders)
        for task in comparison.suite.tasks
    )
    tasks = tuple((task.id, task.question) for task in comparison.suite.tasks)
    return TaskTable(comparison.contenders, tasks, cells, missing_notes(comparison))


def _run_json(run: CellResult) -> dict[str, Any]:
    grade = run.grade
    return {"mark": grade.mark, "steps": run.steps, "run": run.run, "success": grade.success, "why": grade.why}


def _cut(question: str) -> str:
    text = clean_line(question)
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + ELLIPSIS
