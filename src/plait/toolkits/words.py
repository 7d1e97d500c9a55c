"""How a lookup compares words: without case, accents and punctuation, and without the small words."""

from __future__ import annotations

import unicodedata

_SMALL = """a an and are as at by did do does for from had has have how in is it its many much of on or s that
the their there this to was were what when where which who will with"""
SMALL = frozenset(_SMALL.split())
"""Words that tell nothing of what is meant."""


def words(text: str) -> tuple[str, ...]:
    """The words of a text, in order, folded."""
    if not text.isascii():
        marked = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in marked if not unicodedata.combining(character))
    folded = text.casefold().replace("\u2019s ", " ").replace("'s ", " ")
    return tuple("".join(c if c.isalnum() else " " for c in folded).split())


def telling(found: tuple[str, ...]) -> tuple[str, ...]:
    """The words that tell something; all of them when none does."""
    return tuple(word for word in found if word not in SMALL) or found


def stem(word: str) -> str:
    """A word without its plural's s, so that "cities" and "city", "rivers" and "river" meet."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
