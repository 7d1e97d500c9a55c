"""What happens, as it happens: server-sent events read off the journal's file, so runs of other processes are seen too.

Each event's id is the `seq` of the last row it tells of; a browser that comes back names it (Last-Event-ID) and misses
nothing. The run's earlier rows are then read again, to tell what of them the new ones change.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from plait.core.errors import PlaitError
from plait.journal import codec, reader
from plait.journal.records import Row
from plait.journal.store import Journal
from plait.runtime.retell import recorded_loop
from plait.window import finding
from plait.window.document import PLANNERS, facts, listed, plan_of, waiting
from plait.window.telling import Teller, told
from plait.window.writing import Writing

PAUSE = 0.25
"""Seconds between two looks at the file."""
IDLE = 1.0
"""The same where nothing has happened for a while."""
BEAT = 15.0
"""After so many silent seconds a comment is sent, so that a connection that is gone is noticed."""
OVER = ("answered", "failed", "stopped", "cancelled", "crashed", "interrupted")


class Follower:
    """A run being read as it grows. `news()` gives what is new, None where nothing is; blocking."""

    def __init__(self, journal: Journal, run: str) -> None:
        self.journal = journal
        with reader.reading(journal.path) as connection:
            self._n, self.row = reader.find(connection, run, journal.path)
        self.teller = Teller(recorded_loop(self.row.head))
        self._told = ""

    def catch_up(self, after: int) -> None:
        """Take the rows up to `after` without telling of them: whoever asks has them."""
        self._read(until=after)
        self.teller.changes()

    def news(self) -> dict[str, Any] | None:
        """What is new since the last time: steps that changed, the run's facts, its plan."""
        before = self.teller.seq
        # The row first: what ends a run is written with its last rows, so that an end seen has all rows behind it.
        with reader.reading(self.journal.path) as connection:
            self.row = reader.find(connection, self.row.head.run, self.journal.path)[1]
        self._read()
        moved = self.teller.seq != before
        state = f"{self.row.status} {self.row.owner} {self.row.updated if self.over else ''}"
        if not moved and state == self._told:
            return None
        changed, self._told = state != self._told, state
        news: dict[str, Any] = {"run": facts(self.row, self.teller), "steps": self.teller.changes()}
        if changed or self.row.status == "waiting":
            news["run"]["children"] = finding.children(self.journal, self.row.head.run)
            news["waiting"] = waiting(self.journal.rows(self.row.head.run)) if self.row.status == "waiting" else []
        if self.row.head.strategy["name"] in PLANNERS and (changed or _calls(news["steps"])):
            news["plan"] = plan_of(self.row, self.journal.rows(self.row.head.run))
        return news

    @property
    def over(self) -> bool:
        """Nothing more comes, unless somebody goes on with the run."""
        return self.row.status in OVER

    def _read(self, until: int | None = None) -> None:
        for row in rows_after(self.journal, self._n, self.teller.seq, until):
            self.teller.take(row)


def rows_after(journal: Journal, n: int, seq: int, until: int | None = None) -> list[Row]:
    """A run's rows after one, without their bodies: those are told from the ones before, and nobody looks at them."""
    question = "SELECT seq, at, data FROM events WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq"
    with reader.reading(journal.path) as connection:
        found = connection.execute(question, (n, seq, 1 << 60 if until is None else until)).fetchall()
    return [Row(seq, at, codec.decode_record(data)) for seq, at, data in found]


def whole(journal: Journal, run: str) -> Teller:
    """A run told with its texts whole; blocking."""
    with reader.reading(journal.path) as connection:
        n, row = reader.find(connection, run, journal.path)
    return told(rows_after(journal, n, -1), recorded_loop(row.head), most=None)


def document(journal: Journal, run: str) -> dict[str, Any]:
    """A run as its page is first told of it; blocking. `seq` is where `events_of` goes on."""
    follower = Follower(journal, run)
    news = follower.news() or {}
    return {"plan": None, "waiting": [], **news, "seq": follower.teller.seq}


async def events_of(
    journal: Journal,
    run: str,
    after: int | None,
    gone: Callable[[], bool] = lambda: False,
    writing: Callable[[], Writing | None] = lambda: None,
) -> AsyncIterator[bytes]:
    """A run's events from the row after `after`, as the bytes that are sent; ends when the run is over.

    `writing` gives what its models are writing, None while the run is not performed in this process.
    """
    follower = await asyncio.to_thread(Follower, journal, run)
    if after is not None:
        await asyncio.to_thread(follower.catch_up, after)
    yield b"retry: 1500\n\n"
    quiet = 0.0
    shown: list[dict[str, Any]] = []
    while not gone():
        news = await asyncio.to_thread(follower.news)
        if news is not None:
            quiet = 0.0
            yield event(news, follower.teller.seq)
            if follower.over:
                yield b"event: over\ndata: {}\n\n"
                return
        elif quiet and quiet % BEAT < PAUSE:
            yield b": here\n\n"
        written = writing()
        steps = [] if written is None else written.told()
        if steps != shown:
            quiet, shown = 0.0, steps
            yield b"event: writing\n" + event({"steps": steps})
        pause = PAUSE if quiet < 30 else IDLE
        quiet += pause
        await asyncio.sleep(pause)


async def events(journal: Journal, gone: Callable[[], bool] = lambda: False) -> AsyncIterator[bytes]:
    """The list's events: runs that are new or changed, as the list shows them."""
    known: dict[int, tuple[str, float]] = {}
    recent, newest = await asyncio.to_thread(finding.changed, journal, known, 0)
    yield b"retry: 1500\n\n"
    # What happened between the list and this: the list's first page is told once more as it is now.
    recent = sorted(recent, key=lambda each: each.n)[-finding.PAGE :]
    yield event({"runs": [listed(each.row, n=each.n) for each in recent]})
    quiet = 0.0
    lives: dict[int, str] = {}
    while not gone():
        found, newest = await asyncio.to_thread(finding.changed, journal, known, newest)
        # A process that died has written nothing: its runs are looked at as well.
        going = await asyncio.to_thread(finding.live, journal)
        states = {each.n: each.row.status for each in going}
        died = [n for n in lives if n not in states and n not in {each.n for each in found}]
        lives = states
        found += [each for n in died for each in await asyncio.to_thread(_one, journal, n)]
        if found:
            quiet = 0.0
            yield event({"runs": [listed(each.row, n=each.n) for each in found]})
        elif quiet and quiet % BEAT < IDLE:
            yield b": here\n\n"
        quiet += IDLE
        await asyncio.sleep(IDLE)


def event(data: dict[str, Any], id: int | None = None) -> bytes:
    """One event. JSON has no line ends of its own, so its data is one line."""
    named = b"" if id is None else f"id: {id}\n".encode()
    return named + b"data: " + codec.encode(data) + b"\n\n"


def after_of(header: str | None, query: str | None) -> int | None:
    """The row after which to begin, from Last-Event-ID or the address; None where neither is a number."""
    for said in (header, query):
        if said and re.fullmatch(r"-?[0-9]{1,18}", said):
            return int(said)
    return None


def _one(journal: Journal, n: int) -> list[finding.Found]:
    try:
        with reader.reading(journal.path) as connection:
            row = connection.execute(f"SELECT {reader.RUN} FROM runs WHERE n = ?", (n,)).fetchone()
            return [finding.Found(n, reader.run_row(row, journal.path))] if row else []
    except PlaitError:
        return []


def _calls(steps: list[dict[str, Any]]) -> bool:
    return any(
        item["kind"] != "note" and item.get("state") in ("done", None) for step in steps for item in step["items"]
    )
