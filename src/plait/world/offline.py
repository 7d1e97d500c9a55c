"""The tools of a world: those that ship, described by their own signatures and docstrings, answered here.

What reaches a service is answered by a function of the same name below, in the shape of the toolkit's own results; what
needs no service (the date, smaller images, tables) is the toolkit's own function, given the world's clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plait.core.errors import ToolError
from plait.world import pictures, places, weather

if TYPE_CHECKING:
    from plait.toolkits.frame import Table
    from plait.toolkits.image import Image
    from plait.tools import Tool
    from plait.world.state import World


_ID = re.compile(r"[CGD][A-Z0-9]{7,}")


def shipped(clock: Callable[[], datetime]) -> tuple[Tool, ...]:
    """The tools of the toolkits that the world stands in for, as they ship."""
    from plait import toolkits as kits

    several = (kits.date(now=clock), kits.location(), kits.weather(), kits.discord(), kits.slack(), kits.nasa())
    return tuple(chain(*several, kits.images(), kits.stocks(), kits.tables(now=clock)))


def tools_of(world: World) -> tuple[Tool, ...]:
    """The tools of a world, each loaded by the world's word."""
    services = Services(world)
    return tuple(_offline(tool, world, services) for tool in shipped(lambda: world.now))


def _offline(tool: Tool, world: World, services: Services) -> Tool:
    answered = getattr(services, tool.name, None)
    if answered is None and tool.is_async:
        raise AssertionError(f"{tool.name} reaches a service, and nothing stands in for it")
    function = answered or tool.function
    names = tool.signature.names

    # What the tool is told of (hints, docstring) is read through `wraps` from the one that ships.
    @wraps(tool.function)
    def performed(*args: Any, **kwargs: Any) -> Any:
        return world.perform(tool.name, function, {**dict(zip(names, args, strict=False)), **kwargs})

    return structs.replace(tool, function=performed, source=world.word)


