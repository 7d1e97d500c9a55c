"""`Index`: texts with ids, found by meaning and by words.

A text has one vector for each of its passages. Its similarity to a query is that of its nearest passage, as a cosine.
The score of its words (`keywords.py`) is added, weighted by the spread of the query's cosines, because each embedder
spreads them differently. The weight is measured: benchmarks/results/embedders.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.core.errors import ConfigError
from plait.search.cache import CachedEmbedder, VectorCache
from plait.search.embedders import Embedder, EmbedFunction, load_embedder
from plait.search.keywords import KeywordIndex
from plait.search.minilm import LocalEmbedder

if TYPE_CHECKING:
    from plait.search.embedders import Vectors

PASSAGE = 1000
"""Characters of a passage: about as many as an embedder reads."""
PASSAGES = 64
"""Number of passages of a text that have a vector. Later passages are found by their words only."""
WORDS = 0.3
"""Weight of the keyword score, in spreads of the query's cosines."""
FEW_TEXTS = 300
"""BM25 gives a rare word little weight among few texts. Plait weights it as if there were this many more."""
SPREAD, BEFORE = 0.085, 20
"""The spread that is assumed at first, and the number of texts that this assumption counts for."""


@dataclass(frozen=True)
class Hit:
    """A text that was found. Scores of one query can be compared: a cosine (at most 1), plus the score of its words."""

    id: str
    score: float


class Index:
    """Searches texts by the similarity of their vectors and by the words they share with the query.

    `using` is an embedder or what `load_embedder()` accepts. `cache` keeps vectors between processes; None keeps none.
    Any thread may use it. A search does not see texts that are added while it runs.
    """

    def __init__(self, using: Embedder | EmbedFunction | str = "local", cache: VectorCache | None = None) -> None:
        made = load_embedder(using)
        self.embedder: Embedder = CachedEmbedder(made, cache) if cache is not None else made
        # The local embedder computes a query's vector about as fast as the cache would return and store it.
        self._query_embedder = made if isinstance(made, LocalEmbedder) else self.embedder
        self._starts: dict[str, int] = {}  # of each id: its first row of the table
        self._keywords = KeywordIndex()
        self._table: Vectors | None = None
        self._rows = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, id: object) -> bool:
        return id in self._starts

    def add(self, ids: Sequence[str], texts: Sequence[str]) -> Index:
        """Add texts under ids, embed only these, and return the index. Raises `ConfigError` if an id is already there
        or is given twice, or if the lengths differ. Then, and if the embedder fails, nothing is added."""
        passages = [split_passages(text) for text in texts]
        self._check(ids, texts)
        vectors = self.embedder.embed([passage for each in passages for passage in each])
        self._insert(ids, texts, vectors, [len(each) for each in passages])
        return self

    def add_vectors(self, ids: Sequence[str], vectors: Vectors, words: Sequence[str]) -> Index:
        """Add texts whose vectors are known, one row each, and return the index. Raises as `add` does."""
        self._insert(ids, words, vectors, [1] * len(ids))
        return self

    def _check(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        if len(ids) != len(texts):
            raise ConfigError(f"{len(ids)} ids were given for {len(texts)} texts.", hint="Give one id for each text.")
        seen: set[str] = set()
        for id in ids:
            if id in self._starts or id in seen:
                raise ConfigError(f"The id {id!r} is already there.", hint="Give each text an id of its own.")
            seen.add(id)

    def _insert(self, ids: Sequence[str], words: Sequence[str], vectors: Vectors, rows: list[int]) -> None:
        import numpy as np

        with self._lock:
            self._check(ids, words)
            if not ids:
                return
            used = self._rows + len(vectors)
            if self._table is None:
                self._table = np.array(vectors, dtype=np.float32)
            elif used > len(self._table):
                grown = np.empty((max(used, 2 * self._rows), self._table.shape[1]), dtype=np.float32)
                grown[: self._rows] = self._table[: self._rows]
                self._table = grown
            self._table[self._rows : used] = vectors
            for id, count in zip(ids, rows, strict=True):
                self._starts[id] = self._rows
                self._rows += count
            self._keywords.add(words)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the `k` texts that fit best, best first; of equals the one added first."""
        import numpy as np

        if k <= 0 or not self._starts:
            return []
        vector = self._query_embedder.embed([query])[0]
        with self._lock:
            assert self._table is not None
            ids, starts = list(self._starts), list(self._starts.values())
            # `vecdot` multiplies in this thread. A matrix product uses BLAS threads, which wait by spinning.
            scores = np.vecdot(self._table[: self._rows], vector)
            found = self._keywords.score(query)
        if len(scores) > len(ids):
            scores = np.maximum.reduceat(scores, starts)
        spread = math.sqrt((BEFORE * SPREAD**2 + len(ids) * float(scores.var())) / (BEFORE + len(ids)))
        weight = WORDS * spread * math.log(len(ids) + FEW_TEXTS) / math.log(len(ids) + 1)
        scores[list(found)] += np.fromiter(found.values(), np.float32, len(found)) * np.float32(weight)
        best = np.arange(len(ids))
        if k < len(ids):
            best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        best = best[np.argsort(-scores[best], kind="stable")][:k]
        return [Hit(ids[at], float(scores[at])) for at in best]


def split_passages(text: str) -> list[str]:
    """Split a text into pieces of at most `PASSAGE` characters, at blanks if possible; return the first `PASSAGES`."""
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
