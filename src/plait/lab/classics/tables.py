"""Shared by the classic tables: a table that is ready to print, and suites of one question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from plait import loops
from plait.core import Loop
from plait.core.errors import ConfigError
from plait.lab.comparison import ComparisonData
from plait.lab.graders import UNJUDGED
from plait.lab.grid import TableColumn, escape_markdown, render_grid, render_markdown_grid, wrap_sentence
from plait.lab.plan import AnyModel
from plait.lab.report import not_measured_notes
from plait.lab.results import CellResult
from plait.lab.tasks import Suite, SuiteTask

M = TypeVar("M", bound=AnyModel)
ABSENT = "-"


class ClassicTable(Struct, frozen=True):
    """Columns with a `title` above ("": none) and `notes` below, a line each."""

    columns: tuple[TableColumn, ...]
    notes: tuple[str, ...] = ()
    title: str = ""

    def text(self, width: int | None = None) -> str:
        """Render it for a terminal of some width; None: no limit."""
        table, left_out = render_grid(self.columns, width)
        notes = [*self.notes, *([f"No room for: {', '.join(left_out)}."] if left_out else [])]
        parts = [self.title, table, "\n".join(wrap_sentence(note, width) for note in notes)]
        return "\n\n".join(filter(None, parts))

    def markdown(self) -> str:
        notes = "\n".join(f"- {escape_markdown(note)}" for note in self.notes)
        title = f"**{escape_markdown(self.title)}**" if self.title else ""
        return "\n\n".join(filter(None, (title, render_markdown_grid(self.columns), notes)))


def missing_notes(comparison: ComparisonData) -> tuple[str, ...]:
    """Return which cells were not measured or not finished, and why."""
    unfinished = (f"Not finished: {comparison.unfinished.rstrip('.')}.",) if comparison.unfinished else ()
    return (*not_measured_notes(comparison), *unfinished)


def question_suite(question: str, tools: Iterable[str] = ()) -> Suite:
    """Return a user's question as a suite. Its runs are not judged, because the right answer is unknown."""
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Write what is to be asked.")
    task = SuiteTask(id="question", question=question, grader=UNJUDGED, tools=tuple(tools))
    return Suite(word="question", about="a question of one's own", tasks=(task,))


def judged_results(comparison: ComparisonData, results: Iterable[CellResult]) -> list[CellResult]:
    """Return the results whose tasks have a right answer."""
    suite = comparison.suite
    unjudged = {task.id for task in suite.tasks if suite.grader_of(task) == UNJUDGED}
    return [result for result in results if result.task not in unjudged]


def models_by_phase(loop: Loop | str, models: Sequence[M], phases: Mapping[str, Sequence[M]]) -> dict[str, Sequence[M]]:
    """Return the models of each phase of a loop: those in `phases`, else `models`.

    Raises `ConfigError` for a phase that the loop does not have.
    """
    made = loops.loop_from(loop) if isinstance(loop, str) else loop
    for phase in phases:
        if phase not in made.phases:
            raise ConfigError(
                f"The loop {made.name} has no phase '{phase}'.", hint=f"It has: {', '.join(made.phases)}."
            )
    return {phase: phases.get(phase, models) for phase in made.phases}
