"""The values that a piece of code wrote down, as opposed to those that it computes or takes from a result."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from plait.runtime.units import converts


def constants(code: str) -> Iterator[str]:
    """The literals that a piece of code wrote down."""
    for node in _nodes(code):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float)):
            yield str(node.value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            yield f"-{node.operand.value!r}"


def reckoned(code: str, *, units: bool = False) -> Iterator[tuple[float, str]]:
    """The numbers in code that are operands (what converts units is not), or the value of a name. `units`: there is
    talk of such, so 100 may convert a whole number as well."""
    for node in _nodes(code):
        if isinstance(node, ast.BinOp):
            scales = isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Mod)
            sides = [*_numbers_of(node.left), *_numbers_of(node.right)]
            whole = len(sides) == 2 and all(isinstance(number, int) for number, _ in sides)
            whole = whole and isinstance(node.op, ast.Mult) and not units
            if not _is_text(node.left) and not _is_text(node.right):
                yield from (side for side in sides if not (scales and converts(side[1], whole=whole)))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            held = node.value
            parts = [*held.values] if isinstance(held, ast.Dict) else getattr(held, "elts", [held])
            yield from (each for part in parts for each in _numbers_of(part))


def _nodes(code: str) -> Iterator[ast.AST]:
    """The parts of code; none where it can't be read."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from ast.walk(tree)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _numbers_of(node: ast.expr) -> list[tuple[float, str]]:
    """A number that is written there, without its sign."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    alone = isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return [(node.value, str(node.value))] if alone and abs(node.value) < 1e300 else []  # type: ignore[attr-defined]
