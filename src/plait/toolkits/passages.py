"""Splits texts into passages and finds those that best fit some words."""

from __future__ import annotations

import re
from functools import cached_property

from msgspec import Struct

from plait.core.errors import ToolError
from plait.core.text import cut_text, split_text
from plait.search.keywords import KeywordIndex

LENGTH = 700
"""Characters of a passage. A longer paragraph is cut between sentences."""
SHOWN = 3
NEAR_BEST = 0.6
"""A passage is shown if its score is at least this share of the best one's."""


class Passage(Struct, frozen=True):
    """A part of a text: its file, the heading above it, and the text itself."""

    file: str
    heading: str
    text: str


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
        return "\n\n".join(f"{_title(passage)}\n{passage.text}" for passage in best)


def _title(passage: Passage) -> str:
    return f"[{passage.file}{': ' + passage.heading if passage.heading else ''}]"


def split_passages(file: str, text: str) -> list[Passage]:
    """Split a text into passages: short paragraphs together, long ones apart, never across a heading."""
    found: list[Passage] = []
    heading, held = "", ""

    def flush() -> None:
        nonlocal held
        if held:
            found.append(Passage(file, heading, held))
        held = ""

    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        lines = paragraph.strip().splitlines()
        while lines and re.match(r"#{1,6}\s", lines[0]):
            flush()
            heading = lines.pop(0).strip("# \t")
        for piece in split_text("\n".join(lines), LENGTH):
            if held and len(held) + len(piece) > LENGTH:
                flush()
            held = f"{held}\n{piece}" if held else piece
    flush()
    return found