class Services:
    """What stands in for the services, by the names of the tools that reach them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get_user_location(self) -> dict[str, Any]:
        home = self._world.home
        return {"address": home.address, "latitude": home.latitude, "longitude": home.longitude}

    def search_location_geocoordinates(self, location_name: str) -> list[dict[str, Any]]:
        asked = " ".join(location_name.split())
        found = places.search(asked)
        if not found:
            head, comma, _ = asked.partition(",")
            hint = f"Try {head.strip()!r} alone." if comma else "Try another spelling, or a larger place nearby."
            raise ToolError(f"No place is found by the name {asked!r}.", hint=hint)
        return [place.found() for place in found]

    def get_current_weather(self, latitude: float, longitude: float) -> dict[str, Any]:
        _on_earth(latitude, longitude)
        now = self._world.current(latitude, longitude)
        return self._place(latitude, longitude) | {
            "current_weather": {
                "temperature": now.temperature,
                "windspeed": now.wind,
                "winddirection": now.direction,
                "is_day": now.is_day,
                "time": self._world.now.strftime("%Y-%m-%dT%H:00"),
                "description": self._world.described(now.code),
            },
            "timezone": "GMT [GMT]",
            "temperature_unit": "°C",
            "windspeed_unit": "km/h",
            "winddirection_unit": "°",
        }

    def get_daily_weather_forecast(self, latitude: float, longitude: float) -> dict[str, Any]:
        _on_earth(latitude, longitude)
        days = self._world.forecast(latitude, longitude)
        units = ("iso8601", "wmo code", "°C", "°C", "mm")
        names = ("time", "weathercode", "temperature_2m_max", "temperature_2m_min", "precipitation_sum")
        rows = [(day.date.isoformat(), day.code, day.warmest, day.coldest, day.precipitation) for day in days]
        daily: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        return self._place(latitude, longitude) | {
            "daily_units": dict(zip(names, units, strict=True)),
            "daily": daily | {"description": [self._world.described(day.code) for day in days]},
            "timezone": "GMT [GMT]",
        }

    def _place(self, latitude: float, longitude: float) -> dict[str, Any]:
        north, east = weather.cell(latitude, longitude)
        return {"latitude": north, "longitude": east, "elevation": self._world.height(latitude, longitude)}

    def send_message_discord(self, msg: str, image: Image | None = None) -> str:
        from plait.toolkits.discord_webhook import LONGEST, MOST
        from plait.toolkits.pieces import pieces

        parts = len(pieces(msg.strip(), LONGEST))
        if not parts and image is None:
            raise ToolError("The message is empty.", hint="Give it a text or an image.")
        if parts > MOST:
            raise ToolError(f"The message is longer than {MOST * LONGEST:,} characters.", hint="Shorten it.")
        self._world.send("discord", "", "", msg.strip(), image)
        several = f" in {parts} parts" if parts > 1 else ""
        return f"Sent to Discord{several}{' with the image' if image is not None else ''}."

    def get_slack_channel_id(self, channel_name: str) -> str:
        return self._channel(channel_name)

    def send_slack_message(self, msg: str, channel_id: str) -> str:
        from plait.toolkits.slack_api import LONGEST

        if not msg.strip():
            raise ToolError("The message is empty.", hint="Give it a text.")
        if len(msg.strip()) > LONGEST:
            raise ToolError(f"The message is longer than {LONGEST:,} characters.", hint="Shorten it.")
        called = channel_id.strip()
        if not called:
            raise ToolError("No channel is given.", hint="Give its id, or its name with #.")
        if not _ID.fullmatch(called):
            called = f"#{called.lstrip('#')}"
        known = {f"#{name}": number for name, number in self._world.channels.items()}
        channel = known.get(called, called)
        self._known(channel, "chat.postMessage")
        self._world.send("slack", channel, channel_id.strip(), msg.strip(), None)
        return f"Sent to the Slack channel {called}."

    def send_slack_image(self, img: Image, msg: str, channel: str) -> str:
        to = self._channel(channel)
        self._known(to, "files.completeUploadExternal")
        self._world.send("slack", to, channel.strip(), msg.strip(), img)
        return f"Sent the image to the Slack channel {channel.strip()}."

    def _known(self, channel: str, method: str) -> None:
        if channel not in self._world.channels.values():
            raise ToolError(
                f"Slack refuses {method}: channel_not_found.",
                hint="Check the channel; a private one is found only when the app is a member.",
            )

    def _channel(self, named: str) -> str:
        """The id of a channel by its id or name."""
        name = named.strip().lstrip("#").strip()
        if _ID.fullmatch(name):
            return name
        if not name:
            raise ToolError("No channel is given.", hint="Give its name or its id.")
        if (found := self._world.channels.get(name.lower())) is not None:
            return found
        near = get_close_matches(name.lower(), list(self._world.channels), 3)
        hint = f"Did you mean {' or '.join('#' + one for one in near)}?" if near else "The app must be able to see it."
        raise ToolError(f"There is no Slack channel #{name[:80]}.", hint=hint)

    def get_nasa_astronomy_picture_of_the_day(self) -> dict[str, Any]:
        return pictures.told(self._world.picture, self._world.today)

    def download_image(self, url: str) -> Image:
        from plait.toolkits.image import Image

        found = pictures.at(url.strip())
        if not url.strip().startswith(("http://", "https://")):
            raise ToolError(f"{url[:80]!r} is no address of the web.", hint="It begins with http:// or https://.")
        if found is None:
            raise ToolError(f"There is nothing at {url.strip()} (404).", hint="Check the address.")
        return Image.from_bytes(pictures.draw(*found))

    def get_weekly_stock_price(self, symbol: str) -> Table:
        from plait.toolkits.alpha_vantage import COLUMNS
        from plait.toolkits.frame import Table

        return Table(COLUMNS, [(week.timestamp.isoformat(), *week[1:]) for week in self._world.weeks(symbol)])


def _on_earth(latitude: float, longitude: float) -> None:
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise ToolError(
            f"There is no place at latitude {latitude:g}, longitude {longitude:g}.",
            hint="Latitude is -90 to 90 degrees, longitude -180 to 180.",
        )
