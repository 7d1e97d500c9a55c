"""A model that answers from a record: the same request bytes get the same response bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import convert

from plait.core import Reply, Think
from plait.core.errors import ModelError
from plait.core.hosted import read_hosted_word
from plait.core.text import count_shared
from plait.models.base import Abilities, Model, OnText, Request, Response
from plait.models.chat import ChatModel
from plait.models.fallback import join_models
from plait.models.presets import LOCAL_TEMPERATURE
from plait.models.settings import ModelSettings
from plait.models.wires.refusals import Target, failure
from plait.models.wires.wire import CHAT

SHOWN = 60
"""Bytes of a request that `NotRecorded` shows."""


def recorded_model(described: Mapping[str, Any]) -> Model | str:
    """Return a model that encodes requests as the recorded one did, without a key. It cannot be asked. Returns the spec
    of a model that is encoded by code of the user's or of a plug-in."""
    members = [recorded_model(each) for each in described.get("members", ())]
    if any(isinstance(each, str) for each in members):
        return str(described["spec"])
    if members:
        return join_models(tuple(each for each in members if not isinstance(each, str)))
    is_local = described.get("provider") == "local"
    if not (is_local or "wire" in described):
        return str(described["spec"])
    return ChatModel(
        spec=described["spec"],
        name=described["name"],
        endpoint=described["endpoint"],
        provider="llamacpp" if is_local else described.get("provider", ""),
        wire=described.get("wire", CHAT),
        abilities=Abilities().as_recorded(described),
        params={} if is_local else described["params"],
        temperature=LOCAL_TEMPERATURE if is_local else described.get("temperature"),
        settings=convert(described.get("settings", {}), ModelSettings),
        special_tokens=tuple(described.get("special_tokens", ())),
        hosted=tuple(map(read_hosted_word, described.get("hosted", ()))),
    )


class NotRecorded(ModelError):
    """The request is not among the recorded ones. The message shows where it first differs from the nearest one."""


class Recorded:
    """Answer a request with the response that was recorded for exactly its bytes.

    `pairs` are request bodies with their responses (bytes are a response of status 200). A body that was sent several
    times gives its responses in that order, then repeats the last. `like` is the model that made the records, for its
    encoding; the default is a chat-completions model named "recorded" without further abilities.
    """

    def __init__(
        self,
        pairs: Mapping[bytes, Response | bytes] | Iterable[tuple[bytes, Response | bytes]],
        like: Model | None = None,
    ) -> None:
        self.like: Model = like or ChatModel(spec="recorded", name="recorded", endpoint="")
        self.spec, self.name, self.endpoint = self.like.spec, self.like.name, self.like.endpoint
        self.abilities, self.rate, self.secrets = self.like.abilities, self.like.rate, self.like.secrets
        self._answers: dict[bytes, list[Response]] = {}
        for body, answer in pairs.items() if isinstance(pairs, Mapping) else pairs:
            response = answer if isinstance(answer, Response) else Response(200, answer)
            self._answers.setdefault(body, []).append(response)
        self._given: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"Recorded({len(self._answers)} requests, like={self.like!r})"

    def encode(self, think: Think) -> Request:
        """Return the request as the recorded model encodes it."""
        return self.like.encode(think)

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """Return the recorded response. Raises the error of a recorded refusal, and `NotRecorded`."""
        answers = self._answers.get(request.body)
        if not self._answers:
            raise NotRecorded("There is no record of any request.")
        if answers is None:
            at, nearest = max((count_shared(request.body, known), known) for known in self._answers)
            asked, known = (_show(text[max(0, at - SHOWN // 3) : at + SHOWN]) for text in (request.body, nearest))
            message = (
                f"This request is not among the {len(self._answers)} recorded ones. From byte {at} on it differs "
                f"from the nearest: asked {asked}, recorded {known}."
            )
            raise NotRecorded(message, hint="The code, the prompts or the model's settings have changed.")
        place = self._given.get(request.body, 0)
        self._given[request.body] = place + 1
        response = answers[min(place, len(answers) - 1)]
        if response.status != 200:
            where = Target(self.endpoint or self.spec, self.name, secrets=self.secrets)
            body = response.body
            raise failure(response.status, body, where, asked=request.body, path=request.path, response=response)
        reply = self.decode(response, think)
        if on_text is not None and reply.text:
            on_text(reply.text)
        return response

    def decode(self, response: Response, think: Think) -> Reply:
        return self.like.decode(response, think)

    def without(self, ability: str) -> Recorded:
        made = Recorded({}, self.like.without(ability))
        made._answers = self._answers
        return made

    def describe(self) -> dict[str, Any]:
        return {**self.like.describe(), "recorded": True}


def _show(part: bytes) -> str:
    return repr(part.decode("utf-8", "replace")) if part else "the end"
