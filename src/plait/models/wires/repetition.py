"""Endless repetition at the end of a text that arrives in pieces."""

from __future__ import annotations

MOST_TEXT, MOST_REASONING, MOST_INPUT = 2048, 4096, 8192
"""Minimum characters of a repetition: in a reply's text, in its reasoning, in the input of a tool call. A cut input is
useless, and an input may be a file of zeros, so it has the most room."""
ROUNDS = 4
"""Minimum number of repeats."""
EVERY = 512
"""Characters between two checks. A repetition is found at the same place however the stream is cut."""


class CircleCut:
    """Cut a text that ends in endless repetition of one piece. Feed pieces; get those before the repetition.

    Small models repeat the same lines until their token limit, which takes minutes. Only exact repetition counts,
    because lists, tables and code have similar lines. `found` is True from the repetition on. `min_length` is its
    minimum length.
    """

    def __init__(self, min_length: int = MOST_TEXT) -> None:
        self.found = False
        self._min_length = min_length
        self._passed = 0
        self._end = ""

    def feed(self, text: str) -> str:
        """Return the text up to the start of a repetition."""
        if self.found:
            return ""
        if self._passed + len(text) < self._min_length:  # too short for a repetition
            self._passed += len(text)
            self._end += text
            return text
        at = 0
        while at < len(text):
            piece = text[at : at + EVERY - self._passed % EVERY]
            at += len(piece)
            self._passed += len(piece)
            self._end = (self._end + piece)[-self._min_length :]
            if self._passed % EVERY == 0 and self._is_circle():
                self.found = True
                return text[:at]
        return text

    def _is_circle(self) -> bool:
        text, longest = self._end, self._min_length // ROUNDS
        if len(text) < self._min_length:
            return False
        again = text.find(text[:longest], 1)
        return 0 < again <= longest and text[again:] == text[: len(text) - again]
