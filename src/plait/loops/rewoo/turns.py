"""The turns of a run of ReWOO: asks the planner for a plan and checks it, then runs its steps, tool calls and questions
to the model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from plait.core import (
    Act,
    Call,
    ContextOverflow,
    Effects,
    Failed,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Plan,
    Reply,
    Step,
    Task,
    Think,
    note,
    think,
    wait_next,
)
from plait.loops import plan_text
from plait.loops.asking import BadReply, Rejected, ask_until_read, read_reply
from plait.loops.compaction import SMALLEST_OBSERVATION, fit_prompt
from plait.loops.fallback import fall_back
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.plan import Dispatch, Results, failed_needs, observation_of_reply
from plait.loops.references import EVIDENCE, words_in_formula
from plait.loops.rewoo.pages import by_model, plan_page, work_page
from plait.loops.tool_descriptions import add_search_results

if TYPE_CHECKING:
    from plait.loops.rewoo.loop import ReWOO

TRIES = 2
"""Plans that the planner may write before there is none."""

BEFORE_IT = "a step before it {}, and write the name of its evidence there, such as #E1."

SKIPPED: Literal["cancelled"] = "cancelled"
"""The trouble of a step that did not run."""


def ask_planner(loop: ReWOO, task: Task, context: LoopContext, said: tuple[Message, ...]) -> Effects[Plan | Outcome]:
    """Ask the model for a plan, once more if it cannot run; then continue as the fallback loop."""
    head = (*plan_page(context, task), *said)
    stop = f"#E{loop.max_steps + 2}" if loop.stop is None else loop.stop
    tools = plan_text.with_llm(context.known_tools)

    def ask(bad: BadReply | None) -> Effects[Reply]:
        tail: tuple[Message, ...] = ()
        if bad:
            complaint = yield from add_search_results(context, bad.complaint)
            request = context.prompt("repair", complaint=complaint)
            tail = bad.ask_again(request)
        held = loop.constrain or bool(bad)
        grammar = plan_text.grammar(plan_text.with_llm(context.tools), loop.max_steps) if held else None
        options: dict[str, Any] = {"grammar": grammar, "max_tokens": loop.max_tokens, "repair": bool(bad)}
        return (yield from think("plan", (*head, *tail), stop=filter(None, (stop,)), **options))

    def read(reply: Reply, miss: int) -> Effects[Plan]:
        def check(made: plan_text.PlanRead) -> Effects[None]:
            calls = [step for step in made.plan.calls if not by_model(context, step)]
            against, ungrounded = yield from _find_objection(context, calls)
            if against:
                yield from note("unreadable", f"reply {miss} of {TRIES} can't be taken: {against}")
                raise Rejected(against, strike_values(reply.text, ungrounded))

        read_plan = partial(plan_text.read_plan, tools=tools, most=loop.max_steps)
        made = yield from read_reply(reply, miss, read_plan, check if miss < TRIES else None)
        return made.plan

    plan = yield from ask_until_read(ask, read, TRIES)
    if not isinstance(plan, Failed) or not loop.fallback or loop.only_plan:
        return plan
    return (yield from fall_back(loop.fallback, task, context, f"There is no plan to carry out. {plan.reason}"))


def _find_objection(context: LoopContext, steps: list[Step]) -> Effects[tuple[str, tuple[str, ...]]]:
    """Return the objection to the calls of a plan, "" for none, and the invented values in it."""
    problems = ((step.id, context.find_problem(step.tool, step.input, EVIDENCE.is_open)) for step in steps)
    if wrong := " ".join(f"#{id} {problem}" for id, problem in problems if problem):
        return wrong, ()
    for step in steps:
        if found := (yield from find_ungrounded(calls=[Call(step.tool, EVIDENCE.without(step.input))])):
            look_up = BEFORE_IT.format("look that up")
            return f"In #{step.id} is made up what nothing has given: {', '.join(found)}. Let {look_up}", found
        tool = context.tool(step.tool)
        if tool is not None and tool.computes and (words := words_in_formula(step.input, EVIDENCE)):
            find = BEFORE_IT.format("find that with another tool")
            return f"In #{step.id} words stand in a formula: {', '.join(words)}. Let {find}", ()
    return "", ()


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
