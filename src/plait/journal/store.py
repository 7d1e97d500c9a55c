"""What a store of runs offers, and the journal: a store for plain code.

A store has two parts: the record of each run (`RunLog` to write it, `read_rows` to read it) and the index of all runs.
Everything that touches a disk or a network is asynchronous, so that no event loop waits for it. `plait.journal.sqlite`
is the store in a file; the tests have a suite that each store passes (`tests/test_stores.py`).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from plait.background import DONE, BackgroundLoop, run_aside
from plait.core import Attachment
from plait.core.errors import ConfigError, UnknownRun
from plait.journal.keys import read_key
from plait.journal.records import LastTurn, Record, Row, RunHead, RunRow, RunTotals, SessionRow, SessionTurn
from plait.journal.run_query import ALL, RunQuery
from plait.journal.spending import SpendingStore
from plait.journal.timeline import Timeline
from plait.user_folders import state_folder

T = TypeVar("T")

RecordAndBody: TypeAlias = tuple[Record, bytes | None]
"""A record and the exact bytes it carries, if any."""


ENDED = frozenset({"answered", "failed", "stopped"})
"""The statuses of a run that is over: nothing claims it any more."""

ACTIVE = frozenset({"queued", "running", "waiting"})
"""The statuses of a run that goes on, or will."""

BATCH = 500
"""Runs that are read, or deleted, at once."""


TITLES = "conversation"
"""The kind under which the title of a session is kept, by the session's name. Its `words` are searched, casefolded."""

KEEP_REQUESTS = 24 * 3600.0
"""Seconds after which `compact` removes what is kept of the kind "request": the keys of repeated requests."""


NEWEST = 10_000
"""The number of runs whose names filters offer."""


class NoJournal(UnknownRun):
    """Raised when there is no journal to read yet."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"There is no journal at {place} yet.",
            hint="The first run makes one; or name another journal with --journal or PLAIT_JOURNAL.",
        )


class LateResult(Struct, frozen=True):
    """What a process wrote of an entry after it had lost its claim to the run: the `record` of its result with its
    `body`, or None if it did not begin the work."""

    record: Record | None = None
    body: bytes | None = None


class RunLog(Protocol):
    """The record of one run as it grows. Every method raises `JournalError`, at the call or when awaited, if the store
    cannot be written."""

    @property
    def run(self) -> str:
        """The run's id."""
        ...

    def append(self, *records: RecordAndBody, durable: bool = False) -> Awaitable[None]:
        """Add records, in order. When awaited they outlive this process; `durable` ones, such as the intent of an
        effect, and all before them also outlive a loss of power. Cancelling whoever waits does not take them back."""
        ...

    def buffer(self, *records: RecordAndBody, durable: bool = False) -> None:
        """Add records that are written with the next append or the end, and are then `durable` or not."""
        ...

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        """Write what waits and the run's end. Nobody performs the run from then on; `waiting`, `cancelled` and
        `crashed` runs can be claimed again."""
        ...

    def confirm(self, key: str) -> Awaitable[None]:
        """Wait until this process surely holds the run, right before the effect of the entry `key`. Raises
        `JournalError` if another one has taken the run, or nothing is known for too long; the effect must not begin."""
        ...

    def on_cancel(self, cancel: Callable[[str], None]) -> None:
        """Call `cancel`, from any thread, with the reason for which another process asks to cancel the run."""
        ...

    async def find_late(self, key: str) -> LateResult | None:
        """Return what a process that had lost its claim wrote of an entry of which there is only an intent."""
        ...

    @property
    def is_queued(self) -> bool:
        """Whether the run was taken from a queue: it goes back where this process can't perform it."""
        ...

    @property
    def wants_back(self) -> bool:
        """Whether the run should be handed back before its next work begins."""
        ...

    def hand_back(self) -> Awaitable[None]:
        """Write what waits, and let another process go on with the run."""
        ...

    def scrub(self, data: bytes) -> bytes:
        """Return bytes as they stand on the record, secrets replaced: what a replay must compare with."""
        ...


