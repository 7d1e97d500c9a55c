"""The protocol of turn formats: a strict writer, a lenient reader, a grammar, a splitter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from plait.core import Call, Piece, PieceKind, Splitter, ToolSpec

CODE = "python"
"""The name in the call of a turn whose action is code; the input is the code."""


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


class Format(Protocol):
    """A way to write and read turns. `n` counts turns from 1, for formats that number them."""

    @property
    def name(self) -> str:
        """The word that selects the format."""
        ...

    def stop(self, n: int) -> tuple[str, ...]:
        """Return strings at which the model must stop writing in turn `n`."""
        ...

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        """Read the turn in a reply, leniently. Raises only `Unreadable`."""
        ...

    def write(self, turn: Turn, n: int) -> str:
        """Return the canonical text of a turn; `read` reads the same turn back, with no remarks."""
        ...

    def observation(self, text: str, n: int) -> str:
        """Return an observation as it appears in the log; the text is already escaped."""
        ...

    def disarm(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Escape this format's protocol in data, for the tools that may be called. `Escape` explains `inline`."""
        ...

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        """Return the tools as this format's prompt lists them."""
        ...

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        """Return GBNF of the turns `write` makes for these tools, thoughts on one line; None if there is a schema.

        `opened`: the prompt already ends in this turn's thought label, so the reply continues after it.
        """
        ...

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        """Return JSON Schema of a turn, for formats that are JSON; None for the others."""
        ...

    def splitter(self) -> Splitter:
        """Return a splitter of thought, action and answer for a reply that streams in."""
        ...


class LineSplitter(ABC):
    """A splitter that returns each line as soon as it is complete."""

    def __init__(self) -> None:
        self._held: list[str] = []

    @abstractmethod
    def split_line(self, line: str) -> list[Piece]:
        """Return the pieces of a line, which includes its line break except at the end of the reply."""

    def feed(self, text: str) -> list[Piece]:
        *whole, rest = text.split("\n")
        pieces: list[Piece] = []
        for line in whole:
            pieces += self.split_line("".join((*self._held, line, "\n")))
            self._held.clear()
        self._held.append(rest)
        return pieces

    def close(self, acts: bool = False) -> list[Piece]:
        last = "".join(self._held)
        self._held.clear()
        return self.split_line(last)


class PartWriter:
    """Collects the pieces of a reply part by part.

    It drops blanks at the beginning and the end of a part. `lead` is written before a part's first text.
    """

    def __init__(self) -> None:
        self.begun = False
        self.lead = ""
        self.blanks: list[str] = []

    def begin(self, *, lead: str = "") -> None:
        """Begin another part."""
        self.begun, self.lead, self.blanks = False, lead, []

    def put(self, pieces: list[Piece], kind: PieceKind, text: str, strip: str | None = None) -> None:
        """Add text of the part to the pieces. `strip`: the blanks to drop at its beginning; None for all."""
        body = text.rstrip()
        if body:
            said = "".join((*self.blanks, body)) if self.begun else self.lead + body.lstrip(strip)
            pieces.append(Piece(kind, said))
            self.begun, self.blanks = True, []
        if self.begun:
            self.blanks.append(text[len(body) :])
