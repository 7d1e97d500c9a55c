"""Shared by the classic tables: reasons of crashed runs, notes, suites of one question."""

from __future__ import annotations

from collections.abc import Sequence

from plait.core.errors import ConfigError
from plait.core.text import one_line
from plait.lab.comparison import Comparison
from plait.lab.graders import UNJUDGED
from plait.lab.results import CellResult
from plait.lab.tasks import Suite, SuiteTask

PUBLISHED, OWN = "published", "own"
ESTIMATED = "~: tokens estimated from the length of the text."


def missing_notes(comparison: Comparison) -> tuple[str, ...]:
    """Return why cells are not finished."""
    return (f"Not finished: {one_line(comparison.unfinished).rstrip('.')}.",) if comparison.unfinished else ()


def crash_reason(comparison: Comparison, variant: str, task: str | None = None) -> str:
    """Return why runs of a row crashed, of all tasks or of one; "" if none did."""
    crashed = [(each.variant, each.task, each.run, each.reason or "") for each in crashed_results(comparison)]
    crashed += [(each.variant, each.task, each.run, each.reason) for each in comparison.not_measured]
    found = [(run, why) for row, name, run, why in crashed if row == variant and task in (None, name)]
    if not found:
        return ""
    count = comparison.repeat * (len(comparison.suite.tasks) if task is None else 1)
    how_many = f"{len(found):,} of {count:,} runs " if count > 1 else ""
    return f"{how_many}crashed: {one_line(found[0][1]).rstrip('.')}. See run {found[0][0]}."


def crashed_results(comparison: Comparison) -> list[CellResult]:
    return [result for result in comparison.results if result.status == "crashed"]


def question_suite(question: str) -> Suite:
    """Return a user's question as a suite. Its runs are not judged, because the right answer is unknown."""
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Write what is to be asked.")
    task = SuiteTask(id="question", question=question, grader=UNJUDGED)
    return Suite(word="question", about="a question of one's own", tasks=(task,))


def judged_results(comparison: Comparison, results: Sequence[CellResult]) -> list[CellResult]:
    """Return the results whose tasks have a right answer."""
    suite = comparison.suite
    unjudged = {task.id for task in suite.tasks if suite.grader_of(task) == UNJUDGED}
    return [result for result in results if result.task not in unjudged]
