"""The parser of the calculator, which computes an arithmetic expression as it reads it, without `eval`.

From loosest to tightest: `+ -`; `* / // %` and `of` and multiplication without a sign (`2(3+4)`, `2pi`), all equal and
from the left; the sign; `^` and `**`, from the right; `!`, `%` and `²` behind a number.

Percent: `%` before a number, a name or an opening bracket is the remainder (`17 % 5`); otherwise it is a hundredth
(`50%`, `20% of 50`). An added or subtracted percentage is one of the other number, as on a pocket calculator: `200 +
10%` is 220 (unless both are percentages).

A comma between digits may group thousands or separate two arguments. Outside a function's brackets it groups. Inside,
the function's number of arguments decides: `sqrt(1,234)` is of 1234. If both readings are possible, the commas separate
arguments if all of them are written alike and the function takes any number (`max(100,200)`); otherwise the expression
is refused (`max(1,200, 300)`, `round(1,234)`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from fractions import Fraction
from math import floor
from typing import NamedTuple

from plait.core.errors import ToolError
from plait.core.text import cut_text
from plait.toolkits import arithmetic
from plait.toolkits.arithmetic import CONSTANTS, FUNCTIONS, ArithmeticProblem, Function, Number

MAX_LENGTH = 4000
MAX_DEPTH = 100
MAX_EXPONENT = 4000

_ADD, _MULTIPLY, _SIGN, _POWER = 10, 20, 30, 40
_OPERATORS: dict[str, tuple[int, Callable[[Number, Number], Number]]] = {
    "+": (_ADD, arithmetic.add),
    "-": (_ADD, arithmetic.subtract),
    "*": (_MULTIPLY, arithmetic.multiply),
    "/": (_MULTIPLY, arithmetic.divide),
    "//": (_MULTIPLY, lambda a, b: floor(arithmetic.divide(a, b))),
    "mod": (_MULTIPLY, arithmetic.modulo),
    "^": (_POWER, arithmetic.power),
    "**": (_POWER, arithmetic.power),
}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ALIKE = str.maketrans(
    dict.fromkeys("×·∙⋅✕∗", "*")
    | dict.fromkeys("÷∕⁄", "/")
    | dict.fromkeys("−–—‒", "-")
    | {"，": ",", "（": "(", "）": ")", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'"}
)
"""Replacements of characters, one for one, so that positions stay the same."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d_])\.?\d*|\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>(?:(?:[mM]ath|np|numpy)\.)?[^\W\d_²³]+\d*|√|°)"
    r"|(?P<operator>\*\*|//|[-+*/%^!=²³])"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)|(?P<money>[$€£¥₹]))"
)
_NAMES = {"√": "sqrt", "π": "pi", "°": "deg", "τ": "tau"}
_OPERATOR_NAMES = {"times": "*", "plus": "+", "minus": "-"}
_INFIX_NAMES = {"of": "*", "x": "*", "mod": "mod"}
"""Names that are operators only behind a number."""
_MONEY = {"usd", "eur", "gbp", "dollar", "dollars", "euro", "euros"}
_KNOWN = {*FUNCTIONS, *CONSTANTS, *_NAMES, *_OPERATOR_NAMES, *_INFIX_NAMES, *_MONEY, "math", "np", "numpy"}

_QUESTION = re.compile(r"(?:what\s+is|calculate|compute|evaluate)\s+(?=[-+(\d.])", re.IGNORECASE)
_UNIT = re.compile(r"(?<![^\W_])\d[\d.,]*\s+([^\W\d_]{2,40})")
_FIND = "only numbers can be computed with. Find the number with another tool first, then write it here"
_DIGITS = ("no", "one", "two", "three", "four", "five", "six")
_ROUNDED = re.compile(
    rf"[\s,;(]+(?:rounded\s+)?to\s+(\d|{'|'.join(_DIGITS)})\s+decimals?(?:\s+(?:places?|digits?))?[\s.)]*",
    re.IGNORECASE,
)
"""`... rounded to two decimals`, in words."""
_AROUND = " \t\r\n=`'\""


