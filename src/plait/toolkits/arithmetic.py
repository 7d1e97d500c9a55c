"""The calculator's numbers, functions and constants: exact where possible, floats where necessary, bounded in size.

A number is an int or a `Fraction` until a function such as sin makes it a float, so 0.1 + 0.2 is 0.3. Whole numbers are
exact up to `MAX_DIGITS` digits and refused beyond. A longer fraction becomes a float, so no input is slow.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException
from fractions import Fraction
from functools import reduce
from typing import TypeAlias

from msgspec import Struct

from plait.core.text import cut_text

Number: TypeAlias = int | Fraction | float
Operation: TypeAlias = Callable[[Number, Number], Number]

MAX_DIGITS = 4000
DIGITS = 12
"""Significant digits of a displayed number that is not whole."""
FULL_DIGITS = 17
"""Digits that distinguish all 64-bit floats."""

_MAX_BITS = int(MAX_DIGITS * math.log2(10))
_WIDE = Context(prec=40)
_TOO_LONG = f"the result has more than {MAX_DIGITS:,} digits"
_UNREAL = "a negative number to the power {} is not a real number"


class ArithmeticProblem(Exception):
    """An operation without a result; the text says why, but not where."""


def bound_number(x: Number) -> Number:
    """Return `x` in its plainest type. Raises `ArithmeticProblem` if it is too large."""
    if isinstance(x, float):
        if not math.isfinite(x):
            raise ArithmeticProblem("the result is too large")
        return x
    if x.denominator != 1:
        too_long = max(x.numerator.bit_length(), x.denominator.bit_length()) > _MAX_BITS
        return to_float(x) if too_long else x
    if x.numerator.bit_length() > _MAX_BITS:
        raise ArithmeticProblem(_TOO_LONG)
    return x.numerator


def to_float(x: Number) -> float:
    """Convert `x` to a float. Raises `ArithmeticProblem` if no float is that large."""
    try:
        return float(x)
    except OverflowError:
        raise ArithmeticProblem("the number is too large for this") from None


def to_whole(x: Number, what: str) -> int:
    """Convert `x` to an int. Raises `ArithmeticProblem` if it is not whole; `what` names what needs a whole number."""
    if isinstance(x, int) or (isinstance(x, float) and x.is_integer()):
        return int(x)
    raise ArithmeticProblem(f"{what} needs a whole number, not {shorten_number(x)}")


def _bounded(operation: Operation) -> Operation:
    """Return an operation that works on floats if one of its numbers is a float, and on exact numbers otherwise."""

    def run(a: Number, b: Number) -> Number:
        if isinstance(a, float) or isinstance(b, float):
            a, b = to_float(a), to_float(b)
        try:
            return bound_number(operation(a, b))
        except ZeroDivisionError:
            raise ArithmeticProblem("division by zero") from None

    return run


add = _bounded(operator.add)
subtract = _bounded(operator.sub)
multiply = _bounded(operator.mul)
divide = _bounded(lambda a, b: a / b if isinstance(a, float) else Fraction(a) / b)
modulo = _bounded(operator.mod)
"""The remainder, with the sign of the second number."""


def power(a: Number, b: Number) -> Number:
    """Raise `a` to the power `b`, exactly if possible. An odd root of a negative number is real."""
    if a == 0 and b < 0:
        raise ArithmeticProblem("division by zero (0 to a negative power)")
    if isinstance(b, int):
        return _whole_power(a, b)
    if a < 0 and not (b.is_integer() if isinstance(b, float) else b.denominator % 2):
        raise ArithmeticProblem(_UNREAL.format(shorten_number(b)))
    if isinstance(b, float):
        return _decimal_power(a, b)
    if a < 0:
        return -power(-a, b) if b.numerator % 2 else power(-a, b)
    if not isinstance(a, float) and b.denominator <= 64 and (base := _exact_root(a, b.denominator)) is not None:
        return _whole_power(base, b.numerator)
    return _decimal_power(a, b)


def _whole_power(a: Number, b: int) -> Number:
    if isinstance(a, float):
        return _decimal_power(a, b)
    if a in (0, 1, -1):
        return a if b % 2 or (a == 0 and b) else 1
    size = max(abs(a.numerator), a.denominator)
    if b.bit_length() > 60 or abs(b) * math.log2(size) > _MAX_BITS + 1:
        if isinstance(a, int) and b > 0:
            raise ArithmeticProblem(_TOO_LONG)
        return _decimal_power(a, b)
    return bound_number(Fraction(a) ** b)


def _decimal_power(a: Number, b: Number) -> Number:
    """Compute a power by logarithms, with 40 digits internally so that compound interest has 12 correct ones."""
    base, exponent = (Decimal(x) if isinstance(x, float) else _WIDE.divide(x.numerator, x.denominator) for x in (a, b))
    try:
        result = float(_WIDE.power(base, exponent))
    except DecimalException:
        raise ArithmeticProblem("the result is too large or too small") from None
    if result == 0 and a != 0:
        raise ArithmeticProblem("the result is too small")
    return bound_number(result)


def _exact_root(x: int | Fraction, n: int) -> Number | None:
    """Return the n-th root of x >= 0 if it is rational, else None."""
    roots = []
    for part in (x.numerator, x.denominator):
        near = 1 << -(-part.bit_length() // n)
        while part and (below := ((n - 1) * near + part // near ** (n - 1)) // n) < near:  # Newton, from above
            near = below
        near = near if part else 0
        if near**n != part:
            return None
        roots.append(near)
    return Fraction(*roots)


def root(x: Number, n: Number = 2) -> Number:
    if n == 0:
        raise ArithmeticProblem("there is no root number 0")
    if x < 0 and n == 2:
        raise ArithmeticProblem("the square root of a negative number is not a real number")
    return power(x, divide(1, n))


def factorial(x: Number) -> Number:
    n = to_whole(x, "factorial")
    if n < 0:
        raise ArithmeticProblem("factorial needs a number that is not negative")
    if n > 2000:
        raise ArithmeticProblem(_TOO_LONG)
    return math.factorial(n)


def combine(x: Number, y: Number, ordered: bool = False) -> Number:
    """Count the ways to choose y of x things; `ordered`: different orders count separately."""
    n, k = to_whole(x, "a count"), to_whole(y, "a count")
    if n < 0 or k < 0:
        raise ArithmeticProblem("comb and perm need numbers that are not negative")
    if k > n:
        return 0
    k = k if ordered else min(k, n - k)
    # C(n, k) is at least 2**k and at most (e * n / k)**k, perm(n, k) at least k! and at most n**k.
    if k > _MAX_BITS or (k and k * (math.log2(n) - (0 if ordered else math.log2(k / math.e))) > 2 * _MAX_BITS):
        raise ArithmeticProblem(_TOO_LONG)
    return math.perm(n, k) if ordered else math.comb(n, k)


def round_half_up(x: Number, places: Number = 0) -> Number:
    """Round to `places` decimals (negative: tens, hundreds ...), halves away from zero, as taught in school."""
    n = to_whole(places, "the number of decimals")
    if abs(n) > 1000:
        raise ArithmeticProblem("round takes at most 1,000 decimals")
    exact = Fraction(repr(x)) if isinstance(x, float) else Fraction(x)
    unit = Fraction(10) ** n
    near = math.floor(abs(exact) * unit + Fraction(1, 2)) / unit
    return bound_number(near if exact >= 0 else -near)


def logarithm(x: Number, base: Number = 10) -> Number:
    """Return the logarithm to a base, exactly if it is whole."""
    log = natural_logarithm(x)
    if base <= 0 or base == 1:
        raise ArithmeticProblem("the base of a logarithm must be above 0 and not 1")
    divisor = natural_logarithm(base)
    if divisor == 0:
        raise ArithmeticProblem("the base of a logarithm is too near 1")
    value = log / divisor
    near = round(value)
    exact = not isinstance(x, float) and not isinstance(base, float)
    if exact and abs(value - near) < 1e-9 and abs(near) <= _MAX_BITS and power(base, near) == x:
        return near
    return value


def natural_logarithm(x: Number) -> float:
    """Return the logarithm to base e, of whole numbers and fractions of any size."""
    if x <= 0:
        raise ArithmeticProblem("a logarithm needs a number above 0")
    try:
        return math.log(x)
    except (OverflowError, ValueError):  # a fraction beyond a float, or so small that it becomes 0
        exact = Fraction(x)
        return math.log(exact.numerator) - math.log(exact.denominator)


def _python_logarithm(x: Number, base: Number | None = None) -> Number:
    """Return the value of Python's `math.log`: to base e without a base."""
    return logarithm(x, base) if base is not None else 0 if x == 1 else natural_logarithm(x)


