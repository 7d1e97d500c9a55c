"""Asks ReWOO's planner for a plan, and checks the plan before anything runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from plait.core import Call, Effects, Failed, LoopContext, Message, Outcome, Plan, Step, Task, think
from plait.loops import plan_text
from plait.loops.fallback import fall_back
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.references import EVIDENCE, words_in_formula
from plait.loops.rewoo.pages import by_model, plan_page
from plait.loops.tool_descriptions import add_search_results
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, read_turn

if TYPE_CHECKING:
    from plait.loops.rewoo.loop import ReWOO

BEFORE_IT = "a step before it {}, and write the name of its evidence there, such as #E1."


def ask_planner(loop: ReWOO, task: Task, context: LoopContext, said: tuple[Message, ...]) -> Effects[Plan | Outcome]:
    """Ask the model for a plan, once more if it cannot run; then continue as the fallback loop."""
    head = (*plan_page(context, task), *said)
    stop = f"#E{loop.max_steps + 2}" if loop.stop is None else loop.stop
    ungrounded: tuple[str, ...] = ()

    def ask(bad: Bad | None) -> Effects[Any]:
        tail: tuple[Message, ...] = ()
        if bad:
            complaint = yield from add_search_results(context, bad[1])
            tail = with_repair(strike_values(bad[0], ungrounded), context.prompt("repair", complaint=complaint))
        tools = plan_text.with_llm(context.tools)
        grammar = plan_text.grammar(tools, loop.max_steps) if loop.constrain or bad else None
        options: dict[str, Any] = {"grammar": grammar, "max_tokens": loop.max_tokens, "repair": bool(bad)}
        return (yield from think("plan", (*head, *tail), stop=filter(None, (stop,)), **options))

    def check(read: plan_text.PlanRead) -> Effects[str]:
        nonlocal ungrounded
        calls = [step for step in read.plan.calls if not by_model(context, step)]
        against, ungrounded = yield from _find_objection(context, calls)
        return against

    tools = plan_text.with_llm(context.known_tools)
    read = yield from read_turn(ask, partial(plan_text.read_plan, tools=tools, most=loop.max_steps), 2, check)
    if not isinstance(read, Failed):
        return read.plan
    if not loop.fallback or loop.only_plan:
        return read
    return (yield from fall_back(loop.fallback, task, context, f"There is no plan to carry out. {read.reason}"))


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
