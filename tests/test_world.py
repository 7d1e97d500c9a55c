"""Claims about the offline world: the same tools as those that ship, the same answers each time, what was sent kept."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from datetime import UTC, date, datetime
from typing import Any

import pytest
from aiohttp import web

import plait
from conftest import CAMPAIGN
from plait import toolkits
from plait.core import Call, Observation
from plait.core.errors import ConfigError, ToolError
from plait.core.events import Observed
from plait.lab.world import TASKS, World, task_of, world_of
from plait.lab.world.again import replay_events
from plait.lab.world.offline import shipped_tools
from plait.lab.world.pictures import PICTURES, find_picture, measure_picture
from plait.lab.world.places import TOWNS
from plait.lab.world.tasks import VARIATIONS, make_variations
from plait.tools import load
from toolkits_server import call, site

HOME = {"latitude": 51.05, "longitude": 3.71667}


def refused(world: World, tool: str, **given: Any) -> str:
    with pytest.raises(ToolError) as caught:
        world.call(tool, **given)
    return str(caught.value)


# -- the tools are those that ship


def test_every_tool_is_described_exactly_as_the_one_that_ships() -> None:
    real = {tool.name: tool.spec for tool in shipped_tools(datetime.now)}
    ours = {tool.name: tool.spec for tool in World().tools}
    assert ours == real
    assert len(ours) == 15


def test_every_toolkit_tool_that_reaches_a_service_has_a_stand_in_but_for_the_web() -> None:
    web = {"search_wikipedia", "read_wikipedia", "search_web", "fetch", "ask_model"}
    everything = {tool.name for tool in toolkits.everything()}
    ours = {tool.name for tool in World().tools}
    left = everything - ours
    assert ours <= everything
    assert all("wiki" in name or "web" in name or name in {*web, "calculator"} for name in left), left


async def test_weather_and_places_have_the_answers_that_the_toolkit_makes_of_the_service() -> None:
    """What the real tool makes of a service's answer with the world's numbers is what the world answers."""
    world = World(400)
    now, days = world.read_weather(**HOME), world.forecast(**HOME)
    cell = {"latitude": 51.0, "longitude": 3.7, "elevation": 10.0, "timezone": "GMT", "timezone_abbreviation": "GMT"}
    current = {
        **cell,
        "generationtime_ms": 0.05,
        "current_weather_units": {"temperature": "°C", "windspeed": "km/h", "winddirection": "°"},
        "current_weather": {
            "time": "2023-04-07T12:00",
            "interval": 900,
            "temperature": now.temperature,
            "windspeed": now.wind,
            "winddirection": now.direction,
            "is_day": now.is_day,
            "weathercode": now.code,
        },
    }
    names = ("time", "weathercode", "temperature_2m_max", "temperature_2m_min", "precipitation_sum")
    rows = [(day.date.isoformat(), day.code, day.warmest, day.coldest, day.precipitation) for day in days]
    daily = {
        **cell,
        "daily_units": dict(zip(names, ("iso8601", "wmo code", "°C", "°C", "mm"), strict=True)),
        "daily": {name: [row[i] for row in rows] for i, name in enumerate(names)},
    }
    async with site({"/v1/forecast": [current, daily]}) as service:
        real = toolkits.weather(base_url=service.address)
        assert await call(real, "get_current_weather", **HOME) == world.call("get_current_weather", **HOME)
        forecast = await call(real, "get_daily_weather_forecast", **HOME)
        assert forecast == world.call("get_daily_weather_forecast", **HOME)

    london = [place for place in TOWNS if place.name == "London"]
    found = [
        {
            "name": place.name,
            "latitude": place.latitude,
            "longitude": place.longitude,
            "feature_code": place.feature,
            "timezone": place.timezone,
            "population": place.population,
            "country": place.country,
            "country_code": place.code,
            **dict(zip(("admin1", "admin2"), reversed(place.zones.split(", ")), strict=False)),
        }
        for place in london
    ]
    async with site({"/v1/search": {"results": found}}) as service:
        real = toolkits.weather(places_url=service.address)
        said = await call(real, "search_location_geocoordinates", location_name="London")
        assert said == world.call("search_location_geocoordinates", location_name="London")


async def test_prices_and_pictures_have_the_answers_that_the_toolkits_make_of_the_services() -> None:
    world = World()
    ours = world.call("get_weekly_stock_price", symbol="msft")
    out = io.StringIO()
    csv.writer(out).writerows([ours.names, *ours.rows])
    async with site({"/query": lambda seen: web.Response(text=out.getvalue())}) as service:
        real = toolkits.stocks(base_url=service.address, key="k")
        assert await call(real, "get_weekly_stock_price", symbol="msft") == ours
    picture = world.call("get_nasa_astronomy_picture_of_the_day")
    async with site({"/planetary/apod": {**picture, "service_version": "v1"}}) as service:
        real = toolkits.nasa(base_url=service.address)
        told = await call(real, "get_nasa_astronomy_picture_of_the_day")
        assert (told, list(told)) == (picture, list(picture))


# -- it is the same each time


def everything_said(word: str) -> dict[str, Any]:
    world = world_of(word)
    place = world.call("get_user_location")
    where = {"latitude": place["latitude"], "longitude": place["longitude"]}
    picture = world.call("get_nasa_astronomy_picture_of_the_day")
    return {
        "date": world.call("get_current_date"),
        "place": place,
        "now": world.call("get_current_weather", **where),
        "days": world.call("get_daily_weather_forecast", **where),
        "picture": picture,
        "bytes": hash(world.call("download_image", url=picture["url"]).data) and len(picture["title"]),
        "rows": world.call("get_weekly_stock_price", symbol="MSFT").rows[:30],
        "channels": world.channels,
    }


def test_a_world_is_the_same_in_every_process() -> None:
    word = "world:7,now=2024-02-29,here=Lyon"
    code = f"import sys; sys.path.insert(0, {str(__file__.rpartition('/')[0])!r})\n"
    code += f"from test_world import everything_said; print(everything_said({word!r}))"
    others = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout.strip()
        for seed in (("1", "2") if CAMPAIGN else ("1",))
    }
    assert others == {str(everything_said(word))}


def test_seed_clock_and_place_each_make_another_world() -> None:
    base = everything_said("world:7,now=2024-02-29,here=Lyon")
    assert everything_said("world:8,now=2024-02-29,here=Lyon")["rows"] != base["rows"]
    assert everything_said("world:7,now=2024-03-01,here=Lyon")["days"] != base["days"]
    assert everything_said("world:7,now=2024-02-29,here=Oslo")["now"] != base["now"]
    assert base["date"] == "2024-02-29 (Thursday)"
    assert base["place"]["address"].startswith("Lyon, ")


@pytest.mark.parametrize(
    "word",
    [
        "world:0",
        "world:7,now=2024-02-29T08:00",
        "world:3,here=London, Ontario, Canada",
        "world:1,now=2024-02-29T08:00,here=Lyon, Auvergne-Rhone-Alpes, France",
    ],
)
def test_the_word_of_a_world_makes_it_again(word: str) -> None:
    assert world_of(word).word == word
    assert World(world_of(word).seed, now=world_of(word).now, here=world_of(word).home.label).word == word


def test_a_word_that_makes_no_world_says_what_would() -> None:
    for word, said in (
        ("world:x", "Such as world:7"),
        ("world:here=Atlantis", "It has: Amsterdam"),
        ("world:moon=1", "Settings"),
        ("world:now=yesterday", "Such as"),
    ):
        with pytest.raises(ConfigError, match=said):
            world_of(word)


def test_the_past_does_not_change_when_the_clock_goes_on_but_for_the_shaped_months() -> None:
    early, late = World(now=datetime(2023, 4, 7, tzinfo=UTC)), World(now=datetime(2024, 4, 5, tzinfo=UTC))
    assert early.weeks("IBM")[40:] == late.weeks("IBM")[92:]
    assert early.forecast(**HOME)[3] == World(now=datetime(2023, 4, 10, tzinfo=UTC)).forecast(**HOME)[0]


def test_the_weather_is_possible() -> None:
    for seed in range(5):
        for place in TOWNS:
            for on in (date(2023, 1, 15), date(2023, 7, 15)):
                world = World(seed, now=datetime.combine(on, datetime.min.time(), UTC))
                for day in world.forecast(place.latitude, place.longitude):
                    assert -45 < day.coldest < day.warmest < 55
                    assert (day.precipitation > 0) == (day.code > 50)
                    assert day.code not in (71, 73, 75, 85, 86) or day.coldest < 0
                now = world.read_weather(place.latitude, place.longitude)
                first = world.forecast(place.latitude, place.longitude, 1)[0]
                assert first.coldest - 0.1 <= now.temperature <= first.warmest + 0.1
                assert now.code == first.code


# -- errors, as the services give them


def test_errors_are_those_of_the_services() -> None:
    world = World()
    assert "no Slack channel #genral" in (said := refused(world, "get_slack_channel_id", channel_name="#genral"))
    assert "#general" in said
    assert "channel_not_found" in refused(world, "send_slack_message", msg="x", channel_id="C0000000000")
    assert "channel_not_found" in refused(world, "send_slack_message", msg="x", channel_id="#nowhere")
    assert "empty" in refused(world, "send_slack_message", msg=" ", channel_id="#general")
    assert "empty" in refused(world, "send_message_discord", msg=" ")
    assert "no place at latitude 91" in refused(world, "get_current_weather", latitude=91, longitude=0)
    assert "no place" in refused(world, "get_daily_weather_forecast", latitude=0, longitude=181)
    assert "No place is found" in refused(world, "search_location_geocoordinates", location_name="Atlantis")
    assert "no prices for 'NOPE'" in refused(world, "get_weekly_stock_price", symbol="NOPE")
    assert "404" in refused(world, "download_image", url="https://pictures.example/astronomy/2304/moon.jpg")
    assert "http" in refused(world, "download_image", url="moon.jpg")
    assert world.sent == []
    assert all(did.error for did in world.did)


def test_a_wrong_type_is_refused_with_what_is_wanted() -> None:
    weather = next(tool for tool in World().tools if tool.name == "get_current_weather")
    with pytest.raises(plait.PlaitError, match="latitude must be a number"):
        weather.bind({"latitude": "north", "longitude": 1})


def test_towns_of_one_name_are_told_apart() -> None:
    world = World()
    found = world.call("search_location_geocoordinates", location_name="london")
    assert [place["country"] for place in found][:2] == ["United Kingdom (GB)", "Canada (CA)"]
    (only,) = world.call("search_location_geocoordinates", location_name="London, Ontario")
    assert only["latitude"] == 42.98339
    assert len(world.call("search_location_geocoordinates", location_name="Springfield")) == 3
    temperatures = {
        world.call("get_current_weather", latitude=p["latitude"], longitude=p["longitude"])["current_weather"][
            "temperature"
        ]
        for p in found
    }
    assert len(temperatures) == len(found)


# -- what was sent


def test_what_was_sent_is_kept_in_order_with_channel_and_image() -> None:
    world = World()
    url = world.call("get_nasa_astronomy_picture_of_the_day")["url"]
    image = world.call("download_image", url=url)
    general = world.call("get_slack_channel_id", channel_name="#general")
    world.call("send_message_discord", msg="one", image=world.call("shrink_image", image=image, ratio=0.5))
    world.call("send_slack_message", msg="two", channel_id=general)
    world.call("send_slack_image", img=image, msg="three", channel="general")
    told = [sent.json() for sent in world.sent]
    assert [(each["number"], each["service"], each["text"]) for each in told] == [
        (1, "discord", "one"),
        (2, "slack", "two"),
        (3, "slack", "three"),
    ]
    width, height = measure_picture(world.picture, large=False)
    assert abs(told[0]["image"]["width"] - width / 2) <= 1 and abs(told[0]["image"]["height"] - height / 2) <= 1
    assert told[1]["channel"] == told[2]["channel"] == general
    assert (told[2]["image"]["width"], told[2]["image"]["height"]) == (width, height)


def test_every_picture_has_its_known_size_and_half_of_the_large_one_is_not_the_small_one() -> None:
    for picture in PICTURES:
        assert find_picture(f"https://pictures.example/astronomy/2304/{picture.name}_large.jpg") == (picture, True)
        small, large = measure_picture(picture, large=False), measure_picture(picture, large=True)
        assert abs(large[0] / 2 - small[0]) > 10
    world = World()
    apod = world.call("get_nasa_astronomy_picture_of_the_day")
    image = world.call("download_image", url=apod["hdurl"])
    assert (image.width, image.height) == measure_picture(world.picture, large=True)


def test_the_word_gives_a_fresh_world_each_time_it_is_loaded() -> None:
    first, second = load("world:7"), load("world:7")
    send = {tool.name: tool for tool in first}["send_message_discord"]
    send(msg="x")
    assert {tool.source for tool in first} == {"world:7"}
    assert first[0].function is not second[0].function


# -- runs


def test_the_state_of_a_run_is_had_again_from_its_record(journal: Any) -> None:
    def act(tool: str, given: Any) -> str:
        import json

        return json.dumps({"thought": "Go on.", "tool": tool, "tool_input": given})

    world = World(5)
    url = world.call("get_nasa_astronomy_picture_of_the_day")["url"]
    replies = [
        act("get_nasa_astronomy_picture_of_the_day", None),
        act("download_image", url),
        act("shrink_image", {"image": "image-1", "ratio": 0.5}),
        act("send_slack_message", {"msg": "lost", "channel_id": "#nowhere"}),
        act("send_message_discord", {"msg": "Hello from Space!", "image": "image-2"}),
        act("final_answer", "Sent."),
    ]
    agent = plait.Agent("json", model=plait.Scripted(replies), tools=["world:5"], journal=journal)
    run = agent.run("Send the picture.")
    assert run.status == "answered", run.reason
    again = replay_events(world_of("world:5"), run.events)
    (sent,) = again.sent
    assert sent.text == "Hello from Space!"
    assert sent.image is not None
    width, height = measure_picture(world.picture, large=False)
    assert abs(sent.image.width - width / 2) <= 1 and abs(sent.image.height - height / 2) <= 1


def test_a_message_that_is_the_id_of_a_thing_is_a_message_again() -> None:
    calls = [
        (Call("get_weekly_stock_price", {"symbol": "MSFT"}), Observation("", value={"$thing": "table-1", "is": ""})),
        (Call("send_slack_message", {"msg": "table-1", "channel_id": "#general"}), Observation("Sent")),
    ]
    events = [Observed(step, *call) for step, call in enumerate(calls, 1)]
    (sent,) = replay_events(World(), events).sent
    assert sent.text == "table-1"


# -- tasks


def test_there_are_six_tasks_and_at_least_24_variations_each_of_them_possible() -> None:
    assert "".join(task.name for task in TASKS) == "ABCDEF"
    assert len(VARIATIONS) >= 24
    assert len({task.question + task.world for task in VARIATIONS}) == len(VARIATIONS)
    assert make_variations(1) == VARIATIONS != make_variations(2)
    for task in (*TASKS, *VARIATIONS, *make_variations(9, 20)):
        world = world_of(task.world)
        assert task.to in ("", "discord") or task.to[1:] in world.channels
        assert not task.place or world.call("search_location_geocoordinates", location_name=task.place.split(",")[0])
        assert task.grade(world).mark == "not done"
    assert task_of("c3").name == "C3"
    with pytest.raises(ConfigError, match="plait world tasks"):
        task_of("Z")
