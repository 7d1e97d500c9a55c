"""Splits texts into passages and finds those that best fit some words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from plait.core.errors import PlaitError, ToolError
from plait.core.text import cut_text, split_text
from plait.search.keywords import KeywordIndex

if TYPE_CHECKING:
    from plait.search import Embedder

    AnyEmbedder: TypeAlias = str | Callable[[list[str]], Any] | Embedder

Search: TypeAlias = Callable[[str], tuple[list[int], str]]
"""Takes a query; returns the numbers of the texts that fit, best first, and a note on how they were found."""

LENGTH = 700
"""Characters of a passage. A longer paragraph is cut between sentences."""
SHOWN = 3
DEEP = 200
"""Number of texts that a search by meaning returns."""
NEAR_BEST = 0.6
"""A passage is shown if its score is at least this share of the best one's."""


class Passage(Struct, frozen=True):
    """A part of a text: its file, the heading above it, the text itself, and the lines where it begins and ends."""

    file: str
    heading: str
    text: str
    line: int = 1
    last_line: int = 1


class Passages(Struct, frozen=True, dict=True):
    """Passages that are searched by their words, those of the file's name and the heading included."""

    passages: tuple[Passage, ...]
    files: tuple[str, ...]

    @cached_property
    def _keywords(self) -> KeywordIndex:
        return KeywordIndex(f"{each.file.rpartition('.')[0]} {each.heading} {each.text}" for each in self.passages)

    def find(self, query: str) -> str:
        """Return the best passages as text, each below its file's name. Raises `ToolError` if none fits."""
        scores = self._keywords.score(query)
        if not scores:
            files = f"The texts are: {', '.join(self.files)}." if len(self.files) <= 12 else "Try other words."
            raise ToolError(f"No text has anything on {cut_text(query, 80)!r}.", hint=files)
        least = NEAR_BEST * max(scores.values())
        best = [self.passages[i] for i in self._keywords.rank(query)[:SHOWN] if scores[i] >= least]
        titles = (f"{each.file}: {each.heading}" if each.heading else each.file for each in best)
        return "\n\n".join(f"[{title}]\n{each.text}" for title, each in zip(titles, best, strict=True))


def split_passages(file: str, text: str) -> list[Passage]:
    """Split a text into passages: short paragraphs together, long ones apart, never across a heading."""
    found: list[Passage] = []
    heading, held, begins, ends = "", "", 0, 0
    text = text.replace("\r\n", "\n").replace("\r", "\n")

    def flush() -> None:
        nonlocal held
        if held:
            line = text.count("\n", 0, begins) + 1
            found.append(Passage(file, heading, held, line, line + text.count("\n", begins, ends)))
        held = ""

    at = 0
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.strip().split("\n")
        while lines and re.match(r"#{1,6}\s", lines[0]):
            flush()
            heading = lines.pop(0).strip("# \t")
        for piece in split_text("\n".join(lines), LENGTH):
            if held and len(held) + len(piece) > LENGTH:
                flush()
            place = text.find(piece, at)
            at = max(place, at)
            if not held:
                begins = at
            held, ends = f"{held}\n{piece}" if held else piece, at + len(piece)
    flush()
    return found


def make_meaning_search(texts: list[str], embedder: AnyEmbedder) -> Search:
    """Return a search by meaning and words, or one by words alone if the embedder is not available."""
    from plait.search import Index, VectorCache

    try:
        index = Index(embedder, VectorCache()).add([str(i) for i in range(len(texts))], texts)
    except PlaitError as why:
        return _make_word_search(texts, why)

    def search(query: str) -> tuple[list[int], str]:
        try:
            return [int(hit.id) for hit in index.search(query, DEEP)], ""
        except PlaitError as why:
            return _make_word_search(texts, why)(query)

    return search


def _make_word_search(texts: list[str], why: PlaitError) -> Search:
    keywords = KeywordIndex(texts)
    return lambda query: (keywords.rank(query), f"(Searched by words only. {why})")
