"""Reads replies with labels while they stream in, such as the turns of text ReAct.

Text is shown as soon as it is certain that no label begins in it: the start of a line that may become a label is held
back. So is a part from its first escaped sign on, because the backslash before it is not part of the text.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from plait.core import PieceKind, ToolSpec
from plait.loops.format import Codec, Stream
from plait.loops.label_scan import LabelKind, LabelWords

R = TypeVar("R")
_ESCAPED = re.compile(r"\\(?:[\\:：{<\[`~\s]|\Z)|`\\|`\Z")
"""Where a text may be escaped, or may turn out to be with the next character."""


class LabelStream(Stream[R]):
    """Splits a reply at its `labels`. A subclass decides what a label begins, in `begin_label`."""

    def __init__(self, codec: Codec[R], n: int, tools: Sequence[ToolSpec], labels: LabelWords) -> None:
        super().__init__(codec, n, tools)
        self.labels = labels
        self.kind: PieceKind = "thought"
        self.over = False  # nothing more is shown
        self._rest = ""  # the start of a line that may become a label
        self._starts = True  # the next text begins a line
        self._part: list[str] = []
        self._size = 0  # characters of the part that are shown; the others may be escaped
        self._tail = ""
        self._is_escaped = False

    @abstractmethod
    def begin_label(self, kind: LabelKind) -> None:
        """Begin the part behind a label."""

    def split(self, text: str, *, last: bool) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            if not self.over:
                self.take_line(f"{self._rest}{line}\n", whole=True)
            self._rest, self._starts = "", True
        if not self.over and self._rest + rest:
            self.take_line(self._rest + rest, whole=last)
        if last:
            self.end_part()

    def take_line(self, line: str, *, whole: bool) -> None:
        """Take a line, or the rest of one that has begun."""
        self._rest = line
        if self._starts:
            label = self.labels.pattern.match(line)
            # Two more characters may belong to a label that ends here (`Thought:**`).
            if label is not None and (whole or label.end() + 2 <= len(line)):
                self.end_part()
                self.begin_label(self.labels.kind_of(label[1]))
                self._starts, line = False, line[label.end() :]
            elif not whole and (label is not None or self.labels.may_begin(line)):
                return
        if not self.over:
            self.add(line)
        self._starts, self._rest = False, ""

    def add(self, text: str) -> None:
        """Add text to the part."""
        if self.kind == "action":
            self.put(self.kind, text)
            return
        self._part.append(text)
        if not self._is_escaped:
            text = self._tail + text
            mark = _ESCAPED.search(text)
            certain = mark.start() if mark is not None else len(text)
            self._is_escaped = mark is not None and mark.end() < len(text)
            self.put(self.kind, text[:certain])
            self._tail, self._size = text[certain:], self._size + certain

    def end_part(self) -> None:
        """Show the rest of the part."""
        if self._tail:
            self.put(self.kind, self.labels.unguard("".join(self._part))[self._size :])
        self._part, self._size, self._tail, self._is_escaped = [], 0, "", False
