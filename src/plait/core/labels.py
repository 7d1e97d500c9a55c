"""Finds the labels that a prompt prints at the beginning of a line, such as `Question:`.

A label is a text with `HOLE` in place of each value: `The result of \\0:`. There are three kinds: words up to a colon
or an arrow; a line of one sign repeated (`-----`), written here as three of that sign; and a tag (`<result>`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HOLE = "\0"
"""Replaces each value of a template."""

LONGEST = 60
"""Maximum number of characters of a label without its values. A longer line that ends in a colon is a sentence."""

_ENDS = re.compile(r"[:：]|->")
_STRANGE = re.compile(r"[{}\[\]\"=|\\<`]")
_DECORATION = " \t>*_#-"
_TAG = re.compile(r"</?([A-Za-z][\w:-]{0,40})>")


def labels_in(text: str) -> tuple[str, ...]:
    """Return the labels in a prompt that is sent unchanged."""
    return labels_of(text.splitlines(), (text,))


def labels_of(lines: Iterable[str], literals: Iterable[str]) -> tuple[str, ...]:
    """Return the labels in the beginnings of a template's lines, and in its text."""
    tags = (f"<{match[1]}>" for match in _TAG.finditer("\n".join(literals)))
    return tuple(dict.fromkeys((*filter(None, map(label_of, lines)), *tags)))


def label_of(line: str) -> str:
    """Return the label at the beginning of a line, or ""."""
    line = line.strip()
    if len(line) >= 3 and len(set(line)) == 1 and not line[0].isalnum() and line[0] != HOLE:
        return line[0] * 3
    end = _ENDS.search(line)
    if end is None:
        return ""
    head = " ".join(line[: end.end()].replace("：", ":").split())
    if head.lstrip(_DECORATION)[:1] != HOLE:
        head = head.lstrip(_DECORATION)
    said = head[: -len(end[0])].replace(HOLE, "")
    words = any(map(str.isalpha, said))
    if len(said) > LONGEST or _STRANGE.search(said) or not (words or HOLE in head):
        return ""
    return head if head.strip(_DECORATION + ":") else ""
