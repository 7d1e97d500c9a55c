"""The tool `chat_history`: searches all that was said earlier in a conversation, by meaning and by words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from plait.core.errors import PlaitError
from plait.core.text import shorten
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from plait.journal.records import SessionTurn
    from plait.search import Embedder as Measure

    Embedder: TypeAlias = str | Callable[[list[str]], Any] | Measure

Search: TypeAlias = Callable[[str], tuple[list[int], str]]
"""A query to the numbers of the parts that fit, best first, and a word on how they were found."""

BEST = 4
"""Turns that a search gives."""
SHOWN = 400
"""Characters shown of a question or an answer."""
PART = 700
"""Characters of a turn that are measured as one: of a long turn the part that fits is found, wherever it stands."""
ALIKE = 0.7
"""The share of their words that two turns have in common which say much the same."""
DEEP = 200
"""Parts that are looked at for turns that say something else."""
_ENDS = (". ", "! ", "? ", ".\n", "\n")
SECONDS = 900.0
"""The first search of a long conversation measures all of it, once."""


def chat_history(turns: Callable[[], Sequence[SessionTurn]], embedder: Embedder = "local") -> Tool:
    """The tool, for one run. `turns` gives the conversation before the run.

    Nothing is read and nothing embedded until the tool is called; vectors are kept on disk. Where the embedder can't
    be had (the extra `search` is not installed, its endpoint can't be reached) it goes by words, and says so.
    """
    memory: list[_Memory] = []
    lock = threading.Lock()

    @tool(
        name="chat_history",
        description="Searches all that was said earlier in this conversation, also what is not shown any more.",
        returns="the turns that fit best, oldest first",
        read_only=True,
        timeout=SECONDS,
    )
    def search(query: str) -> str:
        """Search the conversation.

        Args:
            query: What to look for, in a few words.
        """
        with lock:
            if not memory:
                memory.append(_Memory(turns(), embedder))
        return memory[0].find(query)

    return search


class _Memory:
    """The conversation before a run, cut into parts and indexed."""

    def __init__(self, turns: Sequence[SessionTurn], embedder: Embedder) -> None:
        self._turns = turns
        self._parts = [(i, part) for i, turn in enumerate(turns) for part in parts_of(_whole(turn))]
        self._search = _by_meaning([part for _, part in self._parts], embedder) if turns else None

    def find(self, query: str) -> str:
        """The turns that fit best, in the order they were said, as text for a model."""
        if self._search is None:
            return "Nothing was said before: this is the first turn of the conversation."
        ranked, note = self._search(query)
        told = [self._told(*each) for each in sorted(self._best(ranked))]
        if not told:
            told = ["Nothing that was said earlier has anything on this."]
        return "\n\n".join([*told, note] if note else told)

    def _best(self, ranked: Sequence[int]) -> list[tuple[int, int, int]]:
        """Of the parts in their order of fitting: the turn, the part, and how many further turns say much the same.

        Those are not shown: a question that was asked over and over would leave no room for what was said once.
        """
        found: dict[int, list[Any]] = {}
        seen: set[int] = set()
        for i in ranked:
            turn = self._parts[i][0]
            if turn in seen:
                continue
            seen.add(turn)
            said = _words(self._turns[turn])
            alike = next((each for each in found.values() if _alike(each[1], said)), None)
            if alike is not None:
                alike[2] += 1
            elif len(found) < BEST:
                found[turn] = [i, said, 0]
        return [(turn, part, more) for turn, (part, _, more) in found.items()]

    def _told(self, number: int, part: int, more: int) -> str:
        turn = self._turns[number]
        when = f" ({datetime.fromtimestamp(turn.started).astimezone():%Y-%m-%d %H:%M})" if turn.started else ""
        lines = [f"Turn {turn.number}{when}", f"The user: {shorten(turn.question, SHOWN)[0]}"]
        lines.append("You: " + (shorten(turn.answer, SHOWN)[0] if turn.answer is not None else "(no answer)"))
        if max(len(turn.question), len(turn.answer or "")) > SHOWN:
            lines.append(f"The part of it that fits: {self._parts[part][1]}")
        if more:
            lines.append(f"(Much the same was said in {more} other turn{'s' * (more > 1)}.)")
        return "\n".join(lines)


def _words(turn: SessionTurn) -> frozenset[str]:
    from plait.toolkits.words import words

    return frozenset(words(_whole(turn)))


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= ALIKE * len(one | other)


def _whole(turn: SessionTurn) -> str:
    return f"{turn.question}\n{turn.answer}" if turn.answer is not None else turn.question


def parts_of(text: str) -> list[str]:
    """A text in pieces of at most `PART` characters, cut behind a sentence where one ends in the second half, else at a
    blank, else anywhere."""
    found: list[str] = []
    text = text.strip()
    while len(text) > PART:
        ends = [max(text.rfind(end, PART // 2, PART - 1) for end in each) + 1 for each in (_ENDS, " ")]
        at = next((end for end in ends if end), PART)
        found.append(text[:at].strip())
        text = text[at:].strip()
    return [piece for piece in (*found, text) if piece]


def _by_meaning(texts: list[str], embedder: Embedder) -> Search:
    """The search by meaning and words; by words alone, and why, where an embedder can't be had."""
    from plait import search as searching

    ids = [str(i) for i in range(len(texts))]
    try:
        index = searching.Index(searching.embedder(embedder), searching.Cache()).add(ids, texts)
    except PlaitError as why:
        return _by_words(texts, why)

    def search(query: str) -> tuple[list[int], str]:
        try:
            return [int(hit.id) for hit in index.search(query, DEEP)], ""
        except PlaitError as why:
            return _by_words(texts, why)(query)

    return search


def _by_words(texts: list[str], why: PlaitError) -> Search:
    from plait.toolkits.passages import Passage, Passages

    passages = Passages(tuple(Passage("", "", text) for text in texts), ())

    def search(query: str) -> tuple[list[int], str]:
        scores = passages.scores(query)
        return sorted(scores, key=lambda i: (-scores[i], i)), f"(Searched by words only. {why})"

    return search
