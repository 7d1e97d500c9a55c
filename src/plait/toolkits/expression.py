"""Reads and computes an arithmetic expression: precedence climbing over tokens, no eval anywhere.

From loosest to tightest: `+ -`; `* / // %` and `of` and multiplication that is not written (`2(3+4)`,
`2pi`), all alike and from the left; the sign; `^` and `**`, from the right; `!`, `%` and `²` behind a number.

Percent: `%` with a number, a name or an opening bracket behind it is the remainder (`17 % 5`); otherwise it
is a hundredth (`50%`, `20% of 50`). Added to or taken from something, a percentage is one of that, as on a
pocket calculator: `200 + 10%` is 220 (unless both are percentages).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from fractions import Fraction

from plait.core.errors import ToolError
from plait.toolkits import arithmetic
from plait.toolkits.arithmetic import Number, Trouble, show
from plait.toolkits.functions import CONSTANTS, FUNCTIONS, Function
from plait.toolkits.tokens import WORDS, Token, Unclear, ends_operand, tokens_of, value_of

MAX_LENGTH = 4000
MAX_DEPTH = 100

_ADD, _MULTIPLY, _SIGN, _POWER = 10, 20, 30, 40
_INFIX: dict[str, tuple[int, Callable[[Number, Number], Number]]] = {
    "+": (_ADD, arithmetic.add),
    "-": (_ADD, arithmetic.subtract),
    "*": (_MULTIPLY, arithmetic.multiply),
    "/": (_MULTIPLY, arithmetic.divide),
    "//": (_MULTIPLY, arithmetic.floor_divide),
    "%": (_MULTIPLY, arithmetic.modulo),
    "%mod": (_MULTIPLY, arithmetic.modulo),
    "^": (_POWER, arithmetic.power),
    "**": (_POWER, arithmetic.power),
}
_ASKED = re.compile(r"(?:what\s+is|calculate|compute|evaluate)\s+(?=[-+(\d.])", re.IGNORECASE)
_UNIT = re.compile(r"(?<![^\W_])\d[\d.,]*\s+([^\W\d_]{2,40})")
_FIND = "only numbers can be computed with. Find the number with another tool first, then write it here"
_DIGITS = ("no", "one", "two", "three", "four", "five", "six")
_ROUNDED = re.compile(
    rf"[\s,;(]+(?:rounded\s+)?to\s+(\d|{'|'.join(_DIGITS)})\s+decimals?(?:\s+(?:places?|digits?))?[\s.)]*",
    re.IGNORECASE,
)
"""`... rounded to two decimals`, in words."""
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_AROUND = " \t\r\n=`'\""


def compute(text: str, *, full: bool = False) -> str:
    """The value of an expression as text.

    A whole number is exact, another has up to 12 significant digits, or with `full` every digit of a 64-bit float.
    Raises `ToolError`, which says what is wrong and shows where.
    """
    return show(evaluate(text), full=full)


def evaluate(text: str) -> Number:
    """The value of an expression: int or Fraction where it is exact, else float. Raises `ToolError`."""
    if len(text) > MAX_LENGTH:
        raise ToolError(
            f"The expression has {len(text):,} characters; at most {MAX_LENGTH:,} can be computed.",
            hint="Compute it in parts.",
        )
    begin, end = len(text) - len(text.lstrip(_AROUND)), len(text.rstrip(_AROUND + "?"))
    if begin >= end:
        raise ToolError("There is nothing to compute.", hint="Give an expression of numbers and operators.")
    if asked := _ASKED.match(text, begin, end):
        begin = asked.end()
    rounded = _ROUNDED.search(text, begin, end)
    try:
        value = _Reader(tokens_of(text, begin, rounded.start() if rounded else end)).whole()
    except Unclear as error:
        error = _told(text, error)
        raise ToolError(f"{error.message}, at character {error.at + 1}:\n{_pointer(text, error.at)}") from None
    if rounded is None:
        return value
    digits = _DIGITS.index(word) if (word := rounded[1].lower()) in _DIGITS else int(word)
    return arithmetic.settle(arithmetic.rounded(value, digits))


def _told(text: str, error: Unclear) -> Unclear:
    """What to say of an error: words that name a fact are the cause of whatever else is wrong."""
    known = {*FUNCTIONS, *CONSTANTS, *WORDS}
    for unit in _UNIT.finditer(text):
        if unit[1].lower() not in known:
            return Unclear(f"{unit[1]!r} stands behind a number: write numbers alone, without units", unit.start(1))
    for word in re.finditer(r"[^\W\d_]{2,40}", text):
        if word[0].lower() not in known and not difflib.get_close_matches(word[0].lower(), known, 1, 0.6):
            return Unclear(f"{word[0]!r} is no number: {_FIND}", word.start())
    return error


def _pointer(text: str, at: int) -> str:
    """The part of the text around a place, with a caret under the place."""
    flat = re.sub(r"\s", " ", text)
    begin, end = max(0, at - 40), min(len(flat), at + 40)
    head = "..." if begin else ""
    tail = "..." if end < len(flat) else ""
    return f"  {head}{flat[begin:end]}{tail}\n  {' ' * (len(head) + at - begin)}^"


class _Reader:
    """One reading of one list of tokens; `i` is the next token's index."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.i = 0
        self.depth = 0
        self.percentage: tuple[int, int] = (-1, -1)
        """The tokens, from and to, that the last `%` made a percentage."""

    @property
    def next(self) -> Token:
        return self.tokens[self.i]

    def whole(self) -> Number:
        value = self.expression(0)
        if self.next.kind != "end":
            raise self.unexpected(self.next)
        return value

    def expression(self, least: int) -> Number:
        """The value of what binds at least as tightly as `least`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unclear(f"brackets or powers are nested deeper than {MAX_DEPTH}", self.next.at)
        begin = self.i
        value = self.operand()
        while True:
            value = self.suffixes(value, begin)
            token = self.next
            written = token.kind == "operator"
            if not written and not self.multiplies(token):
                break
            entry = _INFIX.get(token.text if written else "*")
            if entry is None:
                raise self.unexpected(token)
            binding, run = entry
            if binding < least:
                break
            left_is_percentage = self.percentage == (begin, self.i)
            self.i += written
            right_begin = self.i
            right = self.expression(binding if binding == _POWER else binding + 1)
            if binding == _ADD and not left_is_percentage and self.percentage == (right_begin, self.i):
                right = self.at(token, arithmetic.multiply, value, right)
            value = self.at(token, run, value, right)
        self.depth -= 1
        return value

    def multiplies(self, token: Token) -> bool:
        """Does a multiplication that is not written stand before the token?"""
        if token.kind == "number":
            last = self.tokens[self.i - 1]
            if last.kind == "number":
                raise Unclear("two numbers stand side by side with no operator between them", token.at)
            return True
        return token.kind in ("open", "name")

    def operand(self) -> Number:
        """A number, a name or a bracket, with its signs."""
        sign = 1
        signed = False
        while self.next.kind == "operator" and self.next.text in "+-":
            sign = -sign if self.next.text == "-" else sign
            signed = True
            self.i += 1
        if signed:
            value = self.expression(_SIGN)
            return -value if sign < 0 else value
        token = self.next
        if token.kind == "number":
            self.i += 1
            return value_of(token)
        if token.kind == "open":
            values = self.bracket()
            if len(values) != 1:
                raise Unclear("a comma parts arguments of a function, and there is no function here", token.at)
            return values[0]
        if token.kind == "name":
            return self.named(token)
        raise self.unexpected(token)

    def suffixes(self, value: Number, begin: int) -> Number:
        """The value after what stands behind it: `!`, `%`, `²`, `³`."""
        while True:
            token = self.next
            if token.text == "!":
                value = self.at(token, arithmetic.factorial, value)
            elif token.text in ("²", "³"):
                value = self.at(token, arithmetic.power, value, 2 if token.text == "²" else 3)
            elif token.text == "%" and self.tokens[self.i + 1].kind not in ("number", "name", "open"):
                value = self.at(token, arithmetic.multiply, value, Fraction(1, 100))
                self.percentage = (begin, self.i + 1)
            else:
                return value
            self.i += 1

    def bracket(self) -> list[Number]:
        """What stands in a bracket, parted by commas."""
        opener = self.next
        self.i += 1
        values: list[Number] = []
        while self.next.kind != "close" or self.tokens[self.i - 1].kind == "comma":
            if self.next.kind == "end":
                raise Unclear(f"this {opener.text!r} is never closed", opener.at)
            values.append(self.expression(0))
            if self.next.kind != "comma":
                break
            self.i += 1
        closer = self.next
        if closer.kind == "end":
            raise Unclear(f"this {opener.text!r} is never closed", opener.at)
        if closer.kind != "close":
            raise self.unexpected(closer)
        if closer.text != _PAIRS[opener.text]:
            raise Unclear(f"{closer.text!r} does not close {opener.text!r}", closer.at)
        self.i += 1
        return values

    def named(self, token: Token) -> Number:
        self.i += 1
        if token.text in CONSTANTS:
            return CONSTANTS[token.text]
        function = FUNCTIONS.get(token.text)
        if function is None:
            raise self.unknown(token)
        if self.next.kind == "open":
            return self.call(token, function)
        if token.end - token.at == 1:  # the root sign needs no brackets
            return self.at(token, function.run, self.expression(_POWER + 1))
        raise Unclear(f"{token.text} needs brackets: {function.usage}", token.at)

    def call(self, token: Token, function: Function) -> Number:
        opener = self.next
        inside = self.tokens[self.i + 1]
        if inside.text == "[" and function.most is None:  # max([1, 2, 3])
            self.i += 1
            values = self.bracket()
            if self.next.kind != "close":
                raise Unclear(f"this {opener.text!r} is never closed", opener.at)
            self.i += 1
        else:
            values = self.bracket()
        if not function.takes(len(values)):
            raise Unclear(f"{token.text} can't take {len(values)} arguments: {function.usage}", token.at)
        return self.at(token, function.run, *values)

    def at(self, token: Token, run: Callable[..., Number], *values: Number) -> Number:
        """`run(*values)`; what goes wrong went wrong at the token."""
        try:
            return arithmetic.settle(run(*values))
        except Trouble as trouble:
            raise Unclear(str(trouble), token.at) from None

    def unknown(self, token: Token) -> Unclear:
        known = [*FUNCTIONS, *CONSTANTS]
        near = difflib.get_close_matches(token.text, known, 3, 0.6)
        said = f"{token.text if len(token.text) <= 40 else token.text[:37] + '...'!r} is not known"
        if near:
            return Unclear(f"{said} (did you mean {' or '.join(near)}?)", token.at)
        return Unclear(f"{said}: {_FIND}", token.at)

    def unexpected(self, token: Token) -> Unclear:
        if token.kind == "end":
            return Unclear("the expression ends where a number should stand", token.at)
        if token.text == "=":
            return Unclear("an equation can't be solved here: give one side of it", token.at)
        if token.kind == "close":
            if not any(t.kind == "open" for t in self.tokens[: self.i]):
                return Unclear(f"this {token.text!r} closes nothing", token.at)
            if self.i and not ends_operand(self.tokens[self.i - 1]):
                return Unclear(f"a number is missing before {token.text!r}", token.at)
            return Unclear(f"this {token.text!r} closes nothing", token.at)
        if token.kind == "comma":
            return Unclear("this comma is neither in a function's brackets nor between thousands", token.at)
        return Unclear(f"a number is missing before {token.text.removesuffix('mod')!r}", token.at)
