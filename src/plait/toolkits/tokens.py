"""Cuts an arithmetic expression into tokens, and settles which commas belong to numbers.

A comma with three digits behind it may group thousands or part two arguments. Outside a function's
brackets it groups. Inside, the number of arguments that the function takes decides: `sqrt(1,234)` is of
1234. Where both readings are possible, commas part arguments if all of them are written alike and the
function takes any number (`max(100,200)`); else it is refused (`max(1,200, 300)`, `round(1,234)`).
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal, TypeAlias

from msgspec import Struct

from plait.toolkits.functions import CONSTANTS, FUNCTIONS, Function, Number

Kind: TypeAlias = Literal["number", "name", "operator", "open", "close", "comma", "end"]

MAX_EXPONENT = 4000

_ALIKE = str.maketrans(
    {"×": "*", "·": "*", "∙": "*", "⋅": "*", "✕": "*", "∗": "*", "÷": "/", "∕": "/", "⁄": "/"}
    | dict.fromkeys("−–—‒", "-")
    | {"，": ",", "（": "(", "）": ")", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'"}
)
"""Characters that are written for others, one for one, so that positions stay."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>(?:(?:[mM]ath|np|numpy)\.)?[^\W\d_²³]+\d*|√|°)"
    r"|(?P<operator>\*\*|//|[-+*/%^!=²³])"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)|(?P<money>[$€£¥₹]))"
)
_GROUP = re.compile(r"\d{3}(?:\.\d*)?(?:[eE][+-]?\d+)?")
_WORDS = {"√": "sqrt", "π": "pi", "°": "deg", "τ": "tau", "times": "*", "plus": "+", "minus": "-"}
_MONEY = {"usd", "eur", "gbp", "dollar", "dollars", "euro", "euros"}
_OPERATOR_WORDS = {"of": "*", "x": "*", "mod": "%mod"}
WORDS = frozenset({*_WORDS, *_MONEY, *_OPERATOR_WORDS, "math", "np", "numpy"})
"""Words that are read in an expression, beside functions and constants."""


class Unclear(Exception):
    """An expression that can't be read. `at` is the character where, counted from 0."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class Token(Struct, frozen=True):
    """A piece of an expression: its kind, its text in plain characters, where it begins and ends."""

    kind: Kind
    text: str
    at: int
    end: int


def tokens_of(text: str, begin: int, end: int) -> list[Token]:
    """The tokens of `text[begin:end]`, ended by an `end` token. Raises `Unclear`."""
    plain = text.translate(_ALIKE)
    found: list[Token] = []
    at = begin
    while at < end:
        match = _TOKEN.match(plain, at, end)
        if match is None:
            rest = plain[at:end].lstrip()
            if not rest:
                break
            raise Unclear(f"{rest[0]!r} means nothing here", end - len(rest))
        at = match.end()
        kind, word, start = (
            str(match.lastgroup),
            match[match.lastgroup or 0],
            match.start(match.lastgroup or 0),
        )
        if kind == "name":
            found.extend(_named(word, start, found))
        elif kind != "money":
            found.append(Token(kind, word, start, at))  # type: ignore[arg-type]
    found.append(Token("end", "", end, end))
    return _grouped(found)


def ends_operand(token: Token) -> bool:
    """Can an operator stand behind it?"""
    return token.kind in ("number", "close", "name") or token.text in ("!", "%", "²", "³")


def _named(word: str, start: int, before: list[Token]) -> list[Token]:
    end = start + len(word)
    module, _, name = word.lower().rpartition(".")
    name = "math.log" if module and name == "log" else _WORDS.get(name, name)  # Python's log is the natural one
    if name in _MONEY:
        return []
    if before and ends_operand(before[-1]):
        if name in _OPERATOR_WORDS:
            return [Token("operator", _OPERATOR_WORDS[name], start, end)]
        if name[0] == "x" and name[1:].isdigit():  # 5x3, written without spaces
            digits = Token("number", name[1:], start + 1, end)
            return [Token("operator", "*", start, start + 1), digits]
    if name in ("+", "-", "*"):
        return [Token("operator", name, start, end)]
    tail = name.rstrip("0123456789")
    if tail != name and name not in FUNCTIONS and tail in CONSTANTS:
        raise Unclear(f"write {tail}*{name[len(tail) :]} for {word!r}", start)
    return [Token("name", name, start, end)]


def _grouped(found: list[Token]) -> list[Token]:
    """The tokens with thousands put together."""
    if not any(token.kind == "comma" for token in found):
        return found
    joined: set[int] = set()  # commas that belong to a number, by index
    commas: list[list[int]] = [[]]  # of the brackets that are open, innermost last
    openers: list[int] = [-1]
    for i, token in enumerate(found):
        if token.kind == "open":
            commas.append([])
            openers.append(i)
        elif token.kind == "comma":
            commas[-1].append(i)
        elif token.kind in ("close", "end") and len(commas) > (1 if token.kind == "close" else 0):
            joined |= _joined(found, openers.pop(), commas.pop())
            if token.kind == "end":
                break
    out: list[Token] = []
    i = 0
    while i < len(found):
        token = found[i]
        while i + 1 in joined:
            last = found[i + 2]
            token = Token("number", token.text + last.text, token.at, last.end)
            i += 2
        out.append(token)
        i += 1
    return out


def _joined(found: list[Token], opener: int, commas: list[int]) -> set[int]:
    """Which of one bracket's own commas group thousands."""
    groups: set[int] = set()
    for i in commas:
        left, comma, right = found[i - 1] if i else found[i], found[i], found[i + 1]
        close = left.end == comma.at and right.at == comma.end
        if not close or left.kind != "number" or not _GROUP.fullmatch(right.text):
            continue
        continues = i - 2 in groups and left.text.isdigit() and len(left.text) == 3
        if continues or (i - 2 not in groups and left.text.isdigit() and len(left.text) <= 3):
            groups.add(i)
    if not groups:
        return groups
    if opener > 1 and found[opener - 1].kind == "open":  # max([1, 2]) is max(1, 2)
        opener -= 1
    before = found[opener - 1] if opener > 0 else None
    function = FUNCTIONS.get(before.text) if before is not None and before.kind == "name" else None
    return groups if function is None else _by_count(found, function, commas, groups)


def _by_count(found: list[Token], function: Function, commas: list[int], groups: set[int]) -> set[int]:
    apart, together = len(commas) + 1, len(commas) + 1 - len(groups)
    if not function.takes(apart):
        return groups
    if not function.takes(together):
        return set()
    if len(commas) == len(groups) and function.most is None:
        return set()
    raise Unclear(
        "this comma may group thousands or part arguments: write the numbers without thousands separators",
        found[min(groups)].at,
    )


def value_of(token: Token) -> Number:
    """The exact value of a number's token. Raises `Unclear` when it is out of bounds."""
    text = token.text.replace("_", "")
    mantissa, _, exponent = text.lower().partition("e")
    if not exponent and text.isdigit():
        return int(text)
    value = Fraction(mantissa.rstrip("."))
    if exponent:
        if len(exponent) > 8 or abs(int(exponent)) > MAX_EXPONENT:
            raise Unclear(f"the exponent is beyond {MAX_EXPONENT:,}", token.at)
        value *= Fraction(10) ** int(exponent)
    return value.numerator if value.denominator == 1 else value
