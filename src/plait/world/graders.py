"""The graders, one for each kind of task: strict in what is said, lenient in how.

A task is done when what was asked for went, once, where it should go. It is not done when nothing did, or when what
went is wrong in the main: another town's weather, another week. It is done with a flaw when a part is missing or wrong
or invented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plait.world import reading
from plait.world.grade_picture import picture_of_the_day
from plait.world.grade_stock import lowest_week
from plait.world.grade_weather import forecast, weather_now
from plait.world.grades import Findings, Grade, Told, addressed, invented
from plait.world.state import Sent, World

if TYPE_CHECKING:
    from plait.world.tasks import WorldTask

Check = Callable[["WorldTask", World, Sent, Findings], None]

CHECKS: dict[str, Check] = {
    "weather": weather_now,
    "forecast": forecast,
    "picture": picture_of_the_day,
    "stock": lowest_week,
}
"""What checks a message, by the kind of task."""


def graded(task: WorldTask, world: World, told: Told) -> Grade:
    """The grade of a run. Of several messages the best is taken, and that there are several is a flaw."""
    common = Findings()
    if task.kind == "date":
        _date(world, told, common)
        common.flaws.extend(f"{value} was invented" for value in told.flagged)
        return common.grade()
    messages = addressed(world, task.to, common)
    if not messages:
        return common.grade()
    best: Findings | None = None
    for message in messages:
        found = Findings()
        CHECKS[task.kind](task, world, message, found)
        if best is None or found.badness < best.badness:
            best = found
    assert best is not None
    best.flaws[:0] = common.flaws
    invented(world, task.question, told, best)
    return best.grade()


def _date(world: World, told: Told, found: Findings) -> None:
    """The date of the world's clock (or of the clock that code could read) was answered or printed."""
    right = {world.today, *([told.clock] if told.clock else [])}
    answer = "" if told.answer is None else str(told.answer)
    in_answer = reading.dates(answer, world.today.year)
    read = [*in_answer, *reading.dates(told.printed, world.today.year)]
    if not any(right.intersection(each.days) for each in read):
        found.lacks.append("the current date was neither answered nor printed")
        return
    if not all(right.intersection(each.days) or each.weak for each in in_answer):
        found.flaws.append("the answer names another date")
    if not any(right.intersection(each.days) and each.year for each in read):
        found.flaws.append("the year is missing")
    named = reading.weekdays(answer)
    if named and not {day.weekday() for day in right} & set(named):
        found.flaws.append("the day of the week is wrong")
