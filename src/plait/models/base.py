"""What answers a think effect: the interface every model keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from msgspec import Struct, structs

from plait.core import Reply, Think
from plait.models.prices import Rate

Ability: TypeAlias = Literal[
    "stream",
    "stream_usage",
    "stop",
    "temperature",
    "schema",
    "grammar",
    "prefill",
    "tools",
    "completion",
    "max_tokens",
]
ABILITIES: tuple[str, ...] = get_args(Ability)


class Abilities(Struct, frozen=True, omit_defaults=True):
    """What an endpoint can do. What it can't, the model emulates or leaves out.

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

    def without(self, ability: str) -> Abilities:
        """The same without one ability. Raises `ValueError` for a word that is none."""
        if ability not in ABILITIES:
            raise ValueError(f"{ability!r} is no ability; there are: {', '.join(ABILITIES)}")
        return structs.replace(self, **{ability: False})


class Request(Struct, frozen=True):
    """One request exactly as it goes out: the path under the endpoint's base address, the body's bytes."""

    path: str
    body: bytes


class Response(Struct, frozen=True):
    """One response exactly as it came: the status (200 for models that are no server) and the body's bytes.

    A streamed body is the whole stream. `cut` is True when our side ended the stream at a stop string.
    The one change made to the bytes: a secret that the server echoes is blacked out. `reply` is what `decode`
    would give, where it was read on the way. `startup` are seconds that went by before the request was sent, because
    the model had to be fetched or loaded first.
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

    `spec` is what the user wrote (`openai:gpt-5`), `name` the model's name there, `endpoint` the
    address without any secret ("" in-process). `secrets` must appear in no message and no record.
    `encode` is pure: the same effect makes the same bytes, which is what replay compares.
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
        """The exact request for an effect."""
        ...

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """One attempt. Calls `on_text` with each piece of reply text as it comes, cut at the stop strings.

        Raises a `plait.core.errors.ModelError`; its `response` is what came, None where nothing did.
        What it returns can be decoded. Cancelling the task closes the connection.
        """
        ...

    def decode(self, response: Response, think: Think) -> Reply:
        """The reply in a response; pure. Cuts at the stop strings.

        Raises `BadResponse`, or, where the body holds an endpoint's own error, the `ModelError` it means.
        """
        ...

    def without(self, ability: str) -> Model:
        """The same model, known not to have an ability."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the journal keeps of the model: spec, name, endpoint, params, abilities, rate. No secrets."""
        ...
