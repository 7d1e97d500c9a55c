"""Text for terminals and pipes: cleaned of control characters, shortened, numbers in words."""

from __future__ import annotations

import json
from typing import Any

from plait.core.text import clean as clean

SHOWN = 2000
"""Characters of an observation that are shown while a run goes on."""


def one_line(text: str) -> str:
    """The text cleaned, its line ends kept (a message may have several lines), blanks at its ends gone."""
    return clean(text).strip()


def cut(text: str, most: int | None = SHOWN) -> tuple[str, str]:
    """The text's beginning and a note of what is missing, "" where nothing is. `most` None: all of it."""
    if most is None or len(text) <= most:
        return text, ""
    return text[:most].rstrip(), f"({len(text) - most:,} more characters)"


def as_json(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON that can be written anywhere; letters as themselves where they can be."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: only its escape can be written
        text = json.dumps(value, indent=indent, default=str)
    return text


def brief_json(value: Any) -> str:
    """A tool's input on one line: text as it is when there is nothing else, otherwise JSON."""
    return "" if value is None else as_json(value)


def tokens(usage: Any) -> str:
    """`812 + 45 tokens (600 cached)`; `about` where the provider did not report them."""
    about = "about " if usage.estimated else ""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"{about}{usage.input_tokens:,} + {usage.output_tokens:,} tokens{cached}"


def money(usd: float | None) -> str:
    """`0.00012 USD`, or that the price is not known."""
    if usd is None:
        return "price not known"
    return "0 USD" if usd == 0 else f"{usd:.5f} USD" if usd >= 0.00001 else f"{usd:.2g} USD"


def duration(seconds: float) -> str:
    """`1.2 s`, `340 ms`, `2 min 5 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def count(number: int, word: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")
