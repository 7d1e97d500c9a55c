"""What a run's record says to its client: the events of one part of the run, and how that ended.

A run that asks the user has several parts. The first ends with its first question, each other one begins with an answer
of the user. Each part is the answer to one request.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from math import inf
from typing import Any

from msgspec import Struct, field, structs

from plait.core import Event
from plait.core.errors import UnknownRun
from plait.journal.entries import Question
from plait.journal.open_questions import read_question_times
from plait.journal.records import NoteRecord, RunHead
from plait.journal.store import Store
from plait.journal.timeline import Timeline
from plait.runtime.recorded_events import RecordedEvents, recorded_loop
from plait.runtime.run import Run
from plait.runtime.runs import read_finished_run
from plait.server.chat_format import content_of, list_files, question_text
from plait.server.errors import RequestRejected

_ID = re.compile(r"resp_([^_\s]+)(?:_([1-9][0-9]{0,5}))?")


def response_id(run: str, part: int) -> str:
    return f"resp_{run}_{part}" if part else f"resp_{run}"


def read_response_id(id: str) -> tuple[str, int]:
    """Return the run and the part that the id of a response names. Raises `UnknownRun`."""
    found = _ID.fullmatch(id)
    if found is None:
        raise UnknownRun(f"There is no response {id!r}.", hint="Ids of responses begin with resp_.")
    return found[1], int(found[2] or 0)


class Ending(Struct, frozen=True):
    """How a part of a run ended, for its client: the content and its finish reason, or the error. `run` is None if the
    run has gone on since. `files` are the fields of `list_files`, `at` is when it ended."""

    content: str = ""
    finish: str = "stop"
    error: RequestRejected | None = None
    run: Run | None = None
    files: dict[str, Any] = {}
    at: float = field(default_factory=time.time)


async def read_ending(run: Run, modalities: Sequence[str] = ("text",), *, may_have_files: bool = True) -> Ending:
    """Return how a run ended. The record is read only if there may be files."""
    try:
        content, finish = content_of(run)
    except RequestRejected as error:
        return Ending(error=error, run=run)
    has_some = may_have_files or run.tree.runs > 1
    files = await asyncio.to_thread(list_files, run, modalities) if has_some else {}
    return Ending(content, finish, None, run, files)


async def list_answered(store: Store, run: str) -> list[tuple[float, Question]]:
    """Return the questions that the user has answered in a run and its child runs, each with the time, in order."""
    return [(at, each) for at, each in await read_question_times(store, run) if each.answer is not None]


class RecordedReply:
    """Reads a part of a run, as far as it is recorded."""

    def __init__(self, store: Store, head: RunHead, part: int) -> None:
        self._store, self._head, self._part = store, head, part
        self._loop, self._events = recorded_loop(head), list[Event]()
        self._recorded = RecordedEvents(self._events.append, self._loop)
        self._timeline, self._seq = Timeline(run=head.run), -1
        self._answered = list[tuple[float, Question]]()

    async def read(self, modalities: Sequence[str] = ("text",)) -> tuple[list[Event], Ending | None]:
        """Return the events since the last call, and how the part ended; None: it goes on."""
        store, run, part = self._store, self._head.run, self._part
        # Read the run's row first. Its end is written with its last rows, so an ended run has all its rows.
        row = await store.find_run(run)
        rows = await store.read_rows(run, self._seq, bodies=False)
        if self._seq < 0 or any(isinstance(each.record, NoteRecord) and each.record.kind == "resumed" for each in rows):
            self._answered = await list_answered(store, run)
        since = self._answered[part - 1][0] if 0 < part <= len(self._answered) else -inf
        until = self._answered[part][0] if part < len(self._answered) else inf
        for each in rows:
            self._seq = each.seq
            for moment in self._timeline.add(each):
                if since <= moment.at < until:
                    self._recorded.add(moment)
        ending = None
        if part < len(self._answered):
            ending = Ending(question_text(self._answered[part][1]), at=until)
        elif row.outcome is not None:
            ended = await read_ending(read_finished_run(row, store, self._loop), modalities)
            ending = structs.replace(ended, at=row.updated)
        if ending is not None:
            self._recorded.finish(ending.run.answer if ending.run is not None else None)
        events = self._events[:]
        self._events.clear()
        return events, ending
