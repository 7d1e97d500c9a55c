"""Keyword search with SQLite's FTS5, and the words by which texts are compared.

Vectors blur exact names and numbers; words find them. FTS5 ranks by BM25. Plait only defines the words: without case,
accents and plural, and a joined name also gives its parts.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable
from string import ascii_letters

from plait.core.errors import ConfigError

_SMALL = """a an and are as at by did do does for from had has have how in is it its many much of on or s that
the their there this to was were what when where which who will with"""
SMALL_WORDS = frozenset(_SMALL.split())
"""Words without a meaning of their own."""

_LETTERS = str.maketrans({"ı": "i", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "Ae"})
"""Letters with a mark that Unicode does not take apart, as people type them on other keyboards."""

QUERY_WORDS = 50
"""Maximum number of words of a query."""

_WORD = re.compile(r"[^\W_]+")
_NAME_PART = re.compile(r"[0-9]+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


class KeywordIndex:
    """Ranks texts by the words that they share with a query. Texts are numbered from 0 in the order they are added."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._db.execute("create virtual table texts using fts5(words, content='', tokenize='unicode61')")
        except sqlite3.OperationalError as why:
            hint = "Use a Python whose SQLite has FTS5, such as one from python.org or uv."
            raise ConfigError(f"This Python cannot search by keyword: {why}.", hint=hint) from None
        self._count = 0
        self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        """Add texts after the existing ones."""
        with self._lock:
            rows = list(enumerate((" ".join(index_words(text)) for text in texts), self._count))
            self._db.executemany("insert into texts (rowid, words) values (?, ?)", rows)
            self._count += len(rows)

    def score(self, query: str) -> dict[int, float]:
        """Return the BM25 score of each text that shares a word with the query, by the text's number."""
        words = list(dict.fromkeys(index_words(query)))
        # A single letter is mostly the English "I", and rare in texts: it would weigh much.
        telling = [word for word in words if word not in SMALL_WORDS and not (len(word) == 1 and word in ascii_letters)]
        match = " OR ".join(f'"{word}"' for word in (telling or words)[:QUERY_WORDS])
        if not match:
            return {}
        with self._lock:
            rows = self._db.execute("select rowid, -rank from texts where texts match ?", (match,)).fetchall()
        return dict(rows)

    def rank(self, query: str) -> list[int]:
        """Return the numbers of the texts that share a word with the query, best first; of equals the first added."""
        scores = self.score(query)
        return sorted(scores, key=lambda number: (-scores[number], number))


def split_words(text: str) -> tuple[str, ...]:
    """Split a text into words without case, accents and punctuation, in order."""
    folded = _drop_accents(text).casefold().replace("\u2019s ", " ").replace("'s ", " ")
    return tuple(_WORD.findall(folded))


def index_words(text: str) -> list[str]:
    """Split a text into the words that are searched: without case, accents and plural. A joined name gives its parts
    and itself: `getWeather` gives `getweather`, `get`, `weather`. Scripts that are written without spaces give pairs of
    letters."""
    found: list[str] = []
    for word in _WORD.findall(_drop_accents(text)):
        if _UNSPACED.search(word):
            folded = word.casefold()
            found += [folded[at : at + 2] for at in range(max(len(folded) - 1, 1))]
            continue
        parts = _split_parts(word)
        if len(parts) > 1:
            found.append(word.casefold())
        found += [stem(part.casefold()) for part in parts]
    return found


def split_name(name: str) -> str:
    """Split a joined name into words: `getFilmInfo` gives "get Film Info", `get_film_info` gives "get film info"."""
    return " ".join(part for word in _WORD.findall(name) for part in _split_parts(word))


def drop_small_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove the words without meaning, unless there are no others."""
    return tuple(word for word in words if word not in SMALL_WORDS) or words


def stem(word: str) -> str:
    """Remove the plural of an English word. Only the plural: a name must stay itself."""
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        if word.endswith("ies") and len(word) > 4:
            return word[:-3] + "y"
        return word[:-2] if word.endswith(("xes", "ches", "shes", "sses", "zes")) else word[:-1]
    return word


def _split_parts(word: str) -> list[str]:
    return _NAME_PART.findall(word) if word.isascii() else [word]


def _drop_accents(text: str) -> str:
    if text.isascii():
        return text
    plain = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return plain.translate(_LETTERS)
