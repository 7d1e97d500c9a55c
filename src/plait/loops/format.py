"""What all formats of replies share: the codec of a format, and the stream that reads a reply as it arrives."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from msgspec import Struct

from plait.core import Call, Piece, PieceKind, ToolSpec

CODE = "python"
"""The name in the call of a turn whose action is code; the input is the code."""

R = TypeVar("R")
Parts: TypeAlias = Mapping[PieceKind, str]
"""What a reading says, by kind."""


class Remark(Struct, frozen=True):
    """Something a reader repaired or cut. `kind` is "repaired" or "cut", `text` describes it for people."""

    kind: str
    text: str


class Turn(Struct, frozen=True, omit_defaults=True):
    """One turn of a model, as read: a thought and either a call or an answer.

    `answered` distinguishes an answer of None from no answer. `kept` is the relevant part of the reply as the model
    wrote it: text after the first action is dropped. `reply` is the whole reply, unchanged; readers leave it empty, and
    the turn of the loop fills it in. `remarks` describe what was repaired or cut.
    """

    thought: str = ""
    call: Call | None = None
    answer: Any = None
    answered: bool = False
    kept: str = ""
    remarks: tuple[Remark, ...] = ()
    reply: str = ""


class Unreadable(Exception):
    """A reply that cannot be read as a turn. The text explains the error to the model."""


class Codec(ABC, Generic[R]):
    """A format of replies in all directions, made from one description of it. `R` is what a reply reads as: a turn, a
    plan, a decision. `n` counts turns from 1, for formats that number them. `tools` are those that may be called."""

    name: ClassVar[str] = ""
    stream_kind: ClassVar[type[Stream[Any]]]
    """The class of its streams."""

    @abstractmethod
    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> R:
        """Read a whole reply, leniently. Raises only `Unreadable`."""

    def stream(self, n: int = 1, tools: Sequence[ToolSpec] = ()) -> Stream[R]:
        """Return a reader for a reply that streams in. At its end it has read the same as `read`."""
        return self.stream_kind(self, n, tools)

    def parts(self, reading: R) -> Parts:
        """Return what a reading says, by kind; empty if a stream shows all of it as it arrives."""
        return {}

    @abstractmethod
    def write(self, reading: R, n: int = 1) -> str:
        """Return the canonical text of a reading; `read` reads the same back, with no remarks.

        Raises ValueError for a reading that the format cannot hold.
        """

    def write_calls(self, calls: Sequence[Call], thought: str = "", n: int = 1) -> str:
        """Return a reply that makes these calls. Raises ValueError if the format cannot hold them."""
        raise ValueError("a reply of this phase makes no calls")

    def write_answer(self, answer: Any, n: int = 1) -> str:
        """Return a reply that gives this answer. Raises ValueError if the format cannot hold it."""
        return show_value(answer)

    @abstractmethod
    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Escape this format's protocol in data. Escaping twice changes nothing more. `Escape` explains `inline`."""

    def grammar(self, tools: Sequence[ToolSpec], n: int = 1, *, opened: bool = False) -> str | None:
        """Return GBNF of what `write` makes for these tools, thoughts on one line; None if there is a schema. `opened`:
        the prompt already ends in this turn's thought label, so the reply continues after it."""
        return None

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        """Return JSON Schema of what `write` makes, for formats that are JSON; None for the others."""
        return None


class TurnCodec(Codec[Turn]):
    """A codec whose replies are turns of a thought and an action or the answer."""

    def parts(self, reading: Turn) -> Parts:
        calls = () if reading.call is None else (reading.call,)
        return {"thought": reading.thought, "action": show_calls(calls), "answer": show_value(reading.answer)}

    def write_calls(self, calls: Sequence[Call], thought: str = "", n: int = 1) -> str:
        if len(calls) != 1:
            raise ValueError("a reply makes one call; put the others into replies of their own")
        return self.write(Turn(thought, calls[0]), n)

    def write_answer(self, answer: Any, n: int = 1) -> str:
        return self.write(Turn(answer=answer, answered=True), n)

    @abstractmethod
    def stop(self, n: int) -> tuple[str, ...]:
        """Return strings at which the model must stop writing in turn `n`."""

    @abstractmethod
    def observation(self, text: str, n: int) -> str:
        """Return an observation as it appears in the log; the text is already escaped."""

    @abstractmethod
    def describe(self, tools: Sequence[ToolSpec]) -> str:
        """Return the tools as this format's prompt lists them."""


