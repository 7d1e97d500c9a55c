"""Text that others wrote, made safe to look at: what can't be seen is shown, what is long is cut."""

from __future__ import annotations

import json
import re
from typing import Any

LONG = 4_000
"""Characters of one text of a record that the page holds."""
SHORT = 300
"""The same for what a cell tells when it is pointed at."""

# What is not seen or turns the direction of what is: control characters (not tab and newline), direction marks,
# blanks of no width, line separators, halves of surrogate pairs, and the tag letters that text is hidden in. The
# joiners U+200C and U+200D stay: scripts and pictograms need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with the number of each hidden character in its place: `[U+202E]`."""
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def cut(text: str, most: int = LONG) -> tuple[str, int]:
    """The text's beginning, made visible, and how many characters are left out."""
    return visible(text[:most]), max(0, len(text) - most)


def brief(text: str, most: int = SHORT) -> str:
    """The same as one text."""
    shown, missing = cut(text, most)
    return f"{shown} … ({missing:,} more characters)" if missing else shown


def plain(value: Any) -> str:
    """Any JSON value as text: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def block(value: Any) -> str:
    """JSON that can stand in an HTML script element: nothing in it can end that element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
