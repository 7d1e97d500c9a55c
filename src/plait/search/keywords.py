"""BM25 over words, for exact names and numbers, which vectors blur. Texts can be added at any time.

Theory of operation. Each word has a list of (text, how often). Nothing that depends on the whole is stored, so
adding a text touches its own words only; a query multiplies out inverse frequencies and lengths as they are now. A few
texts do not tell which words are rare, so each word begins with the frequency that it has in English: the vocabulary
of the default embedder is sorted by it.
After Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009).
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

K1 = 1.2
B = 0.75
BEFORE = 300
"""The frequencies of English count as much as so many texts."""

EXACT = 2.0
"""A word with a digit counts for so many: to vectors one number is much like another."""

_SPECIAL = 1996
"""The vocabulary's lines before this one are marks and single letters; then come words, the most frequent first."""

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"[0-9]+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")


def words(text: str) -> list[str]:
    """The words of a text as they are compared: in lower case, without the plural of English.

    A joined name gives its parts and itself: `getWeather` gives `getweather`, `get`, `weather`. Scripts that are
    written without spaces give pairs of letters.
    """
    found: list[str] = []
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text)):
        word = match[0]
        if _UNSPACED.search(word):
            found += _pairs(word.casefold())
            continue
        parts = _parts(word)
        if len(parts) > 1:
            found.append(word.casefold())
        found += (_stem(part.casefold()) for part in parts)
    return found


def apart(name: str) -> str:
    """A joined name as words: `getFilmInfo` and `get_film_info` as "get Film Info" and "get film info"."""
    return " ".join(part for word in _WORD.findall(name) for part in _parts(word))


def _parts(word: str) -> list[str]:
    return _HUMP.findall(word) if word.isascii() else [word]


def _pairs(word: str) -> list[str]:
    return [word] if len(word) == 1 else [word[at : at + 2] for at in range(len(word) - 1)]


def _stem(word: str) -> str:
    """English plurals made alike; no more, for a name must stay itself."""
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        if word.endswith("ies") and len(word) > 4:
            return word[:-3] + "y"
        if word.endswith(("xes", "ches", "shes", "sses", "zes")):
            return word[:-2]
        return word[:-1]
    return word


class Keywords:
    """Counts of words in texts, which are numbered in the order in which they came."""

    def __init__(self) -> None:
        self._texts: dict[str, array[int]] = {}
        self._times: dict[str, array[int]] = {}
        self._lengths = array("I")
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, text: str) -> None:
        number = len(self._lengths)
        counts = Counter(words(text))
        for word, times in counts.items():
            if word not in self._texts:
                self._texts[word], self._times[word] = array("I"), array("I")
            self._texts[word].append(number)
            self._times[word].append(times)
        length = sum(counts.values())
        self._lengths.append(length)
        self._total += length

    def only(self, numbers: Sequence[int]) -> Keywords:
        """Another of the texts with these numbers alone, in this order."""
        import numpy as np

        found = Keywords()
        place = np.full(len(self._lengths), -1, dtype=np.int64)
        place[list(numbers)] = np.arange(len(numbers))
        for word, texts in self._texts.items():
            now = place[np.array(texts, dtype=np.intp)]
            if (kept := now >= 0).any():
                found._texts[word] = array("I", now[kept].tolist())
                found._times[word] = array("I", np.array(self._times[word])[kept].tolist())
        found._lengths = array("I", (self._lengths[number] for number in numbers))
        found._total = sum(found._lengths)
        return found

    def scores(self, query: str) -> NDArray[np.float32]:
        """How much the words that each text shares with the query tell: 0 for none, some 6 for each rare word."""
        import numpy as np

        number = len(self._lengths)
        found = np.zeros(number, dtype=np.float32)
        if not number:
            return found
        lengths = np.array(self._lengths, dtype=np.float32)
        slow = K1 * (1 - B + B * lengths / max(self._total / number, 1e-9))
        for word in dict.fromkeys(words(query)):
            if texts := self._texts.get(word):
                has = len(texts) + BEFORE * _usual(word)
                rare = math.log(1 + (number + BEFORE - has + 0.5) / (has + 0.5))
                if not word.isalpha():
                    rare *= EXACT
                at = np.array(texts, dtype=np.intp)
                times = np.array(self._times[word], dtype=np.float32)
                found[at] += rare * times / (times + slow[at])
        return found


def _usual(word: str) -> float:
    """The share of English texts that have a word, after Zipf; 0 for one that is not in the vocabulary."""
    rank = 20 if len(word) == 1 and word.isascii() and word.isalpha() else _ranks().get(word, 0)
    return min(0.9, 20 / rank) if rank else 0.0


@cache
def _ranks() -> dict[str, int]:
    lines = Path(__file__).with_name("wordpieces.txt").read_text(encoding="utf-8").splitlines()[_SPECIAL:]
    return {word: rank for rank, word in enumerate(lines, 1) if not word.startswith("##")}
