"""What a grade is, and what a grader is given."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Mark: TypeAlias = Literal["done", "flaw", "not done"]

SHOWN = 5
"""Reasons that a grade's text names."""


class WorldGrade(Struct, frozen=True):
    """How well a task was done, and the reasons why it is no better: none if it is done."""

    mark: Mark
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        mark = {"flaw": "done with a flaw"}.get(self.mark, self.mark)
        shown = "; ".join(self.why[:SHOWN]) + (f"; and {len(self.why) - SHOWN} more" if len(self.why) > SHOWN else "")
        return f"{mark}: {shown}" if shown else mark


class RunEvidence(Struct, frozen=True):
    """What a grader knows of a run beside the world's state.

    The answer, what code printed, values that a check of the record flagged as invented, and the date on the clock that
    the code could read, if that is not the world's.
    """

    answer: Any = None
    printed: str = ""
    flagged: tuple[str, ...] = ()
    clock: date | None = None


class Findings:
    """The problems of a message. With `lacks` the task is not done, with `flaws` it is done with a flaw."""

    def __init__(self) -> None:
        self.lacks: list[str] = []
        self.flaws: list[str] = []

    def grade(self) -> WorldGrade:
        """Returns the grade that follows."""
        mark: Mark = "not done" if self.lacks else "flaw" if self.flaws else "done"
        return WorldGrade(mark, tuple(dict.fromkeys([*self.lacks, *self.flaws])))
