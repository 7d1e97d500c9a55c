"""Telling thoughts and calls apart while a plan streams in, a whole line at a time."""

from __future__ import annotations

from plait.core import Piece, PieceKind
from plait.loops.rewoo.scan import HEAD


class PlanSplitter:
    """Lines of thought without their label, and calls (`#E1 = Tool[input]`) as they stand.

    Plans are short lines, so each goes out when it is whole. A line without a head belongs to what stands above it.
    """

    def __init__(self) -> None:
        self._kind: PieceKind = "thought"
        self._held: list[str] = []

    def feed(self, text: str) -> list[Piece]:
        """The pieces of the lines that are whole, given `text` more of the reply."""
        whole, newline, rest = text.rpartition("\n")
        if not newline:
            self._held.append(text)
            return []
        lines = "".join((*self._held, whole)).split("\n")
        self._held = [rest]
        return [piece for line in lines for piece in self._line(line + "\n")]

    def close(self, acts: bool = False) -> list[Piece]:
        """The last line."""
        last, self._held = "".join(self._held), []
        return self._line(last)

    def _line(self, line: str) -> list[Piece]:
        pieces: list[Piece] = []
        at = 0
        for head in HEAD.finditer(line):
            self._put(pieces, line[at : head.start()])
            is_plan = head["plan"] is not None
            self._kind = "thought" if is_plan else "action"
            at = head.end() if is_plan else head.start()
            while is_plan and line[at : at + 1] == " ":  # it parts the label from the thought
                at += 1
        self._put(pieces, line[at:])
        return pieces

    def _put(self, pieces: list[Piece], text: str) -> None:
        if text:
            pieces.append(Piece(self._kind, text))
