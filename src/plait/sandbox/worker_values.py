"""Lossless JSON for values between code and Plait, in the journal, and for tools. Stdlib only.

None, bool, finite float, str, list, small int and dicts with text keys are written as they are. Any other value is an
object with one key that begins with `$` and names the type, as in `{"$tuple": [1, 2]}`. A dict with a key of this form
is written as pairs. Reading is strict, because the worker is not trusted.
"""

from __future__ import annotations

import base64
import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any

DEPTH = 50
"""Maximum nesting of values."""

RESULT_DEPTH = 70
"""Maximum nesting of a tool's result, deeper than `simplify` leaves it: after an effect no result is an error."""

BITS = 13_000
"""Maximum bits of an integer (13,000 bits are 3,900 digits; Python prints at most 4,300)."""

CROSSING = (
    "None, bool, int, float, str, bytes, list, tuple, dict, set, date, datetime, time, timedelta, Decimal, Fraction, "
    "UUID and handles"
)

_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "$bytes": (bytes, lambda v: base64.b64encode(v).decode(), lambda t: base64.b64decode(t, validate=True)),
    "$bytearray": (
        bytearray,
        lambda v: base64.b64encode(v).decode(),
        lambda t: bytearray(base64.b64decode(t, validate=True)),
    ),
    "$datetime": (datetime.datetime, lambda v: v.isoformat(), datetime.datetime.fromisoformat),
    "$date": (datetime.date, lambda v: v.isoformat(), datetime.date.fromisoformat),
    "$time": (datetime.time, lambda v: v.isoformat(), datetime.time.fromisoformat),
    "$decimal": (Decimal, str, Decimal),
    "$fraction": (Fraction, str, Fraction),
    "$figures": (type(None), str, lambda text: Figures(text)),
    "$uuid": (uuid.UUID, str, uuid.UUID),
}
"""Types that are written as text, with both conversions. A subclass comes before its base."""

_LISTS: dict[str, type] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}


class Figures(str):
    """A numeric text from a table, such as "14.50". Multiplying it, or adding it to another one, raises an error that
    says it is text, because repeating or joining digits is never meant."""

    def __mul__(self, other: Any) -> Any:
        raise TypeError(f"can't multiply '{self}', it is a str: use float('{self}')")

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Figures):
            raise TypeError(f"can't add '{self}' and '{other}', each is a str: use float() on both")
        return str.__add__(self, other)


class Budget:
    """How many values may pass, including nested ones, how deep, and whether `Figures` keep their type."""

    def __init__(self, items: int = 1 << 62, depth: int = DEPTH, figures: bool = False) -> None:
        self.items, self.max_items, self.depth, self.figures = items, items, depth, figures
        self.bytes = 0

    def take(self, many: int) -> None:
        self.items -= many
        if self.items < 0:
            raise ValueError(f"more than {self.max_items:,} values can't be passed on in one call")


def pack(value: Any, handle: Callable[[Any], Any], budget: Budget | None = None, depth: int = 0) -> Any:
    """Return a value as JSON. `handle` returns the JSON of an object that has a handle, None for any other. Raises
    `TypeError` for a value that cannot cross, `ValueError` for one that is too deep, too long or too much."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        plain = str.__str__(value)
        return {"$figures": plain} if budget is not None and budget.figures and type(value) is Figures else plain
    if isinstance(value, int):
        value = int(value)
        if value.bit_length() > BITS:
            raise ValueError(f"an integer of {value.bit_length()} bits is too long to pass on (at most {BITS})")
        return value if value.bit_length() < 60 else {"$int": hex(value)}
    if isinstance(value, float):
        value = float(value)
        return value if isfinite(value) else {"$float": repr(value)}
    budget = budget or Budget()
    if depth >= budget.depth:
        raise ValueError(f"a value nested more than {budget.depth} deep can't be passed on")
    deeper = depth + 1
    if isinstance(value, (list, tuple, set, frozenset)):
        budget.take(len(value))
        parts = [pack(one, handle, budget, deeper) for one in value]
        if isinstance(value, list):
            return parts
        if not isinstance(value, tuple):
            parts.sort(key=repr)  # its order may differ in each process
        elif hasattr(value, "_fields"):  # a named tuple is shown by its fields
            return pack(dict(zip(value._fields, value, strict=True)), handle, budget, deeper)
        return {next(kind for kind, known in _LISTS.items() if isinstance(value, known)): parts}
    if isinstance(value, dict):
        budget.take(2 * len(value))
        if "$thing" in value:
            raise TypeError("a dict with the key '$thing' can't be passed on: pass the object itself")
        if all(type(key) is str and key[:1] != "$" for key in value):
            return {key: pack(one, handle, budget, deeper) for key, one in value.items()}
        return {
            "$dict": [[pack(k, handle, budget, deeper), pack(one, handle, budget, deeper)] for k, one in value.items()]
        }
    if isinstance(value, datetime.timedelta):
        return {"$timedelta": [value.days, value.seconds, value.microseconds]}
    for kind, (known, write, _) in _TEXTS.items():
        if isinstance(value, known):
            return {kind: write(value)}
    stands = handle(value)
    if stands is None:
        raise TypeError(f"a value of type {type(value).__name__} can't be passed on; what can: {CROSSING}")
    return stands


def unpack(data: Any, handle: Callable[[dict[str, Any]], Any], depth: int = RESULT_DEPTH + 2) -> Any:
    """Return the value that `pack` wrote. `handle` returns the object of a handle. Raises `ValueError` (or `TypeError`,
    `ArithmeticError`, `KeyError`) for anything that `pack` never writes."""
    if data is None or isinstance(data, (bool, int, float)):
        return data
    if isinstance(data, str):
        return clean(data)
    if depth <= 0:
        raise ValueError("nested too deep")
    deeper = depth - 1
    if isinstance(data, list):
        return [unpack(one, handle, deeper) for one in data]
    if not isinstance(data, dict):
        raise ValueError("no value")
    kind = next(iter(data), "")
    if kind[:1] != "$":
        return {_plain(key): unpack(one, handle, deeper) for key, one in data.items()}
    if kind in ("$handle", "$thing"):
        return handle(data)
    if len(data) != 1:
        raise ValueError("no value")
    inner = data[kind]
    if kind in _LISTS or kind in ("$dict", "$timedelta"):
        if not isinstance(inner, list):
            raise ValueError(f"{kind} of no list")
        if kind == "$dict":
            pairs = {unpack(key, handle, deeper): unpack(one, handle, deeper) for key, one in inner}
            if "$thing" in pairs:
                raise ValueError("a dict that passes for a handle")
            return pairs
        if kind == "$timedelta":
            return datetime.timedelta(*(int(one) for one in inner))
        return _LISTS[kind](unpack(one, handle, deeper) for one in inner)
    if not isinstance(inner, str) or (kind != "$bytes" and kind != "$bytearray" and len(inner) > BITS):
        raise ValueError(f"{kind} of no text")
    if kind == "$int":
        return int(inner, 16)
    if kind == "$float":
        return float(inner)
    if kind in _TEXTS:
        return _TEXTS[kind][2](inner)
    raise ValueError(f"no kind of value: {kind[:20]}")


def _plain(key: str) -> str:
    if key[:1] == "$":
        raise ValueError("a key that stands for a kind")
    return clean(key)


def clean(text: str) -> str:
    """Replace invalid characters (half of a surrogate pair), so that the text can be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")
