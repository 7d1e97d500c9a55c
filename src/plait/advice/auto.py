"""`Agent("auto", results=...)`: the loop and its models are taken from advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from plait.advice.choosing import Advice, Demand, advise
from plait.core import Strategy
from plait.core.errors import UsageError
from plait.loops import loop_from
from plait.models.base import Model
from plait.runtime.described import Usual


class Undecided(Protocol):
    """What of an agent is chosen, and what it is chosen by."""

    @property
    def strategy(self) -> str | Strategy: ...
    @property
    def model(self) -> str | Model: ...
    @property
    def models(self) -> Mapping[str, str | Model]: ...
    @property
    def results(self) -> Any: ...
    @property
    def demand(self) -> Demand | None: ...
    @property
    def journal(self) -> Any: ...


def settled(agent: Undecided) -> dict[str, Any]:
    """The fields of an agent as they are once its loop is chosen: `results` is the advice from there on.

    Only rows with the models that the agent names are taken. Raises `UsageError` where none meets the demand, where
    there are no results, and for results and a demand beside a loop that is given.
    """
    given = agent.results
    if agent.strategy != "auto":
        if isinstance(given, Advice) and agent.demand == given.demand:
            return {}  # chosen before, and changed since
        raise UsageError(
            "Results and a demand are what a loop is chosen by, and this agent has one.",
            hint='Leave them out, or choose with strategy="auto".',
        )
    if given is None:
        raise UsageError(
            'The loop "auto" is chosen from the results of a comparison, and there are none.',
            hint="Give results=FILE; on the command line --results FILE.",
        )
    models = dict(agent.models)
    model = None if isinstance(agent.model, Usual) else agent.model
    if isinstance(given, Advice) and _holds(given, None, agent.model, models):
        model, models = None, {}  # they are what the advice said, not what the user asks for
    # Phases of a loop that is fallen back to are in no row.
    only = {phase: spec_of(each) for phase, each in models.items() if "." not in phase}
    if model is not None:
        only.setdefault("", spec_of(model))
    demand = agent.demand or (given.demand if isinstance(given, Advice) else Demand())
    advice = advise(given, demand, only=only or None, journal=agent.journal or None)
    if advice.chosen is None:
        raise UsageError(str(advice).replace("\n", " "), hint="Ask for less, or compare more loops and models.")
    row = advice.chosen.row
    objects = {spec_of(each): each for each in (agent.model, *agent.models.values()) if not isinstance(each, str)}
    taken = {phase: objects.get(spec, spec) for phase, spec in row.models.items()}
    one = next(iter(taken.values())) if len(set(row.models.values())) == 1 else None
    return {
        "strategy": loop_from(row.strategy),
        "model": one if one is not None else agent.model,
        "models": {**(taken if one is None else {}), **models},
        "results": advice,
        "demand": advice.demand,
    }


def held(advice: Any, loop: Strategy, model: str | Model, models: Mapping[str, str | Model]) -> Advice | None:
    """The advice, if loop and models are still those that it names."""
    return advice if isinstance(advice, Advice) and _holds(advice, loop, model, models) else None


def _holds(advice: Advice, loop: Strategy | None, model: str | Model, models: Mapping[str, str | Model]) -> bool:
    if advice.chosen is None:
        return False
    row = advice.chosen.row
    told, general = loop_from(row.strategy), models.get("", model)
    same = all(spec_of(models.get(phase, general)) == row.model_of(phase) for phase in told.phases)
    return same and loop in (None, told)


def spec_of(model: str | Model) -> str:
    """A model as it is named."""
    return str(model) if isinstance(model, str) else model.spec
