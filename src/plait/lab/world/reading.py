"""Reads a message leniently: dates in any form, numbers with units, words and emoji of the sky."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

_SHORT = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

_MONTH = (
    r"(?P<n>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_HOUR = r"(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_UNIT = r"(?![\d/]|\.\d|\s*(?:°|℃|[CF]\b|degrees|mm|km|%))"
_FORMS = (
    rf"\b(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}}){_HOUR}",
    r"\b(?P<a>\d{1,2})(?P<sep>[-/.])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4}|\d\d)\b",
    rf"\b{_DAY}[-\s]*(?:of\s+)?{_MONTH}(?:,?[-\s]+(?P<y>\d{{4}}))?\b",
    rf"\b{_MONTH}\s+{_DAY}\b(?!\d|\.\d)(?:,?\s+(?P<y>\d{{4}}))?",
    rf"(?<![\d.,/])(?P<a>\d{{1,2}})/(?P<b>\d{{1,2}}){_UNIT}",
)
"""2023-04-07 (and a time), 07/04/2023, 7 April 2023, April 7, 2023, 4/7."""
_DATES = [re.compile(form, re.I) for form in _FORMS]
_TIME = re.compile(r"\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\s*(?:[ap]\.?m\b\.?)?|\b\d{1,2}\s?(?:am|pm)\b", re.I)
_ADDRESS = re.compile(r"https?://\S+")
_LIST_NUMBER = re.compile(r"(?m)^\s*\(?\d{1,2}[.):](?=\s)")
_NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:,\d{3})+(?:\.\d+)?|(?<![\w.])[-−+]?\d+(?:\.\d+)?")
_UNITS = re.compile(
    r"""\s*(?:(?P<F>°?\s?F\b|degrees\s+F|℉|fahrenheit)|(?P<C>°\s?C\b|C\b|℃|degrees?\s+C|celsius)
    |(?P<speed>km/h|kmh|kph|mph|m/s|knots?|kn\b|kilomet)|(?P<share>%)|(?P<mm>mm\b|millimet|cm\b|in(ch(es)?)?\b)
    |(?P<deg>°|degrees?))""",
    re.I | re.X,
)


class FoundDate(NamedTuple):
    """A date in a text: where it begins and ends, the days it may mean, whether its year is given. `weak`: it may not
    be a date, because 14/7 can also be a high and a low."""

    start: int
    end: int
    days: tuple[date, ...]
    year: bool
    weak: bool


class FoundNumber(NamedTuple):
    """A number in a text: as written, its value and decimals, where it begins, and the unit that follows.

    The unit is F, C, speed, share, mm, deg (of either kind), or "" for none.
    """

    text: str
    value: float
    decimals: int
    start: int
    unit: str

    def is_one_of(self, known: Iterable[float], slack: float = 0.0) -> bool:
        """Return whether it is a known value, as rounded, or within `slack` of one, for values that were converted."""
        return any(is_rounded(self.value, self.decimals, each) or abs(self.value - each) <= slack for each in known)


def find_dates(text: str, year: int) -> list[FoundDate]:
    """Find the dates in a text, in any usual form; `year` completes those without one. 4/7 may be April or July."""
    found: list[FoundDate] = []
    for form in _DATES:
        for match in form.finditer(text):
            if any(match.start() < other.end and other.start < match.end() for other in found):
                continue
            part = match.groupdict()
            said = part.get("y")
            full = int(said or year) + (2000 if said and len(said) == 2 else 0)
            if "a" in part:
                pairs = [(int(part["b"]), int(part["a"])), (int(part["a"]), int(part["b"]))]
            elif "n" in part:
                pairs = [(_SHORT.index(part["n"][:3].capitalize()) + 1, int(part["d"]))]
            else:
                pairs = [(int(part["m"]), int(part["d"]))]
            days = tuple(dict.fromkeys(day for pair in pairs if (day := _make_date(full, *pair)) is not None))
            if days:
                found.append(FoundDate(*match.span(), days, bool(said), "a" in part and not said))
    return sorted(found)


def _make_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def find_weekdays(text: str) -> list[int]:
    """Find the weekdays that a text names (Monday is 0): by their whole names, or short right before a date."""
    named = re.findall(r"\b(mon|tues|wednes|thurs|fri|satur|sun)day\b", text, re.I)
    named += re.findall(rf"\b(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)[.,]?\s+(?=\d|(?:{'|'.join(_SHORT)}))", text)
    return [i for name in named for i, day in enumerate(DAYS) if day.startswith(name.lower()[:3])]


def find_numbers(text: str, days: Iterable[date] = ()) -> list[FoundNumber]:
    """Find the numbers in a text, except those of dates, times, addresses and lists. 4/7 is a date if it may mean one
    of `days`, otherwise it is two numbers."""
    known = set(days)
    rest = text
    for found in find_dates(text, min(known).year if known else 2000):
        if not found.weak or known.intersection(found.days):
            rest = rest[: found.start] + " " * (found.end - found.start) + rest[found.end :]
    for pattern in (_TIME, _ADDRESS, _LIST_NUMBER):
        rest = pattern.sub(lambda match: " " * len(match[0]), rest)
    numbers = []
    for match in _NUMBER.finditer(rest):
        written = match[0].replace(",", "").replace("−", "-")
        # 3-4 and 10-12: a hyphen between two numbers is not a minus
        if written[0] == "-" and rest[: match.start()].rstrip()[-1:].isdigit():
            written = written[1:]
        unit = _UNITS.match(text, match.end())
        decimals = len(written.partition(".")[2])
        name = (unit.lastgroup or "") if unit else ""
        numbers.append(FoundNumber(match[0], float(written), decimals, match.start(), name))
    return numbers


def is_rounded(value: float, decimals: int, known: float) -> bool:
    """Return whether a number is the known one, rounded to these decimals (half up or half down)."""
    return abs(value - known) <= 0.5 * 0.1**decimals + 1e-9


def find_words(text: str) -> set[str]:
    """Return the words of a text that carry meaning, folded: four letters and more, without the commonest."""
    return {word for word in re.findall(r"[^\W\d_]{4,}", text.casefold()) if not _COMMON.fullmatch(word)}


_COMMON = re.compile(
    "this|that|with|from|have|been|were|they|their|there|these|those|about|which|what|when|where|while|will|would|could|"
    "into|than|then|them|some|more|most|such|only|also|over|under|after|before|your|here|image|picture|photo|astronomy|"
    "nasa|today|hello|space|shows|show|view|seen|very|just|like|other|each|both|between"
)


_EMOJI: dict[str, str] = {
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
_SKY: tuple[tuple[Iterable[int], str, str], ...] = (
    ((0,), "sun bright", "sun"),
    ((1,), "sun bright part", "sun"),
    ((2,), "part bright cloud", "cloud"),
    ((3,), "cloud part", "cloud"),
    ((45, 48), "fog", "fog"),
    (range(51, 56), "rain shower", "drizzle rain"),
    ((56, 57), "rain shower snow", "drizzle rain"),
    ((61, 80), "rain shower", "rain drizzle"),
    ((62, 63, 64, 65, 81, 82), "rain shower", "rain"),
    ((66, 67), "rain shower snow", "rain"),
    ((*range(71, 78), 85, 86), "snow", "snow"),
    (range(95, 100), "storm", "storm"),
)
"""WMO weather codes, with the emoji meanings and the words that fit them."""
_SKY_WORDS: dict[str, str] = {
    "sun": r"\b(clear|sunny|sunshine)\b",
    "cloud": r"cloud(y|s)?\b|overcast|gr[ea]y",
    "fog": r"fog|mist|rime|haz[ey]",
    "drizzle": r"drizzl",
    "rain": r"\brain(y|s|ing|fall)?\b|shower",
    "snow": r"snow|sleet|flurr",
    "storm": r"thunder|\bstorm|lightning",
}
_MILLIMETRES = r"(no|without|chance of) rain(fall)?|rain(fall)?\s*[:=]?\s*\d|\d\s*mm of rain"
"""An amount of rain, which does not describe the sky."""


def find_emoji(text: str) -> list[str]:
    """Return the meanings of the weather emoji in a text, in order."""
    return [kind for character in text for kind, several in _EMOJI.items() if character in several]


def fitting_emoji(code: int) -> set[str]:
    """Return the meanings of emoji that fit a weather code."""
    return next(set(emoji.split()) for codes, emoji, _ in _SKY if code in codes)


def bearable_emoji(code: int) -> set[str]:
    """Return the meanings of emoji that are not wrong beside a fitting one."""
    beside = fitting_emoji(code) | {"rainbow", "wind"}
    if code not in (0, 1):
        beside |= {"cloud"}
    if code >= 95:
        beside |= {"rain", "shower"}
    if code in (1, 2):
        beside |= {"sun"}
    return beside


def says_sky(text: str, code: int, described: str = "") -> bool | None:
    """Return whether a text's words fit a weather code; None if it has no words about the sky. `described` are the
    service's words for the code, which always fit."""
    if described and described.casefold() in text.casefold():
        return True
    rest = re.sub(_MILLIMETRES, " ", text, flags=re.I)
    said = {kind for kind, pattern in _SKY_WORDS.items() if re.search(pattern, rest, re.I)}
    if (code == 3 and re.search(r"part(ly|ially)", rest, re.I)) or (code == 2 and re.search(r"overcast", rest, re.I)):
        return False
    right = next(set(words.split()) for codes, _, words in _SKY if code in codes)
    return bool(said & right) if said else None
