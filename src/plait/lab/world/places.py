"""The gazetteer of the world: some dozens of towns, several of the same name.

Coordinates are WGS84 degrees, elevations metres. The facts are those of public gazetteers, rounded.
"""

from __future__ import annotations

from importlib import resources

import msgspec
from msgspec import Struct


class Town(Struct, frozen=True, array_like=True):
    """A town: its name, country and zones, coordinates, and further facts of a geocoding service."""

    name: str
    latitude: float
    longitude: float
    country: str
    code: str
    zones: str
    timezone: str
    population: int
    elevation: float
    feature: str = "PPL"

    @property
    def label(self) -> str:
        """The name that no other town has: `London, Ontario, Canada`."""
        return ", ".join(dict.fromkeys((self.name, self.zones.rpartition(", ")[2], self.country)))

    @property
    def address(self) -> str:
        """The address as a location service writes it: `Ghent, Flanders, BE`."""
        return f"{self.name}, {self.zones.rpartition(', ')[2]}, {self.code}"

    def answer(self) -> dict[str, object]:
        """Return the facts that a geocoding service lists."""
        return {
            "name": self.name,
            "latitude": self.latitude,
            "longitude": self.longitude,
            "feature_code": self.feature,
            "timezone": self.timezone,
            "population": self.population,
            "country": f"{self.country} ({self.code})",
            "administrative_zones": self.zones,
        }


_LINES = resources.files(__package__).joinpath("places.txt").read_text("utf-8").splitlines()
TOWNS = tuple(msgspec.convert(line.split("|"), Town, strict=False) for line in _LINES)
HOME = "Ghent"
"""Where the user is by default."""


def find_town(label: str) -> Town | None:
    """Find a town by its name, label or address; for a bare name, the first one."""
    wanted = label.casefold().strip()
    exact = (town for town in TOWNS if wanted in (town.label.casefold(), town.address.casefold()))
    return next(exact, next((town for town in TOWNS if town.name.casefold() == wanted), None))


_COUNTRIES = {"uk": "gb", "usa": "us", "u.s.": "us", "u.k.": "gb", "great britain": "gb"}


def search_towns(asked: str) -> tuple[Town, ...]:
    """Find the towns of a name, the largest first, at most five; the part after a comma selects among them."""
    name, *within = (part.strip().casefold() for part in asked.split(","))
    same = [town for town in TOWNS if town.name.casefold() == name and all(_is_within(town, word) for word in within)]
    return tuple(sorted(same, key=lambda town: -town.population))[:5]


def _is_within(town: Town, word: str) -> bool:
    zones = [zone.strip() for zone in town.zones.casefold().split(",")]
    return not word or _COUNTRIES.get(word, word) in (town.country.casefold(), town.code.casefold(), *zones)
