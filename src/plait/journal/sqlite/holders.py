"""Tells which processes hold runs of a journal's file, also those of other PID namespaces.

While a process performs runs, it locks one byte of the file JOURNAL-owners; the owner's name gives the byte. The kernel
releases the lock when the process ends in any way, so no heartbeat is needed. A forked child does not inherit a POSIX
lock."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from plait.core.errors import JournalError
from plait.journal.owner import Life, life_of, owner_of_this_process
from plait.journal.records import RunRow
from plait.journal.store import ENDED

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, host and process number decide
    fcntl = None  # type: ignore[assignment]

LOCKS = "-owners"
"""Suffix of the file with the owners' locks."""


def life_of_holder(journal: Path | None, owner: str) -> Life:
    """Return whether the process that performs a run of a journal's file is alive. None: the journal is in memory."""
    return life_of(owner) if journal is None else life_of(owner, partial(is_held, journal))


def require_claimable(run: RunRow, journal: Path | None, log: Any, force: bool) -> None:
    """Raise `JournalError` if a run may not be claimed. `log` is this process's, if it performs the run."""
    name = run.head.run
    if run.status in ENDED:
        hint = f"`plait show {name}` shows it. `plait fork {name} --at N` starts a new run from step N."
        raise JournalError(f"Run {name} has ended ({run.status}): it cannot be resumed.", hint=hint)
    if not run.owner:
        return
    life = life_of_holder(journal, run.owner)
    host, pid, *_ = (*run.owner.split(":"), "?")
    if life == "elsewhere" and not force:
        raise JournalError(
            f"Run {name} belongs to a process on host {host}, and this machine cannot tell whether it still runs.",
            hint="If it does not, take the run over with --force (in Python: force=True).",
        )
    here = run.owner == owner_of_this_process()
    if life == "alive" and (not here or (log is not None and not log.has_ended)):
        where = "this very process" if here else f"process {pid} on host {host}"
        raise JournalError(f"Run {name} is still going on, in {where}.", hint="Wait for its end, or stop it first.")


class OwnerLock:
    """The open file of locks beside one journal. This process's locks last as long as an object of this class."""

    def __init__(self, path: Path) -> None:
        self.owner = ""
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self, owner: str) -> None:
        """Lock the owner's byte. Raises OSError if the file system has no locks."""
        self.owner = owner
        fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte_of(owner))

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            with contextlib.suppress(OSError):
                os.close(self.fd)


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
                return not _is_free(lock.fd, owner)
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