class LocalLog:
    """The part of `RunLog` of a store of one machine: the death of a process proves that it does nothing more."""

    is_queued = wants_back = False

    def confirm(self, key: str) -> Awaitable[None]:
        return DONE

    def on_cancel(self, cancel: Callable[[str], None]) -> None:
        """Nobody asks: a process that may end another one's run can end that process."""

    async def find_late(self, key: str) -> LateResult | None:
        return None

    def hand_back(self) -> Awaitable[None]:
        raise NotImplementedError


class KeptRecord(Struct, frozen=True):
    """Something that is kept about runs: the result of a cell, a comparison, a rating. `data` is JSON."""

    key: str
    run: str
    at: float
    data: bytes


class CarriedRun(Struct, frozen=True):
    """A run on its way to another store, in plain values. `head` and the data of `rows` are JSON; a row has its time,
    its record and its body. `contents` are attached files, by digest. Secrets are already replaced."""

    head: str
    status: str
    outcome: dict[str, Any]
    totals: dict[str, Any]
    started: float
    updated: float
    rows: tuple[tuple[float, str, bytes | None], ...]
    contents: dict[str, bytes] = {}


class StoreInfo(Struct, frozen=True):
    """What a store says about itself: where it is, its version, its counts, its size in bytes (0: unknown), and when
    it came back from a backup, in seconds since 1970 (0: never)."""

    place: str
    version: int
    runs: int
    rows: int
    size: int
    restored: float


