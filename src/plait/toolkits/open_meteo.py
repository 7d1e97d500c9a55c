"""Weather and places by name, from Open-Meteo: no key needed."""

from __future__ import annotations

from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.http import SECONDS
from plait.toolkits.service import Said, Service
from plait.toolkits.wmo import in_words
from plait.tools.tool import Tool, tool

_DAILY = "weathercode,temperature_2m_max,temperature_2m_min,precipitation_sum"
_COUNTRIES = {"UK": "GB", "ENGLAND": "GB", "SCOTLAND": "GB", "WALES": "GB", "USA": "US", "U.S.": "US", "U.S.A.": "US"}
"""What people call countries, where their codes and names are others."""


def weather(
    *, base_url: Said = None, places_url: Said = None, key: Said = None, timeout: float = SECONDS
) -> tuple[Tool, ...]:
    """The tools `get_current_weather`, `get_daily_weather_forecast` and `search_location_geocoordinates`.

    `base_url` (environment: OPEN_METEO_URL) and `places_url` (OPEN_METEO_GEOCODING_URL) are the services' addresses,
    `key` (OPEN_METEO_API_KEY) is for paying customers, `timeout` in seconds. All is read when a tool is called.
    """
    forecasts = Service(
        "Open-Meteo", "OPEN_METEO_URL", "https://api.open-meteo.com", "OPEN_METEO_API_KEY", "", base_url, key, timeout
    )

    async def ask(latitude: float, longitude: float, **params: Any) -> dict[str, Any]:
        if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
            raise ToolError(
                f"There is no place at latitude {latitude:g}, longitude {longitude:g}.",
                hint="Latitude is -90 to 90 degrees, longitude -180 to 180.",
            )
        params |= {"latitude": latitude, "longitude": longitude, "apikey": forecasts.key(needed=False) or None}
        return (await forecasts.ask("/v1/forecast", params=params)).object()

    @tool(read_only=True)
    async def get_current_weather(latitude: float, longitude: float) -> dict[str, Any]:
        """The weather now at a place on Earth: temperature, wind, whether it is day, and a description in words.

        Args:
            latitude: Degrees north, -90 to 90.
            longitude: Degrees east, -180 to 180.
        """
        read = await ask(latitude, longitude, current_weather="true", timezone="auto")
        now = read.get("current_weather")
        if not isinstance(now, dict):
            raise ToolError("Open-Meteo gave no current weather.", hint="Try again later.")
        kept = {name: now.get(name) for name in ("temperature", "windspeed", "winddirection", "is_day", "time")}
        kept["description"] = in_words(now.get("weathercode"))
        units = read.get("current_weather_units")
        units = units if isinstance(units, dict) else {}
        return _place(read) | {
            "current_weather": kept,
            "timezone": _zone(read),
            "temperature_unit": units.get("temperature", "°C"),
            "windspeed_unit": units.get("windspeed", "km/h"),
            "winddirection_unit": units.get("winddirection", "°"),
        }

    @tool(read_only=True)
    async def get_daily_weather_forecast(latitude: float, longitude: float) -> dict[str, Any]:
        """The weather of today and the six days that follow at a place on Earth.

        Note:
            It holds a list each of dates, of highest and lowest temperatures, of precipitation, and of descriptions
            in words, in the order of the days.

        Args:
            latitude: Degrees north, -90 to 90.
            longitude: Degrees east, -180 to 180.
        """
        read = await ask(latitude, longitude, daily=_DAILY, timezone="auto", forecast_days=7)
        daily = read.get("daily")
        if not isinstance(daily, dict) or not isinstance(daily.get("weathercode"), list):
            raise ToolError("Open-Meteo gave no forecast.", hint="Try again later.")
        daily = daily | {"description": [in_words(code) for code in daily["weathercode"]]}
        return _place(read) | {"daily_units": read.get("daily_units"), "daily": daily, "timezone": _zone(read)}

    return (get_current_weather, get_daily_weather_forecast, _search(places_url, key, timeout))


def _search(places_url: Said, key: Said, timeout: float) -> Tool:
    places = Service(
        "Open-Meteo's list of places",
        "OPEN_METEO_GEOCODING_URL",
        "https://geocoding-api.open-meteo.com",
        "OPEN_METEO_API_KEY",
        "",
        places_url,
        key,
        timeout,
    )

    async def named(name: str, count: int) -> list[dict[str, Any]]:
        params = {"name": name, "count": count, "language": "en", "format": "json"}
        params["apikey"] = places.key(needed=False) or None
        found = (await places.ask("/v1/search", params=params)).object().get("results")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    @tool(read_only=True)
    async def search_location_geocoordinates(location_name: str) -> list[dict[str, Any]]:
        """Places of a name with their latitude and longitude, the largest first, at most five.

        Args:
            location_name: A town or another place; behind a comma its region or country.
        """
        asked = " ".join(location_name.split())
        head, comma, rest = asked.partition(",")
        found = await named(asked, 5) if asked else []
        if not found and comma and head:  # the service knows bare names only: the rest chooses among them here
            words = [word.strip() for word in rest.split(",") if word.strip()]
            found = [one for one in await named(head.strip(), 100) if all(_within(one, word) for word in words)][:5]
        if not found:
            hint = f"Try {head.strip()!r} alone." if comma else "Try another spelling, or a larger place nearby."
            raise ToolError(f"No place is found by the name {asked!r}.", hint=hint)
        return [_described(one) for one in found]

    return search_location_geocoordinates


def _within(place: dict[str, Any], word: str) -> bool:
    """Does a country or region of this name, or code, hold the place?"""
    told = [str(place.get(name) or "").casefold() for name in ("country", "country_code", "admin1", "admin2", "admin3")]
    return word.casefold() in told or _COUNTRIES.get(word.upper(), "?").casefold() == told[1]


def _described(place: dict[str, Any]) -> dict[str, Any]:
    zones = [place[name] for name in ("admin3", "admin2", "admin1") if place.get(name)]
    code = f" ({place['country_code']})" if place.get("country_code") else ""
    kept = {
        name: place.get(name)
        for name in ("name", "latitude", "longitude", "feature_code", "timezone", "population")
        if place.get(name) is not None
    }
    return kept | {"country": f"{place.get('country', '')}{code}".strip(), "administrative_zones": ", ".join(zones)}


def _place(read: dict[str, Any]) -> dict[str, Any]:
    return {name: read.get(name) for name in ("latitude", "longitude", "elevation")}


def _zone(read: dict[str, Any]) -> str:
    return f"{read.get('timezone', 'GMT')} [{read.get('timezone_abbreviation', 'GMT')}]"
