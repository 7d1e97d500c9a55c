"""What a grade is, what a grader is told, and what all graders check: who got the message, and whose numbers it has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from plait.world.places import PLACES, search
from plait.world.reading import agrees, dates, numbers
from plait.world.state import Sent, World

Mark: TypeAlias = Literal["done", "flaw", "not done"]


SHOWN = 5
"""Reasons that are told of a grade as text."""


class Grade(Struct, frozen=True):
    """How well a task was done, and in words why it is no better: "" and nothing when it is done."""

    mark: Mark
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = {"flaw": "done with a flaw"}.get(self.mark, self.mark)
        shown = "; ".join(self.why[:SHOWN]) + (f"; and {len(self.why) - SHOWN} more" if len(self.why) > SHOWN else "")
        return f"{told}: {shown}" if shown else told


class Told(Struct, frozen=True):
    """What is told of a run beside the world's state: the answer, what code printed, values that a check of the
    record flagged as invented, and the date on the clock that the code could read, where that is not the world's."""

    answer: Any = None
    printed: str = ""
    flagged: tuple[str, ...] = ()
    clock: date | None = None


class Findings:
    """What speaks against a message: `lacks` so that the task is not done, `flaws` so that it is done with a flaw."""

    def __init__(self) -> None:
        self.lacks: list[str] = []
        self.flaws: list[str] = []

    def grade(self) -> Grade:
        """The grade that follows."""
        mark: Mark = "not done" if self.lacks else "flaw" if self.flaws else "done"
        return Grade(mark, tuple(dict.fromkeys([*self.lacks, *self.flaws])))

    @property
    def badness(self) -> tuple[int, int]:
        """For finding the best of several messages."""
        return len(self.lacks), len(self.flaws)


def addressed(world: World, to: str, found: Findings) -> list[Sent]:
    """The messages that went where the task said: `discord`, or a Slack channel's name with its `#`."""
    wanted = world.channels[to.removeprefix("#")] if to.startswith("#") else ""
    service = "slack" if wanted else "discord"
    right = [sent for sent in world.sent if (sent.service, sent.channel) == (service, wanted)]
    if not right:
        names = {number: f"#{name}" for name, number in world.channels.items()}
        others = ", ".join(dict.fromkeys(names.get(sent.channel, "Discord") for sent in world.sent))
        where = to if wanted else "Discord"
        found.lacks.append(f"nothing was sent to {where}" + (f" (but to {others})" if others else ""))
    elif len(world.sent) > 1:
        found.flaws.append(f"{len(world.sent)} messages were sent, one was asked for")
    return right


def invented(world: World, question: str, told: Told, found: Findings) -> None:
    """Values that nothing said: those a check of the record flagged, and coordinates the world gave to nobody."""
    found.flaws.extend(f"{value} was invented" for value in told.flagged)
    known = {round(each, 6) for each, *_ in numbers(question)}
    for did in world.did:
        if did.tool == "search_location_geocoordinates" and not did.error:
            for place in search(did.given["location_name"]):
                known |= {place.latitude, place.longitude}
        elif did.tool == "get_user_location":
            known |= {world.home.latitude, world.home.longitude}
        elif did.tool in ("get_current_weather", "get_daily_weather_forecast"):
            for name in ("latitude", "longitude"):
                value = float(did.given.get(name, 0))
                decimals = len(repr(value).partition(".")[2])
                if not any(agrees(value, max(1, decimals), each) for each in known):
                    found.flaws.append(f"the {name} {value} was invented")


UNITS = re.compile(
    r"""\s*(?:(?P<F>°?\s?F\b|degrees\s+F|℉|fahrenheit)|(?P<C>°\s?C\b|C\b|℃|degrees?\s+C|celsius)
    |(?P<speed>km/h|kmh|kph|mph|m/s|knots?|kn\b|kilomet)|(?P<share>%)|(?P<mm>mm\b|millimet|cm\b|in(ch(es)?)?\b)
    |(?P<deg>°|degrees?))""",
    re.I | re.X,
)


def unit(text: str, end: int) -> str:
    """The unit that follows a number: F, C, speed, share, mm, deg (of either kind), "" for none."""
    match = UNITS.match(text, end)
    return match.lastgroup or "" if match else ""


def fahrenheit(celsius: float) -> float:
    return celsius * 9 / 5 + 32


def said(number: float, decimals: int, known: Iterable[float], slack: float = 0.0) -> bool:
    """The number is one of the known values, as rounded; `slack` more for those that were converted."""
    return any(agrees(number, decimals, each) or abs(number - each) <= slack for each in known)


def other_towns(text: str, right: str) -> list[str]:
    """The towns of the gazetteer that a text names, but for those in `right`."""
    names = dict.fromkeys(place.name for place in PLACES)
    return [name for name in names if name not in right and re.search(rf"\b{re.escape(name)}\b", text)]


def no_other_date(world: World, text: str, right: Iterable[date], found: Findings) -> None:
    """No date but these stands in a text."""
    known = set(right)
    for each in dates(text, world.today.year):
        if not each.weak and not known.intersection(each.days):
            found.flaws.append(f"the date {text[each.start : each.end]} is wrong")