class Stream(Generic[R]):
    """Reads a reply while it is written, and shows its parts.

    A subclass overrides `split`, which shows text as soon as its kind is certain. The end reads the whole reply, so
    `result` is what `Codec.read` gives, and shows the parts of the reading that are still missing. Nothing depends on
    how the text was cut into chunks. What was shown stays, even if the reader changed its mind: an action wins over an
    earlier answer.
    """

    def __init__(self, codec: Codec[R], n: int = 1, tools: Sequence[ToolSpec] = ()) -> None:
        self.codec = codec
        self._read, self._parts = partial(codec.read, n=n, tools=tools), codec.parts
        self._text: list[str] = []
        self._pieces: list[tuple[PieceKind, list[str]]] = []
        self._shown: list[Piece] = []
        self.has_begun, self._lead = False, ""
        self._blanks: list[str] = []
        self._held: list[str] = []  # the incomplete line

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that are certain after `text`, the next part of the reply."""
        self._text.append(text)
        self.split(text, last=False)
        return self._take()

    def close(self, acts: bool = False) -> list[Piece]:
        """Return the remaining pieces of a finished reply. `acts`: native tool calls came with it, or it is broken."""
        self.split("", last=True)
        pieces = self._take()
        with suppress(Unreadable):
            for kind, text in self._parts(self.result()).items() if not acts else ():
                shown = "".join(piece.text for piece in self._shown if piece.kind == kind)
                # An action may be shown as it was written.
                if text.startswith(shown) and not (shown and kind == "action"):
                    self.show(kind, text[len(shown) :])
        return pieces + self._take()

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._text)

    def result(self) -> R:
        """Read the reply, which has ended. Raises `Unreadable`."""
        return self._read(self.text)

    def split(self, text: str, *, last: bool) -> None:
        """Show what is certain with the next part of the reply; `last`: the reply has ended."""

    def begin(self, lead: str = "") -> None:
        """Begin another part. `lead` is shown before its first text if something was shown of the part that it joins,
        also if parts between were empty."""
        joins = self.has_begun or bool(self._lead)
        self.has_begun, self._lead, self._blanks = False, lead if joins else "", []

    def put(self, kind: PieceKind, text: str, strip: str | None = None) -> None:
        """Show text of the part without blanks at its ends. `strip`: the blanks to drop at the beginning; None: all."""
        body = text.rstrip()
        if body:
            self.show(kind, "".join((*self._blanks, body)) if self.has_begun else self._lead + body.lstrip(strip))
            self.has_begun, self._blanks = True, []
        if self.has_begun:
            self._blanks.append(text[len(body) :])

    def show(self, kind: PieceKind, text: str) -> None:
        """Show text as it is."""
        if not self._pieces or self._pieces[-1][0] != kind:
            self._pieces.append((kind, []))
        self._pieces[-1][1].append(text)

    def _take(self) -> list[Piece]:
        made, self._pieces = self._pieces, []
        pieces = [Piece(kind, text) for kind, texts in made if (text := "".join(texts))]
        self._shown += pieces
        return pieces


def write_json(value: Any, what: str) -> str:
    """Return a value as JSON on one line. Raises ValueError for one that JSON cannot hold; `what` names it."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as why:
        raise ValueError(f"{what} can't be written as JSON: {why}") from None


def show_calls(calls: Sequence[Call]) -> str:
    """Return a line for each call: the tool's name, and its input as JSON."""
    inputs = ("" if call.input is None else f" {json.dumps(call.input, ensure_ascii=False)}" for call in calls)
    return "\n".join(f"{call.tool}{given}" for call, given in zip(calls, inputs, strict=True))


def show_value(value: Any) -> str:
    """Return a value as people read it: text as it is, other values as JSON, "" for None."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
