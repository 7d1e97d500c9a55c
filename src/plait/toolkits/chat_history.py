"""The tool `chat_history`, which searches the earlier turns of a conversation by meaning and by words: the questions,
the answers, and the beginning and end of each result of a tool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plait.core.text import shorten, split_text
from plait.search.keywords import split_words
from plait.toolkits.passages import make_meaning_search
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from plait.journal.records import SessionTurn
    from plait.toolkits.passages import AnyEmbedder

BEST = 4
"""Number of turns that a search returns."""
SHOWN = 400
"""Maximum number of characters shown of a question or an answer."""
PART = 700
"""Maximum number of characters of a part; of a long turn, the search finds the best part."""
ALIKE = 0.7
"""Two turns with at least this share of common words say much the same."""
SECONDS = 900.0
"""Time limit of a search. The first one embeds the whole conversation."""


def chat_history(turns: Callable[[], Sequence[SessionTurn]], embedder: AnyEmbedder = "local") -> Tool:
    """Make the tool for one run. `turns` returns the conversation before the run.

    Nothing is read or embedded until the tool is called. Vectors are stored on disk. If the embedder is not available
    (the extra `search` is not installed, its endpoint cannot be reached), the tool searches by words and says so.
    """
    conversation: list[_Conversation] = []
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
            if not conversation:
                conversation.append(_Conversation(turns(), embedder))
        return conversation[0].find(query)

    return search


class _Conversation:
    """The turns before a run, split into parts and indexed."""

    def __init__(self, turns: Sequence[SessionTurn], embedder: AnyEmbedder) -> None:
        self._turns = turns
        self._parts = [(i, part) for i, turn in enumerate(turns) for part in split_text(_text_of(turn), PART)]
        self._search = make_meaning_search([part for _, part in self._parts], embedder) if turns else None

    def find(self, query: str) -> str:
        """Return the turns that fit best, oldest first, as text for a model."""
        if self._search is None:
            return "Nothing was said before: this is the first turn of the conversation."
        ranked, note = self._search(query)
        shown = [self._show(*each) for each in sorted(self._choose(ranked))]
        if not shown:
            shown = ["Nothing that was said earlier has anything on this."]
        return "\n\n".join([*shown, note] if note else shown)

    def _choose(self, ranked: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return the best turns: the turn, its best part, and how many further turns say much the same. Those are not
        shown: a question that was asked many times would leave no room for the others."""
        found: dict[int, list[Any]] = {}
        seen: set[int] = set()
        for i in ranked:
            turn = self._parts[i][0]
            if turn in seen:
                continue
            seen.add(turn)
            words = frozenset(split_words(_text_of(self._turns[turn])))
            same = next((each for each in found.values() if len(each[1] & words) >= ALIKE * len(each[1] | words)), None)
            if same is not None:
                same[2] += 1
            elif len(found) < BEST:
                found[turn] = [i, words, 0]
        return [(turn, part, more) for turn, (part, _, more) in found.items()]

    def _show(self, number: int, part: int, more: int) -> str:
        turn = self._turns[number]
        when = f" ({datetime.fromtimestamp(turn.started).astimezone():%Y-%m-%d %H:%M})" if turn.started else ""
        lines = [f"Turn {turn.number}{when}", f"The user: {shorten(turn.question, SHOWN)[0]}"]
        lines.append("You: " + (shorten(turn.answer, SHOWN)[0] if turn.answer is not None else "(no answer)"))
        fitting = self._parts[part][1]
        if max(len(turn.question), len(turn.answer or "")) > SHOWN or (turn.calls and fitting not in _text_of(turn, 0)):
            lines.append(f"The part of it that fits: {fitting}")
        if more:
            lines.append(f"(Much the same was said in {more} other turn{'s' * (more > 1)}.)")
        return "\n".join(lines)


def _text_of(turn: SessionTurn, of_result: int = 2 * PART) -> str:
    """Return the question, the answer, and each result of a call with at most `of_result` characters."""
    results = (shorten(call.result, of_result)[0] for call in turn.calls if of_result)
    return "\n".join((turn.question, *([turn.answer] if turn.answer is not None else []), *results))
