"""Shows thought, code and answer of the code format while they stream in.

Code is shown in whole lines. A line that may hold a fence is held back until it ends. Code without a fence is shown at
the end of the reply, if it is read as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from plait.loops.codeact.blocks import PYTHON
from plait.loops.codeact.labels import FENCE, IN_CODE, WORDS
from plait.loops.format import Parts, Turn
from plait.loops.label_scan import LabelKind
from plait.loops.label_stream import LabelStream


class CodeStream(LabelStream[Turn]):
    """A turn that streams in. Its parts are shown without labels and fences."""

    def __init__(self, read: Callable[[str], Turn]) -> None:
        super().__init__(read, _parts, WORDS)
        self._ticks = ""  # of the block's fence; "" outside of one
        self._is_bare = False  # an action has begun without a fence

    def take_line(self, line: str, *, whole: bool) -> None:
        if not whole and (self._ticks or "`" in line or line.lstrip(" \t").startswith("~")):
            self._rest = line
        elif self._ticks:
            self._take_code(line)
        else:
            super().take_line(line, whole=whole)

    def begin_label(self, kind: LabelKind) -> None:
        self.over = kind == "observation" or self._is_bare
        joins = self.has_begun and self.kind == kind == "thought"
        self.kind = kind if kind in ("action", "answer") else "thought"
        self.begin("\n" if joins else "")

    def add(self, text: str) -> None:
        fence = self._find_opening(text)
        is_action = self.kind == "action"
        if fence is not None and (is_action or (fence["word"] or fence["word2"] or "").lower() in PYTHON):
            if not is_action:
                super().add(text[: fence.start()])
                self.end_part()
            self.kind, self._ticks = "action", fence["ticks"] or fence["tildes"]
            self.begin()
        elif is_action:
            self._is_bare = self._is_bare or bool(text.strip())
        else:
            super().add(text)

    def _find_opening(self, line: str) -> re.Match[str] | None:
        """Return the fence at the end of the line, if it opens a block."""
        for match in FENCE.finditer(line) if "`" in line or "~" in line else ():
            if match["line"] is not None or (match["tildes"] and self._starts):
                return match
        return None

    def _take_code(self, line: str) -> None:
        """Show a line of a block, which may end it."""
        mark, bare = self._ticks[0], line.rstrip()
        inside = bare.rstrip(mark)
        closes = len(bare) - len(inside) >= len(self._ticks)
        self.over = closes or IN_CODE.match(line) is not None
        if not closes:
            inside = "" if self.over else line
        self.put("action", inside, "\n")
        self._ticks = "" if self.over else self._ticks


def _parts(turn: Turn) -> Parts:
    return {"thought": turn.thought, "action": turn.call.input if turn.call else "", "answer": turn.answer or ""}
