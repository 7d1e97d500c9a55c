"""The methods of `Agent` about plans: to make one, to price it, and to run it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from plait.agent_parts import AgentParts
from plait.core import Event, Loop, Plan, ToolSpec
from plait.journal.timeline import Timeline
from plait.run_maker import RunMaker
from plait.runtime.agents.agent_fields import AgentFields
from plait.runtime.agents.output import OutputT
from plait.runtime.background import run_blocking
from plait.runtime.calls.context import DepsT
from plait.runtime.conversations.sessions import session_spec

if TYPE_CHECKING:
    from plait.agent import Agent
    from plait.runtime.planning.plan_estimate import Expected
    from plait.runtime.planning.plans import Planned


class AgentPlans(AgentFields[DepsT, OutputT]):
    """An agent, as far as it plans."""

    if TYPE_CHECKING:
        arun: Any
        using: Any

        @property
        def _loop(self) -> Loop: ...
        @property
        def _parts(self) -> AgentParts: ...
        @property
        def _runs(self) -> RunMaker: ...
        @property
        def specs(self) -> tuple[ToolSpec, ...]: ...

    def plan(self, question: str) -> Planned:
        """Ask only the planner, blocking. Returns the plan, its estimated cost, and the run that asked.

        Works for `rewoo` and other loops that are a `plait.loops.plan.Planner`. To run the plan, edited or not, call
        `agent.with_plan(plan).run(...)`. Raises `ConfigError` for other loops.
        """
        return run_blocking(self.aplan(question))

    async def aplan(
        self, question: str, *, session: str | None = None, on_event: Callable[[Event], None] | None = None
    ) -> Planned:
        """Ask only the planner. See `plan`."""
        from plait.runtime.planning.plans import Planned, planning

        loop = replace(planning(self._loop), plan=None, only_plan=True)
        await self._parts.load_tools()
        planner = self.using(loop=loop, tools=self._parts.all_tools, output=str)
        run = await planner.arun(question, session=session, on_event=on_event)
        if run.status != "answered":
            return Planned(None, None, run)
        plan = msgspec.convert(run.answer, Plan)
        timeline = await asyncio.to_thread(getattr, run, "timeline")
        return Planned(plan, await planner._estimate(question, plan, timeline), run)

    def estimate(self, question: str, plan: Plan | str, planned_in: Timeline | None = None) -> Expected:
        """Estimate the calls, tokens and USD that a plan will take (see `runtime/planning/plan_estimate.py`).

        `planned_in` is the run that made the plan; its planner call gives the tokens per character. The journal's last
        runs give the lengths of results and replies.
        """
        return run_blocking(self._estimate(question, plan, planned_in or Timeline()))

    async def _estimate(self, question: str, plan: Plan | str, planned_in: Timeline) -> Expected:
        from plait.runtime.planning import plan_estimate, plans

        shown = await asyncio.to_thread(self._parts.choose_tools, question)
        run_spec = await self._runs.make_run_spec(question, shown=shown)
        loop, checked = plans.planning(self._loop), plans.plan_of(plan, self.known_to(plan))
        seen = await plan_estimate.seen_in(self._parts.store, loop.name)
        return plan_estimate.estimate_plan(
            loop, run_spec.context, run_spec.task, checked, run_spec.phases, planned_in, seen
        )

    def with_plan(self, plan: Plan | str) -> Agent[DepsT, OutputT]:
        """Return the same agent with a plan to run: a `Plan`, the printed text, or JSON.

        Steps that have evidence in the plan are not run again. Raises `ConfigError` for a plan that does not fit these
        tools.
        """
        from plait.runtime.planning.plans import plan_of, planning

        loop = replace(planning(self._loop), plan=plan_of(plan, self.known_to(plan)))
        agent: Agent[DepsT, OutputT] = self.using(loop=loop, tools=self._parts.all_tools)
        return agent

    def known_to(self, plan: Plan | str) -> tuple[ToolSpec, ...]:
        """Return the tools that a plan may name.

        These are the agent's, the model (`LLM`) if the loop has a phase `work`, and the session's search tool if the
        plan uses it.
        """
        from plait.loops.plan import list_callable

        history = session_spec()
        uses = history.name in (plan if isinstance(plan, str) else {step.tool for step in plan.steps})
        return list_callable(self._loop, (*self.specs, history) if uses else self.specs)
