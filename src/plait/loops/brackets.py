"""Finds the bracket that closes an input such as `search[what [it] means]`.

All patterns have bounded or possessive repeats, so each is linear in the text.
"""

from __future__ import annotations

import re

_ESCAPED = r"\\[^\n]"
_DOUBLE = r'"(?:[^"\\\n]++|\\[^\n])*+"'
_SINGLE = r"(?<!\w)'(?:[^'\\\n]++|\\[^\n])*+'(?!\w)"
_BRACKETS = (
    re.compile(rf"{_ESCAPED}|{_DOUBLE}|{_SINGLE}|[\[\]]"),
    re.compile(rf"{_ESCAPED}|{_DOUBLE}|[\[\]]"),
    re.compile(r"[\[\]]"),
)
# Also without brackets that are signs of the text: `what [ means`, the interval `[0, 1)`.
_LONE = re.compile(rf"{_ESCAPED}|\[(?:[ \t]|[^\[\]()\n]{{0,80}}\))|[ \t]\]|[\[\]]")
_NOTHING_MORE = re.compile(r"[ \t.,;*_`]*+(?:\r?\n|\Z|#[ \t])")


def close_of_bracket(text: str, start: int) -> int | None:
    """Return where the bracket that was opened before `start` is closed; None if it never is.

    Brackets in strings do not count. Strings cannot be recognised for certain (an apostrophe, an inch), so the first
    reading counts after which the line is empty.
    """
    first: int | None = None
    for pattern in (*_BRACKETS, _LONE):
        if first is not None and pattern is _LONE:
            break
        depth, close = 1, None
        for match in pattern.finditer(text, start):
            depth += {"[": 1, "]": -1}.get(match[0], 0)
            if not depth:
                close = match.start()
                break
        if close is not None and _NOTHING_MORE.match(text, close + 1):
            return close
        first = close if pattern is _BRACKETS[0] else first
    return first
