"""Runs the steps of ReWOO's plan: tool calls, and questions to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from plait.core import (
    Act,
    Call,
    ContextOverflow,
    Effects,
    Failed,
    LoopContext,
    Observation,
    Plan,
    Step,
    Task,
    Think,
    note,
    think,
    wait_next,
)
from plait.loops.compaction import SMALLEST_OBSERVATION, fit_prompt
from plait.loops.plan import Dispatch, Results, failed_needs, observation_of_reply
from plait.loops.references import EVIDENCE
from plait.loops.rewoo.pages import work_page

if TYPE_CHECKING:
    from plait.loops.rewoo.loop import ReWOO

SKIPPED: Literal["cancelled"] = "cancelled"
"""The trouble of a step that did not run."""


def begin_step(
    loop: ReWOO, task: Task, context: LoopContext, step: Step, results: Results
) -> Think | Act | Observation:
    """Return a step's call with its references filled in, or an observation that says why it is not made."""
    if messages := work_page(context, task, step, results):
        return Think("work", messages, max_tokens=loop.max_tokens)
    if missing := list(failed_needs(step, results)):
        # Never call a tool with a placeholder for a missing result: it could act on it.
        return Observation(f"It needs the evidence of {', '.join(missing)}, which gave none.", SKIPPED)
    return Act((Call(step.tool, EVIDENCE.fill_step(step, results)),), fixed=not step.needs)


def run_steps(loop: ReWOO, task: Task, context: LoopContext, plan: Plan, work: Dispatch) -> Effects[Failed | None]:
    """Run the plan's calls; return `Failed` if one failed and the run must stop."""
    yield from work.add_plan(plan)
    while work.open:
        try:
            step = yield from work.end_with((yield from wait_next(*work.open)))
        except ContextOverflow as why:
            assert why.ticket is not None
            seen = yield from _ask_with_less(loop, task, context, work.open[why.ticket], work.results)
            step = yield from work.end(why.ticket, seen)
        seen = work.results[step.id]
        if not seen.ok and loop.on_failure == "stop":
            return Failed(f"Step {step.id} ({step.tool}) gave no evidence: {seen.text}")
    for step in plan.calls:
        if (seen := work.results[step.id]).trouble == SKIPPED:
            yield from note("skipped", f"Step {step.id} was not run. {seen.text}")
    return None


def _ask_with_less(loop: ReWOO, task: Task, context: LoopContext, step: Step, results: Results) -> Effects[Observation]:
    """Ask the model again, with less evidence, for a step whose prompt was too long."""

    def again(size: int) -> Effects[Any]:
        return think("work", work_page(context, task, step, results, size), max_tokens=loop.max_tokens)

    try:
        reply, _ = yield from fit_prompt(again, max(SMALLEST_OBSERVATION, context.observation_chars // 4))
        return observation_of_reply(reply)
    except ContextOverflow as still:
        return Observation(f"Error: {still}", "raised")
