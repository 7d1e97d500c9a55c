"""More tasks of the six kinds: other towns, channels, shares, days and dates, made from a seed.

They are data: the same seed gives the same tasks, each with the world it is meant for.
"""

from __future__ import annotations

from datetime import date, timedelta

from plait.lab.world.chance import chance
from plait.lab.world.places import TOWNS, Town
from plait.lab.world.state import CHANNELS
from plait.lab.world.stocks import SYMBOLS
from plait.lab.world.tasks import WorldTask

_EACH = 5
"""Variations of a kind in `VARIATIONS`."""


def variations(seed: int, each: int = _EACH) -> tuple[WorldTask, ...]:
    """Makes `each` tasks of every kind, named like C3: kind C, third variation. The same for the same seed."""
    return tuple(_make_task(letter, seed, number) for letter in "ABCDEF" for number in range(1, each + 1))


def _make_task(letter: str, seed: int, number: int) -> WorldTask:
    dice = chance(seed, "variation", letter, number)
    channel = "#" + dice.choice(CHANNELS)
    home = dice.choice([place for place in TOWNS if _has_unique_name(place)])
    now = date(2022, 6, 1) + timedelta(days=dice.randrange(0, 1100))
    world = f"world:{dice.randrange(1, 10_000)},now={now},here={home.label}"
    name = f"{letter}{number}"
    to = dice.choice(("discord", channel))
    where = "to Discord" if to == "discord" else f"to the Slack channel {channel}"
    match letter:
        case "A":
            question = dice.choice(
                ("Which date is it today?", "Print today's date.", "Tell me the current date with its year.")
            )
            return WorldTask(name, "date", question, world=world)
        case "B":
            question = dice.choice(
                (
                    f"Send the weather as it is right now at my location {where}.",
                    f"What is the weather like here at the moment? Post it {where}.",
                )
            )
            return WorldTask(name, "weather", question, to, world=world)
        case "C":
            place = dice.choice(TOWNS)
            return WorldTask(
                name, "weather", f"Send the current weather of {place.label} {where}.", to, place.label, world=world
            )
        case "D":
            days = dice.choice((3, 4, 5, 6))
            where_it_is = dice.choice(("", dice.choice(TOWNS).label))
            of = where_it_is or "my location"
            question = (
                f"Send the weather forecast of {of} for the next {days} days {where}, with the date of each day and an "
                "emoji that fits its weather."
            )
            return WorldTask(name, "forecast", question, to, where_it_is, days, world=world)
        case "E":
            question = (
                "Get the astronomy picture of the day, shrink it to half its size and send it "
                f"{where} with a message that begins with 'Hello from Space!' and says more about the picture."
            )
            return WorldTask(name, "picture", question, to, world=world)
    symbol = dice.choice(sorted(SYMBOLS))
    company = SYMBOLS[symbol][0]
    who = dice.choice((symbol, f"{company} ({symbol})"))
    question = (
        f"Find the week of the last 3 months in which {who} had its lowest closing price, and send its date and price "
        f"{where}."
    )
    return WorldTask(name, "stock", question, to, symbol=symbol, world=world)


def _has_unique_name(town: Town) -> bool:
    return sum(each.name == town.name for each in TOWNS) == 1


VARIATIONS = variations(1)
"""Five of each kind, 30 in all."""
