"""Tables of text cells, drawn for a terminal of some width or in Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from msgspec import Struct, structs

from plait.core.text import clean

T = TypeVar("T")
NEVER = 0
"""The `leave` of a column that is always shown."""
ELLIPSIS = "…"
_LEAST = 8
"""The least width of a column of names."""


class TableColumn(Struct, frozen=True):
    """A column: its head and its cells. In a narrow terminal the column with the largest `leave` is dropped first.

    `left` aligns it to the left, as names are.
    """

    head: str
    cells: tuple[str, ...]
    leave: int = NEVER
    left: bool = False

    @property
    def width(self) -> int:
        """The length of its widest cell."""
        return max(len(cell) for cell in (self.head, *self.cells))


def merge_in_order(rows: Iterable[Iterable[T]]) -> list[T]:
    """Merge rows into one list without repetition; a new item follows the item that it follows in its own row."""
    found: list[T] = []
    for row in rows:
        at = 0
        for each in row:
            if each not in found:
                found.insert(at, each)
            at = found.index(each) + 1
    return found


def clean_line(text: str) -> str:
    """Return any text as a cell: one line without control characters."""
    return " ".join(clean(text).split())


def render_grid(columns: Sequence[TableColumn], width: int | None = None) -> tuple[str, list[str]]:
    """Render a table with lines of at most `width` letters (None: no limit). Return it and the heads left out.

    If the remaining columns are too wide, names are cut while they stay different, then wrapped. Only numbers can make
    a line longer than `width`.
    """
    shown = list(columns)
    while width is not None and _wide(shown) > width and any(column.leave for column in shown):
        shown.remove(max(shown, key=lambda column: column.leave))
    left_out = [column.head for column in columns if column not in shown]
    widths = [column.width for column in shown]
    if width is not None and _wide(shown) > width:
        shown, widths = _fit_names(shown, width)
    rows = zip(*((column.head, *column.cells) for column in shown), strict=True)
    lines = []
    for row in rows:
        pieces = [_wrap_cell(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*pieces, fillvalue=""):
            cells = [
                part.ljust(wide) if column.left else part.rjust(wide)
                for part, wide, column in zip(parts, widths, shown, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines), left_out


def render_markdown_grid(columns: Sequence[TableColumn]) -> str:
    """Render a whole table in Markdown."""
    rows = list(zip(*((column.head, *column.cells) for column in columns), strict=True))
    lines = ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("---" if column.left else "--:" for column in columns) + "|")
    return "\n".join(lines)


def escape_markdown(text: str) -> str:
    """Escape what would end a cell or begin a tag in Markdown."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<")


def wrap_sentence(text: str, width: int | None) -> str:
    """Wrap a sentence in lines of at most `width` letters, the later ones indented; None: one line."""
    if width is None:
        return text
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text, max(width, 20), subsequent_indent=indent + "  ", break_on_hyphens=False)


def _wide(columns: Sequence[TableColumn]) -> int:
    return sum(column.width for column in columns) + 2 * max(0, len(columns) - 1)


def _fit_names(columns: Sequence[TableColumn], width: int) -> tuple[list[TableColumn], list[int]]:
    """Cut names while they stay different, then narrow their columns, whose cells are then wrapped."""
    shown, widths = list(columns), [column.width for column in columns]
    names = {at for at, column in enumerate(columns) if column.left}
    cutting = True
    while names and sum(widths) + 2 * (len(widths) - 1) > width:
        at = max(names, key=lambda each: (widths[each], -each))
        if widths[at] <= _LEAST:
            break
        cells = tuple(_cut(cell, widths[at] - 1) for cell in columns[at].cells)
        cutting = cutting and len(set(cells)) == len(set(columns[at].cells))
        widths[at] -= 1
        if cutting:
            shown[at] = structs.replace(columns[at], cells=cells)
    return shown, widths


def _wrap_cell(cell: str, width: int) -> list[str]:
    """Split a cell into lines of at most `width` letters, if possible after a space, a comma or another sign."""
    lines = []
    while len(cell) > width:
        end = max((match.end() for match in re.finditer(r"[\s,;|/=+(-]", cell[:width])), default=0)
        end = end if end > width // 2 else width
        lines.append(cell[:end].rstrip())
        cell = cell[end:].lstrip()
    return [*lines, cell]


def _cut(cell: str, width: int) -> str:
    """Cut a cell in the middle: loops of one name differ in their last options."""
    tail = (width - 1) // 2
    return cell if len(cell) <= width else cell[: width - 1 - tail] + ELLIPSIS + cell[len(cell) - tail :]
