"""The graders, one for each kind of task: strict in what a message says, lenient in how.

A task is done if the right message was sent once to the right place. It is not done if nothing was sent, or if the main
content is wrong: another town's weather, another week. It is done with a flaw if a part is missing, wrong or invented.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from plait.lab.world import pictures, stocks, weather
from plait.lab.world.places import TOWNS, Town, find_town, search_towns
from plait.lab.world.reading import (
    DAYS,
    FoundNumber,
    bearable_emoji,
    find_dates,
    find_emoji,
    find_numbers,
    find_weekdays,
    find_words,
    fitting_emoji,
    is_rounded,
    says_sky,
)
from plait.lab.world.state import SentMessage, World
from plait.lab.world.tasks import Findings, RunEvidence, WorldGrade, WorldTask
from plait.toolkits.place_and_weather import describe_weather


def grade_run(task: WorldTask, world: World, evidence: RunEvidence) -> WorldGrade:
    """Grade a run. Of several messages the best counts, and sending several is a flaw."""
    common = Findings()
    if task.kind == "date":
        grade_date(world, evidence, common)
        common.flaws.extend(f"{value} was invented" for value in evidence.flagged)
        return common.grade()
    found = []
    for message in _find_addressed(world, task.to, common):
        found.append(Findings())
        MESSAGE_GRADERS[task.kind](task, world, message, found[-1])
    if not found:
        return common.grade()
    best = min(found, key=lambda each: (len(each.lacks), len(each.flaws)))
    best.flaws[:0] = common.flaws
    _flag_invented(world, task.question, evidence, best)
    return best.grade()


def grade_date(world: World, evidence: RunEvidence, found: Findings) -> None:
    """Grade a date: the answered or printed date must be that of the world's clock (or of the clock that code can
    read)."""
    right = {world.today, *([evidence.clock] if evidence.clock else [])}
    answer = "" if evidence.answer is None else str(evidence.answer)
    in_answer = find_dates(answer, world.today.year)
    dates = [*in_answer, *find_dates(evidence.printed, world.today.year)]
    if not any(right.intersection(each.days) for each in dates):
        found.lacks.append("the current date was neither answered nor printed")
        return
    if not all(right.intersection(each.days) or each.weak for each in in_answer):
        found.flaws.append("the answer names another date")
    if not any(right.intersection(each.days) and each.year for each in dates):
        found.flaws.append("the year is missing")
    named = find_weekdays(answer)
    if named and not {day.weekday() for day in right} & set(named):
        found.flaws.append("the day of the week is wrong")


def grade_weather_now(task: WorldTask, world: World, sent: SentMessage, found: Findings) -> None:
    """Grade the weather now: temperature and sky of the right place, the world's numbers, and the place's name."""
    town, text = _task_town(task, world), sent.text
    now = world.read_weather(town.latitude, town.longitude)
    day = world.forecast(town.latitude, town.longitude, 1)[0]
    described = describe_weather(now.code)
    warmth = [now.temperature, day.warmest, day.coldest]
    wind = [now.wind, now.wind / 1.609344, now.wind / 3.6, now.wind / 1.852]
    cell = weather.find_cell(town.latitude, town.longitude)
    turns = [*warmth, now.direction, town.latitude, town.longitude, *cell, world.height(town.latitude, town.longitude)]
    known = {
        "F": [_to_fahrenheit(each) for each in warmth],
        "C": warmth,
        "deg": turns,
        "speed": wind,
        "mm": [day.precipitation, day.precipitation / 25.4],
        "": [*turns, *wind, now.code, now.is_day, *_asked_numbers(task)],
    }
    temperature = False
    for number in _flag_numbers(text, known, found, [world.today]):
        before = text[max(0, number.start - 24) : number.start]
        if number.unit == "F":
            temperature |= number.is_one_of([_to_fahrenheit(now.temperature)], 1)
        elif number.unit == "C" or not re.search(r"wind|direction|from\s*$", before, re.I):
            temperature |= number.unit in ("C", "deg", "") and number.is_one_of([now.temperature])
    sky = says_sky(text, now.code, described)
    if not temperature:
        found.flaws.append(f"the temperature ({now.temperature} °C) is not said")
    if not sky:
        found.flaws.append(f"the sky ({described}) is {'said wrong' if sky is False else 'not said'}")
    if not temperature and not sky:
        found.lacks.append("the message does not have the weather")
    _flag_towns(task, town, text, found)
    _flag_dates(world, text, [world.today], found)


def grade_forecast(task: WorldTask, world: World, sent: SentMessage, found: Findings) -> None:
    """Grade a forecast: the requested number of days, from today or tomorrow on, each with its weather and an emoji."""
    town, text = _task_town(task, world), sent.text
    week = {day.date: day for day in world.forecast(town.latitude, town.longitude, 7)}
    head, parts = split_days(text, world.today.year, set(week))
    first = world.today if world.today in parts else world.today + timedelta(days=1)
    wanted = [first + timedelta(days=n) for n in range(task.days)]
    right = 0
    for on in wanted:
        if on in parts:
            right += _grade_day(week[on], parts[on], found)
        else:
            found.flaws.append(f"{on} is missing")
    if right <= task.days // 2:
        found.lacks.append(f"the weather of {right} of {task.days} days is right")
    if extra := sorted(on for on in parts if on not in wanted):
        found.flaws.append(f"{', '.join(map(str, extra))} was not asked for")
    _flag_dates(world, text, week, found)
    cell = weather.find_cell(town.latitude, town.longitude)
    _flag_numbers(head, [*_asked_numbers(task), task.days, town.latitude, town.longitude, *cell], found, week)
    _flag_towns(task, town, text, found)


def _grade_day(day: weather.Day, part: str, found: Findings) -> bool:
    """Return whether the weather of one day is right, and collect its flaws."""
    on, described = day.date, describe_weather(day.code)
    warmth = [day.warmest, day.coldest]
    in_fahrenheit = [_to_fahrenheit(each) for each in warmth]
    known = {
        "F": in_fahrenheit,
        "C": warmth,
        "deg": warmth,
        "mm": [day.precipitation, day.precipitation / 25.4, day.precipitation / 10],
        "": [*warmth, day.precipitation, day.code],
    }
    figures = False
    for number in _flag_numbers(part, known, found, [on], f" on {on}"):
        slack = 1 if number.unit == "F" else 0
        figures |= number.unit != "mm" and number.is_one_of([*warmth, *in_fahrenheit], slack)
    sky = says_sky(part, day.code, described)
    if sky is False:
        found.flaws.append(f"the weather of {on} ({described}) is said wrong")
    elif sky is None and not figures:
        found.flaws.append(f"the weather of {on} is not said")
    shown = find_emoji(part)
    if not fitting_emoji(day.code) & set(shown):
        found.flaws.append(f"no emoji of {on} fits {described!r}")
    elif bad := [kind for kind in shown if kind not in bearable_emoji(day.code)]:
        found.flaws.append(f"an emoji of {on} ({bad[0]}) does not fit {described!r}")
    named = find_weekdays(part[:60])
    if named and on.weekday() not in named:
        found.flaws.append(f"{on} is called a {DAYS[named[0]].capitalize()}")
    return sky is True or (sky is None and figures)


def split_days(text: str, year: int, wanted: set[date]) -> tuple[str, dict[date, str]]:
    """Split a message into the text before its first day, and the text of each day, by date. A day's part begins with
    its line, or with the emoji or weekday right before its date."""
    mentions: dict[date, list[int]] = {}
    for start, _, days, *_ in find_dates(text, year):
        # 8/4 may be the 8th of April or the 4th of August: the one that is wanted is meant
        if (on := next((day for day in days if day in wanted), None)) is not None:
            mentions.setdefault(on, []).append(start)
    lines = Counter(_line_around(text, start) for several in mentions.values() for start in several)

    def worth(start: int) -> int:
        """Prefer a date alone on its line, with weather on it, to one in a heading of several."""
        line = _line_around(text, start)
        if lines[line] > 1:
            return 0
        said = text[slice(*line)]
        return 1 + bool(find_emoji(said) or says_sky(said, 0) is not None)

    marks = sorted((max(several, key=lambda start: (worth(start), -start)), on) for on, several in mentions.items())
    begins = [_line_around(text, start)[0] for start, _ in marks]
    cuts = [
        begin if begins.count(begin) == 1 and len(marks) > 1 else _before_date(text, start, begin)
        for begin, (start, _) in zip(begins, marks, strict=True)
    ]
    ends = [*cuts[1:], len(text)]
    parts = {on: text[cut:end] for cut, end, (_, on) in zip(cuts, ends, marks, strict=False)}
    if len(marks) > 1 and not any("\n\n" in parts[on].strip() for _, on in marks[:-1]):
        parts[marks[-1][1]] = parts[marks[-1][1]].strip().partition("\n\n")[0]  # the rest belongs to no day
    return text[: cuts[0]] if cuts else text, parts


def _line_around(text: str, at: int) -> tuple[int, int]:
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


def _before_date(text: str, start: int, floor: int) -> int:
    """Return where the day with the date at `start` begins: before its emoji and weekday."""
    lead = re.search(
        r"(?:[^\w\s.,;|]|[\s*(]|(?:mon|tues|wednes|thurs|fri|satur|sun)day,?|on\b)*$", text[floor:start], re.I
    )
    return floor + lead.start() if lead else start


def grade_picture(task: WorldTask, world: World, sent: SentMessage, found: Findings) -> None:
    """Grade the picture of the day at half its size, with a text that begins as requested and describes the picture."""
    picture, text = world.picture, sent.text.strip()
    greeting = re.match(r"[\s*_\"'“‘~>#]*hello from space\s*[!.]*[*_\"'”’~]*", text, re.I)
    if sent.image is None:
        found.lacks.append("no image was sent")
    elif not pictures.shows_picture(picture, sent.image.data):
        found.lacks.append("the image is not the picture of the day")
    else:
        width, height = sent.image.width, sent.image.height
        sizes = [pictures.measure_picture(picture, large) for large in (False, True)]
        if not any(abs(width - w / 2) <= 1 and abs(height - h / 2) <= 1 for w, h in sizes):
            w, h = sizes[0]
            found.flaws.append(f"the image is {width}x{height}, half of {w}x{h} was asked for")
    if greeting is None:
        where = "stands later" if re.search("hello from space", text, re.I) else "is missing"
        found.flaws.append(f"the message does not begin with 'Hello from Space!', which {where}")
    elif "!" not in greeting[0]:
        found.flaws.append("the greeting has no exclamation mark")
    rest = text[greeting.end() :] if greeting else text
    said_of = find_words(re.sub(re.escape(picture.title), " ", rest, flags=re.I))
    facts = find_words(f"{picture.explanation} {picture.copyright}") - find_words(picture.title)
    if len(said_of & facts) < 3:
        only = picture.title.casefold() in rest.casefold()
        found.flaws.append("nothing but the title is said of the image" if only else "nothing is said of the image")
    known = [number.value for number in find_numbers(f"{picture.explanation} {picture.title}")]
    known += [*pictures.measure_picture(picture, False), *pictures.measure_picture(picture, True), 50, 0.5, 2]
    known += [sent.image.width, sent.image.height] if sent.image is not None else []
    _flag_numbers(rest, known, found)
    service = pictures.describe_picture(picture, world.today)
    for address in re.findall(r"https?://[^\s<>()\"']+", rest):
        if address.rstrip(".,;:!?)>*") not in (service["url"], service["hdurl"]):
            found.flaws.append(f"the address {address} is not from the world")
    written = [day for each in find_dates(picture.explanation, world.today.year) for day in each.days]
    _flag_dates(world, rest, [world.today, *written], found)


def grade_lowest_week(task: WorldTask, world: World, sent: SentMessage, found: Findings) -> None:
    """Grade the week with the lowest close, its date and its price."""
    rows, text = world.weeks(task.symbol), sent.text
    best = stocks.find_lowest_week(rows, world.today, task.months)
    since = world.today - timedelta(days=round(task.months * 30.44))
    monday = best.timestamp - timedelta(days=best.timestamp.weekday())
    week = {monday + timedelta(days=n) for n in range(7)}
    dated = any(week.intersection(each.days) for each in find_dates(text, world.today.year))
    span = {world.today + timedelta(days=n) for n in range(-2, 3)} | {since + timedelta(days=n) for n in range(-6, 7)}
    _flag_dates(world, text, week | span, found)
    known = [value for row in rows if row.timestamp >= since for value in row[1:5]]
    known += [best.volume, task.months, 13, 12, 90, 91, 92, len(rows), *_asked_numbers(task)]
    right = _flag_numbers(text, known, found, week | span)
    priced = any(each.value == best.close or (each.decimals and each.is_one_of([best.close])) for each in right)
    if not dated:
        found.flaws.append(f"the week ({best.timestamp}) is not said")
    if not priced:
        found.flaws.append(f"the price ({best.close}) is not said")
    if not dated and not priced:
        found.lacks.append("the message has neither the week nor its price")
    symbols = set(re.findall(r"\b[A-Z]{2,5}\b", text)) & set(stocks.SYMBOLS)
    found.flaws.extend(f"{symbol} is named" for symbol in sorted(symbols - {task.symbol}))


MESSAGE_GRADERS = {
    "weather": grade_weather_now,
    "forecast": grade_forecast,
    "picture": grade_picture,
    "stock": grade_lowest_week,
}
"""The grader of a message, by the kind of task."""


def _task_town(task: WorldTask, world: World) -> Town:
    town = find_town(task.place) if task.place else world.home
    assert town is not None, task.place
    return town


def _asked_numbers(task: WorldTask) -> list[float]:
    return [number.value for number in find_numbers(task.question)]


def _to_fahrenheit(celsius: float) -> float:
    return celsius * 9 / 5 + 32


def _find_addressed(world: World, to: str, found: Findings) -> list[SentMessage]:
    """Find the messages to the place of the task: `discord`, or a Slack channel's name with its `#`."""
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


