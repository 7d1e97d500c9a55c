"""WordPiece: from a text to the numbers of the pieces in a vocabulary.

The steps are those of BERT's uncased tokenizer: clean, split at blanks, lower, drop accents, split at punctuation and
at Chinese characters, then the longest pieces from the left. Pure Python; a word met before is looked up.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

LONGEST = 100
"""A longer word (in characters) is unknown as a whole."""


class WordPiece:
    """`pieces` is the vocabulary in the order of its numbers, with "[CLS]", "[SEP]" and "[UNK]" in it."""

    def __init__(self, pieces: list[str]) -> None:
        self._number = {piece: number for number, piece in enumerate(pieces)}
        self._begin, self._end, self._unknown = (self._number[name] for name in ("[CLS]", "[SEP]", "[UNK]"))
        self._pieces_of = lru_cache(maxsize=50_000)(self._split)

    def encode(self, text: str, longest: int) -> list[int]:
        """The numbers of a text's pieces between begin and end mark, `longest` at most; the rest is left out."""
        found = [self._begin]
        # No word is less than a piece, and few are longer than this: a whole book is not read for its first page.
        for word in _words(text[: longest * 64]):
            found += self._pieces_of(word)
            if len(found) >= longest:
                del found[longest - 1 :]
                break
        found.append(self._end)
        return found

    def _split(self, word: str) -> tuple[int, ...]:
        if len(word) > LONGEST:
            return (self._unknown,)
        found: list[int] = []
        at = 0
        while at < len(word):
            mark = "##" if at else ""
            for end in range(len(word), at, -1):
                number = self._number.get(mark + word[at:end])
                if number is not None:
                    break
            else:
                return (self._unknown,)
            found.append(number)
            at = end
        return tuple(found)


def _words(text: str) -> list[str]:
    if text.isascii():
        plain = text.lower()
    else:
        # A capital sigma at a word's end would be lowered to another letter than elsewhere.
        lowered = unicodedata.normalize("NFD", text).replace("\u03a3", "\u03c3").lower()
        plain = "".join(_letter(char) for char in lowered)
    return "".join(_ascii(char) for char in plain).split() if plain.isascii() else plain.split()


@lru_cache(maxsize=256)
def _ascii(char: str) -> str:
    return _letter(char)


@lru_cache(maxsize=20_000)
def _letter(char: str) -> str:
    """What stands for a character: a blank, nothing, itself, or itself between blanks."""
    if char in "\t\n\r":
        return " "
    kind = unicodedata.category(char)
    if kind == "Zs":
        return " "
    if char in "\0\ufffd" or kind == "Mn" or kind in ("Cc", "Cf", "Co", "Cs"):
        return ""
    return f" {char} " if _apart(char, kind) else char


def _apart(char: str, kind: str) -> bool:
    if kind.startswith("P") or (char.isascii() and not char.isalnum() and not char.isspace()):
        return True
    code = ord(char)
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x2CEAF
        or 0x2F800 <= code <= 0x2FA1F
    )
