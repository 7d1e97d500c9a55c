"""A reply that is still arriving: its text, reasoning, calls and usage, whatever the wire.

Each wire reads its own events and adds what they hold to a `Draft`. A live stream and a recorded body go through the
same draft, so the streamed text is the text of the reply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from plait.core import Call, ProviderState, Reply, Think, ToolSpec, Usage
from plait.core.replies import Finish
from plait.models.wires.repetition import MOST_INPUT, MOST_REASONING, CircleCut
from plait.models.wires.reply_text import TextFilter
from plait.models.wires.strict_schema import drop_nulls

CHARS_A_TOKEN = 8
"""Far more than any text has. Plait cuts a reply that is longer than its tokens allow."""
MOST_CHARS = 1 << 20
"""Maximum characters of a reply without a token limit."""


class PendingCall:
    """A tool call whose arguments are still arriving. `value` is its input if it came as JSON, not as text."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.cut = CircleCut(MOST_INPUT)
        self.seen = 0
        self.value: Any = None

    def call(self) -> Call:
        text, value = "".join(self.arguments), self.value
        if text.strip():
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                value = text  # as the model wrote it: the reader of the call reports the error
        return Call(self.name, None if value == {} else value, self.id)


def _without_added_nulls(call: Call, tools: Sequence[ToolSpec]) -> Call:
    """Return a call without the nulls of parameters that are left out: a strict schema requires all of them."""
    tool = next((tool for tool in tools if tool.name == call.tool), None)
    if tool is None or not isinstance(call.input, dict):
        return call
    return structs.replace(call, input=drop_nulls(call.input, tool.parameters) or None)


def read_count(value: Any) -> int:
    """Return a number of tokens as an endpoint reports it; 0 for anything else."""
    return int(value) if isinstance(value, int | float) and value > 0 else 0


class Draft:
    """A reply that is still arriving.

    A wire's reader calls `write`, `add_reasoning` and `add_call`, and sets the fields below.

    - `finish`: why the reply ended, as `Finish` has it; None if it has not ended. `done`: the stream has ended.
    - `usage`: what the endpoint reports; None if nothing. `model`: the name that it reports.
    - `cost`: the USD that the endpoint reports; None if it reports none. `service_tier`: the tier that it reports.
    - `error`: an error object inside the body.
    - `state`: what the provider needs back with this turn, unchanged (a JSON value; None for nothing).
    - `began`: something arrived that is a reply.
    - `provider`: the dialect of the endpoint ("" for none), for the reader.

    `circling`: the reasoning, or the input of a call, repeats itself. `over`: more arrived than the reply may have.
    After either of them, nothing more is read. `written` counts the bytes of text, reasoning and inputs received, cut
    or not.
    """

    def __init__(self, think: Think, prefill: str = "", provider: str = "") -> None:
        self.provider = provider
        self.filter = TextFilter(think.stop, prefill, think.stop_after_object, think.prefill)
        self.finish: Finish | None = None
        self.done = self.began = False
        self.usage: Usage | None = None
        self.model = ""
        self.cost: float | None = None
        self.service_tier = ""
        self.error: Any = None
        self.state: Any = None
        self.calls: list[PendingCall] = []
        self.circling = self.over = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_cut = CircleCut(MOST_REASONING)
        self._room = MOST_CHARS if think.max_tokens is None else think.max_tokens * CHARS_A_TOKEN
        self.written = self._inputs = 0

    def write(self, text: str) -> str:
        """Add text and return the text that is now certain."""
        if self.circling or self.over:
            return ""
        text = self._within(text)
        return "" if self.circling else self._keep(self.filter.feed(text))

    def add_reasoning(self, text: str) -> None:
        """Add to the chain of thought that the endpoint sends beside the text."""
        if not (self.circling or self.over):
            self._reasoning.append(self._cut_circle(self._within(text), self._reasoning_cut))

    def add_call(
        self, index: Any, id: str = "", name: str = "", arguments: str | None = None, value: Any = None
    ) -> None:
        """Add to the tool call at `index` (None: the last one): a piece of its JSON text, or the whole value."""
        if self.circling or self.over or self.filter.circling:
            return
        entry = next((each for each in reversed(self.calls) if index is None or each.index == index), None)
        # Some endpoints number every call 0: another id with its own name is another call.
        other = name and (index is None or (id and entry and entry.id and id != entry.id))
        if entry is None or other:
            entry = PendingCall(index)
            self.calls.append(entry)
        entry.id = entry.id or id
        entry.name = entry.name or name
        if arguments is not None:
            self._inputs += len(arguments.encode(errors="replace"))
            entry.arguments.append(self._cut_circle(self._within(arguments), entry.cut))
        elif value is not None:
            entry.value = value

    def new_input(self, tool: str) -> str:
        """Return the JSON of the input of the first call of this tool, as far as it is new."""
        call = next((each for each in self.calls if each.name == tool), None)
        if call is None:
            return ""
        came_whole = [msgspec.json.encode(call.value).decode()] if call.value and not call.arguments else []
        pieces = call.arguments or came_whole
        text, call.seen = "".join(pieces[call.seen :]), len(pieces)
        return text

    def close(self) -> str:
        """Return the remaining text, when all has arrived."""
        return self._keep(self.filter.close())

    @property
    def is_stopped(self) -> bool:
        """Return whether no more of the reply is wanted."""
        return self.circling or self.over or self.filter.stopped

    @property
    def whole(self) -> bool:
        """Return whether the endpoint has ended the reply."""
        return self.done or self.finish is not None

    def reply(self, think: Think, wire: str, model: str) -> Reply:
        """Return the reply. `wire` and `model` name who made its opaque state."""
        calls = tuple(_without_added_nulls(pending.call(), think.tools) for pending in self.calls)
        finish: Finish = "stop" if self.is_stopped else self.finish or "stop"
        if self.circling or self.filter.circling:
            finish = "circle"
        elif self.over:
            finish = "length"
        if calls and finish == "stop" and not self.filter.stopped:
            finish = "calls"
        thought = "".join(self._reasoning)
        inner = self.filter.reasoning
        return Reply(
            "".join(self._text),
            finish,
            self.usage or self._estimate(think, calls),
            calls,
            f"{thought}\n{inner}" if thought and inner else thought or inner,
            self.model,
            cost=self.cost,
            cost_reported=self.cost is not None,
            service_tier=self.service_tier,
            state=None if self.state is None else ProviderState(wire, model, self.state),
        )

    def _within(self, text: str) -> str:
        """Return the text up to the maximum length of the reply."""
        self.written += len(text) if text.isascii() else len(text.encode(errors="replace"))
        if len(text) > self._room:
            self.over, text = True, text[: self._room]
        self._room -= len(text)
        return text

    def _cut_circle(self, text: str, cut: CircleCut) -> str:
        text = cut.feed(text)
        self.circling = self.circling or cut.found
        return text

    def _keep(self, text: str) -> str:
        if text:
            self._text.append(text)
        return text

    def _estimate(self, think: Think, calls: tuple[Call, ...]) -> Usage:
        asked = len(think.prompt.encode()) + len(think.prefill.encode())
        asked += sum(len(m.content.encode()) + 16 for m in think.messages)
        asked += sum(4 * each.tokens for m in think.messages for each in m.attachments)
        if think.tools:
            asked += len(msgspec.json.encode(think.tools))
        # A call is counted whole, with the name of its tool.
        written = self.written - self._inputs + (len(msgspec.json.encode(calls)) if calls else 0)
        return Usage(math.ceil(asked / 4), math.ceil(written / 4), estimated=True)
