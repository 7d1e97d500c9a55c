"""From the exact bytes of a response to a reply: one JSON body or a whole stream, any dialect. Pure.

`Draft` takes a reply in piece by piece; a live stream and a recorded body go through the same one, so what
was shown while streaming is what the reply says.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Struct

from plait.core import Call, Reply, Think, Usage
from plait.core.replies import Finish
from plait.models.base import Response
from plait.models.circles import INPUT, REASONING, Circles
from plait.models.refusals import Place, bad, failure, in_stream
from plait.models.stream import DONE, Events, is_json
from plait.models.text import TextFilter

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
    # What endpoints disagree about is left untyped and looked at by hand: an odd field must not lose a reply.
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


class _Pending:
    """A native call whose arguments are still coming."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.circles = Circles(INPUT)
        self.value: Any = None

    def call(self) -> Call:
        text = "".join(self.arguments)
        value = self.value
        if text.strip():
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                value = text  # as the model wrote it: whoever reads the call says what is wrong with it
        return Call(self.name, None if value == {} else value, self.id)


class Draft:
    """A reply in the making. `chunk` takes one JSON chunk and returns the text that is now certain."""

    def __init__(self, think: Think, prefill: str = "") -> None:
        self.filter = TextFilter(think.stop, prefill)
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[_Pending] = []
        self.finish = ""
        self.done = False
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}
        self.model = ""
        self.error: Any = None
        self.choices = 0
        self.circling = False
        """The reasoning, or the input of a call, went in circles: nothing that comes after it is taken in."""
        self._circles = Circles(REASONING)
        self.written = 0
        """Bytes of text and reasoning that came, cut or not."""

    def chunk(self, data: bytes) -> str:
        """Take in a chunk. An error object is put in `error`. Raises `msgspec.DecodeError`."""
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
        """The text that was held back, when all has come."""
        return self._keep(self.filter.close())

    def _choice(self, choice: _Choice) -> str:
        if choice.error:
            self.error = choice.error
        if choice.finish_reason:
            self.finish = str(choice.finish_reason).lower()
        part = choice.delta or choice.message
        if self.circling:
            return ""
        if part is None:
            return self._write(choice.text) if choice.text else ""
        thought = part.get("reasoning_content") or part.get("reasoning")
        if isinstance(thought, str):
            self._think(thought)
        for call in part.get("tool_calls") or ():
            self._call(call)
        content = part.get("content")
        if isinstance(content, list):
            content = self._parts(content)
        if not content and isinstance(part.get("refusal"), str):
            content = part["refusal"]
            self.finish = "refusal"
        return self._write(content) if isinstance(content, str) and content else ""

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

    def _think(self, text: str) -> None:
        self.written += len(text.encode())
        self.reasoning.append(self._straight(text, self._circles))

    def _straight(self, text: str, circles: Circles) -> str:
        if self.filter.whole:  # it came in one piece: nothing is gained
            return text
        text = circles.straight(text)
        self.circling = self.circling or circles.seen
        return text

    def _write(self, text: str) -> str:
        self.written += len(text.encode())
        return self._keep(self.filter.feed(text))

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
        # Some endpoints number every call 0: another id with a name of its own is another call.
        other = name and (index is None or (call_id and entry and entry.id and call_id != entry.id))
        if entry is None or other:
            entry = _Pending(index)
            self.calls.append(entry)
        entry.id = entry.id or str(call_id)
        entry.name = entry.name or str(name)
        given = function.get("arguments")
        if isinstance(given, str):
            entry.arguments.append(self._straight(given, entry.circles))
        elif given is not None:
            entry.value = given

    @property
    def stopped(self) -> bool:
        """Nothing more of the reply is wanted."""
        return self.circling or self.filter.stopped

    @property
    def whole(self) -> bool:
        """The endpoint said that the reply has ended."""
        return self.done or bool(self.finish)

    def reply(self, think: Think) -> Reply:
        """The reply, when all has come."""
        calls = tuple(pending.call() for pending in self.calls)
        finish = "stop" if self.stopped else _FINISH.get(self.finish, "stop")
        if self.circling or self.filter.circling:
            finish = "circle"
        if calls and finish == "stop" and not self.filter.stopped:
            finish = "calls"
        thought = "".join(self.reasoning)
        inner = self.filter.reasoning
        return Reply(
            "".join(self.text),
            finish,
            usage_of(self.usage, self.timings) or self._guess(think, calls),
            calls,
            f"{thought}\n{inner}" if thought and inner else thought or inner,
            self.model,
        )

    def _guess(self, think: Think, calls: tuple[Call, ...]) -> Usage:
        asked = len(think.prompt.encode()) + len(think.prefill.encode())
        asked += sum(len(m.content.encode()) + 16 for m in think.messages)
        if think.tools:
            asked += len(msgspec.json.encode(think.tools))
        if calls:
            self.written += len(msgspec.json.encode(calls))
        return Usage(math.ceil(asked / 4), math.ceil(self.written / 4), estimated=True)


def usage_of(usage: dict[str, Any], timings: dict[str, Any] | None = None) -> Usage | None:
    """Usage as the endpoint reports it, cached tokens being part of the input; None where it reports none."""
    written = _int(usage.get("completion_tokens", usage.get("output_tokens")))
    cached = 0
    for details in ("prompt_tokens_details", "input_tokens_details"):
        if isinstance(usage.get(details), dict):
            cached = cached or _int(usage[details].get("cached_tokens"))
    cached = (
        cached
        or _int(usage.get("prompt_cache_hit_tokens"))
        or _int(usage.get("cache_read_input_tokens"))
        or _int((timings or {}).get("cache_n"))
    )
    if "prompt_tokens" in usage:
        read = _int(usage["prompt_tokens"])
    elif "input_tokens" in usage:
        read = _int(usage["input_tokens"])
        if "cache_read_input_tokens" in usage:  # Anthropic's own count leaves out what was cached
            read += cached + _int(usage.get("cache_creation_input_tokens"))
    else:
        return None
    # Reasoning that is billed as output stands in the total alone with some (xAI, Gemini).
    written = max(written, _int(usage.get("total_tokens")) - read)
    return Usage(read, written, min(cached, read)) if read or written else None


def _int(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


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
            draft.filter.whole = True
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
    if not (draft.whole or response.cut or draft.stopped):
        raise bad("broke off in the middle of a reply.", body, place, response)
    return draft.reply(think)


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
