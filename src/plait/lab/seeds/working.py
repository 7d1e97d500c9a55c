"""What two loops take for the same tasks: calls and tokens side by side, a row a task and in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from plait.core.errors import UsageError
from plait.lab.comparison import Comparison, Contender
from plait.lab.counting import by_task
from plait.lab.grid import Column, line
from plait.lab.result import Result
from plait.lab.seeds.asking import judged
from plait.lab.seeds.drawn import Drawn, missing

ABSENT = "-"


class Side(Struct, frozen=True):
    """What a loop took for a task, all its runs together: `right` of `runs` are right (None: nobody judged).

    `calls` are those of models, `tokens` input and output. `estimated`: the endpoint reported none. `fell_back`: a run
    went on as another loop.
    """

    runs: tuple[str, ...]
    right: int | None
    calls: int
    tokens: int
    estimated: bool = False
    fell_back: bool = False


class Work(Struct, frozen=True):
    """A task as both loops did it; None for one that has not finished it."""

    task: str
    first: Side | None
    second: Side | None

    @property
    def ratio(self) -> float | None:
        """The second's tokens by the first's; None where a side is missing, or used none."""
        if self.first is None or self.second is None or not self.first.tokens:
            return None
        return self.second.tokens / self.first.tokens


class Working(Struct, frozen=True):
    """The table of two loops with the same models. `in_all` sums the tasks that both have finished."""

    loops: tuple[str, str]
    who: str
    rows: tuple[Work, ...]
    notes: tuple[str, ...] = ()

    @property
    def in_all(self) -> Work:
        """The sums; over none they are 0."""
        both = [row for row in self.rows if row.first is not None and row.second is not None]
        first = _sum(row.first for row in both if row.first is not None)
        return Work("in all", first, _sum(row.second for row in both if row.second is not None))

    def drawn(self) -> Drawn:
        """A row a task, and the sums."""
        rows = (*self.rows, self.in_all)
        columns = [Column("task", tuple(line(row.task) for row in rows), left=True)]
        for at, loop in enumerate(self.loops):
            sides = [row.second if at else row.first for row in rows]
            if any(side and side.right is not None for side in sides):
                columns.append(Column(f"{loop} right", tuple(_right(side) for side in sides)))
            columns.append(Column(f"{loop} calls", tuple(ABSENT if s is None else f"{s.calls:,}" for s in sides)))
            columns.append(Column(f"{loop} tokens", tuple(_tokens(side) for side in sides)))
        ratios = tuple(ABSENT if row.ratio is None else f"{row.ratio:.2f}" for row in rows)
        columns.append(Column(f"{self.loops[1]} / {self.loops[0]}", ratios))
        return Drawn(tuple(columns), (*self.notes, *_notes(self.rows)), f"models: {line(self.who)}")

    def json(self) -> dict[str, Any]:
        """The rows and their sum with every digit."""
        names = dict(zip(("first", "second"), self.loops, strict=True))

        def told(row: Work) -> dict[str, Any]:
            sides = {names["first"]: _json(row.first), names["second"]: _json(row.second)}
            return {"task": row.task, **sides, "ratio": row.ratio}

        return {
            "models": self.who,
            "loops": list(self.loops),
            "rows": [told(row) for row in self.rows],
            "in_all": told(self.in_all),
        }


def working(comparison: Comparison, loops: Sequence[str] = ("react", "rewoo")) -> tuple[Working, ...]:
    """A table for all models that both loops were compared with. `loops` as the comparison names them.

    Raises `UsageError` where it has not both with the same models.
    """
    if len(loops) != 2:
        raise UsageError(f"{len(loops)} loops are named.", hint="Name two: --strategies react,rewoo.")
    first, second = ([each for each in comparison.contenders if each.strategy == loop] for loop in loops)
    made = []
    for one in first:
        for other in second:
            if one.who == other.who and one.key != other.key:
                made.append(_table(comparison, one, other))
    if not made:
        raise UsageError(
            f"{loops[0]} and {loops[1]} are not both in {comparison.name} with the same models.",
            hint="plait compare SUITE --strategies react,rewoo compares them.",
        )
    return tuple(made)


def _table(comparison: Comparison, one: Contender, other: Contender) -> Working:
    first, second = by_task(comparison.of(one)), by_task(comparison.of(other))
    rows = [
        Work(task.id, _side(comparison, first.get(task.id, ())), _side(comparison, second.get(task.id, ())))
        for task in comparison.suite.tasks
    ]
    return Working((one.strategy, other.strategy), one.who, tuple(rows), missing(comparison))


def _side(comparison: Comparison, results: Sequence[Result]) -> Side | None:
    """None where a run is still missing: the sums would be about less on one side."""
    if len(results) < comparison.repeat:
        return None
    graded = judged(comparison, results)
    return Side(
        tuple(result.run for result in results),
        sum(result.grade.success for result in graded) if graded else None,
        sum(result.calls for result in results),
        sum(result.usage.tokens for result in results),
        any(result.usage.estimated for result in results),
        any(result.fell_back for result in results),
    )


def _sum(sides: Iterable[Side]) -> Side:
    sides = tuple(sides)
    right = [side.right for side in sides if side.right is not None]
    return Side(
        tuple(run for side in sides for run in side.runs),
        sum(right) if right else None,
        sum(side.calls for side in sides),
        sum(side.tokens for side in sides),
        any(side.estimated for side in sides),
        any(side.fell_back for side in sides),
    )


def _right(side: Side | None) -> str:
    if side is None or side.right is None:
        return ABSENT
    if len(side.runs) == 1:
        return "yes" if side.right else "no"
    return f"{side.right:,} of {len(side.runs):,}"


def _tokens(side: Side | None) -> str:
    if side is None:
        return ABSENT
    return f"{'~' * side.estimated}{side.tokens:,}{'*' * side.fell_back}"


def _notes(rows: Iterable[Work]) -> list[str]:
    sides = [side for row in rows for side in (row.first, row.second) if side is not None]
    said = []
    if any(row.first is None or row.second is None for row in rows):
        said.append("In all: the tasks that both loops have finished.")
    if any(side.estimated for side in sides):
        said.append("~: tokens estimated from the length of the text.")
    if any(side.fell_back for side in sides):
        said.append("*: a run went on as another loop.")
    return said


def _json(side: Side | None) -> dict[str, Any] | None:
    return None if side is None else {name: getattr(side, name) for name in side.__struct_fields__}
