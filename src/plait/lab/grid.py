"""A table as text, for a terminal of some width or in Markdown. Cells are text; what they say is not known here."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from msgspec import Struct

from plait.core.text import clean

T = TypeVar("T")
NEVER = 0
"""The `leave` of a column that is there however narrow the terminal is."""
BAR, ELLIPSIS = "|", "…"


class Column(Struct, frozen=True):
    """A column: its head, its cells from top to bottom, and when it may be left out where there is no room.

    The column with the largest `leave` goes first. `left`: set to the left, as names are; numbers are not.
    """

    head: str
    cells: tuple[str, ...]
    leave: int = NEVER
    left: bool = False

    @property
    def width(self) -> int:
        """Letters of its widest cell."""
        return max(len(cell) for cell in (self.head, *self.cells))


def in_turn(rows: Iterable[Iterable[T]]) -> list[T]:
    """What stands in any of the rows, once; what is new stands behind what it follows in its own row."""
    found: list[T] = []
    for row in rows:
        at = 0
        for each in row:
            if each not in found:
                found.insert(at, each)
            at = found.index(each) + 1
    return found


def line(text: str) -> str:
    """Anybody's text as a cell: one line, no control characters."""
    return " ".join(clean(text).split())


def text(columns: Sequence[Column], width: int | None = None) -> tuple[str, list[str]]:
    """The table in lines of at most `width` letters (None: as wide as it is), and the heads that were left out.

    Where what must stay is still too wide, names on the left are cut as long as they stay different, then wrapped. Only
    numbers make a line longer than the terminal's.
    """
    shown = list(columns)
    while width is not None and _wide(shown) > width and any(column.leave for column in shown):
        shown.remove(max(shown, key=lambda column: column.leave))
    left_out = [column.head for column in columns if column not in shown]
    if width is not None and _wide(shown) > width:
        shown = _narrower(shown, _wide(shown) - width)
    widths = _widths(shown, width)
    rows = zip(*((column.head, *column.cells) for column in shown), strict=True)
    lines = []
    for row in rows:
        pieces = [_pieces(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*pieces, fillvalue=""):
            cells = [
                part.ljust(wide) if column.left else part.rjust(wide)
                for part, wide, column in zip(parts, widths, shown, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines), left_out


def markdown(columns: Sequence[Column]) -> str:
    """The table in Markdown, whole."""
    rows = list(zip(*((column.head, *column.cells) for column in columns), strict=True))
    lines = ["| " + " | ".join(map(escaped, row)) + " |" for row in rows]
    lines.insert(1, BAR + BAR.join("---" if column.left else "--:" for column in columns) + BAR)
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text as Markdown has it, with nothing that would end a cell or begin a tag."""
    return text.replace("\\", "\\\\").replace(BAR, f"\\{BAR}").replace("<", "\\<")


def wrapped(text: str, width: int | None) -> str:
    """A sentence in lines of at most so many letters, the further ones indented; None: one line."""
    if width is None:
        return text
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text, max(width, 20), subsequent_indent=indent + "  ", break_on_hyphens=False)


def _wide(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + 2 * max(0, len(columns) - 1)


def _narrower(columns: Sequence[Column], by: int, least: int = 8) -> list[Column]:
    """The widest columns of names cut, letter by letter, while names stay different."""
    widths = {at: column.width for at, column in enumerate(columns) if column.left}
    while by > 0 and widths:
        at = max(widths, key=lambda each: widths[each])
        if widths[at] <= least or not _told_apart(columns, {**widths, at: widths[at] - 1}):
            break
        widths[at] -= 1
        by -= 1
    return [
        Column(column.head, tuple(_cut(cell, widths[at]) for cell in column.cells), column.leave, True)
        if at in widths
        else column
        for at, column in enumerate(columns)
    ]


def _widths(columns: Sequence[Column], width: int | None, least: int = 8) -> list[int]:
    """The columns' widths: those of names as narrow as the lines need, where cells are then wrapped."""
    widths = [column.width for column in columns]
    names = [at for at, column in enumerate(columns) if column.left]
    while width is not None and names and sum(widths) + 2 * (len(widths) - 1) > width:
        at = max(names, key=lambda each: widths[each])
        if widths[at] <= least:
            break
        widths[at] -= 1
    return widths


def _pieces(cell: str, width: int) -> list[str]:
    """A cell in lines of at most so many letters, each cut behind a space, a comma or another sign where it can be."""
    pieces = []
    while len(cell) > width:
        end = max((match.end() for match in re.finditer(r"[\s,;|/=+(-]", cell[:width])), default=0)
        end = end if end > width // 2 else width
        pieces.append(cell[:end].rstrip())
        cell = cell[end:].lstrip()
    return [*pieces, cell]


def _told_apart(columns: Sequence[Column], widths: dict[int, int]) -> bool:
    """As many different names in each column as there were before."""
    return all(
        len({_cut(cell, width) for cell in columns[at].cells}) == len(set(columns[at].cells))
        for at, width in widths.items()
    )


def _cut(cell: str, width: int) -> str:
    """What is cut goes from the middle: loops of one name differ in their last options."""
    tail = (width - 1) // 2
    return cell if len(cell) <= width else cell[: width - 1 - tail] + ELLIPSIS + cell[len(cell) - tail :]
