"""Which runs to list: the one filter of Python, the command line and the server."""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from plait.core.errors import ConfigError

STATES = ("answered", "failed", "stopped", "cancelled", "waiting", "crashed", "queued", "running", "interrupted")
RATINGS = ("good", "bad")
SORTS = ("started", "seconds", "cost", "tokens", "steps")
"""What a list is sorted by: the greatest first, the newest of equal ones first."""
UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}

Time: TypeAlias = datetime | date | float | str
"""A time: a `datetime` or `date` (without a zone: local), seconds since 1970, ISO 8601, or an age such as "7d"."""


class RunQuery(Struct, frozen=True):
    """Which runs to list, and in which order; empty fields match all. `make_query` makes one from a user's words.

    `status` may be "interrupted": the process of a running one is gone. `label` is its beginning, `labels` are whole.
    `words` must all occur in the question or the answer (without an answer, the reason), in upper or lower case.
    `parent` is the run that forks come from, `caller` the one that started child runs; child runs are listed only with
    `children`, `caller` or `numbers`. `is_tainted`: only runs that read content from outside. `is_open`: only runs that
    have not ended, or ended with calls in doubt. `limit`: -1 for all.

    `sort` is one of `SORTS`, with "-" before it for the smallest first; "" is "started". Cost and tokens include child
    runs. Runs whose value is not known come last. `before`: only the runs that follow the run with this number.

    A run has all of `tags`. `agent` is the name in its head, or under which a server served it. `grade` is the mark of
    a comparison, `rated` (good or bad) that of a user. It began at `since` or later and before `until`, in seconds
    since 1970. `min_cost` and `max_cost` are USD of the run with its child runs; unknown costs match neither.
    """

    status: str = ""
    loop: str = ""
    model: str = ""
    session: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()
    agent: str = ""
    words: str = ""
    parent: str = ""
    caller: str = ""
    numbers: tuple[int, ...] = ()
    children: bool = False
    is_tainted: bool = False
    is_open: bool = False
    before: int = 0
    limit: int = -1
    user: str = ""
    tags: tuple[str, ...] = ()
    grade: str = ""
    since: float | None = None
    until: float | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    rated: str = ""
    sort: str = ""

    @property
    def sorted_by(self) -> str:
        """Return the value that sorts the runs; "" if their numbers do."""
        return self.sort.removeprefix("-").replace("started", "")

    @property
    def is_ascending(self) -> bool:
        return self.sort.startswith("-")


ALL = RunQuery()

TEXTS = ("status", "grade", "rated", "user", "agent", "loop", "model", "session", "words")
FILTERS = (*TEXTS, "sort", "tags", "since", "until", "min_cost", "max_cost", "children", "limit", "before")
"""The fields that users give; `TEXTS` are texts."""


def make_query(**given: Any) -> RunQuery:
    """Return the query of these `FILTERS`; None and "" for those that are not given.

    `until` a day includes it. Raises `ConfigError`, which names the filter.
    """
    filters: dict[str, Any] = {}
    for name, value in given.items():
        if name not in FILTERS:
            raise ConfigError(f"There is no filter {name!r}.", hint=f"Use: {', '.join(FILTERS)}.")
        if value is None or value == "":
            continue
        match name:
            case "since" | "until":
                filters[name] = _read_time(name, value)
            case "min_cost" | "max_cost":
                filters[name] = _read_cost(name, value)
            case "tags":
                tags = value if isinstance(value, list | tuple | set) else [value]
                filters[name] = tuple(_read_text("tag", each) for each in tags)
            case "limit" | "before" | "children":
                if type(value) is not (bool if name == "children" else int) or abs(value) >= 2**63:
                    raise ConfigError(f"{name} is {value!r}.", hint="Give a number.")
                filters[name] = value
            case _:
                filters[name] = _read_text(name, value)
    for name, known in (("status", STATES), ("rated", RATINGS), ("sort", SORTS)):
        if filters.get(name, known[0]).removeprefix("-" if name == "sort" else "") not in known:
            raise ConfigError(f"There is no {name} {filters[name]!r}.", hint=f"Use one of: {', '.join(known)}.")
    return RunQuery(**filters)


def no_such_run(number: int) -> ConfigError:
    """Return the error for `before`, if that run was deleted."""
    return ConfigError(f"There is no run with the number {number} any more.", hint="List the runs from the start.")


def parse_age(age: str) -> float:
    """Return the seconds of an age such as 30d. Raises `ConfigError`."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([mhdw])", age.strip())
    if found is None:
        raise ConfigError(f"{age!r} is not an age.", hint="Give a number and m, h, d or w, such as 30d.")
    return float(found[1]) * UNITS[found[2]]


def _read_text(name: str, value: Any) -> str:
    try:
        if isinstance(value, str):
            value.encode()
            return value
    except UnicodeEncodeError:
        pass
    raise ConfigError(f"The filter {name} is {value!r}, which is no text.", hint="Give a text.")


def _read_cost(name: str, value: Any) -> float:
    cost = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            cost = float(value)
    if not 0 <= cost < math.inf:
        raise ConfigError(f"{name} is {value!r}, which is no cost.", hint="Give USD, such as 0.05.")
    return cost


def _read_time(name: str, value: Any) -> float:
    """Return a time (`Time`) in seconds since 1970."""
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        text = value.isoformat() if isinstance(value, date) else str(value).strip()
        with suppress(ConfigError):
            return time.time() - parse_age(text)
        with suppress(ValueError):
            day = date.fromisoformat(text) + timedelta(days=name == "until")
            return datetime(day.year, day.month, day.day).timestamp()
        return datetime.fromisoformat(text).timestamp()
    raise ConfigError(f"{name} is {value!r}, which is no time.", hint="Give 2026-11-20, 2026-11-20T08:30, or 7d.")
