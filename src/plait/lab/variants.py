"""Loops with their models: what is compared. A row of the table is one variant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from plait.core import Strategy
from plait.core.errors import UsageError
from plait.loops import OURS, loop_from, make, parse_loops, phases_of, word_of
from plait.models.base import Model

AnyModel: TypeAlias = str | Model


@dataclass(frozen=True)
class Variant:
    """A loop with options, and a model for each phase ("" for all that are not named)."""

    loop: Strategy
    models: Mapping[str, AnyModel]

    @property
    def strategy(self) -> str:
        """The loop as the table names it, with the options that are not its usual ones: `react(dialect=lines)`."""
        return word_of(self.loop)

    @property
    def specs(self) -> dict[str, str]:
        """The model of each phase by name."""
        return {phase: spec_of(self.models.get(phase, self.models.get(""))) for phase in self.loop.phases}

    @property
    def who(self) -> str:
        """The models in words: one name, or `phase=name` for each phase."""
        specs = self.specs
        if len(set(specs.values())) == 1:
            return next(iter(specs.values()))
        return " ".join(f"{phase}={spec}" for phase, spec in specs.items())

    @property
    def key(self) -> str:
        """What tells variants apart."""
        return f"{self.strategy} @ {self.who}"


def spec_of(model: AnyModel | None) -> str:
    """A model as it is named."""
    return model if isinstance(model, str) else "" if model is None else model.spec


def variants(
    loops: Iterable[str | Strategy] | str = "react",
    models: Iterable[AnyModel] | AnyModel = "local",
    phases: Mapping[str, Iterable[AnyModel] | AnyModel] | None = None,
) -> tuple[Variant, ...]:
    """Each loop with each model, and where phases have models of their own with each combination of these.

    `loops`: words such as `react` or `react(dialect=lines)`, loops as objects, or "all". A loop without a phase that
    is named is compared once, not once for each of that phase's models. Raises `UsageError` for a phase that none has.
    """
    made = tuple(_loops(loops))
    general = _several(models)
    single = {phase: _several(each) for phase, each in (phases or {}).items()}
    known = {phase for loop in made for phase in phases_of(loop)}
    for phase in single:
        if phase not in known:
            near = difflib.get_close_matches(phase, sorted(known), 1)
            raise UsageError(
                f"None of these loops has a phase '{phase}'.",
                hint=f"Did you mean {near[0]}?" if near else f"They have: {', '.join(sorted(known))}.",
            )
    found: dict[str, Variant] = {}
    for loop in made:
        own = [phase for phase in single if phase in phases_of(loop)]
        for model in general:
            for chosen in product(*(single[phase] for phase in own)):
                variant = Variant(loop, {"": model, **dict(zip(own, chosen, strict=True))})
                found.setdefault(variant.key, variant)
    if not found:
        raise UsageError("There is nothing to compare.", hint="Name at least one loop and one model.")
    return tuple(found.values())


def _loops(loops: Iterable[str | Strategy] | str) -> Iterable[Strategy]:
    for each in parse_loops(loops) if isinstance(loops, str) else loops:
        if isinstance(each, str) and each == "all":
            yield from (make(name) for name in OURS)
        elif isinstance(each, str):
            yield loop_from(each)
        else:
            yield each


def _several(given: Iterable[AnyModel] | AnyModel) -> Sequence[AnyModel]:
    if isinstance(given, str):
        return [each.strip() for each in given.split(",") if each.strip()]
    return [given] if isinstance(given, Model) else list(given)
