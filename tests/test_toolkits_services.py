"""Claims about weather, places, prices and pictures of the day, against a server that answers as each service does."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from plait.toolkits import Table, date, location, nasa, stocks, weather
from toolkits_server import Seen, call, named, refusal, site, told

KEYS = ("OPEN_METEO_API_KEY", "IPINFO_TOKEN", "NASA_API_KEY", "ALPHAVANTAGE_API_KEY", "PLAIT_LOCATION")
PLACES = ("OPEN_METEO_URL", "OPEN_METEO_GEOCODING_URL", "IPINFO_URL", "NASA_URL", "ALPHAVANTAGE_URL")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, *PLACES):
        monkeypatch.delenv(name, raising=False)


# --- weather

NOW = {
    "latitude": 50.94,
    "longitude": 5.34,
    "generationtime_ms": 0.05,
    "utc_offset_seconds": 7200,
    "timezone": "Europe/Brussels",
    "timezone_abbreviation": "CEST",
    "elevation": 41.0,
    "current_weather_units": {"time": "iso8601", "temperature": "°C", "windspeed": "km/h", "winddirection": "°"},
    "current_weather": {
        "time": "2023-04-07T14:00",
        "interval": 900,
        "temperature": 11.4,
        "windspeed": 9.9,
        "winddirection": 316,
        "is_day": 1,
        "weathercode": 3,
    },
}
WEEK = {
    "latitude": 50.94,
    "longitude": 5.34,
    "timezone": "Europe/Brussels",
    "timezone_abbreviation": "CEST",
    "elevation": 41.0,
    "daily_units": {"time": "iso8601", "weathercode": "wmo code", "temperature_2m_max": "°C"},
    "daily": {
        "time": [f"2023-04-{day:02}" for day in range(7, 14)],
        "weathercode": [61, 3, 45, 999, 95, 80, None],
        "temperature_2m_max": [11.4, 14.1, 15.3, 15.3, 12.5, 11.6, 11.8],
        "temperature_2m_min": [6.9, 6.4, 3.9, 6.9, 7.0, 7.0, 5.3],
        "precipitation_sum": [2.4, 0.0, 0.0, 2.4, 12.0, 7.2, 0.0],
    },
}


async def test_the_weather_now_comes_with_its_code_in_words_and_with_units() -> None:
    async with site({"/v1/forecast": NOW}) as there:
        said = await call(weather(base_url=there.address), "get_current_weather", latitude=50.9311, longitude=5.3378)
    assert said == {
        "latitude": 50.94,
        "longitude": 5.34,
        "elevation": 41.0,
        "current_weather": {
            "temperature": 11.4,
            "windspeed": 9.9,
            "winddirection": 316,
            "is_day": 1,
            "time": "2023-04-07T14:00",
            "description": "Overcast",
        },
        "timezone": "Europe/Brussels [CEST]",
        "temperature_unit": "°C",
        "windspeed_unit": "km/h",
        "winddirection_unit": "°",
    }
    (asked,) = there.seen
    assert asked.query == {"latitude": "50.9311", "longitude": "5.3378", "current_weather": "true", "timezone": "auto"}


async def test_the_forecast_has_seven_days_in_words() -> None:
    async with site({"/v1/forecast": WEEK}) as there:
        said = await call(weather(base_url=there.address), "get_daily_weather_forecast", latitude=50.9, longitude=5.3)
    assert len(said["daily"]["time"]) == 7
    assert said["daily"]["description"] == [
        "Rain: slight",
        "Overcast",
        "Fog",
        "Weather code 999",
        "Thunderstorm",
        "Rain showers: slight",
        "Unknown",
    ]
    assert there.seen[0].query["forecast_days"] == "7"
    assert there.seen[0].query["daily"].split(",")[0] == "weathercode"


async def test_settings_come_from_the_environment_when_a_tool_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit = weather()
    async with site({"/customer/v1/forecast": NOW}) as there:
        monkeypatch.setenv("OPEN_METEO_URL", f"{there.address}/customer/")
        monkeypatch.setenv("OPEN_METEO_API_KEY", " the-paid-key ")
        await call(toolkit, "get_current_weather", latitude=1, longitude=2)
        assert there.seen[0].query["apikey"] == "the-paid-key"


async def test_a_refusal_is_told_in_the_services_words() -> None:
    refused = told({"error": True, "reason": "Cannot initialize daily from invalid String value"}, 400)
    async with site({"/v1/forecast": [refused, NOW | {"current_weather": None}, told({"error": True}, 502)]}) as there:
        toolkit = weather(base_url=there.address)
        given: dict[str, Any] = {"latitude": 1.0, "longitude": 2.0}
        assert await refusal(toolkit, "get_current_weather", **given) == (
            "Open-Meteo refuses the request (400): Cannot initialize daily from invalid String value."
        )
        assert "gave no current weather" in await refusal(toolkit, "get_current_weather", **given)
        assert "has failed (502). Try again later." in await refusal(toolkit, "get_current_weather", **given)
        assert "no place at latitude 91" in await refusal(toolkit, "get_current_weather", latitude=91.0, longitude=2.0)
        assert "no place at" in await refusal(
            toolkit, "get_daily_weather_forecast", latitude=float("nan"), longitude=2.0
        )
        assert len(there.seen) == 3


async def test_a_call_to_slow_down_says_how_long() -> None:
    busy = told({"error": True, "reason": "Minutely API request limit exceeded."}, 429, Retry_After="30")
    plain = web.Response(status=429)
    dated = web.Response(status=429, headers={"Retry-After": "Fri, 07 Apr 2023 15:00:00 GMT"})
    async with site({"/v1/forecast": [busy, plain, dated]}) as there:
        toolkit = weather(base_url=there.address)
        told_so = [await refusal(toolkit, "get_current_weather", latitude=1.0, longitude=2.0) for _ in range(3)]
    assert told_so[0] == (
        "Open-Meteo asks to slow down (429): Minutely API request limit exceeded. Wait 30 s, then call again."
    )
    assert "Wait a minute" in told_so[1]
    assert "Call again after Fri, 07 Apr 2023" in told_so[2]


LONDON = {
    "id": 2643743,
    "name": "London",
    "latitude": 51.50853,
    "longitude": -0.12574,
    "elevation": 25.0,
    "feature_code": "PPLC",
    "country_code": "GB",
    "timezone": "Europe/London",
    "population": 7556900,
    "country": "United Kingdom",
    "admin1": "England",
    "admin2": "Greater London",
}
ONTARIO = {
    "name": "London",
    "latitude": 42.98,
    "longitude": -81.23,
    "country_code": "CA",
    "country": "Canada",
    "admin1": "Ontario",
}


def geocoding(seen: Seen) -> web.Response:
    """The service knows bare names only."""
    found = [ONTARIO, LONDON] if seen.query["name"] == "London" else []
    return told(
        {"results": found[: int(seen.query["count"])], "generationtime_ms": 0.5}
        if found
        else {"generationtime_ms": 0.2}
    )


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("London", "Canada (CA)"),
        ("London, UK", "United Kingdom (GB)"),
        ("London,England", "United Kingdom (GB)"),
        ("London, United Kingdom", "United Kingdom (GB)"),
        ("London, Ontario, Canada", "Canada (CA)"),
        ("London, gb", "United Kingdom (GB)"),
    ],
)
async def test_places_are_found_with_their_country_as_people_write_it(name: str, first: str) -> None:
    async with site({"/v1/search": geocoding}) as there:
        found = await call(weather(places_url=there.address), "search_location_geocoordinates", location_name=name)
    assert found[0]["country"] == first
    if first.startswith("United"):
        assert found[0] == {
            "name": "London",
            "latitude": 51.50853,
            "longitude": -0.12574,
            "feature_code": "PPLC",
            "timezone": "Europe/London",
            "population": 7556900,
            "country": "United Kingdom (GB)",
            "administrative_zones": "Greater London, England",
        }


async def test_a_place_that_is_not_found_is_told_with_a_simpler_name() -> None:
    async with site({"/v1/search": geocoding}) as there:
        toolkit = weather(places_url=there.address)
        assert "Try 'London' alone" in await refusal(
            toolkit, "search_location_geocoordinates", location_name="London, Mars"
        )
        assert "No place is found by the name 'Xyzzy'" in await refusal(
            toolkit, "search_location_geocoordinates", location_name="Xyzzy"
        )
        assert "No place" in await refusal(toolkit, "search_location_geocoordinates", location_name="  ")


# --- where the user is, and when


async def test_the_users_place_is_told_by_the_network_address() -> None:
    answer = {"ip": "192.0.2.1", "city": "Hasselt", "region": "Flanders", "country": "BE", "loc": "50.9311,5.3378"}
    async with site({"/json": answer}) as there:
        said = await call(location(base_url=there.address, key="the-ip-token"), "get_user_location")
        assert said == {"address": "Hasselt, Flanders, BE", "latitude": 50.9311, "longitude": 5.3378}
        assert there.seen[0].headers["authorization"] == "Bearer the-ip-token"


async def test_the_users_own_word_on_where_they_are_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_LOCATION", "Lyon, FR; 45.76; 4.84")
    said = await call(location(base_url="http://127.0.0.1:1"), "get_user_location")
    assert said == {"address": "Lyon, FR", "latitude": 45.76, "longitude": 4.84}
    for wrong in ("Lyon", "Lyon; 45", "Lyon; 95; 4", "Lyon; north; east"):
        monkeypatch.setenv("PLAIT_LOCATION", wrong)
        assert 'PLAIT_LOCATION is "PLACE; LATITUDE; LONGITUDE"' in await refusal(location(), "get_user_location")


async def test_an_address_without_a_place_is_told() -> None:
    async with site({"/json": {"ip": "127.0.0.1", "bogon": True}}) as there:
        assert "Set PLAIT_LOCATION" in await refusal(location(base_url=there.address), "get_user_location")


async def test_the_date_has_its_day_of_the_week() -> None:
    assert await call(date(now=lambda: datetime(2026, 3, 5, 23, 59)), "get_current_date") == "2026-03-05 (Thursday)"
    before = datetime.now()
    assert (await call(date(), "get_current_date"))[:10] in {
        before.date().isoformat(),
        datetime.now().date().isoformat(),
    }


# --- the picture of the day

APOD = {
    "copyright": "\nRheinhold\nWittich\n",
    "date": "2023-04-07",
    "explanation": "Brilliant, blue, supergiant star Rigel ...",
    "hdurl": "https://apod.example/image/Rigel_wide.jpg",
    "media_type": "image",
    "service_version": "v1",
    "title": "Rigel Wide",
    "url": "https://apod.example/image/Rigel_wide1200.jpg",
}


async def test_the_picture_of_the_day_comes_with_what_is_said_of_it() -> None:
    name = "get_nasa_astronomy_picture_of_the_day"
    async with site({"/planetary/apod": APOD}) as there:
        said = await call(nasa(base_url=there.address), name)
        assert said == {key: value for key, value in APOD.items() if key != "service_version"} | {
            "copyright": "Rheinhold Wittich"
        }
        await call(nasa(base_url=there.address, key="a-key-of-my-own"), name)
        assert [seen.query["api_key"] for seen in there.seen] == ["DEMO_KEY", "a-key-of-my-own"]


async def test_nasas_refusals_are_told_and_never_with_the_key() -> None:
    name = "get_nasa_astronomy_picture_of_the_day"
    key = "Q7secretSECRETsecret"
    invalid = told({"error": {"code": "API_KEY_INVALID", "message": f"An invalid api_key was supplied: {key}"}}, 403)
    over = told({"error": {"code": "OVER_RATE_LIMIT", "message": "You have exceeded your rate limit."}}, 429)
    none = told({"code": 404, "msg": "No data available for date: 2023-04-08", "service_version": "v1"}, 404)
    async with site({"/planetary/apod": [invalid, over, none, told([1, 2]), told({"a": 1})]}) as there:
        toolkit = nasa(base_url=there.address, key=key)
        said = [await refusal(toolkit, name) for _ in range(5)]
    assert said[0] == (
        "NASA's picture of the day refuses access (403): An invalid api_key was supplied: [secret]. Check NASA_API_KEY."
    )
    assert "slow down (429): You have exceeded your rate limit" in said[1]
    assert "(404): No data available for date: 2023-04-08." in said[2]
    assert "something else than an object" in said[3]
    assert "holds no picture" in said[4]


async def test_a_key_is_taken_out_in_whatever_form_it_is_said() -> None:
    key = 'Q7/secret"SECRET+x='
    forms = (json.dumps(key)[1:-1], json.dumps(key)[1:-1].replace("/", "\\/"), quote(key), quote(key, safe=""))
    bodies = [web.Response(text=f'{{"url": "?key={form}", "title": "t"}}') for form in forms]
    async with site({"/planetary/apod": bodies}) as there:
        toolkit = nasa(base_url=there.address, key=key)
        for _ in forms:
            read = await call(toolkit, "get_nasa_astronomy_picture_of_the_day")
            assert read["url"] == "?key=[secret]"


# --- share prices

CSV = (
    "timestamp,open,high,low,close,volume\r\n"
    "2023-03-31,283.73,289.27,272.0501,288.3000,151063284\r\n"
    "2023-04-06,286.52,292.08,281.64,291.6000,109331300\r\n"
    "2023-03-24,276.98,283.33,269.52,280.5700,176532800\r\n"
)


async def test_prices_are_a_typed_table_with_the_newest_week_first() -> None:
    async with site({"/query": web.Response(text=CSV, content_type="application/x-download")}) as there:
        toolkit = stocks(base_url=there.address, key="MYKEY123")
        table = await call(toolkit, "get_weekly_stock_price", symbol=" msft ")
        assert there.seen[0].query == {
            "function": "TIME_SERIES_WEEKLY",
            "symbol": "MSFT",
            "datatype": "csv",
            "apikey": "MYKEY123",
        }
    assert isinstance(table, Table)
    assert table.about() == (
        "<Table columns=[timestamp: date, open: float, high: float, low: float, close: float, volume: int], 3 rows>"
    )
    assert table.row(0) == {
        "timestamp": "2023-04-06",
        "open": 286.52,
        "high": 292.08,
        "low": 281.64,
        "close": 291.6,
        "volume": 109331300,
    }
    assert [row[0] for row in table.rows] == ["2023-04-06", "2023-03-31", "2023-03-24"]


async def test_what_alpha_vantage_says_in_place_of_a_table_is_told_and_never_with_the_key() -> None:
    key = "ABCDEF123456"
    answers = [
        {"Error Message": "Invalid API call. Please retry or visit the documentation for TIME_SERIES_WEEKLY."},
        {
            "Information": f"We have detected your API key as {key} and our standard API rate limit is 25 requests "
            "per day."
        },
        {"Note": "Thank you! Our standard API call frequency is 5 calls per minute."},
        {"Information": f"The **demo** API key is for demo purposes only: {key}"},
        web.Response(text="<html>"),
        web.Response(text=CSV.splitlines()[0] + "\nsoon,1,2,3,4,5\n"),
        web.Response(text=CSV.splitlines()[0] + "\n2023-01-01,1,2\n"),
    ]
    async with site({"/query": answers}) as there:
        toolkit = stocks(base_url=there.address, key=key)
        said = [await refusal(toolkit, "get_weekly_stock_price", symbol="NOPE") for _ in range(7)]
    assert "has no prices for 'NOPE'. Check the ticker symbol." in said[0]
    assert "asks to slow down (429): We have detected your API key as [secret]" in said[1]
    assert "asks to slow down" in said[2]
    assert "says: The **demo** API key is for demo purposes only: [secret]. Check ALPHAVANTAGE_API_KEY." in said[3]
    assert "no table of prices" in said[4]
    assert "can't be read" in said[5] and "can't be read" in said[6]
    assert all(key not in one for one in said)


async def test_without_a_key_it_is_said_how_to_set_one_and_nobody_is_asked() -> None:
    async with site({"/query": web.Response(text=CSV)}) as there:
        said = await refusal(stocks(base_url=there.address), "get_weekly_stock_price", symbol="MSFT")
        assert there.seen == []
    assert said.startswith(
        "Alpha Vantage needs a key, and ALPHAVANTAGE_API_KEY is not set. Set ALPHAVANTAGE_API_KEY in"
    )
    for wrong in ("", "Microsoft Corporation", "MSFT&apikey=x", "x" * 30):
        assert "no ticker symbol" in await refusal(stocks(key="k"), "get_weekly_stock_price", symbol=wrong)


# --- what can go wrong with any of them


async def test_a_service_that_is_not_there_is_told() -> None:
    toolkit = weather(base_url="http://127.0.0.1:1", timeout=5)
    assert await refusal(toolkit, "get_current_weather", latitude=1.0, longitude=2.0) == (
        "Open-Meteo can't be reached: connection refused. Is the network there? The address is set by OPEN_METEO_URL."
    )
    toolkit = weather(base_url="http://no-such-host.invalid", timeout=20)
    assert "name is not known (DNS)" in await refusal(toolkit, "get_current_weather", latitude=1.0, longitude=2.0)
    toolkit = weather(base_url="somewhere")
    assert "OPEN_METEO_URL is none" in await refusal(toolkit, "get_current_weather", latitude=1.0, longitude=2.0)


async def test_an_answer_that_is_none_is_told() -> None:
    async with site(
        {
            "/v1/forecast": [
                web.Response(text="<html>Sign in to the hotel's network</html>", content_type="text/html"),
                web.Response(status=302, headers={"Location": "https://elsewhere.example/"}),
                web.Response(body=b"[" * 100_000),
                web.Response(body=b"x" * (9 << 20)),
            ]
        }
    ) as there:
        toolkit = weather(base_url=there.address)
        said = [await refusal(toolkit, "get_current_weather", latitude=1.0, longitude=2.0) for _ in range(4)]
        assert len(there.seen) == 4
    assert 'something else than JSON: "<html>Sign in' in said[0]
    assert "has moved (302). Set OPEN_METEO_URL" in said[1]
    assert "something else than JSON" in said[2]
    assert "sent more than 8 MB" in said[3]


def test_all_are_read_only_and_named_as_recorded() -> None:
    toolkit = (*weather(), *location(), *nasa(), *stocks(), *date())
    assert all(tool.read_only for tool in toolkit)
    assert {tool.name: list(tool.spec.parameters["properties"]) for tool in toolkit} == {
        "get_current_weather": ["latitude", "longitude"],
        "get_daily_weather_forecast": ["latitude", "longitude"],
        "search_location_geocoordinates": ["location_name"],
        "get_user_location": [],
        "get_nasa_astronomy_picture_of_the_day": [],
        "get_weekly_stock_price": ["symbol"],
        "get_current_date": [],
    }
    assert all(named(toolkit, tool.name).spec.description for tool in toolkit)
