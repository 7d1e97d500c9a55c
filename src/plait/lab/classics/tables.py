"""Shared by the classic tables: a table in each output format, reasons of crashed runs, suites of one question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.core.notebook import render_html
from plait.lab.comparison import ComparisonData
from plait.lab.graders import UNJUDGED
from plait.lab.grid import (
    NEVER,
    TableColumn,
    clean_line,
    escape_markdown,
    list_rows,
    render_csv_grid,
    render_grid,
    render_markdown_grid,
    wrap_sentence,
)
from plait.lab.results import CellResult
from plait.lab.tasks import Suite, SuiteTask

ABSENT = "-"
WIDTH = 100
"""The widest line of a table in text."""
PUBLISHED, OWN = "published", "own"
ESTIMATED = "~: tokens estimated from the length of the text."


class ClassicColumn(Struct, frozen=True):
    """A column: its head, and how it shows a row. `csv_only`: only the comma-separated values have it.

    `leave`, `left` and `wrap` are those of a `TableColumn`.
    """

    head: str
    show: Callable[[dict[str, Any]], str]
    leave: int = NEVER
    left: bool = False
    wrap: bool = False
    csv_only: bool = False


class ClassicTable(Struct, frozen=True):
    """Rows with every digit, as `--json` prints them, and the columns that show them.

    `notes` are lines below the table, `title` a line above ("": none). A row with `crash` shows it instead of numbers.
    """

    rows: tuple[dict[str, Any], ...]
    columns: tuple[ClassicColumn, ...]
    notes: tuple[str, ...] = ()
    title: str = ""

    def text(self, width: int | None = WIDTH) -> str:
        """Render it for a terminal of some width; None: no limit."""
        table, left_out = render_grid(self._draw(), width, self._reasons)
        notes = [*self.notes, *([f"No room for: {', '.join(left_out)}."] if left_out else [])]
        parts = [wrap_sentence(self.title, width), table, "\n".join(wrap_sentence(note, width) for note in notes)]
        return "\n\n".join(filter(None, parts))

    def markdown(self) -> str:
        notes = "\n".join(f"- {escape_markdown(note)}" for note in self.notes)
        title = f"**{escape_markdown(self.title)}**" if self.title else ""
        return "\n\n".join(filter(None, (title, render_markdown_grid(self._draw(), self._reasons), notes)))

    def csv(self) -> str:
        """Render the rows as comma-separated values. What is absent is empty; notes are left out."""
        return render_csv_grid(self._draw(csv=True), self._reasons)

    def html(self) -> str:
        """Render it as a part of a page."""
        heads, *rows = list_rows(self._draw(), self._reasons)
        return render_html(self.title, self.notes, heads, rows)

    @property
    def _reasons(self) -> dict[int, str]:
        return {at: row["crash"] for at, row in enumerate(self.rows) if row.get("crash")}

    def _draw(self, *, csv: bool = False) -> list[TableColumn]:
        """Return the columns as text. A row with `crash` has no numbers, so that they take no room."""
        drawn = []
        for column in self.columns:
            if csv or not column.csv_only:
                cells = ["" if row.get("crash") and not column.left else column.show(row) for row in self.rows]
                texts = tuple("" if csv and cell == ABSENT else clean_line(cell) for cell in cells)
                drawn.append(TableColumn(clean_line(column.head), texts, column.leave, column.left, column.wrap))
        return drawn


def show_value(key: str, form: str = "") -> Callable[[dict[str, Any]], str]:
    """Return a function that shows a value of a row: text as it is, a number in a format, "-" for None."""

    def show(row: dict[str, Any]) -> str:
        value = row[key]
        return ABSENT if value is None else value if isinstance(value, str) else format(Decimal(str(value)), form)

    return show


def missing_notes(comparison: ComparisonData) -> tuple[str, ...]:
    """Return why cells are not finished."""
    return (f"Not finished: {clean_line(comparison.unfinished).rstrip('.')}.",) if comparison.unfinished else ()


def crash_reason(comparison: ComparisonData, variant: str, task: str | None = None) -> str:
    """Return why runs of a row crashed, of all tasks or of one; "" if none did."""
    crashed = [(each.variant, each.task, each.run, each.reason or "") for each in crashed_results(comparison)]
    crashed += [(each.variant, each.task, each.run, each.reason) for each in comparison.not_measured]
    found = [(run, why) for row, name, run, why in crashed if row == variant and task in (None, name)]
    if not found:
        return ""
    count = comparison.repeat * (len(comparison.suite.tasks) if task is None else 1)
    how_many = f"{len(found):,} of {count:,} runs " if count > 1 else ""
    return f"{how_many}crashed: {clean_line(found[0][1]).rstrip('.')}. See run {found[0][0]}."


def crashed_results(comparison: ComparisonData) -> list[CellResult]:
    return [result for result in comparison.results if result.status == "crashed"]


def question_suite(question: str, tools: Iterable[str] = ()) -> Suite:
    """Return a user's question as a suite. Its runs are not judged, because the right answer is unknown."""
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Write what is to be asked.")
    task = SuiteTask(id="question", question=question, grader=UNJUDGED, tools=tuple(tools))
    return Suite(word="question", about="a question of one's own", tasks=(task,))


def judged_results(comparison: ComparisonData, results: Sequence[CellResult]) -> list[CellResult]:
    """Return the results whose tasks have a right answer."""
    suite = comparison.suite
    unjudged = {task.id for task in suite.tasks if suite.grader_of(task) == UNJUDGED}
    return [result for result in results if result.task not in unjudged]
