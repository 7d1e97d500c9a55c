"""A model's reply and its token usage."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, structs

from plait.core.hosted import Citation, HostedCall
from plait.core.messages import ProviderState
from plait.core.reasoning import split_unopened
from plait.core.tools import Call

Finish: TypeAlias = Literal["stop", "length", "full", "calls", "filter", "circle", "broken", "paused"]
"""Why the model stopped writing: done (or at a stop string), cut by its token limit, cut at the longest reply that the
model may write (which is not continued), native calls, filtered, cut by Plait because it kept repeating itself, at a
native call that nobody can read, or paused by the provider between calls of its own."""

CUT: dict[Finish, str] = {
    "length": "was cut at its token limit",
    "full": "was cut at the maximum length of a reply",
    "circle": "repeated itself and was cut",
    "filter": "was refused, or cut by the endpoint's content filter",
    "broken": "holds a call that cannot be read",
    "paused": "was paused by the provider",
}
"""The reason of an incomplete reply, by its `finish`."""


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider reports them.

    `cached_tokens` are the part of `input_tokens` that the server read from its cache, `cache_write_tokens` the part
    that it wrote to a cache, and `cache_write_1h_tokens` the part of these that it keeps for an hour.
    `reasoning_tokens` are part of `output_tokens`. `estimated`: the provider reported nothing, and the numbers are
    estimated from the length of the text.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    cache_write_1h_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.estimated or other.estimated,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class Reply(Struct, frozen=True, omit_defaults=True):
    """One model's reply to one think effect.

    `text` ends before the first stop string, whether the endpoint or Plait cut it. `reasoning` is the endpoint's
    separate chain of thought. `calls` are native tool calls. `cost` is in USD, None if no price is known. `state`
    belongs to the assistant's message of this turn. `service_tier` is the tier that the endpoint reports, "" if none.
    `cost_reported`: the provider reported the cost; else Plait computes it from prices. `unread` is a call that the
    endpoint could not read, in its words ("" if it sends none); such a reply is `broken` and has no text. `hosted` are
    the calls that the provider made by itself, `citations` the sources that the text names.
    """

    text: str
    finish: Finish = "stop"
    usage: Usage = Usage()
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    model: str = ""
    seconds: float = 0.0
    cost: float | None = None
    state: ProviderState | None = None
    service_tier: str = ""
    cost_reported: bool = False
    unread: str = ""
    hosted: tuple[HostedCall, ...] = ()
    citations: tuple[Citation, ...] = ()

    @property
    def how_cut(self) -> str:
        """Return why a reply is incomplete, as the end of a sentence; "" for a complete one."""
        said = " ".join(self.unread.split())[:300]
        return CUT.get(self.finish, "") + (f" ({said})" if said else "")

    @property
    def only_reasoning(self) -> str:
        """Return that only reasoning came, and how much, as a sentence; "" for a reply with text or calls, or empty."""
        tokens = self.usage.reasoning_tokens
        if self.finish == "broken" or self.text.strip() or self.calls or not (self.reasoning.strip() or tokens):
            return ""
        size = f"{len(self.reasoning.strip()):,} characters" if self.reasoning.strip() else f"{tokens:,} tokens"
        return f"Only reasoning came ({size}) and no text{f', and it {self.how_cut}' if self.how_cut else ''}."

    def without_unopened_reasoning(self) -> Reply:
        """Return the reply without the reasoning in its text, or with the text in its reasoning, that only a closing
        marker sets apart."""
        said = self.reasoning if self.only_reasoning else self.text
        thought, text = split_unopened(said)
        if text == said:
            return self
        before = () if self.only_reasoning else (self.reasoning,)
        return structs.replace(self, text=text, reasoning="\n".join(filter(None, (*before, thought))))
