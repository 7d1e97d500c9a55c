"""Makes the guards of a run: those that its policies ask for, joined with those of the run above it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plait.core import LimitNear
from plait.core.errors import ModelError
from plait.core.loop import HISTORY
from plait.runtime.agents.agent_fields import list_hooks
from plait.runtime.calls.context import Context
from plait.runtime.chain import raise_named
from plait.runtime.grounding import sources_of
from plait.runtime.guard import GUARD_PARTS, USERS, EndedByRefusal, Entry, Guard, LimitReached
from plait.runtime.guards.approvals import ApprovalsGuard
from plait.runtime.guards.background import BackgroundGuard
from plait.runtime.guards.claims import ClaimsGuard, ClaimsNote
from plait.runtime.guards.grounding import GroundingGuard, SourcesGuard
from plait.runtime.guards.hooks import HookedRun, InheritedHookGuard, guard_hook
from plait.runtime.guards.hosted_calls import HostedCallsGuard
from plait.runtime.guards.limits import LimitGuard
from plait.runtime.guards.loop_breaker import LoopBreaker
from plait.runtime.guards.output_check import make_output_guards
from plait.runtime.guards.spending import SpendGuard
from plait.runtime.guards.taint import TaintGuard
from plait.runtime.phase_models import Phases
from plait.runtime.reviewer import Reviewer, ReviewVerdict, read_verdict

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


def make_guards(engine: Engine, *, is_child: bool) -> list[Guard]:
    """Return the guards of a run. A child run obeys its own and those of all runs above it; a run that a tool makes by
    itself obeys its own, and the limits of the run whose tool that is."""
    spec, agent = engine.run_spec, engine.run_spec.agent
    context, limits, past = spec.context, agent.limits, spec.past
    repeats = agent.on_interrupted_call == "repeat"

    def make_context(entry: Entry, deps: Any = spec.deps) -> Context[Any]:
        return Context(deps, entry.run, entry.step, spec.session, user=engine.user)

    def is_near() -> bool:
        return engine.near is not None

    async def ask_reviewer(entry: Entry, reviewer: Reviewer) -> ReviewVerdict:
        assert entry.tool is not None
        think = reviewer.ask(spec.task.question, entry.effect, entry.tool.spec, entry.outside)
        try:
            phases = Phases({"": spec.find_model(reviewer.model)})
            reply = await engine.performers.model.ask_for_tool(entry, think, phases, Counter())
        except (LimitNear, LimitReached, EndedByRefusal, ModelError) as why:
            return ReviewVerdict("ask", f"it could not be asked ({why})")
        return read_verdict(reply.text)

    hooked = HookedRun(make_context, spec.deps, spec.tools.with_own_name, spec.output, is_near)
    own: list[Guard] = [
        LoopBreaker(limits.repeats),
        LimitGuard(limits, engine.tally, engine.clock, spec.phases.of),
        *make_output_guards(spec.output, make_context, is_near),
        TaintGuard(agent.taint, spec.outside),
        ApprovalsGuard(
            (agent.approve,),
            spec.tools,
            engine.binder,
            engine.log.scrub,
            repeats=repeats,
            is_damaged=bool(past.lost),
            calls_in_doubt=past.calls_in_doubt,
            session_calls=past.session_calls,
            ask_reviewer=ask_reviewer,
        ),
    ]
    if spec.tools.has_background:
        own.append(BackgroundGuard(lambda: engine.performers.tools.background.wait(), is_near))
    above = engine.parent.chain.guards if engine.parent is not None else []
    if agent.spend or (above and any(guard.name == "spend" for guard in above)):
        is_new, tally, scrub = not past.rows, engine.tally, engine.log.scrub
        own.append(SpendGuard(agent.spend, engine.store, tally, engine.head, scrub, is_child=is_child, is_new=is_new))
    for each in list_hooks(agent):
        if isinstance(each, Guard):
            try:
                own.append(each.start(Context(spec.deps, engine.run_id, 0, spec.session, user=engine.user)))
            except BaseException as why:
                raise_named(each, why)
        else:
            own += guard_hook(each, hooked)
    if agent.grounding != "off":
        sources = SourcesGuard(sources_of(spec.task, context.system, context.instructions), context)
        others = [tool.name for tool in spec.tools]
        own += (
            sources,
            GroundingGuard(
                agent.grounding,
                sources,
                context,
                others=others,
                fits=spec.output.fits,
                repeats=limits.repeats,
                find_near=lambda: engine.near,
            ),
        )
    if agent.claims != "off":
        made = [call.tool for turn in spec.task.history for call in turn.calls]
        if context.tool(HISTORY) is not None:  # calls of earlier turns are left out
            made = [tool.name for tool in context.known_tools]
        guard_claims = ClaimsNote if agent.claims == "note" else ClaimsGuard
        own.append(guard_claims(agent.claims, context.known_tools, made, is_near))
    if engine.parent is not None:
        own = join_guards(above if is_child else [guard for guard in above if guard.name in ("limits", "spend")], own)
        for guard in own:
            if isinstance(guard, InheritedHookGuard):  # its dependencies are those of the run that it comes from
                guard.run = replace(hooked, deps=guard.run.deps)
    if spec.phases.have_hosted:
        own.append(HostedCallsGuard(own, repeats=repeats))
    return own


def join_guards(above: Iterable[Guard], own: Iterable[Guard]) -> list[Guard]:
    """Return the guards of a child run: its own, joined with those of the run above it."""
    joined = {guard.name: guard for guard in own}
    for guard in above:
        mine = joined.get(guard.name)
        found = guard.for_child(mine)
        if found is guard and mine is not None:  # both hold
            found = InheritedGuard(guard)
        if found is not None:
            joined[found.name] = found
    return list(joined.values())


class InheritedGuard(Guard):
    """A user's guard of a run above, under another name: the child run has a guard of its name, too."""

    order = USERS - 1.0

    def __init__(self, guard: Guard) -> None:
        self._name = f"^{guard.name}"
        for name in GUARD_PARTS:
            setattr(self, name, getattr(guard, name))

    @property
    def name(self) -> str:
        return self._name
