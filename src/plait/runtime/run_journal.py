"""The record of one run, as its engine reads and writes it: the only code of the runtime that branches on the kind of a
row.

An intent is on the disk before an effect that must not be repeated begins, its result before anything else happens.
Intents and results of other work are buffered: they are written with the next intent, or when the work takes longer
than `LONG`."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from plait.core import Call
from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.keys import read_key
from plait.journal.records import CallHolder, IntentRecord, NoteRecord, RaisedRecord, Record, ResultRecord, Row
from plait.journal.store import RunLog
from plait.runtime.guard import Entry, RecordEnds, Suspend

LONG = 0.05
"""Seconds: work that takes longer is on the record while it goes on."""


class FoundEntry(Struct, frozen=True):
    """What is on record of an entry. UNSET where there is nothing. `is_open`: its last row is an intent. `asked`,
    `made` and `holder` are those of its intent, if it `has_begun`. `body` and `answer` are the bytes of its intent and
    result."""

    asked: Any = UNSET
    made: Any = UNSET
    value: Any = UNSET
    is_open: bool = False
    body: bytes | None = None
    answer: bytes | None = None
    holder: CallHolder | None = None
    has_begun: bool = False


performed: Counter[str] = Counter()
"""How many pieces of work this process has performed, by their kind, such as "request", "call" or "code"."""
NOTHING = FoundEntry()
"""An entry that was never admitted has no rows."""


class EntryWork(Struct, frozen=True):
    """What the record holds of an entry before it is done: `asked` and `made` of its intent, the intent's `body`.

    `settle_doubt` returns the result of work of which only the intent is on record, and the bytes of its row; None to
    do it again. It is None itself if the work can always be repeated. `name_holder` returns who does it.
    `effect` is a call that must not be repeated, even if the journal loses rows. Its intent, and one with a body, are
    on the disk before it begins. `is_long`: it may take so long that its intent should not wait for the next write."""

    asked: Any = None
    made: Any | UnsetType = UNSET
    body: bytes | None = None
    settle_doubt: Callable[[], Awaitable[tuple[Any, bytes | None] | None]] | None = None
    effect: Call | None = None
    is_long: bool = False
    has_intent: bool = True
    name_holder: Callable[[], CallHolder | None] = lambda: None


class RunJournal:
    """The record of one run. `rows` are those of earlier processes. In a `replay` nothing is written."""

    def __init__(self, log: RunLog, rows: Iterable[Row] = (), *, replay: bool = False, has_ended: bool = False) -> None:
        self.log, self.replay, self.has_ended = log, replay, has_ended
        self._found: dict[str, FoundEntry] = {}
        self._raised: dict[str, RaisedRecord] = {}
        self.news = defaultdict[int, list[ResultRecord]](list)
        """The messages and the background results that each model call got with its request."""
        self.in_background: set[str] = set()
        """The keys of calls whose results come later than those of their act."""
        self.delivered: set[str] = set()
        self.decided: dict[str, dict[str, str]] = {}
        """The keys of what guards decided before ("3.1?") or after ("3.1!") an entry: the last of each guard, the
        newest last."""
        self._notes: set[tuple[str, ...]] = set()
        self.calls: Counter[int] = Counter()
        """The number of calls on record of each effect of the loop."""
        self.works: dict[int, str] = {}
        """The kind of work of each effect of the loop on record."""
        self._checks: dict[int, int] = {}
        self._taken: set[int] = set()
        self._reached = -1
        self.beside = 0
        """How many entries go on side by side: their intents are written together."""
        self._writing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.must_finish = False
        """A tool that can't be called again waits for this run: it is not handed back."""
        for row in rows:
            self._add(row.record, row.body)
        self.is_new = not self._found and not self._raised and not replay
        """Whether all that the loop asks for is new."""

    def _add(self, record: Record, body: bytes | None = None) -> None:
        key = record.key
        if isinstance(record, NoteRecord):
            self._notes.add(self._name_note(key, record.kind, record.text))
            return
        found = self._found.get(key, NOTHING)
        if isinstance(record, IntentRecord):
            self._found[key] = FoundEntry(record.asked, record.made, UNSET, True, body, None, record.holder, True)
        elif isinstance(record, ResultRecord):
            asked = found.asked if record.asked is UNSET else record.asked
            asked = None if asked is UNSET else asked
            self._found[key] = FoundEntry(
                asked, found.made, record.value, False, found.body, body, None, found.has_begun
            )
        else:
            self._raised[key] = record
        at = read_key(key)
        if at.news >= 0 and not at.mark and isinstance(record, ResultRecord):
            self.news[at.n].append(record)
            if record.work == "delivery":
                self.delivered.add(record.value)
            return
        if not at.mark and at.check < 0 and at.news < 0 and at.n >= 0:
            work = "call" if at.i >= 0 else "think" if at.attempt >= 0 else getattr(record, "work", "")
            if work:
                self.works.setdefault(at.n, work)
        if at.attempt >= 0 and not at.mark:  # so the model call itself was admitted
            self._found.setdefault(key[: key.rindex("a")], FoundEntry(None, UNSET, UNSET, True))
        if at.mark:
            decided = self.decided.setdefault(at.owner + at.mark, {})
            decided.pop(at.guard, None)  # the newest are the last
            decided[at.guard] = key
        if at.check >= 0:
            self._checks[at.n] = max(at.check, self._checks.get(at.n, -1))
            return
        self._reached = max(self._reached, at.n)
        if at.i >= 0:
            self.calls[at.n] = max(at.i + 1, self.calls[at.n])
        if isinstance(record, ResultRecord) and record.work == "take" and record.value.done:
            self._taken.add(record.value.ticket)

    @property
    def hands_back(self) -> bool:
        """Whether the run is to be handed back before its next work."""
        return self.log.wants_back and not self.must_finish

    # -- looking up

    def find(self, key: str) -> FoundEntry:
        """Return what is on record of an entry."""
        return self._found.get(key, NOTHING)

    def items(self) -> list[tuple[str, FoundEntry]]:
        """Return all entries on record with their keys, in the order of their first rows."""
        return list(self._found.items())

    def raised(self, key: str) -> RaisedRecord | None:
        """Return what the loop received in place of a result."""
        return self._raised.get(key)

    def is_seen(self, key: str, started: bool) -> bool:
        """Return whether the loop has seen the result of an entry: it has gone on, or has taken the ticket."""
        at = read_key(key)
        if not key or at.n < 0:
            return self.has_ended
        if key in self.in_background:
            return key in self.delivered
        if started:
            return at.n in self._taken
        if at.check >= 0:
            return self._reached >= at.n or self._checks.get(at.n, -1) > at.check or self.has_ended
        return self._reached > at.n or at.n in self._taken or self._checks.get(at.n + 1, -1) >= 0 or self.has_ended

    def digest(self, value: Any) -> str:
        """Return a digest of a value as the record stores it: without secrets."""
        return hashlib.blake2b(self.log.scrub(codec.encode(value)), digest_size=5).hexdigest()

    def is_same(self, value: Any, recorded: Any) -> bool:
        """Return whether `recorded` is the stored form of a value, in which secrets are replaced."""
        now, then = codec.encode(value), codec.encode(recorded)
        return now == then or self.log.scrub(now) == then

    def _name_note(self, key: str, kind: str, text: str) -> tuple[str, ...]:
        """Return what tells a note from others: one of the loop has a number, one about an entry says something."""
        return (key,) if key.startswith("n") else (key, kind, self.digest(text))

    # -- writing

    def note(self, key: str, step: int, kind: str, text: str, value: Any = None) -> bool:
        """Record a remark. A note of the loop, or about an entry, that is on record is not written again. Returns
        whether it was written."""
        name = self._name_note(key, kind, text)
        if self.replay or (key and name in self._notes):
            return False
        self._notes.add(name)
        self.log.buffer((NoteRecord(key, step, kind, text, value), None))
        return True

    async def write(self, record: Record, body: bytes | None = None) -> None:
        """Record something, and wait until it is on the disk."""
        await self.log.append((record, body))
        self._add(record, body)

    def buffer(self, record: Record, body: bytes | None = None) -> None:
        """Record something; it is written with the next intent."""
        self.log.buffer((record, body))
        self._add(record)

    async def entry(
        self, entry: Entry, name: str, work: EntryWork, perform: Callable[[Entry], Awaitable[tuple[Any, bytes | None]]]
    ) -> Any:
        """Perform an entry that has no result, between its intent and its result. Returns the result. `name` is the
        kind of work. `perform` returns the result and the bytes of its row. Raises `RecordEnds` in a replay, `Suspend`
        if the run is to be handed back."""
        if self.replay:
            raise RecordEnds
        if self.log.wants_back and self.hands_back and not entry.by_tool:
            raise Suspend
        key, step = entry.key, entry.step
        found = self._found.get(key, NOTHING)
        if work.settle_doubt is not None and found.is_open:
            late = await self.log.find_late(key)
            if late is None:
                settled = await work.settle_doubt()
            else:  # of a process that had lost the run: it knows whether it did the work
                settled = (late.record.value, late.body) if isinstance(late.record, ResultRecord) else None
            if settled is not None:
                await self.write(ResultRecord(key, step, name, settled[0]), settled[1])
                return settled[0]
        timer = None
        if work.has_intent:
            intent = IntentRecord(key, step, name, work.asked, work.made, work.name_holder())
            if work.effect is not None or work.body is not None:
                is_effect = work.effect is not None
                if self.beside < 2:
                    await self.log.append((intent, work.body), durable=is_effect)
                    self._add(intent)
                else:
                    self.log.buffer((intent, work.body), durable=is_effect)
                    self._add(intent)
                    self._writing = self._writing or self._go_on_with(self._write_together())
                    await asyncio.shield(self._writing)
                if is_effect:
                    await self.log.confirm(key)
            elif not found.is_open:
                self.buffer(intent)
            if work.effect is None and work.is_long:
                timer = asyncio.get_running_loop().call_later(LONG, self._write_soon)
        entry.begun = True
        try:
            value, answer = await perform(entry)
        finally:
            if timer is not None:
                timer.cancel()
        performed[name] += 1
        result = ResultRecord(key, step, name, value)
        if work.effect is None:
            self.buffer(result, answer)
        else:  # its end is on the disk before anything else happens
            await self.log.append((result, answer))
            self._add(result)
        return value

    async def _write_together(self) -> None:
        await asyncio.sleep(0)  # the others buffer theirs
        self._writing = None
        await self.log.append()

    def _write_soon(self) -> None:
        """Write what waits in line; where that fails the next append says so."""

        async def write_quietly(writing: Awaitable[None]) -> None:
            with suppress(JournalError):
                await writing

        with suppress(JournalError):
            self._go_on_with(write_quietly(self.log.append()))

    def _go_on_with(self, writing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Write something that is not given up if what waits for it is cancelled."""
        task = asyncio.ensure_future(writing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Wait until all is written."""
        if self._tasks:
            await asyncio.wait(self._tasks)
