"""The names that the calculator knows: functions with how many arguments each takes, and constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from msgspec import Struct

from plait.toolkits import arithmetic as a
from plait.toolkits.arithmetic import Number, Trouble


class Function(Struct, frozen=True):
    """A function of the calculator. `most` is None where it takes any number of arguments."""

    run: Callable[..., Number]
    least: int
    most: int | None
    usage: str

    def takes(self, count: int) -> bool:
        """Can it be given that many arguments?"""
        return count >= self.least and (self.most is None or count <= self.most)


def _one(usage: str, run: Callable[[Any], Number]) -> Function:
    return Function(run, 1, 1, usage)


def _sum(*xs: Number) -> Number:
    total: Number = 0
    for x in xs:
        total = a.add(total, x)
    return total


def _mean(*xs: Number) -> Number:
    return a.divide(_sum(*xs), len(xs))


def _median(*xs: Number) -> Number:
    ordered = sorted(xs)
    middle = len(xs) // 2
    return ordered[middle] if len(xs) % 2 else _mean(*ordered[middle - 1 : middle + 1])


def _gcd(*xs: Number) -> Number:
    return math.gcd(*(a.whole(x, "gcd") for x in xs))


def _lcm(*xs: Number) -> Number:
    least = 1
    for x in xs:  # one at a time, so that a long list can't outgrow the bound unseen
        step = a.settle(math.lcm(least, a.whole(x, "lcm")))
        least = a.whole(step, "lcm")
    return least


def _hypot(*xs: Number) -> Number:
    return a.root(_sum(*(a.multiply(x, x) for x in xs)))


def _exp(x: Number) -> Number:
    return a.by_float(math.exp)(x)


def _truncate(x: Number) -> Number:
    return math.trunc(x)


def _sign(x: Number) -> Number:
    return (x > 0) - (x < 0)


def _atan2(y: Number, x: Number) -> Number:
    return math.atan2(a.to_float(y), a.to_float(x))


_UNIT = "a number from -1 to 1"

FUNCTIONS: dict[str, Function] = {
    "sqrt": _one("sqrt(x)", a.root),
    "cbrt": _one("cbrt(x)", lambda x: a.root(x, 3)),
    "root": Function(a.root, 1, 2, "root(x, n)"),
    "abs": _one("abs(x)", abs),
    "sign": _one("sign(x)", _sign),
    "round": Function(a.rounded, 1, 2, "round(x, decimals)"),
    "floor": _one("floor(x)", math.floor),
    "ceil": _one("ceil(x)", math.ceil),
    "trunc": _one("trunc(x)", _truncate),
    "int": _one("int(x)", _truncate),
    "float": _one("float(x)", lambda x: x),
    "min": Function(min, 1, None, "min(a, b, ...)"),
    "max": Function(max, 1, None, "max(a, b, ...)"),
    "sum": Function(_sum, 1, None, "sum(a, b, ...)"),
    "mean": Function(_mean, 1, None, "mean(a, b, ...)"),
    "avg": Function(_mean, 1, None, "avg(a, b, ...)"),
    "average": Function(_mean, 1, None, "average(a, b, ...)"),
    "median": Function(_median, 1, None, "median(a, b, ...)"),
    "exp": _one("exp(x)", _exp),
    "ln": _one("ln(x)", a.python_logarithm),
    "math.log": Function(a.python_logarithm, 1, 2, "math.log(x) to base e, or math.log(x, base)"),
    "log": Function(a.logarithm, 1, 2, "log(x) to base 10, or log(x, base)"),
    "log10": _one("log10(x)", a.logarithm),
    "log2": _one("log2(x)", lambda x: a.logarithm(x, 2)),
    "sin": _one("sin(radians)", a.by_float(math.sin)),
    "cos": _one("cos(radians)", a.by_float(math.cos)),
    "tan": _one("tan(radians)", a.tangent),
    "asin": _one("asin(x)", a.by_float(math.asin, _UNIT)),
    "acos": _one("acos(x)", a.by_float(math.acos, _UNIT)),
    "atan": _one("atan(x)", a.by_float(math.atan)),
    "atan2": Function(_atan2, 2, 2, "atan2(y, x)"),
    "sinh": _one("sinh(x)", a.by_float(math.sinh)),
    "cosh": _one("cosh(x)", a.by_float(math.cosh)),
    "tanh": _one("tanh(x)", a.by_float(math.tanh)),
    "degrees": _one("degrees(radians)", a.by_float(math.degrees)),
    "radians": _one("radians(degrees)", a.by_float(math.radians)),
    "hypot": Function(_hypot, 1, None, "hypot(a, b)"),
    "gcd": Function(_gcd, 1, None, "gcd(a, b)"),
    "lcm": Function(_lcm, 1, None, "lcm(a, b)"),
    "comb": Function(a.choose, 2, 2, "comb(n, k)"),
    "perm": Function(lambda n, k: a.choose(n, k, True), 2, 2, "perm(n, k)"),
    "factorial": _one("factorial(n)", a.factorial),
    "mod": Function(a.modulo, 2, 2, "mod(a, b)"),
    "pow": Function(a.power, 2, 2, "pow(x, n)"),
}

CONSTANTS: dict[str, Number] = {
    "pi": math.pi,
    "e": math.e,
    "tau": math.tau,
    "deg": math.pi / 180,
    "degree": math.pi / 180,
    "degs": math.pi / 180,
    "rad": 1,
    "percent": Fraction(1, 100),
}

__all__ = ["CONSTANTS", "FUNCTIONS", "Function", "Number", "Trouble"]
