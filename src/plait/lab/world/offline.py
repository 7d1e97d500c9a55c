"""The tools of a world: the real tools' signatures and docstrings, with answers from this module.

A tool that reaches a service is answered by a function of the same name below, in the form of the toolkit's results. A
tool that needs no service (the date, smaller images, tables) is the toolkit's own function with the world's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plait import toolkits
from plait.core.errors import ToolError
from plait.lab.world import pictures, places, weather
from plait.toolkits.alpha_vantage import COLUMNS
from plait.toolkits.frame import Table
from plait.toolkits.image import Image
from plait.toolkits.messages import (
    SLACK_ID,
    check_message,
    describe_sending,
    no_such_channel,
    read_channel,
    refused_call,
    split_message,
)
from plait.toolkits.place_and_weather import check_coordinates, describe_weather, no_such_place

if TYPE_CHECKING:
    from plait.lab.world.state import World
    from plait.tools import Tool


def shipped_tools(clock: Callable[[], datetime]) -> tuple[Tool, ...]:
    """Make the toolkits' own versions of the tools that the world replaces."""
    plain = (toolkits.location, toolkits.weather, toolkits.discord, toolkits.slack, toolkits.nasa, toolkits.images)
    made = (make() for make in (*plain, toolkits.stocks))
    return tuple(chain(toolkits.date(now=clock), *made, toolkits.tables(now=clock)))


def tools_of(world: World) -> tuple[Tool, ...]:
    """Make the tools of a world, each loaded by the world's word."""
    services = Services(world)
    return tuple(_take_offline(tool, world, services) for tool in shipped_tools(lambda: world.now))


def _take_offline(tool: Tool, world: World, services: Services) -> Tool:
    answered = getattr(services, tool.name, None)
    if answered is None and tool.is_async:
        raise AssertionError(f"{tool.name} reaches a service, and nothing stands in for it")
    function = answered or tool.function
    names = tool.signature.names

    # `wraps` gives them the type hints and the docstring of the real tool.
    @wraps(tool.function)
    def perform(*args: Any, **kwargs: Any) -> Any:
        return world.perform(tool.name, function, {**dict(zip(names, args, strict=False)), **kwargs})

    return structs.replace(tool, function=perform, source=world.word)


class Services:
    """Stand-ins for the services, by the names of the tools that reach them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get_user_location(self) -> dict[str, Any]:
        home = self._world.home
        return {"address": home.address, "latitude": home.latitude, "longitude": home.longitude}

    def search_location_geocoordinates(self, location_name: str) -> list[dict[str, Any]]:
        asked = " ".join(location_name.split())
        towns = places.search_towns(asked)
        if not towns:
            raise no_such_place(asked)
        return [town.answer() for town in towns]

    def get_current_weather(self, latitude: float, longitude: float) -> dict[str, Any]:
        check_coordinates(latitude, longitude)
        now = self._world.read_weather(latitude, longitude)
        return self._place(latitude, longitude) | {
            "current_weather": {
                "temperature": now.temperature,
                "windspeed": now.wind,
                "winddirection": now.direction,
                "is_day": now.is_day,
                "time": self._world.now.strftime("%Y-%m-%dT%H:00"),
                "description": describe_weather(now.code),
            },
            "timezone": "GMT [GMT]",
            "temperature_unit": "°C",
            "windspeed_unit": "km/h",
            "winddirection_unit": "°",
        }

    def get_daily_weather_forecast(self, latitude: float, longitude: float) -> dict[str, Any]:
        check_coordinates(latitude, longitude)
        days = self._world.forecast(latitude, longitude)
        units = ("iso8601", "wmo code", "°C", "°C", "mm")
        names = ("time", "weathercode", "temperature_2m_max", "temperature_2m_min", "precipitation_sum")
        rows = [(day.date.isoformat(), day.code, day.warmest, day.coldest, day.precipitation) for day in days]
        daily: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        return self._place(latitude, longitude) | {
            "daily_units": dict(zip(names, units, strict=True)),
            "daily": daily | {"description": [describe_weather(day.code) for day in days]},
            "timezone": "GMT [GMT]",
        }

    def _place(self, latitude: float, longitude: float) -> dict[str, Any]:
        north, east = weather.find_cell(latitude, longitude)
        return {"latitude": north, "longitude": east, "elevation": self._world.height(latitude, longitude)}

    def send_message_discord(self, msg: str, image: Image | None = None) -> str:
        texts = split_message(msg, image)
        self._world.send("discord", "", "", msg.strip(), image)
        return describe_sending(texts, image)

    def get_slack_channel_id(self, channel_name: str) -> str:
        name = read_channel(channel_name)
        if SLACK_ID.fullmatch(name):
            return name
        if name.lower() not in self._world.channels:
            raise no_such_channel(name, self._world.channels)
        return self._world.channels[name.lower()]

    def send_slack_message(self, msg: str, channel_id: str) -> str:
        text, called = check_message(msg, channel_id)
        channel = self._world.channels.get(called.removeprefix("#"), called)
        self._check_channel(channel, "chat.postMessage")
        self._world.send("slack", channel, channel_id.strip(), text, None)
        return f"Sent to the Slack channel {called}."

    def send_slack_image(self, img: Image, msg: str, channel: str) -> str:
        to = self.get_slack_channel_id(channel)
        self._check_channel(to, "files.completeUploadExternal")
        self._world.send("slack", to, channel.strip(), msg.strip(), img)
        return f"Sent the image to the Slack channel {channel.strip()}."

    def _check_channel(self, channel: str, method: str) -> None:
        if channel not in self._world.channels.values():
            raise refused_call(method, "channel_not_found")

    def get_nasa_astronomy_picture_of_the_day(self) -> dict[str, Any]:
        return pictures.describe_picture(self._world.picture, self._world.today)

    def download_image(self, url: str) -> Image:
        found = pictures.find_picture(url.strip())
        if not url.strip().startswith(("http://", "https://")):
            raise ToolError(f"{url[:80]!r} is no address of the web.", hint="It begins with http:// or https://.")
        if found is None:
            raise ToolError(f"There is nothing at {url.strip()} (404).", hint="Check the address.")
        return Image.from_bytes(pictures.draw_picture(*found))

    def get_weekly_stock_price(self, symbol: str) -> Table:
        return Table(COLUMNS, [(week.timestamp.isoformat(), *week[1:]) for week in self._world.weeks(symbol)])
