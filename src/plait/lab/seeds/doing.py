"""How tasks were done, by model: a row a task, a column a model, in each cell the mark and the number of steps."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from plait.lab.comparison import Comparison, Contender
from plait.lab.grid import ELLIPSIS, Column, line
from plait.lab.seeds.drawn import Drawn, missing

ABSENT, LONGEST = "-", 48


class Did(Struct, frozen=True):
    """A run of a task: its mark ("done", "flaw", "not done"; "crashed"), the reasons, and the steps it took."""

    mark: str
    steps: int
    run: str
    success: bool
    why: str = ""


class Doing(Struct, frozen=True):
    """The table. `cells` has for each task, and in it for each column, the runs: one unless they were repeated."""

    columns: tuple[Contender, ...]
    tasks: tuple[tuple[str, str], ...]
    """Id and question."""
    cells: tuple[tuple[tuple[Did, ...], ...], ...]
    notes: tuple[str, ...] = ()

    def drawn(self, *, why: bool = False) -> Drawn:
        """The table and, with `why`, what was wrong below it."""
        heads = _heads(self.columns)
        left = [Column("task", (*(line(id) for id, _ in self.tasks), "done"), left=True)]
        if any(id != question for id, question in self.tasks):
            left.append(Column("what", (*(_short(asked) for _, asked in self.tasks), ""), leave=1, left=True))
        columns = [
            Column(head, (*(_cell(row[at]) for row in self.cells), self._done(at)), left=True)
            for at, head in enumerate(heads)
        ]
        notes = ["A cell: how it was done, and in how many steps.", *self.notes]
        if why:
            notes += [
                f"{line(task[0])}, {head}: {line(did.mark)}: {line(did.why)}"
                for task, row in zip(self.tasks, self.cells, strict=True)
                for head, cell in zip(heads, row, strict=True)
                for did in cell
                if did.why
            ]
        return Drawn((*left, *columns), tuple(notes))

    def json(self) -> dict[str, Any]:
        """A row a task, its cells by column."""
        return {
            "columns": [{"strategy": each.strategy, "models": each.models} for each in self.columns],
            "rows": [
                {
                    "task": task,
                    "question": question,
                    "cells": [
                        [{name: getattr(did, name) for name in did.__struct_fields__} for did in cell] for cell in row
                    ],
                }
                for (task, question), row in zip(self.tasks, self.cells, strict=True)
            ],
        }

    def _done(self, at: int) -> str:
        runs = [did for row in self.cells for did in row[at]]
        return f"{sum(did.success for did in runs):,} of {len(runs):,}" if runs else ABSENT


def doing(comparison: Comparison) -> Doing:
    """How the tasks of a comparison were done by each of its rows, which are columns here."""
    found: dict[tuple[str, str], list[Did]] = {}
    for result in comparison.results:
        grade = result.grade
        did = Did(grade.mark, result.steps, result.run, grade.success, grade.why)
        found.setdefault((result.task, result.variant), []).append(did)
    cells = tuple(
        tuple(tuple(found.get((task.id, each.key), ())) for each in comparison.contenders)
        for task in comparison.suite.tasks
    )
    tasks = tuple((task.id, task.question) for task in comparison.suite.tasks)
    return Doing(comparison.contenders, tasks, cells, missing(comparison))


def _heads(columns: tuple[Contender, ...]) -> list[str]:
    """The models, or the loops, or both: whatever tells the columns apart."""
    if len({each.who for each in columns}) == len(columns):
        return [line(each.who) for each in columns]
    if len({each.strategy for each in columns}) == len(columns):
        return [line(each.strategy) for each in columns]
    return [line(each.key) for each in columns]


def _cell(runs: tuple[Did, ...]) -> str:
    return ", ".join(f"{line(did.mark)} {did.steps}" for did in runs) or ABSENT


def _short(question: str) -> str:
    text = line(question)
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + ELLIPSIS
