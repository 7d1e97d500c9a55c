"""Names processes, so that two never perform the same run, and runs.

An owner is host, process number, start time, the kernel's boot id and the PID namespace."""

from __future__ import annotations

import os
import random as _random
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

Life: TypeAlias = Literal["alive", "dead", "elsewhere"]

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Digits and letters that are easy to tell apart when read aloud."""

_given: dict[str, set[str]] = {}
_chance = _random.SystemRandom()
_LOADED = time.time_ns()
"""Stands for the start of this process without /proc. A later process with the same number has another."""


def owner_of_this_process() -> str:
    """Return `host:pid:start:boot:namespace`. The start excludes a later process with the same number."""
    return _owner(os.getpid())


@lru_cache(maxsize=4)  # by process number: a forked child is another owner
def _owner(pid: int) -> str:
    return ":".join((socket.gethostname(), str(pid), str(_start_of(pid) or _LOADED), *_place(pid)))


@lru_cache(maxsize=4)
def _place(pid: int) -> tuple[str, str]:
    """Return the kernel's boot id and this process's PID namespace; empty where the system does not report them. If
    /proc belongs to another namespace, it shows other processes under our numbers. Then the namespace gets a mark, and
    Plait does not look numbers up."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
        return boot, namespace if os.readlink("/proc/self") == str(pid) else f"{namespace}{_BLIND}"
    except OSError:
        return "", ""


_BLIND = "-blind"


def life_of(owner: str, is_held: Callable[[str], bool | None] = lambda owner: None) -> Life:
    """Return whether the process of an owner string is alive; `elsewhere` if this machine cannot know.

    - same kernel and namespace: the process's number and start time decide; without /proc its number and `is_held`;
    - same kernel (a container beside this one), or same host name after a restart: `is_held` decides;
    - another kernel and host name: alive if it is held, otherwise unknown.

    `is_held` returns whether the process holds its lock (`sqlite/holders.py`); None if unknown.
    """
    host, pid, start, boot, namespace = (*owner.split(":"), "", "", "", "")[:5]
    if not pid.isdigit():
        return "dead"
    here = _place(os.getpid())
    same_host = host == socket.gethostname()
    if ((boot, namespace) == here if boot else same_host) and not namespace.endswith(_BLIND):
        if here[0]:
            now, began = _start_of(int(pid)), int(start) if start.isdigit() else 0
            return "alive" if now is not None and (began == 0 or now == began) else "dead"
        if owner == owner_of_this_process():
            return "alive"
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return "dead"
        except PermissionError:
            pass
        return "dead" if is_held(owner) is False else "alive"
    held = is_held(owner)
    if held:
        return "alive"
    return "dead" if held is False and (same_host or (boot and boot == here[0])) else "elsewhere"


def _start_of(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None for no such process, or no /proc. Also None for a
    zombie (killed, not yet reaped by its parent), because it performs nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    fields = stat[stat.rfind(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return None if fields[0] in ("Z", "X") else int(fields[19])


def new_run_id(now: float | None = None, random: _random.Random | None = None) -> str:
    """Return a new run's name: day, time (UTC) and six characters, such as `20261121-035501-k3f9qd`.

    Names sort by time: two of the six characters give the 1/1,024 of a second. `now` is in seconds since 1970. One
    process never repeats a name. Two processes that start runs in the same thousandth of a second collide with a chance
    of one in a million.
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
