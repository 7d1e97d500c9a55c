"""The requests to ReWOO's planner, workers and solver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from plait.core import LoopContext, Message, Observation, Plan, Step, Task, join_parts, system
from plait.core.text import shorten
from plait.loops import plan_text
from plait.loops.escape import Escape, escape_of, escape_task
from plait.loops.plan import NO_EVIDENCE, Results
from plait.loops.references import EVIDENCE


def plan_page(context: LoopContext, task: Task) -> tuple[Message, ...]:
    """Return the planner's request. The user's own system prompt replaces ours."""
    tools = plan_text.with_llm(context.tools, context.prompt("llm").strip())
    listed = {"described": plan_text.PLANS.describe(tools), "names": ", ".join(tool.name for tool in tools)}
    asked = context.prompt("task", **listed, **escape_task(task, escape_of(context, plan_text.PLANS.escape)))
    return system(context.rules(**listed)), task.ask(asked)


def work_page(
    context: LoopContext, task: Task, step: Step, results: Results, chars: int | None = None
) -> tuple[Message, ...]:
    """Return the request of a step that asks the model, with at most `chars` characters of each evidence (None: as the
    context says); empty for a step that calls a tool."""
    if not by_model(context, step):
        return ()
    escape = escape_of(context, plan_text.PLANS.escape)
    chars = context.observation_chars if chars is None else chars
    needed = {id: results[id] for id in step.needs if id in results}
    evidence = {id: _show_evidence(context, id, seen, chars, escape, NO_EVIDENCE) for id, seen in needed.items()}
    given = EVIDENCE.fill(step.input, _as_results(evidence))
    instruction = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    shown = {"step": show_step(context, step, evidence), "evidence": evidence, "instruction": instruction}
    seen = tuple(each for observation in needed.values() for each in observation.attachments)
    return _below_instructions(context, task.ask(context.prompt("work", **escape_task(task, escape), **shown), seen))


def solve_page(
    context: LoopContext, task: Task, plan: Plan, results: Results, chars: int, reason: str = ""
) -> tuple[Message, ...]:
    """Return the solver's request: the task, and each line of the plan with at most `chars` characters of its evidence.
    `reason` says why the rest of the plan did not run."""
    escape = escape_of(context, plan_text.PLANS.escape)
    evidence = {step.id: _show_evidence(context, step.id, results.get(step.id), chars, escape) for step in plan.calls}
    steps = [{**show_step(context, step, evidence), "evidence": evidence.get(step.id, "")} for step in plan.steps]
    shown = {"plan": steps, "evidence": evidence, "reason": reason}
    seen = tuple(each for observation in results.values() for each in observation.attachments)
    asked = join_parts(context.prompt("solve", **escape_task(task, escape), **shown), context.output_rules())
    return _below_instructions(context, task.ask(asked, seen))


def _below_instructions(context: LoopContext, asked: Message) -> tuple[Message, ...]:
    """Return a request that has no prompt of its own for the system: only the user's instructions, if there are any."""
    return (*([system(context.instructions)] if context.instructions else []), asked)


def show_step(context: LoopContext, step: Step, evidence: Mapping[str, str]) -> dict[str, Any]:
    """Return a step as the templates receive it. `filled` is its input with the evidence in place of references."""
    written = plan_text.written_input(step, context.tool(step.tool))
    return {
        "id": step.id,
        "thought": step.why,
        "tool": step.tool,
        "input": written,
        "filled": EVIDENCE.fill(written, _as_results(evidence)),
        "call": plan_text.write_step(step) if step.tool else "",
    }


def by_model(context: LoopContext, step: Step) -> bool:
    """Return whether the step asks the model; a user's tool of that name takes precedence."""
    return step.tool == plan_text.LLM and context.tool(plan_text.LLM) is None


def _show_evidence(
    context: LoopContext,
    id: str,
    seen: Observation | None,
    chars: int,
    escape: Escape,
    failed: str = f"{NO_EVIDENCE} ({{}})",
) -> str:
    """Return a result as evidence, shortened and escaped; `failed` is the template for an error."""
    text = NO_EVIDENCE
    if seen is not None:
        short = shorten(seen.with_note, chars)[0]
        text = short if seen.ok else failed.format(short)
    return context.prompt("evidence", id=id, text=escape(text))


def _as_results(evidence: Mapping[str, str]) -> Results:
    return {id: Observation(text) for id, text in evidence.items()}
