"""Grades messages with the weather: now, and of the next days."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date, timedelta
from typing import TYPE_CHECKING

from plait.world import reading, sky, weather
from plait.world.grades import Findings, fahrenheit, no_other_date, other_towns, said, unit
from plait.world.places import PLACES, Place, place_of
from plait.world.state import Sent, World

if TYPE_CHECKING:
    from plait.world.tasks import WorldTask


def weather_now(task: WorldTask, world: World, sent: Sent, found: Findings) -> None:
    """Temperature and sky of the right place, every number from the world, a named place named."""
    place, text = _place(task, world), sent.text
    now = weather.now(world.seed, place.latitude, place.longitude, world.now)
    day = world.forecast(place.latitude, place.longitude, 1)[0]
    described = world.described(now.code)
    warm = [now.temperature]
    range_ = [day.warmest, day.coldest]
    wind = [now.wind, now.wind / 1.609344, now.wind / 3.6, now.wind / 1.852]
    cell = weather.cell(place.latitude, place.longitude)
    where = [place.latitude, place.longitude, *cell, world.height(place.latitude, place.longitude)]
    known = {
        "F": [fahrenheit(each) for each in (*warm, *range_)],
        "C": [*warm, *range_],
        "deg": [*warm, *range_, now.direction, *where],
        "speed": wind,
        "mm": [day.precipitation, day.precipitation / 25.4],
        "share": [],
    }
    temperature = False
    asked = [each for each, *_ in reading.numbers(task.question)]
    for number, decimals, start, end in reading.numbers(text, [world.today]):
        kind = unit(text, end)
        fits = known.get(kind) if kind else [*warm, *range_, *wind, now.direction, *where, now.code, now.is_day, *asked]
        right = said(number, decimals, fits or [], 1 if kind == "F" else 0)
        if right and kind in ("C", "deg", ""):
            direction = kind != "C" and re.search(r"wind|direction|from\s*$", text[max(0, start - 24) : start], re.I)
            temperature |= said(number, decimals, warm) and not direction
        elif right and kind == "F":
            temperature |= said(number, decimals, [fahrenheit(now.temperature)], 1)
        if not right:
            found.flaws.append(f"{text[start:end].strip()} is not from the world")
    words = sky.says(text, now.code, described)
    if not temperature:
        found.flaws.append(f"the temperature ({now.temperature} °C) is not said")
    if words is not True:
        found.flaws.append(f"the sky ({described}) is {'said wrong' if words is False else 'not said'}")
    if not temperature and words is not True:
        found.lacks.append("the message does not have the weather")
    _named(task, place, text, found)
    no_other_date(world, text, [world.today], found)


def _named(task: WorldTask, place: Place, text: str, found: Findings) -> None:
    """A place that the task names is named, and no other."""
    right = f"{place.label} {place.zones} {place.address}"
    if task.place and not re.search(rf"\b{re.escape(place.name)}\b", text, re.I):
        found.flaws.append(f"{place.name} is not named")
    found.flaws.extend(f"{name} is named" for name in other_towns(text, right))
    for other in PLACES:
        if other.name == place.name and other != place:
            for word in {other.zones.rpartition(", ")[2], other.country} - {place.country, place.name}:
                if word not in right and re.search(rf"\b{re.escape(word)}\b", text):
                    found.flaws.append(f"{word} is named")


def forecast(task: WorldTask, world: World, sent: Sent, found: Findings) -> None:
    """As many days as asked for, from today or tomorrow on; each with its date, its weather and a fitting emoji."""
    place, text = _place(task, world), sent.text
    week = {day.date: day for day in world.forecast(place.latitude, place.longitude, 7)}
    head, parts = segments(text, world.today.year, set(week))
    first = world.today if world.today in parts else world.today + timedelta(days=1)
    wanted = [first + timedelta(days=n) for n in range(task.days)]
    right = 0
    for on in wanted:
        if on not in parts:
            found.flaws.append(f"{on} is missing")
            continue
        right += _day_right(world, week[on], on, parts[on], found)
    if right <= task.days // 2:
        found.lacks.append(f"the weather of {right} of {task.days} days is right")
    extra = sorted(on for on in parts if on not in wanted)
    if extra:
        found.flaws.append(f"{', '.join(map(str, extra))} was not asked for")
    no_other_date(world, text, list(week), found)
    asked = [*(each for each, *_ in reading.numbers(task.question)), task.days, place.latitude, place.longitude]
    for number, decimals, start, end in reading.numbers(head, week):
        if not said(number, decimals, [*asked, *weather.cell(place.latitude, place.longitude)]):
            found.flaws.append(f"{head[start:end].strip()} is not from the world")
    _named(task, place, text, found)


def _day_right(world: World, day: weather.Day, on: date, part: str, found: Findings) -> bool:
    """Is the weather of one day right? Its flaws are found besides."""
    described = world.described(day.code)
    known = [day.warmest, day.coldest, day.precipitation]
    figures = 0
    for number, decimals, start, end in reading.numbers(part, [on]):
        kind = unit(part, end)
        fits = {
            "F": [fahrenheit(each) for each in known[:2]],
            "C": known[:2],
            "deg": known[:2],
            "mm": [day.precipitation, day.precipitation / 25.4, day.precipitation / 10],
        }.get(kind, [*known, day.code] if not kind else [])
        if said(number, decimals, fits, 1 if kind == "F" else 0):
            figures += kind in ("F", "C", "deg", "") and said(
                number, decimals, [*known[:2], *map(fahrenheit, known[:2])], 1 if kind == "F" else 0
            )
        else:
            found.flaws.append(f"{part[start:end].strip()} on {on} is not from the world")
    words = sky.says(part, day.code, described)
    if words is False:
        found.flaws.append(f"the weather of {on} ({described}) is said wrong")
    elif words is None and not figures:
        found.flaws.append(f"the weather of {on} is not said")
    shown = sky.shown(part)
    if not sky.fitting(day.code) & set(shown):
        found.flaws.append(f"no emoji of {on} fits {described!r}")
    elif bad := [kind for kind in shown if kind not in sky.bearable(day.code)]:
        found.flaws.append(f"an emoji of {on} ({bad[0]}) does not fit {described!r}")
    named = reading.weekdays(part[:60])
    if named and on.weekday() not in named:
        found.flaws.append(f"{on} is called a {reading.DAYS[named[0]].capitalize()}")
    return words is True or (words is None and figures > 0)


def segments(text: str, year: int, wanted: set[date]) -> tuple[str, dict[date, str]]:
    """What a message says before its first day, and what it says of each day, by date.

    A day's part begins with its line, or with the emoji or weekday right before its date.
    """
    mentions: dict[date, list[int]] = {}
    for start, _, days, *_ in reading.dates(text, year):
        # 8/4 may be the 8th of April or the 4th of August: the one that is wanted is meant
        if (on := next((day for day in days if day in wanted), None)) is not None:
            mentions.setdefault(on, []).append(start)
    lines = Counter(_line(text, start) for several in mentions.values() for start in several)

    def worth(start: int) -> int:
        """A date alone on its line, with weather on it, rather than one in a heading of several."""
        line = _line(text, start)
        if lines[line] > 1:
            return 0
        said = text[slice(*line)]
        return 1 + bool(sky.shown(said) or sky.says(said, 0) is not None)

    marks = sorted((max(several, key=lambda start: (worth(start), -start)), on) for on, several in mentions.items())
    begins = [_line(text, start)[0] for start, _ in marks]
    cuts = [
        begins[i] if begins.count(begins[i]) == 1 and len(marks) > 1 else _back(text, start, begins[i])
        for i, (start, _) in enumerate(marks)
    ]
    parts = {on: text[cuts[i] : cuts[i + 1] if i + 1 < len(cuts) else len(text)] for i, (_, on) in enumerate(marks)}
    if len(marks) > 1 and not any("\n\n" in parts[on].strip() for _, on in marks[:-1]):
        parts[marks[-1][1]] = parts[marks[-1][1]].strip().partition("\n\n")[0]  # what follows is no day's
    return text[: cuts[0]] if cuts else text, parts


def _line(text: str, at: int) -> tuple[int, int]:
    """From where to where the line goes that a place in a text is in."""
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


_LEAD = re.compile(r"(?:[^\w.,;|]|(?:mon|tues|wednes|thurs|fri|satur|sun)day,?|on\b)*$", re.I)


def _back(text: str, start: int, floor: int) -> int:
    """Where a day begins whose date is at `start`: before the emoji and weekday that lead to it."""
    lead = re.search(
        r"(?:[^\w\s.,;|]|[\s*(]|(?:mon|tues|wednes|thurs|fri|satur|sun)day,?|on\b)*$", text[floor:start], re.I
    )
    return floor + lead.start() if lead else start


def _place(task: WorldTask, world: World) -> Place:
    place = place_of(task.place) if task.place else world.home
    assert place is not None, task.place
    return place
