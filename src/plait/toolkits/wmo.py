"""Weather codes in words: the part of WMO table 4677 that open weather services use."""

from __future__ import annotations

WORDS = {
    0: "Clear sky",
    1: "Mainly clear",
    2: "Partly cloudy",
    3: "Overcast",
    45: "Fog",
    48: "Fog that leaves rime",
    51: "Drizzle: light",
    53: "Drizzle: moderate",
    55: "Drizzle: dense",
    56: "Freezing drizzle: light",
    57: "Freezing drizzle: dense",
    61: "Rain: slight",
    63: "Rain: moderate",
    65: "Rain: heavy",
    66: "Freezing rain: light",
    67: "Freezing rain: heavy",
    71: "Snowfall: slight",
    73: "Snowfall: moderate",
    75: "Snowfall: heavy",
    77: "Snow grains",
    80: "Rain showers: slight",
    81: "Rain showers: moderate",
    82: "Rain showers: violent",
    85: "Snow showers: slight",
    86: "Snow showers: heavy",
    95: "Thunderstorm",
    96: "Thunderstorm with slight hail",
    99: "Thunderstorm with heavy hail",
}


def in_words(code: object) -> str:
    """A weather code in words; of an unknown one, its number."""
    if isinstance(code, (int, float)) and int(code) in WORDS:
        return WORDS[int(code)]
    return "Unknown" if code is None else f"Weather code {code}"