class Store(SpendingStore, Protocol):
    """A store of runs. Every method raises `JournalError`, and no other error, if the store cannot be used, and
    `NoJournal` or `UnknownRun` where there is nothing to read."""

    @property
    def place(self) -> str:
        """Where it is: a path or an address."""
        ...

    # -- the record of a run

    async def begin(
        self,
        head: RunHead,
        owner: str,
        records: Sequence[RecordAndBody] = (),
        *,
        secrets: Iterable[str] = (),
        contents: Mapping[str, bytes] = ...,
        after_turn: LastTurn | None = None,
    ) -> RunLog:
        """Begin a run: its first records and the `contents` of its attachments (by digest) are written with it.

        `after_turn` is the last turn of its session, as the caller has read it: raises `SessionBusy` if anything came
        since, or if it goes on. None: the run may begin in any case."""
        ...

    async def claim(
        self,
        run: str,
        owner: str,
        *,
        force: bool = False,
        secrets: Iterable[str] = (),
        rows: int | None = None,
        records: Sequence[RecordAndBody] = (),
    ) -> RunLog:
        """Take over a run to resume it: nobody else can claim it from then on.

        `rows` is how many rows the caller has read; `records` are written with the claim. So what was decided by these
        rows, such as an answer to an open question, is recorded only if nobody wrote since: else raises
        `RecordChanged`. If rows may be missing, the note "resumed" among the records says so.

        Raises `JournalError` if the run has ended for good, or its process still lives; without `force` also if nobody
        knows whether it lives.
        """
        ...

    async def read_rows(self, run: str, after: int = -1, *, until: int | None = None, bodies: bool = True) -> list[Row]:
        """Return the rows of a run after a place, in order. Those with bodies are checked: raises `JournalError` for a
        gap or a damaged row. Without `bodies` and with `after`, rows are as they are now, for following a live run."""
        ...

    def iter_rows(self, run: str) -> AsyncGenerator[Row, None]:
        """Yield the rows of a run, checked, with bodies that need not all be in memory."""
        ...

    async def read_contents(self, attachments: Iterable[Attachment]) -> dict[str, bytes]:
        """Return the bytes of attached files, by digest. Raises `JournalError` if one is missing or damaged."""
        ...

    # -- the index of all runs

    async def find_run(self, prefix: str) -> RunRow:
        """Return the run whose id begins with `prefix`, or the newest for "last". Raises `UnknownRun`, which names near
        ones, and `JournalError` if the run's own row is damaged."""
        ...

    async def list_runs(self, query: RunQuery = ALL) -> list[RunRow]:
        """Return the runs that match, the newest first."""
        ...

    async def list_totals(self, query: RunQuery = ALL, *, models: bool = False) -> list[RunTotals]:
        """Return what the runs that match used, the newest first; none where no store is there. Reads no heads."""
        ...

    async def list_values(self, label: str = "") -> dict[str, list[str]]:
        """Return the "loops", "sessions", "models", "agents", "users" and "tags" of the `NEWEST` runs, in order; with a
        `label`, of those whose label begins like this."""
        ...

    async def list_turns(
        self, session: str, *, before: str | None = None, limit: int | None = None
    ) -> list[SessionTurn]:
        """Return the turns of a conversation in the order they began, the last `limit` of them. `before`: those that
        began before that run (a fork's: before the run it comes from). A fork is no turn: it is another course of one.
        An unknown session has none, and so has a store that is not there."""
        ...

    async def list_sessions(
        self, limit: int = 50, *, owner: str | None = None, words: str = "", before: int = 0
    ) -> list[SessionRow]:
        """Return the conversations, the one whose last turn is the newest first; none where no store is there.

        `owner`: only those whose names begin so, such as "@5f0c1a/"; "" for those of no owner. They count forks as
        turns. `words` must all occur in a question or answer of a run, or in the title. `before`: only those whose last
        run has a smaller number."""
        ...

    async def delete(self, runs: Iterable[str], *, skip_active: bool = False) -> int:
        """Remove runs and their child runs with their records and ratings, all or none. Returns how many runs were
        given and removed. `compact` removes their files.

        Forks, other turns of a session and results of comparisons stay. Raises `JournalError` for a run that goes on;
        with `skip_active`, leaves those that go on, wait for a user or in a queue, or are gone already.
        """
        ...

    async def compact(self) -> None:
        """Remove what was deleted for good, and attached files that no run has; make the store smaller."""
        ...

    async def add(self, runs: Sequence[CarriedRun]) -> bool:
        """Add ended runs of another store as they are, all or none. Skips a run that is here already. Returns False,
        and writes nothing, if another run has one of the ids."""
        ...

    # -- what is kept about runs

    async def keep(self, kind: str, key: str, run: str, data: bytes, *, replace: bool = True) -> None:
        """Keep something under a key of its kind. Without `replace`, what is there stays."""
        ...

    async def list_kept(self, kind: str, keys: Iterable[str] | None = None) -> list[KeptRecord]:
        """Return what is kept of a kind, under these keys or all, in the order of its keys' first writing."""
        ...

    async def forget(self, kind: str, keys: Iterable[str], *, labels: bool = False) -> None:
        """Remove what is kept under these keys; with `labels`, also the labels of runs that equal them."""
        ...

    # -- the whole store

    async def is_holder_gone(self, owner: str) -> bool | None:
        """Return whether the process of an owner string is proven to have ended; None if nobody knows."""
        ...

    async def check(self) -> list[str]:
        """Return what is wrong with the store and its runs, a sentence each."""
        ...

    async def info(self) -> StoreInfo:
        """Return what the store says about itself."""
        ...

    async def migrate(self) -> tuple[int, int]:
        """Bring the tables of an earlier version up to date. Returns the versions before and after."""
        ...

    async def mark_restored(self) -> int:
        """Note that the store came back from a backup. Returns how many runs have not ended: when one is resumed, each
        call with effects needs approval, because its record may lack what was done since the backup. A queued run that
        had not begun stays until `unblock`; times of schedules that have passed are left out."""
        ...

    async def close(self) -> None:
        """Write what waits, and close the connections. The next use opens new ones."""
        ...


def is_address(place: object) -> bool:
    """Return whether a journal is named by the address of a database, and not by a path."""
    return str(place).startswith(("postgresql://", "postgres://"))


def without_password(place: str) -> str:
    """Return an address as it may be shown."""
    return re.sub(r"(?<=://)[^@/?]*:.*(?=@)|(?<=password=)[^&]*", "***", place) if is_address(place) else place


