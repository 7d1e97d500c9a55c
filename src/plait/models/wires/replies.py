"""The decoding of a response as a reply, whatever the wire: one JSON body or a whole stream. Pure.

Sources, as of November 2026: Groq documents calls in an error (`calls_in_error`), MiniMax documents `base_resp`. Public
reports on GitHub: keep-alives as data (mnfst/llm-gateway #2053), bytes that are not UTF-8 (ggml-org/llama.cpp #27543),
events that all have the number 0 (BerriAI/litellm #28899), an end without `finish_reason` (anomalyco/opencode #43379).

No public report was found of an event that comes twice with its number, and no endpoint for each field of `_ERRORS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plait.core import Reply, Think
from plait.models.base import Response
from plait.models.wires.chat_replies import calls_in_error
from plait.models.wires.draft import Draft
from plait.models.wires.error_bodies import error_of
from plait.models.wires.odd_json import looks_like_json, mend, read_values
from plait.models.wires.refusals import Target, bad_response, failure, failure_in_stream
from plait.models.wires.stream import Events, is_json
from plait.models.wires.wire import CHAT, Wire


class ReplyReader:
    """Read one response in any pieces. `kind` is "json" or "events" after the first byte.

    What is neither an event of the wire nor an error is skipped: empty data, `ping`, comments, numbers. An unreadable
    event that has JSON in it is damage: content may be lost with it, so such a reply is an error. Nothing is lost
    after the end.
    """

    def __init__(self, wire: Wire, think: Think, prefill: str = "", provider: str = "") -> None:
        self.draft = Draft(think, prefill, provider)
        self.kind = ""
        self._wire = wire
        self._reader = wire.make_reader(self.draft)
        self._think = think
        self._events = Events()
        self._start = b""
        self._is_damaged = False
        self._numbered: set[tuple[Any, ...]] = set()
        self._first_number: Any = None

    def feed(self, piece: bytes) -> Iterator[str]:
        """Read a piece of a stream and yield the text that is now certain."""
        if not self.kind:
            piece = self._start = self._start + piece
            if not piece.strip():
                return
            self.kind = "json" if is_json(piece) else "events"
        if self.kind == "events":
            for event in self._events.feed(piece):
                yield self._read(*read_values(event))

    def read_rest(self, body: bytes) -> None:
        """Read what `feed` leaves: a JSON body, or a last event without its end."""
        events: list[bytes] = []
        if self.kind == "json":
            values, rest = read_values(body)
            if len(values) == 1 and not (rest and looks_like_json(rest)):
                self._read(values, rest)
                self.draft.is_done = True
                return
            events = self._events.feed(body)  # a stream without the names of its fields
        for event in (*events, *self._events.close()):
            self._read(*read_values(event))

    def _read(self, values: list[Any], rest: str) -> str:
        shown, words = "", rest.split("\n") if rest else []
        for value in values:
            if isinstance(value, str):
                words.append(value)
            for event in value if isinstance(value, list) else (value,):
                if not isinstance(event, dict):
                    continue
                if isinstance(number := event.get("sequence_number"), int):  # all may be 0
                    self._first_number = number if self._first_number is None else self._first_number
                    key = (number, *(each if isinstance(each, str) else "" for each in map(event.get, _SAME)))
                    if key in self._numbered and number != self._first_number:
                        continue  # the same event once more
                    self._numbered.add(key)
                self.draft.error = self.draft.error or error_in(event)
                shown += self._reader.read(event)
        for word in words:
            self.draft.is_done = self.draft.is_done or word.strip("[] \r").upper() == "DONE"
            self.draft.error = self.draft.error or (word.lstrip("[ ").lower().startswith("error") and word)
        if rest and looks_like_json(rest) and not self.draft.is_whole:
            self._is_damaged = True
        return shown

    def finish(self, response: Response, target: Target, asked: bytes) -> Reply:
        """Return the reply, when all has arrived. Raises `BadResponse` if it is incomplete, or its error."""
        draft, body = self.draft, response.body
        if not response.cut:
            self.read_rest(body)
        draft.close()
        named = self._events.errors[0] if self._events.errors else b""
        if error := draft.error or (named and (error_of(named) or named.decode("utf-8", "replace"))):
            error = mend(error)[0]
            if made := reply_in_error(error, self._think, self._wire, target):
                return made
            raise failure_in_stream(error, target, asked=asked, response=response)
        if not draft.began:
            raise bad_response("sent something that is not a reply.", body, target, response)
        if draft.cut == "flood":
            flood = bad_response("sent far more than any reply.", body, target, response)
            flood.retry = False
            raise flood
        if not (draft.is_whole or response.cut or draft.cut):
            raise bad_response("broke off in the middle of a reply.", body, target, response)
        if self._is_damaged and not (response.cut or draft.cut or draft.is_stated):
            raise bad_response("sent an event that cannot be read.", body, target, response)
        draft.state = self._reader.state()
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
    """Return the reply in a response, without a repeated `prefill`. Raises what `ReplyReader.finish` raises. `provider`
    is the dialect of the endpoint; its state depends on it."""
    if response.status != 200:
        if made := reply_in_error(error_of(response.body), think, wire, target):
            return made
        raise failure(response.status, response.body, target, asked=asked, response=response)
    reader = ReplyReader(wire, think, prefill, provider)
    for _ in reader.feed(response.body):
        pass
    return reader.finish(response, target, asked)


def reply_in_error(error: Any, think: Think, wire: Wire, target: Target) -> Reply | None:
    """Return the reply of calls that an endpoint's error holds, with estimated usage; None for any other error."""
    calls = calls_in_error(error) if wire.NAME == CHAT and think.tools else ()
    if not calls:
        return None
    draft = Draft(think)
    draft.finish = "calls"
    for number, call in enumerate(calls):
        draft.add_call(number, name=call.tool, given=call.input)
    return draft.reply(think, wire.NAME, target.name)


def read_partial_reply(body: bytes, think: Think, wire: Wire) -> Reply:
    """Return the part of a reply that came, with the tokens and the cost as reported, or the tokens estimated."""
    reader = ReplyReader(wire, think)
    for _ in reader.feed(body):
        pass
    reader.read_rest(body)
    return reader.draft.reply(think, wire.NAME, "")


def error_in(value: dict[str, Any]) -> Any:
    """Return the error in a JSON object, in any of the usual shapes; None for none."""
    if value.keys().isdisjoint(_SIGNS) and value.get("object") != "error":
        return None
    error = value.get("error")
    if error and (not isinstance(error, dict) or any(error.values())):
        return error
    if isinstance(base := value.get("base_resp"), dict) and base.get("status_code"):  # MiniMax
        return {"code": base["status_code"], "message": base.get("status_msg")}
    code = value.get("code") or value.get("status") or value.get("status_code")
    is_typed = str(value.get("type")).endswith("error") or value.get("object") == "error"
    is_named = any(map(value.get, _ERRORS)) and value.keys().isdisjoint(("choices", "candidates", "content", "output"))
    if is_typed or is_named or value.get("success") is False or (isinstance(code, int) and 400 <= code < 600):
        return {**value, "message": next(filter(None, map(value.get, ("message", "msg", *_ERRORS))), None)}
    return None


_SAME = ("type", "delta")
"""Fields in which a repeated event equals the first one."""
_ERRORS = ("error_msg", "error_message", "error_code", "errors", "detail")
"""Fields that no reply has."""
_SIGNS = frozenset({"error", "type", "code", "status", "status_code", "success", "base_resp", *_ERRORS})
