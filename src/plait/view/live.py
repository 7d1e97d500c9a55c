"""Server-sent events for the viewer, read from the journal's file, so that they include other processes' runs.

The id of an event is the `seq` of its last row. A browser that reconnects sends it (Last-Event-ID) and misses nothing:
the server reads the run's earlier rows again, to know which items the new rows change.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from plait.core import Event
from plait.core import events as ev
from plait.core.errors import PlaitError
from plait.journal import codec
from plait.journal.open_questions import find_open_questions
from plait.journal.records import RunRow
from plait.journal.run_query import RunQuery
from plait.journal.served_runs import RunLabel
from plait.journal.store import Journal, wait_for
from plait.models.stages import Stage
from plait.runtime.recorded_events import recorded_loop
from plait.tools.render import replace_surrogates
from plait.view import run_search
from plait.view.run_view import (
    child_entry,
    format_answer,
    has_plan,
    list_entry,
    open_questions,
    plan_view,
    run_facts,
    show_child_questions,
)
from plait.view.timeline import ViewerTimeline, build_timeline

PAUSE = 0.25
"""Seconds between two reads of the file."""
IDLE = 1.0
"""The same when nothing has happened for a while."""
BEAT = 15.0
"""After this many silent seconds a comment is sent, so that a broken connection is noticed."""
GRADING = 60.0
"""Seconds after a run of a comparison for which its page waits for the grade."""
LONGEST = 4_000
"""Characters of one part of an unfinished reply: the last ones."""
OVER = ("answered", "failed", "stopped", "cancelled", "crashed", "interrupted")


class PartialReplies:
    """The unfinished replies of a run in this process. The journal has a reply only when it is complete."""

    def __init__(self) -> None:
        self._stages: dict[int, Stage] = {}
        self._replies: dict[int, list[tuple[str, str]] | None] = {}
        """The parts of each step's reply, as (kind, text). None if the step has two replies at once: they mix."""
        self._progress: dict[int, dict[str, Any]] = {}
        """What a tool call of a step reported last of its progress, until a call of the step ends."""

    def add(self, event: Event) -> None:
        """Add the next event of the run."""
        match event:
            case ev.Asked(step=step, model=model):
                self._stages[step] = Stage(model)
                self._replies[step] = None if step in self._replies else []
            case ev.Thought(step=step) | ev.Action(step=step) | ev.Answer(step=step) | ev.Text(step=step):
                parts = self._replies.get(step)
                if parts is None:
                    return
                kind = ev.kind_of(event)
                if kind != "text":
                    parts[:] = [part for part in parts if part[0] != "output"]
                joins = (kind, "text") if kind in ("thought", "answer") else (kind,)
                before = parts.pop()[1] if parts and parts[-1][0] in joins else ""
                parts.append((kind, (before + event.text)[-LONGEST:]))
            case ev.PartialOutput(step=step, value=value):
                # Only a typed answer that is a tool's input has no other event. Each value replaces the one before.
                parts = self._replies.get(step)
                if parts is not None and all(kind in ("thought", "output") for kind, _ in parts):
                    from pydantic_core import to_jsonable_python

                    with suppress(ValueError):  # a serializer of the user's type may not expect half a value
                        text = format_answer(to_jsonable_python(value, fallback=str))
                        parts[:] = [part for part in parts if part[0] != "output"] + [("output", text[-LONGEST:])]
            case ev.Noted(step=step, kind="progress"):
                self._progress[step] = {"text": replace_surrogates(event.text)[:LONGEST], "data": event.data}
            case ev.Observed(step=step):
                self._progress.pop(step, None)
            case ev.Noted(step=step, kind="retry" | "model_change") if self._replies.get(step):
                self._replies[step] = []  # the reply starts again
            case ev.Replied(step=step):
                self._replies.pop(step, None)

    def steps(self) -> list[dict[str, Any]]:
        """Return each unfinished reply: its `step` and its `parts` as [kind, text].

        Before the first part it has the `stage` of the model and its whole `seconds` instead. A step whose tool reports
        has that as its `progress`: a `text` and JSON `data`.
        """
        progress = [{"step": step, "parts": [], "progress": each} for step, each in list(self._progress.items())]
        return progress + [
            {
                "step": step,
                "parts": [[kind, replace_surrogates(text)] for kind, text in parts],
                **self._stage(step, parts),
            }
            for step, parts in list(self._replies.items())
            if parts is not None
        ]

    def _stage(self, step: int, parts: list[tuple[str, str]]) -> dict[str, Any]:
        if parts:
            return {}
        stage, seconds = self._stages[step].now()
        return {"stage": stage, "seconds": int(seconds)}


