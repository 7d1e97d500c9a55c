"""What every format of a turn has: a strict writer, a lenient reader, a grammar, a splitter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from plait.core import Call, Splitter, ToolSpec

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
