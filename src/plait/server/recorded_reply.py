"""The answer of a run to its client, in a format of clients: as the run goes on, and again from its record.

A run that asks the user has several parts. The first ends with its first question, each other one begins with an answer
of the user. Each part is the answer to one request, and has an id.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from math import inf
from typing import Any, Protocol

from msgspec import Struct

from plait.core import Event
from plait.core import events as ev
from plait.core.errors import UnknownRun
from plait.journal.entries import Question
from plait.journal.open_questions import read_question_times
from plait.journal.records import NoteRecord, RunRow
from plait.journal.store import Store
from plait.journal.timeline import Timeline
from plait.runtime.recorded_events import RecordedEvents, recorded_loop
from plait.runtime.run import Run
from plait.runtime.runs import read_finished_run
from plait.server.auth import Caller
from plait.server.chat_format import content_of, list_files, question_text
from plait.server.errors import RequestRejected
from plait.server.reply_pieces import ReplyPieces
from plait.server.runs import RunManager

SILENCE, PAUSE = 15.0, 0.25
"""Seconds after which a comment is sent, so that no proxy closes the connection; between two reads of a record."""
ALIVE = b": still at work\n\n"
Parts = AsyncGenerator[tuple[bytes, bool], None]
"""The parts of a body, each with whether more follow."""
_ID = re.compile(r"resp_([^_\s]+)(?:_([1-9][0-9]{0,5}))?")


def response_id(run: str, part: int) -> str:
    return f"resp_{run}_{part}" if part else f"resp_{run}"


class Ending(Struct, frozen=True):
    """How a part ended: the content and its finish reason, or the error. `run` is None if the run has gone on since.
    `files` are the fields of `list_files`."""

    content: str = ""
    finish: str = "stop"
    error: RequestRejected | None = None
    run: Run | None = None
    files: dict[str, Any] = {}


class ReplyFormat(Protocol):
    """Turns the events of a part into the answer to a request. `open` comes first and names the part (None: newest).
    `begin`, `add` and `end` return the bytes of a stream, `abandon` those of its end if nobody performs the run any
    more. `whole` returns the JSON answer after all events (None: the part goes on), and may raise its error.
    `modalities` are the kinds of content that it can send."""

    pieces: ReplyPieces
    modalities: tuple[str, ...] = ("text",)

    async def open(self, run: str, part: int | None = None) -> None: ...
    def begin(self) -> bytes: ...
    def add(self, event: Event) -> bytes: ...
    def end(self, ending: Ending) -> bytes: ...
    def whole(self, ending: Ending | None) -> dict[str, Any]: ...
    def abandon(self) -> bytes:
        return b""


def interruption_of(run: str) -> RequestRejected:
    """Return the error of a client that waits for a run which nobody performs."""
    text, hint = f"Run {run} goes on elsewhere, or later.", "Ask again in a while."
    return RequestRejected(503, text, hint=hint, kind="run_error", code="run_interrupted", may_retry=False)


async def read_ending(run: Run, format: ReplyFormat) -> Ending:
    """Return how a run ended. The record is read only if there may be files."""
    try:
        content, finish = content_of(run)
    except RequestRejected as error:
        return Ending(error=error, run=run)
    may_have_files = format.pieces.has_files or run.tree.runs > 1
    files = await asyncio.to_thread(list_files, run, format.modalities) if may_have_files else {}
    return Ending(content, finish, None, run, files)


async def list_answered(store: Store, run: str) -> list[tuple[float, Question]]:
    """Return the questions that the user has answered in a run and its child runs, each with the time, in order."""
    return [(at, each) for at, each in await read_question_times(store, run) if each.answer is not None]


async def find_response(manager: RunManager, id: str, caller: Caller) -> tuple[RunRow, int]:
    """Return the run and the part that an id names. Raises `UnknownRun`, also for what the caller may not see."""
    found = _ID.fullmatch(id)
    if found is not None:
        row, part = await manager.find_run(found[1], caller), int(found[2] or 0)
        is_there = not part or part <= len(await list_answered(manager.journal.store, row.head.run))
        if is_there and row.head.run == found[1] and row.head.caller is None:
            return row, part
    raise UnknownRun(f"There is no response {id!r}.")


class RecordedReply:
    """Makes the answer of a part again from its record, in a format; any process may perform the run."""

    def __init__(self, manager: RunManager, run: str, part: int | None, format: ReplyFormat) -> None:
        self._manager, self._run, self._part, self._format = manager, run, part, format
        self._timeline, self._seq = Timeline(run=run), -1
        self._is_open = self._has_begun = False
        self._events, self._answered = list[Event](), list[tuple[float, Question]]()

    async def read(self) -> tuple[bytes, Ending | None]:
        """Give the format what is new. Returns what that adds to a stream, and how the part ended; None: it goes on."""
        store, run = self._manager.journal.store, self._run
        # Read the run's row first. Its end is written with its last rows, so an ended run has all its rows.
        row = await store.find_run(run)
        self._status = row.status
        rows = await store.read_rows(run, self._seq, bodies=False) if row.head.has_begun else []
        resumed = [each for each in rows if isinstance(each.record, NoteRecord) and each.record.kind == "resumed"]
        if resumed or not self._is_open:
            self._answered = await list_answered(store, run)
        sent = b""
        if not self._has_begun:  # the head of a run that waits in a queue has no settings
            self._has_begun = row.head.has_begun
            self._has_hooks = bool(row.head.settings.get("hooks"))
            self._recorded = RecordedEvents(self._events.append, recorded_loop(row.head))
            self._part = len(self._answered) if self._part is None else self._part
            await self._format.open(run, self._part)
            self._is_open, sent = True, sent if self._is_open else self._format.begin()
            self._format.pieces.has_files = self._part > 0  # tools of the parts before may have returned some
        part, ending = self._part or 0, None
        since = self._answered[part - 1][0] if 0 < part <= len(self._answered) else -inf
        until = self._answered[part][0] if part < len(self._answered) else inf
        for each in rows:
            self._seq = each.seq
            for moment in self._timeline.add(each):
                if since <= moment.at < until:
                    self._recorded.add(moment)
        sent += self._take()
        if until < inf:
            ending = Ending(question_text(self._answered[part][1]))
        elif row.outcome is not None:
            ended = read_finished_run(row, store, recorded_loop(row.head))
            ending = await read_ending(ended, self._format)
        if ending is not None:
            self._recorded.finish(ending.run.answer if ending.run is not None else None)
        return sent + self._take(), ending

    def _take(self) -> bytes:
        events, self._events[:] = self._events[:], []
        if self._has_hooks:  # the record has texts of the model that a hook withheld or replaced
            events = [each for each in events if isinstance(each, ev.Began | ev.Observed | ev.Noted)]
            events = [each for each in events if not isinstance(each, ev.Noted) or each.kind == "state"]
        return b"".join(map(self._format.add, events))

    @property
    def _is_left(self) -> bool:
        """Return whether nobody performs the run any more, or nobody here can wait for it."""
        return self._manager.stopping or self._status == "interrupted"

    async def wait(self) -> tuple[bytes, Ending | None]:
        """Wait for the end of the part. Raises `RequestRejected` if nobody performs the run."""
        while (read := await self.read())[1] is None:
            if self._is_left:
                raise interruption_of(self._run)
            await asyncio.sleep(PAUSE)
        return read

    async def follow(self) -> Parts:
        """Make the stream, until the part ends or nobody performs the run."""
        quiet = 0.0
        while True:
            sent, ending = await self.read()
            if ending is not None or self._is_left:
                yield sent + (self._format.end(ending) if ending is not None else self._format.abandon()), False
                return
            quiet = 0.0 if sent or quiet >= SILENCE else quiet + PAUSE
            if sent or quiet >= SILENCE:
                yield sent or ALIVE, True
            await asyncio.sleep(PAUSE)
