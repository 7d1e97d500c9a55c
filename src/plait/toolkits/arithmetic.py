"""Numbers for the calculator: exact where they can be, floats where they must be, bounded in size.

Theory of operation. A number is an int or a `Fraction` as long as only + - * / and powers with exact
results were used, so that 0.1 + 0.2 is 0.3. A function such as sin gives a float, and what is computed
with a float is one. Whole numbers are exact up to `MAX_DIGITS` digits and refused beyond; a fraction that
would need more digits than that becomes a float. So no input can make an operation slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException
from fractions import Fraction
from typing import TypeAlias

Number: TypeAlias = int | Fraction | float

MAX_DIGITS = 4000
DIGITS = 12
"""Significant digits shown of a number that is not whole."""
FULL_DIGITS = 17
"""Digits that tell every 64-bit float apart."""

_MAX_BITS = int(MAX_DIGITS * math.log2(10))
_WIDE = Context(prec=40)
_TOO_LONG = f"the result has more than {MAX_DIGITS:,} digits"


class Trouble(Exception):
    """An operation that has no result; the text says why, without saying where."""


def settle(x: Number) -> Number:
    """`x` in its plainest type and within bounds. Raises `Trouble` when it is too large."""
    if isinstance(x, float):
        if not math.isfinite(x):
            raise Trouble("the result is too large")
        return x
    if isinstance(x, Fraction):
        if x.denominator != 1:
            if max(x.numerator.bit_length(), x.denominator.bit_length()) > _MAX_BITS:
                return to_float(x)
            return x
        x = x.numerator
    if x.bit_length() > _MAX_BITS:
        raise Trouble(_TOO_LONG)
    return x


def to_float(x: Number) -> float:
    """`x` as a float. Raises `Trouble` when no float is that large."""
    try:
        return float(x)
    except OverflowError:
        raise Trouble("the number is too large for this") from None


def whole(x: Number, what: str) -> int:
    """`x` as an int. Raises `Trouble` when it is not whole; `what` says what needs one."""
    if isinstance(x, int):
        return x
    if isinstance(x, float) and x.is_integer():
        return int(x)
    raise Trouble(f"{what} needs a whole number, not {brief(x)}")


def _pair(a: Number, b: Number) -> bool:
    return isinstance(a, float) or isinstance(b, float)


def add(a: Number, b: Number) -> Number:
    return settle(to_float(a) + to_float(b) if _pair(a, b) else a + b)


def subtract(a: Number, b: Number) -> Number:
    return settle(to_float(a) - to_float(b) if _pair(a, b) else a - b)


def multiply(a: Number, b: Number) -> Number:
    return settle(to_float(a) * to_float(b) if _pair(a, b) else a * b)


def divide(a: Number, b: Number) -> Number:
    if b == 0:
        raise Trouble("division by zero")
    if isinstance(a, float) or isinstance(b, float):
        try:
            return settle(to_float(a) / to_float(b))
        except ZeroDivisionError:
            raise Trouble("division by zero") from None
    return settle(Fraction(a) / b)


def floor_divide(a: Number, b: Number) -> Number:
    return settle(math.floor(divide(a, b)))


def modulo(a: Number, b: Number) -> Number:
    """The remainder, with the sign of `b`."""
    if b == 0:
        raise Trouble("division by zero")
    return settle(to_float(a) % to_float(b) if _pair(a, b) else a % b)


def power(a: Number, b: Number) -> Number:
    """`a` to the power `b`; exact where the result is. An odd root of a negative number is real."""
    if a == 0 and b < 0:
        raise Trouble("division by zero (0 to a negative power)")
    if isinstance(b, float):
        if a < 0 and not b.is_integer():
            raise Trouble(f"a negative number to the power {brief(b)} is not a real number")
        return _wide_power(a, b)
    if isinstance(b, int):
        return _whole_power(a, b)
    p, q = b.numerator, b.denominator
    if a < 0:
        if q % 2 == 0:
            raise Trouble(f"a negative number to the power {brief(b)} is not a real number")
        positive = power(-a, b)
        return -positive if p % 2 else positive
    if not isinstance(a, float) and q <= 64:
        root = _exact_root(a, q)
        if root is not None:
            return _whole_power(root, p)
    return _wide_power(a, b)


def _whole_power(a: Number, b: int) -> Number:
    if isinstance(a, float):
        return _wide_power(a, b)
    if a in (0, 1):
        return 1 if b == 0 else a
    if a == -1:
        return -1 if b % 2 else 1
    size = max(abs(a.numerator), a.denominator)
    if b.bit_length() > 60 or abs(b) * math.log2(size) > _MAX_BITS + 1:
        if isinstance(a, int) and b > 0:
            raise Trouble(_TOO_LONG)
        return _wide_power(a, b)
    return settle(Fraction(a) ** b)


def _wide_power(a: Number, b: Number) -> Number:
    """By logarithm, with forty digits on the way so that compound interest keeps its twelve."""
    try:
        result = float(_WIDE.power(_decimal(a), _decimal(b)))
    except DecimalException:
        raise Trouble("the result is too large or too small") from None
    if result == 0 and a != 0:
        raise Trouble("the result is too small")
    return settle(result)


def _decimal(x: Number) -> Decimal:
    if isinstance(x, Fraction):
        return _WIDE.divide(Decimal(x.numerator), Decimal(x.denominator))
    return Decimal(x)


def _exact_root(x: int | Fraction, n: int) -> Number | None:
    """The n-th root of x >= 0 where it is rational, else None."""
    top, bottom = _whole_root(x.numerator, n), _whole_root(x.denominator, n)
    return None if top is None or bottom is None else settle(Fraction(top, bottom))


def _whole_root(x: int, n: int) -> int | None:
    if x < 2:
        return x
    if n == 2:
        r = math.isqrt(x)
    else:
        r = 1 << -(-x.bit_length() // n)
        while True:  # Newton from above, which falls until it is the floor of the root
            s = ((n - 1) * r + x // r ** (n - 1)) // n
            if s >= r:
                break
            r = s
    return r if r**n == x else None


def root(x: Number, n: Number = 2) -> Number:
    """The n-th root of x."""
    if n == 0:
        raise Trouble("there is no root number 0")
    if x < 0 and n == 2:
        raise Trouble("the square root of a negative number is not a real number")
    return power(x, divide(1, n))


def factorial(x: Number) -> Number:
    n = whole(x, "factorial")
    if n < 0:
        raise Trouble("factorial needs a number that is not negative")
    if n > 2000:
        raise Trouble(_TOO_LONG)
    return settle(math.factorial(n))


def choose(x: Number, y: Number, ordered: bool = False) -> Number:
    """Ways to take y of x things: in any order, or each order on its own when `ordered`."""
    n, k = whole(x, "a count"), whole(y, "a count")
    if n < 0 or k < 0:
        raise Trouble("comb and perm need numbers that are not negative")
    if k > n:
        return 0
    if not ordered:
        k = min(k, n - k)
    # Their logarithm, from Stirling's side, says whether it is worth computing at all.
    if k > 20_000:
        raise Trouble(_TOO_LONG)
    bits = sum(math.log2(n - i) - (0 if ordered else math.log2(i + 1)) for i in range(k))
    if bits > _MAX_BITS + 1:
        raise Trouble(_TOO_LONG)
    return settle(math.perm(n, k) if ordered else math.comb(n, k))


def rounded(x: Number, places: Number = 0) -> Number:
    """To `places` decimals (negative: tens, hundreds ...), halves away from zero, as taught in school."""
    n = whole(places, "the number of decimals")
    if abs(n) > 1000:
        raise Trouble("round takes at most 1,000 decimals")
    exact = Fraction(repr(x)) if isinstance(x, float) else Fraction(x)
    scaled = abs(exact) * Fraction(10) ** n
    near = math.floor(scaled + Fraction(1, 2)) / Fraction(10) ** n
    return settle(near if exact >= 0 else -near)


def logarithm(x: Number, base: Number = 10) -> Number:
    """To a base, 10 when none is given. Exact where the result is whole."""
    if x <= 0:
        raise Trouble("a logarithm needs a number above 0")
    if base <= 0 or base == 1:
        raise Trouble("the base of a logarithm must be above 0 and not 1")
    below = natural(base)
    if below == 0:
        raise Trouble("the base of a logarithm is too near 1")
    value = natural(x) / below
    near = round(value)
    close = abs(value - near) < 1e-9 and abs(near) <= _MAX_BITS
    if close and not _pair(x, base) and power(base, near) == x:
        return near
    return settle(value)


def python_logarithm(x: Number, base: Number | None = None) -> Number:
    """What `math.log` of Python gives: to base e when no base is given."""
    if base is not None:
        return logarithm(x, base)
    return 0 if x == 1 else natural(x)


def natural(x: Number) -> float:
    """The logarithm to base e, of whole numbers of any size."""
    if x <= 0:
        raise Trouble("a logarithm needs a number above 0")
    if isinstance(x, Fraction):
        try:
            return math.log(x)
        except (OverflowError, ValueError):  # beyond a float, or so small that it becomes 0
            return math.log(x.numerator) - math.log(x.denominator)
    return math.log(x)


def by_float(function: Callable[[float], float], wants: str = "") -> Callable[[Number], Number]:
    """`function` on floats as a function on numbers; `wants` says what it can be given."""

    def run(x: Number) -> Number:
        try:
            value = function(to_float(x))
        except ValueError:
            raise Trouble(f"this function needs {wants}, not {brief(x)}") from None
        except OverflowError:
            raise Trouble("the result is too large") from None
        # sin(pi) is 1.2e-16 only because pi is cut at sixteen digits.
        return settle(0.0 if function in _CIRCULAR and abs(value) < 1e-15 else value)

    return run


def tangent(x: Number) -> Number:
    angle = to_float(x)
    if abs(math.cos(angle)) < 1e-15:
        raise Trouble("the tangent has no value there")
    return by_float(math.tan)(angle)


_CIRCULAR = (math.sin, math.cos, math.tan)


def show(x: Number, *, full: bool = False) -> str:
    """The number as text: whole ones exact, others to 12 significant digits, or more so that a large one
    still has two decimals. `full` gives every digit of a 64-bit float (15 to 17) instead of 12.
    No trailing zeros; an exponent only below 1e-7 and above 1e21."""
    if isinstance(x, float) and x.is_integer() and abs(x) < 1e15:
        x = int(x)
    if isinstance(x, int):
        return str(x)
    before = len(str(abs(math.trunc(x)))) if isinstance(x, Fraction) else 0
    if full:
        x = to_float(x)
    context = Context(prec=max(FULL_DIGITS if full else DIGITS, before + 2), rounding=ROUND_HALF_EVEN)
    if isinstance(x, float):
        value = context.create_decimal(repr(x))
    else:
        value = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    value = value.normalize(context)
    if value == 0:
        return "0"
    if value.adjusted() > -8 and (isinstance(x, Fraction) or value.adjusted() <= 21):
        return f"{value:f}"
    return f"{value:e}".replace("e+", "e")


def brief(x: Number) -> str:
    """The number as text that fits an error message."""
    text = show(x)
    return text if len(text) <= 40 else f"{text[:37]}..."
