"""The weather of the world: made from seed, place and date, so that it is always the same.

A place is a cell of a tenth of a degree, as a weather service has one. Codes are WMO 4677, as open services use them.
"""

from __future__ import annotations

import math
from datetime import date, datetime

from msgspec import Struct

from plait.lab.world.chance import chance

DRY, FOGGY, DRIZZLE, RAIN, SHOWERS = (0, 1, 2, 3), (45, 48), (51, 53, 55), (61, 63, 65), (80, 81, 82)
SNOW, SNOW_SHOWERS, THUNDER = (71, 73, 75), (85, 86), (95, 96)
_OFTEN = {4: (3, 3, 4, 6), 3: (6, 3, 1), 2: (4, 1)}
"""How often the codes of a kind come: slight rain more often than heavy."""


class Day(Struct, frozen=True):
    """A day's weather: the WMO code, degrees Celsius at the warmest and coldest, millimetres of rain and snow."""

    date: date
    code: int
    warmest: float
    coldest: float
    precipitation: float


class Now(Struct, frozen=True):
    """The weather at one moment: degrees Celsius, wind in km/h and from which degree it comes, the WMO code."""

    temperature: float
    wind: float
    direction: float
    code: int
    is_day: int


def find_cell(latitude: float, longitude: float) -> tuple[float, float]:
    """Return the point that a service answers for, if it is asked for another nearby."""
    return round(round(latitude, 1), 2), round(round(longitude, 1), 2)


def make_day(seed: int, latitude: float, longitude: float, on: date) -> Day:
    lat, lon = find_cell(latitude, longitude)
    here = chance(seed, "climate", lat, lon)
    today = chance(seed, "weather", lat, lon, on.isoformat())
    turn = math.cos(2 * math.pi * (on.timetuple().tm_yday - 20) / 365.25) * (1 if lat >= 0 else -1)
    mean = 30 - 0.4 * abs(lat) - min(12, 0.23 * abs(lat)) * turn + here.uniform(-2.5, 2.5) + today.gauss(0, 2.5)
    spread = today.uniform(2, 6)
    kind = today.choices(
        (DRY, FOGGY, DRIZZLE, RAIN, SHOWERS, THUNDER), weights=(46, 8, 8, 18, 14, 6 if mean > 6 else 0)
    )[0]
    if mean - spread < -1 and kind not in (DRY, FOGGY):
        kind = SNOW if kind in (DRIZZLE, RAIN) else SNOW_SHOWERS
    code = today.choices(kind, weights=_OFTEN[len(kind)])[0]
    wet = 0.0 if kind in (DRY, FOGGY) else today.uniform(0.4, 2.6) * (1, 4, 12)[kind.index(code)]
    return Day(on, code, round(mean + spread, 1), round(mean - spread, 1), round(wet, 1))


def make_now(seed: int, latitude: float, longitude: float, at: datetime) -> Now:
    """Make the weather at a moment, `at` in UTC: within the day's range, by the hour of the sun."""
    lat, lon = find_cell(latitude, longitude)
    whole = make_day(seed, lat, lon, at.date())
    moment = chance(seed, "now", lat, lon, at.strftime("%Y-%m-%dT%H"))
    hour = (at.hour + lon / 15) % 24
    warmth = 0.5 - 0.5 * math.cos(2 * math.pi * (hour - 3) / 24)
    temperature = whole.coldest + (whole.warmest - whole.coldest) * warmth
    return Now(
        round(temperature, 1),
        round(moment.uniform(1, 38), 1),
        float(moment.randrange(0, 360)),
        whole.code,
        int(6 <= hour < 20),
    )
