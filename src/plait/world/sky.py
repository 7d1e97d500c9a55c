"""The sky in a message: what its weather emoji and its words say, and what fits a WMO weather code."""

from __future__ import annotations

import re

SKY: dict[str, str] = {
    "sun": "☀🌞🔆😎🌅🌄",
    "bright": "🌤",
    "part": "⛅🌥",
    "cloud": "☁",
    "fog": "🌫🌁",
    "rain": "🌧☔🌂☂💧💦",
    "shower": "🌦",
    "snow": "❄🌨☃⛄🧊",
    "storm": "⛈🌩⚡",
    "rainbow": "🌈",
    "wind": "💨🌬",
    "twister": "🌪",
}
"""Emoji of the weather, by what they show."""

_NEUTRAL = {"rainbow", "wind"}


def shown(text: str) -> list[str]:
    """What the weather emoji in a text show, in order."""
    return [kind for character in text for kind, several in SKY.items() if character in several]


def fitting(code: int) -> set[str]:
    """What an emoji may show that fits a weather code."""
    if code in (0, 1):
        return {"sun", "bright"} if code == 0 else {"sun", "bright", "part"}
    if code == 2:
        return {"part", "bright", "cloud"}
    if code == 3:
        return {"cloud", "part"}
    if code in (45, 48):
        return {"fog"}
    if code in (56, 57, 66, 67):
        return {"rain", "shower", "snow"}
    if 51 <= code <= 65 or 80 <= code <= 82:
        return {"rain", "shower"}
    if 71 <= code <= 77 or code in (85, 86):
        return {"snow"}
    return {"storm"}


def bearable(code: int) -> set[str]:
    """What an emoji may show beside a fitting one without saying something wrong."""
    beside = {*fitting(code), *_NEUTRAL}
    if code not in (0, 1):
        beside |= {"cloud"}
    if code >= 95:
        beside |= {"rain", "shower"}
    if code in (1, 2):
        beside |= {"sun"}
    return beside


_SAID: dict[str, str] = {
    "sun": r"\b(clear|sunny|sunshine)\b",
    "cloud": r"cloud(y|s)?\b|overcast|gr[ea]y",
    "fog": r"fog|mist|rime|haz[ey]",
    "drizzle": r"drizzl",
    "rain": r"\brain(y|s|ing|fall)?\b|shower",
    "snow": r"snow|sleet|flurr",
    "storm": r"thunder|\bstorm|lightning",
}
_MILLIMETRES = r"(no|without|chance of) rain(fall)?|rain(fall)?\s*[:=]?\s*\d|\d\s*mm of rain"
"""How much rain there is, which is no word on the sky."""


def says(text: str, code: int, described: str = "") -> bool | None:
    """A text's words fit a weather code: True; they say another weather: False; they say none: None.

    `described` are the service's words for the code, which fit whatever else is said.
    """
    if described and described.casefold() in text.casefold():
        return True
    rest = re.sub(_MILLIMETRES, " ", text, flags=re.I)
    said = {kind for kind, pattern in _SAID.items() if re.search(pattern, rest, re.I)}
    if (code == 3 and re.search(r"part(ly|ially)", rest, re.I)) or (code == 2 and re.search(r"overcast", rest, re.I)):
        return False
    return bool(said & _right(code)) if said else None


def _right(code: int) -> set[str]:
    if code in (0, 1):
        return {"sun"}
    if code == 2:
        return {"cloud"}
    if code == 3:
        return {"cloud"}
    if code in (45, 48):
        return {"fog"}
    if 51 <= code <= 57:
        return {"drizzle", "rain"}
    if 61 <= code <= 67 or 80 <= code <= 82:
        return {"rain"} if code not in (61, 80) else {"rain", "drizzle"}
    if 71 <= code <= 77 or code in (85, 86):
        return {"snow"}
    return {"storm"}
