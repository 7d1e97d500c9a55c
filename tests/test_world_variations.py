"""Whoever does a task right is graded so in any form, in every variation; the same work elsewhere is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import CAMPAIGN, some_of
from plait.lab.world import TASKS, RunEvidence, World, WorldTask, world_of
from plait.lab.world.places import find_town
from plait.lab.world.tasks import make_variations

ALL = (*TASKS, *make_variations(1), *make_variations(77, 8)) if CAMPAIGN else (*TASKS, *make_variations(77, 2))
EMOJI = {0: "☀️", 1: "🌤", 2: "⛅", 3: "☁️", 45: "🌫️", 48: "🌫️", 56: "🌧️", 66: "🌧️", 95: "⛈️", 96: "⛈️", 99: "🌩️"}

Form = Callable[[date], str]
DATES: dict[str, Form] = {
    "iso": lambda d: d.isoformat(),
    "day first": lambda d: f"{d:%d/%m/%Y}",
    "month first": lambda d: f"{d:%m/%d/%Y}",
    "in words": lambda d: f"{d:%A}, {d:%B} {d.day}, {d.year}",
    "short": lambda d: f"{d.day} {d:%b} {d.year}",
    "dots": lambda d: f"{d:%d.%m.%Y}",
}


def emoji(code: int) -> str:
    if code in EMOJI:
        return EMOJI[code]
    return "🌨️" if code in (71, 73, 75, 77, 85, 86) else "🌦️" if code >= 80 else "🌧️"


def perform(task: WorldTask, world: World, form: Form, dice: random.Random) -> RunEvidence | None:
    """Do a task as it should be done, in one of many forms."""
    round_ = (lambda value: f"{value:.0f}") if dice.random() < 0.4 else str
    if task.kind == "date":
        return (
            RunEvidence(f"Today is {form(world.today)}.")
            if dice.random() < 0.5
            else RunEvidence(None, form(world.today) + "\n")
        )
    if task.kind == "picture":
        apod = world.call("get_nasa_astronomy_picture_of_the_day")
        whole = world.call("download_image", url=apod["url"])
        half = world.call("shrink_image", image=whole, ratio=0.5)
        more = apod["explanation"] if dice.random() < 0.5 else apod["explanation"].partition(". ")[0] + "."
        send(task, world, f"Hello from Space! {apod['title']}, {form(world.today)}: {more}", half)
        return None
    if task.kind == "stock":
        table = world.call("get_weekly_stock_price", symbol=task.symbol)
        sql = f"SELECT * FROM prices WHERE timestamp >= date('now', '-{task.months} months') ORDER BY close LIMIT 1"
        row = world.call("get_table_row", table=world.call("run_sql_query", table=table, sql=sql), row=0)
        on = form(date.fromisoformat(row["timestamp"]))
        send(task, world, f"{task.symbol} closed lowest in the week of {on}, at ${row['close']:.2f}.")
        return None
    where = looked_up(task, world)
    name = (find_town(task.place) or world.home).name if task.place else "your location"
    if task.kind == "weather":
        now = world.call("get_current_weather", **where)["current_weather"]
        text = f"{name}: {now['description']}, {round_(now['temperature'])}°C, wind {round_(now['windspeed'])} km/h"
        send(task, world, text)
        return None
    daily = world.call("get_daily_weather_forecast", **where)["daily"]
    lines = []
    for i in range(task.days):
        on, code = form(date.fromisoformat(daily["time"][i])), daily["weathercode"][i]
        high, low = round_(daily["temperature_2m_max"][i]), round_(daily["temperature_2m_min"][i])
        said = f"{daily['description'][i]}, {low}°C to {high}°C"
        lines.append(dice.choice((f"{on}: {said} {emoji(code)}", f"{emoji(code)} {on} - {said}")))
    send(task, world, f"Forecast for {name}:\n" + "\n".join(lines))
    return None


def looked_up(task: WorldTask, world: World) -> dict[str, float]:
    if not task.place:
        found = world.call("get_user_location")
    else:
        place = find_town(task.place)
        assert place is not None
        listed = world.call("search_location_geocoordinates", location_name=place.name)
        found = next(each for each in listed if each["latitude"] == place.latitude)
    return {"latitude": found["latitude"], "longitude": found["longitude"]}


def send(task: WorldTask, world: World, text: str, image: Any = None) -> None:
    if task.to == "discord":
        world.call("send_message_discord", msg=text, image=image)
    elif image is not None:
        world.call("send_slack_image", img=image, msg=text, channel=task.to)
    else:
        world.call("send_slack_message", msg=text, channel_id=world.call("get_slack_channel_id", channel_name=task.to))


@pytest.mark.parametrize("form", DATES)
def test_whoever_does_a_task_right_is_graded_done_in_any_form(form: str) -> None:
    for task in ALL:
        world = world_of(task.world)
        told = perform(task, world, DATES[form], random.Random(f"{task.name}{task.world}{form}"))
        grade = task.grade(world, told)
        assert grade.mark == "done", (task.name, task.question, task.world, [s.text for s in world.sent], grade)


def test_the_same_work_done_in_another_world_is_never_done() -> None:
    """What is right elsewhere is wrong here: every number and date of a message is looked at."""
    marks: dict[str, int] = {}
    for task in ALL:
        if task.kind == "picture":
            continue  # the same picture may be that of the day
        there = world_of(task.world)
        told = perform(task, there, DATES["iso"], random.Random(task.name))
        here = World(there.seed + 1, now=there.now.replace(year=there.now.year + 1), here=there.home.label)
        for sent in there.sent:
            send(task, here, sent.text)
        mark = task.grade(here, told).mark
        marks[mark] = marks.get(mark, 0) + 1
        assert mark != "done", (task.name, task.question)
    assert marks["not done"] > 5 * marks.get("flaw", 0), marks


def test_a_message_that_went_elsewhere_is_not_done() -> None:
    for task in ALL:
        if task.kind == "date":
            continue
        world = world_of(task.world)
        elsewhere = "#general" if task.to != "#general" else "#random"
        moved = WorldTask(task.name, task.kind, task.question, elsewhere, task.place, task.days, task.symbol)
        told = perform(moved, world, DATES["iso"], random.Random(task.name))
        assert task.grade(world, told).mark == "not done"


PARTS = ("2023-04-07", "04/07", "7 April", "Friday, ", "14/7", "13.1", "°C", " °F", "-", "\n", "☁️", "🌧️", "**", "|")
PIECES = st.sampled_from((*PARTS, " km/h", "London"))


@given(st.lists(PIECES | st.text(max_size=12), max_size=40).map("".join), st.sampled_from(TASKS))
def test_whatever_is_sent_is_graded(text: str, task: WorldTask) -> None:
    """A grader neither fails nor takes long, and what was put together by chance is not done."""
    world = World(400)
    if task.to:
        send(task, world, text if text.strip() else "x")
    grade = task.grade(world, RunEvidence(text, text))
    assert grade.mark in ("done", "flaw", "not done")
    assert bool(grade.why) == (grade.mark != "done")


def test_a_long_message_is_graded_quickly() -> None:
    for text in ("*" * 30_000 + "2023-04-07", "2023-04-07 " * 3_000, "1" * 30_000, "☁️" * 15_000 + "8 April 9 April"):
        for task in some_of(TASKS[1:]):
            world = World(400)
            send(task, world, text[: 19_000 if task.to == "discord" else 30_000])
            assert task.grade(world).mark == "not done"
