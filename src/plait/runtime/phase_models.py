"""The models of a run's phases, and what their endpoints cannot do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec import convert, structs

from plait.core import Loop, Task, Think
from plait.core.errors import ConfigError
from plait.journal.records import RunHead
from plait.loops.compaction import COMPACT
from plait.loops.escape import without_tokens
from plait.loops.registry import write_reply
from plait.models.base import Model
from plait.models.fallback import described_members, join_models, members_of
from plait.models.rejections import read_rejections, without_rejected
from plait.models.settings import ModelSettings, choose_settings, takes_settings


class Phases:
    """The model of each phase, without the abilities that its endpoint refused in this run.

    A phase may have fallback models (`a|b`). It asks the first one that the run did not leave. A model that could not
    be used stays left for the rest of the run, in all phases.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models: dict[str, tuple[Model, ...]] = {phase: members_of(model) for phase, model in models.items()}
        self._left: set[str] = set()
        self._now: dict[str, Model] = {}
        """The model of each phase, until one is left or loses an ability."""

    def of(self, phase: str) -> Model:
        """Return the model that a phase asks now: its own, or the one for all (key "")."""
        if (now := self._now.get(phase)) is None:
            members = self._members(phase)
            now = self._now[phase] = next((each for each in members if each.spec not in self._left), members[-1])
        return now

    def find_model(self, phase: str, spec: str) -> Model:
        """Return a phase's model by its spec; the one that it asks now if it has no model of that spec."""
        for each in self._members(phase):
            if each.spec == spec:
                return each
        return self.of(phase)

    def fallback(self, phase: str, model: Model) -> Model | None:
        """Return what a phase asks if this model of it cannot be used; None if there is nothing else."""
        left = {*self._left, model.spec}
        return next((each for each in self._members(phase) if each.spec not in left), None)

    def fit_to_run(self, loop: Loop, task: Task) -> None:
        """Tell scripted models how the loop writes calls and answers, and what was said before the run."""
        said = [text for turn in task.history for text in (turn.question, turn.answer)]
        fitting = partial(write_reply, loop), (*said, task.question) if said else ()
        for phase, members in self._models.items():
            fits = [(each, getattr(type(each), "for_run", None)) for each in members]  # a model that wraps one stays
            self._models[phase] = tuple(each if fit is None else fit(each, *fitting) for each, fit in fits)
        self._now.clear()

    def leave(self, spec: str) -> None:
        """Ask this model no more in this run, where a phase has another one."""
        self._left.add(spec)
        self._now.clear()

    def lost(self, spec: str, ability: str) -> None:
        """Remove an ability that a model's endpoint refused."""
        for phase, members in self._models.items():
            self._models[phase] = tuple(each.without(ability) if each.spec == spec else each for each in members)
        self._now.clear()

    @property
    def context_tokens(self) -> int:
        """Return the smallest known context of the models, in tokens; 0 if none is known."""
        sizes = [getattr(each, "context_tokens", 0) for members in self._models.values() for each in members]
        return min(filter(None, sizes), default=0)

    @property
    def have_hosted(self) -> bool:
        """Return whether a model has tools that its provider runs by itself."""
        return any(getattr(each, "hosted", ()) for members in self._models.values() for each in members)

    def _members(self, phase: str) -> tuple[Model, ...]:
        own = phase.rpartition(".")[2] if phase.endswith(COMPACT) else phase
        members = self._models.get(phase) or self._models.get(own) or self._models.get("")
        if members is None and ("." in phase or phase == COMPACT):
            # Compaction, or a loop that another fell back to, where only the loop's phases were given models.
            members = next(iter(self._models.values()), None)
        if members is None:
            hint = "Give model=..., or one for this phase in models={...}."
            raise ConfigError(f"The phase '{phase}' has no model.", hint=hint)
        return members

    def models_of(self, phases: Iterable[str]) -> tuple[Model, ...]:
        """Return every model that these phases may ask, each once."""
        return tuple({each.spec: each for phase in phases for each in self._members(phase)}.values())

    def secrets(self) -> tuple[str, ...]:
        """Return what must never be stored."""
        return tuple({secret for members in self._models.values() for each in members for secret in each.secrets})

    def describe(self) -> dict[str, dict[str, object]]:
        """Return what the journal stores of each phase's model."""
        return {phase: join_models(members).describe() for phase, members in self._models.items()}

    def spec(self, phase: str) -> str:
        """Return a phase's model as the user wrote it, with its fallback models."""
        return join_models(self._members(phase)).spec


