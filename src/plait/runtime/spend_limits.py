"""Limits on what all runs together spend in a day or month."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct, ValidationError, convert

from plait.core.errors import ConfigError
from plait.journal.spending import SpendBound
from plait.models.prices import NANO
from plait.runtime.agents.options import Option, check_options

EACH = "*"


class SpendLimit(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True, forbid_unknown_fields=True):
    """The most that all runs together may spend in a day or month, counted in the journal.

    `user`, `agent` and `tag` say whose runs; None for all, "*" for each by itself. A run without a user counts as the
    user "". At least one of `usd`, `tokens` and `runs` is a limit. Raises `ConfigError` for an invalid limit.
    """

    usd: Annotated[float | None, Option("Maximum cost in USD.")] = None
    tokens: Annotated[int | None, Option("Maximum tokens, in and out together.")] = None
    runs: Annotated[int | None, Option("Maximum runs that begin, child runs not counted.")] = None
    per: Annotated[Literal["day", "month"], Option("The time for which it holds.")] = "day"
    user: Annotated[str | None, Option("Only runs of this user; * for each user by itself.")] = None
    agent: Annotated[str | None, Option("Only runs of this agent; * for each agent by itself.")] = None
    tag: Annotated[str | None, Option("Only runs with this tag; * for each tag by itself.")] = None
    zone: Annotated[str, Option("The time zone in which the day or month begins.")] = "UTC"

    def __post_init__(self) -> None:
        check_options(self)
        if self.usd is self.tokens is self.runs is None:
            raise ConfigError("A SpendLimit limits nothing.", hint="Give usd=, tokens= or runs=.")
        try:
            ZoneInfo(self.zone)
        except (OSError, ValueError, KeyError):
            hint = "Give a name such as Europe/Berlin."
            raise ConfigError(f"SpendLimit(zone={self.zone!r}): there is no such time zone.", hint=hint) from None

    def make_bound(self, whose: tuple[str | None, ...], now: float) -> SpendBound:
        """Return the limit of a user, agent and tag at a time, in seconds since 1970."""
        zone = ZoneInfo(self.zone)
        begins = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        ends = begins + timedelta(days=1)  # in time of the zone: a day may have 23 or 25 hours
        if self.per == "month":
            begins = begins.replace(day=1)
            ends = (begins + timedelta(days=31)).replace(day=1)
        name = json.dumps([self.per, str(begins.date()), self.zone, *whose])  # ASCII, which any database can hold
        usd = None if self.usd is None else int(self.usd * NANO)
        return SpendBound(name, ends.timestamp(), usd, self.tokens, self.runs)

    def list_whose(self, user: str, agents: Iterable[str], tags: Iterable[str]) -> list[tuple[str | None, ...]]:
        """Return those of a run that have this limit, each as user, agent and tag; none if it is not for that run."""

        def select(wanted: str | None, has: Iterable[str]) -> list[str | None]:
            return [None] if wanted is None else [each for each in has if wanted in (EACH, each)]

        chosen = select(self.user, [user]), select(self.agent, agents), select(self.tag, tags)
        return [(who, agent, tag) for who in chosen[0] for agent in chosen[1] for tag in chosen[2]]


def read_spend_limits(given: Any) -> tuple[SpendLimit, ...]:
    """Return limits that are given as objects or words, such as `usd=5,per=day,user=*`. Raises `ConfigError`."""
    if isinstance(given, str | SpendLimit) or not isinstance(given, Iterable):
        raise ConfigError(f"Agent(spend={given!r}) is invalid.", hint="Give a list of plait.SpendLimit(...).")
    return tuple(each if isinstance(each, SpendLimit) else _read_word(each) for each in given)


def _read_word(word: Any) -> SpendLimit:
    try:
        pairs = dict(part.split("=", 1) for part in word.split(",")) if isinstance(word, str) else word
        return convert({name.strip(): value for name, value in pairs.items()}, SpendLimit, strict=False)
    except (ValueError, AttributeError, ValidationError) as why:
        said = f": {why}" if isinstance(why, ValidationError) else ""
        hint = "Write usd=5,per=day,user=* (also tokens, runs, agent, tag, zone)."
        raise ConfigError(f"{word!r} is no spend limit{said}.", hint=hint) from None
