"""Share prices of the world: a weekly random walk since 1999, in which the last three months have one lowest week.

A question about the last three months has exactly one answer. The lowest close is well below the others, whether one
counts 13 weeks, 90 days or three calendar months. An older week closed lower still, and the lowest *low* of the three
months was in another week.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

from plait.lab.world.chance import chance

FIRST = date(1999, 11, 12)
"""The first week's Friday."""

SYMBOLS = {
    "MSFT": ("Microsoft", 45.0),
    "AAPL": ("Apple", 30.0),
    "IBM": ("IBM", 95.0),
    "GOOGL": ("Alphabet", 52.0),
    "AMZN": ("Amazon", 60.0),
    "NVDA": ("NVIDIA", 20.0),
    "INTC": ("Intel", 38.0),
    "ORCL": ("Oracle", 27.0),
    "CSCO": ("Cisco", 36.0),
    "KO": ("Coca-Cola", 29.0),
    "DIS": ("Disney", 31.0),
    "SAP": ("SAP", 48.0),
}
"""Symbols with the company's name and the first week's close in USD."""


class Week(NamedTuple):
    """A week's trade, named by its last trading day: USD, and shares traded."""

    timestamp: date
    open: float
    high: float
    low: float
    close: float
    volume: int


def make_weeks(seed: int, symbol: str, today: date) -> list[Week]:
    """Make all weeks to `today`, newest first as the service gives them; the last one is unfinished."""
    walk = chance(seed, "stock", symbol)
    close = SYMBOLS[symbol][1]
    made: list[Week] = []
    ends = [FIRST + timedelta(weeks=n) for n in range(max(0, (today - FIRST).days // 7) + 1)]
    last = today - timedelta(days=max(0, today.weekday() - 4))
    for on in ends if ends[-1] >= last else [*ends, last]:
        start = close * (1 + walk.gauss(0, 0.006))
        close = max(1.0, start * (1 + walk.gauss(0.0022, 0.028)))
        high = max(start, close) * (1 + abs(walk.gauss(0, 0.012)))
        low = min(start, close) * (1 - abs(walk.gauss(0, 0.012)))
        volume = walk.randrange(40_000_000, 260_000_000)
        made.append(Week(on, round(start, 2), round(high, 2), round(low, 2), round(close, 2), volume))
    if len(made) >= 40:  # the last months get their one lowest close, `back` weeks ago
        back = chance(seed, "dip", symbol, today.isoformat()).randrange(3, 10)
        others = [week.close for i, week in enumerate(made[-16:], -16) if i != -1 - back]
        lowest = round(min(others) * 0.962, 2)
        made[-1 - back] = _with_close(made[-1 - back], lowest)
        for i in range(-26, -22):  # before the three months it was lower still, for a while
            made[i] = _with_close(made[i], round(lowest * (0.88 + 0.01 * (26 + i)), 2))
        i = -1 - (back - 2)  # a bad day in a week that ended well
        made[i] = made[i]._replace(low=round(min(made[-1 - back].low, lowest) * 0.985, 2))
    return made[::-1]


def _with_close(week: Week, close: float) -> Week:
    """Return the week with another close, its high and low around it."""
    return week._replace(
        close=close, high=round(max(week.high, close * 1.011), 2), low=round(min(week.low, close * 0.991), 2)
    )


def find_lowest_week(rows: list[Week], today: date, months: int = 3) -> Week:
    """Return the week with the lowest close of the last months."""
    since = today - timedelta(days=round(months * 30.44))
    return min((week for week in rows if week.timestamp >= since), key=lambda week: week.close)