def default_place() -> str | Path:
    """PLAIT_JOURNAL, else plait/journal.db under XDG_STATE_HOME, else under ~/.local/state."""
    named = os.environ.get("PLAIT_JOURNAL")
    if named and is_address(named):
        return named
    return Path(named).expanduser() if named else state_folder() / "journal.db"


def seconds_of_user(variable: str, usual: float) -> float:
    """Return the seconds in an environment variable; the usual ones if it has none."""
    try:
        return max(0.0, float(os.environ.get(variable) or usual))
    except ValueError:
        return usual


def is_default(place: str | os.PathLike[str] | None) -> bool:
    """Return whether a journal is the user's default one."""
    usual = default_place()
    if place is None or is_address(place) != is_address(usual):
        return place is None
    if is_address(place):
        return open_store(place).place == open_store(usual).place
    return Path(place).expanduser().resolve() == Path(usual).resolve()


def open_store(place: str | os.PathLike[str] | None = None) -> Store:
    """Return the process's one store at a path, an address of PostgreSQL, or the default place. Opens nothing yet.
    Raises `ConfigError` if the address is wrong, or its driver is not installed."""
    place = default_place() if place is None else place
    if not is_address(place):
        from plait.journal.sqlite.store import SqliteStore  # its import takes long

        return SqliteStore.at(place)
    try:
        from plait.journal.postgres.store import PostgresStore
    except ModuleNotFoundError as why:
        hint = "pip install 'plait[postgres]'"
        raise ConfigError(f"A journal in PostgreSQL needs the package {why.name}.", hint=hint) from None
    return PostgresStore.at(str(place))


_LOOP = BackgroundLoop("plait-reads")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a store's coroutine to plain code. An event loop that calls this waits, too."""
    return run_aside(work) if _LOOP.is_current() else _LOOP.wait(work)


async def read_timeline(store: Store, run: str, *, bodies: bool = True) -> Timeline:
    """Return a run's record as typed values. Without `bodies`, requests and responses are empty, which saves memory."""
    timeline = Timeline(run=(await store.find_run(run)).head.run)
    if bodies:
        for row in await store.read_rows(run):
            timeline.add(row)
    else:
        async for row in store.iter_rows(run):
            timeline.add(row, keep_body=False)
    return timeline