class RunFollower:
    """Read a run as it grows. All methods block."""

    def __init__(self, journal: Journal, run: str, *, after: int | None = None) -> None:
        """Find the run. `after`: the last row that the page already has."""
        self.journal = journal
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
            forks = self.journal.find(RunQuery(parent=run, children=True, limit=50))
            news["run"]["forks"] = [each.head.run for each in forks]
            news["run"]["children"] = [child_entry(row) for row in self.journal.children(run)]
            news["waiting"] = (
                open_questions(self.row, wait_for(find_open_questions(self.journal.store, run))) if waits else []
            )
        items = [item for step in news["steps"] for item in step["items"] if item["kind"] != "note"]
        has_finished_work = any(item.get("state") in ("done", None) for item in items)
        if (changed or has_finished_work) and has_plan(self.row.head):
            news["plan"] = plan_view(self.row, self.journal.timeline(run))
        return news

    @property
    def over(self) -> bool:
        """Return whether nothing more follows, unless somebody resumes the run."""
        row = self.row
        is_of_comparison = bool(row.head.label) and RunLabel.parse(row.head.label) is None
        is_graded_soon = is_of_comparison and row.grade is None and time.time() < row.updated + GRADING
        return row.status in OVER and not is_graded_soon

    def _read(self, until: int | None = None) -> None:
        run, after = self.row.head.run, self.timeline.seq
        for row in wait_for(self.journal.store.read_rows(run, after, until=until, bodies=False)):
            self.timeline.add(row)


def full_timeline(journal: Journal, run: str) -> ViewerTimeline:
    """Read a run with all its texts complete; blocking."""
    row = journal.run(run)
    rows = wait_for(journal.store.read_rows(row.head.run, bodies=False))
    timeline = build_timeline(rows, recorded_loop(row.head), row.head.run, max_text=None)
    show_child_questions(journal, timeline)
    return timeline


def run_document(journal: Journal, run: str) -> dict[str, Any]:
    """Return the first document of a run for a page; blocking. `follow_run` continues after its `seq`."""
    follower = RunFollower(journal, run)
    news = follower.read_news() or {}
    return {"plan": None, "waiting": [], **news, "seq": follower.timeline.seq}


async def follow_run(
    journal: Journal,
    run: str,
    after: int | None,
    is_over: Callable[[], bool] = lambda: False,
    partial_replies: Callable[[], PartialReplies | None] = lambda: None,
) -> AsyncIterator[bytes]:
    """Send a run's events from the row after `after` until the run is over. `partial_replies` returns those of the run;
    None while another process performs it."""
    follower = await asyncio.to_thread(RunFollower, journal, run, after=after)
    yield b"retry: 1500\n\n"
    quiet = 0.0
    shown: list[dict[str, Any]] = []
    while not is_over():
        news = await asyncio.to_thread(follower.read_news)
        if news is not None:
            quiet = 0.0
            yield format_event(news, follower.timeline.seq)
        if follower.over:
            yield b"event: over\ndata: {}\n\n"
            return
        if news is None and quiet and quiet % BEAT < PAUSE:
            yield b": here\n\n"
        replies = partial_replies()
        steps = [] if replies is None else replies.steps()
        if steps != shown:
            quiet, shown = 0.0, steps
            yield b"event: writing\n" + format_event({"steps": steps})
        pause = PAUSE if quiet < 30 else IDLE
        quiet += pause
        await asyncio.sleep(pause)


async def follow_list(journal: Journal, is_over: Callable[[], bool] = lambda: False) -> AsyncIterator[bytes]:
    """Send the runs that are new or changed, as the list shows them."""
    known: dict[int, Any] = {}
    recent, newest = await asyncio.to_thread(run_search.find_changed, journal, known, 0)
    yield b"retry: 1500\n\n"
    # Send the first page again: runs may have changed since the list was read.
    yield _list_event(recent[-run_search.PAGE :])
    quiet = 0.0
    unfinished: set[int] = set()
    while not is_over():
        found, newest = await asyncio.to_thread(run_search.find_changed, journal, known, newest)
        # A process that died writes nothing, so also read runs that are no longer active.
        now = {each.n for each in await asyncio.to_thread(run_search.find_unfinished, journal)}
        died = unfinished - now - {each.n for each in found}
        unfinished = now
        if died:
            with suppress(PlaitError):
                found += await asyncio.to_thread(run_search.find_numbered, journal, tuple(died))
        if found:
            quiet = 0.0
            yield _list_event(found)
        elif quiet and quiet % BEAT < IDLE:
            yield b": here\n\n"
        quiet += IDLE
        await asyncio.sleep(IDLE)


def format_event(data: dict[str, Any], id: int | None = None) -> bytes:
    """Return one event. JSON has no line ends of its own, so its data is one line."""
    head = b"" if id is None else f"id: {id}\n".encode()
    return head + b"data: " + codec.encode(data) + b"\n\n"


def last_seen_row(header: str | None, query: str | None) -> int | None:
    """Return the row after which to start, from Last-Event-ID or the address; None if neither is a number."""
    for given in (header, query):
        if given and re.fullmatch(r"-?[0-9]{1,18}", given):
            return int(given)
    return None


def _list_event(runs: list[RunRow]) -> bytes:
    return format_event({"runs": [list_entry(row) for row in runs]})