class UnclearExpression(Exception):
    """An expression that cannot be read or has no value. `at` is the position of the cause, counted from 0."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class Token(NamedTuple):
    """A token of an expression: its kind, its text in plain characters, where it begins and ends."""

    kind: str
    text: str
    at: int
    end: int

    @property
    def ends_operand(self) -> bool:
        """Whether an operator can follow."""
        return self.kind in ("number", "close", "name") or self.text in ("!", "%", "²", "³")


def compute(text: str, *, full: bool = False) -> str:
    """Return the value of an expression as text. Raises `ToolError`. `full`: see `format_number`."""
    return arithmetic.format_number(evaluate(text), full=full)


def evaluate(text: str) -> Number:
    """Compute an expression: int or Fraction if the value is exact, else float.

    Raises `ToolError` with the error and its place.
    """
    if len(text) > MAX_LENGTH:
        raise ToolError(
            f"The expression has {len(text):,} characters; at most {MAX_LENGTH:,} can be computed.",
            hint="Compute it in parts.",
        )
    begin, end = len(text) - len(text.lstrip(_AROUND)), len(text.rstrip(_AROUND + "?"))
    if begin >= end:
        raise ToolError("There is nothing to compute.", hint="Give an expression of numbers and operators.")
    if question := _QUESTION.match(text, begin, end):
        begin = question.end()
    rounded = _ROUNDED.search(text, begin, end)
    try:
        value = _Parser(_split_tokens(text, begin, rounded.start() if rounded else end)).evaluate()
    except UnclearExpression as error:
        error = _find_words(text) or error
        raise ToolError(f"{error.message}, at character {error.at + 1}:\n{_point_at(text, error.at)}") from None
    if rounded is None:
        return value
    word = rounded[1].lower()
    return arithmetic.round_half_up(value, _DIGITS.index(word) if word in _DIGITS else int(word))


def _find_words(text: str) -> UnclearExpression | None:
    """Find words that name a fact: they cause any other error."""
    for unit in _UNIT.finditer(text):
        if unit[1].lower() not in _KNOWN:
            said = f"{unit[1]!r} stands behind a number: write numbers alone, without units"
            return UnclearExpression(said, unit.start(1))
    for word in re.finditer(r"[^\W\d_]{2,40}", text):
        if word[0].lower() not in _KNOWN and not difflib.get_close_matches(word[0].lower(), _KNOWN, 1, 0.6):
            return UnclearExpression(f"{word[0]!r} is no number: {_FIND}", word.start())
    return None


def _point_at(text: str, at: int) -> str:
    """Show the part of the text around a position, with a caret under it."""
    flat = re.sub(r"\s", " ", text)
    begin, end = max(0, at - 40), min(len(flat), at + 40)
    head = "..." if begin else ""
    tail = "..." if end < len(flat) else ""
    return f"  {head}{flat[begin:end]}{tail}\n  {' ' * (len(head) + at - begin)}^"


def _split_tokens(text: str, begin: int, end: int) -> list[Token]:
    """Split `text[begin:end]` into tokens, the last of kind `end`."""
    plain = text.translate(_ALIKE)
    tokens: list[Token] = []
    at = begin
    while at < end:
        match = _TOKEN.match(plain, at, end)
        if match is None:
            rest = plain[at:end].lstrip()
            if rest:
                raise UnclearExpression(f"{rest[0]!r} means nothing here", end - len(rest))
            break
        kind = str(match.lastgroup)
        start, at = match.span(kind)
        if kind == "name":
            token = _read_name(match[kind], start, bool(tokens) and tokens[-1].ends_operand)
            at = token.end
            if token.text not in _MONEY:
                tokens.append(token)
        elif kind != "money":
            tokens.append(Token(kind, match[kind], start, at))
    tokens.append(Token("end", "", end, end))
    return _split_arguments(tokens)


def _read_name(word: str, start: int, after_operand: bool) -> Token:
    end = start + len(word)
    module, _, name = word.lower().rpartition(".")
    name = "math.log" if module and name == "log" else _NAMES.get(name, name)  # Python's log is the natural one
    operator = _OPERATOR_NAMES.get(name) or (_INFIX_NAMES.get(name) if after_operand else None)
    if operator:
        return Token("operator", operator, start, end)
    if after_operand and name[0] == "x" and name[1:].isdigit():  # 5x3: the number is read next
        return Token("operator", "*", start, start + 1)
    letters = name.rstrip("0123456789")
    if letters != name and name not in FUNCTIONS and letters in CONSTANTS:
        raise UnclearExpression(f"write {letters}*{name[len(letters) :]} for {word!r}", start)
    return Token("name", name, start, end)


def _split_arguments(tokens: list[Token]) -> list[Token]:
    """Split numbers such as `1,234` at their commas where these separate a function's arguments."""
    if not any(token.kind == "number" and "," in token.text for token in tokens):
        return tokens
    apart: set[int] = set()
    opened: list[tuple[Function | None, list[int], list[int]]] = [(None, [], [])]
    for i, token in enumerate(tokens):
        _, commas, grouped = opened[-1]
        if token.kind == "open":
            before = tokens[i - 1] if i else token
            if before.kind == "open" and i > 1:  # max([1, 2]) is max(1, 2)
                before = tokens[i - 2]
            opened.append((FUNCTIONS.get(before.text) if before.kind == "name" else None, [], []))
        elif token.kind == "comma":
            commas.append(i)
        elif token.kind == "number" and "," in token.text:
            grouped.append(i)
        elif token.kind == "close" and len(opened) > 1:
            function, commas, grouped = opened.pop()
            inside = sum(tokens[each].text.count(",") for each in grouped)
            if not grouped or function is None or not function.takes(len(commas) + inside + 1):
                continue
            if function.takes(len(commas) + 1) and (commas or function.max_arguments is not None):
                first = tokens[grouped[0]]
                raise UnclearExpression(
                    "this comma may group thousands or separate arguments: "
                    "write the numbers without thousands separators",
                    first.at + first.text.index(","),
                )
            apart.update(grouped)
    for i in sorted(apart, reverse=True):
        tokens[i : i + 1] = [
            Token(
                "comma" if part[0] == "," else "number", part[0], tokens[i].at + part.start(), tokens[i].at + part.end()
            )
            for part in re.finditer(r"[^,]+|,", tokens[i].text)
        ]
    return tokens


