"""Server-sent events for the viewer, read from the journal, so that they include other processes' runs.

The id of an event is the `seq` of its last row. A browser that reconnects sends it (Last-Event-ID) and misses nothing:
the server reads the run's earlier rows again, to know which items the new rows change.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias

from plait.core.errors import PlaitError
from plait.journal import codec
from plait.journal.open_questions import find_open_questions
from plait.journal.run_query import RunQuery
from plait.journal.served_runs import RunLabel
from plait.journal.store import Journal, wait_for
from plait.runtime.recorded_events import recorded_loop
from plait.view import run_search
from plait.view.run_view import (
    child_entry,
    has_plan,
    list_entry,
    open_questions,
    plan_view,
    read_rating,
    run_facts,
    show_child_questions,
)
from plait.view.timeline import ViewerTimeline, build_timeline

Writing: TypeAlias = AbstractContextManager[Callable[[], list[dict[str, Any]]]]
NOBODY: Writing = nullcontext(list)
"""What the models of a run write just now (`LiveTexts.watch`), and nothing."""
PAUSE = 0.25
"""Seconds between two reads of the journal."""
IDLE = 1.0
"""The same when nothing has happened for a while."""
TICK = 0.1
"""Seconds between two looks at what models write just now."""
BEAT = 15.0
"""After this many silent seconds a comment is sent, so that a broken connection is noticed."""
GRADING = 60.0
"""Seconds after a run of a comparison for which its page waits for the grade."""
OVER = ("answered", "failed", "stopped", "cancelled", "crashed", "interrupted")


class RunFollower:
    """Reads a run as it grows, for the viewer. Its other methods block."""

    def __init__(
        self, journal: Journal, run: str, *, after: int | None = None, label: str = "", shows_steps: bool = True
    ) -> None:
        """Find the run. `after`: the last row that the page already has. `label`: only forks with such a label are
        named (see `RunQuery`). Without `shows_steps`, only what the run asks the user is shown of them."""
        self.journal, self._label, self._shows_steps = journal, label, shows_steps
        self.row = journal.run(run)
        self.timeline = ViewerTimeline(recorded_loop(self.row.head), self.row.head.run)
        self._state = ""
        if after is not None:
            self._read(until=after)
            self.timeline.changes()

    def read_news(self) -> dict[str, Any] | None:
        """Return what is new since the last call: changed steps, the run's facts, its plan. None for nothing."""
        seq, run = self.timeline.seq, self.row.head.run
        # Read the run's row first. Its end is written with its last rows, so an ended run has all its rows.
        self.row = self.journal.run(run)
        self._read()
        state = f"{self.row.verdict} {self.row.owner} {self.row.updated if self.row.status in OVER else ''}"
        changed, self._state = state != self._state, state
        if not changed and self.timeline.seq == seq:
            return None
        show_child_questions(self.journal, self.timeline)
        news: dict[str, Any] = {"run": run_facts(self.row, self.timeline), "steps": self.timeline.changes()}
        waits = self.row.status == "waiting"
        if changed or waits:
            news["run"] |= read_rating(self.journal, self.row)
            forks = self.journal.find(RunQuery(parent=run, children=True, limit=50, label=self._label))
            news["run"]["forks"] = [each.head.run for each in forks]
            news["run"]["children"] = [child_entry(row) for row in self.journal.children(run)]
            asked = wait_for(find_open_questions(self.journal.store, run)) if waits else []
            news["waiting"] = open_questions(self.row, asked)
        if not self._shows_steps:
            news["run"] |= {"files": [], "children": []}
            asked_items = [[item for item in step["items"] if item["kind"] == "wait"] for step in news["steps"]]
            shown = zip(news["steps"], asked_items, strict=True)
            return {**news, "steps": [{**step, "items": items} for step, items in shown if items]}
        items = [item for step in news["steps"] for item in step["items"] if item["kind"] != "note"]
        has_finished_work = any(item.get("state") in ("done", None) for item in items)
        if (changed or has_finished_work) and has_plan(self.row.head):
            news["plan"] = plan_view(self.row, self.journal.timeline(run))
        return news

    async def read_events(self) -> tuple[bytes, bool]:
        """Return the new events, and whether the run is over (see `follow`)."""
        news = await asyncio.to_thread(self.read_news)
        row, events = self.row, format_event(news, id=self.timeline.seq) if news is not None else b""
        is_of_comparison = bool(row.head.label) and RunLabel.parse(row.head.label) is None
        is_graded_soon = is_of_comparison and row.grade is None and time.time() < row.updated + GRADING
        return events, row.status in OVER and not is_graded_soon

    def _read(self, until: int | None = None) -> None:
        run, after = self.row.head.run, self.timeline.seq
        for row in wait_for(self.journal.store.read_rows(run, after, until=until, bodies=False)):
            self.timeline.add(row)


