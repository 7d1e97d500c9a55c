"""What stands in a message, read as leniently as a person would: dates in any form, numbers in any unit, emoji."""

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
_NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:,\d{3})+(?:\.\d+)?|(?<![\w.])[-−+]?\d+(?:\.\d+)?")


class Found(NamedTuple):
    """A date that was found: from where to where in the text, the days it may mean, whether its year is said, and
    whether it may as well be no date: 14/7 is a high and a low, too."""

    start: int
    end: int
    days: tuple[date, ...]
    year: bool
    weak: bool


def dates(text: str, year: int) -> list[Found]:
    """The dates in a text, in any usual form; `year` is taken where none is said. 4/7 may be April or July."""
    found: list[Found] = []
    taken = bytearray(len(text))
    for form in _DATES:
        for match in form.finditer(text):
            if any(taken[match.start() : match.end()]):
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
            days = tuple(dict.fromkeys(day for day in (_day(full, *each) for each in pairs) if day is not None))
            if days:
                found.append(Found(match.start(), match.end(), days, bool(said), "a" in part and not said))
                taken[match.start() : match.end()] = b"\1" * (match.end() - match.start())
    return sorted(found)


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def weekdays(text: str) -> list[int]:
    """The weekdays that a text names, Monday is 0: by their whole names, or short right before a date."""
    named = re.findall(r"\b(mon|tues|wednes|thurs|fri|satur|sun)day\b", text, re.I)
    named += re.findall(rf"\b(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)[.,]?\s+(?=\d|(?:{'|'.join(_SHORT)}))", text)
    return [i for name in named for i, day in enumerate(DAYS) if day.startswith(name.lower()[:3])]


def numbers(text: str, days: Iterable[date] = ()) -> list[tuple[float, int, int, int]]:
    """The numbers in a text but for those of dates and times: value, decimals, from where to where.

    4/7 is a date when it may mean one of `days`, else it is two numbers.
    """
    known = set(days)
    kept, at = [], 0
    for found in dates(text, min(known).year if known else 2000):
        if not found.weak or known.intersection(found.days):
            kept += [text[at : found.start], " " * (found.end - found.start)]
            at = found.end
    text = "".join(kept) + text[at:]
    text = _TIME.sub(lambda match: " " * len(match[0]), text)
    text = re.sub(r"https?://\S+", lambda match: " " * len(match[0]), text)
    text = re.sub(r"(?m)^\s*\(?\d{1,2}[.):](?=\s)", lambda match: " " * len(match[0]), text)  # the numbers of a list
    read = []
    for match in _NUMBER.finditer(text):
        written = match[0].replace(",", "").replace("−", "-")
        # 3-4 and 10-12: a hyphen between two numbers is no minus
        if written[0] == "-" and text[: match.start()].rstrip()[-1:].isdigit():
            written = written[1:]
        read.append((float(written), len(written.partition(".")[2]), match.start(), match.end()))
    return read


def agrees(said: float, decimals: int, known: float) -> bool:
    """A number is the known one, rounded as it was said (half up or half down, both are right)."""
    return abs(said - known) <= 0.5 * 0.1**decimals + 1e-9


def words(text: str) -> set[str]:
    """The words of a text that carry meaning, folded: four letters and more, without the commonest."""
    return {word for word in re.findall(r"[^\W\d_]{4,}", text.casefold()) if not _COMMON.fullmatch(word)}


_COMMON = re.compile(
    "this|that|with|from|have|been|were|they|their|there|these|those|about|which|what|when|where|while|will|would|could|"
    "into|than|then|them|some|more|most|such|only|also|over|under|after|before|your|here|image|picture|photo|astronomy|"
    "nasa|today|hello|space|shows|show|view|seen|very|just|like|other|each|both|between"
)
