"""The values of tasks and grades, the six tasks A to F, and more tasks of their kinds, made from a seed."""

from __future__ import annotations

from datetime import date, timedelta
from functools import partial
from importlib import resources
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from plait.core.errors import ConfigError
from plait.lab.world.chance import chance
from plait.lab.world.places import TOWNS
from plait.lab.world.state import CHANNELS, World
from plait.lab.world.stocks import SYMBOLS

Kind: TypeAlias = Literal["date", "weather", "forecast", "picture", "stock"]
Mark: TypeAlias = Literal["done", "flaw", "not done"]

SHOWN = 5
"""Number of reasons in a grade's text."""


class WorldGrade(Struct, frozen=True):
    """The grade of a task, and the reasons for it: none if it is done."""

    mark: Mark
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        mark = {"flaw": "done with a flaw"}.get(self.mark, self.mark)
        shown = "; ".join(self.why[:SHOWN]) + (f"; and {len(self.why) - SHOWN} more" if len(self.why) > SHOWN else "")
        return f"{mark}: {shown}" if shown else mark


class RunEvidence(Struct, frozen=True):
    """What a grader knows of a run beside the world's state. The answer, the output of code, values that a check of the
    record flagged as invented, and the date on the clock that code can read, if that is not the world's."""

    answer: Any = None
    printed: str = ""
    flagged: tuple[str, ...] = ()
    clock: date | None = None


class Findings:
    """The problems of a message. With `lacks` the task is not done, with `flaws` it is done with a flaw."""

    def __init__(self) -> None:
        self.lacks: list[str] = []
        self.flaws: list[str] = []

    def grade(self) -> WorldGrade:
        """Return the grade that follows."""
        mark: Mark = "not done" if self.lacks else "flaw" if self.flaws else "done"
        return WorldGrade(mark, tuple(dict.fromkeys([*self.lacks, *self.flaws])))


class WorldTask(Struct, frozen=True, omit_defaults=True):
    """A task: its name, its kind, the question, and what the question names.

    `place` is a town's label ("" is the user's place), `to` is "discord" or a Slack channel with its `#`, `days` are
    those of a forecast, `symbol` and `months` those of a share's prices. `world` makes the world of the task.
    """

    name: str
    kind: Kind
    question: str
    to: str = ""
    place: str = ""
    days: int = 5
    symbol: str = ""
    months: int = 3
    world: str = "world"

    def grade(self, world: World, evidence: RunEvidence | None = None) -> WorldGrade:
        """Grade a run by the messages sent (for the date, by its answer or output)."""
        from plait.lab.world.graders import grade_run

        return grade_run(self, world, evidence or RunEvidence())


TASKS = msgspec.json.decode(
    resources.files(__package__).joinpath("tasks.json").read_bytes(), type=tuple[WorldTask, ...]
)
"""The six tasks, A to F."""


# -- more tasks of the six kinds: other towns, channels, shares, days and dates, made from a seed

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
    names = [town.name for town in TOWNS]
    home = dice.choice([town for town in TOWNS if names.count(town.name) == 1])
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


VARIATIONS = make_variations(1)
"""Five of each kind, 30 in all."""


def task_of(name: str) -> WorldTask:
    """Find a task by its name, among the six and their variations. Raises `ConfigError`."""
    for task in (*TASKS, *VARIATIONS):
        if task.name.casefold() == name.strip().casefold():
            return task
    raise ConfigError(f"There is no task {name!r}.", hint="`plait world tasks` lists them.")