class Journal:
    """A store for plain code: its methods block. Asynchronous code uses `store`. `path`: a file, or an address.

    Making one opens nothing; a file and its folder are made by the first run. `busy_seconds`: how long to wait for
    another process that holds the file's lock, PLAIT_BUSY_SECONDS (10) by default. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        busy_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
        store: Store | None = None,
    ) -> None:
        place = path or default_place()
        if store is None and not is_address(place):
            from plait.journal.sqlite.store import SqliteStore

            store = SqliteStore(place, busy_seconds=busy_seconds, clock=clock)
        self.store: Store = store or open_store(place)

    @classmethod
    def at(cls, path: str | os.PathLike[str] | None = None) -> Journal:
        """Return the process's one journal at a path or address: its connections stay open from run to run."""
        return cls(store=open_store(path))

    def __repr__(self) -> str:
        return f"Journal({self.place!r})"

    @property
    def place(self) -> str:
        """Where it is: a path or an address."""
        return self.store.place

    def close(self) -> None:
        """Close the journal's connections. The next use opens new ones."""
        wait_for(self.store.close())

    def runs(
        self, limit: int = 50, status: str | None = None, session: str | None = None, *, children: bool = False
    ) -> list[RunRow]:
        """Return the newest runs first; a negative `limit` means all. `status`: running, interrupted (its process
        died), or an outcome's. `session`: only those of that conversation, forks of its turns included."""
        query = RunQuery(status or "", session=session or "", children=children, limit=limit)
        return wait_for(self.store.list_runs(query))

    def find(self, query: RunQuery) -> list[RunRow]:
        """Return the runs that match, the newest first; none where there is no journal yet."""
        return wait_for(find_runs(self.store, query))

    def children(self, run: str) -> list[RunRow]:
        """Return the child runs that the tools of a run started, in the order of the calls."""
        return wait_for(list_children(self.store, run))

    def turns(self, session: str, *, before: str | None = None, limit: int | None = None) -> list[SessionTurn]:
        """Return the turns of a conversation. See `Store.list_turns`."""
        return wait_for(self.store.list_turns(session, before=before, limit=limit))

    def sessions(self, limit: int = 50) -> list[SessionRow]:
        """Return the conversations, the most recently used first."""
        return wait_for(self.store.list_sessions(limit))

    def run(self, prefix: str) -> RunRow:
        """Return the run whose id begins with `prefix`, or the newest for "last". Raises `UnknownRun`."""
        return wait_for(self.store.find_run(prefix))

    def head(self, run: str) -> RunHead:
        """Return the head of a run: the settings that it was started with."""
        return self.run(run).head

    def contents(self, attachments: Iterable[Attachment]) -> dict[str, bytes]:
        """Return the bytes of attached files, by digest."""
        return wait_for(self.store.read_contents(attachments))

    def rows(self, run: str) -> list[Row]:
        """Return a run's whole record in order, every body byte for byte as it was."""
        return wait_for(self.store.read_rows(run))

    def iter_rows(self, run: str) -> Iterator[Row]:
        """The same, a row at a time: bodies of a long run need not all be in memory."""
        rows = self.store.iter_rows(run)

        async def take() -> Row | None:
            return await anext(rows, None)

        try:
            while (row := wait_for(take())) is not None:
                yield row
        finally:
            wait_for(rows.aclose())

    def timeline(self, run: str, *, bodies: bool = True) -> Timeline:
        """Return a run's record as typed values. See `read_timeline`."""
        return wait_for(read_timeline(self.store, run, bodies=bodies))

    def old_runs(self, older_than: float | None = None, keep: int | None = None) -> Iterator[list[RunRow]]:
        """Yield the runs that are not among the newest `keep`, and were last written more than `older_than` seconds
        ago, in batches, the newest first. Runs that go on, or wait for a user or in a queue, are never among them."""
        left, until, last = keep or 0, None if older_than is None else time.time() - older_than, 0
        from plait.journal.queue import has_queue  # that module needs this one

        def is_active(run: RunRow) -> bool:
            if run.status == "interrupted" and has_queue(self.store):
                return bool(wait_for(self.store.list_queue(run=run.head.run)))
            return run.status in ACTIVE

        # What began too late to be old is passed over in the store.
        while page := self.find(RunQuery(before=last, limit=min(left, BATCH) or BATCH, until=None if left else until)):
            last = page[-1].n
            if left:
                left -= len(page)
            elif old := [run for run in page if (until is None or run.updated < until) and not is_active(run)]:
                yield old


def settle_all(settled: Iterable[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    """Give futures their results or errors, on their event loop. Some may be cancelled meanwhile."""
    for future, result, error in settled:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


async def find_runs(store: Store, query: RunQuery) -> list[RunRow]:
    """Return the runs that match, the newest first; none where there is no journal yet."""
    try:
        return await store.list_runs(query)
    except NoJournal:
        return []


async def list_descendants(store: Store, run: str) -> list[RunRow]:
    """Return the child runs of a run and theirs, each before its own. Those of another journal may be nested at any
    depth, or in a circle."""
    found: dict[str, RunRow] = {}
    left = [*reversed(await list_children(store, run))]
    while left:
        if (row := left.pop()).head.run not in (run, *found):
            found[row.head.run] = row
            left += reversed(await list_children(store, row.head.run))
    return list(found.values())


async def list_children(store: Store, run: str) -> list[RunRow]:
    """Return the child runs that the tools of a run started, in the order of the calls."""
    rows = await find_runs(store, RunQuery(caller=run))
    keys = [read_key(row.head.caller.key if row.head.caller is not None else "") for row in reversed(rows)]
    return [row for _, row in sorted(zip(keys, reversed(rows), strict=True), key=lambda pair: (pair[0].n, pair[0].i))]
