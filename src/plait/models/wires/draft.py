"""A reply that is still arriving: its text, reasoning, calls and usage, whatever the wire.

Each wire reads its own events and adds what they hold to a `Draft`. A live stream and a recorded body go through the
same draft, so the streamed text is the text of the reply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import structs

from plait.core import Call, ProviderState, Reply, Think, Usage
from plait.core.hosted import Citation, HostedCall
from plait.core.json_schema import drop_nulls
from plait.core.replies import Finish
from plait.models.wires.odd_json import mend
from plait.models.wires.pending_calls import PendingCall, merge_calls
from plait.models.wires.pieces import Pieces
from plait.models.wires.repetition import LONG, CircleCut
from plait.models.wires.reply_text import TextFilter

_REASONS: dict[Finish | Literal["failed"], re.Pattern[str]] = {
    "broken": re.compile(
        "broken|malformed|unexpected_tool|too_many_tool|missing_thought|invalid_(?:tool|function)"
        "|(?:tool|function)(?:_call|_use)?_(?:error|fail|invalid|parse)"
    ),
    "failed": re.compile("error|fail|abort|cancel|timeout|overload|insufficient|unavailable|rate_limit"),
    "filter": re.compile(
        "filter|safety|sensitive|refus|recitation|language|block|prohibited|spii|guardrail|moderation"
    ),
    "paused": re.compile("pause_turn"),
    "length": re.compile("length|max_|context_window|token_limit|incomplete|truncat"),
    "calls": re.compile("tool|function"),
    "stop": re.compile(""),
}
"""The reasons of an end in the names of all endpoints, first match first. All others mean that the model was done.

