"""The values of the lab: tasks, suites of tasks, and grades."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from plait.core.errors import ConfigError
from plait.runtime.run import Run


class SuiteTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task: the question, and what a grader needs to judge the answer.

    `answer` is any JSON value; a list holds several right answers. `grader` is a grader's word (see `graders`), "" for
    the suite's. `tools` are words of tools in addition to the suite's. `now` is the time that code sees, in seconds
    since 1970. `about` has fields by which the table can be split, such as {"steps": 2}.
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
    """Tasks with their shared tools and grader. `word` loads the suite again.

    `max_tools` limits how many tools a model is shown, as `Limits.tools` does; None shows all.
    """

    word: str
    about: str
    tasks: tuple[SuiteTask, ...]
    grader: str = "exact"
    tools: tuple[str, ...] = ()
    max_tools: int | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for task in self.tasks:
            if task.id in seen:
                raise ConfigError(f"Two tasks of {self.word} have the id {task.id!r}.", hint="Give each its own.")
            seen.add(task.id)

    def first(self, limit: int | None) -> Suite:
        """Return the suite with at most `limit` tasks."""
        return self if limit is None else structs.replace(self, tasks=self.tasks[:limit])

    def firsts(self) -> dict[str, str]:
        """Map each task to the first one that asks the same. Their runs are repeats of one task, no more evidence."""
        first: dict[Any, str] = {}
        return {each.id: first.setdefault((each.question, each.tools, each.now), each.id) for each in self.tasks}

    def grader_of(self, task: SuiteTask) -> str:
        return task.grader or self.grader

    def tools_of(self, task: SuiteTask) -> tuple[str, ...]:
        return (*self.tools, *task.tools)


class Grade(Struct, frozen=True, omit_defaults=True):
    """The result of grading a run.

    `score` is from 0 to 1 for graders with partial success (F1). `mark` is one word: "right", "wrong", or the grader's
    own ("done", "flaw", "not done"). `why` says what is wrong. `measures` are more numbers, such as {"em": 0.0, "f1":
    0.5}. `cost_usd` is the cost of grading (None: unknown price), `run` the recorded run of a judge.
    """

    success: bool
    score: float
    mark: str
    why: str = ""
    measures: dict[str, float] = {}
    cost_usd: float | None = 0.0
    run: str = ""


Grader: TypeAlias = Callable[[SuiteTask, Run], Awaitable[Grade]]
"""Judges an ended run. Raises `ModelError` if a judging model cannot be asked: then there is no grade yet."""


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits that identify a JSON value."""
    encoded = msgspec.json.encode(msgspec.to_builtins(value), order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:16]
