"""More tasks of the six kinds: other towns, channels, shares, days and dates, made from a seed.

They are data: the same seed gives the same tasks, each with the world it is meant for.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import partial

from plait.lab.world.chance import chance
from plait.lab.world.places import TOWNS, Town
from plait.lab.world.state import CHANNELS
from plait.lab.world.stocks import SYMBOLS
from plait.lab.world.tasks import WorldTask

_EACH = 5
"""Variations of a kind in `VARIATIONS`."""


_DATE_QUESTIONS = ("Which date is it today?", "Print today's date.", "Tell me the current date with its year.")
_WEATHER_QUESTIONS = (
    "Send the weather as it is right now at my location {}.",
    "What is the weather like here at the moment? Post it {}.",
)
_FORECAST_QUESTION = (
    "Send the weather forecast of {} for the next {} days {}, with the date of each day and an emoji that fits its "
    "weather."
)
_PICTURE_QUESTION = (
    "Get the astronomy picture of the day, shrink it to half its size and send it {} with a message that begins with "
    "'Hello from Space!' and says more about the picture."
)
_STOCK_QUESTION = (
    "Find the week of the last 3 months in which {} had its lowest closing price, and send its date and price {}."
)


def make_variations(seed: int, each: int = _EACH) -> tuple[WorldTask, ...]:
    """Make `each` tasks of every kind, named like C3: kind C, third variation. The same for the same seed."""
    return tuple(_make_task(letter, seed, number) for letter in "ABCDEF" for number in range(1, each + 1))


def _make_task(letter: str, seed: int, number: int) -> WorldTask:
    dice = chance(seed, "variation", letter, number)
    channel = "#" + dice.choice(CHANNELS)
    home = dice.choice([place for place in TOWNS if _has_unique_name(place)])
    now = date(2022, 6, 1) + timedelta(days=dice.randrange(0, 1100))
    world = f"world:{dice.randrange(1, 10_000)},now={now},here={home.label}"
    to = dice.choice(("discord", channel))
    where = "to Discord" if to == "discord" else f"to the Slack channel {channel}"
    make = partial(WorldTask, f"{letter}{number}", world=world)
    match letter:
        case "A":
            return make("date", dice.choice(_DATE_QUESTIONS))
        case "B":
            return make("weather", dice.choice(_WEATHER_QUESTIONS).format(where), to)
        case "C":
            place = dice.choice(TOWNS).label
            return make("weather", f"Send the current weather of {place} {where}.", to, place)
        case "D":
            days = dice.choice((3, 4, 5, 6))
            place = dice.choice(("", dice.choice(TOWNS).label))
            return make("forecast", _FORECAST_QUESTION.format(place or "my location", days, where), to, place, days)
        case "E":
            return make("picture", _PICTURE_QUESTION.format(where), to)
    symbol = dice.choice(sorted(SYMBOLS))
    who = dice.choice((symbol, f"{SYMBOLS[symbol][0]} ({symbol})"))
    return make("stock", _STOCK_QUESTION.format(who, where), to, symbol=symbol)


def _has_unique_name(town: Town) -> bool:
    return sum(each.name == town.name for each in TOWNS) == 1


VARIATIONS = make_variations(1)
"""Five of each kind, 30 in all."""
