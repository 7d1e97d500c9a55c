"""Splits a reply of the code format into thought, code and answer while it streams in.

Text is returned as soon as its kind is certain: a line that may begin with a label or a fence is held back until it
ends, and code is returned in whole lines. The result does not depend on how the text was cut into chunks.
"""

from __future__ import annotations

import re
from typing import Literal

from plait.core import Piece, PieceKind
from plait.loops.codeact.blocks import PYTHON
from plait.loops.codeact.labels import FENCE, IN_CODE, LABEL, label_at, unguard, unguard_rest
from plait.loops.format import PartWriter

_WORDS = ("thought", "action", "observation", "final answer")
_DECORATION = re.compile(r"[ \t>*_#`-]{0,12}")
_LONGEST = 40
"""Maximum length of a label from its word on."""

State = Literal["text", "action", "bare", "code", "over"]


class CodeSplitter:
    """A splitter for the code format. Thoughts, code and answers come without labels and fences."""

    def __init__(self) -> None:
        self._state: State = "text"
        self._kind: PieceKind = "thought"
        self._line = ""  # the line so far, without the part already returned
        self._begun_line = False  # whether a part of the line was returned
        self._ticks = "```"
        self._part = PartWriter()

    def feed(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        *lines, rest = text.split("\n")
        for line in lines:
            self._take(pieces, self._line + line + "\n")
            self._line, self._begun_line = "", False
        self._line += rest
        if self._state == "text" and self._certain():
            self._put(pieces, self._kind, self._line)
            self._line, self._begun_line = "", True
        return pieces

    def close(self, acts: bool = False) -> list[Piece]:
        pieces: list[Piece] = []
        if self._line:
            self._take(pieces, self._line)
            self._line = ""
        self._state = "over"
        return pieces

    def _certain(self) -> bool:
        """Return whether the line so far is text in any case. A backtick may begin a fence, a backslash an escape."""
        line = self._line
        if not line or "`" in line or "\\" in line:
            return False
        if self._begun_line:
            return True
        if LABEL.match(line):
            return False
        if line.lstrip(" \t").startswith("~"):
            return False
        low = line[_DECORATION.match(line).end() :].lower().replace("_", " ")  # type: ignore[union-attr]
        if not low:
            return False
        return len(low) > _LONGEST or not any(word.startswith(low) or low.startswith(word) for word in _WORDS)

    def _take(self, pieces: list[Piece], line: str) -> None:
        """Split a whole line, or the rest of one."""
        if self._state == "over":
            return
        if self._state == "code":
            self._code(pieces, line)
            return
        label = None if self._begun_line else LABEL.match(line)
        if label is not None:
            self._labelled(pieces, line, label)
            return
        fence = self._opening(line)
        if fence is not None and (self._state != "text" or (fence["word"] or fence["word2"] or "").lower() in PYTHON):
            self._put(pieces, self._kind if self._state == "text" else "action", line[: fence.start()])
            self._enter("code", "action")
            self._ticks = fence["ticks"] or fence["tildes"]
        elif self._state == "text":
            self._put(pieces, self._kind, unguard_rest(line) if self._begun_line else unguard(line))
        else:
            self._bare(pieces, line)

    def _labelled(self, pieces: list[Piece], line: str, match: re.Match[str]) -> None:
        kind = label_at(match).kind
        if kind == "observation" or self._state == "bare":
            self._state = "over"
            return
        if kind == "action":
            self._enter("action", "action")
        else:
            joins = self._kind == "thought" == kind and self._part.begun
            self._enter("text", "answer" if kind == "answer" else "thought")
            self._part.begun, self._part.blanks = joins, ["\n"] if joins else []
        if rest := line[match.end() :].lstrip(" \t"):
            self._begun_line = True
            self._take(pieces, rest)
            self._begun_line = False

    def _bare(self, pieces: list[Piece], line: str) -> None:
        """Split a line below an action's label outside of fences."""
        if not line.strip():
            return
        inline = re.match(r"[ \t]*(`{1,12})(?:(?i:python3?|py)\b)?([^`\n]+)\1", line)
        if inline is not None:
            self._put(pieces, "action", inline[2].strip())
            self._state = "over"
            return
        self._state = "bare"
        self._put(pieces, "action", line)

    def _code(self, pieces: list[Piece], line: str) -> None:
        bare = line.rstrip()
        stripped = bare.lstrip(" \t")
        mark, length = self._ticks[0], len(self._ticks)
        tail = len(bare) - len(bare.rstrip(mark))
        if IN_CODE.match(line) or (stripped and tail == len(stripped) >= length):
            self._state = "over"
        elif tail >= length:
            self._put(pieces, "action", bare[:-tail])
            self._state = "over"
        else:
            self._put(pieces, "action", line)

    def _opening(self, line: str) -> re.Match[str] | None:
        """Return the fence at the end of the line, if it opens a block."""
        for match in FENCE.finditer(line):
            if (match["tildes"] and not self._begun_line) or match["line"] is not None:
                return match
        return None

    def _enter(self, state: State, kind: PieceKind) -> None:
        self._state, self._kind = state, kind
        self._part.begin()

    def _put(self, pieces: list[Piece], kind: PieceKind, text: str) -> None:
        self._part.put(pieces, kind, text, "\n" if kind == "action" else None)
