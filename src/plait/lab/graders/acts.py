"""The graders of what was done, however the run ended: the tools that were called, what was sent in the world."""

from __future__ import annotations

import asyncio

from plait.core.errors import UsageError
from plait.core.events import Observed
from plait.journal.records import RanRecord
from plait.lab.base import Grade, Task
from plait.lab.graders import words
from plait.runtime.run import Run


async def calls(task: Task, run: Run) -> Grade:
    """Every gold tool was called, and gave a result. The score is the part of them that was.

    Measures: `recall`, that part, and `precision`, the part of the tools called that were gold.
    """
    gold = {str(name) for name in words.golds_of(task.answer) if name}
    if not gold:
        raise UsageError(f"The task {task.id!r} names no tool to call.", hint="Its answer is a list of tools' names.")
    called = {event.call.tool for event in run.events if isinstance(event, Observed) and event.observation.ok}
    right = gold & called
    recall, precision = len(right) / len(gold), len(right) / len(called) if called else 0.0
    missing = sorted(gold - called)
    why = f"not called: {', '.join(missing)}" if missing else ""
    mark = "right" if not missing else "wrong"
    return Grade(not missing, recall, mark, why, {"recall": recall, "precision": precision})


async def world(task: Task, run: Run, name: str = "") -> Grade:
    """How well an errand in the world was done, by what was sent: done (1), with a flaw (0.5), not done (0).

    Only the first is a success. `name` is the task's in `plait.world`, "" where it is the task's id.
    """
    return await asyncio.to_thread(_sent, task, run, name or task.id)


def _sent(task: Task, run: Run, name: str) -> Grade:
    from plait.world import task_of, world_of
    from plait.world.again import replayed, told_of

    word = next((word for word in task.tools if word.partition(":")[0] == "world"), "")
    if not word:
        raise UsageError(f"The task {task.id!r} is in no world.", hint="Give it a tool such as world:1.")
    clock = next((row.record.now for row in run.record if isinstance(row.record, RanRecord) and row.record.now), None)
    events = run.events
    state = replayed(world_of(word), events)
    grade = task_of(name).grade(state, told_of(run.answer, events, clock=clock))
    score = {"done": 1.0, "flaw": 0.5}.get(grade.mark, 0.0)
    return Grade(grade.mark == "done", score, grade.mark, "; ".join(grade.why[:5]))
