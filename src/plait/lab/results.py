"""The stored result of a finished cell: one task, run once by one loop with its models, and graded."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from plait.core import Status, Usage
from plait.core.events import Noted, Replied
from plait.lab.tasks import Grade
from plait.runtime.costs import PhaseSpending
from plait.runtime.run import Run

REPAIRS = ("repaired", "unreadable")
"""Notes about a reply outside its format: the reader fixed it, or the loop asked again."""


class CellResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one cell.

    `cell` is the digest of everything that could change it (see `plan.py`); `variant` is the contender's key. `answer`
    is the run's, `usage` in tokens, `seconds` the run's wall time. `repairs` counts replies outside their format,
    `invented` arguments and answers without a source. `fell_back`: the run continued as another loop. `calls_as_text`:
    the endpoint took no tools, so the loop wrote calls as text. `by_step` has the tokens in and out of each step.
    """

    cell: str
    variant: str
    task: str
    repeat: int
    run: str
    status: Status
    grade: Grade
    steps: int
    calls: int
    usage: Usage
    cost_usd: float | None
    seconds: float
    answer: Any = None
    reason: str | None = None
    repairs: int = 0
    invented: int = 0
    fell_back: bool = False
    calls_as_text: bool = False
    phases: tuple[PhaseSpending, ...] = ()
    by_step: tuple[tuple[int, int], ...] = ()


def make_result(run: Run, grade: Grade, *, cell: str, variant: str, task: str, repeat: int) -> CellResult:
    """Return the result of a run and its grade; reads the run's record."""
    events, phases = run.events, run.phases
    notes = [event.kind for event in events if isinstance(event, Noted)]
    # Count tokens in and out by step; a step without a model call has none.
    replies = [event for event in events if isinstance(event, Replied)]
    sums = [[0, 0] for _ in range(max((reply.step for reply in replies), default=0))]
    for reply in replies:
        step = sums[max(reply.step, 1) - 1]
        step[0] += reply.usage.input_tokens
        step[1] += reply.usage.output_tokens
    return CellResult(
        cell=cell,
        variant=variant,
        task=task,
        repeat=repeat,
        run=run.id,
        status=run.status,
        grade=grade,
        steps=run.steps,
        calls=run.tree.calls,
        usage=run.tree.usage,
        cost_usd=run.tree.cost_usd,
        seconds=run.seconds,
        answer=run.answer,
        reason=run.reason,
        repairs=sum(kind in REPAIRS for kind in notes),
        invented=notes.count("invented") + notes.count("unfounded"),
        fell_back="fallback" in notes,
        calls_as_text="calls_as_text" in notes,
        phases=phases,
        by_step=tuple((used, written) for used, written in sums),
    )
