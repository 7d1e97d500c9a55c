r"""Reads JSON as models write it: strictly first, then with named repairs.

`read_value` reads one value at a place in a text. `objects` finds the objects in prose. The repairs are: curly or
single quotes as delimiters, unquoted keys, trailing commas, `True`/`False`/`None`, line breaks and tabs inside strings,
backslashes that escape nothing, comments, crossed brackets. Inside brackets, tuples, numbers and strings are read as in
Python: `(1, 2)`, `50_000`, `1/6`, `r'a'`. A value that is never closed is not repaired: what it lacks is unknown, and
running a tool on half an input is worse than asking again. `is_unclosed` recognises such a text.

If a string has an escape that JSON does not know, as in `C:\Users\new`, the model did not escape: all backslashes of
that string are literal. If the string has escapes as well (a line break, a backslash, a character), it is refused.

Time is linear in the text: strings are matched by possessive patterns, and a search through prose has a fixed budget of
looks at each character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite
from typing import Any

from msgspec import Struct

MAX_DEPTH = 64
"""Maximum depth of nesting."""

_LOOKS = 8
"""Maximum number of looks at a character, on average, before a search through prose ends."""

PER_OBJECT = 40
"""The number of looks that an object costs beside those at its characters."""

_TRIES = 300
"""Maximum number of texts that only begin like an object before a search through prose ends."""

_BLANK = re.compile(r"(?:\s++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z)|/\Z|#[^\n]*+)*+")
_DOUBLE = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.S)
# A single or curly quote closes only where a value or a key may end, so that `'it's'` keeps its apostrophe.
_ENDS = r"(?!\s*+(?:[,:}\]]|\)\s*+(?:[,})\]]|\Z)|```|\#\s|\Z))"
_SINGLE = re.compile(rf"['‘’](?!'')((?:[^'‘’\\]++|\\.|['‘’]{_ENDS})*+)['‘’]", re.S)
_CURLY = re.compile(rf'[“”„]((?:[^“”"\\]++|\\.|[“”"]{_ENDS})*+)[“”"]', re.S)
# Strings of Gemma 4 and FunctionGemma.
_MARKED = re.compile(r"""<\|"\|>((?:[^<]++|<(?!\|"\|>))*+)<\|"\|>|<escape>((?:[^<]++|<(?!escape>))*+)<escape>""")
PREFIXES = "rRbBuUfF"  # of strings in Python
# A string of Python: a sign before it, its prefix, and its content in triple or single quotes.
_PYTHON_STRING = re.compile(
    rf"\s*+(\+?)\s*+([{PREFIXES}]{{0,2}})"
    r"""(?:"{3}((?:[^"\\]++|\\.|"(?!""(?!")))*+)"{3}|'{3}((?:[^'\\]++|\\.|'(?!''(?!')))*+)'{3}"""
    r"""|"(?!"")((?:[^"\\]++|\\.)*+)"|'(?!'')((?:[^'\\]++|\\.)*+)')""",
    re.S,
)
_BARE_QUOTE = re.compile(r'(\\.)|"', re.S)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?(?![\w.])", re.A)
_NUMERAL = r"[-+]?\s*+(?:(?:0|[1-9]\d*+(?:_\d++)*+)(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?"
_FACTOR = rf"{_NUMERAL}(?:\s*+\*\*\s*+{_NUMERAL})?+"
_CONSTANT = re.compile(rf"{_FACTOR}(?:\s*+[*/]\s*+{_FACTOR}){{0,8}}+(?![\w.])", re.A)
_HUGE = 2**128
"""Bound of the numbers in constant arithmetic."""
_HALF_NUMBER = re.compile(r"-?[\d._]*+(?:[eE][+-]?)?\Z", re.A)
_WORD = re.compile(r"[A-Za-z_]\w*+")
_HALF_KEY = re.compile(r"[A-Za-z_]\w*+\s*+\Z")
_ONE_COMMENT = re.compile(r"[\[{][ \t]*+(?:#|//).*+")
_QUOTED = re.compile(r"['‘’“”„](?:[^'‘’“”\\]++|\\.)*+['‘’“”]", re.S)
_KEY = re.compile(r"([A-Za-z_]\w*+)\s*+(?=:)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_LINE_END = re.compile(r"\\[nrt](?=\s|\\|\Z)")
_MAYBE_OBJECT = re.compile(r"""\{(?=\s*+(?:["'‘’“”„}/#]|[A-Za-z_]\w*+\s*+:))""")
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
BARE_SIGNS = "'‘’“”\n:\uff1a`"
"""Signs behind a backslash that mean the bare sign: Plait shows data with such escapes, and models copy them."""
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_PYTHON: dict[str, Any] = {"True": True, "False": False, "None": None}

QUOTES = "single or curly quotes as delimiters"
BARE_KEY = "a key without quotes"
COMMA = "a trailing comma"
LITERAL = "a Python literal (True, False or None)"
RAW_BREAK = "a line break or control character inside a string"
BACKSLASH = "a backslash that escapes nothing"
COMMENT = "a comment"
CROSSED = "crossed brackets"
PYTHON = "a tuple, a number or a string written as in Python"
HALF = "half of a surrogate pair"
TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"
MIXED = r"a string has both escapes and single backslashes: write each backslash of a text as \\"
TOO_MANY = "too many texts look like an object and are not one"


class NotJson(ValueError):
    """A text has no JSON value at a place, even with repairs. `position` is where reading stopped in the text, `reach`
    the last index that was looked at. `unclosed`: the text, or its fence, ends inside the value."""

    def __init__(self, what: str, position: int, reach: int = 0, *, unclosed: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.position = position
        self.reach = max(position, reach)
        self.unclosed = unclosed

    def where(self, text: str) -> str:
        """Return the place: line and column, both from 1."""
        line = text.count("\n", 0, self.position) + 1
        column = self.position - (text.rfind("\n", 0, self.position) + 1) + 1
        return f"line {line}, column {column}"


class Found(Struct, frozen=True):
    """A value, its place text[start:end], and the names of its repairs, each once."""

    value: Any
    start: int
    end: int
    repairs: tuple[str, ...] = ()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def read_float(written: str) -> float | str:
    """Return the number of a JSON text, or the text itself if a float changes its value: a parameter or a field that
    takes a Decimal gets all digits, and one that takes a float reads the text as a number."""
    value = float(written)
    return value if isfinite(value) and Decimal(repr(value)) == Decimal(written) else written


_STRICT = json.JSONDecoder(parse_float=read_float, parse_constant=_refuse)


def read_value(text: str, start: int = 0) -> Found:
    """Read the JSON value that begins at `start`, after blanks; ignore the text after it. Raises only `NotJson`."""
    begin = _BLANK.match(text, start).end()  # type: ignore[union-attr]  # it matches the empty string too
    try:
        value, end = _STRICT.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return _Reader(text).read(begin)
    # `12 o'clock` and `1.2.3` begin with a number, but are not numbers.
    if isinstance(value, (int, float)) and end < len(text) and (text[end].isalnum() or text[end] in "._"):
        raise NotJson("text runs on after a number", end)
    if end - begin > 2 * MAX_DEPTH and _too_deep(value):
        raise NotJson(TOO_DEEP, begin)
    if text.isascii() and "\\u" not in text[begin:end]:  # not in all of it: that would take quadratic time
        return Found(value, begin, end)
    whole, halved = without_halves(value)
    return Found(whole, begin, end, (HALF,) if halved else ())


def read_python_text(text: str, at: int = 0, *, joined: bool = False) -> tuple[str, int] | None:
    """Read a string with a prefix such as `r`, or in triple quotes; if `joined`, also parts that Python joins. Return
    it and its end; None for every other string, and for one with holes."""
    parts, python = list[str](), False
    while (part := _PYTHON_STRING.match(text, at)) is not None and (joined if parts else not part[1]):
        kind, prefix, at = part.lastindex or 0, part[2].lower(), part.end()
        if "f" in prefix and "{" in part[kind]:
            return None
        python |= bool(parts or prefix) or kind < 5
        quoted = _BARE_QUOTE.sub(lambda sign: sign[1] or '\\"', part[kind])
        parts.append(part[kind] if "r" in prefix else without_halves(_Reader("").decode(quoted, '"'))[0])
    return ("".join(parts), at) if python else None


def is_unclosed(text: str) -> bool:
    """Return whether a text is only the beginning of a JSON object, list or string, or of strings between commas."""
    text = text.strip()
    if text[:1] not in ("{", "[", '"') or _ONE_COMMENT.fullmatch(text):
        return False
    if text.startswith('"""'):
        return read_python_text(text) is None
    for whole in (text, f"[{text}\n]") if text[0] == '"' and "```" not in text else (text,):
        try:
            read_value(whole)
        except NotJson as why:
            # `['90s' music]` is a text; in a list of Python that is cut, no quote follows the last one that opens.
            quoted = text[0] == "[" and _QUOTED.match(text, why.position)
            if why.unclosed and not quoted:
                return True
    return False


def values(text: str, opening: re.Pattern[str]) -> Iterator[tuple[int, Found | NotJson]]:
    """Read the JSON value at each place where `opening` matches, from first to last, none inside another.

    Yields the place, and the value or why it cannot be read. After too many texts that only begin like a value, the
    search ends with the error `TOO_MANY`, so that it stays linear.
    """
    budget, tries, at = _LOOKS * (len(text) + 64), _TRIES, 0
    while (match := opening.search(text, at)) is not None:
        at = match.start()
        try:
            found = read_value(text, at)
        except NotJson as error:
            budget -= max(error.reach - at, 1)
            tries -= 1
            yield at, error
            if budget < 0 or tries < 0:
                yield at, NotJson(TOO_MANY, at)
                return
            at = next_start(text, at, error)
            continue
        yield at, found
        at, budget = found.end, budget - PER_OBJECT
        if budget < 0:
            yield at, NotJson(TOO_MANY, at)
            return


def next_start(text: str, at: int, error: NotJson) -> int:
    """Return where the next value may begin, if there is none at `at`. No value holds one that is too deep itself."""
    begin = at + 1
    while error.what == TOO_DEEP and error.position > at:
        at = error.position
        try:
            read_value(text, at)
        except NotJson as inner:
            begin, error = (at, inner) if inner.what == TOO_DEEP else (begin, inner)
        else:
            break
    return begin


def objects(text: str) -> Iterator[Found]:
    """Find the JSON objects in a text; skip prose between them. Raises `NotJson` at an object that is never closed, as
    what follows belongs to it."""
    for _, found in values(text, _MAYBE_OBJECT):
        if isinstance(found, Found):
            yield found
        elif found.unclosed:
            raise found


def without_halves(value: Any) -> tuple[Any, bool]:
    """Replace lone surrogates, which UTF-8 cannot hold, in a value; also return whether there were any."""
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


def _compute(text: str, at: int) -> float:
    """Return the value of a product of constants. Raises `NotJson` if it is huge, has none, or may be a date."""
    _, *parts = re.split(r"([*/])", "*" + "".join(text.replace("**", "^").split()))
    value: float = 1
    try:
        for sign, factor in zip(parts[::2], parts[1::2], strict=True):
            base, _, exponent = factor.lstrip("+-").partition("^")
            number, power = (float(each) if set(each) & set(".eE") else int(each) for each in (base, exponent or "1"))
            if abs(number) >= _HUGE or abs(power) >= 128 or parts.count("/") > 1:
                raise OverflowError
            number = -(number**power) if factor[0] == "-" else number**power
            value = value * number if sign == "*" else value / number
            if not abs(value) < _HUGE:
                raise OverflowError
    except (ValueError, ArithmeticError):
        raise NotJson("the arithmetic has no value that can be stated (a date needs quotes)", at) from None
    return value


class _Reader:
    """Reads one text leniently, by recursive descent, and collects the repairs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.repairs: dict[str, None] = {}

    def read(self, start: int) -> Found:
        value, end = self.read_value(start, 0)
        whole, halved = without_halves(value)
        if halved:
            self.note_repair(HALF)
        return Found(whole, start, end, tuple(self.repairs))

    def note_repair(self, repair: str) -> None:
        self.repairs[repair] = None

    def skip_blank(self, at: int) -> int:
        end = _BLANK.match(self.text, at).end()  # type: ignore[union-attr]
        if end > at and not self.text[at:end].isspace():
            self.note_repair(COMMENT)
        return end

    def is_over(self, at: int) -> bool:
        """Return whether the text ends here, or its fence closes."""
        return at >= len(self.text) or self.text.startswith("```", at)

    def read_value(self, at: int, depth: int) -> tuple[Any, int]:
        if self.is_over(at):
            raise NotJson("a value is missing", at, unclosed=True)
        if depth > MAX_DEPTH:
            opened, closed = (sum(map(self.text.count, signs)) for signs in ("[{", "]}"))
            raise NotJson(TOO_DEEP, at, unclosed=opened > closed)
        char = self.text[at]
        if char == "(" and depth:
            return self.read_tuple(at, depth)
        if char == "{":
            return self.read_object(at, depth)
        if char == "[":
            return self.read_array(at, depth)
        if depth and (python := read_python_text(self.text, at)) is not None:
            self.note_repair(PYTHON)
            return python
        if char in "\"'‘’“”„":
            return self.read_string(at)
        number, constant = _NUMBER.match(self.text, at), _CONSTANT.match(self.text, at) if depth else None
        if constant is not None and (number is None or number.end() < constant.end()):
            self.note_repair(PYTHON)
            return _compute(constant[0], at), constant.end()
        if number is not None:
            try:
                return json.loads(number[0], parse_float=read_float), number.end()
            except ValueError:
                raise NotJson("a number has too many digits", at) from None
        if (marked := _MARKED.match(self.text, at)) is not None:
            self.note_repair(QUOTES)
            return marked[1] or marked[2] or "", marked.end()
        if (word := _WORD.match(self.text, at)) is not None:
            if word[0] in _CONSTANTS:
                return _CONSTANTS[word[0]], word.end()
            if word[0] in _PYTHON:
                self.note_repair(LITERAL)
                return _PYTHON[word[0]], word.end()
            half = word.end() == len(self.text) and any(one.startswith(word[0]) for one in _CONSTANTS | _PYTHON)
            what = f"the word {word[0][:30]!r} stands where a value should (text needs quotes)"
            raise NotJson(what, at, unclosed=half)
        half = _HALF_NUMBER.match(self.text, at) is not None
        raise NotJson(f"{char!r} stands where a value should", at, unclosed=half)

    def read_string(self, at: int) -> tuple[str, int]:
        quote = self.text[at]
        pattern = _DOUBLE if quote == '"' else _SINGLE if quote in "'‘’" else _CURLY
        if (match := pattern.match(self.text, at)) is None:
            raise NotJson("a string is not closed", at, len(self.text), unclosed=True)
        if quote != '"':
            self.note_repair(QUOTES)
        if _CONTROL.search(match[1]):
            self.note_repair(RAW_BREAK)
        return self.unescape(match[1], quote, at), match.end()

    def unescape(self, raw: str, quote: str, at: int) -> str:
        """Return the text of a string that begins at `at`. Raises `NotJson` if its backslashes are ambiguous."""
        if "\\" not in raw:
            return raw
        escapes: list[str] = _ESCAPE.findall(raw)
        if any(len(each) == 1 and each not in _SIMPLE and each not in BARE_SIGNS for each in escapes):
            is_share = raw.startswith("\\\\")  # a network path
            if "\\" not in escapes[is_share:]:
                if _LINE_END.search(raw) or any(len(each) > 1 for each in escapes):
                    raise NotJson(MIXED, at)
                self.note_repair(BACKSLASH)
                return raw.replace(f"\\{quote}", quote)
            if any(each[0] in "bfnrtu" for each in escapes if each in _SIMPLE or len(each) > 1):
                raise NotJson(MIXED, at)
        return self.decode(raw, quote)

    def decode(self, raw: str, quote: str) -> str:
        """Return a text with its escapes decoded; a backslash that escapes nothing stays."""

        def one(match: re.Match[str]) -> str:
            what = match[1]
            if len(what) == 5:
                return chr(int(what[1:], 16))
            if what in _SIMPLE:
                return _SIMPLE[what]
            if what in "'‘’“”" and quote != '"':
                return what
            self.note_repair(BACKSLASH)
            return what if what in BARE_SIGNS else match[0]

        text = _ESCAPE.sub(one, raw)
        if _SURROGATE.search(text):  # a pair written as two escapes is one character
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text

    def close_bracket(self, at: int, mine: str) -> int | None:
        """Return the index after the closing bracket; None if the bracket is not closed here."""
        if self.is_over(at):
            raise NotJson("it ends before its last bracket", at, unclosed=True)
        char = self.text[at]
        if char == mine:
            return at + 1
        if char in "]}":  # the outer bracket closes, and this one with it
            self.note_repair(CROSSED)
            return at
        return None

    def read_array(self, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self.skip_blank(at + 1)
        while True:
            if (end := self.close_bracket(at, "]")) is not None:
                return items, end
            item, at = self.read_value(at, depth + 1)
            items.append(item)
            at = self.skip_comma(at, "]")

    def read_tuple(self, at: int, depth: int) -> tuple[Any, int]:
        """Read a tuple as a list, and one value in parentheses as that value."""
        items, comma, at = [], True, self.skip_blank(at + 1)
        while comma and self.text[at : at + 1] != ")":
            item, at = self.read_value(at, depth + 1)
            items.append(item)
            at = self.skip_blank(at)
            comma = self.text[at : at + 1] == ","
            at = self.skip_blank(at + 1) if comma else at
        if self.text[at : at + 1] != ")":
            raise NotJson("a parenthesis is not closed where it should be", at, unclosed=self.is_over(at))
        self.note_repair(PYTHON)
        return (items if comma or len(items) > 1 else items[0]), at + 1

    def read_object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        fields: dict[str, Any] = {}
        at = self.skip_blank(at + 1)
        while True:
            if (end := self.close_bracket(at, "}")) is not None:
                return fields, end
            key, at = self.read_key(at)
            at = self.skip_blank(at)
            if self.is_over(at) or self.text[at] != ":":
                raise NotJson(f"a colon is missing after the key {key[:30]!r}", at, unclosed=self.is_over(at))
            fields[key], at = self.read_value(self.skip_blank(at + 1), depth + 1)
            at = self.skip_comma(at, "}")

    def read_key(self, at: int) -> tuple[str, int]:
        if self.text[at] in "\"'‘’“”„":
            return self.read_string(at)
        if (bare := _KEY.match(self.text, at)) is not None:
            self.note_repair(BARE_KEY)
            return bare[1], bare.end()
        half = _HALF_KEY.match(self.text, at) is not None
        raise NotJson(f"{self.text[at]!r} stands where a key in quotes should", at, unclosed=half)

    def skip_comma(self, at: int, mine: str) -> int:
        at = self.skip_blank(at)
        if self.is_over(at) or self.text[at] in "]}":
            return at
        if self.text[at] != ",":
            raise NotJson(f"{self.text[at]!r} stands where a comma or {mine!r} should", at)
        at = self.skip_blank(at + 1)
        if self.is_over(at) or self.text[at] in "]}":
            self.note_repair(COMMA)
        return at
