"""What is kept of a finished cell: one task, run once by one loop with its models, and graded."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from plait.core import Status, Usage
from plait.core.events import Noted, Replied
from plait.lab.base import Grade
from plait.runtime.run import Run
from plait.runtime.spending import PhaseSpending

REPAIRS = ("repaired", "unreadable")
"""Remarks that say a reply was not in its format: mended by the reader, or asked for again."""


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished cell.

    `cell` stands for all that could change it (see `planning.py`); `variant` is the key of its loop and models.
    `answer` is the run's, `usage` in tokens, `seconds` the run's wall time. `repairs` counts replies that were not in
    their format, `invented` arguments and answers that nothing gave. `fell_back`: the run continued as another loop.
    `calls_as_text`: the endpoint took no tools, so the loop wrote calls as text. `by_step` has the tokens in and out
    of each step.
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


def result_of(run: Run, grade: Grade, *, cell: str, variant: str, task: str, repeat: int) -> Result:
    """What is kept of a run and its grade; reads the run's record."""
    events, phases = run.events, run.phases
    notes = [event.kind for event in events if isinstance(event, Noted)]
    return Result(
        cell=cell,
        variant=variant,
        task=task,
        repeat=repeat,
        run=run.run,
        status=run.status,
        grade=grade,
        steps=run.steps,
        calls=run.calls,
        usage=run.usage,
        cost_usd=run.cost_usd,
        seconds=run.seconds,
        answer=run.answer,
        reason=run.reason,
        repairs=sum(kind in REPAIRS for kind in notes),
        invented=notes.count("invented") + notes.count("unfounded"),
        fell_back="fallback" in notes,
        calls_as_text="calls_as_text" in notes,
        phases=phases,
        by_step=_by_step([event for event in events if isinstance(event, Replied)]),
    )


def _by_step(replies: list[Replied]) -> tuple[tuple[int, int], ...]:
    """Tokens in and out, by the step they were used in; steps without a model call have none."""
    last = max((reply.step for reply in replies), default=0)
    sums = [[0, 0] for _ in range(last)]
    for reply in replies:
        at = sums[max(reply.step, 1) - 1]
        at[0] += reply.usage.input_tokens
        at[1] += reply.usage.output_tokens
    return tuple((used, written) for used, written in sums)