def full_timeline(journal: Journal, run: str, *, max_text: int | None = None, bodies: bool = False) -> ViewerTimeline:
    """Read a run with its texts, of `max_text` characters at most, and the questions of its child runs; blocking."""
    head = journal.run(run).head
    rows = wait_for(journal.store.read_rows(head.run, bodies=bodies))
    timeline = build_timeline(rows, recorded_loop(head), head.run, max_text=max_text)
    show_child_questions(journal, timeline)
    return timeline


def run_document(journal: Journal, run: str, *, label: str = "", shows_steps: bool = True) -> dict[str, Any]:
    """Return the first document of a run for a page; blocking. `follow_run` continues after its `seq`. `label` and
    `shows_steps`: see `RunFollower`."""
    follower = RunFollower(journal, run, label=label, shows_steps=shows_steps)
    news = follower.read_news() or {}
    return {"plan": None, "waiting": [], **news, "seq": follower.timeline.seq}


async def follow_run(
    journal: Journal,
    run: str,
    after: int | None,
    is_over: Callable[[], bool] = lambda: False,
    writing: Writing = NOBODY,
    *,
    label: str = "",
    shows_steps: bool = True,
) -> AsyncIterator[bytes]:
    """Send a run's events from the row after `after` until the run is over. See `follow` and `RunFollower`."""
    make = partial(RunFollower, journal, run, after=after, label=label, shows_steps=shows_steps)
    follower = await asyncio.to_thread(make)
    async for event in follow(follower.read_events, is_over, writing):
        yield event
    if not is_over():
        yield format_event({}, "over")


async def follow(
    read_events: Callable[[], Awaitable[tuple[bytes, bool]]],
    is_over: Callable[[], bool],
    writing: Writing,
    pause: float = PAUSE,
) -> AsyncIterator[bytes]:
    """Send the events of a run as they are read, and in between what its models write just now (`LiveTexts.watch`).

    `read_events` returns the events since its last call (b"" for none), and whether no more follow, unless somebody
    resumes the run. `pause`: seconds between two reads, until nothing has happened for a while.
    """
    yield b"retry: 1500\n\n"
    quiet = 0.0
    shown: list[dict[str, Any]] = []
    ahead: list[dict[str, Any]] | None = None  # it was read, and is to be sent: each read may tell only what is new
    with writing as unfinished:
        while not is_over():
            try:
                news, ended = await read_events()
            except PlaitError:  # deleted, or the journal is away: the client may ask again
                return
            if news:
                quiet = 0.0
                yield news
            if ended:
                return
            if not news and quiet and quiet % BEAT < PAUSE:
                yield b": here\n\n"
            pause = pause if quiet < 30 else IDLE
            quiet += pause
            until, steps, ahead = time.monotonic() + pause, unfinished() if ahead is None else ahead, None
            while True:
                if steps != shown:
                    quiet, shown = 0.0, steps
                    yield format_event({"steps": steps}, "writing")
                if time.monotonic() >= until:
                    break
                await asyncio.sleep(TICK)
                steps = unfinished()
                if {each["step"] for each in steps} - {each["step"] for each in shown}:
                    ahead = steps
                    break  # the rows of a new step come first


async def follow_list(watch: run_search.ListWatch, is_over: Callable[[], bool] = lambda: False) -> AsyncIterator[bytes]:
    """Send the runs that are new or changed, as the list shows them."""
    seen = 0

    async def read_events() -> tuple[bytes, bool]:
        nonlocal seen
        is_first = not seen
        found, seen = await watch.read(seen)
        if is_first:
            found = found[-run_search.PAGE :]  # again: runs may have changed since the list was read
        return format_event({"runs": [list_entry(row) for row in found]}) if found or is_first else b"", False

    async for event in follow(read_events, is_over, NOBODY, IDLE):
        yield event


def format_event(data: dict[str, Any], type: str = "", id: int | None = None) -> bytes:
    """Return one event. JSON has no line ends of its own, so its data is one line."""
    head = (f"id: {id}\n" if id is not None else "") + (f"event: {type}\n" if type else "")
    return head.encode() + b"data: " + codec.encode(data) + b"\n\n"


def last_seen_row(header: str | None, query: str | None) -> int | None:
    """Return the row after which to start, from Last-Event-ID or the address; None if neither is a number."""
    for given in (header, query):
        if given and re.fullmatch(r"-?[0-9]{1,18}", given):
            return int(given)
    return None
