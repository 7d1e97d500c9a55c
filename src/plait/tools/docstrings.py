"""Reads a function's docstring: its description, its parameters, its result.

It supports the styles of Google, NumPy, Sphinx (reST) and Epydoc. A text in no style is the description.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from inspect import cleandoc
from typing import Any

from msgspec import Struct, field

LONGEST = 2_000
"""Maximum characters of a description: each prompt pays for it."""


class DocString(Struct, frozen=True):
    """The parts of a docstring. `parameters` maps a name to its description; each text is one line."""

    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


def read_docstring(text: str | None) -> DocString:
    """Read a docstring; missing texts are empty. Never raises."""
    readings: list[Any] = []
    for style in _styles() if text else ():
        with suppress(Exception):  # the parsers raise several errors for a text that is not in their style
            readings.append(style.parse(text))
    if not readings:
        return DocString(_join_paragraphs(cleandoc(text or "")))
    read = max(
        readings, key=lambda each: (len(each.params) + bool(each.returns), bool(each.short_description), len(each.meta))
    )
    gap = "\n\n" if read.blank_after_short_description else "\n"
    body = gap.join(filter(None, (read.short_description, read.long_description)))
    parameters = {
        name.strip().lstrip("*"): " ".join((each.description or "").split())
        for each in read.params
        for name in each.arg_name.split(",")
    }
    returns = (read.returns.description or read.returns.type_name or "") if read.returns else ""
    return DocString(_join_paragraphs(body), parameters, " ".join(returns.split()))


@cache
def _styles() -> tuple[Any, ...]:
    """Return the parsers of the styles. The library is imported when a tool is first described."""
    from docstring_parser import epydoc, google, numpydoc, rest

    one, entries = google.SectionType.SINGULAR, google.SectionType.MULTIPLE
    others = ("Note", "Notes", "Warning", "Warnings", "See Also", "References", "Todo")
    sections = [
        *google.DEFAULT_SECTIONS,
        *(
            google.Section(title, "param", entries)
            for title in ("Keyword Args", "Keyword Arguments", "Other Parameters")
        ),
        *(google.Section(title, "examples", one) for title in others),
    ]
    sections += [google.Section(each.title.lower(), each.key, each.type) for each in sections]
    return rest, google.GoogleParser(sections), numpydoc, epydoc


def _join_paragraphs(text: str) -> str:
    """Join all paragraphs to one line. Cuts a longer text than `LONGEST` after a sentence, or ends it with `...`."""
    blocks = "\n".join(line.strip() for line in text.splitlines()).split("\n\n")
    paragraphs = [" ".join(block.split()) for block in blocks if block.strip()]
    ended = [text if text[-1] in ".!?:;," else f"{text}." for text in paragraphs[:-1]]
    said = " ".join(ended + paragraphs[-1:])
    if len(said) <= LONGEST:
        return said
    cut = said[: LONGEST - 4]
    end = max(cut.rfind(mark) for mark in (". ", "! ", "? "))
    return cut[: end + 1] if end > LONGEST // 2 else cut.rsplit(" ", 1)[0] + " ..."
