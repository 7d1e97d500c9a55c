"""The claims of this process to runs, and the thread that renews them.

Theory of operation. A claim has a number, which grows with each claim of a run: what is written under an old number is
refused by the database. So a process that was frozen, or cut off, can write nothing any more. It could still begin an
effect, and that is what the deadline is for: it is counted from before the renewal was sent, on a clock that goes on
while the machine sleeps, and it is checked right before each effect. Past it nothing begins, until a renewal under the
same number succeeds, which proves that nobody took the run.

The thread has a connection of its own, so that neither a busy event loop nor a full pool delays a renewal. Many claims
are renewed in one statement. A claim whose log is gone is not renewed: its run was left. The answer also says which of
the runs somebody asks to cancel; a notification only brings the question forward."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from plait.core.errors import JournalError
from plait.journal.owner import Life, life_of

MARGIN = 0.2
"""Seconds by which a deadline comes before the end of the lease."""

_RENEW = """with mine as (select r.n from runs r join unnest(%s::bigint[], %s::bigint[]) u (n, claim) using (n, claim)
    where r.lease_until is not null order by r.n for no key update of r)
  update runs r set lease_until = clock_timestamp() + %s * interval '1 s' from mine where r.n = mine.n
  returning r.n, r.cancel"""


try:
    time.clock_gettime(_CLOCK := time.CLOCK_BOOTTIME)
except (AttributeError, OSError):  # another system, or a sandbox that refuses it
    _CLOCK = time.CLOCK_MONOTONIC


def boot_time() -> float:
    """Return a clock that also goes on while the machine is suspended, where the system has one."""
    return time.clock_gettime(_CLOCK)


def life_of_holder(owner: str) -> Life:
    """Return whether the process of an owner is alive. Where the system names no boot, a process of another machine may
    have the same host name and number: only the lease tells."""
    return life_of(owner) if owner.split(":")[3:4] > [""] else "elsewhere"


class TakenOver(JournalError):
    """Another process has claimed the run and continues it."""


class Claim:
    """The right to perform a run, and with it its child runs. `root` is the number of its row."""

    def __init__(self, root: int, number: int, began: float, seconds: float, *, is_taken: bool = False) -> None:
        self.root, self.number = root, number
        self.is_taken = is_taken
        """The run comes from a queue."""
        self.deadline = began + seconds - MARGIN
        self.is_lost = False
        self.cancel: Callable[[str], None] | None = None
        """Cancels the run for a reason, from any thread."""

    def is_sure(self) -> bool:
        """Return whether nobody else can have claimed the run."""
        return not self.is_lost and boot_time() < self.deadline


class LeaseKeeper:
    """Renews the claims of this process to the runs of one database."""

    def __init__(self, conninfo: str, seconds: float, channel: str) -> None:
        """`channel` is notified when a run is to be cancelled."""
        self.seconds, self._channel = seconds, channel
        self.wants_back = False
        """The worker drains: its runs are to be handed back before their next work."""
        self._conninfo = conninfo
        self._claims: weakref.WeakValueDictionary[int, Claim] = weakref.WeakValueDictionary()
        """Those of this process, by the number of their run."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def keep(self, claim: Claim) -> Claim:
        """Renew a claim from now on, as long as it is used."""
        with self._lock:
            if self._pid != os.getpid():  # the runs of the process that forked this one are not its own
                self._claims, self._pid = weakref.WeakValueDictionary(), os.getpid()
            self._claims[claim.root] = claim
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="plait-leases", daemon=True)
                self._thread.start()
        return claim

    def let_go(self, claim: Claim) -> None:
        """Give a claim up: its run has ended, or is left to others."""
        claim.is_lost = True
        with self._lock:
            if self._claims.get(claim.root) is claim:
                del self._claims[claim.root]

    def find(self, root: int) -> Claim | None:
        """Return this process's claim to the run with a number and to its child runs."""
        found = self._claims.get(root) if self._pid == os.getpid() else None
        return found if found is not None and not found.is_lost else None

    def _serve(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while self._has_claims():
            try:
                is_new = connection is None
                connection = connection or psycopg.connect(self._conninfo, autocommit=True)
                self._renew(connection, is_new)
                for _ in connection.notifies(timeout=self.seconds / 4, stop_after=1):
                    pass
            except Exception:  # whatever it is, the deadline decides, and the next round tries again
                with suppress(Exception):
                    if connection is not None:
                        connection.close()
                connection = None
                time.sleep(self.seconds / 4)
        if connection is not None:
            connection.close()

    def _has_claims(self) -> bool:
        """Return whether there are claims to renew; without any, the thread ends."""
        with self._lock:
            if any(not each.is_lost for each in self._claims.values()):
                return True
            self._thread = None
            return False

    def _renew(self, connection: psycopg.Connection[Any], is_new: bool) -> None:
        """Renew all claims. Their names end with this step: the thread itself holds none, so that a claim whose log is
        gone is free."""
        with self._lock:
            claims = [each for each in self._claims.values() if not each.is_lost]
        # A server, or a network, that has gone silent must not hold up the next round.
        silent = threading.Timer(self.seconds / 2, _cut_off, [connection])
        silent.start()
        if is_new:
            connection.execute(f"listen {self._channel}")
        began = boot_time()
        asked = [each.root for each in claims], [each.number for each in claims], self.seconds
        renewed = dict(connection.execute(_RENEW, asked).fetchall())
        silent.cancel()
        for each in claims:
            if each.root not in renewed:
                each.is_lost = True
                continue
            each.deadline = began + self.seconds - MARGIN
            if (reason := renewed[each.root]) and each.cancel is not None:
                each.cancel(reason)


def _cut_off(connection: psycopg.Connection[Any]) -> None:
    """End a connection that another thread waits for."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as its:
        its.shutdown(socket.SHUT_RDWR)
