"""Values as they pass between the worker and the process that holds it: JSON with what JSON lacks. Stdlib only.

None, bool, float, str, list and small int stand for themselves; everything else is an object with one key, which
says what it is. Read strictly: what comes from the worker is not trusted.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable
from typing import Any

DEPTH = 50
"""How deep values may be nested."""

BITS = 13_000
"""How long an integer may be (13,000 bits are 3,900 digits: Python writes no more than 4,300)."""

CROSSING = "None, bool, int, float, str, bytes, list, tuple, dict, set, date, datetime, timedelta and handles"


def pack(value: Any, handle: Callable[[Any], str | None], depth: int = DEPTH) -> Any:
    """A value as JSON has it. `handle` gives an object's token, None when it has none. Raises `TypeError` for what
    can't cross, `ValueError` for what is too deep or too long."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        value = int(value)
        if value.bit_length() > BITS:
            raise ValueError(f"an integer of {value.bit_length()} bits is too long to pass on (at most {BITS})")
        return value if value.bit_length() < 60 else {"int": hex(value)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if depth <= 0:
        raise ValueError(f"a value nested more than {DEPTH} deep can't be passed on")
    deeper = depth - 1
    if isinstance(value, list):
        return [pack(one, handle, deeper) for one in value]
    if isinstance(value, dict):
        return {"dict": [[pack(key, handle, deeper), pack(one, handle, deeper)] for key, one in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [pack(one, handle, deeper) for one in value]}
    if isinstance(value, (set, frozenset)):
        return {"set": [pack(one, handle, deeper) for one in value]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    token = handle(value)
    if token is None:
        raise TypeError(f"a value of type {type(value).__name__} can't be passed on; what can: {CROSSING}")
    return {"handle": token}


def unpack(data: Any, handle: Callable[[str], Any], depth: int = DEPTH + 2) -> Any:
    """The value that `pack` wrote. `handle` gives the object of a token. Raises `ValueError` (or `TypeError`,
    `OverflowError`, `KeyError`) for what `pack` never writes."""
    if data is None or isinstance(data, (bool, int, float)):
        return data
    if isinstance(data, str):
        return clean(data)
    if depth <= 0:
        raise ValueError("nested too deep")
    deeper = depth - 1
    if isinstance(data, list):
        return [unpack(one, handle, deeper) for one in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError("no value")
    ((kind, inner),) = data.items()
    if kind in ("dict", "tuple", "set", "timedelta"):
        if not isinstance(inner, list):
            raise ValueError(f"{kind} of no list")
        if kind == "dict":
            return {unpack(key, handle, deeper): unpack(one, handle, deeper) for key, one in inner}
        if kind == "timedelta":
            return datetime.timedelta(*(int(one) for one in inner))
        parts = [unpack(one, handle, deeper) for one in inner]
        return tuple(parts) if kind == "tuple" else set(parts)
    if not isinstance(inner, str):
        raise ValueError(f"{kind} of no text")
    if kind == "int":
        if len(inner) > BITS // 4 + 4:
            raise ValueError("an integer too long")
        return int(inner, 16)
    if kind == "bytes":
        return base64.b64decode(inner, validate=True)
    if kind == "datetime":
        return datetime.datetime.fromisoformat(inner)
    if kind == "date":
        return datetime.date.fromisoformat(inner)
    if kind == "handle":
        return handle(inner)
    raise ValueError(f"no kind of value: {kind[:20]}")


def clean(text: str) -> str:
    """The text with what is no character (half of a surrogate pair) replaced, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")
