"""What ReWOO's planner, workers and solver are shown."""

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
    """What the planner is asked. The user's own system prompt stands in place of ours."""
    tools = plan_text.with_llm(context.tools, context.prompt("llm").strip())
    names = ", ".join(tool.name for tool in tools)
    rules = context.rules(described=plan_text.describe(tools), names=names)
    return system(rules), user(context.prompt("task", **escape_task(task, escape_of(context, scan.disarm))))


def work_page(
    context: LoopContext, task: Task, step: Step, results: Results, chars: int | None = None
) -> tuple[Message, ...]:
    """What the model is asked for a step that calls it, with at most `chars` characters of each evidence (None: as
    many as the kit says). Nothing for a step that calls a tool."""
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
    """What the solver is asked: the task, and each line of the plan with its evidence, of which at most `chars`
    characters are shown. `reason` says why the rest of the plan was not carried out."""
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
    """The step asks the model; a tool of the user's that has its name goes before it."""
    return step.tool == plan_text.LLM and context.tool(plan_text.LLM) is None


def _text(seen: Observation | None, chars: int, failed: str) -> str:
    """A result as evidence, shortened; what was wrong is put into `failed`."""
    if seen is None:
        return NO_EVIDENCE
    short = shorten(seen.with_note, chars)[0]
    return short if seen.ok else failed.format(short)
