"""What a store with a queue offers: runs wait in it, and workers on any machines take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeGuard

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.journal.records import RunHead, RunRow
from plait.journal.schedules import Schedule
from plait.journal.store import Store


class QueueLimits(Struct, frozen=True):
    """How many runs of a queue may go on at once, on all workers: in all, and of one user; None for any number."""

    runs: int | None = None
    of_user: int | None = None


ANY_NUMBER = QueueLimits()


class QueuedRun(Struct, frozen=True):
    """A run that waits in a queue or goes on. `reason` says why the workers of this version cannot perform it."""

    run: str
    queue: str
    agent: str
    status: str
    priority: int
    not_before: float
    tries: int
    reason: str


class QueueStore(Store, Protocol):
    """A store with a queue, from which workers on any machines take runs."""

    async def submit(
        self,
        head: RunHead,
        *,
        queue: str = "default",
        priority: int = 0,
        at: float | None = None,
        secrets: Iterable[str] = (),
        contents: Mapping[str, bytes] = ...,
    ) -> None:
        """Put a run in a queue: a worker that has its agent begins it, `at` a time or as soon as one is free, those of
        higher priority first. `head` says who asks what; the rest is added when it begins."""
        ...

    async def add_schedule(
        self, head: RunHead, every: str, zone: str, *, queue: str = "default", priority: int = 0
    ) -> None:
        """Submit a run like `head` at each time of a cron expression in a time zone. The schedule's name is the id in
        the head."""
        ...

    async def list_schedules(self) -> list[Schedule]:
        """Return the schedules, that whose time comes first at the top."""
        ...

    async def remove_schedule(self, name: str) -> None:
        """Begin no more runs of a schedule."""
        ...

    async def start_due(self) -> int:
        """Submit a run for each schedule whose time has come, once whatever the number of workers. Times that passed
        while no worker looked count as one. Returns how many."""
        ...

    async def take(
        self, queue_name: str, agents: Mapping[str, str], owner: str, count: int, limits: QueueLimits = ANY_NUMBER
    ) -> list[RunRow]:
        """Claim up to `count` runs of a queue: new ones, those that were handed back, and those whose process is gone.
        `agents` are the names of those that the worker has, each with its version. A run that this version could not
        perform is left, and so is a turn of a session while an earlier one has not ended. A run with the status
        "queued" and no rows begins with `begin`, others are resumed."""
        ...

    async def block(self, run: str, version: str, reason: str) -> None:
        """Let go of a run that was taken, because this version of its agent cannot perform it."""
        ...

    async def unblock(self, run: str) -> None:
        """Let workers take a run again that could not be performed: what was wrong there is repaired."""
        ...

    async def ask_to_cancel(self, run: str, reason: str) -> bool:
        """Ask the process that performs a run to cancel it, which it does within a quarter of the lease, and usually at
        once. Returns False, and does nothing, if no process holds the run."""
        ...

    def call_back(self, wanted: bool = True) -> None:
        """Ask for the runs that this process took from a queue: each is handed back before its next work begins."""
        ...

    async def list_queue(self, queue_name: str | None = None, run: str | None = None) -> list[QueuedRun]:
        """Return the runs of a queue, or of all, in their order; only the one with the id `run`, if it is given."""
        ...

    async def show_texts(self, texts: Mapping[str, str]) -> int:
        """Show what the models of runs write just now to those who watch. Returns how many of the runs are watched. No
        record: a text may be lost."""
        ...

    async def watch_texts(self, runs: Iterable[str]) -> dict[str, str]:
        """Return the texts that were shown last of these runs, and let them be shown for some seconds more."""
        ...

    async def wait_for_texts(self, seconds: float) -> None:
        """Wait until a text was shown, or so many seconds."""
        ...

    async def count_queue(self) -> list[tuple[str, str, int, float]]:
        """Return queue ("": none), state, number of the runs that have not ended, and for how many seconds one has been
        in the state; of running ones, since the last renewal of a lease. States: ready, delayed, turn (an earlier turn
        of the session has not ended), blocked (no worker can perform it), running, interrupted (its lease has ended,
        and nobody has taken it), and waiting for the user. Fails at once if the database is away."""
        ...

    async def wait_for_work(self, queue_name: str, seconds: float) -> None:
        """Wait until something was put in the queue, or so many seconds."""
        ...


def check_place(queue: str, priority: int, at: float | None) -> None:
    """Raise `ConfigError` for a place in a queue that a database cannot hold."""
    if not 0 < len(queue) <= 200 or not queue.isprintable():
        raise ConfigError(f"{queue[:50]!r} can't be a queue's name.", hint="Give it a word, such as 'default'.")
    if not abs(priority) < 1 << 31:
        raise ConfigError("The priority is too large.", hint="Give a whole number such as 10.")
    if at is not None and not abs(at) < 1e11:
        raise ConfigError(f"at={at!r} is no time of a run.", hint="Give seconds since 1970, such as time.time() + 60.")


def has_queue(store: Store) -> TypeGuard[QueueStore]:
    """Return whether a store has a queue."""
    return hasattr(store, "take")


def require_queue(store: Store) -> QueueStore:
    """Return a store that has a queue. Raises `ConfigError` if it has none."""
    if not has_queue(store):
        hint = "Give --journal postgresql://USER@HOST/DATABASE, or run the agent here (plait run)."
        raise ConfigError(f"The journal {store.place} is a file, and has no queue.", hint=hint)
    return store
