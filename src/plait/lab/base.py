"""What the lab is about: tasks, suites of them, and grades. Values; they know nothing of how they are run."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from plait.core.errors import UsageError
from plait.runtime.run import Run


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task: what is asked, and what is needed to judge what came.

    `answer` is the right one, any JSON value; a list where several are right. `grader` is a word (see
    `graders/`), "" for the suite's. `tools` are words of tools it has beside the suite's; `now` is the time that
    code is told, in seconds since 1970. `about` is what the table can be parted by, such as {"steps": 2}.
    """

    id: str
    question: str
    answer: Any = None
    grader: str = ""
    tools: tuple[str, ...] = ()
    split: str = ""
    now: float | None = None
    about: dict[str, Any] = {}


class Suite(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks with the tools and the grader that all of them have. `word` is what it is loaded by.

    `show_tools`: so many of the tools are shown to a model, the others it searches (as `Agent.show_tools`; None: all).
    """

    word: str
    about: str
    tasks: tuple[Task, ...]
    grader: str = "exact"
    tools: tuple[str, ...] = ()
    show_tools: int | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for task in self.tasks:
            if task.id in seen:
                raise UsageError(f"Two tasks of {self.word} have the id {task.id!r}.", hint="Give each its own.")
            seen.add(task.id)

    def first(self, limit: int | None) -> Suite:
        """The same with at most so many tasks."""
        return self if limit is None else structs.replace(self, tasks=self.tasks[:limit])

    def grader_of(self, task: Task) -> str:
        """The word of the grader that judges a task."""
        return task.grader or self.grader

    def tools_of(self, task: Task) -> tuple[str, ...]:
        """The words of the tools that a task has."""
        return (*self.tools, *task.tools)


class Grade(Struct, frozen=True, omit_defaults=True):
    """How well a run did its task.

    `score` is from 0 to 1 where a grader knows more than right and wrong (F1). `mark` is one word: "right" and
    "wrong", or what the grader says ("done", "flaw", "not done"); `why` says what is wrong. `measures` are further
    numbers, such as {"em": 0.0, "f1": 0.5}. `cost_usd` is what grading cost (None: its price is not known) and `run`
    the recorded run of the model that judged.
    """

    success: bool
    score: float
    mark: str
    why: str = ""
    measures: dict[str, float] = {}
    cost_usd: float | None = 0.0
    run: str = ""


Grader: TypeAlias = Callable[[Task, Run], Awaitable[Grade]]
"""Judges an ended run. Raises `ModelError` when a model that judges can't be asked: then there is no grade yet."""


def digest(value: Any) -> str:
    """16 hexadecimal digits that stand for a JSON value."""
    encoded = msgspec.json.encode(msgspec.to_builtins(value), order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:16]
