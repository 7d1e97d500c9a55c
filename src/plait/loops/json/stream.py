"""Shows the parts of a JSON turn while it streams in.

The text of the thought is decoded and shown as it arrives. A call is shown as the tool's name, a blank, and the input
as written. If the tool is `final_answer`, its input is the answer: text decoded, other values as written. An input that
is written before the tool's name is shown at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from plait.core.loose_json import without_halves
from plait.loops.format import Stream, Turn, parts_of

_OUTSIDE = re.compile(r"[\"{}\[\]:,]|[^\"{}\[\]:,]++")
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_INSIDE = re.compile(rf"\"|[^\"\\]++|{_PAIR}|\\u[0-9a-fA-F]{{4}}|\\.?", re.S)
_HALF = re.compile(r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z")
"""An escape that may be incomplete."""


class JsonStream(Stream[Turn]):
    """A JSON turn that streams in. Text around the object is passed over; only the first object counts.

    `final` is the tool that takes the answer; the others are the keys of the object.
    """

    def __init__(self, read: Callable[[str], Turn], final: str, thought: str, tool: str, given: str) -> None:
        super().__init__(read, parts_of)
        self._final, self._thought, self._tool, self._given = final, thought, tool, given
        self._depth = 0
        self._in_string = self._over = False
        self._half = ""
        self._key: str | None = None  # the key whose value follows, in the turn's object
        self._word = ""  # the string that is read as a key or the tool's name
        self._named: str | None = None  # the tool's name

    def split(self, text: str, *, last: bool) -> None:
        text, at, self._half = self._half + text, 0, ""
        while at < len(text) and not self._over:
            if not self._depth:
                at = (text.find("{", at) + 1) or len(text)
                self._depth = int(text[at - 1] == "{")
            elif self._in_string and not last and _HALF.match(text, at):
                self._half = text[at:]
                return
            else:
                token = (_INSIDE if self._in_string else _OUTSIDE).match(text, at)
                assert token is not None
                at = token.end()
                (self._take_string if self._in_string else self._take_sign)(token[0])

    def _take_sign(self, token: str) -> None:
        if token == '"':
            self._in_string, self._word = True, ""
        elif token == ":" and self._depth == 1 and self._key is None:
            self._key = self._word
            return
        elif token == "," and self._depth == 1:
            self._key = None
        elif token in "{[":
            self._depth += 1
        elif token in "}]":
            self._depth -= 1
            self._over = not self._depth
        elif self._depth == 1:
            token = "".join(token.split())
        if not self._over:
            self._show_given(token)

    def _take_string(self, token: str) -> None:
        """Take a part of a string, or the quote that ends it."""
        self._in_string = token != '"'
        if self._depth > 1 or not self._in_string or (self._key == self._given and self._named != self._final):
            self._show_given(token)
            if not self._in_string and self._depth == 1 and self._key == self._tool:
                self._named = self._word
                self.show("action", f"{self._word} " if self._word != self._final else "")
            return
        try:
            plain = without_halves(json.loads(f'"{token}"', strict=False))[0]
        except ValueError:
            plain = token[1:]
        if self._key in (self._thought, self._given):
            self.show("thought" if self._key == self._thought else "answer", plain)
        else:
            self._word += plain

    def _show_given(self, token: str) -> None:
        """Show a part of the input as it is written; the quotes around a text answer do not belong to it."""
        if self._key == self._given and self._named is not None:
            is_answer = self._named == self._final
            if not (is_answer and self._depth == 1 and token == '"'):
                self.show("answer" if is_answer else "action", token)
