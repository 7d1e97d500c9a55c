"""Finds the passages of some texts that best fit a question's words (BM25, k1 1.5, b 0.75)."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cached_property

from msgspec import Struct

from plait.core.errors import ToolError
from plait.toolkits.words import stem, telling, words

LENGTH = 700
"""Characters a passage is filled up to; a paragraph longer than this is cut between sentences."""
SHOWN = 3
_K1, _B = 1.5, 0.75


class Passage(Struct, frozen=True):
    """A part of a text: which file, the heading above it, and the words themselves."""

    file: str
    heading: str
    text: str


class Passages(Struct, frozen=True, dict=True):
    """Passages with an index over their words; the file's name and the heading count as words too."""

    passages: tuple[Passage, ...]
    files: tuple[str, ...]

    @cached_property
    def _index(self) -> tuple[dict[str, list[tuple[int, int]]], list[int]]:
        where: dict[str, list[tuple[int, int]]] = {}
        lengths: list[int] = []
        for i, passage in enumerate(self.passages):
            name = passage.file.rpartition(".")[0]
            counts = Counter(map(stem, words(f"{name} {passage.heading} {passage.text}")))
            lengths.append(sum(counts.values()))
            for word, count in counts.items():
                where.setdefault(word, []).append((i, count))
        return where, lengths

    def scores(self, query: str) -> dict[int, float]:
        """How well passages fit, by their index; those that share no word with the query are left out."""
        where, lengths = self._index
        mean = sum(lengths) / len(lengths)
        scores: dict[int, float] = {}
        for word in dict.fromkeys(map(stem, telling(words(query))[:50])):
            found = where.get(word, [])
            rarity = math.log(1 + (len(lengths) - len(found) + 0.5) / (len(found) + 0.5))
            for i, count in found:
                weight = count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * lengths[i] / mean))
                scores[i] = scores.get(i, 0.0) + rarity * weight
        return scores

    def find(self, query: str) -> str:
        """The best passages as text, at most three, each below its file's name. `ToolError` for none."""
        scores = self.scores(query)
        if not scores:
            shown = query if len(query) <= 80 else query[:77] + "..."
            files = f"The texts are: {', '.join(self.files)}." if len(self.files) <= 12 else "Try other words."
            raise ToolError(f"No text has anything on {shown!r}.", hint=files)
        best = sorted(scores, key=lambda i: (-scores[i], i))[:SHOWN]
        kept = [self.passages[i] for i in best if scores[i] >= 0.6 * scores[best[0]]]
        return "\n\n".join(f"{_title(passage)}\n{passage.text}" for passage in kept)


def _title(passage: Passage) -> str:
    return f"[{passage.file}{': ' + passage.heading if passage.heading else ''}]"


def cut(file: str, text: str) -> list[Passage]:
    """A text as passages: paragraphs, short ones together, long ones apart, never across a heading."""
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
        for piece in _pieces("\n".join(lines).strip()):
            if held and len(held) + len(piece) > LENGTH:
                flush()
            held = f"{held}\n{piece}" if held else piece
    flush()
    return found


def _pieces(paragraph: str) -> list[str]:
    if len(paragraph) <= LENGTH:
        return [paragraph] if paragraph else []
    pieces = [""]
    for sentence in re.split(r"(?<=[.!?])\s+|\n", paragraph):
        for part in (sentence[i : i + LENGTH] for i in range(0, len(sentence), LENGTH)):
            if pieces[-1] and len(pieces[-1]) + len(part) > LENGTH:
                pieces.append("")
            pieces[-1] = f"{pieces[-1]} {part}".strip()
    return [piece for piece in pieces if piece]