def _on_floats(function: Callable[[float], float], wants: str = "") -> Callable[[Number], Number]:
    """Make a function on numbers from one on floats; `wants` describes the valid numbers."""
    circular = function in (math.sin, math.cos, math.tan)

    def run(x: Number) -> Number:
        try:
            value = function(to_float(x))
        except ValueError:
            raise ArithmeticProblem(f"this function needs {wants}, not {shorten_number(x)}") from None
        except OverflowError:
            raise ArithmeticProblem("the result is too large") from None
        # sin(pi) is 1.2e-16 only because pi is cut at sixteen digits.
        return 0.0 if circular and abs(value) < 1e-15 else value

    return run


def _tangent(x: Number) -> Number:
    if abs(math.cos(to_float(x))) < 1e-15:
        raise ArithmeticProblem("the tangent has no value there")
    return _on_floats(math.tan)(x)


def _total(*xs: Number) -> Number:
    total: Number = 0
    return reduce(add, xs, total)


def _mean(*xs: Number) -> Number:
    return divide(_total(*xs), len(xs))


def _median(*xs: Number) -> Number:
    middle = len(xs) // 2
    return _mean(*sorted(xs)[middle - 1 + len(xs) % 2 : middle + 1])


def _least_common_multiple(*xs: Number) -> Number:
    # One at a time, so that a long list does not outgrow the bound unseen.
    return reduce(lambda a, b: to_whole(bound_number(math.lcm(a, to_whole(b, "lcm"))), "lcm"), xs, 1)