def models_of_run(
    models: Mapping[str, Model], head: RunHead | None, *, asks_for_tools: bool, replay: bool = False
) -> dict[str, Model]:
    """Return the models as a run starts with them.

    Those of a recorded run have its wire, abilities and settings; in a `replay` they only lack what their endpoints had
    rejected before it. The others lack what their endpoints rejected in earlier runs (`rejections.without_rejected`).
    """
    found: dict[str, Model] = {}
    if head is None:
        rejections = read_rejections()
        return {
            phase: without_rejected(each, rejections, asks_for_tools=asks_for_tools) for phase, each in models.items()
        }
    for phase, model in models.items():
        said = head.models.get(phase, {})
        if said.get("spec") == model.spec:
            pairs = zip(members_of(model), described_members(said), strict=True)
            change = _without_learned if replay else _as_recorded
            found[phase] = join_models(tuple(change(*pair) for pair in pairs))
        elif replay:
            found[phase] = model
        else:
            found[phase] = without_rejected(model, read_rejections(), asks_for_tools=asks_for_tools)
    return found


def _as_recorded(model: Model, said: Mapping[str, Any]) -> Model:
    if as_recorded := getattr(model, "as_recorded", None):
        model = as_recorded(said)
    if takes_settings(model) and "settings" in said:  # plait.toml may have changed; the journal has no headers
        recorded = convert(said["settings"], ModelSettings)
        model = structs.replace(model, settings=choose_settings(name=model.settings, recorded=recorded))
    if as_recorded:
        return model
    for ability, able in said.get("abilities", {}).items():
        if not able and getattr(model.abilities, ability, False):
            model = model.without(ability)
    return model


def _without_learned(model: Model, said: Mapping[str, Any]) -> Model:
    """Return the model without the abilities that the recorded one lacked although nobody had stated that."""
    if not model.endpoint:  # a local model's file, which says what it can do, may be missing
        return cast(Model, model.as_recorded(said)) if hasattr(model, "as_recorded") else model
    stated = {*getattr(model, "stated_abilities", ()), *said.get("stated_abilities", ())}
    for ability, able in said.get("abilities", {}).items():
        if not able and ability not in stated and getattr(model.abilities, ability, False):
            model = model.without(ability)
    return model


def special_tokens(models: Mapping[str, Model], head: RunHead | None) -> tuple[str, ...]:
    """Return the special tokens of a run's models. Those of a recorded run come from its head, without a file."""
    found: set[str] = set()
    for phase, model in models.items():
        said = head.models.get(phase, {}) if head is not None else {}
        recorded = said.get("spec") == model.spec
        found.update(said.get("special_tokens", ()) if recorded else getattr(model, "special_tokens", ()))
    return tuple(sorted(found))


def without_special_tokens(think: Think, tokens: Sequence[str]) -> Think:
    """Return the request with these tokens made plain text."""
    if not tokens:
        return think
    messages = tuple(
        structs.replace(message, content=text)
        if (text := without_tokens(message.content, tokens)) is not message.content
        else message
        for message in think.messages
    )
    prompt, prefill = without_tokens(think.prompt, tokens), without_tokens(think.prefill, tokens)
    return structs.replace(think, messages=messages, prompt=prompt, prefill=prefill)
