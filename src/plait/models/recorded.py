"""A model that answers with what was recorded: the same request bytes, the same response bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plait.core import Reply, Think
from plait.core.errors import ModelError
from plait.models.base import Abilities, Model, OnText, Request, Response
from plait.models.chat import ChatModel
from plait.models.prices import Rate
from plait.models.refusals import Place, failure

SHOWN = 60


class NotRecorded(ModelError):
    """The request stands in no record. The message shows where it first differs from the nearest one."""


class Recorded:
    """Answers a request with the response that was recorded for exactly its bytes.

    `pairs` are request bodies with their responses (bytes mean a response of status 200). A body that was
    sent several times gives its responses in that order, then the last again. `like` is the model that made
    the records, for its encoding; without one it is a chat-completions model named "recorded" with no further
    abilities.
    """

    def __init__(
        self,
        pairs: Mapping[bytes, Response | bytes] | Iterable[tuple[bytes, Response | bytes]],
        like: Model | None = None,
    ) -> None:
        self.like: Model = like or ChatModel(spec="recorded", name="recorded", endpoint="")
        self._answers: dict[bytes, list[Response]] = {}
        for body, answer in pairs.items() if isinstance(pairs, Mapping) else pairs:
            response = answer if isinstance(answer, Response) else Response(200, answer)
            self._answers.setdefault(body, []).append(response)
        self._given: dict[bytes, int] = {}

    @property
    def spec(self) -> str:
        return self.like.spec

    @property
    def name(self) -> str:
        return self.like.name

    @property
    def endpoint(self) -> str:
        return self.like.endpoint

    @property
    def abilities(self) -> Abilities:
        return self.like.abilities

    @property
    def rate(self) -> Rate:
        return self.like.rate

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.like.secrets

    def __repr__(self) -> str:
        return f"Recorded({len(self._answers)} requests, like={self.like!r})"

    def encode(self, think: Think) -> Request:
        """The request as the recorded model encodes it."""
        return self.like.encode(think)

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """The recorded response. Raises what a recorded refusal means, and `NotRecorded`."""
        answers = self._answers.get(request.body)
        if answers is None:
            raise self._missing(request.body)
        place = self._given.get(request.body, 0)
        self._given[request.body] = place + 1
        response = answers[min(place, len(answers) - 1)]
        if response.status != 200:
            where = Place(self.endpoint or self.spec, self.name, secrets=self.secrets)
            raise failure(
                response.status,
                response.body,
                where,
                asked=request.body,
                path=request.path,
                response=response,
            )
        reply = self.decode(response, think)
        if on_text is not None and reply.text:
            on_text(reply.text)
        return response

    def decode(self, response: Response, think: Think) -> Reply:
        """The reply in a response; pure."""
        return self.like.decode(response, think)

    def without(self, ability: str) -> Recorded:
        """The same records, asked in the way of an endpoint without one ability."""
        made = Recorded({}, self.like.without(ability))
        made._answers = self._answers
        return made

    def describe(self) -> dict[str, Any]:
        """What the journal keeps: the recorded model's description."""
        return {**self.like.describe(), "recorded": True}

    def _missing(self, body: bytes) -> NotRecorded:
        if not self._answers:
            return NotRecorded("There is no record of any request.")
        at, nearest = max(((_common(body, known), known) for known in self._answers), key=lambda pair: pair[0])
        start = max(0, at - SHOWN // 3)
        asked, known = (_shown(text[start : at + SHOWN]) for text in (body, nearest))
        message = (
            f"This request is not among the {len(self._answers)} recorded ones. From byte {at} on it differs "
            f"from the nearest: asked {asked}, recorded {known}."
        )
        return NotRecorded(message, hint="The code, the prompts or the model's settings have changed.")


def _common(a: bytes, b: bytes) -> int:
    """Length of the common beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _shown(part: bytes) -> str:
    return repr(part.decode("utf-8", "replace")) if part else "the end"
