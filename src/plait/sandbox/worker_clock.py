"""A clock that shows a given time, and seeded random numbers, under Python's own names. Stdlib only.

Sleeping takes no time, but it counts as running time, so code that sleeps beyond its time limit ends there.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any


class Clock:
    """The clock. `now` is in seconds since 1970; `slept` is the total since the session began. When a piece of code has
    slept longer than `seconds`, `over` is called and does not return."""

    def __init__(self, seconds: float, over: Callable[[], None]) -> None:
        self.now = 0.0
        self.slept = 0.0
        self.seconds = seconds
        self.left = seconds
        self.over = over

    def set(self, now: float, offset: int) -> None:
        """Set the clock for a new piece of code. `offset` is the local offset from UTC in seconds."""
        self.now, self.left = now, self.seconds
        sign = "-" if offset >= 0 else "+"  # POSIX counts towards the west
        hours, rest = divmod(abs(offset), 3600)
        minutes, seconds = divmod(rest, 60)
        name = f"{'-' if offset < 0 else '+'}{hours:02}{minutes:02}" if offset else "UTC"
        os.environ["TZ"] = f"<{name}>{sign}{hours}:{minutes:02}:{seconds:02}"
        time.tzset()

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.slept += seconds
        self.left -= seconds
        if self.left < 0:
            self.over()


def keep_datetime_in_python() -> None:
    """Load the Python version of `datetime`, which asks `time` for the time. Call before anything imports it."""
    sys.modules["_datetime"] = None  # type: ignore[assignment]


def install(clock: Clock, seed: int) -> None:
    """Replace Python's own clock and random numbers."""
    for name in ("time", "monotonic", "perf_counter"):
        _put(time, name, lambda: clock.now)
        _put(time, name + "_ns", lambda: int(clock.now * 1e9))
    for name in ("process_time", "thread_time"):
        _put(time, name, lambda: clock.slept)
        _put(time, name + "_ns", lambda: int(clock.slept * 1e9))
    _put(time, "clock_gettime", lambda clk_id: clock.now)
    _put(time, "clock_gettime_ns", lambda clk_id: int(clock.now * 1e9))
    for module in (os, sys.modules["posix"]):
        _put(module, "getpid", lambda: 1)
        _put(module, "times", lambda: os.times_result((clock.slept, 0.0, 0.0, 0.0, clock.now)))
    _put(time, "sleep", clock.sleep)
    for name in ("localtime", "gmtime", "ctime"):
        _put(time, name, _at(clock, getattr(time, name)))
    asctime, strftime, localtime = time.asctime, time.strftime, time.localtime
    _put(time, "asctime", lambda t=None: asctime(localtime() if t is None else t))
    _put(time, "strftime", lambda format, t=None: strftime(format, localtime() if t is None else t))

    source = random.Random(seed)

    def urandom(size: int, /) -> bytes:
        return source.randbytes(size)

    for module in (os, sys.modules["posix"]):
        module.urandom = urandom  # type: ignore[attr-defined]
    random._urandom = urandom  # type: ignore[attr-defined]
    plain = random.Random.seed

    def seed_(self: random.Random, a: Any = None, version: int = 2) -> None:
        plain(self, int.from_bytes(urandom(16), "big") if a is None else a, version)

    seed_.__name__ = "seed"
    random.Random.seed = seed_  # type: ignore[method-assign]
    instance: random.Random = random._inst
    random.seed = instance.seed
    instance.seed(seed)


def _put(module: Any, name: str, function: Callable[..., Any]) -> None:
    setattr(module, name, function)


def _at(clock: Clock, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda seconds=None: function(clock.now if seconds is None else seconds)
