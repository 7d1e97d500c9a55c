"""Records which process performs a run, so that two processes never perform the same one. Also names runs.

A run's row names its owner: host, process number, start time, the kernel's boot id and the PID namespace. While a
process performs runs, it locks one byte of the file JOURNAL-owners; the owner's name gives the byte. The kernel
releases the lock when the process ends in any way, so no heartbeat is needed. A forked child does not inherit a POSIX
lock.

- same kernel and namespace: the process's number and start time decide;
- same kernel (a container beside this one), or same host name after a restart: the lock decides;
- another kernel and host name: alive if the lock is held, otherwise unknown ("elsewhere").
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random as _random
import socket
import sys
import threading
import time
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Literal

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, host and process number decide
    fcntl = None  # type: ignore[assignment]

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Digits and letters that are easy to tell apart when read aloud."""

LOCKS = "-owners"
"""Suffix of the file with the owners' locks."""

_given: dict[str, set[str]] = {}
_chance = _random.SystemRandom()


def owner_of_this_process() -> str:
    """Return `host:pid:start:boot:namespace`. The start time excludes a later process with the same number."""
    return _owner(os.getpid())


@lru_cache(maxsize=4)  # by process number: a forked child is another owner
def _owner(pid: int) -> str:
    return ":".join((socket.gethostname(), str(pid), str(_start_of(pid) or 0), *_place(pid)))


@lru_cache(maxsize=4)
def _place(pid: int) -> tuple[str, str]:
    """Return the kernel's boot id and this process's PID namespace; empty where the system does not report them.

    If /proc belongs to another namespace, it shows other processes under our numbers. Then the namespace gets a mark,
    and Plait does not look numbers up.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
        return boot, namespace if os.readlink("/proc/self") == str(pid) else f"{namespace}{_BLIND}"
    except OSError:
        return "", ""


_BLIND = "-blind"


def life_of(owner: str, journal: Path | None = None) -> Literal["alive", "dead", "elsewhere"]:
    """Return whether the process of an owner string is alive; `elsewhere` if this machine cannot know.

    `journal` is the file whose runs it performs. The locks of processes that cannot be seen are beside that file.
    """
    host, pid, start, boot, namespace = (*owner.split(":"), "", "", "", "")[:5]
    if not pid.isdigit():
        return "dead"
    here = _place(os.getpid())
    same_host = host == socket.gethostname()
    if ((boot, namespace) == here if boot else same_host) and not namespace.endswith(_BLIND):
        return _life_of_number(int(pid), int(start) if start.isdigit() else 0)
    held = is_held(journal, owner) if journal is not None else None
    if held:
        return "alive"
    return "dead" if held is False and (same_host or (boot and boot == here[0])) else "elsewhere"


def _life_of_number(pid: int, start: int) -> Literal["alive", "dead"]:
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
    """Return when a process started, in clock ticks since boot; None for no such process, or no /proc.

    Also None for a zombie (killed, not yet reaped by its parent), because it performs nothing.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    fields = stat[stat.rfind(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return None if fields[0] in ("Z", "X") else int(fields[19])


class OwnerLock:
    """The open file of locks beside one journal. This process's locks last as long as an object of this class."""

    def __init__(self, path: Path) -> None:
        self.owner = ""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self, owner: str) -> None:
        """Lock the owner's byte. Raises OSError if the file system has no locks."""
        self.owner = owner
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte_of(owner))

    def is_free(self, owner: str) -> bool:
        """Return whether no process holds the owner's byte. Raises OSError if the file system has no locks."""
        return _is_free(self._fd, owner)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            with contextlib.suppress(OSError):
                os.close(self._fd)


_locks: weakref.WeakValueDictionary[tuple[str, int], OwnerLock] = weakref.WeakValueDictionary()
"""By file and process: closing one file of locks would release all locks that this process has on it."""

_guard = threading.RLock()


def hold_owner_lock(journal: Path, owner: str) -> OwnerLock | None:
    """Lock this process's byte beside a journal, until the result is released; None if locks are not available."""
    if fcntl is None or owner != owner_of_this_process():
        return None
    path = _locks_beside(journal)
    with _guard:
        lock = _locks.get((str(path), os.getpid()))
        try:
            if lock is None:
                lock = OwnerLock(path)
                lock.acquire(owner)
                _locks[str(path), os.getpid()] = lock
            return lock
        except OSError:
            return None


def is_held(journal: Path, owner: str) -> bool | None:
    """Return whether a process holds the owner's lock beside this journal; None if unknown."""
    if fcntl is None:
        return None
    path = _locks_beside(journal)
    with _guard:
        try:
            lock = _locks.get((str(path), os.getpid()))
            if lock is not None:
                return not lock.is_free(owner)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return not _is_free(fd, owner)
            finally:
                os.close(fd)
        except OSError:
            return None


def _locks_beside(journal: Path) -> Path:
    return Path(os.path.realpath(journal) + LOCKS)


def _is_free(fd: int, owner: str) -> bool:
    byte = _byte_of(owner)
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)
    return True


def _byte_of(owner: str) -> int:
    return int.from_bytes(hashlib.blake2b(owner.encode("utf-8", "surrogateescape"), digest_size=8).digest()) >> 2


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
