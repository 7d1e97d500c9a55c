"""The models of a run's phases, and what their endpoints cannot do."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

from msgspec import structs

from plait.core import Think
from plait.core.errors import ConfigError
from plait.journal.records import RunHead
from plait.loops.escape import without_tokens
from plait.models.base import Model
from plait.models.chat import ChatModel
from plait.models.special_tokens import special_tokens_of


class Phases:
    """The model of each phase, without the abilities that its endpoint refused in this run."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models: MutableMapping[str, Model] = dict(models)

    def of(self, phase: str) -> Model:
        """Return the model of a phase: its own, or the one for all (key "")."""
        model = self._models.get(phase) or self._models.get("")
        if model is None and "." in phase:
            # A loop that another fell back to, where only that one's phases were given models.
            model = next(iter(self._models.values()), None)
        if model is None:
            raise ConfigError(
                f"The phase '{phase}' has no model.",
                hint="Give model=..., or one for this phase in models={...}.",
            )
        return model

    def lost(self, phase: str, ability: str) -> None:
        """Remove an ability that a phase's endpoint refused."""
        found = self.of(phase)
        for key, model in self._models.items():
            if model is found:
                self._models[key] = model.without(ability)

    def secrets(self) -> tuple[str, ...]:
        """Return what must never be stored."""
        return tuple({secret for model in self._models.values() for secret in model.secrets})

    def describe(self) -> dict[str, dict[str, object]]:
        """Return what the journal stores of each phase's model."""
        return {phase: model.describe() for phase, model in self._models.items()}

    def specs(self) -> dict[str, str]:
        """Return each phase's model as the user wrote it."""
        return {phase: model.spec for phase, model in self._models.items()}


def known_models(models: Mapping[str, Model], head: RunHead | None) -> dict[str, Model]:
    """Return the models as they were in a recorded run: with its wire, without the abilities that they lacked."""
    known = dict(models)
    for phase, said in (head.models if head is not None else {}).items():
        if phase not in known or said.get("spec") != known[phase].spec:
            continue
        if isinstance(model := known[phase], ChatModel):
            known[phase] = model.with_wire_of(said)
        for ability, able in said.get("abilities", {}).items():
            if not able and getattr(known[phase].abilities, ability, False):
                known[phase] = known[phase].without(ability)
    return known


def special_tokens(models: Mapping[str, Model], head: RunHead | None) -> tuple[str, ...]:
    """Return the special tokens of a run's models. Those of a recorded run come from its head, without a file."""
    found: set[str] = set()
    for phase, model in models.items():
        said = head.models.get(phase, {}) if head is not None else {}
        recorded = said.get("spec") == model.spec
        found.update(said.get("special_tokens", ()) if recorded else special_tokens_of(model))
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
    return structs.replace(
        think,
        messages=messages,
        prompt=without_tokens(think.prompt, tokens),
        prefill=without_tokens(think.prefill, tokens),
    )
