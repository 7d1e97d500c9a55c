"""Notices a text that goes in circles while it is written.

Small models write the same lines over and over until their token limit, which takes minutes. So a reply whose end is
one piece of text again and again is cut there. What is looked at is exact repetition alone: lists, tables and code have
lines that are alike, and go on.
"""

from __future__ import annotations

TEXT, REASONING, INPUT = 2048, 4096, 8192
"""Characters that one piece of text fills, repeated, when a reply goes in circles: in its text, in its reasoning, in
the input of a native call. An input is of no use when it is cut, and may be a file of noughts: it has most room."""
ROUNDS = 4
"""As often at least the piece stands in them."""
EVERY = 512
"""Characters from one look at that to the next: so it is seen at the same place however the stream comes in pieces."""


class Circles:
    """Feed pieces of a text, get what of them comes before a circle. `seen`: there was one, and nothing is let through.

    `most`: as many characters as a circle fills before it is one.
    """

    def __init__(self, most: int = TEXT) -> None:
        self.seen = False
        self._most = most
        self._passed = 0
        self._end = ""

    def straight(self, text: str) -> str:
        """The text up to where a circle is seen."""
        if self.seen:
            return ""
        at = 0
        while at < len(text):
            piece = text[at : at + EVERY - self._passed % EVERY]
            at += len(piece)
            self._passed += len(piece)
            self._end = (self._end + piece)[-self._most :]
            if self._passed % EVERY == 0 and self._circles():
                self.seen = True
                return text[:at]
        return text

    def _circles(self) -> bool:
        """Is the end one piece of text, repeated?"""
        text, longest = self._end, self._most // ROUNDS
        if len(text) < self._most:
            return False
        again = text.find(text[:longest], 1)
        return 0 < again <= longest and text[again:] == text[: len(text) - again]
