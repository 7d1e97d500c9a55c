"""The world: its settings, its answers, and the messages sent.

An answer depends on the settings (seed, clock, the user's place) and on the question, never on earlier messages. So the
world is the same for every run, a resumed run needs no memory of the old one, and repeating the calls of a recorded run
in order rebuilds its state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.lab.world import pictures, places, stocks, weather
from plait.lab.world.chance import chance
from plait.toolkits.alpha_vantage import no_such_symbol

if TYPE_CHECKING:
    from plait.toolkits.image import Image
    from plait.tools import Tool

NOW = datetime(2023, 4, 7, 12, 25, tzinfo=UTC)
"""The default of the world's clock."""

CHANNELS = (
    "general",
    "random",
    "experimenting-with-simple-ai-agents",
    "weather-watch",
    "market-notes",
    "astronomy-club",
    "team-rotterdam",
    "travel-desk",
    "announcements",
)
"""The Slack channels, by name."""


class SentMessage(Struct, frozen=True):
    """A sent message: its service and channel, its text and its image.

    `number` counts messages from 1. `channel` is the Slack channel's id, "" on Discord. `called` is the channel as the
    call named it, an id or a name.
    """

    number: int
    service: str
    channel: str
    called: str
    text: str
    image: Image | None = None

    def json(self) -> dict[str, Any]:
        """Return the message in plain values, the image as its size and type."""
        plain: dict[str, Any] = {"number": self.number, "service": self.service}
        if self.service == "slack":
            plain |= {"channel": self.channel, "called": self.called}
        plain["text"] = self.text
        if self.image is not None:
            plain["image"] = {
                "width": self.image.width,
                "height": self.image.height,
                "media_type": self.image.media_type,
                "bytes": len(self.image.data),
            }
        return plain


class WorldCall(Struct, frozen=True):
    """A call that the world answered: the tool, its arguments in plain values, and its error ("": none)."""

    tool: str
    given: dict[str, Any]
    error: str = ""


class World:
    """Stand-ins for the toolkits' services, and the messages sent through them: `sent`, in order.

    `seed` makes another world; `now` is its clock, which does not move (UTC without a zone); `here` is the user's town,
    such as "Lyon" or "London, Ontario, Canada". `did` are all calls, with their errors. Raises `ConfigError` for an
    unknown town.
    """

    def __init__(self, seed: int = 0, *, now: datetime | None = None, here: str = "") -> None:
        place = places.find_town(here or places.HOME)
        if place is None:
            known = ", ".join(sorted({each.name for each in places.TOWNS}))
            raise ConfigError(f"The world has no town {here!r}.", hint=f"It has: {known}.")
        self.seed = seed
        self.now = NOW if now is None else now.astimezone(UTC) if now.tzinfo else now.replace(tzinfo=UTC)
        self.home = place
        self.sent: list[SentMessage] = []
        self.did: list[WorldCall] = []
        self._lock = threading.Lock()

    @property
    def word(self) -> str:
        """The word that makes this world again: `world:7,now=2024-02-29T08:00,here=Lyon, France`."""
        parts = [str(self.seed)]
        if self.now != NOW:
            seconds = self.now.second or self.now.microsecond
            parts.append(f"now={self.now.isoformat() if seconds else self.now.strftime('%Y-%m-%dT%H:%M')}")
        if self.home.name != places.HOME:
            parts.append(f"here={self.home.label}")
        return "world:" + ",".join(parts)

    @property
    def today(self) -> date:
        """The date on the world's clock."""
        return self.now.date()

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of this world, with the names and descriptions of the real services' tools."""
        from plait.lab.world.offline import tools_of

        return tools_of(self)

    def call(self, tool: str, **given: Any) -> Any:
        """Call a tool of this world by its name, as in Python. Raises what the tool raises."""
        return next(each for each in self.tools if each.name == tool).function(**given)

    def perform(self, tool: str, function: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Make a call and store it. Raises what the function raises."""
        plain = {name: value.about() if hasattr(value, "about") else value for name, value in given.items()}
        try:
            result = function(**given)
        except Exception as error:
            self.did.append(WorldCall(tool, plain, str(error) or type(error).__name__))
            raise
        self.did.append(WorldCall(tool, plain))
        return result

    def send(self, service: str, channel: str, called: str, text: str, image: Image | None) -> None:
        with self._lock:
            self.sent.append(SentMessage(len(self.sent) + 1, service, channel, called, text, image))

    @cached_property
    def channels(self) -> dict[str, str]:
        """The ids of the Slack channels, by name."""
        letters = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
        return {name: "C0" + "".join(chance(self.seed, "channel", name).choices(letters, k=9)) for name in CHANNELS}

    @property
    def picture(self) -> pictures.DailyPicture:
        """The picture of the world's day."""
        return chance(self.seed, "picture", self.today.isoformat()).choice(pictures.PICTURES)

    def read_weather(self, latitude: float, longitude: float) -> weather.Now:
        return weather.make_now(self.seed, latitude, longitude, self.now)

    def forecast(self, latitude: float, longitude: float, days: int = 7) -> list[weather.Day]:
        return [weather.make_day(self.seed, latitude, longitude, self.today + timedelta(n)) for n in range(days)]

    def height(self, latitude: float, longitude: float) -> float:
        """Return metres above the sea: of a town, or invented for a cell without one."""
        cell = weather.find_cell(latitude, longitude)
        for town in places.TOWNS:
            if weather.find_cell(town.latitude, town.longitude) == cell:
                return town.elevation
        return float(chance(self.seed, "elevation", *cell).randrange(2, 400))

    def weeks(self, symbol: str) -> list[stocks.Week]:
        """Return the weeks of a share's trade, newest first. Raises `ToolError` for an unknown symbol."""
        known = symbol.strip().upper()
        if known not in stocks.SYMBOLS:
            raise no_such_symbol(known)
        return stocks.make_weeks(self.seed, known, self.today)


def world_of(word: str) -> World:
    """Make the world of a word, with or without the prefix `world:`. Raises `ConfigError`. A seed, then settings,
    separated by commas: `7`, `7,now=2024-02-29`, `now=2024-02-29T08:00,here=Lyon`."""
    settings: dict[str, str] = {}
    last = ""
    for part in filter(None, (each.strip() for each in word.removeprefix("world").removeprefix(":").split(","))):
        name, equals, value = part.partition("=")
        if equals:
            last = name.strip()
            settings[last] = value.strip()
        elif last == "here":  # a town's own commas: here=London, Ontario, Canada
            settings["here"] += f", {part}"
        else:
            settings[last := "seed"] = part
    unknown = sorted(settings.keys() - {"seed", "now", "here"})
    if unknown:
        hint = "Settings: world:SEED,now=DATE,here=TOWN."
        raise ConfigError(f"A world has no setting {', '.join(unknown)}.", hint=hint)
    try:
        wrong = "its seed is no whole number"
        seed = int(settings.get("seed", 0))
        wrong = "its date can't be read"
        now = datetime.fromisoformat(settings["now"]) if "now" in settings else None
    except ValueError:
        hint = "Such as world:7 or world:7,now=2024-02-29T08:00,here=Lyon."
        raise ConfigError(f"{word!r} is no world: {wrong}.", hint=hint) from None
    if now is not None and not 2000 <= now.year < 2200:
        raise ConfigError(f"{word!r} is no world: it has the years 2000 to 2199.", hint="Its shares are traded then.")
    if now is not None and len(settings["now"]) <= 10:  # a date alone: at the usual time of day
        now = now.replace(hour=NOW.hour, minute=NOW.minute)
    return World(seed, now=now, here=settings.get("here", ""))
