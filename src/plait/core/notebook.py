"""Renders values for notebooks and pages: escaped HTML, hashes of scripts, and texts shortened to one line."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from html import escape

from plait.core.text import clean


def render_html(
    title: str,
    lines: Iterable[str],
    heads: Sequence[str] = (),
    rows: Iterable[Sequence[str]] = (),
    *,
    notes: Iterable[str] = (),
    left: Collection[int] = (),
) -> str:
    """Return a title ("": none), paragraphs, a table and the notes below it as HTML. Every text is escaped.

    The cells of the columns `left`, by their indexes from 0, have the class `text`.
    """
    parts = [*([f"<p><b>{_escape(title)}</b></p>"] if title else []), *_paragraphs(lines)]
    if heads:
        head = _table_row("th", heads, left)
        body = "".join(_table_row("td", row, left) for row in rows)
        parts.append(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")
    parts += _paragraphs(notes)
    return f"<div>{''.join(parts)}</div>"


def escape_json(text: str) -> str:
    """Escape JSON for an HTML script element: nothing in it can end that element."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def hash_source(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def repr_short(value: object, limit: int = 60) -> str:
    """Return `repr(value)` with at most `limit` characters; of a `functools.partial`, without the bound values."""
    text = f"partial({repr_short(value.func)})" if isinstance(value, partial) else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1]}"


_CLASS = ' class="text"'


def _paragraphs(lines: Iterable[str]) -> list[str]:
    return [f"<p>{_escape(line)}</p>" for line in lines if line]


def _table_row(tag: str, cells: Sequence[str], left: Collection[int]) -> str:
    shown = (f"<{tag}{_CLASS if at in left else ''}>{_escape(cell)}</{tag}>" for at, cell in enumerate(cells))
    return f"<tr>{''.join(shown)}</tr>"


def _escape(text: str) -> str:
    return escape(clean(text)).replace("\n", "<br>")
