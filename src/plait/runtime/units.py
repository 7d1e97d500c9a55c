"""Numbers that convert units in a formula (metres and kilometres, hours and days), told from guessed values."""

from __future__ import annotations

import re
from collections.abc import Set

_NUMBERS = r"10{1,4}|10{6}|10{9}|0\.0?01|12|24|60|365|3600"
"""Other powers of ten are what an unknown area is guessed at."""
_ROUND = r"10{1,3}"
_CONVERTING = re.compile(rf"[*/]\s*({_NUMBERS})(?![\d.,]*\d)|(?<![\d.,])({_NUMBERS})\s*[*/]")
_GUESSED = re.compile(
    rf"(?<![\d.,])\d{{1,18}}\s*\*\s*({_ROUND})(?![\d.,]*\d)|(?<![\d.,])({_ROUND})\s*\*\s*\d{{1,18}}(?![\d.]*\d)"
)
_WORDS = {
    "percent", "percentage", "%", "cent", "mm", "cm", "m", "km", "mg", "g", "kg", "ml", "l", "ton", "tonne", "second",
    *(f"{scale}{unit}" for scale in ("", "milli", "centi", "kilo")
      for unit in ("metre", "meter", "gram", "litre", "liter", "watt", "byte")),
}  # fmt: skip


def are_named(words: Set[str]) -> bool:
    """There is talk of units."""
    return not words.isdisjoint(_WORDS)


def converting(formula: str) -> set[str]:
    """What a formula multiplies with, or divides by, to convert units; as it is written."""
    return {each for match in _CONVERTING.finditer(formula) for each in match.groups() if each}


def guessed(formula: str) -> set[str]:
    """The 10, 100 and 1000 that a formula multiplies a whole number with. Where there is no talk of units they convert
    nothing: so an unknown price is guessed."""
    found = () if "/" in formula else _GUESSED.finditer(formula)
    return {each for match in found for each in match.groups() if each}


def converts(number: str, *, whole: bool) -> bool:
    """A number that something is multiplied with, or divided by, converts units. `whole`: it is a whole number that is
    multiplied, and there is no talk of units."""
    return re.fullmatch(_NUMBERS, number) is not None and not (whole and re.fullmatch(_ROUND, number))