class Function(Struct, frozen=True):
    """A function of the calculator. `max_arguments` is None if it takes any number of arguments."""

    usage: str
    run: Callable[..., Number]
    min_arguments: int = 1
    max_arguments: int | None = 1

    def takes(self, count: int) -> bool:
        """Return whether it takes that many arguments."""
        return count >= self.min_arguments and (self.max_arguments is None or count <= self.max_arguments)


_UNIT = "a number from -1 to 1"
_FUNCTIONS = (
    Function("sqrt(x)", root),
    Function("cbrt(x)", lambda x: root(x, 3)),
    Function("root(x, n)", root, 1, 2),
    Function("abs(x)", abs),
    Function("sign(x)", lambda x: (x > 0) - (x < 0)),
    Function("round(x, decimals)", round_half_up, 1, 2),
    *(Function(f"{name}(x)", getattr(math, name)) for name in ("floor", "ceil", "trunc")),
    Function("int(x)", math.trunc),
    Function("float(x)", lambda x: x),
    Function("min(a, b, ...)", lambda *xs: min(xs), 1, None),
    Function("max(a, b, ...)", lambda *xs: max(xs), 1, None),
    Function("sum(a, b, ...)", _total, 1, None),
    *(Function(f"{name}(a, b, ...)", _mean, 1, None) for name in ("mean", "avg", "average")),
    Function("median(a, b, ...)", _median, 1, None),
    Function("ln(x)", _python_logarithm),
    Function("math.log(x) to base e, or math.log(x, base)", _python_logarithm, 1, 2),
    Function("log(x) to base 10, or log(x, base)", logarithm, 1, 2),
    Function("log10(x)", logarithm),
    Function("log2(x)", lambda x: logarithm(x, 2)),
    Function("sin(radians)", _on_floats(math.sin)),
    Function("cos(radians)", _on_floats(math.cos)),
    Function("tan(radians)", _tangent),
    Function("asin(x)", _on_floats(math.asin, _UNIT)),
    Function("acos(x)", _on_floats(math.acos, _UNIT)),
    *(Function(f"{name}(x)", _on_floats(getattr(math, name))) for name in ("exp", "atan", "sinh", "cosh", "tanh")),
    Function("atan2(y, x)", lambda y, x: math.atan2(to_float(y), to_float(x)), 2, 2),
    Function("degrees(radians)", _on_floats(math.degrees)),
    Function("radians(degrees)", _on_floats(math.radians)),
    Function("hypot(a, b)", lambda *xs: root(_total(*(multiply(x, x) for x in xs))), 1, None),
    Function("gcd(a, b)", lambda *xs: math.gcd(*(to_whole(x, "gcd") for x in xs)), 1, None),
    Function("lcm(a, b)", _least_common_multiple, 1, None),
    Function("comb(n, k)", combine, 2, 2),
    Function("perm(n, k)", lambda n, k: combine(n, k, True), 2, 2),
    Function("factorial(n)", factorial),
    Function("mod(a, b)", modulo, 2, 2),
    Function("pow(x, n)", power, 2, 2),
)
FUNCTIONS = {function.usage.partition("(")[0]: function for function in _FUNCTIONS}
CONSTANTS: dict[str, Number] = {
    "pi": math.pi,
    "e": math.e,
    "tau": math.tau,
    **dict.fromkeys(("deg", "degree", "degs"), math.pi / 180),
    "rad": 1,
    "percent": Fraction(1, 100),
}


def format_number(x: Number, *, full: bool = False) -> str:
    """Return a number as text: a whole one exactly, another with 12 significant digits, or more so that a large one
    still has two decimals. `full` gives every digit of a 64-bit float (15 to 17) instead of 12.

    No trailing zeros; an exponent only below 1e-7 and above 1e21.
    """
    if isinstance(x, float) and x.is_integer() and abs(x) < 1e15:
        x = int(x)
    if isinstance(x, int):
        return str(x)
    before = len(str(abs(math.trunc(x)))) if isinstance(x, Fraction) else 0
    if full:
        x = to_float(x)
    context = Context(prec=max(FULL_DIGITS if full else DIGITS, before + 2), rounding=ROUND_HALF_EVEN)
    value = context.create_decimal(repr(x)) if isinstance(x, float) else context.divide(x.numerator, x.denominator)
    value = value.normalize(context)
    if value == 0:
        return "0"
    if value.adjusted() > -8 and (not isinstance(x, float) or value.adjusted() <= 21):
        return f"{value:f}"
    return f"{value:e}".replace("e+", "e")


def shorten_number(x: Number) -> str:
    """Write a number in at most 40 characters, for an error message."""
    return cut_text(format_number(x), 40)
