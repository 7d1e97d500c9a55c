"""Reads the keys of entries (see `records.py`), and names questions by them."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

_KEY = re.compile(
    r"(?:(?P<n>\d+)(?:\.(?P<i>\d+)(?::(?P<asked>[cmqu][0-9a-f]+\.\d+))?)?"
    r"(?:a(?P<attempt>\d+)|~(?P<check>\d+)|\+(?P<news>\d+))?"
    r"|n(?P<note>\d+))?(?:(?P<mark>[?!])(?P<guard>.*)@(?P<digest>[0-9a-f]+))?",
    re.DOTALL,
)


class Key(NamedTuple):
    """The parts of a key; -1 or "" for a part that it lacks.

    `n` is the number of the loop's effect; of a check that of the next one. `i` is the index of a call. `asked` is what
    that call asked for: "m..." a model call, "c..." a child run, "q..." the user, "u..." the use of an answer. `note`
    is the number of a note of the loop, `news` that of a message or a result that a model call got with it. For a
    decision, `mark` is "?" before the entry and "!" after it, and `owner` is the key of that entry; else the key itself.
    """

    owner: str
    n: int = -1
    i: int = -1
    asked: str = ""
    attempt: int = -1
    check: int = -1
    note: int = -1
    mark: str = ""
    guard: str = ""
    digest: str = ""
    news: int = -1


@lru_cache(4096)
def read_key(key: str) -> Key:
    """Return the parts of a key. Raises `ValueError` for a text that is no key."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is no key of an entry")
    names = ("n", "i", "attempt", "check", "note", "news")
    n, i, attempt, check, note, news = (int(found[name] or -1) for name in names)
    mark, asked, guard, digest = (found[name] or "" for name in ("mark", "asked", "guard", "digest"))
    owner = key[: found.start("mark")] if mark else key
    return Key(owner, n, i, asked, attempt, check, note, mark, guard, digest, news)


QUESTION_ID_LENGTH = 8
"""Characters of a question's id: 40 bits."""


def question_id(run: str, key: str) -> str:
    """Return the id of a question of a run, which an answer names. The key of a guard's question has a digest of what
    it is about. So an answer that arrives twice, late or from another window never answers a later question."""
    named = f"{run}\0{key}".encode("utf-8", "surrogatepass")
    return base64.b32encode(hashlib.sha256(named).digest()).decode()[:QUESTION_ID_LENGTH].lower()
