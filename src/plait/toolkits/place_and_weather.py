"""Where and when the user is, and the weather: today's date, the user's place from a setting or the network address
(ipinfo), weather and places by name (Open-Meteo, no key needed)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.service import SECONDS, Service, Setting
from plait.tools.tool import Tool, tool

_DAILY = "weathercode,temperature_2m_max,temperature_2m_min,precipitation_sum"
_COUNTRIES = {"UK": "GB", "ENGLAND": "GB", "SCOTLAND": "GB", "WALES": "GB", "USA": "US", "U.S.": "US", "U.S.A.": "US"}
"""Common names of countries, with their codes."""


def date(*, now: Callable[[], datetime] | None = None) -> tuple[Tool, ...]:
    """Makes the tool `get_current_date`. `now` is the clock (default: this machine, in its time zone)."""

    @tool(read_only=True)
    def get_current_date() -> str:
        """Today's date: year, month, day, and the weekday."""
        return (now or datetime.now)().strftime("%Y-%m-%d (%A)")

    return (get_current_date,)


def location(
    *, place: Setting = None, base_url: Setting = None, key: Setting = None, timeout: float = SECONDS
) -> tuple[Tool, ...]:
    """Makes the tool `get_user_location`.

    `place` (environment: PLAIT_LOCATION) sets it, as in "Lyon, FR; 45.76; 4.84", and no service is asked. Otherwise the
    service at `base_url` (IPINFO_URL) finds it from the network address, with `key` (IPINFO_TOKEN) if given.
    """
    service = Service("ipinfo", "IPINFO_URL", "https://ipinfo.io", "IPINFO_TOKEN", "", base_url, key, timeout)

    @tool(read_only=True, open_world=True)
    async def get_user_location() -> dict[str, Any]:
        """Where the user is now: the address in words, latitude and longitude in degrees."""
        said = place or os.environ.get("PLAIT_LOCATION", "").strip()
        if said:
            try:
                address, latitude, longitude = said.split(";")
                north, east = float(latitude), float(longitude)
                if not (-90 <= north <= 90 and -180 <= east <= 180):
                    raise ValueError
            except ValueError:
                hint = 'PLAIT_LOCATION is "PLACE; LATITUDE; LONGITUDE".'
                raise ToolError(f"The user's place is set to {said!r}, which can't be read.", hint=hint) from None
            return {"address": address.strip(), "latitude": north, "longitude": east}
        token = service.key(needed=False)
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        read = (await service.ask("/json", headers=headers)).json_object()
        try:
            north, east = (float(part) for part in str(read.get("loc", "")).split(","))
        except ValueError:
            hint = 'Set PLAIT_LOCATION="PLACE; LATITUDE; LONGITUDE".'
            raise ToolError("The user's place can't be told from this network address.", hint=hint) from None
        address = ", ".join(str(read[name]) for name in ("city", "region", "country") if read.get(name))
        return {"address": address, "latitude": north, "longitude": east}

    return (get_user_location,)


def describe_weather(code: object) -> str:
    """Return a weather code in words; an unknown one as its number."""
    if isinstance(code, (int, float)) and str(int(code)) in _read_wmo_codes():
        return _read_wmo_codes()[str(int(code))]
    return "Unknown" if code is None else f"Weather code {code}"


@cache
def _read_wmo_codes() -> dict[str, str]:
    """Return the part of WMO table 4677 that open weather services use."""
    codes: dict[str, str] = json.loads(resources.files(__package__).joinpath("wmo_codes.json").read_bytes())
    return codes


def check_coordinates(latitude: float, longitude: float) -> None:
    """Raise `ToolError` for coordinates that are not on Earth."""
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        hint = "Latitude is -90 to 90 degrees, longitude -180 to 180."
        raise ToolError(f"There is no place at latitude {latitude:g}, longitude {longitude:g}.", hint=hint)


def no_such_place(name: str) -> ToolError:
    head, comma, _ = name.partition(",")
    hint = f"Try {head.strip()!r} alone." if comma else "Try another spelling, or a larger place nearby."
    return ToolError(f"No place is found by the name {name!r}.", hint=hint)


