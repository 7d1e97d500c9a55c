"""Outcome by task and contender: what each cell shows, tells and opens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from plait.lab.comparison import Comparison
from plait.lab.page.records import LEFT_OUT
from plait.lab.page.texts import LONG, brief, plain, visible
from plait.lab.result import Result

OUTCOMES = {
    "right": ("✓", "right"),
    "wrong": ("✗", "wrong"),
    "stopped": ("S", "stopped at a limit"),
    "failed": ("F", "failed: gave up or lost the format"),
    "crashed": ("C", "crashed"),
    "cancelled": ("–", "cancelled"),
    "waiting": ("W", "waits for a person"),
    "missing": ("·", "not finished"),
}
"""Each outcome's sign and words; a colour goes with it, never alone."""


class Cell(Struct, frozen=True):
    """One button: a task, a contender, and their repeats' outcomes. `look` is the CSS class."""

    task: int
    contender: int
    outcomes: tuple[str, ...]
    look: str
    text: str
    label: str


class Line(Struct, frozen=True):
    """One row: a task and its cells."""

    id: str
    question: str
    cells: tuple[Cell, ...]


def outcome(result: Result | None) -> str:
    """A key of `OUTCOMES`. A right answer is right however the run ended."""
    if result is None:
        return "missing"
    if result.grade.success:
        return "right"
    return "wrong" if result.status == "answered" else result.status


def lines(comparison: Comparison) -> tuple[Line, ...]:
    """The grid, tasks down, contenders across."""
    found: dict[tuple[str, str], dict[int, Result]] = defaultdict(dict)
    for result in comparison.results:
        found[result.task, result.variant][result.repeat] = result
    rows = []
    for t, task in enumerate(comparison.suite.tasks):
        cells = []
        for c, contender in enumerate(comparison.contenders):
            there = found.get((task.id, contender.key), {})
            outcomes = tuple(outcome(there.get(repeat)) for repeat in range(comparison.repeat))
            cells.append(_cell(t, c, outcomes, f"{visible(contender.key)}, {visible(task.id)}"))
        rows.append(Line(visible(task.id), brief(task.question, LONG), tuple(cells)))
    return tuple(rows)


def legend(grid: Sequence[Line]) -> list[tuple[str, str, str]]:
    """Class, sign and words of each outcome that occurs, in the order of `OUTCOMES`."""
    seen = {one for line in grid for cell in line.cells for one in cell.outcomes}
    return [(kind, *OUTCOMES[kind]) for kind in OUTCOMES if kind in seen]


def data(comparison: Comparison, state: Mapping[str, int]) -> dict[str, Any]:
    """What the page's script needs of tasks, contenders and cells; `state` says which records are held."""
    tasks = {task.id: t for t, task in enumerate(comparison.suite.tasks)}
    contenders = {each.key: c for c, each in enumerate(comparison.contenders)}
    return {
        "contenders": [visible(each.key) for each in comparison.contenders],
        "tasks": [
            {"id": visible(task.id), "question": brief(task.question, LONG), "gold": brief(plain(task.answer), LONG)}
            for task in comparison.suite.tasks
        ],
        "outcomes": {kind: words for kind, (_, words) in OUTCOMES.items()},
        "repeat": comparison.repeat,
        "runs": [
            {"c": contenders[result.variant], "t": tasks[result.task], "r": result.repeat, **_told(result, state)}
            for result in comparison.results
            if result.variant in contenders and result.task in tasks
        ],
    }


def _cell(task: int, contender: int, outcomes: tuple[str, ...], who: str) -> Cell:
    counts = Counter(outcomes)
    only = next(iter(counts)) if len(counts) == 1 else ""
    if len(outcomes) == 1:
        return Cell(task, contender, outcomes, only, OUTCOMES[only][0], f"{who}: {OUTCOMES[only][1]}")
    told = ", ".join(f"{count} {OUTCOMES[kind][1]}" for kind, count in counts.most_common())
    text = OUTCOMES["missing"][0] if only == "missing" else f"{counts['right']}/{len(outcomes)}"
    return Cell(task, contender, outcomes, only or "mixed", text, f"{who}: {told}, of {len(outcomes)}")


def _told(result: Result, state: Mapping[str, int]) -> dict[str, Any]:
    grade = result.grade
    return {
        "run": visible(result.run),
        "held": state.get(result.run, LEFT_OUT),
        "outcome": outcome(result),
        "status": result.status,
        "answer": None if result.answer is None else brief(plain(result.answer), LONG),
        "reason": brief(result.reason or ""),
        "mark": visible(grade.mark),
        "score": grade.score,
        "why": brief(grade.why),
        "judge": visible(grade.run),
        "steps": result.steps,
        "calls": result.calls,
        "in": result.usage.input_tokens,
        "out": result.usage.output_tokens,
        "about": result.usage.estimated,
        "usd": result.cost_usd,
        "s": round(result.seconds, 3),
        "repairs": result.repairs,
        "invented": result.invented,
        "fell": result.fell_back,
    }
