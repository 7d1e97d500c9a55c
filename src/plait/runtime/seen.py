"""How long results and replies were in the last runs of a journal, and what is assumed where nothing was seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from plait.core.errors import JournalError
from plait.journal.records import Acting, ObservedRecord, Row, RunHead, Thinking, Thought
from plait.journal.store import Journal
from plait.loops.rewoo.loop import Rewoo
from plait.loops.rewoo.pages import NO_EVIDENCE

RUNS = 20
"""So many of a journal's last runs are looked at."""

Asked: TypeAlias = tuple[str, str]
"""A phase and its model."""


class Guess(Struct, frozen=True):
    """An assumption: characters of a tool's result, and tokens of each reply of the phases `work` and `solve`."""

    evidence: int
    work: int
    solve: int


LOW, USUAL, HIGH = Guess(20, 5, 10), Guess(200, 30, 40), Guess(2000, 150, 200)


class Seen(Struct, frozen=True):
    """What earlier runs had: characters of each tool's results, by its name; tokens of the replies of `rewoo`, and
    (tokens, characters) of each of its requests, by phase and model."""

    results: Mapping[str, Sequence[int]] = {}
    replies: Mapping[Asked, Sequence[int]] = {}
    requests: Mapping[Asked, Sequence[tuple[int, int]]] = {}

    def result(self, tool: str, guess: Guess) -> int:
        """Characters of a result of that tool: shortest, mean or longest, or what `guess` says."""
        return _of(self.results.get(tool, ()), guess) or guess.evidence

    def reply(self, phase: str, model: str, guess: Guess) -> int:
        """Tokens of a reply of that phase, likewise."""
        return _of(self.replies.get((phase, model), ()), guess) or (guess.work if phase == "work" else guess.solve)

    def tokens_a_char(self, phase: str, model: str, guess: Guess) -> float | None:
        """Tokens of a character in that phase's requests, all that the endpoint adds included; None: not known."""
        known = self.requests.get((phase, model), ())
        if not known:
            return None
        if guess is USUAL:
            return sum(tokens for tokens, _ in known) / sum(characters for _, characters in known)
        return (min if guess is LOW else max)(tokens / characters for tokens, characters in known)


def seen_in(journal: Journal | None) -> Seen:
    """What a journal's last runs had; nothing where it can't be read."""
    if journal is None or not journal.path.exists():
        return Seen()
    try:
        return seen_of((run.head, journal.rows(run.head.run)) for run in journal.runs(RUNS))
    except JournalError:
        return Seen()


def seen_of(runs: Iterable[tuple[RunHead, Iterable[Row]]]) -> Seen:
    """What these runs had. A call that failed counts by what the solver is shown of it, its error."""
    results: dict[str, list[int]] = {}
    replies: dict[Asked, list[int]] = {}
    requests: dict[Asked, list[tuple[int, int]]] = {}
    for head, rows in runs:
        calls: dict[int, Acting] = {}
        asked: dict[int, Row] = {}
        for row in rows:
            match row.record:
                case Acting(n=n):
                    calls[n] = row.record
                case ObservedRecord(n=n, i=i, observation=observation) if n in calls:
                    size = len(observation.text) + (0 if observation.ok else len(f"{NO_EVIDENCE} ()"))
                    results.setdefault(calls[n].calls[i].tool, []).append(size)
                case Thinking(n=n) if head.strategy["name"] == Rewoo.name:
                    asked[n] = row
                case Thought(n=n, reply=reply) if n in asked and isinstance(intent := asked[n].record, Thinking):
                    key = (intent.phase, intent.model)
                    replies.setdefault(key, []).append(reply.usage.output_tokens)
                    size = 0 if reply.usage.estimated else sum(map(len, texts_in(asked[n].body)))
                    if size:
                        requests.setdefault(key, []).append((reply.usage.input_tokens, size))
    return Seen(results, replies, requests)


def texts_in(body: bytes | None) -> list[str]:
    """The texts of a request's messages; none where it has none that can be read."""
    try:
        found = [message["content"] for message in json.loads(body or b"")["messages"]]
    except (ValueError, LookupError, TypeError):
        return []
    return [text for text in found if isinstance(text, str)]


def _of(lengths: Sequence[int], guess: Guess) -> int:
    """The shortest, the mean or the longest, at least 1; 0 where there are none."""
    if not lengths:
        return 0
    if guess is USUAL:
        return max(1, round(sum(lengths) / len(lengths)))
    return max(1, min(lengths) if guess is LOW else max(lengths))
