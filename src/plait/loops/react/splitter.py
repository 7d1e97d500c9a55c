"""Splits a text ReAct reply into thought, action and answer while it streams in.

Text is returned as soon as it is certain that no label begins in it. The start of a line that may become a label is
held back, as are blanks (they count only if more of the same part follows). The result does not depend on how the text
was cut into chunks.
"""

from __future__ import annotations

from plait.core import Piece, PieceKind
from plait.loops.format import PartWriter
from plait.loops.label_scan import LabelKind
from plait.loops.react.dialects import Dialect


class TextSplitter:
    """A splitter for a dialect. If it has an action that gives the answer, the inside of its brackets is the answer."""

    def __init__(self, dialect: Dialect) -> None:
        self._words = dialect.words
        self._finish = dialect.finish.lower()
        self._kind: PieceKind = "thought"
        self._buffer = ""
        self._bol = True  # the buffer begins at the start of a line
        self._part = PartWriter()
        self._acted = False
        self._over = False
        self._head: str | None = None  # the start of an action that may contain `Finish[`
        self._depth = 0  # open brackets inside Finish[...]

    def feed(self, text: str) -> list[Piece]:
        return self._work(text, last=False)

    def close(self, acts: bool = False) -> list[Piece]:
        pieces = self._work("", last=True)
        self._part.put(pieces, "action", self._take_head())
        self._over = True
        return pieces

    def _work(self, text: str, *, last: bool) -> list[Piece]:
        pieces: list[Piece] = []
        buffer, at = self._buffer + text, 0
        find = self._words.pattern.search
        while not self._over:
            label = find(buffer, at)
            if label is not None and label.start() == 0 and not self._bol:
                label = find(buffer, label.end())
            # Two more characters may belong to a label that ends here (`Thought:**`).
            if label is None or (label.end() + 2 > len(buffer) and not last):
                break
            self._emit(pieces, buffer[at : label.start()])
            self._switch(pieces, self._words.kind_of(label[1]))
            at = label.end()
        else:
            return pieces
        certain = label.start() if label is not None else len(buffer) if last else self._certain(buffer, at)
        self._emit(pieces, buffer[at:certain])
        self._bol = buffer[certain - 1] == "\n" if certain else self._bol
        self._buffer = buffer[certain:]
        return pieces

    def _certain(self, buffer: str, at: int) -> int:
        """Return where, from `at` on, text begins that may still become a label."""
        line = buffer.rfind("\n", at) + 1
        if (line or (self._bol and not at)) and self._words.may_begin(buffer[line:]):
            return line
        return len(buffer)

    def _switch(self, pieces: list[Piece], kind: LabelKind) -> None:
        before = self._kind
        self._part.put(pieces, "action", self._take_head())
        if kind == "observation" or (self._acted and kind != "input"):
            self._over = True  # the reader cuts everything after the first action
        elif kind in ("input", "action"):
            self._kind, self._acted = "action", True
            self._head = "" if self._finish and kind == "action" else None
        else:
            self._kind = "answer" if kind == "answer" else "thought"
        # A second thought is joined to the first, an input to its tool's name, by a line break.
        joins = self._part.begun and (kind == "input" or kind == before == "thought")
        self._part.begin(lead="\n" if joins else "")

    def _emit(self, pieces: list[Piece], text: str) -> None:
        if self._head is not None:
            text = self._look_for_finish(pieces, text)
        if self._depth:
            text = self._inside_finish(text)
        self._part.put(pieces, self._kind, text)

    def _look_for_finish(self, pieces: list[Piece], text: str) -> str:
        self._head = (self._head or "") + text
        name, bracket, rest = self._head.partition("[")
        plain = name.strip(" \t\n`*\"'").lower()
        if not bracket and self._finish.startswith(plain):
            return ""
        head = self._take_head()
        if not bracket or plain != self._finish:
            return head
        self._kind, self._depth = "answer", 1
        return rest

    def _take_head(self) -> str:
        head, self._head = self._head or "", None
        return head

    def _inside_finish(self, text: str) -> str:
        for index, char in enumerate(text):
            self._depth += (char == "[") - (char == "]")
            if not self._depth:
                self._over = True
                return text[:index]
        return text
