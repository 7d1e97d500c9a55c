"""The record of one run as it grows."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from plait.core.errors import JournalError
from plait.core.secrets import Scrubber
from plait.journal import codec
from plait.journal.records import Record
from plait.journal.sqlite import bodies
from plait.journal.sqlite.rows import Ending, EventRow, crc_of_row, crc_of_state
from plait.journal.sqlite.writer import Writer
from plait.journal.store import RecordAndBody


class SqliteLog:
    """A `RunLog` in a journal's file.

    Records of one run are appended from one thread; their order is the order of the calls. When an append fails with
    `JournalError`, its records wait in `line`, and the next append writes them first: a run's rows have no gap.
    """

    def __init__(
        self,
        writer: Writer,
        n: int,
        run: str,
        scrubber: Scrubber,
        clock: Callable[[], float] = time.time,
        seq: int = 0,
        last: dict[str, tuple[int, bytes]] | None = None,
        *,
        begun: int = 0,
    ) -> None:
        self.run = run
        self.scrub: Callable[[bytes], bytes] = scrubber
        self.line: list[EventRow] = []
        """The rows that are not committed yet (for the writer's use)."""
        self.synced = -1
        """The place of the last durable row (for the writer's use)."""
        self._writer, self._n, self._clock, self._begun, self._seq = writer, n, clock, begun, seq
        self._has_secrets = bool(scrubber)
        self._last = last if last is not None else {}
        """By phase: place and bytes of its last request."""
        self.has_ended = False
        """`end` was called and the run's row says so."""

    def append(self, *records: RecordAndBody, durable: bool = False) -> Awaitable[None]:
        self.buffer(*records, durable=durable)
        return self._writer.submit(self)

    def buffer(self, *records: RecordAndBody, durable: bool = False) -> None:
        if self.has_ended:
            raise JournalError(f"Run {self.run} has ended: nothing more can be put on its record.")
        rows = self.make_rows(records, durable=durable)
        if durable:  # before the rows are in line: whichever commit takes them along must see it
            self.synced = self._seq - 1
        self.line.extend(rows)

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        if self.has_ended:
            raise JournalError(f"Run {self.run} has ended already.")
        ending = self.make_ending(status, outcome, totals, self._clock())
        self.has_ended = True
        return self._writer.submit(self, ending)

    def make_ending(self, status: str, outcome: dict[str, Any], totals: dict[str, Any], at: float) -> Ending:
        """Return the columns that end the run after the rows that were made."""
        texts = self.scrub(codec.encode(outcome)).decode(), self.scrub(codec.encode(totals)).decode()
        crc = crc_of_state(self._begun, status, "", self._seq, *texts)
        return (status, *texts, self._seq, at, crc, self._n)

    def reopen(self) -> None:
        """The run's end could not be written (for the writer's use)."""
        self.has_ended = False

    def make_rows(self, records: Iterable[RecordAndBody], *, durable: bool = False) -> list[EventRow]:
        """Return the rows of records, at the run's next places."""
        return [self._make_row(record, body, durable) for record, body in records]

    def _make_row(self, record: Record, body: bytes | None, durable: bool) -> EventRow:
        seq = self._seq
        data = codec.encode_record(record)
        if self._has_secrets:
            data = self.scrub(data)
        self._seq = seq + 1
        base: int | None = None
        coded: tuple[int | None, int | None, int | None, bytes | None] = bodies.NO_BODY
        if body is not None:
            if self._has_secrets:
                body = self.scrub(body)
            if (phase := bodies.find_phase(record)) is not None:
                before = self._last.get(phase)
                self._last[phase] = (seq, body)
                coded = bodies.encode(body, before[1] if before else None)
                if before is not None and coded[0] is not None:
                    base = before[0]
            else:
                coded = bodies.encode(body)
        kind = str(record.__struct_config__.tag)
        if durable and kind == "intent":
            kind = "effect"  # `lost_frames` looks for it
        # A float, as SQLite gives the time back.
        columns = (seq, float(self._clock()), kind, data.decode(), base, *coded)
        return (self._n, *columns, crc_of_row(self._begun, columns))
