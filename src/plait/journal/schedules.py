"""The times at which a run begins again and again: cron expressions in a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from msgspec import Struct

from plait.core.errors import ConfigError


class Schedule(Struct, frozen=True):
    """Runs that begin at the times of the cron expression `every` in a time zone. `next` is the next time, in seconds
    since 1970."""

    name: str
    agent: str
    question: str
    queue: str
    every: str
    zone: str
    next: float


def next_time(every: str, zone: str, after: float) -> float:
    """Return the first time of a schedule after a time, both in seconds since 1970.

    An hour that a change to summer time skips counts at its end. Raises `ConfigError` for an expression or a zone that
    is none, or never comes."""
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        raise ConfigError("Schedules need the package cronsim.", hint="pip install 'plait[postgres]'") from None
    try:
        where = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"There is no time zone {zone!r}.", hint="Give a name such as Europe/Berlin.") from None
    try:
        return next(CronSim(every, datetime.fromtimestamp(after, where))).timestamp()
    except (CronSimError, AttributeError, TypeError) as why:
        hint = 'Give minute, hour, day, month and weekday, such as "0 8 * * 1": Mondays at eight.'
        raise ConfigError(f"{every!r} is no time: {why}.", hint=hint) from None
    except StopIteration:
        raise ConfigError(f"{every!r} never comes.", hint="Give a day that there is.") from None
