"""Stand-ins for the tools of the recorded runs: each returns what `recorded.json`, in the same folder, has for it.

`recorded.json` is {"hits": {a search's words: what it printed}, "values": {tool: [values, in the order of the calls]}}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import plait
from plait.core import Artifact

_FILE = Path(__file__).with_name("recorded.json")
_RECORDED: dict[str, Any] = json.loads(_FILE.read_text()) if _FILE.exists() else {"hits": {}, "values": {}}


class LocationNameError(Exception):
    """No place has this name."""


class RecordedObject(Artifact):
    """An image or a table, of which only its text was recorded."""

    kind = "recorded"

    def __init__(self, text: str) -> None:
        self.text = text

    def about(self) -> str:
        return self.text

    def dump(self) -> bytes:
        return self.text.encode()

    @classmethod
    def load(cls, data: bytes) -> Self:
        return cls(data.decode())


def _next(tool: str) -> Any:
    values = _RECORDED["values"][tool]
    return values.pop(0) if len(values) > 1 else values[0]


@plait.tool
def method_search(description: str) -> str:
    """Finds methods."""
    return str(_RECORDED["hits"].get(description, ""))


@plait.tool
def get_user_location() -> dict[str, Any]:
    """The user's place."""
    return dict(_next("get_user_location"))


@plait.tool
def get_current_weather(latitude: float, longitude: float) -> dict[str, Any]:
    """The weather at a place."""
    return dict(_next("get_current_weather"))


@plait.tool
def get_daily_weather_forecast(latitude: float, longitude: float) -> dict[str, Any]:
    """The weather of the next days at a place."""
    return dict(_next("get_daily_weather_forecast"))


@plait.tool
def search_location_geocoordinates(location_name: str) -> list[dict[str, Any]]:
    """Places of a name."""
    if "," in location_name:
        raise LocationNameError(f"No results found. for {location_name!r}. Simplify the search string!")
    return list(_next("search_location_geocoordinates"))


@plait.tool
def send_message_discord(msg: str, image: RecordedObject | None = None) -> None:
    """Sends a message to Discord."""
    print(_next("send_message_discord"))


@plait.tool
def get_slack_channel_id(channel_name: str) -> str:
    """The id of a channel."""
    return str(_next("get_slack_channel_id"))


@plait.tool
def send_slack_message(msg: str, channel_id: str) -> None:
    """Sends a message to a channel."""


@plait.tool
def get_nasa_astronomy_picture_of_the_day() -> dict[str, Any]:
    """The picture of the day."""
    return dict(_next("get_nasa_astronomy_picture_of_the_day"))


@plait.tool
def download_image(url: str) -> RecordedObject:
    """An image."""
    return RecordedObject(_next("download_image"))


@plait.tool
def shrink_image(image: RecordedObject, ratio: float) -> RecordedObject:
    """A smaller image."""
    return RecordedObject(_next("shrink_image"))


@plait.tool
def get_weekly_stock_price(symbol: str) -> RecordedObject:
    """Prices of a share."""
    return RecordedObject(_next("get_weekly_stock_price"))


@plait.tool
def run_sql_query(table: RecordedObject, sql: str) -> RecordedObject:
    """Rows of a table."""
    return RecordedObject(_next("run_sql_query"))


@plait.tool
def get_table_row(table: RecordedObject, row: int) -> dict[str, Any]:
    """A row of a table."""
    return {name: RecordedObject(text) for name, text in _next("get_table_row").items()}