def weather(
    *, base_url: Setting = None, places_url: Setting = None, key: Setting = None, timeout: float = SECONDS
) -> tuple[Tool, ...]:
    """Makes the tools `get_current_weather`, `get_daily_weather_forecast` and `search_location_geocoordinates`.

    `base_url` (environment: OPEN_METEO_URL) and `places_url` (OPEN_METEO_GEOCODING_URL) are the services' addresses.
    `key` (OPEN_METEO_API_KEY) is for paying customers. `timeout` in seconds. Settings are read when a tool is called.
    """
    key_env = "OPEN_METEO_API_KEY"
    base = "https://api.open-meteo.com"
    forecasts = Service("Open-Meteo", "OPEN_METEO_URL", base, key_env, "", base_url, key, timeout)
    name, env = "Open-Meteo's list of places", "OPEN_METEO_GEOCODING_URL"
    base = "https://geocoding-api.open-meteo.com"
    places = Service(name, env, base, key_env, "", places_url, key, timeout)

    async def ask(service: Service, path: str, **params: Any) -> dict[str, Any]:
        params["apikey"] = service.key(needed=False) or None
        return (await service.ask(path, params=params)).json_object()

    async def ask_forecast(latitude: float, longitude: float, **params: Any) -> dict[str, Any]:
        check_coordinates(latitude, longitude)
        params |= {"timezone": "auto", "latitude": latitude, "longitude": longitude}
        return await ask(forecasts, "/v1/forecast", **params)

    async def find_places(name: str, count: int) -> list[dict[str, Any]]:
        read = await ask(places, "/v1/search", name=name, count=count, language="en", format="json")
        found = read.get("results")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    @tool(read_only=True, open_world=True)
    async def get_current_weather(latitude: float, longitude: float) -> dict[str, Any]:
        """The weather now at a place on Earth: temperature, wind, whether it is day, and a description in words.

        Args:
            latitude: Degrees north, -90 to 90.
            longitude: Degrees east, -180 to 180.
        """
        read = await ask_forecast(latitude, longitude, current_weather="true")
        now = read.get("current_weather")
        if not isinstance(now, dict):
            raise ToolError("Open-Meteo gave no current weather.", hint="Try again later.")
        current = {name: now.get(name) for name in ("temperature", "windspeed", "winddirection", "is_day", "time")}
        current["description"] = describe_weather(now.get("weathercode"))
        units = read.get("current_weather_units")
        units = units if isinstance(units, dict) else {}
        return _read_place(read) | {
            "current_weather": current,
            "timezone": _read_zone(read),
            "temperature_unit": units.get("temperature", "°C"),
            "windspeed_unit": units.get("windspeed", "km/h"),
            "winddirection_unit": units.get("winddirection", "°"),
        }

    @tool(read_only=True, open_world=True)
    async def get_daily_weather_forecast(latitude: float, longitude: float) -> dict[str, Any]:
        """The weather of today and the six days that follow at a place on Earth.

        Note:
            It holds a list each of dates, of highest and lowest temperatures, of precipitation, and of descriptions
            in words, in the order of the days.

        Args:
            latitude: Degrees north, -90 to 90.
            longitude: Degrees east, -180 to 180.
        """
        read = await ask_forecast(latitude, longitude, daily=_DAILY, forecast_days=7)
        daily = read.get("daily")
        if not isinstance(daily, dict) or not isinstance(daily.get("weathercode"), list):
            raise ToolError("Open-Meteo gave no forecast.", hint="Try again later.")
        daily = daily | {"description": [describe_weather(code) for code in daily["weathercode"]]}
        more = {"daily_units": read.get("daily_units"), "daily": daily, "timezone": _read_zone(read)}
        return _read_place(read) | more

    @tool(read_only=True, open_world=True)
    async def search_location_geocoordinates(location_name: str) -> list[dict[str, Any]]:
        """Places of a name with their latitude and longitude, the largest first, at most five.

        Args:
            location_name: A town or another place; behind a comma its region or country.
        """
        asked = " ".join(location_name.split())
        head, comma, rest = asked.partition(",")
        found = await find_places(asked, 5) if asked else []
        if not found and comma and head:  # the service knows bare names only: the rest selects among them here
            words = [word.strip() for word in rest.split(",") if word.strip()]
            several = await find_places(head.strip(), 100)
            found = [one for one in several if all(_is_within(one, word) for word in words)][:5]
        if not found:
            raise no_such_place(asked)
        return [_describe_place(one) for one in found]

    return (get_current_weather, get_daily_weather_forecast, search_location_geocoordinates)


def _is_within(place: dict[str, Any], word: str) -> bool:
    """Return whether the place is in a country or region of this name, or code."""
    fields = ("country", "country_code", "admin1", "admin2", "admin3")
    names = [str(place.get(name) or "").casefold() for name in fields]
    return word.casefold() in names or _COUNTRIES.get(word.upper(), "?").casefold() == names[1]


def _describe_place(place: dict[str, Any]) -> dict[str, Any]:
    zones = [place[name] for name in ("admin3", "admin2", "admin1") if place.get(name)]
    code = f" ({place['country_code']})" if place.get("country_code") else ""
    fields = ("name", "latitude", "longitude", "feature_code", "timezone", "population")
    described = {name: place.get(name) for name in fields if place.get(name) is not None}
    country = f"{place.get('country', '')}{code}".strip()
    return described | {"country": country, "administrative_zones": ", ".join(zones)}


def _read_place(read: dict[str, Any]) -> dict[str, Any]:
    return {name: read.get(name) for name in ("latitude", "longitude", "elevation")}


def _read_zone(read: dict[str, Any]) -> str:
    return f"{read.get('timezone', 'GMT')} [{read.get('timezone_abbreviation', 'GMT')}]"
