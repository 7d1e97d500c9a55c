"""The interface of models: a `Model` encodes an effect, sends the request and decodes the response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from plait.core import Attachment, Reply, Think
from plait.models.prices import Rate


class Abilities(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The abilities of an endpoint. A model emulates or leaves out missing abilities.

    If `max_tokens` is False, the endpoint calls the field `max_completion_tokens`. `strict`: it makes calls of tools
    fit their schemas, if these are in its subset of JSON Schema. `images` and `files`: it accepts images, and PDF
    files.
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
    strict: bool = False
    images: bool = False
    files: bool = False
    top_p: bool = True
    seed: bool = True
    verbosity: bool = True
    service_tier: bool = True

    @property
    def lacking(self) -> frozenset[str]:
        """Return the abilities that are missing."""
        return frozenset(name for name in self.__struct_fields__ if not getattr(self, name))

    def accepts(self, attachment: Attachment) -> bool:
        """Return whether the endpoint accepts an image, or a PDF file."""
        return {"image": self.images, "file": self.files}.get(attachment.kind, False)

    def as_recorded(self, described: Mapping[str, Any]) -> Abilities:
        """Return the abilities with those in a recorded description of a model."""
        recorded = described.get("abilities", {})
        return structs.replace(
            self, **{name: able for name, able in recorded.items() if name in self.__struct_fields__}
        )

    def without(self, *abilities: str) -> Abilities:
        """Return the abilities without some of them. Raises `ValueError` for an unknown word."""
        for ability in abilities:
            if ability not in self.__struct_fields__:
                known = ", ".join(self.__struct_fields__)
                raise ValueError(f"{ability!r} is not an ability; there are: {known}")
        return structs.replace(self, **dict.fromkeys(abilities, False))


class RequestDialect(Struct, frozen=True, forbid_unknown_fields=True):
    """The differences between a provider's requests and OpenAI's.

    `max_stop`: the maximum number of stop strings. `grammar`: the field that holds a grammar. `raw_schema`: the field
    that holds the schema of a raw prompt's reply. `prefill`: how an assistant message is sent that the endpoint has to
    continue: unchanged, without blanks at its end, with `"prefix": true`, or with the request's own fields.
    `repeats_prefill`: the reply begins with that message again. `call_id`: a pattern of the ids of calls, and their
    greatest length. `closes_results`: results are followed by a message of the assistant, never by one of the user.
    `strict_subset`: a strict schema of a reply has to be in OpenAI's subset of JSON Schema.
    """

    max_stop: int = 4
    grammar: Literal["grammar", "structured_outputs", "response_format"] = "grammar"
    raw_schema: Literal["response_format", "json_schema"] = "response_format"
    prefill: Literal["message", "stripped", "prefix", "fields"] = "message"
    repeats_prefill: bool = False
    call_id: tuple[str, int] = ("[ -~]{1,40}", 40)
    closes_results: bool = False
    strict_subset: bool = False


OPENAI = RequestDialect()
ABILITIES: tuple[str, ...] = Abilities.__struct_fields__


class Request(Struct, frozen=True):
    """One request: the path under the endpoint's base address, and the body's bytes.

    Attachments are references in the body (`wires/contents.py`). `contents`: their bytes by digest, when it is sent.
    """

    path: str
    body: bytes
    contents: Mapping[str, bytes] = {}


class Response(Struct, frozen=True):
    """One response exactly as received: the status (200 for models without a server) and the body's bytes.

    A streamed body is the whole stream. Plait changes one thing in the bytes: it replaces secrets that the server
    echoes. `cut` is True if Plait ended the stream, for example at a stop string. `reply` is what `decode` would
    return, if it was read during the stream. `startup` is the seconds before the request was sent, for downloading and
    loading the model.
    """

    status: int
    body: bytes
    cut: bool = False
    reply: Reply | None = None
    startup: float = 0.0


OnText: TypeAlias = Callable[[str], None]


@runtime_checkable
class FollowsInput(Protocol):
    """An `OnText` that also gets the input of the first call of one tool ("" for none), in pieces of its JSON."""

    followed_tool: str

    def add_input(self, text: str) -> None: ...


@runtime_checkable
class Model(Protocol):
    """One model at one endpoint: frozen, shared by any number of runs.

    `spec` is what the user wrote (`openai:gpt-5`), `name` the model's name there, `endpoint` the address without
    secrets ("" in-process). `secrets` must not appear in any message or journal.
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
        """Return the exact request for an effect. Pure: the same effect gives the same bytes, which replay compares."""
        ...

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """Make one attempt. Calls `on_text` with each piece of reply text as it arrives, cut at the stop strings. If it
        also is a `FollowsInput`, a model that streams the inputs of calls passes them on as well.

        Raises a `plait.core.errors.ModelError`, whose `response` is what was received, or None. `decode` accepts what
        this returns. Cancelling the task closes the connection.
        """
        ...

    def decode(self, response: Response, think: Think) -> Reply:
        """Return the reply in a response, cut at the stop strings. Pure. Raises `BadResponse`, or the `ModelError` for
        an endpoint's own error in the body."""
        ...

    def without(self, ability: str) -> Model:
        """Return the same model marked as lacking an ability."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what the journal stores of the model: spec, name, endpoint, params, abilities, rate. No secrets."""
        ...