def _flag_invented(world: World, question: str, evidence: RunEvidence, found: Findings) -> None:
    """Flag invented values: those that a check of the record found, and coordinates that the world never gave."""
    found.flaws.extend(f"{value} was invented" for value in evidence.flagged)
    known = {round(number.value, 6) for number in find_numbers(question)}
    for call in world.did:
        if call.tool == "search_location_geocoordinates" and not call.error:
            for town in search_towns(call.given["location_name"]):
                known |= {town.latitude, town.longitude}
        elif call.tool == "get_user_location":
            known |= {world.home.latitude, world.home.longitude}
        elif call.tool in ("get_current_weather", "get_daily_weather_forecast"):
            for name in ("latitude", "longitude"):
                value = float(call.given.get(name, 0))
                decimals = len(repr(value).partition(".")[2])
                if not any(is_rounded(value, max(1, decimals), each) for each in known):
                    found.flaws.append(f"the {name} {value} was invented")


def _flag_numbers(
    text: str,
    known: Mapping[str, Iterable[float]] | Iterable[float],
    found: Findings,
    days: Iterable[date] = (),
    where: str = "",
) -> list[FoundNumber]:
    """Flag the numbers that are not among the known ones (by unit, or of any unit), and return the others. If `known`
    is by unit, degrees Fahrenheit may be one off, because they were converted."""
    right = []
    for number in find_numbers(text, days):
        by_unit = isinstance(known, Mapping)
        values = known.get(number.unit, ()) if isinstance(known, Mapping) else known
        if number.is_one_of(values, 1 if by_unit and number.unit == "F" else 0):
            right.append(number)
        else:
            found.flaws.append(f"{number.text}{where} is not from the world")
    return right


def _flag_dates(world: World, text: str, right: Iterable[date], found: Findings) -> None:
    known = set(right)
    for each in find_dates(text, world.today.year):
        if not each.weak and not known.intersection(each.days):
            found.flaws.append(f"the date {text[each.start : each.end]} is wrong")


def _flag_towns(task: WorldTask, town: Town, text: str, found: Findings) -> None:
    """Flag the town of the task if it is not named, and all others that are."""
    right = f"{town.label} {town.zones} {town.address}"
    if task.place and not re.search(rf"\b{re.escape(town.name)}\b", text, re.I):
        found.flaws.append(f"{town.name} is not named")
    wrong = [other.name for other in TOWNS if other.name not in right]
    for other in TOWNS:
        if other.name == town.name and other != town:
            words = {other.zones.rpartition(", ")[2], other.country} - {town.country, town.name}
            wrong += [word for word in words if word not in right]
    named = [name for name in dict.fromkeys(wrong) if re.search(rf"\b{re.escape(name)}\b", text)]
    found.flaws.extend(f"{name} is named" for name in named)
