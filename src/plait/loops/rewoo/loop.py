"""ReWOO: plan without observation, then work, then solve.

After Xu et al. 2023 (arXiv:2305.18323). A planner writes all steps at once, each naming the evidence it needs. Workers
(a tool or the model itself) fill in the evidence. A solver answers from plan and evidence. This takes two model calls,
and one for each step that asks the model. Here the steps form a graph: each starts as soon as its evidence exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from plait.core import (
    Act,
    Answered,
    Call,
    ContextOverflow,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    Observation,
    OneKind,
    Outcome,
    Plan,
    Reply,
    Splitter,
    Step,
    Stopped,
    Task,
    Think,
    check_answer,
    note,
    think,
    wait_next,
)
from plait.loops import plan_text
from plait.loops.asking import BadReply, Rejected, ask_for_answer, ask_until_read, read_reply
from plait.loops.compaction import SMALLEST_OBSERVATION, fit_prompt
from plait.loops.fallback import fall_back
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.plan import Dispatch, Results, failed_needs, make_plan, observation_of_reply
from plait.loops.references import EVIDENCE, words_in_formula
from plait.loops.registry import CheckedOptions
from plait.loops.rewoo.pages import by_model, plan_page, solve_page, work_page
from plait.loops.tool_descriptions import add_search_results

TRIES = 2
"""Plans that the planner may write before there is none."""

BEFORE_IT = "a step before it {}, and write the name of its evidence there, such as #E1."

SKIPPED: Literal["cancelled"] = "cancelled"
"""The trouble of a step that did not run."""


@dataclass(frozen=True)
class ReWOO(CheckedOptions):
    """ReWOO: plan all steps, run them, then answer.

    `fallback`: the loop to use if no plan can be made; "": fail instead. `on_failure`: after a failed step, continue (a
    tool step that needs its evidence is skipped, a model step gets "no evidence"), or stop. `constrain`: send the
    grammar of a plan with every request (otherwise only with a second attempt). `max_tokens`: limit for one reply.
    `plan`: a plan to run without asking the planner; steps with evidence do not run again. `only_plan`: answer with the
    plan. `max_plan_steps`: maximum steps of a plan (a small model may never stop writing). `stop`: the text at
    which the planner stops, in place of the step after the last one; "": none.
    """

    fallback: str = "react"
    on_failure: Literal["go_on", "stop"] = "go_on"
    constrain: bool = False
    max_tokens: int | None = None
    plan: Plan | None = None
    only_plan: bool = False
    max_plan_steps: int = 20
    stop: str | None = None

    name: ClassVar[str] = "rewoo"
    phases: ClassVar[tuple[str, ...]] = ("plan", "work", "solve")
    shared_prompts: ClassVar[tuple[str, ...]] = ("plan",)
    links_calls: ClassVar[bool] = True
    reserved: ClassVar[tuple[str, ...]] = (plan_text.LLM,)
    reply_words: ClassVar[tuple[str, ...]] = ("#E",)
    makes_plan: ClassVar[bool] = True
    acts_on_results: ClassVar[bool] = False

    plan_messages = staticmethod(plan_page)
    work_messages = staticmethod(work_page)
    solve_messages = staticmethod(solve_page)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        work = Dispatch(partial(self._begin_step, task, context))
        plan, chars = Plan(), context.observation_chars
        try:
            made = yield from make_plan(self, context, partial(self._ask_planner, task, context))
            if not isinstance(made, Plan):
                return made
            plan = made
            if failed := (yield from self._run_steps(task, context, plan, work)):
                return failed
            answer, chars = yield from fit_prompt(partial(self._solve, task, context, plan, work.results), chars)
            if isinstance(answer, Failed):
                return answer
            if not (against := (yield from check_answer(answer))):
                return Answered(answer)
            if not self.fallback:
                return Failed(against)
            why = f"The evidence does not give the answer. {against}"
            return (yield from fall_back(self.fallback, task, context, why))
        except LimitNear as limit:
            if self.only_plan:
                raise
            solve = partial(self._solve, task, context, plan, work.results, reason=limit.detail)
            answer, _ = yield from fit_prompt(solve, chars)
            return Stopped(limit.limit, limit.detail, None if isinstance(answer, Failed) else answer)

    def read_plan(self, text: str, context: LoopContext) -> Plan:
        return plan_text.read_plan(text, plan_text.with_llm(context.known_tools), self.max_plan_steps).plan

    def splitter(self, phase: str) -> Splitter:
        if phase == "plan":
            return plan_text.EvidencePlans(self.max_plan_steps).stream()
        return OneKind("answer" if phase == "solve" else "thought")

    def _ask_planner(self, task: Task, context: LoopContext, said: tuple[Message, ...]) -> Effects[Plan | Outcome]:
        """Ask the model for a plan, once more if it cannot run; then continue as the fallback loop."""
        head = (*plan_page(context, task), *said)
        stop = f"#E{self.max_plan_steps + 2}" if self.stop is None else self.stop
        codec, tools = plan_text.EvidencePlans(self.max_plan_steps), plan_text.with_llm(context.known_tools)

        def ask(bad: BadReply | None) -> Effects[Reply]:
            tail: tuple[Message, ...] = ()
            if bad:
                complaint = yield from add_search_results(context, bad.complaint)
                tail = bad.ask_again(context.prompt("repair", complaint=complaint))
            held = self.constrain or bool(bad)
            grammar = codec.grammar(plan_text.with_llm(context.tools)) if held else None
            options: dict[str, Any] = {"grammar": grammar, "max_tokens": self.max_tokens, "repair": bool(bad)}
            return (yield from think("plan", (*head, *tail), stop=filter(None, (stop,)), **options))

        def read(reply: Reply, miss: int) -> Effects[Plan]:
            def check(made: plan_text.PlanRead) -> Effects[None]:
                calls = [step for step in made.plan.calls if not by_model(context, step)]
                against, ungrounded = yield from _find_objection(context, calls)
                if against:
                    yield from note("unreadable", f"reply {miss} of {TRIES} can't be taken: {against}")
                    raise Rejected(against, strike_values(reply.text, ungrounded))

            made = yield from read_reply(reply, miss, partial(codec.read, tools=tools), check if miss < TRIES else None)
            return made.plan

        plan = yield from ask_until_read(ask, read, TRIES)
        if not isinstance(plan, Failed) or not self.fallback or self.only_plan:
            return plan
        return (yield from fall_back(self.fallback, task, context, f"There is no plan to carry out. {plan.reason}"))

    def _begin_step(self, task: Task, context: LoopContext, step: Step, results: Results) -> Think | Act | Observation:
        """Return a step's call with its references filled in, or an observation that says why it is not made."""
        if messages := work_page(context, task, step, results):
            return Think("work", messages, max_tokens=self.max_tokens)
        if missing := failed_needs(step, results):
            return Observation(f"It needs the evidence of {missing}, which gave none.", SKIPPED)
        return Act((Call(step.tool, EVIDENCE.fill_step(step, results)),), fixed=not step.needs)

    def _run_steps(self, task: Task, context: LoopContext, plan: Plan, work: Dispatch) -> Effects[Failed | None]:
        """Run the plan's calls; return `Failed` if one failed and the run must stop."""
        yield from work.add_plan(plan)
        while work.open:
            try:
                step = yield from work.end_with((yield from wait_next(*work.open)))
            except ContextOverflow as why:
                if why.ticket is None:  # of the rest of a paused turn
                    raise
                step = work.open[why.ticket]
                seen = yield from self._ask_with_less(task, context, step, work.results)
                yield from work.end(why.ticket, seen)
            seen = work.results[step.id]
            if not seen.ok and self.on_failure == "stop":
                return Failed(f"Step {step.id} ({step.tool}) gave no evidence: {seen.text}")
        for step in plan.calls:
            if (seen := work.results[step.id]).trouble == SKIPPED:
                yield from note("skipped", f"Step {step.id} was not run. {seen.text}")
        return None

    def _ask_with_less(self, task: Task, context: LoopContext, step: Step, results: Results) -> Effects[Observation]:
        """Ask the model again, with less evidence, for a step whose prompt was too long."""

        def ask(chars: int) -> Effects[Reply]:
            return think("work", work_page(context, task, step, results, chars), max_tokens=self.max_tokens)

        try:
            reply, _ = yield from fit_prompt(ask, max(SMALLEST_OBSERVATION, context.observation_chars // 4))
            return observation_of_reply(reply)
        except ContextOverflow as still:
            return Observation(f"Error: {still}", "raised")

    def _solve(
        self, task: Task, context: LoopContext, plan: Plan, results: Results, chars: int, reason: str = ""
    ) -> Effects[str | Failed]:
        messages = solve_page(context, task, plan, results, chars, reason)

        def ask(tail: tuple[Message, ...], **options: Any) -> Effects[Reply]:
            return think("solve", (*messages, *tail), **options)

        return ask_for_answer(context, ask, concluding=bool(reason), max_tokens=self.max_tokens)


def _find_objection(context: LoopContext, steps: list[Step]) -> Effects[tuple[str, tuple[str, ...]]]:
    """Return the objection to the calls of a plan, "" for none, and the invented values in it."""
    problems = ((step.id, context.find_problem(step.tool, step.input, EVIDENCE.is_open)) for step in steps)
    if wrong := " ".join(f"#{id} {problem}" for id, problem in problems if problem):
        return wrong, ()
    for step in steps:
        if found := (yield from find_ungrounded(calls=(Call(step.tool, EVIDENCE.without(step.input)),))):
            look_up = BEFORE_IT.format("look that up")
            return f"In #{step.id} is made up what nothing has given: {', '.join(found)}. Let {look_up}", found
        tool = context.tool(step.tool)
        if tool is not None and tool.computes and (words := words_in_formula(step.input, EVIDENCE)):
            find = BEFORE_IT.format("find that with another tool")
            return f"In #{step.id} words stand in a formula: {', '.join(words)}. Let {find}", ()
    return "", ()
