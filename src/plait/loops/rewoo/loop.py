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
    Observation,
    OneKind,
    Plan,
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
from plait.loops.fallback import fall_back
from plait.loops.plan import Dispatch, Results, failed_needs, observation_of_reply
from plait.loops.references import EVIDENCE
from plait.loops.registry import check_options
from plait.loops.rewoo import plan_text
from plait.loops.rewoo.pages import by_model, plan_page, solve_page, work_page
from plait.loops.rewoo.planner import ask_planner, make_plan
from plait.loops.rewoo.scan import PlanSplitter
from plait.loops.turn import SMALLEST_OBSERVATION, fit_prompt


@dataclass(frozen=True)
class ReWOO:
    """ReWOO: plan all steps, run them, then answer.

    `fallback`: the loop to use if no plan can be made; "": fail instead. `on_failure`: after a failed step, continue (a
    tool step that needs its evidence is skipped, a model step gets "no evidence"), or stop. `constrain`: send the
    grammar of a plan with every request (otherwise only with a second attempt). `max_tokens`: limit for one reply.
    `plan`: a plan to run without asking the planner; steps with evidence do not run again. `only_plan`: answer with the
    plan. `max_steps`: maximum calls in a planner's plan (a small model may never stop writing).
    """

    fallback: str = "react"
    on_failure: Literal["go_on", "stop"] = "go_on"
    constrain: bool = False
    max_tokens: int | None = None
    plan: Plan | None = None
    only_plan: bool = False
    max_steps: int = 20

    name: ClassVar[str] = "rewoo"
    phases: ClassVar[tuple[str, ...]] = ("plan", "work", "solve")
    reserved: ClassVar[tuple[str, ...]] = (plan_text.LLM,)
    reply_words: ClassVar[tuple[str, ...]] = ("#E",)
    makes_plan: ClassVar[bool] = True

    plan_messages = staticmethod(plan_page)
    work_messages = staticmethod(work_page)
    solve_messages = staticmethod(solve_page)

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        work = Dispatch(partial(self._begin, context, task))
        plan, chars = Plan(), context.observation_chars
        try:
            made = yield from make_plan(self, context, partial(ask_planner, self, task, context))
            if not isinstance(made, Plan):
                return made
            plan = made
            work.results.update((id, Observation(text)) for id, text in plan.evidence.items())
            if failed := (yield from self._work(context, task, plan, work)):
                return failed
            answer, chars = yield from fit_prompt(partial(self._solve, context, task, plan, work.results), chars)
            if not answer:
                return Failed("The solver's reply is empty.", kind="format")
            if not (against := (yield from check_answer(answer))):
                return Answered(answer)
            if not self.fallback:
                return Failed(against)
            why = f"The evidence does not give the answer. {against}"
            return (yield from fall_back(self.fallback, task, context, why))
        except LimitNear as limit:
            if self.only_plan:
                raise
            solve = partial(self._solve, context, task, plan, work.results, reason=limit.detail)
            answer, _ = yield from fit_prompt(solve, chars)
            return Stopped(limit.limit, limit.detail, answer or None)

    def read_plan(self, text: str, context: LoopContext) -> Plan:
        return plan_text.read_plan(text, context.known, self.max_steps).plan

    def splitter(self, phase: str) -> Splitter:
        if phase == "plan":
            return PlanSplitter()
        return OneKind("answer" if phase == "solve" else "thought")

    # -- work

    def _work(self, context: LoopContext, task: Task, plan: Plan, work: Dispatch) -> Effects[Failed | None]:
        """Run the plan's calls; return `Failed` if one failed and the run must stop."""
        yield from work.add(*plan.calls)
        while work.open:
            try:
                step = yield from work.end_with((yield from wait_next(*work.open)))
            except ContextOverflow as why:
                step = yield from self._less(context, task, work, why)
            seen = work.results[step.id]
            if not seen.ok and self.on_failure == "stop":
                return Failed(f"Step {step.id} ({step.tool}) gave no evidence: {seen.text}")
        for step in plan.calls:
            if step.id not in plan.evidence and not by_model(context, step) and any(failed_needs(step, work.results)):
                yield from note("skipped", f"Step {step.id} was not run. {work.results[step.id].text}")
        return None

    def _begin(self, context: LoopContext, task: Task, step: Step, results: Results) -> Think | Act | Observation:
        """Return a step's call with its references filled in, or an observation that says why it is not made."""
        if messages := self.work_messages(context, task, step, results):
            return Think("work", messages, max_tokens=self.max_tokens)
        if missing := list(failed_needs(step, results)):
            # Never call a tool with a placeholder for a missing result: it could act on it.
            return Observation(f"It needs the evidence of {', '.join(missing)}, which gave none.", "cancelled")
        return Act((Call(step.tool, EVIDENCE.fill_step(step, results)),))

    def _less(self, context: LoopContext, task: Task, work: Dispatch, why: ContextOverflow) -> Effects[Step]:
        """Ask the model again, with less evidence, for a step whose prompt was too long."""
        assert why.ticket is not None
        step = work.open[why.ticket]

        def again(size: int) -> Effects[Any]:
            messages = self.work_messages(context, task, step, work.results, size)
            return think("work", messages, max_tokens=self.max_tokens)

        try:
            reply, _ = yield from fit_prompt(again, max(SMALLEST_OBSERVATION, context.observation_chars // 4))
            seen = observation_of_reply(reply)
        except ContextOverflow as still:
            seen = Observation(f"Error: {still}", "raised")
        return (yield from work.end(why.ticket, seen))

    # -- solve

    def _solve(
        self, context: LoopContext, task: Task, plan: Plan, results: Results, chars: int, reason: str = ""
    ) -> Effects[str]:
        messages = self.solve_messages(context, task, plan, results, chars, reason)
        reply = yield from think("solve", messages, max_tokens=self.max_tokens, repair=bool(reason))
        return reply.text.strip()
