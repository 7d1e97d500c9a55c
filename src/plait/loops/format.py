"""What every format of a turn has: a strict writer, a lenient reader, a grammar, a splitter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from plait.core import Call, Piece, PieceKind, Splitter, ToolSpec

CODE = "python"
"""What a turn calls whose action is code; the input is the code."""


class Remark(Struct, frozen=True):
    """Something a reader repaired or cut. `kind` is "repaired" or "cut", `text` says what, for people."""

    kind: str
    text: str


class Turn(Struct, frozen=True, omit_defaults=True):
    """One turn of a model, read: a thought and either a call or an answer.

    `answered` tells an answer of None from none at all. `kept` is the part of the reply that counts, as
    the model wrote it: what follows the first action is gone. `remarks` say what was repaired or cut.
    """

    thought: str = ""
    call: Call | None = None
    answer: Any = None
    answered: bool = False
    kept: str = ""
    remarks: tuple[Remark, ...] = ()


class Unreadable(Exception):
    """A reply that can't be read as a turn. The text says what is wrong, in words for the model."""


class Format(Protocol):
    """A way to write and read turns. `n` counts turns from 1, for formats that number them."""

    @property
    def name(self) -> str:
        """The word the format is chosen by."""
        ...

    def stop(self, n: int) -> tuple[str, ...]:
        """Strings at which the model must stop writing in turn `n`."""
        ...

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        """The turn in a reply, leniently. Raises `Unreadable`, and nothing else, whatever the text."""
        ...

    def write(self, turn: Turn, n: int) -> str:
        """The canonical text of a turn; `read` gives the same turn back, with no remarks."""
        ...

    def observation(self, text: str, n: int) -> str:
        """An observation as it stands in the log; the text is already escaped."""
        ...

    def disarm(self, text: str) -> str:
        """Data in which nothing reads as this format's protocol; unchanged if nothing would. A part of `Escape`."""
        ...

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        """The tools as this format's prompt lists them."""
        ...

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        """GBNF of the turns `write` makes for these tools, thoughts on one line; None where a schema says it.

        `opened`: the prompt already ends in this turn's thought label, so the reply goes on after it.
        """
        ...

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        """JSON Schema of a turn, for formats that are JSON; None for the others."""
        ...

    def splitter(self) -> Splitter:
        """Tells thought, action and answer apart in a reply as it streams in."""
        ...


class LineSplitter(ABC):
    """A splitter that looks at whole lines: each goes out when it is whole."""

    def __init__(self) -> None:
        self._held: list[str] = []

    @abstractmethod
    def split_line(self, line: str) -> list[Piece]:
        """Return the pieces of a line, given with its line break; the last one has none."""

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

    Blanks at the end of a part go out only when more of it follows, blanks before its first text never. `lead` goes out
    before that text.
    """

    def __init__(self) -> None:
        self.begun = False
        self.lead = ""
        self.blanks = ""

    def begin(self, *, lead: str = "") -> None:
        """Begin another part."""
        self.begun, self.lead, self.blanks = False, lead, ""

    def put(self, pieces: list[Piece], kind: PieceKind, text: str, strip: str | None = None) -> None:
        """Add text of the part to the pieces. `strip`: the blanks that may not begin it; None for all."""
        text = self.blanks + text
        body = text.rstrip()
        self.blanks = text[len(body) :]
        if not self.begun:
            body = self.lead + body.lstrip(strip) if body else ""
        if body:
            pieces.append(Piece(kind, body))
            self.begun = True
        elif not self.begun:
            self.blanks = ""
