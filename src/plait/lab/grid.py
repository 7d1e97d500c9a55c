"""Tables of text cells, drawn for a terminal of some width, in Markdown or as comma-separated values."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any, TypeVar

from msgspec import Struct, structs
from rich.cells import cell_len

from plait.core.notebook import render_html
from plait.core.text import clean, one_line

T = TypeVar("T")
NEVER = 0
"""The `leave` of a column that is always shown."""
ELLIPSIS, ABSENT = "…", "-"
WIDTH = 100
"""The widest line of a `ReportTable` in text."""
_LEAST = 4
"""The least width of a column of names."""
_NUMBER = re.compile(r"~?-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")


class TableColumn(Struct, frozen=True):
    """A column: its head and its cells. In a narrow terminal the column with the largest `leave` is dropped first.

    `left` aligns it to the left, as names are. `wrap`: its cells are wrapped, never cut. `csv_only`: a `ReportTable`
    shows it only in comma-separated values.
    """

    head: str
    cells: tuple[str, ...]
    leave: int = NEVER
    left: bool = False
    wrap: bool = False
    csv_only: bool = False

    @property
    def width(self) -> int:
        """The columns of a terminal that its widest cell takes; a Chinese letter takes two."""
        return max(map(cell_len, (self.head, *self.cells)))

    @property
    def least_width(self) -> int:
        """The same, with the words of a number's head one below the other."""
        return self.width if self.left else max(map(cell_len, (*self.head.split(), *self.cells)), default=0)


def make_column(
    rows: Sequence[T], head: str, cell: Callable[[T], str], leave: int = NEVER, left: bool = False, **more: bool
) -> TableColumn:
    """Return a column that shows each row by a function. `more` sets `wrap` or `csv_only`."""
    return TableColumn(head, tuple(map(cell, rows)), leave, left, **more)


def make_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[TableColumn]:
    """Return columns of cells. A head that starts with ">" aligns its column to the right."""
    return [
        TableColumn(head.removeprefix(">"), tuple(row[at] for row in rows), left=not head.startswith(">"))
        for at, head in enumerate(heads)
    ]


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


def render_grid(
    columns: Sequence[TableColumn], width: int | None = None, reasons: Mapping[int, str] | None = None
) -> tuple[str, list[str]]:
    """Render a table with lines of at most `width` letters (None: no limit). Return it and the heads left out.

    If the table is too wide, heads of numbers are wrapped, columns are dropped, names are cut while they stay
    different, and then wrapped. Only numbers can make a line longer than `width`. `reasons` has the text that a row
    shows instead of its numbers, by the row's index.
    """
    shown = list(columns)
    widths, left_out = [column.width for column in shown], list[str]()
    if width is not None and _wide(widths) > width:
        while _wide([column.least_width for column in shown]) > width and any(column.leave for column in shown):
            shown.remove(max(shown, key=lambda column: column.leave))
        left_out = [column.head for column in columns if column not in shown]
        shown, widths = _fit_names(shown, width)
    names = _count_names(shown)
    room = max(_wide(widths[names:]), _wide(widths) if width is None else width - _wide(widths[:names]) - 2)
    lines = []
    for number, row in enumerate(zip(*((column.head, *column.cells) for column in shown), strict=True)):
        reason = (reasons or {}).get(number - 1)
        pieces = [[cell] if width is None else _wrap_cell(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        if reason is not None:
            pieces[names:] = [[reason] if width is None else textwrap.wrap(reason, room, break_on_hyphens=False)]
        for parts in zip_longest(*pieces, fillvalue=""):
            cells = []
            for part, wide, column in zip(parts, widths, shown, strict=False):
                space = " " * (wide - cell_len(part))
                cells.append(part + space if column.left or reason is not None else space + part)
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines), left_out


def render_markdown_grid(columns: Sequence[TableColumn], reasons: Mapping[int, str] | None = None) -> str:
    """Render a whole table in Markdown; "" without columns."""
    if not columns:
        return ""
    lines = ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in list_rows(columns, reasons)]
    lines.insert(1, "|" + "|".join("---" if column.left else "--:" for column in columns) + "|")
    return "\n".join(lines)


def join_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as lines of comma-separated values."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def list_rows(columns: Sequence[TableColumn], reasons: Mapping[int, str] | None = None) -> list[list[str]]:
    """Return the heads and the rows. A row with a reason has it in the place of its first number."""
    rows = [list(row) for row in zip(*((column.head, *column.cells) for column in columns), strict=True)]
    names = _count_names(columns)
    for at, reason in (reasons or {}).items():
        rows[at + 1][names:] = [reason, *[""] * (len(columns) - names - 1)]
    return rows


