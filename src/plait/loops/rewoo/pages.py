"""The requests to ReWOO's planner, workers and solver."""

from __future__ import annotations

import json

from plait.core import LoopContext, Message, Observation, Plan, Step, Task, system, user
from plait.core.text import shorten
from plait.loops.escape import escape_of, escape_task
from plait.loops.plan import Results
from plait.loops.references import EVIDENCE
from plait.loops.rewoo import plan_text, scan

NO_EVIDENCE = "no evidence"


def plan_page(context: LoopContext, task: Task) -> tuple[Message, ...]:
    """Return the planner's request. The user's own system prompt replaces ours."""
    tools = plan_text.with_llm(context.tools, context.prompt("llm").strip())
    names = ", ".join(tool.name for tool in tools)
    rules = context.rules(described=plan_text.describe(tools), names=names)
    return system(rules), user(context.prompt("task", **escape_task(task, escape_of(context, scan.disarm))))


def work_page(
    context: LoopContext, task: Task, step: Step, results: Results, chars: int | None = None
) -> tuple[Message, ...]:
    """Return the request of a step that asks the model, with at most `chars` characters of each evidence (None: as the
    context says); empty for a step that calls a tool."""
    if not by_model(context, step):
        return ()
    chars = context.observation_chars if chars is None else chars
    escape = escape_of(context, scan.disarm)
    shown = {id: Observation(escape(_text(seen, chars, NO_EVIDENCE))) for id, seen in results.items()}
    given = EVIDENCE.fill(step.input, shown)
    instruction = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return (user(context.prompt("work", instruction=instruction, question=escape.question(task.question))),)


def solve_page(
    context: LoopContext, task: Task, plan: Plan, results: Results, chars: int, reason: str = ""
) -> tuple[Message, ...]:
    """Return the solver's request: the task, and each line of the plan with at most `chars` characters of its evidence.
    `reason` says why the rest of the plan did not run."""
    escape = escape_of(context, scan.disarm)
    steps = [
        {
            "why": step.why,
            "call": plan_text.write_step(step) if step.tool else "",
            "evidence": escape(_text(results.get(step.id), chars, f"{NO_EVIDENCE} ({{}})")),
        }
        for step in plan.steps
    ]
    return (user(context.prompt("solve", **escape_task(task, escape), steps=steps, reason=reason)),)


def by_model(context: LoopContext, step: Step) -> bool:
    """Return whether the step asks the model; a user's tool of that name takes precedence."""
    return step.tool == plan_text.LLM and context.tool(plan_text.LLM) is None


def _text(seen: Observation | None, chars: int, failed: str) -> str:
    """Return a result as evidence, shortened; `failed` is the template for an error."""
    if seen is None:
        return NO_EVIDENCE
    short = shorten(seen.with_note, chars)[0]
    return short if seen.ok else failed.format(short)
