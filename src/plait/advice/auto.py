"""`Agent("auto", results=...)`: advice chooses the loop and its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from plait.advice.choose import Advice, Demand, advise
from plait.core import Loop
from plait.core.errors import ConfigError
from plait.loops import loop_from
from plait.models.base import Model
from plait.runtime.agent_description import Usual


class UndecidedAgent(Protocol):
    """The fields of an agent that advice reads or chooses."""

    @property
    def loop(self) -> str | Loop: ...
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


def choose_fields(agent: UndecidedAgent) -> dict[str, Any]:
    """Return the fields of an agent after its loop is chosen; `results` is then the advice.

    Only rows with the models that the agent names count. Raises `ConfigError` if none meets the demand, if there are no
    results, and if results or a demand are given with a loop.
    """
    given = agent.results
    if agent.loop != "auto":
        if isinstance(given, Advice) and agent.demand == given.demand:
            return {}  # chosen before, and changed afterwards
        raise ConfigError(
            "Results and a demand are what a loop is chosen by, and this agent has one.",
            hint='Leave them out, or choose with loop="auto".',
        )
    if given is None:
        raise ConfigError(
            'The loop "auto" is chosen from the results of a comparison, and there are none.',
            hint="Give results=FILE; on the command line --results FILE.",
        )
    models = dict(agent.models)
    model = None if isinstance(agent.model, Usual) else agent.model
    if isinstance(given, Advice) and _is_followed(given, None, agent.model, models):
        model, models = None, {}  # the advice named them, not the user
    # Rows do not have the phases of a loop that a run may fall back to.
    only = {phase: _spec(each) for phase, each in models.items() if "." not in phase}
    if model is not None:
        only.setdefault("", _spec(model))
    demand = agent.demand or (given.demand if isinstance(given, Advice) else Demand())
    advice = advise(given, demand, only=only or None, journal=agent.journal or None)
    if advice.chosen is None:
        raise ConfigError(str(advice).replace("\n", " "), hint="Ask for less, or compare more loops and models.")
    row = advice.chosen.row
    objects = {_spec(each): each for each in (agent.model, *agent.models.values()) if not isinstance(each, str)}
    taken = {phase: objects.get(spec, spec) for phase, spec in row.models.items()}
    one = next(iter(taken.values())) if len(set(row.models.values())) == 1 else None
    return {
        "loop": loop_from(row.loop),
        "model": one if one is not None else agent.model,
        "models": {**(taken if one is None else {}), **models},
        "results": advice,
        "demand": advice.demand,
    }


def find_followed(advice: Any, loop: Loop, model: str | Model, models: Mapping[str, str | Model]) -> Advice | None:
    """Return the advice if the agent still has the loop and models that it names."""
    return advice if isinstance(advice, Advice) and _is_followed(advice, loop, model, models) else None


def _is_followed(advice: Advice, loop: Loop | None, model: str | Model, models: Mapping[str, str | Model]) -> bool:
    if advice.chosen is None:
        return False
    row = advice.chosen.row
    chosen, general = loop_from(row.loop), models.get("", model)
    same = all(_spec(models.get(phase, general)) == row.model_of(phase) for phase in chosen.phases)
    return same and loop in (None, chosen)


def _spec(model: str | Model) -> str:
    return str(model) if isinstance(model, str) else model.spec
