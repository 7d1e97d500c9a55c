"""What makes a session behave the same on any machine: its clock, its random numbers, and an `id()` without addresses.
Stdlib only.

Sleeping takes no time, but it counts as running time, so code that sleeps beyond its time limit ends there. Objects get
numbers in the order in which code asks for their `id`. It keeps its number while it lives, and no other object gets it.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import os
import random
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from plait.sandbox.piece_limits import PieceUse

FIRST, STEP = 0x7F0000000010, 48
"""Numbers that look like addresses."""

FREED_BYTES = 1 << 20
"""Plait drops unreferenced objects when they may take this many bytes."""

_address = builtins.id


class Clock:
    """The clock. `now` is in seconds since 1970; `slept` is the total since the session began. `use` counts sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0
        self.use: PieceUse | None = None

    def set(self, now: float, offset: int) -> None:
        """Set the clock for a new piece of code. `offset` is the local offset from UTC in seconds."""
        self.now = now
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
        if self.use is not None:
            self.use.sleep(seconds)


def install_clock(clock: Clock, seed: int) -> None:
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

    if (in_c := sys.modules.get("_datetime")) is not None:  # it asks the kernel for the time
        kind: Any = in_c.datetime
        names: Any = gc.get_referents(kind.__dict__)[0]
        names["now"] = classmethod(lambda cls, tz=None: cls.fromtimestamp(clock.now, tz))
        names["utcnow"] = classmethod(lambda cls: cls.fromtimestamp(clock.now, in_c.timezone.utc).replace(tzinfo=None))
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

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


class Identities:
    """Number objects. An object without weak references is held until this is the only reference to it."""

    def __init__(self) -> None:
        self.made = 0
        self.numbers: dict[int, tuple[int, Any]] = {}  # by address: the number, and what keeps the entry valid
        self.held, self.limit = 0, FREED_BYTES

    def __call__(self, value: Any) -> int:
        address = _address(value)
        known = self.numbers.get(address)
        if known is not None:
            return known[0]
        number = FIRST + STEP * self.made
        self.made += 1
        try:
            keeper: Any = weakref.ref(value, lambda _: self.numbers.pop(address, None))
        except TypeError:
            keeper = value
            self.held += 200 + sys.getsizeof(value, 0)
        self.numbers[address] = (number, keeper)
        if self.held > self.limit:
            self._let_go()
        return number

    def _let_go(self) -> None:
        """Drop the entries of objects that are not referenced anywhere."""
        self.held = 0
        for address in list(self.numbers):
            keeper = self.numbers[address][1]
            if isinstance(keeper, weakref.ref):
                continue
            if sys.getrefcount(keeper) <= 3:  # references of the entry, the name and the argument
                del self.numbers[address]
            else:
                self.held += 200 + sys.getsizeof(keeper, 0)
        self.limit = max(FREED_BYTES, 2 * self.held)


def install_identity() -> None:
    """Replace `id` with these numbers."""
    number = Identities().__call__

    def id(obj: Any, /) -> int:
        return number(obj)

    builtins.id = id
