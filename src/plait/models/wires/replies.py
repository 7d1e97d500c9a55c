"""The decoding of a response, one JSON body or a whole stream, as a reply. Pure.

A live stream and a recorded body go through the same `Draft`, so the streamed text is the text of the reply.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from plait.core import Call, Reply, Think, Usage
from plait.core.replies import Finish
from plait.models.base import Response
from plait.models.wires.refusals import Target, bad_response, failure, failure_in_stream
from plait.models.wires.reply_text import MOST_INPUT, MOST_REASONING, CircleCut, TextFilter
from plait.models.wires.stream import DONE, Events, is_json

CHARS_A_TOKEN = 8
"""Far more than any text has. Plait cuts a reply that is longer than its tokens allow."""
MOST_CHARS = 1 << 20
"""Maximum characters of a reply without a token limit."""

_FINISH: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "tool_use": "calls",
    "content_filter": "filter",
    "safety": "filter",
    "refusal": "filter",
    "recitation": "filter",
}


class _Choice(Struct):
    # Fields that endpoints disagree about are untyped and checked by hand: an odd field must not lose a reply.
    index: Any = 0
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    text: str | None = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    model: Any = None
    error: Any = None
    timings: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class _PendingCall:
    """A tool call whose arguments are still arriving."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.cut = CircleCut(MOST_INPUT)
        self.value: Any = None

    def call(self) -> Call:
        text, value = "".join(self.arguments), self.value
        if text.strip():
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                value = text  # as the model wrote it: the reader of the call reports the error
        return Call(self.name, None if value == {} else value, self.id)


class Draft:
    """A reply that is still arriving, from chunks of JSON of any dialect.

    `circling`: the reasoning, or the input of a call, repeats itself. `over`: more arrived than the reply may have.
    After either of them, nothing more is read. `written` counts the bytes of text, reasoning and inputs received, cut
    or not.
    """

    def __init__(self, think: Think, prefill: str = "") -> None:
        self.filter = TextFilter(think.stop, prefill, think.stop_after_object, think.prefill)
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[_PendingCall] = []
        self.finish = ""
        self.done = False
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}
        self.model = ""
        self.error: Any = None
        self.choices = 0
        self.circling = self.over = False
        self._reasoning_cut = CircleCut(MOST_REASONING)
        self._room = MOST_CHARS if think.max_tokens is None else think.max_tokens * CHARS_A_TOKEN
        self.written = self._inputs = 0

    def chunk(self, data: bytes) -> str:
        """Add a chunk and return the text that is now certain. Raises `msgspec.DecodeError`."""
        if data == DONE:
            self.done = True
            return ""
        chunk = _decode(data)
        if chunk.error:
            self.error = chunk.error
        if isinstance(chunk.usage, dict):
            self.usage = chunk.usage
        if isinstance(chunk.timings, dict):
            self.timings = chunk.timings
        if isinstance(chunk.model, str):
            self.model = chunk.model
        shown = ""
        for choice in chunk.choices or ():
            if not choice.index:
                self.choices += 1
                shown += self._choice(choice)
        return shown

    def close(self) -> str:
        """Return the remaining text, when all has arrived."""
        return self._keep(self.filter.close())

    def _choice(self, choice: _Choice) -> str:
        if choice.error:
            self.error = choice.error
        if choice.finish_reason:
            self.finish = str(choice.finish_reason).lower()
        part = choice.delta or choice.message
        if self.circling or self.over:
            return ""
        if part is None:
            return self._write(choice.text) if choice.text else ""
        thought = part.get("reasoning_content") or part.get("reasoning")
        if isinstance(thought, str):
            self._think(thought)
        content = part.get("content")
        if isinstance(content, list):
            content = self._parts(content)
        if not content and isinstance(part.get("refusal"), str):
            content = part["refusal"]
            self.finish = "refusal"
        shown = self._write(content) if isinstance(content, str) and content else ""
        for call in part.get("tool_calls") or ():
            if not (self.circling or self.filter.circling):
                self._call(call)
        return shown

    def _parts(self, parts: list[Any]) -> str:
        texts: list[str] = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
                inner = part.get("thinking") or part.get("text") or ""
                self._think(inner if isinstance(inner, str) else self._parts(inner))
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                texts.append(part["text"])
        return "".join(texts)

    def _within(self, text: str) -> str:
        """Return the text up to the maximum length of the reply."""
        self.written += len(text) if text.isascii() else len(text.encode(errors="replace"))
        if len(text) > self._room:
            self.over, text = True, text[: self._room]
        self._room -= len(text)
        return text

    def _think(self, text: str) -> None:
        self.reasoning.append(self._cut_circle(self._within(text), self._reasoning_cut))

    def _cut_circle(self, text: str, cut: CircleCut) -> str:
        text = cut.feed(text)
        self.circling = self.circling or cut.found
        return text

    def _write(self, text: str) -> str:
        text = self._within(text)
        return "" if self.circling else self._keep(self.filter.feed(text))

    def _keep(self, text: str) -> str:
        if text:
            self.text.append(text)
        return text

    def _call(self, delta: Any) -> None:
        function = delta.get("function") if isinstance(delta, dict) else None
        if not isinstance(function, dict):
            return
        index, call_id, name = delta.get("index"), delta.get("id") or "", function.get("name") or ""
        entry = next((c for c in reversed(self.calls) if index is None or c.index == index), None)
        # Some endpoints number every call 0: another id with its own name is another call.
        other = name and (index is None or (call_id and entry and entry.id and call_id != entry.id))
        if entry is None or other:
            entry = _PendingCall(index)
            self.calls.append(entry)
        entry.id = entry.id or str(call_id)
        entry.name = entry.name or str(name)
        given = function.get("arguments")
        if isinstance(given, str):
            self._inputs += len(given.encode(errors="replace"))
            entry.arguments.append(self._cut_circle(self._within(given), entry.cut))
        elif given is not None:
            entry.value = given

    @property
    def is_stopped(self) -> bool:
        """Return whether no more of the reply is wanted."""
        return self.circling or self.over or self.filter.stopped

    @property
    def whole(self) -> bool:
        """Return whether the endpoint has ended the reply."""
        return self.done or bool(self.finish)

    def reply(self, think: Think) -> Reply:
        calls = tuple(pending.call() for pending in self.calls)
        finish = "stop" if self.is_stopped else _FINISH.get(self.finish, "stop")
        if self.circling or self.filter.circling:
            finish = "circle"
        elif self.over:
            finish = "length"
        if calls and finish == "stop" and not self.filter.stopped:
            finish = "calls"
        thought = "".join(self.reasoning)
        inner = self.filter.reasoning
        return Reply(
            "".join(self.text),
            finish,
            usage_of(self.usage, self.timings) or self._estimate(think, calls),
            calls,
            f"{thought}\n{inner}" if thought and inner else thought or inner,
            self.model,
        )

    def _estimate(self, think: Think, calls: tuple[Call, ...]) -> Usage:
        asked = len(think.prompt.encode()) + len(think.prefill.encode())
        asked += sum(len(m.content.encode()) + 16 for m in think.messages)
        if think.tools:
            asked += len(msgspec.json.encode(think.tools))
        # A call is counted whole, with the name of its tool.
        written = self.written - self._inputs + (len(msgspec.json.encode(calls)) if calls else 0)
        return Usage(math.ceil(asked / 4), math.ceil(written / 4), estimated=True)


