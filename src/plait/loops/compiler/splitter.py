"""Telling thoughts and calls apart while a plan of numbered calls streams in."""

from __future__ import annotations

from plait.core import Piece
from plait.loops.compiler.reader import CallReader


class CallSplitter:
    """A splitter for plans: each call goes out when it is complete, each line of thought when it is whole."""

    def __init__(self) -> None:
        self._reader = CallReader()
        self._begun = False

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are now certain, given `text` more of the plan."""
        self._reader.feed(text)
        return self._pieces()

    def close(self, acts: bool = False) -> list[Piece]:
        """What was held back, when the plan has ended."""
        self._reader.close()
        return self._pieces(last=True)

    def _pieces(self, *, last: bool = False) -> list[Piece]:
        pieces = []
        for kind, text in self._reader.written(last=last):
            # Calls are told apart by line breaks, as lines of thought are.
            pieces.append(Piece(kind, ("\n" if self._begun else "") + text))
            self._begun = True
        return pieces
