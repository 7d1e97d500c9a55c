"""Who performs a run, so that two processes never perform the same one; and how runs are named."""

from __future__ import annotations

import os
import random as _random
import socket
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Literal

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Digits and letters that are not taken for one another when read out."""

_given: dict[str, set[str]] = {}
_chance = _random.SystemRandom()


def owner_of_this_process() -> str:
    """`host:pid:start`. The start tells a process from a later one that was given the same number."""
    return _owner(os.getpid())


@lru_cache(maxsize=4)  # by process number: a forked child is another owner
def _owner(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{_start_of(pid) or 0}"


def life_of(owner: str) -> Literal["alive", "dead", "elsewhere"]:
    """Whether the process of an owner string still lives; `elsewhere`: on another host, can't be told."""
    host, pid_text, start_text = (*owner.rsplit(":", 2), "", "")[:3]
    if not pid_text.isdigit():
        return "dead"
    if host != socket.gethostname():
        return "elsewhere"
    pid, start = int(pid_text), int(start_text) if start_text.isdigit() else 0
    if sys.platform.startswith("linux"):
        now = _start_of(pid)
        return "alive" if now is not None and (start == 0 or now == start) else "dead"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:
        return "alive"
    return "alive"


def _start_of(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None: no such process, or no /proc.

    A zombie (killed, but its parent has not taken notice) performs nothing any more: None as well.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    fields = stat[stat.rfind(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return None if fields[0] in ("Z", "X") else int(fields[19])


def new_run_id(now: float | None = None, random: _random.Random | None = None) -> str:
    """A new run's name: day, time (UTC) and six characters, such as `20261121-035501-k3f9qd`.

    Names sort by time: two of the six tell the second's 1,024 parts apart. `now` is in seconds since 1970.
    No name is given out twice by one process; two processes meet with a chance of one in a million
    when they start runs in the same thousandth of a second.
    """
    now = time.time() if now is None else now
    source = random or _chance
    second = _second(int(now))
    part = int(now % 1 * 1024)
    given = _given.get(second)
    if given is None:
        _given.clear()
        given = _given[second] = set()
    while True:
        chance = source.getrandbits(20)
        number = part << 20 | chance
        name = f"{second}-" + "".join(ALPHABET[number >> shift & 31] for shift in (25, 20, 15, 10, 5, 0))
        if name not in given:
            given.add(name)
            return name


@lru_cache(maxsize=1)
def _second(now: int) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
