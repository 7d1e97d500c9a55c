"""Shows thought, code and answer of the code format while they stream in.

Code is shown in whole lines. A line that may hold a fence is held back until it ends. Code without a fence is shown at
the end of the reply, if it is read as code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from plait.core import ToolSpec
from plait.loops.codeact.blocks import PYTHON
from plait.loops.codeact.labels import FENCE, IN_CODE, WORDS
from plait.loops.format import Codec, Turn
from plait.loops.label_scan import LabelKind
from plait.loops.label_stream import LabelStream


class CodeStream(LabelStream[Turn]):
    """A turn that streams in. Its parts are shown without labels and fences."""

    def __init__(self, codec: Codec[Turn], n: int, tools: Sequence[ToolSpec]) -> None:
        super().__init__(codec, n, tools, WORDS)
        self._ticks = ""  # of the block's fence; "" outside of one
        self._is_quote = False  # the block is not Python, so no label in it counts
        self._is_bare = False  # an action has begun without a fence

    def take_line(self, line: str, *, whole: bool) -> None:
        if not whole and (self._ticks or "`" in line or line.endswith("\\") or line.lstrip(" \t").startswith("~")):
            self._rest = line
        elif self._ticks and self._is_quote and not IN_CODE.match(line):
            self._add_text(line)
            self._ticks = "" if self._find_close(line) == 0 else self._ticks
        elif self._ticks and not self._is_quote:
            self._take_code(line)
        else:
            self._ticks = ""
            super().take_line(line, whole=whole)

    def begin_label(self, kind: LabelKind) -> None:
        self.over = kind == "observation" or self._is_bare
        joins = self.has_begun and self.kind == kind == "thought"
        self.kind = kind if kind in ("action", "answer") else "thought"
        self.begin("\n" if joins else "")

    def add(self, text: str) -> None:
        fence = self._find_opening(text)
        word = (fence["word"] or fence["word2"] or "").lower() if fence is not None else ""
        is_code = fence is not None and (word in PYTHON or (self.kind == "action" and not word))
        if fence is None or not is_code:
            self._add_text(text)
        else:
            self._add_text(text[: fence.start()])
            self.end_part()
            self.kind = "action"
            self.begin()
        if fence is not None and (is_code or word):
            self._ticks, self._is_quote = fence["ticks"] or fence["tildes"], not is_code

    def _add_text(self, text: str) -> None:
        """Add text outside of code; below an action's label it is code only if it is read as code."""
        if self.kind != "action":
            super().add(text)
        elif not self._ticks:
            self._is_bare = self._is_bare or bool(text.strip())

    def _find_opening(self, line: str) -> re.Match[str] | None:
        """Return the fence at the end of the line, if it opens a block."""
        for match in FENCE.finditer(line) if "`" in line or "~" in line else ():
            is_first = self._starts and not line[: match.start()].strip()
            if is_first if match["tildes"] else match["line"] is not None and (match["word"] or is_first):
                return match
        return None

    def _find_close(self, line: str) -> int | None:
        """Return the characters before the fence at the line's end that closes the block, None if there is none."""
        bare = line.strip()
        inside = bare.rstrip(self._ticks[0])
        return len(inside) if len(bare) - len(inside) >= len(self._ticks) else None

    def _take_code(self, line: str) -> None:
        """Show a line of a block, which may end it."""
        close = self._find_close(line)
        self.over = close is not None or IN_CODE.match(line) is not None
        if not self.over or close:
            self.put("action", line.rstrip()[:-1].rstrip(self._ticks[0]) if self.over else line, "\n")
        self._ticks = "" if self.over else self._ticks