def escape_markdown(text: str) -> str:
    """Escape what would end a cell or begin a tag in Markdown."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<")


def wrap_sentence(text: str, width: int | None) -> str:
    """Wrap a sentence in lines of at most `width` letters, the later ones indented; None: one line."""
    if width is None:
        return text
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text, max(width, 20), subsequent_indent=indent + "  ", break_on_hyphens=False)


class ReportTable(Struct, frozen=True):
    """Rows with every digit, as `--json` prints them, and the columns that show them.

    `notes` are lines below the table, `title` a line above ("": none). A row with `crash` shows it instead of numbers.
    """

    rows: tuple[dict[str, Any], ...]
    columns: tuple[TableColumn, ...]
    notes: tuple[str, ...] = ()
    title: str = ""

    def text(self, width: int | None = WIDTH) -> str:
        """Render it for a terminal of some width; None: no limit."""
        table, left_out = render_grid(self._draw(), width, self._reasons)
        notes = [*self.notes]
        if left_out:
            them = "it" if len(left_out) == 1 else "them"
            notes.append(f"Left out for width: {', '.join(left_out)}; --markdown shows {them}.")
        title, *lines = [wrap_sentence(one_line(line), width) for line in (self.title, *notes)]
        return "\n\n".join(filter(None, (title, table, "\n".join(lines))))

    def markdown(self) -> str:
        notes = "\n".join(f"- {escape_markdown(one_line(note))}" for note in self.notes)
        title = f"**{escape_markdown(one_line(self.title))}**" if self.title else ""
        return "\n\n".join(filter(None, (title, render_markdown_grid(self._draw(), self._reasons), notes)))

    def csv(self) -> str:
        """Render the rows as comma-separated values. What is absent is empty; notes are left out."""
        rows = list_rows(self._draw(csv=True), self._reasons)
        return join_csv([re.sub("[,~]", "", cell) if _NUMBER.fullmatch(cell) else cell for cell in row] for row in rows)

    def html(self) -> str:
        """Render it as a part of a page."""
        columns = self._draw()
        heads, *rows = list_rows(columns, self._reasons)
        left = {at for at, column in enumerate(columns) if column.left}
        return render_html(self.title, (), heads, rows, notes=self.notes, left=left)

    @property
    def _reasons(self) -> dict[int, str]:
        return {at: row["crash"] for at, row in enumerate(self.rows) if row.get("crash")}

    def _draw(self, *, csv: bool = False) -> list[TableColumn]:
        """Return the columns with clean cells. A row with `crash` has no numbers, so that they take no room."""
        drawn = []
        for column in self.columns:
            if csv or not column.csv_only:
                texts = list(map(one_line, column.cells))
                for at in () if column.left else self._reasons:
                    texts[at] = ""
                cells = tuple("" if csv and text == ABSENT else text for text in texts)
                drawn.append(structs.replace(column, head=one_line(column.head), cells=cells))
        return drawn


def show_value(key: str, form: str = "") -> Callable[[dict[str, Any]], str]:
    """Return a function that shows a value of a row: text as it is, a number in a format, "-" for None."""

    def show(row: dict[str, Any]) -> str:
        value = row[key]
        return ABSENT if value is None else value if isinstance(value, str) else format(Decimal(str(value)), form)

    return show


def wrap_lines(text: str, width: int | None) -> str:
    """Split lines of more than `width` letters (None: no limit). What goes on is indented by two; no letter is lost."""
    lines = text.split("\n")
    how: dict[str, Any] = {"drop_whitespace": False, "replace_whitespace": False, "expand_tabs": False}
    wrapper = textwrap.TextWrapper(width or 1, subsequent_indent="  ", break_on_hyphens=False, **how)
    return "\n".join(line if width is None or len(line) <= width else "\n".join(wrapper.wrap(line)) for line in lines)


def fence_text(text: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    inner = clean(text)
    longest = max((len(found) for found in re.findall(r"`{3,}", inner)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{inner}{'' if inner.endswith(chr(10)) else chr(10)}{fence}"


def _wide(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * max(0, len(widths) - 1)


def _count_names(columns: Sequence[TableColumn]) -> int:
    """Count the columns of names before the first number."""
    return next((at for at, column in enumerate(columns) if not column.left), len(columns) - 1)


def _fit_names(columns: Sequence[TableColumn], width: int) -> tuple[list[TableColumn], list[int]]:
    """Drop what names have in common, wrap heads of numbers, cut names while they stay different, then narrow their
    columns and wrap their cells."""
    columns = list(columns)
    for pattern in (r"^\w+:", r"\.[a-z]+$"):  # `scripted:` or `.json`, if all names with a prefix or suffix have it
        texts = [cell for column in columns if column.left and not column.wrap for cell in column.cells]
        found = {match[0] for cell in texts if (match := re.search(pattern, cell))}
        if len(found) == 1 and len({re.sub(pattern, "", cell) for cell in texts}) == len(set(texts)):
            for at, column in enumerate(columns):
                if column.left and not column.wrap:
                    short = tuple(re.sub(pattern, "", cell) for cell in column.cells)
                    columns[at] = structs.replace(column, cells=short)
    shown = list(columns)
    widths = [column.width for column in columns]
    if _wide(widths) > width:
        widths = [column.least_width for column in columns]
    names = {at for at, column in enumerate(columns) if column.left}
    cutting = True
    while names and _wide(widths) > width:
        at = max(names, key=lambda each: (widths[each], -each))
        if widths[at] <= _LEAST:
            break
        cells = tuple(_cut(cell, widths[at] - 1) for cell in columns[at].cells)
        cutting = cutting and len(set(cells)) == len(set(columns[at].cells))
        widths[at] -= 1
        if cutting and not columns[at].wrap:
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
