"""Renders values for notebooks: escaped HTML tables, and texts shortened to one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from plait.core.text import visible


def render_html(title: str, lines: Iterable[str], heads: Sequence[str] = (), rows: Iterable[Sequence[str]] = ()) -> str:
    """Return a title ("": none), paragraphs and a table as HTML. Every text is escaped."""
    parts = [
        *([f"<p><b>{_escape(title)}</b></p>"] if title else []),
        *(f"<p>{_escape(line)}</p>" for line in lines if line),
    ]
    if heads:
        head = _table_row("th", heads)
        body = "".join(_table_row("td", row) for row in rows)
        parts.append(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")
    return f"<div>{''.join(parts)}</div>"


def repr_short(value: object, limit: int = 60) -> str:
    """Return `repr(value)` with at most `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1]}"


def _table_row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _escape(text: str) -> str:
    return escape(visible(text)).replace("\n", "<br>")
