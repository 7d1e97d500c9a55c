"""What is asked for a table: a suite of one question, and the models of each phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from plait import loops
from plait.core import Strategy
from plait.core.errors import UsageError
from plait.lab.base import Grade, Suite, Task
from plait.lab.comparison import Comparison
from plait.lab.result import Result
from plait.lab.variants import AnyModel
from plait.runtime.run import Run

M = TypeVar("M", bound=AnyModel)

UNJUDGED = "not judged"
"""The mark of a run whose question has no right answer to compare with."""
_GRADER = f"python:{__name__}:unjudged"


def asked(question: str, tools: Iterable[str] = ()) -> Suite:
    """A question of one's own as a suite. Nobody knows the right answer, so its runs are not judged."""
    if not question.strip():
        raise UsageError("The question is empty.", hint="Write what is to be asked.")
    task = Task(id="question", question=question, grader=_GRADER, tools=tuple(tools))
    return Suite(word="question", about="a question of one's own", tasks=(task,))


def unjudged(task: Task, run: Run) -> Grade:
    """The grade of a run that nobody judges: no success, and the mark says why."""
    return Grade(False, 0.0, UNJUDGED, "the question has no right answer to compare with")


def judged(comparison: Comparison, results: Iterable[Result]) -> list[Result]:
    """Those of the results whose tasks have something to be judged by."""
    suite = comparison.suite
    without = {task.id for task in suite.tasks if suite.grader_of(task) == _GRADER}
    return [result for result in results if result.task not in without]


def product_of(loop: Strategy | str, models: Sequence[M], phases: Mapping[str, Sequence[M]]) -> dict[str, Sequence[M]]:
    """The models of each phase of a loop: its own where `phases` has some, else each of `models`.

    Raises `UsageError` for a phase that the loop does not have.
    """
    made = loops.loop_from(loop) if isinstance(loop, str) else loop
    for phase in phases:
        if phase not in made.phases:
            raise UsageError(f"The loop {made.name} has no phase '{phase}'.", hint=f"It has: {', '.join(made.phases)}.")
    return {phase: phases.get(phase, models) for phase in made.phases}
