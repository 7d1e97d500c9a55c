"""The decoding of a response as a reply, whatever the wire: one JSON body or a whole stream. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from plait.core import Reply, Think
from plait.models.base import Response
from plait.models.wires.chat_replies import calls_in_error
from plait.models.wires.draft import Draft
from plait.models.wires.error_bodies import error_of
from plait.models.wires.refusals import Target, bad_response, failure, failure_in_stream
from plait.models.wires.stream import DONE, Events, is_json
from plait.models.wires.wire import CHAT, Wire


class ReplyReader:
    """Read one response in any pieces. `kind` is "json" or "events" after the first byte."""

    def __init__(self, wire: Wire, think: Think, prefill: str = "", provider: str = "") -> None:
        self.draft = Draft(think, prefill, provider)
        self.kind = ""
        self._wire = wire
        self._reader = wire.make_reader(self.draft)
        self._think = think
        self._events = Events()
        self._start = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """Read a piece of a stream and yield the text that is now certain. Raises `msgspec.DecodeError`."""
        if not self.kind:
            piece = self._start = self._start + piece
            if not piece.strip():
                return
            self.kind = "json" if is_json(piece) else "events"
        if self.kind == "events":
            for event in self._events.feed(piece):
                yield self._read(event)

    def read_rest(self, body: bytes) -> None:
        """Read what `feed` leaves: a JSON body, or a last event without its end. Raises `msgspec.DecodeError`."""
        if self.kind == "json":
            self._reader.read(body)
            self.draft.done = True
            return
        for event in self._events.close():
            self._read(event)

    def _read(self, event: bytes) -> str:
        if event == DONE:
            self.draft.done = True
            return ""
        return self._reader.read(event)

    def finish(self, response: Response, target: Target, asked: bytes) -> Reply:
        """Return the reply, when all has arrived.

        Raises `BadResponse` if it is incomplete, and the error for an error object inside the body.
        """
        draft, body = self.draft, response.body
        try:
            if not response.cut:
                self.read_rest(body)
        except msgspec.DecodeError:
            if self.kind == "json":
                raise bad_response("sent something that is not a reply.", body, target, response) from None
            if not draft.whole:
                raise bad_response("broke off in the middle of a reply.", body, target, response) from None
        draft.close()
        error = draft.error or (self._events.errors and _error_in(self._events.errors[0]))
        if error and (made := reply_in_error(error, self._think, self._wire, target)):
            return made
        if error:
            raise failure_in_stream(error, target, asked=asked, response=response)
        if not draft.began:
            raise bad_response("sent something that is not a reply.", body, target, response)
        if draft.over and self._think.max_tokens is None:
            flood = bad_response("sent far more than any reply.", body, target, response)
            flood.retry = False
            raise flood
        if not (draft.whole or response.cut or draft.is_stopped):
            raise bad_response("broke off in the middle of a reply.", body, target, response)
        return draft.reply(self._think, self._wire.NAME, target.name)


def decode(
    response: Response,
    think: Think,
    wire: Wire,
    target: Target,
    *,
    prefill: str = "",
    provider: str = "",
    asked: bytes = b"",
) -> Reply:
    """Return the reply in a response, without a repeated `prefill`. Raises what `ReplyReader.finish` raises.

    `provider` is the dialect of the endpoint; its state depends on it.
    """
    if response.status != 200:
        if made := reply_in_error(error_of(response.body), think, wire, target):
            return made
        raise failure(response.status, response.body, target, asked=asked, response=response)
    reader = ReplyReader(wire, think, prefill, provider)
    try:
        for _ in reader.feed(response.body):
            pass
    except msgspec.DecodeError:
        raise bad_response("sent something that is not a reply.", response.body, target, response) from None
    return reader.finish(response, target, asked)


def reply_in_error(error: Any, think: Think, wire: Wire, target: Target) -> Reply | None:
    """Return the reply of calls that an endpoint's error holds, with estimated usage; None for any other error."""
    calls = calls_in_error(error) if wire.NAME == CHAT and think.tools else ()
    if not calls:
        return None
    draft = Draft(think)
    draft.finish = "calls"
    for number, call in enumerate(calls):
        draft.add_call(number, name=call.tool, value=call.input)
    return draft.reply(think, wire.NAME, target.name)


def read_partial_reply(body: bytes, think: Think, wire: Wire) -> Reply:
    """Return the part of a reply that came, with the tokens and the cost as reported, or the tokens estimated."""
    reader = ReplyReader(wire, think)
    with contextlib.suppress(msgspec.DecodeError):
        for _ in reader.feed(body):
            pass
        reader.read_rest(body)
    return reader.draft.reply(think, wire.NAME, "")


def _error_in(data: bytes) -> Any:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode("utf-8", "replace")
    return value.get("error", value) if isinstance(value, dict) else value
