"""Texts with ids, found by meaning and by word.

Theory of operation. A text has a row for each of its passages in one table of vectors; its nearness to the query is
that of its nearest passage, in cosine. What its words tell is added (`keywords.py`), weighted by how far the query's
cosines spread, for each model spreads them in its own way. So nothing needs setting: a query of names and numbers is
settled by the words, one that puts things differently by the vectors.
The weight is measured: benchmarks/results/embedders.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from plait.core.errors import UsageError
from plait.search.base import Embedder, Function, embedder
from plait.search.blas import one_blas_thread
from plait.search.cache import Cache, Cached
from plait.search.keywords import Keywords
from plait.search.local import LocalEmbedder

if TYPE_CHECKING:
    from plait.search.base import Vectors

PASSAGE = 1000
"""Characters of a passage: about as many as an embedder reads."""
PASSAGES = 64
"""Of a longer text the passages behind these are found by their words only."""
WORDS = 0.5
"""What a word that a text shares with the query adds, in spreads of the cosines for each unit of its rarity."""
SPREAD, BEFORE = 0.085, 20
"""The spread that is assumed to begin with, and how many texts that assumption counts for."""


@dataclass(frozen=True)
class Hit:
    """A text that was found: its id, and how well it fits. Scores of one query compare.

    A score is a cosine (at most 1) and what the shared words add.
    """

    id: str
    score: float


class Index:
    """Searches texts by the nearness of their vectors and by the words they share with the query.

    `using` is an embedder or what `embedder()` takes. `cache` keeps vectors between processes; None keeps none.
    Any thread may use it; texts that are added while a search runs are found by the next.
    """

    def __init__(self, using: Embedder | Function | str = "local", cache: Cache | None = None) -> None:
        made = embedder(using)
        self.embedder: Embedder = made if cache is None else Cached(made, cache)
        # A query to the local embedder is answered about as soon as it would be looked up and kept.
        self._asked: Embedder = made if isinstance(made, LocalEmbedder) else self.embedder
        self._ids: list[str] = []
        self._known: set[str] = set()
        self._keywords = Keywords()
        self._table: Vectors | None = None
        self._rows = 0
        self._starts: list[int] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def add(self, ids: Sequence[str], texts: Sequence[str], words: Sequence[str] | None = None) -> Index:
        """Add texts under ids of their own; returns the index. Costs the embedding of these texts only.

        `words` are what the words of each are taken from, where that is more than the text whose meaning is compared.
        Raises `UsageError` when an id is there already or comes twice, or when they are not of one length; then, and
        when the embedder fails, nothing is added.
        """
        words = texts if words is None else words
        if not len(ids) == len(texts) == len(words):
            raise UsageError(f"{len(ids)} ids came for {len(texts)} texts.", hint="Give one id for each text.")
        parts = [passages(text) for text in texts]
        vectors = self.embedder.embed([passage for each in parts for passage in each]) if texts else None
        with self._lock:
            twice = [id for id in ids if id in self._known] or [id for id in set(ids) if list(ids).count(id) > 1]
            if twice:
                raise UsageError(f"The id {twice[0]!r} is there already.", hint="Give each text an id of its own.")
            if vectors is None:
                return self
            self._append(vectors)
            at = self._rows - len(vectors)
            for id, said, each in zip(ids, words, parts, strict=True):
                self._ids.append(id)
                self._known.add(id)
                self._keywords.add(said)
                self._starts.append(at)
                at += len(each)
        return self

    def _append(self, vectors: Vectors) -> None:
        import numpy as np

        if self._table is not None and self._table.shape[1] != vectors.shape[1]:
            raise UsageError(f"Vectors of {vectors.shape[1]} numbers do not go into a table of {self._table.shape[1]}.")
        rows = self._rows + len(vectors)
        if self._table is None or rows > len(self._table):
            grown = np.empty((max(rows, 2 * self._rows), vectors.shape[1]), dtype=np.float32)
            if self._table is not None:
                grown[: self._rows] = self._table[: self._rows]
            self._table = grown
        self._table[self._rows : rows] = vectors
        self._rows = rows

    def without(self, ids: Collection[str]) -> Index:
        """Another index of the same texts but these; nothing is embedded anew."""
        import numpy as np

        other = Index(self.embedder)
        other._asked = self._asked
        with self._lock:
            keep = [at for at, id in enumerate(self._ids) if id not in ids]
            if not keep:
                return other
            assert self._table is not None
            ends = [*self._starts[1:], self._rows]
            rows = [np.arange(self._starts[at], ends[at]) for at in keep]
            other._table = self._table[np.concatenate(rows)]
            other._rows = len(other._table)
            other._starts = [0, *accumulate(len(each) for each in rows[:-1])]
            other._ids = [self._ids[at] for at in keep]
            other._known = set(other._ids)
            other._keywords = self._keywords.only(keep)
        return other

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The `k` texts that fit best, best first; of equals the one added first. Fewer where there are fewer."""
        import numpy as np

        if k <= 0 or not self._ids:
            return []
        vector = self._asked.embed([query])[0]
        with self._lock, one_blas_thread():
            assert self._table is not None
            near = self._table[: self._rows] @ vector
            if self._rows > len(self._ids):
                near = np.maximum.reduceat(near, self._starts)
            spread = math.sqrt((BEFORE * SPREAD**2 + len(near) * float(near.var())) / (BEFORE + len(near)))
            scores = near + np.float32(WORDS * spread) * self._keywords.scores(query)
            ids = self._ids
            best = np.arange(len(scores))
            if k < len(scores):
                best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
            best = best[np.argsort(-scores[best], kind="stable")][:k]
            return [Hit(ids[at], float(scores[at])) for at in best]


def passages(text: str) -> list[str]:
    """A text in pieces of about `PASSAGE` characters, cut at blanks where there are any; the first `PASSAGES`."""
    found: list[str] = []
    at = 0
    while len(found) < PASSAGES:
        end = at + PASSAGE
        if end >= len(text):
            found.append(text[at:])
            break
        blank = max(text.rfind("\n", at + PASSAGE // 2, end), text.rfind(" ", at + PASSAGE // 2, end))
        end = blank + 1 if blank >= 0 else end
        found.append(text[at:end])
        at = end
    return found