def usage_of(usage: Mapping[str, Any], timings: Mapping[str, Any]) -> Usage | None:
    """Return the usage that an endpoint reports; None if it reports none. Cached tokens are part of the input."""
    cached = _cached(usage, timings)
    if "prompt_tokens" in usage:
        read = _count(usage["prompt_tokens"])
    elif "input_tokens" in usage:
        read = _count(usage["input_tokens"])
        if "cache_read_input_tokens" in usage:  # Anthropic's own count leaves out cached tokens
            read += cached + _count(usage.get("cache_creation_input_tokens"))
    else:
        return None
    # With some (xAI, Gemini), reasoning that is billed as output is only in the total.
    written = _count(usage.get("completion_tokens", usage.get("output_tokens")))
    written = max(written, _count(usage.get("total_tokens")) - read)
    return Usage(read, written, min(cached, read)) if read or written else None


def _cached(usage: Mapping[str, Any], timings: Mapping[str, Any]) -> int:
    for details in (usage.get("prompt_tokens_details"), usage.get("input_tokens_details")):
        if isinstance(details, dict) and (count := _count(details.get("cached_tokens"))):
            return count
    for value in (usage.get("prompt_cache_hit_tokens"), usage.get("cache_read_input_tokens"), timings.get("cache_n")):
        if value and (count := _count(value)):
            return count
    return 0


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


class ReplyReader:
    """Read one response in any pieces. `kind` is "json" or "events" after the first byte."""

    def __init__(self, think: Think, prefill: str = "") -> None:
        self.draft = Draft(think, prefill)
        self.kind = ""
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
                yield self.draft.chunk(event)

    def read_rest(self, body: bytes) -> None:
        """Read what `feed` leaves: a JSON body, or a last event without its end. Raises `msgspec.DecodeError`."""
        if self.kind == "json":
            self.draft.chunk(body)
            self.draft.done = True
            return
        for event in self._events.close():
            self.draft.chunk(event)

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
        if error or draft.finish == "error":
            error = error or "the endpoint ended the reply with an error"
            raise failure_in_stream(error, target, asked=asked, response=response)
        if not draft.choices:
            raise bad_response("sent something that is not a reply.", body, target, response)
        if draft.over and self._think.max_tokens is None:
            made = bad_response("sent far more than any reply.", body, target, response)
            made.retry = False
            raise made
        if not (draft.whole or response.cut or draft.is_stopped):
            raise bad_response("broke off in the middle of a reply.", body, target, response)
        return draft.reply(self._think)


def decode(response: Response, think: Think, target: Target, *, prefill: str = "", asked: bytes = b"") -> Reply:
    """Return the reply in a response, without a repeated `prefill`. Raises what `ReplyReader.finish` raises."""
    if response.status != 200:
        raise failure(response.status, response.body, target, asked=asked, response=response)
    reader = ReplyReader(think, prefill)
    try:
        for _ in reader.feed(response.body):
            pass
    except msgspec.DecodeError:
        raise bad_response("sent something that is not a reply.", response.body, target, response) from None
    return reader.finish(response, target, asked)


def usage_received(body: bytes, think: Think) -> Usage:
    """Return the tokens of a request and of the part of its reply that came: as reported, or estimated."""
    reader = ReplyReader(think)
    with contextlib.suppress(msgspec.DecodeError):
        for _ in reader.feed(body):
            pass
        reader.read_rest(body)
    return reader.draft.reply(think).usage


def _error_in(data: bytes) -> Any:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode("utf-8", "replace")
    return value.get("error", value) if isinstance(value, dict) else value
