"""The interface of models: a `Model` encodes an effect, sends the request and decodes the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from plait.core import Reply, Think
from plait.models.prices import Rate


class Abilities(Struct, frozen=True, omit_defaults=True):
    """What an endpoint can do. A model emulates or leaves out what it can't.

    `max_tokens` False means that the field is called `max_completion_tokens` there.
    """

    stream: bool = True
    stream_usage: bool = True
    stop: bool = True
    temperature: bool = True
    schema: bool = False
    grammar: bool = False
    prefill: bool = False
    tools: bool = True
    completion: bool = False
    max_tokens: bool = True

    def without(self, *abilities: str) -> Abilities:
        """Return the same without some abilities. Raises `ValueError` for an unknown word."""
        for ability in abilities:
            if ability not in self.__struct_fields__:
                known = ", ".join(self.__struct_fields__)
                raise ValueError(f"{ability!r} is not an ability; there are: {known}")
        return structs.replace(self, **dict.fromkeys(abilities, False))


ABILITIES: tuple[str, ...] = Abilities.__struct_fields__


class Request(Struct, frozen=True):
    """One request exactly as it is sent: the path under the endpoint's base address, and the body's bytes."""

    path: str
    body: bytes


class Response(Struct, frozen=True):
    """One response exactly as it came: the status (200 for models without a server) and the body's bytes.

    A streamed body is the whole stream. Plait changes one thing in the bytes: it replaces secrets that the server
    echoes. `cut` is True if Plait ended the stream, at a stop string for example. `reply` is what `decode` would
    return, if it was read on the way. `startup` are seconds before the request was sent, for the download and the
    load of the model.
    """

    status: int
    body: bytes
    cut: bool = False
    reply: Reply | None = None
    startup: float = 0.0


OnText: TypeAlias = Callable[[str], None]


@runtime_checkable
class Model(Protocol):
    """One model at one endpoint: frozen, shared by any number of runs.

    `spec` is what the user wrote (`openai:gpt-5`), `name` the model's name there, `endpoint` the address without any
    secret ("" in-process). `secrets` must appear in no message and no journal.
    """

    @property
    def spec(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def abilities(self) -> Abilities: ...
    @property
    def rate(self) -> Rate: ...
    @property
    def secrets(self) -> tuple[str, ...]: ...

    def encode(self, think: Think) -> Request:
        """Return the exact request for an effect. Pure: the same effect makes the same bytes, which replay compares."""
        ...

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """Make one attempt. Calls `on_text` with each piece of reply text as it comes, cut at the stop strings.

        Raises a `plait.core.errors.ModelError`; its `response` is what came, None if nothing did. What this returns
        can be decoded. Cancelling the task closes the connection.
        """
        ...

    def decode(self, response: Response, think: Think) -> Reply:
        """Return the reply in a response, cut at the stop strings. Pure.

        Raises `BadResponse`, or the `ModelError` that an endpoint's own error in the body means.
        """
        ...

    def without(self, ability: str) -> Model:
        """Return the same model, known not to have an ability."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what the journal keeps of the model: spec, name, endpoint, params, abilities, rate. No secrets."""
        ...
