"""What a query may call: SQLite's plain functions; those of time by a given clock, those without bounds bounded."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

_CLOCKS = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")
_TODAY = {"current_date": "date", "current_time": "time", "current_timestamp": "datetime"}
_PLAIN = """
abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh count cume_dist
degrees dense_rank exp first_value floor format group_concat hex ifnull iif instr json json_array json_array_length
json_extract json_group_array json_group_object json_object json_quote json_type json_valid lag last_value lead length
like ln log log10 log2 lower ltrim max min mod nth_value ntile nullif percent_rank pi pow power printf quote radians
random rank replace round row_number rtrim sign sin sinh sqrt string_agg substr substring sum tan tanh timediff total
trim trunc typeof unhex unicode upper -> ->>
"""
FUNCTIONS = frozenset((*_PLAIN.split(), *_CLOCKS, *_TODAY))
_ISO = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,9})\d*)?)?)?(?:Z|\+00:?00| UTC)?")


def functions(database: sqlite3.Connection, plain: sqlite3.Connection, now: datetime) -> None:
    """SQLite's functions of time with 'now' as it is given, and those that could run on for long, bounded."""
    if now.tzinfo is not None:
        now = now.astimezone(UTC).replace(tzinfo=None)
    moment = now.isoformat(" ", "milliseconds")

    def same(name: str, given: list[Any]) -> Any:
        return plain.execute(f"SELECT {name}({', '.join('?' * len(given))})", given).fetchone()[0]

    def clock(name: str) -> Callable[..., Any]:
        at = 1 if name == "strftime" else 0

        def called(*values: Any) -> Any:
            given = list(values)
            if len(given) <= at:
                given.append(moment)
            elif isinstance(given[at], str) and given[at].strip().lower() == "now":
                given[at] = moment
            return same(name, given)

        return called

    def printf(*values: Any) -> Any:
        if values and isinstance(values[0], str) and re.search(r"\*|\d{5}", values[0]):
            raise ValueError("a width is too large")
        return same("printf", list(values))

    for name in _CLOCKS:
        database.create_function(name, -1, clock(name), deterministic=True)
    for name, of in _TODAY.items():
        database.create_function(name, 0, clock(of), deterministic=True)
    for name in ("printf", "format"):
        database.create_function(name, -1, printf, deterministic=True)
    for count in (2, 3):
        database.create_function("like", count, _like, deterministic=True)


def _like(pattern: Any, text: Any, escape: str | None = None) -> bool | None:
    """LIKE without its exponential time: between two % stands a part of fixed length, and the first place is best."""
    if pattern is None or text is None:
        return None
    text = str(text)
    parts: list[str] = [""]
    characters = iter(str(pattern))
    for character in characters:
        if escape and character == escape:
            parts[-1] += re.escape(next(characters, ""))
        elif character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    compiled = [re.compile(part, re.IGNORECASE | re.DOTALL) for part in parts]
    if len(parts) == 1:
        return compiled[0].fullmatch(text) is not None
    at = 0
    for i, part in enumerate(compiled[:-1]):
        found = part.match(text) if i == 0 else part.search(text, at)
        if found is None:
            return False
        at = found.end()
    ending = re.compile(f"(?:{parts[-1]})\\Z", re.IGNORECASE | re.DOTALL)
    last = ending.search(text, at)
    return last is not None


def compare(left: str, right: str) -> int:
    """Which of two dates or times is the earlier: -1, 0, 1. Other texts compare as texts."""
    if len(left) == len(right) == 10:  # two dates in their usual form
        return (left > right) - (left < right)
    a, b = _moment(left), _moment(right)
    return (a > b) - (a < b)


@lru_cache(maxsize=4096)
def _moment(text: str) -> str:
    """A date or time in one form that sorts as text; anything else as it is."""
    read = _ISO.fullmatch(text)
    if read is None:
        return text
    year, month, day, hour, minute, second, part = read.groups(default="0")
    return f"{year}-{month:0>2}-{day:0>2} {hour:0>2}:{minute}:{second:0>2}.{part:0<9}".replace(":0:", ":00:")
