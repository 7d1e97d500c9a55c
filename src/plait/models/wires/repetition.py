"""Endless repetition at the end of a text that arrives in pieces, also with a counter or other small changes.

Small models repeat the same lines until their token limit, which takes minutes, and often they number them. Tables,
lists, logs and programs have similar lines too, but each line says something new. So what counts is how much of a text
cannot be predicted from the text before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

SHORT, LONG = 1792, 3584
"""Characters of a repetition. The short one is some 900 tokens of numbered calls, the long one 900 tokens of prose."""
ZEROS = 8192
"""Characters of a repetition of one word or none in the input of a tool call: it may be a file of zeros."""
ROUNDS = 4
"""Minimum number of repeats."""
EVERY = 256
"""Characters between two checks. A repetition is found at the same place however the stream is cut."""
CONTEXT = 3
"""Tokens from which the next one is predicted."""
NEAR = 5
"""Maximum tokens of a piece that may repeat within a repetition once more each time, as in `f(x)`, `f(f(x))`."""
NEWS = 64
"""Of so many tokens, one may be new. In tables of yes and no, one of 12 is."""
LETTERS = 4.5
"""Minimum letters for each number that changes. Lists of numbers and dates have fewer."""

_TOKEN = re.compile(r"[0-9]{1,15}|[^\W\d_]+|\s+|([^\w\s]|_)\1*|.", re.S)
_NO_LETTERS = str.maketrans({sign: " " for sign in map(chr, range(128)) if not sign.isalpha()})


class CircleCut(Struct):
    """Cut a text that ends in endless repetition. Feed pieces; get those before the end of the repetition.

    `found` is True from there on. `lengths` are the lengths in characters that a repetition may have before it is cut,
    in ascending order. `may_be_data`: the text may be a file of zeros.
    """

    lengths: Sequence[int] = (SHORT, LONG)
    may_be_data: bool = False
    found: bool = False
    _passed: int = 0
    _end: str = ""

    def feed(self, text: str) -> str:
        """Return the text up to where a repetition is certain."""
        if self.found:
            return ""
        if self._passed + len(text) < self.lengths[0]:  # too short for a repetition
            self._passed += len(text)
            self._end += text
            return text
        at, kept = 0, ZEROS if self.may_be_data else self.lengths[-1]
        while at < len(text):
            piece = text[at : at + EVERY - self._passed % EVERY]
            at += len(piece)
            self._passed += len(piece)
            self._end = (self._end + piece)[-kept:]
            if self._passed % EVERY == 0 and self._is_circle():
                self.found = True
                return text[:at]
        return text

    def _is_circle(self) -> bool:
        for length in self.lengths:
            text = self._end[-length:]
            if len(text) < length:
                return False
            words = text.translate(_NO_LETTERS).split()
            if self.may_be_data and len(set(words)) < 2:
                break
            if _is_same(text) or (0 < len(set(words)) * ROUNDS <= len(words) and _is_similar(text)):
                return True
        return len(self._end) >= ZEROS and _is_same(self._end)


def _is_same(text: str) -> bool:
    """Return whether a text is one piece over and over."""
    longest = len(text) // ROUNDS
    again = text.find(text[:longest], 1)
    return 0 < again <= longest and text[again:] == text[: len(text) - again]


def _is_similar(text: str) -> bool:
    """Return whether a text is one piece over and over, apart from counters and small changes.

    Each token is predicted from the last place that had the same tokens before it. A number is as predicted if it is
    the same there, or if it is a step further, and the step is the same for all numbers: a table of multiples has
    several. A date or time may also carry, such as 09:59, 10:00.
    """
    begin, most = len(text) // ROUNDS, len(text) // NEWS  # the first round is all new
    tokens: list[str] = []
    shapes: list[str] = []
    places: dict[tuple[str, ...], int] = {}
    place: int | None = None
    nearest: int | None = None
    left: int | None = None  # the place that a growing piece has left
    last = step = advanced = counted = news = changed = letters = 0
    for i, match in enumerate(_TOKEN.finditer(text.lower())):
        token = match[0]
        if token.isspace():
            token = "\n" if "\n" in token else " "
        shape = "0" if token[0] in "0123456789" else token if token.isalpha() else token[0]
        tokens.append(token)
        shapes.append(shape)
        counts = begin <= match.start() and match.end() < len(text)  # the last token may be half a word
        if place is not None and shapes[place] != shape:
            grows = nearest is not None and i - nearest <= NEAR and shapes[nearest] == shape
            back = left is not None and shapes[left] == shape
            place, left = (nearest, place) if grows else (left, place) if back else (None, None)
            surprise = 0 if grows or back else 4
        else:
            surprise = int(place is None)
        if shape == "0" and place is not None and (number := int(token)) != (before := int(tokens[place])):
            if step and (number - before == step or number - last in (0, step)):
                advanced = i
            elif step and i - advanced == 2 and tokens[i - 1] in "-:./" and number < max(2, abs(step)):
                advanced, number = i, last  # it carries
            else:
                step, surprise = number - before, 4
            last, changed = number, changed + counts
        if counts:
            counted += 1
            letters += len(shape) * shape.isalpha()
            news += surprise
            if news > most:
                return False
        context = tuple(shapes[-CONTEXT:])
        nearest = places.get(context)
        place = nearest if place is None else place + 1
        places[context] = i + 1
    return news * NEWS <= counted and letters >= LETTERS * changed
