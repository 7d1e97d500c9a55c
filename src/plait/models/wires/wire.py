"""The interface of wires: the protocol of a kind of endpoint, as pure functions. Each wire is one module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, cast

from msgspec import Struct

from plait.core import Think
from plait.core.errors import ConfigError
from plait.core.hosted import HostedTool
from plait.models.base import OPENAI, Abilities, Request, RequestDialect
from plait.models.hosted import declare
from plait.models.settings import ModelSettings
from plait.models.wires.draft import Draft

CHAT = "chat"
WIRES = {
    CHAT: "chat_completions",
    "responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "gemini": "gemini",
}
"""The wires by name, with their modules."""


class WireOptions(Struct, frozen=True):
    """What a request needs beside its effect.

    `model` is the model's name, `provider` the host's ("" for none), `dialect` how its requests differ. `params` are
    more fields of the body; they override an effect's, and None leaves a field out. `temperature` is sent if neither
    the effect nor `params` set one. `hosted` are the tools that the provider runs by itself.
    """

    model: str
    abilities: Abilities = Abilities()
    provider: str = ""
    dialect: RequestDialect = OPENAI
    params: Mapping[str, Any] = {}
    temperature: float | None = None
    hosted: tuple[HostedTool, ...] = ()

    def declare_hosted(self, wire: str) -> list[dict[str, Any]]:
        """Return the declarations of the hosted tools that this model has on a wire."""
        found = (declare(each, wire, self.provider, self.model) for each in self.hosted)
        return [each for each in found if each is not None]


class EventReader(Protocol):
    """Reads one response into a draft. When all has arrived, `state` also sets the draft's hosted calls."""

    def read(self, event: dict[str, Any]) -> str:
        """Add one event of a stream, or a whole body, and return the text that is now certain."""
        ...

    def state(self) -> Any:
        """Return what the provider needs back with this turn, when all has arrived; None for nothing."""
        ...


class Wire(Protocol):
    """A protocol. `NAME` is its name in settings and journals."""

    NAME: str

    def encode(self, think: Think, options: WireOptions) -> Request:
        """Return the exact request for an effect: the same effect gives the same bytes."""
        ...

    def make_headers(self, key: str, model: str, hosted: Iterable[HostedTool] = ()) -> Mapping[str, str]:
        """Return the headers that carry the key, and those that the protocol demands for this model and tools."""
        ...

    def name_settings(self, settings: ModelSettings, provider: str) -> dict[str, Any]:
        """Return a user's settings as `params`. Raises `ConfigError` for one that the protocol has no field for."""
        ...

    def make_reader(self, draft: Draft) -> EventReader:
        """Return what reads one response into `draft`."""
        ...

    def continues_prefill(self, think: Think, options: WireOptions) -> bool:
        """Return whether the endpoint continues the prefill, so that a reply usually does not repeat it."""
        ...


@lru_cache
def load_wire(name: str) -> Wire:
    """Return the wire of a name. Raises `ConfigError` for an unknown one."""
    if name not in WIRES:
        raise ConfigError(f"There is no wire {name!r}.", hint=f"Choose one of {', '.join(WIRES)}.")
    return cast(Wire, import_module(f"plait.models.wires.{WIRES[name]}"))
