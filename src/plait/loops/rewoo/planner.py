"""The plan of a run: given, or made by the planner; checked and approved before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from plait.core import (
    Answered,
    Call,
    Effects,
    Failed,
    LoopContext,
    Message,
    Outcome,
    Plan,
    Step,
    Task,
    assistant,
    think,
    user,
)
from plait.loops.fallback import fall_back
from plait.loops.format import Unreadable
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.plan import Planner, ask_approval
from plait.loops.references import EVIDENCE, words_in_formula
from plait.loops.rewoo import plan_text
from plait.loops.rewoo.pages import by_model, plan_page
from plait.loops.tool_descriptions import add_search_results
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, read_turn

if TYPE_CHECKING:
    from plait.loops.rewoo.loop import ReWOO


def make_plan(
    loop: Planner, context: LoopContext, ask: Callable[[tuple[Message, ...]], Effects[Plan | Outcome]]
) -> Effects[Plan | Outcome]:
    """Return the plan to run, or the run's outcome without one. An `only_plan` run ends with the plan as its answer.

    `ask` makes the plan with a model call. It gets the comments on earlier plans, for the end of its request.
    """
    made: Plan | Outcome
    if loop.plan is None:
        made = yield from ask(())
    else:
        try:
            made = plan_text.check_plan(loop.plan, context.known, check_inputs=True)
        except Unreadable as why:
            made = Failed(f"The plan that was given can't be carried out: {why}", kind="format")
    if not isinstance(made, Plan):
        return made
    if loop.only_plan:
        return Answered(msgspec.json.decode(msgspec.json.encode(made)))
    if not context.approve_plan:
        return made
    said: list[Message] = []

    def again(plan: Plan, words: str) -> Effects[Plan | Outcome]:
        said.extend((assistant(plan_text.write_plan(plan)), user(context.prompt("feedback", words=words))))
        return (yield from ask(tuple(said)))

    def read(text: str) -> Plan:
        return plan_text.check_plan(plan_text.read_plan_file(text, context.known), context.known, check_inputs=True)

    return (yield from ask_approval(made, plan_text.write_plan, plan_text.reads_as_plan, read, again))


def ask_planner(loop: ReWOO, task: Task, context: LoopContext, said: tuple[Message, ...]) -> Effects[Plan | Outcome]:
    """Ask the model for a plan, once more if it cannot run; then continue as the fallback loop."""
    head = (*plan_page(context, task), *said)
    ungrounded: tuple[str, ...] = ()

    def ask(bad: Bad | None) -> Effects[Any]:
        complaint = (yield from add_search_results(context, bad[1])) if bad else ""
        tail = (
            with_repair(strike_values(bad[0], ungrounded), context.prompt("repair", complaint=complaint)) if bad else ()
        )
        grammar = plan_text.grammar(context.tools, loop.max_steps) if loop.constrain or bad else None
        stop = (f"#E{loop.max_steps + 2}",)
        options: dict[str, Any] = {"grammar": grammar, "max_tokens": loop.max_tokens, "repair": bool(bad)}
        return (yield from think("plan", (*head, *tail), stop=stop, **options))

    def check(read: plan_text.PlanRead) -> Effects[str]:
        nonlocal ungrounded
        against, ungrounded = yield from _check_calls(
            context, [step for step in read.plan.calls if not by_model(context, step)]
        )
        return against

    read = yield from read_turn(ask, partial(plan_text.read_plan, tools=context.known, most=loop.max_steps), 2, check)
    if not isinstance(read, Failed):
        return read.plan
    if not loop.fallback or loop.only_plan:
        return read
    return (yield from fall_back(loop.fallback, task, context, f"There is no plan to carry out. {read.reason}"))


def _check_calls(context: LoopContext, steps: list[Step]) -> Effects[tuple[str, tuple[str, ...]]]:
    """Return the objection to the calls of a plan, and the invented values in it."""
    wrong = [
        f"#{step.id} {problem}"
        for step in steps
        if (problem := context.find_problem(step.tool, step.input, EVIDENCE.is_open))
    ]
    if wrong:
        return " ".join(wrong), ()
    for step in steps:
        if found := (yield from find_ungrounded(calls=[Call(step.tool, EVIDENCE.without(step.input))])):
            against = (
                f"In #{step.id} is made up what nothing has given: {', '.join(found)}. Let a step before it "
                "look that up, and write the name of its evidence there, such as #E1."
            )
            return against, found
        tool = context.tool(step.tool)
        if tool is not None and tool.computes and (words := words_in_formula(step.input, EVIDENCE)):
            against = (
                f"In #{step.id} words stand in a formula: {', '.join(words)}. Let a step before it find that "
                "with another tool, and write the name of its evidence there, such as #E1."
            )
            return against, ()
    return "", ()
