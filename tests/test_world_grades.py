"""The graders of the world's tasks: right runs are done, and each of many wrong ones is graded as it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import pytest

from conftest import for_each
from plait.core.errors import ToolError
from plait.lab.world import RunEvidence, World, task_of
from plait.lab.world.stocks import find_lowest_week

CHANNEL = "#experimenting-with-simple-ai-agents"
SEED = 400
"""A world whose five days have five kinds of weather."""


@dataclass
class Scene:
    """A fresh world with what a run would find out in it, and the ways to send."""

    world: World

    @cached_property
    def home(self) -> dict[str, Any]:
        return dict(self.world.call("get_user_location"))

    @cached_property
    def here(self) -> dict[str, Any]:
        return self.now_at(self.home["latitude"], self.home["longitude"])

    @cached_property
    def london(self) -> dict[str, Any]:
        return self.now_at(*self.found("London, UK"))

    @cached_property
    def ontario(self) -> dict[str, Any]:
        return self.now_at(*self.found("London", 1))

    def found(self, name: str, which: int = 0) -> tuple[float, float]:
        place = self.world.call("search_location_geocoordinates", location_name=name)[which]
        return place["latitude"], place["longitude"]

    def now_at(self, latitude: float, longitude: float) -> dict[str, Any]:
        told = self.world.call("get_current_weather", latitude=latitude, longitude=longitude)
        return dict(told["current_weather"])

    def days_at(self, latitude: float, longitude: float) -> list[dict[str, Any]]:
        daily = self.world.call("get_daily_weather_forecast", latitude=latitude, longitude=longitude)["daily"]
        return [{name: daily[name][i] for name in daily} for i in range(7)]

    @cached_property
    def days(self) -> list[dict[str, Any]]:
        return self.days_at(self.home["latitude"], self.home["longitude"])

    @cached_property
    def apod(self) -> dict[str, Any]:
        return dict(self.world.call("get_nasa_astronomy_picture_of_the_day"))

    def image(self, ratio: float = 0.5, url: str = "url") -> Any:
        whole = self.world.call("download_image", url=self.apod[url])
        return self.world.call("shrink_image", image=whole, ratio=ratio)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        table = self.world.call("get_weekly_stock_price", symbol="MSFT")
        return [table.row(i) for i in range(len(table))]

    @cached_property
    def best(self) -> dict[str, Any]:
        since = (self.world.today - timedelta(days=91)).isoformat()
        return min((row for row in self.rows if row["timestamp"] >= since), key=lambda row: row["close"])

    def discord(self, text: str, image: Any = None) -> None:
        self.world.call("send_message_discord", msg=text, image=image)

    def slack(self, text: str, channel: str = CHANNEL) -> None:
        number = self.world.call("get_slack_channel_id", channel_name=channel)
        self.world.call("send_slack_message", msg=text, channel_id=number)


def graded(task: str, act: Callable[[Scene], RunEvidence | None]) -> Any:
    world = World(SEED)
    told = act(Scene(world))
    return task_of(task).grade(world, told)


# -- what runs send


def now_text(weather: dict[str, Any], place: str, **other: Any) -> str:
    w = {**weather, **other}
    return (
        f"Current weather in {place}: {w['description']}, {w['temperature']}°C, wind {w['windspeed']} km/h "
        f"from {w['winddirection']}°."
    )


EMOJI = {0: "☀️", 1: "🌤️", 2: "⛅", 3: "☁️", 45: "🌫️", 61: "🌧️", 95: "⛈️", 80: "🌦️", 81: "🌧️", 53: "🌧️"}


def day_line(day: dict[str, Any], **other: Any) -> str:
    d = {"emoji": EMOJI[day["weathercode"]], **day, **other}
    return (
        f"{d['time']}: {d['emoji']} {d['description']}, max {d['temperature_2m_max']}°C, "
        f"min {d['temperature_2m_min']}°C, precipitation {d['precipitation_sum']} mm"
    )


def five(s: Scene, change: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda i, day: {}) -> str:
    lines = [day_line(day, **change(i, day)) for i, day in enumerate(s.days[:5])]
    return "Weather forecast for the next 5 days:\n" + "\n".join(lines)


def spoken(iso: str) -> str:
    day = date.fromisoformat(iso)
    return f"{day:%A}, {day:%B} {day.day}"


def hello(s: Scene, text: str | None = None) -> str:
    return f"Hello from Space! {s.apod['title']}\n\n{s.apod['explanation']}" if text is None else text


def fahrenheit(celsius: float) -> int:
    return round(celsius * 9 / 5 + 32)


Act = Callable[[Scene], RunEvidence | None]

DONE: dict[str, list[tuple[str, Act]]] = {
    "A": [
        ("iso answer", lambda s: RunEvidence("2023-04-07")),
        ("in words", lambda s: RunEvidence("Today is Friday, April 7th, 2023.")),
        ("day first", lambda s: RunEvidence("07/04/2023")),
        ("printed by code", lambda s: RunEvidence(None, "2023-04-07 12:25:01.51\n")),
        ("printed, then said", lambda s: RunEvidence("The date was printed.", "7 Apr 2023\n")),
        ("code's clock", lambda s: RunEvidence(None, "2026-11-21\n", clock=date(2026, 11, 21))),
    ],
    "B": [
        ("all of it", lambda s: s.discord(now_text(s.here, "Ghent"))),
        ("rounded, no place", lambda s: s.discord(f"It is {s.here['temperature']:.0f}°C and {s.here['description']}")),
        (
            "fahrenheit",
            lambda s: s.discord(f"{s.here['description']}, {fahrenheit(s.here['temperature'])}°F at your location"),
        ),
        (
            "other words",
            lambda s: s.discord(
                f"Now, at 2023-04-07T12:00: foggy, {s.here['temperature']} degrees Celsius. "
                f"Wind speed: {s.here['windspeed'] / 3.6:.1f} m/s"
            ),
        ),
        (
            "with coordinates",
            lambda s: s.discord(f"At 51.05, 3.71667: {s.here['description']}, temperature {s.here['temperature']}"),
        ),
    ],
    "C": [
        ("all of it", lambda s: s.slack(now_text(s.london, "London, UK"))),
        ("by lines", lambda s: s.slack(f"*London* now\n- {s.london['description']}\n- {s.london['temperature']} °C")),
        (
            "the channel by its name, as the tool allows",
            lambda s: s.world.call("send_slack_message", msg=now_text(s.london, "London"), channel_id=CHANNEL) and None,
        ),
    ],
    "D": [
        ("all of it", lambda s: s.discord(five(s))),
        ("dates in words", lambda s: s.discord(five(s, lambda i, day: {"time": spoken(day["time"])}))),
        (
            "emoji before the date, on one line",
            lambda s: s.discord(
                " ".join(
                    f"{EMOJI[d['weathercode']]} {date.fromisoformat(d['time']):%d %B}: {d['description']}."
                    for d in s.days[:5]
                )
            ),
        ),
        (
            "a heading with dates, a farewell with an emoji",
            lambda s: s.discord(
                f"🌈 Forecast from {s.days[0]['time']} to {s.days[4]['time']}\n\n"
                + "\n".join(day_line(d) for d in s.days[:5])
                + "\n\nStay sunny! ☀️"
            ),
        ),
        ("from tomorrow", lambda s: s.discord("\n".join(map(day_line, s.days[1:6])))),
        (
            "blocks of lines, temperatures rounded",
            lambda s: s.discord(
                "\n\n".join(
                    f"**{d['time']}**\n{d['description']} {EMOJI[d['weathercode']]}\n"
                    f"{d['temperature_2m_min']:.0f} to {d['temperature_2m_max']:.0f} °C"
                    for d in s.days[:5]
                )
            ),
        ),
        (
            "a table, high and low with a stroke",
            lambda s: s.discord(
                "| Date | Weather | °C |\n|---|---|---|\n"
                + "\n".join(
                    f"| {d['time']} | {d['description']} {EMOJI[d['weathercode']]} | "
                    f"{d['temperature_2m_max']:.0f}/{d['temperature_2m_min']:.0f} |"
                    for d in s.days[:5]
                )
            ),
        ),
    ],
    "E": [
        ("title and explanation", lambda s: s.discord(hello(s), s.image())),
        ("the beginning", lambda s: s.discord("Hello from Space! " + s.apod["explanation"][:120] + "...", s.image())),
        ("the large one, half", lambda s: s.discord(hello(s), s.image(url="hdurl"))),
        ("in bold", lambda s: s.discord(f"**Hello from Space!** {s.apod['explanation']}", s.image())),
        ("a pixel off", lambda s: s.discord(hello(s), s.image(0.4995))),
    ],
    "F": [
        (
            "all of it",
            lambda s: s.slack(
                f"The week with the lowest MSFT stock closing price in the last 3 months was {s.best['timestamp']} "
                f"with a price of ${s.best['close']}."
            ),
        ),
        ("in words", lambda s: s.slack(f"Week ending {spoken(s.best['timestamp'])}: {s.best['close']:.1f} USD")),
        (
            "the week's first day",
            lambda s: s.slack(
                f"MSFT closed lowest in the week of {date.fromisoformat(s.best['timestamp']) - timedelta(days=4)} "
                f"at {s.best['close']}"
            ),
        ),
        (
            "with the days it looked at",
            lambda s: s.slack(
                f"From 2023-01-07 to 2023-04-07 (13 weeks) the lowest close was {s.best['close']} on "
                f"{s.best['timestamp']} 00:00:00."
            ),
        ),
    ],
}


def shifted(s: Scene, text: str) -> str:
    """The text with the coordinates of elsewhere looked up: nobody said them."""
    s.now_at(51.512345, -0.098765)
    return text


def tried(s: Scene) -> None:
    with pytest.raises(ToolError):
        s.world.call("send_slack_message", msg=now_text(s.london, "London"), channel_id="C0NOSUCHID")


WRONG: dict[str, list[tuple[str, str, str, Act]]] = {
    "A": [
        ("nothing", "not done", "neither", lambda s: RunEvidence(None)),
        ("another day", "not done", "neither", lambda s: RunEvidence("2023-04-08")),
        ("another year", "not done", "neither", lambda s: RunEvidence("April 7, 2021")),
        ("a refusal", "not done", "neither", lambda s: RunEvidence("I can't know what day it is.")),
        ("code, not its output", "not done", "neither", lambda s: RunEvidence("print(datetime.now())")),
        ("a weekday alone", "not done", "neither", lambda s: RunEvidence("It is Friday.")),
        ("printed another", "not done", "neither", lambda s: RunEvidence("Done.", "2021-09-30\n")),
        ("no year", "flaw", "year", lambda s: RunEvidence("April 7")),
        ("the wrong weekday", "flaw", "week", lambda s: RunEvidence("Monday, April 7, 2023")),
        ("two dates", "flaw", "another date", lambda s: RunEvidence("2023-04-07 or maybe 2023-04-08")),
        ("printed right, answered wrong", "flaw", "another date", lambda s: RunEvidence("2023-04-09", "2023-04-07")),
        ("flagged", "flaw", "invented", lambda s: RunEvidence("2023-04-07", flagged=("2023-04-07",))),
        ("the clock of this machine", "not done", "neither", lambda s: RunEvidence("2026-11-21")),
    ],
    "B": [
        ("nothing", "not done", "nothing was sent", lambda s: None),
        ("only answered", "not done", "nothing was sent", lambda s: RunEvidence(now_text(s.here, "Ghent"))),
        (
            "to Slack",
            "not done",
            "but to #",
            lambda s: s.slack(now_text(s.here, "Ghent")) or RunEvidence("Sent."),
        ),
        ("a placeholder", "not done", "does not have", lambda s: s.discord("Current weather: {weather}")),
        ("another town's", "not done", "does not have", lambda s: s.discord(now_text(s.ontario, "your location"))),
        ("all invented", "not done", "does not have", lambda s: s.discord("Sunny and 25°C with 40% humidity.")),
        ("no temperature", "flaw", "temperature", lambda s: s.discord(f"It is {s.here['description']} here.")),
        ("no sky", "flaw", "sky", lambda s: s.discord(f"It is {s.here['temperature']}°C here.")),
        ("wrong sky", "flaw", "said wrong", lambda s: s.discord(f"Sunny, {s.here['temperature']}°C.")),
        (
            "wrong temperature",
            "flaw",
            "temperature",
            lambda s: s.discord(now_text(s.here, "Ghent", temperature=s.here["temperature"] + 3)),
        ),
        (
            "rounded the wrong way",
            "flaw",
            "temperature",
            lambda s: s.discord(f"{s.here['description']}, {s.here['temperature'] + 0.9:.0f}°C"),
        ),
        (
            "invented humidity",
            "flaw",
            "70",
            lambda s: s.discord(now_text(s.here, "Ghent") + " Humidity is 70%."),
        ),
        ("another town's name", "flaw", "Paris", lambda s: s.discord(now_text(s.here, "Paris"))),
        ("another date", "flaw", "date", lambda s: s.discord(now_text(s.here, "Ghent") + " (2021-09-30)")),
        ("wrong wind", "flaw", "88", lambda s: s.discord(now_text(s.here, "Ghent", windspeed=88.8))),
        (
            "twice",
            "flaw",
            "2 messages",
            lambda s: [s.discord(now_text(s.here, "Ghent")) for _ in range(2)] and None,
        ),
        (
            "flagged",
            "flaw",
            "51.05 was invented",
            lambda s: s.discord(now_text(s.here, "Ghent")) or RunEvidence(flagged=("51.05",)),
        ),
    ],
    "C": [
        ("nothing", "not done", "nothing was sent", lambda s: None),
        ("to Discord", "not done", "to Discord", lambda s: s.discord(now_text(s.london, "London"))),
        ("another channel", "not done", "#general", lambda s: s.slack(now_text(s.london, "London"), "general")),
        ("a channel that is not there", "not done", "nothing was sent", tried),
        ("Ontario's", "not done", "does not have", lambda s: s.slack(now_text(s.ontario, "London, UK"))),
        ("the user's own", "not done", "does not have", lambda s: s.slack(now_text(s.here, "London, UK"))),
        ("a greeting", "not done", "does not have", lambda s: s.slack("Hello from London!")),
        ("Ontario's name", "flaw", "Ontario", lambda s: s.slack(now_text(s.london, "London, Ontario"))),
        ("no place", "flaw", "not named", lambda s: s.slack(now_text(s.london, "there"))),
        (
            "invented coordinates, right weather",
            "flaw",
            "51.512345 was invented",
            lambda s: s.slack(shifted(s, now_text(s.london, "London"))),
        ),
        ("no sky", "flaw", "sky", lambda s: s.slack(f"London, UK: {s.london['temperature']}°C")),
        ("no temperature", "flaw", "temperature", lambda s: s.slack(f"London, UK: {s.london['description']}")),
        (
            "invented feeling",
            "flaw",
            "-40",
            lambda s: s.slack(now_text(s.london, "London") + " Feels like -40°C."),
        ),
        (
            "to Discord as well",
            "flaw",
            "2 messages",
            lambda s: s.slack(now_text(s.london, "London")) or s.discord("Posted it."),
        ),
    ],
    "D": [
        ("nothing", "not done", "nothing was sent", lambda s: None),
        ("to Slack", "not done", "but to #", lambda s: s.slack(five(s))),
        ("no day", "not done", "0 of 5", lambda s: s.discord("The next 5 days will be mixed ⛅.")),
        (
            "another place's weather",
            "not done",
            "days is right",
            lambda s: s.discord(
                "\n".join(
                    f"{d['time']}: ☁️ {d['description']}, {d['temperature_2m_max']}°C"
                    for d in s.days_at(*s.found("Singapore"))[:5]
                )
            ),
        ),
        (
            "other dates",
            "not done",
            "0 of 5",
            lambda s: s.discord(five(s, lambda i, day: {"time": f"2021-10-0{i + 1}"})),
        ),
        (
            "weekdays in place of dates",
            "not done",
            "0 of 5",
            lambda s: s.discord(five(s, lambda i, day: {"time": spoken(day["time"]).partition(",")[0]})),
        ),
        ("two days", "not done", "2 of 5", lambda s: s.discord("\n".join(map(day_line, s.days[:2])))),
        ("four days", "flaw", "is missing", lambda s: s.discord("\n".join(map(day_line, s.days[:4])))),
        (
            "seven days",
            "flaw",
            "not asked for",
            lambda s: s.discord(five(s) + "\n" + "\n".join(f"{d['time']}: {d['description']} 🌦️" for d in s.days[5:])),
        ),
        ("no emoji", "flaw", "no emoji", lambda s: s.discord(five(s, lambda i, day: {"emoji": ""}))),
        ("question marks", "flaw", "no emoji", lambda s: s.discord(five(s, lambda i, day: {"emoji": "❓"}))),
        ("all sunny emoji", "flaw", "no emoji", lambda s: s.discord(five(s, lambda i, day: {"emoji": "☀️"}))),
        (
            "sun beside fog",
            "flaw",
            "does not fit",
            lambda s: s.discord(five(s, lambda i, day: {"emoji": EMOJI[day["weathercode"]] + "☀️"} if i == 0 else {})),
        ),
        (
            "sun beside a thunderstorm",
            "flaw",
            "does not fit",
            lambda s: s.discord(five(s, lambda i, day: {"emoji": "⛈️☀️"} if i == 1 else {})),
        ),
        ("another date below", "flaw", "2021-09-30", lambda s: s.discord(five(s) + "\n\nIssued on 2021-09-30.")),
        (
            "a temperature changed",
            "flaw",
            "31.4 on",
            lambda s: s.discord(five(s, lambda i, day: {"temperature_2m_max": 31.4} if i == 2 else {})),
        ),
        (
            "a description changed",
            "flaw",
            "said wrong",
            lambda s: s.discord(five(s, lambda i, day: {"description": "Clear sky"} if i == 1 else {})),
        ),
        (
            "two days swapped",
            "flaw",
            "not from the world",
            lambda s: s.discord(five(s, lambda i, day: {"time": s.days[(1, 0, 2, 3, 4)[i]]["time"]})),
        ),
        (
            "a wrong weekday",
            "flaw",
            "is called a Monday",
            lambda s: s.discord(five(s, lambda i, day: {"time": f"Monday {day['time']}"} if i == 0 else {})),
        ),
        (
            "day by day",
            "not done",
            "5 messages",
            lambda s: [s.discord(day_line(day)) for day in s.days[:5]] and None,
        ),
    ],
    "E": [
        ("nothing", "not done", "nothing was sent", lambda s: None),
        ("no image", "not done", "no image", lambda s: s.discord(hello(s))),
        ("the address in its place", "not done", "no image", lambda s: s.discord(f"{hello(s)} {s.apod['url']}")),
        (
            "to Slack",
            "not done",
            "nothing was sent to Discord",
            lambda s: s.world.call("send_slack_image", img=s.image(), msg=hello(s), channel=CHANNEL) and None,
        ),
        ("another picture", "not done", "not the picture", lambda s: s.discord(hello(s), other_picture(s))),
        ("whole", "flaw", "half of", lambda s: s.discord(hello(s), s.image(1))),
        ("a quarter", "flaw", "half of", lambda s: s.discord(hello(s), s.image(0.25))),
        ("three pixels off", "flaw", "half of", lambda s: s.discord(hello(s), s.image(0.503))),
        ("the large one, whole", "flaw", "half of", lambda s: s.discord(hello(s), s.image(1, "hdurl"))),
        ("no greeting", "flaw", "is missing", lambda s: s.discord(s.apod["explanation"], s.image())),
        (
            "greeting at the end",
            "flaw",
            "stands later",
            lambda s: s.discord(s.apod["explanation"] + " Hello from Space!", s.image()),
        ),
        ("greeting alone", "flaw", "nothing is said", lambda s: s.discord("Hello from Space!", s.image())),
        (
            "the title alone",
            "flaw",
            "nothing but the title",
            lambda s: s.discord(f"Hello from Space! {s.apod['title']}", s.image()),
        ),
        (
            "empty words",
            "flaw",
            "nothing is said",
            lambda s: s.discord("Hello from Space! Look at this wonderful amazing photograph.", s.image()),
        ),
        (
            "an invented number",
            "flaw",
            "987654",
            lambda s: s.discord(hello(s) + " It is 987654 light-years away.", s.image()),
        ),
        (
            "an invented address",
            "flaw",
            "address",
            lambda s: s.discord(hello(s) + " https://nowhere.example/x.jpg", s.image()),
        ),
        ("another date", "flaw", "date", lambda s: s.discord(hello(s) + " Taken 2019-01-01.", s.image())),
    ],
    "F": [
        ("nothing", "not done", "nothing was sent", lambda s: None),
        ("to Discord", "not done", "Discord", lambda s: s.discord(f"{s.best['timestamp']}: {s.best['close']}")),
        ("another channel", "not done", "#random", lambda s: s.slack(f"{s.best['timestamp']}", "random")),
        (
            "the lowest of all years",
            "not done",
            "neither",
            lambda s: s.slack("{timestamp}: ${close}".format(**min(s.rows, key=lambda row: row["close"]))),
        ),
        (
            "the lowest of half a year",
            "not done",
            "neither",
            lambda s: s.slack("{timestamp}: ${close}".format(**min(s.rows[:26], key=lambda row: row["close"]))),
        ),
        (
            "the newest week",
            "not done",
            "neither",
            lambda s: s.slack("MSFT {timestamp}: ${close}".format(**s.rows[0])),
        ),
        (
            "the highest close",
            "not done",
            "neither",
            lambda s: s.slack("{timestamp}: ${close}".format(**max(s.rows[:13], key=lambda row: row["close"]))),
        ),
        (
            "the lowest low",
            "not done",
            "neither",
            lambda s: s.slack("{timestamp}: ${low}".format(**min(s.rows[:13], key=lambda row: row["low"]))),
        ),
        ("no price", "flaw", "price", lambda s: s.slack(f"MSFT closed lowest in the week of {s.best['timestamp']}.")),
        ("no date", "flaw", "week", lambda s: s.slack(f"The lowest close of MSFT was ${s.best['close']}.")),
        (
            "an invented price",
            "flaw",
            "price",
            lambda s: s.slack(f"{s.best['timestamp']}: ${s.best['close'] + 100}"),
        ),
        (
            "the week's open",
            "flaw",
            "price",
            lambda s: s.slack(f"{s.best['timestamp']}: ${s.best['open']}"),
        ),
        (
            "whole dollars",
            "flaw",
            "price",
            lambda s: s.slack(f"{s.best['timestamp']}: ${s.best['close']:.0f}"),
        ),
        (
            "right price, wrong date",
            "flaw",
            "date",
            lambda s: s.slack(f"2022-06-17: ${s.best['close']}"),
        ),
        (
            "another share's name",
            "flaw",
            "AAPL",
            lambda s: s.slack(f"AAPL, {s.best['timestamp']}: ${s.best['close']}"),
        ),
        (
            "an invented change",
            "flaw",
            "12345",
            lambda s: s.slack(f"{s.best['timestamp']}: ${s.best['close']}, down 12345 points"),
        ),
        (
            "twice",
            "flaw",
            "2 messages",
            lambda s: [s.slack(f"{s.best['timestamp']}: ${s.best['close']}") for _ in range(2)] and None,
        ),
    ],
}


def other_picture(s: Scene) -> Any:
    from plait.lab.world.pictures import PICTURES, draw_picture
    from plait.toolkits import Image

    other = next(each for each in PICTURES if each.title != s.apod["title"])
    return Image.from_bytes(draw_picture(other)).shrunk(0.5)


@for_each(("task", "act"), [pytest.param(t, act, id=f"{t}-{name}") for t, acts in DONE.items() for name, act in acts])
def test_a_right_run_is_done(task: str, act: Act) -> None:
    grade = graded(task, act)
    assert (grade.mark, grade.why) == ("done", ())


@for_each(
    ("task", "mark", "why", "act"),
    [pytest.param(t, mark, why, act, id=f"{t}-{name}") for t, acts in WRONG.items() for name, mark, why, act in acts],
)
def test_a_wrong_run_is_graded_as_it_should_be(task: str, mark: str, why: str, act: Act) -> None:
    grade = graded(task, act)
    assert grade.mark == mark, grade
    assert any(why in reason for reason in grade.why), grade


def test_each_task_has_at_least_ten_wrong_runs() -> None:
    assert all(len(acts) >= 10 for acts in WRONG.values()) and set(WRONG) == set(DONE) == set("ABCDEF")


def test_the_best_of_several_messages_is_graded_but_that_they_are_several_is_a_flaw() -> None:
    def act(s: Scene) -> None:
        s.discord("Let me see.")
        s.discord(now_text(s.here, "Ghent"))

    grade = graded("B", act)
    assert (grade.mark, grade.why) == ("flaw", ("2 messages were sent, one was asked for",))


@pytest.mark.parametrize("seed", range(12))
def test_the_week_of_the_lowest_close_is_one_however_three_months_are_counted(seed: int) -> None:
    world = World(seed)
    rows = world.weeks("MSFT")
    for days in (88, 90, 92, 96):
        since = world.today - timedelta(days=days)
        assert min((r for r in rows if r.timestamp >= since), key=lambda r: r.close) == find_lowest_week(
            rows, world.today
        )
    best = find_lowest_week(rows, world.today)
    assert min(rows[:26], key=lambda r: r.close) != best
    assert min(rows[:13], key=lambda r: r.low).timestamp != best.timestamp
    assert len(rows) > 1200
