"""Splits a JSON turn into thought, action and answer while it streams in.

The splitter reads the object character by character. The thought's text is decoded and returned as it arrives. The call
is returned as the tool's name, a blank, and the input as written. If the tool is `final_answer`, its input is the
answer: text decoded, other values as written. An input before the tool's name is held back until the name arrives.
"""

from __future__ import annotations

from plait.core import Piece, PieceKind

_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_FINAL = "final_answer"


class JsonSplitter:
    """A splitter for JSON turns. It skips text around the object; only the first object counts."""

    def __init__(self) -> None:
        self._depth = 0
        self._string = False  # inside a string
        self._escape = ""  # an escape that is incomplete
        self._high = ""  # the first half of a surrogate pair
        self._key: str | None = None  # the key whose value follows, at depth 1
        self._word = ""  # the string being read as key or tool's name
        self._wait = ""  # input that waits for the tool's name
        self._tool: str | None = None
        self._done = False
        self._out: list[tuple[PieceKind, str]] = []

    def feed(self, text: str) -> list[Piece]:
        for char in text:
            if self._done:
                break
            self._step(char)
        return self._flush()

    def close(self, acts: bool = False) -> list[Piece]:
        if not self._done and self._wait.strip():
            self._out.append(("action", self._wait.strip()))
        self._done = True
        return self._flush()

    def _flush(self) -> list[Piece]:
        joined: list[Piece] = []
        for kind, text in self._out:
            if joined and joined[-1].kind == kind:
                joined[-1] = Piece(kind, joined[-1].text + text)
            elif text:
                joined.append(Piece(kind, text))
        self._out.clear()
        return joined

    def _step(self, char: str) -> None:
        if self._depth == 0:
            self._depth = 1 if char == "{" else 0
            return
        if self._string:
            self._in_string(char)
            return
        if char == '"':
            self._string = True
            if self._depth == 1:
                self._word = ""
            self._raw(char)
        elif char == ":" and self._depth == 1 and self._key is None:
            self._key = self._word
        elif char == "," and self._depth == 1:
            self._key = None
        elif char in "{[":
            self._depth += 1
            self._raw(char)
        elif char in "}]":
            self._depth -= 1
            if self._depth == 0:
                self._end()
            else:
                self._raw(char)
        elif self._depth > 1 or not char.isspace():
            self._raw(char)

    def _end(self) -> None:
        self._done = True
        if self._wait.strip():  # the object named no tool
            self._out.append(("action", self._wait.strip()))
            self._wait = ""

    def _in_string(self, char: str) -> None:
        plain = self._decode(char)
        if plain is None:  # the quote that closes
            self._string = False
            self._raw('"')
            if self._depth == 1 and self._key == "tool":
                self._named(self._word)
            return
        if self._depth == 1 and self._key == "thought":
            if plain:
                self._out.append(("thought", plain))
        elif self._depth == 1 and self._key in (None, "tool"):
            self._word += plain
        elif self._depth == 1 and self._key == "tool_input" and self._tool == _FINAL:
            if plain:
                self._out.append(("answer", plain))
        else:
            self._raw(char)

    def _decode(self, char: str) -> str | None:
        """Return the text of a character in a string: "" inside an escape, None at the string's end."""
        if not self._escape:
            if char == '"':
                return None
            if char == "\\":
                self._escape = char
                return ""
            half, self._high = self._high, ""
            return ("�" if half else "") + char
        self._escape += char
        if self._escape[1] != "u":
            half, self._high = self._high, ""
            self._escape = ""
            return ("�" if half else "") + _SIMPLE.get(char, char)
        if len(self._escape) < 6:
            return ""
        digits, self._escape = self._escape[2:], ""
        try:
            code = int(digits, 16)
        except ValueError:
            return "�"
        if self._high and 0xDC00 <= code < 0xE000:
            pair = 0x10000 + ((ord(self._high) - 0xD800) << 10) + (code - 0xDC00)
            self._high = ""
            return chr(pair)
        half, self._high = self._high, ""
        if 0xD800 <= code < 0xDC00:
            self._high = chr(code)
            return "�" if half else ""
        return ("�" if half else "") + ("�" if 0xDC00 <= code < 0xE000 else chr(code))

    def _raw(self, char: str) -> None:
        """Add a character of the input as written, if it belongs to the input."""
        if self._key != "tool_input":
            return
        if self._tool is None:
            self._wait += char
        elif self._tool == _FINAL:
            # The quotes around a text answer do not belong to it.
            if not (self._depth == 1 and char == '"'):
                self._out.append(("answer", char))
        else:
            self._out.append(("action", char))

    def _named(self, name: str) -> None:
        self._tool = name
        wait, self._wait = self._wait, ""
        if name == _FINAL:
            self._out += [("answer", wait)] if wait else []
        else:
            self._out.append(("action", f"{name} {wait}"))
