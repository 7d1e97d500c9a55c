"""A reply in the making, from chunks of JSON of any dialect. Pure.

A live stream and a recorded body go through the same `Draft`, so what was shown while streaming is what the reply says.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Struct

from plait.core import Call, Reply, Think, Usage
from plait.core.replies import Finish
from plait.models.circles import INPUT, REASONING, Circles
from plait.models.stream import DONE
from plait.models.text import TextFilter
from plait.models.usage import usage_of

CHARS_A_TOKEN = 8
"""No text has more characters a token, by far: a reply of more than its tokens allow is cut on our side."""
MOST_CHARS = 1 << 20
"""Characters of a reply whose tokens nobody limited."""

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
        self.filter = TextFilter(think.stop, prefill, think.stop_after_object, think.prefill)
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
        self.over = False
        """More came than the reply may have: nothing after it is taken in."""
        self._room = MOST_CHARS if think.max_tokens is None else think.max_tokens * CHARS_A_TOKEN
        self.written = 0
        """Bytes of text, reasoning and inputs of calls that came, cut or not."""
        self._inputs = 0

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
        """The text, up to where the reply is longer than it may be."""
        self.written += len(text.encode(errors="replace"))
        self.over = self.over or len(text) > self._room
        text = text[: max(0, self._room)]
        self._room -= len(text)
        return text

    def _think(self, text: str) -> None:
        text = self._within(text)
        self.reasoning.append(self._straight(text, self._circles))

    def _straight(self, text: str, circles: Circles) -> str:
        text = circles.straight(text)
        self.circling = self.circling or circles.seen
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
        # Some endpoints number every call 0: another id with a name of its own is another call.
        other = name and (index is None or (call_id and entry and entry.id and call_id != entry.id))
        if entry is None or other:
            entry = _Pending(index)
            self.calls.append(entry)
        entry.id = entry.id or str(call_id)
        entry.name = entry.name or str(name)
        given = function.get("arguments")
        if isinstance(given, str):
            self._inputs += len(given.encode(errors="replace"))
            entry.arguments.append(self._straight(self._within(given), entry.circles))
        elif given is not None:
            entry.value = given

    @property
    def stopped(self) -> bool:
        """Nothing more of the reply is wanted."""
        return self.circling or self.over or self.filter.stopped

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
        elif self.over:
            finish = "length"
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
        # A call is counted whole, with the name of its tool.
        written = self.written - self._inputs + (len(msgspec.json.encode(calls)) if calls else 0)
        return Usage(math.ceil(asked / 4), math.ceil(written / 4), estimated=True)
