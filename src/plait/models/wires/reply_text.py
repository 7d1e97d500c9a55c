"""The text of a streamed reply: reasoning separated, a repeated prefill dropped, stop strings and repetitions cut.

The same filter reads a recorded body and a live stream, so the streamed text is the text of the reply, however the
stream was cut into pieces. It returns no text that a later piece could still take back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from plait.core import reasoning
from plait.models.wires.repetition import LONG, CircleCut

MOST_BLANKS = 1000
"""Blanks before reasoning."""


class TextFilter:
    """Filter one reply: feed pieces of its text, get the pieces that are certain.

    The text ends before the string of `stop` that is complete first. Without `stop`, the strings of `after_object`
    count after the first JSON object of the reply; `before` is the part of the reply that the request held. `prefill`
    is dropped from the start of the text if the model repeats it. Marked reasoning at the start, also behind the
    prefill, is `reasoning` (`core/reasoning.py`).
    `cut`: why all later text is dropped, "stop" (a stop string) or "circle" (a repetition); "" before that.
    """

    def __init__(
        self, stop: Sequence[str] = (), prefill: str = "", after_object: Sequence[str] = (), before: str = ""
    ) -> None:
        self._stop = tuple(filter(None, stop))
        self._after_object = tuple(filter(None, after_object))
        inside = False
        if self._after_object and not self._stop:
            self._object = FirstObject()
            self._object.end_in(before)
            inside = self._object.open
        self._stop = self._stop or (() if inside else self._after_object)
        self._body = TextFilter._in_object if inside else TextFilter._in_text
        self._prefill = prefill.strip()
        self._gap = prefill[len(prefill.rstrip()) :] if self._prefill else ""
        self._held = ""
        self._inside: reasoning.Markers | None = None  # of the reasoning that is open
        self._answer: reasoning.Markers | None = None  # of the answer
        self._is_behind = False  # behind reasoning
        # A function, not a bound method: a cycle would wait for the garbage collector.
        self._stage: Callable[[TextFilter], str] = TextFilter._at_start
        self._next: Callable[[TextFilter], str] = TextFilter._in_prefill if self._prefill else self._body
        self._reasoning: list[str] = []
        self._text_cut, self._reasoning_cut = CircleCut(), CircleCut((LONG,))
        self.cut: Literal["", "stop", "circle"] = ""

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning).strip()

    def feed(self, text: str) -> str:
        """Return the text that is certain now."""
        if self.cut or not text:
            return ""
        self._held += text
        return self._cut_circle(self._stage(self))

    def close(self) -> str:
        """Return the remaining text, when the reply has ended."""
        if self.cut == "circle":
            return ""
        if self._inside is not None:
            self._think(self._held)
            return ""
        # Text that a stage still holds passes through the later stages.
        text = self._go_to(self._next) if self._stage is TextFilter._at_start else ""
        if self._stage is TextFilter._in_prefill:
            text += self._go_to(self._body)
        held, self._held = self._held, ""
        return self._cut_circle(text + (reasoning.drop_closing(held, self._answer) if self._answer else held))

    def _cut_circle(self, text: str) -> str:
        text = self._text_cut.feed(text)
        if self._text_cut.found:
            self.cut = "circle"
        return text

    def _think(self, text: str) -> None:
        self._reasoning.append(self._reasoning_cut.feed(text))
        if self._reasoning_cut.found:
            self.cut = "circle"
            self._held = ""

    # Stages, in order. Each either holds its text (returns "") or passes it to a later one.

    def _at_start(self) -> str:
        """Take reasoning apart, part by part, up to the first text of the answer."""
        text, at = self._held, 0
        while True:
            if self._inside is not None:
                closing = reasoning.end_of(self._inside).search(text, at)
                end = closing.start() if closing else len(text) - reasoning.count_unsure(text[at:], self._inside)
                self._think(text[at:end])
                if closing is None or self.cut:
                    self._held = text[end:]
                    return ""
                at, self._inside = closing.end(), None
            start = reasoning.skip_blanks(text, at)
            near = start - at <= MOST_BLANKS
            found = reasoning.find_opening(text, start, behind=self._is_behind) if near else None
            if found is None:
                self._held = text[start if self._is_behind else at :]
                return "" if near and reasoning.may_open(text, start) else self._go_to(self._next)
            markers, at = found
            self._is_behind = True
            if markers.is_answer:
                self._answer = markers
            else:
                self._inside = markers
                self._reasoning.append("\n")

    def _in_prefill(self) -> str:
        start = self._held.lstrip()
        if start.startswith(self._prefill):
            self._held = start[len(self._prefill) :]
            return self._go_to(TextFilter._after_prefill)
        if self._prefill.startswith(start):
            return ""
        return self._go_to(self._body)

    def _after_prefill(self) -> str:
        # The prefill's own trailing space belongs to the prefill, whether or not the model repeats it.
        while self._gap and self._held.startswith(self._gap[0]):
            self._gap, self._held = self._gap[1:], self._held[1:]
        self._next, self._is_behind = self._body, False
        return self._go_to(TextFilter._at_start) if self._held else ""

    def _in_object(self) -> str:
        """Return the text up to the end of the first JSON object. Stop strings that it may hold do not count."""
        end = self._object.end_in(self._held)
        if end is None:
            text, self._held = self._held, ""
            return text
        text, self._held = self._held[:end], self._held[end:]
        self._stop = self._after_object
        return text + self._go_to(TextFilter._in_text)

    def _in_text(self) -> str:
        text = self._held
        if not (self._stop or self._answer):
            self._held = ""
            return text
        met = [(at + len(s), at) for s in self._stop if (at := text.find(s)) >= 0]
        if met:
            self.cut = "stop"
            self._held = ""
            text = text[: min(met)[1]]
            return reasoning.drop_closing(text, self._answer) if self._answer else text
        keep = max([reasoning.overlap(text, s) for s in self._stop], default=0)
        if self._answer:
            keep += reasoning.count_unsure(text[: len(text) - keep], self._answer)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _go_to(self, stage: Callable[[TextFilter], str]) -> str:
        self._stage = stage
        return stage(self)


class FirstObject(Struct):
    """Find the end of the first JSON object in a text that arrives in pieces. Braces without a quote do not count.
    `open` is True until the object has ended."""

    open: bool = True
    _depth: int = 0
    _quoted: bool = False
    _escaped: bool = False
    _names: bool = False

    def end_in(self, text: str) -> int | None:
        """Return where the object ends in this piece; None if it does not."""
        for at, sign in enumerate(text if self.open else ""):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = sign == "\\", sign != '"'
            elif sign == '"':
                self._quoted = self._names = self._depth > 0
            elif sign == "{":
                self._depth += 1
            elif sign == "}" and self._depth:
                self._depth -= 1
                self.open = bool(self._depth) or not self._names
                if not self.open:
                    return at + 1
        return None
