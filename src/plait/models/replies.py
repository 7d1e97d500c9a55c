"""From the exact bytes of a response to a reply: one JSON body or a whole stream. Pure."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from plait.core import Reply, Think, Usage
from plait.models.base import Response
from plait.models.draft import Draft
from plait.models.refusals import Place, bad, failure, in_stream
from plait.models.stream import Events, is_json


def decode(response: Response, think: Think, place: Place, *, prefill: str = "", asked: bytes = b"") -> Reply:
    """The reply in a response. `prefill` is dropped where the text repeats it.

    Raises `BadResponse` for what is no reply or half of one, and what an error inside the body means.
    """
    body = response.body
    if response.status != 200:
        raise failure(response.status, body, place, asked=asked, response=response)
    draft = Draft(think, prefill)
    try:
        if is_json(body):
            draft.chunk(body)
            draft.done = True
        else:
            events = Events()
            for event in events.feed(body):
                draft.chunk(event)
            _last(draft, events, response, place)
            if events.errors and not draft.error:
                draft.error = _lenient(events.errors[0])
    except msgspec.DecodeError:
        raise bad("sent something that is no reply.", body, place, response) from None
    draft.close()
    if draft.error or draft.finish == "error":
        error = draft.error or "the endpoint ended the reply with an error"
        raise in_stream(error, place, asked=asked, response=response)
    if not draft.choices:
        raise bad("sent something that is no reply.", body, place, response)
    if draft.over and think.max_tokens is None:
        made = bad("sent far more than any reply.", body, place, response)
        made.retry = False
        raise made
    if not (draft.whole or response.cut or draft.stopped):
        raise bad("broke off in the middle of a reply.", body, place, response)
    return draft.reply(think)


def received(body: bytes, think: Think) -> Usage:
    """The tokens of a request and of what came of its reply, however it broke off: as reported, or estimated."""
    draft = Draft(think)
    with contextlib.suppress(msgspec.DecodeError):
        if is_json(body):
            draft.chunk(body)
        else:
            events = Events()
            for event in (*events.feed(body), *events.close()):
                draft.chunk(event)
    return draft.reply(think).usage


def _last(draft: Draft, events: Events, response: Response, place: Place) -> None:
    """Take in an event without its end: none where we cut the stream, maybe half of one where it broke."""
    if response.cut:
        return
    try:
        for event in events.close():
            draft.chunk(event)
    except msgspec.DecodeError:
        if not draft.whole:
            raise bad("broke off in the middle of a reply.", response.body, place, response) from None


def _lenient(data: bytes) -> Any:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode("utf-8", "replace")
    return value.get("error", value) if isinstance(value, dict) else value
