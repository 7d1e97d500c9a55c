"""Fallback models: `a|b|c` asks `a`, and the next one if `a` cannot be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct, structs

from plait.core import Reply, Think
from plait.core.errors import ConfigError
from plait.models.base import Abilities, Model, OnText, Request, Response
from plait.models.prices import Rate

SEPARATOR = "|"


class FallbackModels(Struct, frozen=True):
    """Several models, in the order in which a run asks them.

    The runtime chooses the member (`runtime/phase_models.py`). Used directly, it is its first member.
    """

    members: tuple[Model, ...]

    @property
    def spec(self) -> str:
        """Return the specs of the members, joined by `|`."""
        return SEPARATOR.join(each.spec for each in self.members)

    @property
    def first(self) -> Model:
        """Return the member that a run asks first."""
        return self.members[0]

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def endpoint(self) -> str:
        return self.first.endpoint

    @property
    def abilities(self) -> Abilities:
        return self.first.abilities

    @property
    def rate(self) -> Rate:
        return self.first.rate

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple({secret: None for each in self.members for secret in each.secrets})

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Return the texts that any member reads as control tokens."""
        return tuple({token: None for each in self.members for token in getattr(each, "special_tokens", ())})

    def encode(self, think: Think) -> Request:
        return self.first.encode(think)

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        return await self.first.send(request, think, on_text)

    def decode(self, response: Response, think: Think) -> Reply:
        return self.first.decode(response, think)

    def without(self, ability: str) -> FallbackModels:
        return structs.replace(self, members=(self.first.without(ability), *self.members[1:]))

    def __or__(self, other: Model) -> FallbackModels:
        return join_two(self, other)

    def describe(self) -> dict[str, Any]:
        """Return the description of the first member, with the whole spec and the description of each member."""
        described = {**self.first.describe(), "spec": self.spec, "members": [each.describe() for each in self.members]}
        return {**described, "special_tokens": list(self.special_tokens)} if self.special_tokens else described


def join_models(models: tuple[Model, ...]) -> Model:
    """Return one model, or the fallback models of several. Raises `ConfigError` if two have the same spec."""
    if len(models) == 1:
        return models[0]
    specs = [each.spec for each in models]
    if len(set(specs)) < len(specs):
        hint = "Name each fallback model once, such as a|b."
        raise ConfigError(f"{SEPARATOR.join(specs)!r} names a model twice.", hint=hint)
    return FallbackModels(models)


def join_two(first: Model, second: Model) -> FallbackModels:
    """Return the fallback models `first | second`. Raises `ConfigError` if one is no model object."""
    if wrong := next((each for each in (first, second) if not isinstance(each, Model)), None):
        raise ConfigError(f"{wrong!r} is not a model object.", hint="Join plait.Chat(...) | plait.Chat(...), or words.")
    return cast(FallbackModels, join_models((*members_of(first), *members_of(second))))


def split_fallbacks(spec: str) -> list[str]:
    """Return the specs in `a|b|c`. Raises `ConfigError` if one is empty."""
    found = [each.strip() for each in spec.split(SEPARATOR)]
    if len(found) > 1 and not all(found):
        raise ConfigError(f"{spec!r} has an empty model.", hint="Fallback models are written a|b.")
    return found


def members_of(model: Model) -> tuple[Model, ...]:
    """Return the members of fallback models; any other model alone."""
    return model.members if isinstance(model, FallbackModels) else (model,)


def has_native_calls(model: Model) -> bool:
    """Return whether a model takes tools and returns calls. An embedded one shows tools, and its calls are text."""
    return model.abilities.tools and not getattr(members_of(model)[0], "writes_calls_as_text", False)


def described_members(described: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the description of each member of a recorded model; that of any other model alone."""
    yield from described.get("members") or (described,)
