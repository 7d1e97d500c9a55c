"""The plans of runs: read from a record with the evidence found, and reused by a later run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from plait.core import Call, Loop, LoopContext, Observation, Plan, Step, Task, ToolSpec
from plait.core.errors import ConfigError
from plait.journal.entries import ModelCall, Question
from plait.journal.records import RunHead
from plait.journal.timeline import Timeline
from plait.loops import make, prompts_of
from plait.loops.compiler.format import FORM
from plait.loops.compiler.loop import LLMCompiler
from plait.loops.compiler.streamed_plan import StreamedPlan
from plait.loops.format import Unreadable
from plait.loops.plan import Planner, list_callable
from plait.loops.plan_text import check_plan, read_plan_file, reads_as_plan, write_plan
from plait.loops.references import EVIDENCE, RESULTS
from plait.runtime.calls.tool_selection import narrow_to_recorded
from plait.runtime.limits import Limits
from plait.runtime.planning.plan_estimate import Expected, texts_in
from plait.runtime.run import Run
from plait.runtime.templates.prompts import PromptBook


class Planned(Struct, frozen=True):
    """A plan that was made and not run. `run` is the run that asked the planner.

    `plan` and `expected` are None if no plan could be made; `run.reason` then says why.
    """

    plan: Plan | None
    expected: Expected | None
    run: Run


def planning(loop: Loop) -> Planner:
    """Return the loop if its plans can be printed, priced, edited and run. Raises `ConfigError` for any other loop."""
    if not isinstance(loop, Planner):
        hint = "Use --loop rewoo."
        raise ConfigError(f"`plait plan` needs a loop that plans first, and '{loop.name}' does not.", hint=hint)
    return loop


def plan_of(given: Plan | str, tools: Iterable[ToolSpec]) -> Plan:
    """Parse a plan from the printed text or JSON, and check it against the tools. Raises `ConfigError`."""
    if not isinstance(given, Plan | str):
        raise ConfigError(f"{given!r} is no plan.", hint="Give a plait.Plan, or its text.")
    try:
        return check_plan(given, tools) if isinstance(given, Plan) else read_plan_file(given, tools)
    except Unreadable as why:
        hint = "Correct it, or let `plait plan QUESTION` write one."
        raise ConfigError(f"The plan cannot run. {why}", hint=hint) from why


def recorded_plan(head: RunHead, timeline: Timeline) -> Plan:
    """Return the plan that a recorded run used or was about to use, with the evidence found for its steps. Steps that
    failed or were not run have no evidence. Raises `ConfigError` if the run has no plan."""
    context, loop = kit_of(head), make(head.loop["name"], head.loop["options"])
    is_numbered = isinstance(loop, LLMCompiler)
    plan = _numbered_plan(timeline, context) if is_numbered else _last_plan(planning(loop), timeline, context)
    if plan is None:
        raise ConfigError(f"Run {head.run} has no plan that could be read.", hint=f"`plait show {head.run}` tells why.")
    if isinstance(loop, Planner):
        task = Task(head.question, head.history)
        made = _calls_made(timeline)
        # The requests of the workers (the text of the last message) with the replies.
        asked = [(each.last.request, reply) for each, reply in timeline.replies if each.phase == "work"]
        said = [((texts_in(request) or [""])[-1], reply.text.strip()) for request, reply in asked]
        results = {id: Observation(text) for id, text in plan.evidence.items()}
        for step in plan.calls:
            if step.id not in results and all(need in results for need in step.needs):
                # A step is found by its request, which depends only on the results of its needs.
                if messages := loop.work_messages(context, task, step, results):
                    request = messages[-1].content
                    found = next((Observation(reply) for each, reply in said if each == request), None)
                else:
                    call = Call(step.tool, EVIDENCE.fill(step.input, results))
                    found = next((observation for each, observation in made if each == call), None)
                if found is not None and found.ok:
                    results[step.id] = found
        plan = structs.replace(plan, evidence={id: seen.text for id, seen in results.items()})
    return plan


def written(plan: Plan) -> str:
    """Return a plan in the text of the loop that makes such plans: with evidence by name (`#E1`), or numbered."""
    numbered = bool(plan.calls) and all(step.id.isdecimal() for step in plan.calls)
    return FORM.show(plan) if numbered else write_plan(plan)


def with_kept(plan: Plan, before: Plan) -> Plan:
    """Copy evidence of an earlier plan into each step that is unchanged and whose needs are unchanged. Evidence that
    the plan already holds stays."""
    old = {step.id: step for step in before.calls}
    kept: dict[str, str] = {}
    for step in plan.calls:
        if step.id in plan.evidence:
            continue
        as_it_was = step.id in old and (step.tool, step.input) == (old[step.id].tool, old[step.id].input)
        if as_it_was and step.id in before.evidence and all(need in kept for need in step.needs):
            kept[step.id] = before.evidence[step.id]
    return structs.replace(plan, evidence={**kept, **plan.evidence})


def kit_of(head: RunHead) -> LoopContext:
    """Rebuild the loop context of a run from its record alone."""
    folder = head.settings.get("prompts")
    name = head.loop["name"]
    book = PromptBook(name, Path(folder) if folder and Path(folder).is_dir() else None, prompts_of(name))
    limits = msgspec.convert(head.settings.get("limits", {}), Limits)
    tools = msgspec.convert(head.tools, tuple[ToolSpec, ...])
    return narrow_to_recorded(LoopContext(tools, book, head.settings.get("system"), limits.observation_chars), head)


def _last_plan(loop: Planner, timeline: Timeline, context: LoopContext) -> Plan | None:
    """Return the last plan on record: the one given to the loop, the planner's, or the user's."""
    plan = loop.plan
    for moment in timeline.moments:
        with suppress(Unreadable):
            match moment.change, moment.entry:
                case "replied", ModelCall(phase="plan", reply=reply) if reply is not None:
                    plan = loop.read_plan(reply.text, context)
                case _, Question(kind="plan", answer=str() as answer) if reads_as_plan(answer):
                    plan = read_plan_file(answer, list_callable(loop, context.known_tools))
    return plan


def _numbered_plan(timeline: Timeline, context: LoopContext) -> Plan | None:
    """Return all calls of a run of `compiler` as one plan, with their numbers and results."""
    made = _calls_made(timeline)
    steps: dict[str, Step] = {}
    results: dict[str, Observation] = {}
    plan: Plan | None = None

    def carried_out(plan: Plan | None) -> None:
        for step in plan.calls if plan is not None else ():
            steps[step.id] = step
            call = Call(step.tool, RESULTS.fill_step(step, results))
            found = next((observation for each, observation in made if each == call), None)
            results[step.id] = found if found is not None else Observation("It was not made.", "cancelled")

    for moment in timeline.moments:
        match moment.change, moment.entry:
            case "asked", ModelCall(phase="join"):
                carried_out(plan)
                plan = None
            case "replied", ModelCall(phase="plan", reply=reply) if reply is not None:
                reader = StreamedPlan(context.known_tools, steps, results, held=True)
                for _ in reader.read_whole(reply.text):
                    pass
                plan = reader.plan if reader.plan.calls else plan
            case _, Question(kind="plan", answer=str() as answer):
                with suppress(Unreadable):
                    plan = FORM.read(answer, tools=context.known_tools)[0]
    carried_out(plan)
    found = {id: seen.text for id, seen in results.items() if seen.ok}
    return Plan(tuple(steps.values()), found) if steps else None


def _calls_made(timeline: Timeline) -> list[tuple[Call, Observation]]:
    return [(made.planned, observation) for made, observation in timeline.results]