`broken`: the model attempted a call that the endpoint could not read. `paused`: the endpoint paused a turn with its own
tools, and continues it when it is sent back.
"""
Cut: TypeAlias = Literal["", "stop", "length", "circle", "flood"]
CUTS: tuple[Cut, ...] = ("", "stop", "length", "circle", "flood")
"""Why Plait reads no more of a reply: a stop string, its token limit, endless repetition, more than any reply has."""
_STAYS = ("length", "filter", "paused")
"""Reasons that a later, plain end does not replace."""
_NO_END = ("", "none", "null", "finish_reason_unspecified")
CHARS_A_TOKEN = 8
"""Far more than any text has. Plait cuts a reply that is longer than its tokens allow."""
MOST_CHARS = 1 << 20
"""Maximum characters of a reply without a token limit."""


@lru_cache(maxsize=256)
def _find_kind(reason: str) -> Finish | Literal["failed"]:
    return next(kind for kind, names in _REASONS.items() if names.search(reason))


def read_count(value: Any) -> int:
    """Return a number of tokens as an endpoint reports it; 0 for anything else."""
    return int(value) if isinstance(value, int | float) and value > 0 else 0


class Draft:
    """A reply that is still arriving.

    A wire's reader calls `write`, `add_reasoning`, `add_call` and `end`, and sets the fields below.

    How far the reply is:

    - `began`: something arrived that is a reply.
    - `finish`: the reason that the endpoint gave for the end, as `Finish` has it; None before that.
    - `is_done`: the stream has ended. `is_counted`: the usage came, and nothing after it. Either one ends a reply
      whose endpoint gives no reason: see `is_whole`.
    - `cut`: why Plait reads no more; the endpoint may go on. Nobody else sets it. Each of `CUTS` replaces only those
      before it. After a "length", a "flood", or a "circle" outside the text, nothing more is added.

    What came:

    - `usage`: what the endpoint reports; None if nothing. `model`: the name that it reports.
    - `cost`: the USD that the endpoint reports; None if it reports none. `service_tier`: the tier that it reports.
    - `error`: an error object inside the body.
    - `state`: what the provider needs back with this turn, unchanged (a JSON value; None for nothing).
    - `hosted`, `citations`: the provider's own calls, and the sources that the text names.
    - `provider`: the dialect of the endpoint ("" for none), for the reader.
    - `written`: the bytes of text, reasoning and inputs received, cut or not.
    """

    def __init__(self, think: Think, prefill: str = "", provider: str = "") -> None:
        self.provider = provider
        self.filter = TextFilter(think.stop, prefill, think.stop_after_object, think.prefill)
        self.finish: Finish | None = None
        self.began = self.is_done = self.is_counted = False
        self.usage: Usage | None = None
        self.model = ""
        self.cost: float | None = None
        self.service_tier = ""
        self.error: Any = None
        self.state: Any = None
        self.hosted: tuple[HostedCall, ...] = ()
        self.citations: tuple[Citation, ...] = ()
        self.calls: list[PendingCall] = []
        self._names = list(map(attrgetter("name"), think.tools))
        self._places: dict[tuple[str, str], PendingCall] = {}
        self._cut: Cut = ""
        self._unread = ""
        self._came, self._thought = Pieces(), Pieces()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_cut = CircleCut((LONG,))
        self._room = MOST_CHARS if think.max_tokens is None else think.max_tokens * CHARS_A_TOKEN
        self._beyond: Cut = "flood" if think.max_tokens is None else "length"
        self.written = self._inputs = 0

    def write(self, text: str, whole: bool = False, ends: bool = False) -> str:
        """Add text and return the text that is now certain. `whole` and `ends`: see `Pieces`."""
        return self._write(self._came.add(text, whole, ends))

    def add_reasoning(self, text: str, whole: bool = False) -> None:
        """Add to the chain of thought that the endpoint sends beside the text."""
        self._add_reasoning(self._thought.add(text, whole))

    def add_call(self, index: Any, id: str = "", name: str = "", given: Any = None, group: int = 0) -> PendingCall:
        """Add to the tool call at `index` (None: the last one), and return it: a piece of its JSON text, or its input.
        A piece with a name may begin another call. `group`: see `PendingCall`; each call of a whole message is one."""
        at, entry = ("at", str(index)), self._places.get(("id", id))
        if index is None and entry is None and self.calls:
            entry = self.calls[-1]
        elif index is not None and (entry is None or str(entry.index) != str(index)):
            entry = self._places.get(at, None if name else entry)
        if entry is not None and name and entry.name and entry.is_empty and entry.name not in self._names:
            for grown in (entry.name + name, name):  # in pieces, or again with more of it: no report is known
                if grown.startswith(entry.name) and any(tool.startswith(grown) for tool in self._names):
                    entry.name = name = grown
                    break
        if entry is None or group > 0 or (name and entry.is_other(index, id, name, given)):
            entry = PendingCall(index, group)
            self.calls.append(entry)
            self._places[at] = entry
        entry.id = entry.id or id
        if id:
            self._places["id", id] = entry
        entry.name = entry.name or name
        if self._cut or self.filter.cut == "circle":
            return entry
        if isinstance(given, str) and given:
            self._inputs += len(given.encode(errors="replace"))
            entry.arguments.append(self._cut_circle(self._within(given), entry.cut))
        elif given not in (None, ""):
            entry.value = given
        return entry

    def without_repeated(self, parts: Sequence[tuple[dict[str, Any], PendingCall | None]]) -> list[dict[str, Any]]:
        """Return the parts of a state, each with its call or None, without those of calls that are not made."""
        made = {None, *merge_calls(self.calls)}
        return [part for part, pending in parts if pending in made]

    def end(self, reason: Any, words: Any = "") -> None:
        """Set why the reply ended, from an endpoint's name for it. `words` are those that it adds."""
        reason = str(reason.get("type") if isinstance(reason, dict) else reason or "").lower()
        if reason in _NO_END:
            return
        kind = _find_kind(reason)
        if kind == "failed":
            self.error = self.error or f"the endpoint ended the reply with {reason!r}"
        elif self.finish != "broken" and not (kind in ("stop", "calls") and self.finish in _STAYS):
            self.finish = kind
            self._unread = mend(words)[0] if kind == "broken" and isinstance(words, str) else ""

    def new_input(self, tool: str) -> str:
        """Return the JSON of the input of the first call of this tool, as far as it is new."""
        call = next((each for each in self.calls if each.name == tool), None)
        if call is None:
            return ""
        came_whole = [msgspec.json.encode(mend(call.value)[0]).decode()] if call.value and not call.arguments else []
        pieces = call.arguments or came_whole
        text, call.seen = "".join(pieces[call.seen :]), len(pieces)
        return str(mend(text)[0])

    def close(self) -> str:
        """Return the remaining text, when all has arrived."""
        if thought := self._thought.close():
            self._add_reasoning(thought)
        shown = self._write(self._came.close())
        self._text.append(self.filter.close())
        return shown + self._text[-1]

    @property
    def cut(self) -> Cut:
        """Return why Plait reads no more; "" if it reads on."""
        return max(self._cut, self.filter.cut, key=CUTS.index)

    @property
    def is_whole(self) -> bool:
        """Return whether the endpoint has ended the reply."""
        return self.is_done or self.finish is not None or (self.began and self.is_counted)

    @property
    def is_stated(self) -> bool:
        """Return whether a whole message without calls came after the pieces, and agrees with them."""
        return self._came.is_stated and not self.calls

    def reply(self, think: Think, wire: str, model: str) -> Reply:
        """Return the reply. `wire` and `model` name who made its opaque state."""
        found = merge_calls(self.calls) if self.calls else []
        calls: tuple[Call, ...] = ()
        cut = self.cut
        finish: Finish = "length" if cut == "flood" else cut or self.finish or "stop"
        if found and self.finish is None and not cut and found[-1].group <= 0:
            finish = "broken" if found[-1].is_empty or isinstance(found[-1].call.input, str) else finish
        for each in found:
            call = each.call
            tool = next((tool for tool in think.tools if tool.name == call.tool), None)
            if tool is not None and isinstance(
                call.input, dict
            ):  # a strict schema requires the optional parameters too
                call = structs.replace(call, input=drop_nulls(call.input, tool.parameters) or None)
            calls += (call,)
            finish = "broken" if each.is_damaged else finish
        if calls and finish == "stop" and not cut:
            finish = "calls"
        thought = "".join(self._reasoning)
        inner = self.filter.reasoning
        return Reply(
            "" if finish == "broken" else "".join(self._text),  # what stands before such a call is no answer
            finish,
            self.usage or self._estimate(think, calls),
            calls,
            f"{thought}\n{inner}" if thought and inner else thought or inner,
            mend(self.model)[0],
            cost=self.cost,
            cost_reported=self.cost is not None,
            service_tier=mend(self.service_tier)[0] if self.service_tier else "",
            state=None if self.state is None else ProviderState(wire, model, mend(self.state)[0]),
            unread=self._unread,
            hosted=self.hosted,
            citations=self.citations,
        )

    def _write(self, text: str) -> str:
        if self._cut or not text:
            return ""
        self._text.append(self.filter.feed(self._within(text)))
        return self._text[-1]

    def _add_reasoning(self, text: str) -> None:
        if text and not self._cut:
            self._reasoning.append(self._cut_circle(self._within(text), self._reasoning_cut))

    def _within(self, text: str) -> str:
        """Return the text up to the maximum length of the reply."""
        self.written += len(text) if text.isascii() else len(text.encode(errors="replace"))
        if len(text) > self._room:
            text = text[: self._room]
            self._cut = self._beyond
        self._room -= len(text)
        return text

    def _cut_circle(self, text: str, cut: CircleCut) -> str:
        text = cut.feed(text)
        if cut.found:
            self._cut = max(self._cut, "circle", key=CUTS.index)
        return text

    def _estimate(self, think: Think, calls: tuple[Call, ...]) -> Usage:
        asked = len(think.prompt.encode()) + len(think.prefill.encode())
        for message in think.messages:
            asked += len(message.content.encode()) + 16
            for each in message.attachments:
                asked += 4 * each.tokens
        if think.tools:
            asked += len(msgspec.json.encode(think.tools))
        # A call is counted whole, with the name of its tool.
        written = self.written - self._inputs + (len(msgspec.json.encode(calls)) if calls else 0)
        return Usage(math.ceil(asked / 4), math.ceil(written / 4), estimated=True)
