"""Decides whether a number is the result of simple arithmetic on known numbers.

A sum that a model worked out itself is grounded if it is right. But if many numbers are known and the result is short,
nearly every number is *some* sum of them. So a result counts only if it is unlikely to be met by chance.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from math import isfinite
from typing import Any

from plait.core.artifacts import Artifact, ArtifactHandle
from plait.core.messages import JSON
from plait.runtime.calls.artifacts import ArtifactStore
from plait.sandbox.worker_values import RESULT_DEPTH, Budget, Figures, pack, unpack
from plait.tools.render import Numeral

MOST = 30
"""Maximum number of known numbers: of more, nearly everything is some sum."""

CHANCE = 0.05
"""A number counts as computed if at most this share of all numbers of its form (as long, with as many decimals) could
be computed as well."""

ROUNDED = 3
"""Minimum number of digits of a rounded result: 26 would be the quotient of too many numbers."""


def can_be_computed(value: float, decimals: int, numbers: Iterable[float]) -> bool:
    """Say whether `value`, written with so many decimals, follows from the numbers. It is the sum, difference, product
    or quotient of two of them, the sum of three or four, or a percentage less or more than a hundred percent (20
    percent off: 0.8 and 80)."""
    known = tuple(sorted({abs(number) for number in numbers} - {0.0}))
    if len(known) > MOST:
        return False
    percents = [
        part for each in known if each < 100 for part in (1 - each / 100, 1 + each / 100, 100 - each, 100 + each)
    ]
    if any(_same(value, each) for each in percents):
        return True
    size = len(str(int(abs(value))))
    digits = size + decimals
    alike = _alike(known, decimals, size, rounded=digits >= ROUNDED)
    return len(alike) <= CHANCE * 9 * 10 ** (digits - 1) and round(abs(value), decimals) in alike


@lru_cache(maxsize=64)
def _alike(known: tuple[float, ...], decimals: int, size: int, *, rounded: bool) -> frozenset[float]:
    """Return all results with so many digits before and behind the point."""
    return frozenset(each for each in _results(known, decimals, rounded=rounded) if len(str(int(each))) == size)


def _results(known: tuple[float, ...], decimals: int, *, rounded: bool) -> Iterator[float]:
    """Yield what can be computed and written with so many decimals. Products and quotients may be rounded."""
    pairs = list(combinations(known, 2))
    sums = [each for a, b in pairs for each in (a + b, b - a)]
    sums += [sum(some) for count in (3, 4) if len(known) <= MOST // count for some in combinations(known, count)]
    others = [each for a, b in pairs for each in (a * b, a / b, b / a)]
    for each in filter(isfinite, (*sums, *others)):
        near = round(each, decimals)
        if _same(each, near):
            yield near
    if rounded:
        yield from (round(each, decimals) for each in others if isfinite(each))


def _same(one: float, other: float) -> bool:
    return abs(abs(one) - abs(other)) <= 1e-9 * max(1.0, abs(one))


def exact_result(value: Any, plain: JSON, artifacts: ArtifactStore) -> JSON:
    """Return a simplified result (`simplify`) as JSON that loses nothing; None if `plain` is just that, or if there is
    no such JSON: then code gets `plain`."""
    try:
        packed = pack(
            _numbers(value),
            lambda one: artifacts.put_away(one) if isinstance(one, Artifact) else None,
            Budget(depth=RESULT_DEPTH, figures=True),
        )
        if type(packed) is type(plain) and packed == plain:
            return None
        unpack(packed, ArtifactHandle.read)
    except Exception:
        return None
    return packed


def _numbers(value: Any) -> Any:
    """Return texts of a table as numbers if the text loses nothing: 14.5, but not 14.50."""
    if isinstance(value, Numeral):
        number: Any = float(value) if "." in value else int(value)
        return number if repr(number) == value else Figures(value)
    return {key: _numbers(one) for key, one in value.items()} if type(value) is dict else value


def find_constants(code: str) -> Iterator[str]:
    """Yield the literals in a piece of code."""
    for node in _nodes(code):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float)):
            yield str(node.value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            yield f"-{node.operand.value!r}"


def find_operands(code: str, *, units: bool = False) -> Iterator[tuple[float, str]]:
    """Yield the numbers in code that are operands or the value of a name, except those that convert units. `units`: the
    text names units, so 100 may convert a whole number as well."""
    for node in _nodes(code):
        if isinstance(node, ast.BinOp):
            scales = isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Mod)
            sides = [*_numbers_of(node.left), *_numbers_of(node.right)]
            whole = len(sides) == 2 and all(isinstance(number, int) for number, _ in sides)
            whole = whole and isinstance(node.op, ast.Mult) and not units
            for side in sides if not _is_text(node.left) and not _is_text(node.right) else ():
                converts = scales and re.fullmatch(_NUMBERS, side[1])
                if not converts or (whole and re.fullmatch(_ROUND, side[1])):
                    yield side
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            held = node.value
            parts = [*held.values] if isinstance(held, ast.Dict) else getattr(held, "elts", [held])
            yield from (each for part in parts for each in _numbers_of(part))


def _nodes(code: str) -> Iterator[ast.AST]:
    """Yield the nodes of code; none if it cannot be parsed."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from ast.walk(tree)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _numbers_of(node: ast.expr) -> list[tuple[float, str]]:
    """Return the number that a node is, without its sign."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    alone = isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return [(node.value, str(node.value))] if alone and abs(node.value) < 1e300 else []  # type: ignore[attr-defined]


_NUMBERS = r"10{1,4}|10{6}|10{9}|0\.0?01|12|24|60|365|3600"
"""Numbers that convert units. Other powers of ten are guesses of unknown sizes."""
_ROUND = r"10{1,3}"
_CONVERTING = re.compile(rf"[*/]\s*({_NUMBERS})(?![\d.,]*\d)|(?<![\d.,])({_NUMBERS})\s*[*/]")
_GUESSED = re.compile(
    rf"(?<![\d.,])\d{{1,18}}\s*\*\s*({_ROUND})(?![\d.,]*\d)|(?<![\d.,])({_ROUND})\s*\*\s*\d{{1,18}}(?![\d.]*\d)"
)
UNITS = {
    "percent", "percentage", "%", "cent", "mm", "cm", "m", "km", "mg", "g", "kg", "ml", "l", "ton", "tonne", "second",
    *(f"{scale}{unit}" for scale in ("", "milli", "centi", "kilo")
      for unit in ("metre", "meter", "gram", "litre", "liter", "watt", "byte")),
}  # fmt: skip


def find_conversions(formula: str) -> set[str]:
    """Return the numbers that a formula multiplies with, or divides by, to convert units; as written."""
    return {each for match in _CONVERTING.finditer(formula) for each in match.groups() if each}


def find_guesses(formula: str) -> set[str]:
    """Return the 10, 100 and 1000 that a formula multiplies a whole number with. In a text without units they convert
    nothing: models guess unknown prices with them."""
    found = () if "/" in formula else _GUESSED.finditer(formula)
    return {each for match in found for each in match.groups() if each}
