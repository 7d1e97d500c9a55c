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
    Answered,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    OneKind,
    Plan,
    Reply,
    Splitter,
    Stopped,
    Task,
    check_answer,
    think,
)
from plait.loops.asking import ask_for_answer
from plait.loops.compaction import fit_prompt
from plait.loops.fallback import fall_back
from plait.loops.options import check_options
from plait.loops.plan import Dispatch, Results, make_plan
from plait.loops.plan_scan import PlanSplitter
from plait.loops.plan_text import LLM, read_plan, with_llm
from plait.loops.registry import check_fallback
from plait.loops.rewoo.pages import plan_page, solve_page, work_page
from plait.loops.rewoo.turns import ask_planner, begin_step, run_steps


@dataclass(frozen=True)
class ReWOO:
    """ReWOO: plan all steps, run them, then answer.

    `fallback`: the loop to use if no plan can be made; "": fail instead. `on_failure`: after a failed step, continue (a
    tool step that needs its evidence is skipped, a model step gets "no evidence"), or stop. `constrain`: send the
    grammar of a plan with every request (otherwise only with a second attempt). `max_tokens`: limit for one reply.
    `plan`: a plan to run without asking the planner; steps with evidence do not run again. `only_plan`: answer with the
    plan. `max_steps`: maximum calls in a planner's plan (a small model may never stop writing). `stop`: the text at
    which the planner stops, in place of the step after the last one; "": none.
    """

    fallback: str = "react"
    on_failure: Literal["go_on", "stop"] = "go_on"
    constrain: bool = False
    max_tokens: int | None = None
    plan: Plan | None = None
    only_plan: bool = False
    max_steps: int = 20
    stop: str | None = None

    name: ClassVar[str] = "rewoo"
    phases: ClassVar[tuple[str, ...]] = ("plan", "work", "solve")
    reserved: ClassVar[tuple[str, ...]] = (LLM,)
    reply_words: ClassVar[tuple[str, ...]] = ("#E",)
    makes_plan: ClassVar[bool] = True
    acts_on_results: ClassVar[bool] = False

    plan_messages = staticmethod(plan_page)
    work_messages = staticmethod(work_page)
    solve_messages = staticmethod(solve_page)

    def __post_init__(self) -> None:
        check_options(self)
        check_fallback(self.fallback)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        work = Dispatch(partial(begin_step, self, task, context))
        plan, chars = Plan(), context.observation_chars
        try:
            made = yield from make_plan(self, context, partial(ask_planner, self, task, context))
            if not isinstance(made, Plan):
                return made
            plan = made
            if failed := (yield from run_steps(self, task, context, plan, work)):
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
        return read_plan(text, with_llm(context.known_tools), self.max_steps).plan

    def splitter(self, phase: str) -> Splitter:
        if phase == "plan":
            return PlanSplitter()
        return OneKind("answer" if phase == "solve" else "thought")

    def _solve(
        self, task: Task, context: LoopContext, plan: Plan, results: Results, chars: int, reason: str = ""
    ) -> Effects[str | Failed]:
        messages = solve_page(context, task, plan, results, chars, reason)

        def ask(tail: tuple[Message, ...], **options: Any) -> Effects[Reply]:
            return think("solve", (*messages, *tail), **options)

        return ask_for_answer(context, ask, repair=bool(reason), max_tokens=self.max_tokens)