def _read_number(token: Token) -> Number:
    text = token.text.replace("_", "").replace(",", "").lower()
    if text.isdigit():
        return int(text)
    mantissa, _, exponent = text.partition("e")
    value = Fraction(mantissa.rstrip("."))
    if exponent:
        if len(exponent) > 8 or abs(int(exponent)) > MAX_EXPONENT:
            raise UnclearExpression(f"the exponent is beyond {MAX_EXPONENT:,}", token.at)
        value *= Fraction(10) ** int(exponent)
    return value.numerator if value.denominator == 1 else value


class _Parser:
    """Reads and computes one list of tokens; `i` is the index of the next one."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.i = 0
        self.depth = 0
        self.percentage = (-1, -1)
        """The tokens, from and to, of the last percentage."""

    @property
    def next(self) -> Token:
        return self.tokens[self.i]

    def evaluate(self) -> Number:
        value = self.expression(0)
        if self.next.kind != "end":
            raise self.make_unexpected_error(self.next)
        return value

    def expression(self, least: int) -> Number:
        """Compute what binds at least as tightly as `least`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnclearExpression(f"brackets or powers are nested deeper than {MAX_DEPTH}", self.next.at)
        begin = self.i
        value = self.operand()
        while True:
            value = self.suffixes(value, begin)
            token = self.next
            written = token.kind == "operator"
            if token.kind == "number" and self.tokens[self.i - 1].kind == "number":
                raise UnclearExpression("two numbers stand side by side with no operator between them", token.at)
            if not written and token.kind not in ("number", "open", "name"):
                break
            text = {"%": "mod"}.get(token.text, token.text) if written else "*"
            if text not in _OPERATORS:
                raise self.make_unexpected_error(token)
            binding, run = _OPERATORS[text]
            if binding < least:
                break
            of_left = binding == _ADD and self.percentage != (begin, self.i)
            self.i += written
            right_begin = self.i
            right = self.expression(binding if binding == _POWER else binding + 1)
            if of_left and self.percentage == (right_begin, self.i):
                right = self.compute(token, arithmetic.multiply, value, right)
            value = self.compute(token, run, value, right)
        self.depth -= 1
        return value

    def operand(self) -> Number:
        """Read a number, a name or a bracket, with its signs."""
        token = self.next
        if token.text in ("+", "-"):
            self.i += 1
            value = self.expression(_SIGN)
            return -value if token.text == "-" else value
        if token.kind == "number":
            self.i += 1
            return _read_number(token)
        if token.kind == "open":
            values = self.bracket()
            if len(values) != 1:
                raise UnclearExpression(
                    "a comma separates arguments of a function, and there is no function here", token.at
                )
            return values[0]
        if token.kind == "name":
            self.i += 1
            return CONSTANTS[token.text] if token.text in CONSTANTS else self.call(token)
        raise self.make_unexpected_error(token)

    def suffixes(self, value: Number, begin: int) -> Number:
        """Apply `!`, `%`, `²` and `³` behind a value."""
        while True:
            token = self.next
            if token.text == "!":
                value = self.compute(token, arithmetic.factorial, value)
            elif token.text in ("²", "³"):
                value = self.compute(token, arithmetic.power, value, 2 if token.text == "²" else 3)
            elif token.text == "%" and self.tokens[self.i + 1].kind not in ("number", "name", "open"):
                value = self.compute(token, arithmetic.multiply, value, Fraction(1, 100))
                self.percentage = (begin, self.i + 1)
            else:
                return value
            self.i += 1

    def bracket(self) -> list[Number]:
        """Read the values in a bracket, separated by commas."""
        opener = self.next
        self.i += 1
        values: list[Number] = []
        if self.next.kind != "close":
            while self.next.kind != "end":
                values.append(self.expression(0))
                if self.next.kind != "comma":
                    break
                self.i += 1
        closer = self.next
        if closer.kind == "end":
            raise UnclearExpression(f"this {opener.text!r} is never closed", opener.at)
        if closer.kind != "close":
            raise self.make_unexpected_error(closer)
        if closer.text != _PAIRS[opener.text]:
            raise UnclearExpression(f"{closer.text!r} does not close {opener.text!r}", closer.at)
        self.i += 1
        return values

    def call(self, token: Token) -> Number:
        if token.text not in FUNCTIONS:
            near = difflib.get_close_matches(token.text, [*FUNCTIONS, *CONSTANTS], 3, 0.6)
            hint = f" (did you mean {' or '.join(near)}?)" if near else f": {_FIND}"
            raise UnclearExpression(f"{cut_text(token.text, 40)!r} is not known{hint}", token.at)
        function, opener = FUNCTIONS[token.text], self.next
        if opener.kind != "open":
            if token.end - token.at == 1:  # the root sign needs no brackets
                return self.compute(token, function.run, self.expression(_POWER + 1))
            raise UnclearExpression(f"{token.text} needs brackets: {function.usage}", token.at)
        nested = self.tokens[self.i + 1].text == "[" and function.max_arguments is None  # max([1, 2, 3])
        self.i += nested
        values = self.bracket()
        if nested:
            if self.next.kind != "close":
                raise UnclearExpression(f"this {opener.text!r} is never closed", opener.at)
            self.i += 1
        if not function.takes(len(values)):
            raise UnclearExpression(f"{token.text} can't take {len(values)} arguments: {function.usage}", token.at)
        return self.compute(token, function.run, *values)

    def compute(self, token: Token, run: Callable[..., Number], *values: Number) -> Number:
        """Return `run(*values)`. An error is reported at the token."""
        try:
            return arithmetic.bound_number(run(*values))
        except ArithmeticProblem as problem:
            raise UnclearExpression(str(problem), token.at) from None

    def make_unexpected_error(self, token: Token) -> UnclearExpression:
        before = self.tokens[self.i - 1] if self.i else token
        opened = any(each.kind == "open" for each in self.tokens[: self.i])
        if token.kind == "end":
            said = "the expression ends where a number should stand"
        elif token.text == "=":
            said = "an equation can't be solved here: give one side of it"
        elif token.kind == "close" and (before.ends_operand or not opened):
            said = f"this {token.text!r} closes nothing"
        elif token.kind == "comma":
            said = "this comma is neither in a function's brackets nor between thousands"
        else:
            said = f"a number is missing before {token.text!r}"
        return UnclearExpression(said, token.at)
