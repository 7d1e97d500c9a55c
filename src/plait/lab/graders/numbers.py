"""The numbers of a text, read exactly: commas, currency signs, per cent, fractions, powers of ten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from msgspec import Struct

from plait.lab.graders.words import text_of

CLOSE = Fraction(5, 100_000)
"""The usual tolerance, relative to the gold number: half a ten-thousandth."""

_NUMBER = re.compile(
    r"""(?P<sign>(?<![\w)\]])[-−])?
    (?:[$€£¥₹]\s?)?
    (?P<digits>\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d])(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\d.])\.\d+)
    (?P<power>[eE][-+]?\d{1,3}(?!\w))?
    (?:\ ?/\ ?(?P<under>\d{1,15})(?![\d/]|\.\d))?
    (?P<share>\s?(?:%|percent\b|per\ cent\b))?""",
    re.VERBOSE,
)
_MIXED = re.compile(r"(?<![\d.,/])(\d{1,9}) (\d{1,9})/(\d{1,9})(?![\d/]|\.\d)")
_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_LATEX = ((r"\\d?frac\{(-?[\d.]+)\}\{(-?[\d.]+)\}", r" \1/\2"), (r"\{,\}", ","), (r"\\([$%,])", r"\1"))

_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_POWER_OF_TEN = re.compile(
    r"""(?<![\w.])(?:(?P<factor>\d[\d,]*(?:\.\d+)?)\s?(?:[×xX*·⋅]|\\times|\\cdot)\s?)?
    10(?:\s?(?:\^|\*\*)\s?(?P<brace>\{)?\(?(?P<exponent>[-−+]?\d{1,3})\)?(?(brace)\})|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3}))
    (?![\d⁰¹²³⁴⁵⁶⁷⁸⁹]|\.\d)""",
    re.VERBOSE,
)
"""A power of ten as people write it: 1.9 × 10^27, 1.9×10²⁷, 1.9*10**27, 10^27 and their LaTeX."""


class Read(Struct, frozen=True):
    """A number as it was read; `share` says that a per cent sign stood behind it."""

    value: Fraction
    share: bool = False

    @property
    def values(self) -> tuple[Fraction, ...]:
        """What it may mean: 20 % is 20, and 0.2."""
        return (self.value, self.value / 100) if self.share else (self.value,)


def numbers(text: str) -> list[Read]:
    """The numbers of a text, in order."""
    return list(_numbers(text))


def last_number(value: Any) -> Fraction | None:
    """The last number of an answer (None: it has none), as `last` reads it."""
    read = last(value)
    return read.value if read is not None else None


def last(value: Any) -> Read | None:
    """The number that an answer ends with, as the evaluators of GSM8K take it.

    Where it marks its answer, the number there: the first behind `####`, the last in a LaTeX box.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return exactly(value)
    text = text_of(value)
    _, mark, behind = text.rpartition("####")
    if mark and (found := numbers(behind)):
        return found[0]
    boxes = _BOX.findall(text)
    found = (numbers(boxes[-1]) if boxes else []) or numbers(text)
    return found[-1] if found else None


def exactly(value: int | float) -> Read | None:
    """A JSON number as it is written; None for one that is none (infinite)."""
    try:
        return Read(Fraction(repr(value)))
    except ValueError:
        return None


def close(read: Read, gold: Read, tolerance: Fraction = CLOSE) -> bool:
    """The number is the gold one, within the tolerance times the gold one's size."""
    return any(abs(a - b) <= tolerance * abs(b) for a in read.values for b in gold.values)


def _numbers(text: str) -> Iterator[Read]:
    for pattern, instead in _LATEX:
        text = re.sub(pattern, instead, text)
    text = _MIXED.sub(_one, _POWER_OF_TEN.sub(_with_exponent, text))
    at = 0
    while match := _NUMBER.search(text, at):
        at = match.end()
        if len(match["digits"]) > 400:  # more digits than any answer has, and than fit a number quickly
            continue
        value = Fraction(match["digits"].replace(",", "") + (match["power"] or ""))
        if match["under"] is not None and int(match["under"]) and not _dated(text, match.start()):
            value /= int(match["under"])
        elif match["under"] is not None:
            at = match.start("under")  # no fraction: 3/4/2024 are three numbers
            yield Read(-value if match["sign"] else value)
            continue
        yield Read(-value if match["sign"] else value, match["share"] is not None)


def _dated(text: str, start: int) -> bool:
    return start > 0 and text[start - 1] == "/"


def _with_exponent(match: re.Match[str]) -> str:
    """1.9 × 10^27 as 1.9e27."""
    exponent = match["exponent"] or match["raised"].translate(_SUPERSCRIPT)
    return f"{match['factor'] or 1}e{exponent.replace('−', '-')}"


def _one(match: re.Match[str]) -> str:
    """1 1/2 as one fraction, 3/2, where what stands behind is less than one."""
    whole, over, under = map(int, match.groups())
    return f"{whole * under + over}/{under}" if 0 < over < under else match[0]
