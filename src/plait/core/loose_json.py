"""JSON as models write it: strict first, then with repairs, each of them named.

`read_value` reads one value at a place in a text; `objects` finds the objects in prose. What is repaired:
curly or single quotes as delimiters, unquoted keys, trailing commas, `True`/`False`/`None`, line breaks
and tabs inside strings, backslashes that escape nothing, comments, brackets that are missing or crossed.
A string without its end is not repaired: what it should have held is unknown, and running a tool on half
an input is worse than asking again.

Time is linear in the text: strings are matched by possessive patterns, and a search through prose has
a fixed budget of looks at each character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

MAX_DEPTH = 64
"""Deepest nesting that is read."""

_LOOKS = 8
"""How many times, on average, a search through prose may look at a character before it ends."""

_TRIES = 300
"""How many things that begin like an object and are none a search through prose passes over."""

_BLANK = re.compile(r"(?:\s++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z)|#[^\n]*+)*+")
_DOUBLE = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.S)
# A single or curly quote closes only where a value or a key may end, so that `'it's'` keeps its apostrophe.
_SINGLE = re.compile(r"['‘’]((?:[^'‘’\\]++|\\.|['‘’](?!\s*+(?:[,:}\]]|```|\Z)))*+)['‘’]", re.S)
_CURLY = re.compile(r'[“”„]((?:[^“”"\\]++|\\.|[“”"](?!\s*+(?:[,:}\]]|```|\Z)))*+)[“”"]', re.S)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?(?![\w.])", re.A)
_WORD = re.compile(r"[A-Za-z_]\w*+")
_KEY = re.compile(r"([A-Za-z_]\w*+)\s*+(?=:)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_MAYBE_OBJECT = re.compile(r"""\{(?=\s*+(?:["'‘’“”„}/#]|[A-Za-z_]\w*+\s*+:))""")
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_PYTHON: dict[str, Any] = {"True": True, "False": False, "None": None}

QUOTES = "single or curly quotes as delimiters"
BARE_KEY = "a key without quotes"
COMMA = "a trailing comma"
LITERAL = "a Python literal (True, False or None)"
RAW_BREAK = "a line break or control character inside a string"
BACKSLASH = "a backslash that escapes nothing"
COMMENT = "a comment"
MISSING = "a closing bracket missing at the end"
CROSSED = "crossed brackets"
HALF = "half of a surrogate pair"


class NotJson(ValueError):
    """Here is no JSON value, not even with repairs.

    `position` is the index in the text where reading stuck, `reach` how far it had to look to know.
    """

    def __init__(self, what: str, position: int, reach: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.position = position
        self.reach = max(position, reach)

    def where(self, text: str) -> str:
        """The place in words: line and column, both from 1."""
        line = text.count("\n", 0, self.position) + 1
        column = self.position - (text.rfind("\n", 0, self.position) + 1) + 1
        return f"line {line}, column {column}"


class Found(Struct, frozen=True):
    """A value and where it stands: text[start:end]. `repairs` names what was repaired, each kind once."""

    value: Any
    start: int
    end: int
    repairs: tuple[str, ...] = ()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_STRICT = json.JSONDecoder(parse_constant=_refuse)


def read_value(text: str, start: int = 0) -> Found:
    """The JSON value that begins at `start` (blanks before it are skipped); text after it is left alone.

    Raises `NotJson`, and nothing else, whatever the text.
    """
    begin = _BLANK.match(text, start).end()  # type: ignore[union-attr]  # it matches the empty string too
    try:
        value, end = _STRICT.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return _Reader(text).read(begin)
    # `12 o'clock` and `1.2.3` begin with a number and are none.
    if isinstance(value, (int, float)) and end < len(text) and (text[end].isalnum() or text[end] in "._"):
        raise NotJson("text runs on after a number", end)
    if _too_deep(value):
        raise NotJson(f"it is nested more than {MAX_DEPTH} deep", begin)
    whole, halved = without_halves(value)
    return Found(whole, begin, end, (HALF,) if halved else ())


def objects(text: str, start: int = 0, *, whole: bool = False) -> Iterator[Found]:
    """The JSON objects in a text, first to last, none inside another; prose between them is passed over.

    After too many things that only begin like an object the search ends, so that it stays linear; with
    `whole`, it then raises `NotJson`, so that the caller knows that not all was looked at.
    """
    budget, tries = _LOOKS * (len(text) + 64), _TRIES
    at = start
    while (opening := _MAYBE_OBJECT.search(text, at)) is not None:
        at = opening.start()
        try:
            found = read_value(text, at)
        except NotJson as error:
            budget -= max(error.reach - at, 1)
            tries -= 1
            if budget < 0 or tries < 0:
                if whole:
                    raise NotJson("there is too much that looks like an object and is none", at) from None
                return
            at += 1
            continue
        yield found
        at = found.end


def find_object(text: str, start: int = 0) -> Found | None:
    """The first JSON object in a text, None where there is none."""
    return next(objects(text, start), None)


def without_halves(value: Any) -> tuple[Any, bool]:
    """The value with lone surrogates (which no UTF-8 text can hold) replaced, and whether there were any."""
    if isinstance(value, str):
        return (_SURROGATE.sub("�", value), True) if _SURROGATE.search(value) else (value, False)
    if isinstance(value, list):
        parts = [without_halves(item) for item in value]
        return ([part for part, _ in parts], True) if any(half for _, half in parts) else (value, False)
    if isinstance(value, dict):
        pairs = [(without_halves(key), without_halves(item)) for key, item in value.items()]
        if any(k[1] or v[1] for k, v in pairs):
            return {k[0]: v[0] for k, v in pairs}, True
    return value, False


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (list, dict))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


class _Reader:
    """The lenient reader: recursive descent over one text, collecting what it repaired."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.repairs: dict[str, None] = {}

    def read(self, start: int) -> Found:
        value, end = self.value(start, 0)
        whole, halved = without_halves(value)
        if halved:
            self.note(HALF)
        return Found(whole, start, end, tuple(self.repairs))

    def note(self, repair: str) -> None:
        self.repairs[repair] = None

    def blank(self, at: int) -> int:
        end = _BLANK.match(self.text, at).end()  # type: ignore[union-attr]
        if end > at and not self.text[at:end].isspace():
            self.note(COMMENT)
        return end

    def over(self, at: int) -> bool:
        """Nothing more comes: the text ends here, or its fence closes."""
        return at >= len(self.text) or self.text.startswith("```", at)

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        if self.over(at):
            raise NotJson("a value is missing", at)
        if depth > MAX_DEPTH:
            raise NotJson(f"it is nested more than {MAX_DEPTH} deep", at)
        char = self.text[at]
        if char == "{":
            return self.object(at, depth)
        if char == "[":
            return self.array(at, depth)
        if char in "\"'‘’“”„":
            return self.string(at)
        if (number := _NUMBER.match(self.text, at)) is not None:
            try:
                return json.loads(number[0]), number.end()
            except ValueError:
                raise NotJson("a number has too many digits", at) from None
        if (word := _WORD.match(self.text, at)) is not None:
            if word[0] in _CONSTANTS:
                return _CONSTANTS[word[0]], word.end()
            if word[0] in _PYTHON:
                self.note(LITERAL)
                return _PYTHON[word[0]], word.end()
            raise NotJson(f"the word {word[0][:30]!r} stands where a value should (text needs quotes)", at)
        raise NotJson(f"{char!r} stands where a value should", at)

    def string(self, at: int) -> tuple[str, int]:
        quote = self.text[at]
        pattern = _DOUBLE if quote == '"' else _SINGLE if quote in "'‘’" else _CURLY
        if (match := pattern.match(self.text, at)) is None:
            raise NotJson("a string is not closed", at, len(self.text))
        if quote != '"':
            self.note(QUOTES)
        if _CONTROL.search(match[1]):
            self.note(RAW_BREAK)
        return self.unescape(match[1], quote), match.end()

    def unescape(self, raw: str, quote: str) -> str:
        if "\\" not in raw:
            return raw

        def one(match: re.Match[str]) -> str:
            what = match[1]
            if len(what) == 5:
                return chr(int(what[1:], 16))
            if what in _SIMPLE:
                return _SIMPLE[what]
            if what in "'‘’“”" and quote != '"':
                return what
            self.note(BACKSLASH)
            # Data is shown escaped this way (see scan.py): a model that copies it means the bare sign.
            return what if what in "'\n:\uff1a`" else match[0]

        text = _ESCAPE.sub(one, raw)
        if _SURROGATE.search(text):  # a pair written as two escapes is one character
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text

    def close(self, at: int, mine: str) -> int | None:
        """Where reading goes on after this bracket, or None when it is not closed here."""
        if self.over(at):
            self.note(MISSING)
            return at
        char = self.text[at]
        if char == mine:
            return at + 1
        if char in "]}":  # the outer bracket closes: so does this one
            self.note(CROSSED)
            return at
        return None

    def array(self, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self.blank(at + 1)
        while True:
            if (end := self.close(at, "]")) is not None:
                return items, end
            item, at = self.value(at, depth + 1)
            items.append(item)
            at = self.comma(at, "]")

    def object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        fields: dict[str, Any] = {}
        at = self.blank(at + 1)
        while True:
            if (end := self.close(at, "}")) is not None:
                return fields, end
            key, at = self.key(at)
            at = self.blank(at)
            if self.over(at) or self.text[at] != ":":
                raise NotJson(f"a colon is missing after the key {key[:30]!r}", at)
            fields[key], at = self.value(self.blank(at + 1), depth + 1)
            at = self.comma(at, "}")

    def key(self, at: int) -> tuple[str, int]:
        if self.text[at] in "\"'‘’“”„":
            return self.string(at)
        if (bare := _KEY.match(self.text, at)) is not None:
            self.note(BARE_KEY)
            return bare[1], bare.end()
        raise NotJson(f"{self.text[at]!r} stands where a key in quotes should", at)

    def comma(self, at: int, mine: str) -> int:
        at = self.blank(at)
        if self.over(at) or self.text[at] in "]}":
            return at
        if self.text[at] != ",":
            raise NotJson(f"{self.text[at]!r} stands where a comma or {mine!r} should", at)
        at = self.blank(at + 1)
        if self.over(at) or self.text[at] in "]}":
            self.note(COMMA)
        return at
