"""The record of one run as it grows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from plait.core.errors import JournalError
from plait.journal.row_codec import RowWriter
from plait.journal.sqlite.rows import Ending, EventRow
from plait.journal.sqlite.writer import Writer
from plait.journal.store import LocalLog, RecordAndBody


class SqliteLog(LocalLog):
    """A `RunLog` in a journal's file.

    Records of one run are appended from one thread; their order is the order of the calls. When an append fails with
    `JournalError`, its records wait in `line`, and the next append writes them first: a run's rows have no gap.
    """

    def __init__(self, writer: Writer, n: int, run: str, rows: RowWriter, clock: Callable[[], float]) -> None:
        self.run = run
        self.scrub = rows.scrub
        self.line: list[EventRow] = []
        """The rows that are not committed yet (for the writer's use)."""
        self.synced = -1
        """The place of the last durable row (for the writer's use)."""
        self._writer, self._n, self._rows, self._clock = writer, n, rows, clock
        self.has_ended = False
        """`end` was called and the run's row says so: else the writer takes it back."""

    def append(self, *records: RecordAndBody, durable: bool = False) -> Awaitable[None]:
        self.buffer(*records, durable=durable)
        return self._writer.submit(self)

    def buffer(self, *records: RecordAndBody, durable: bool = False) -> None:
        if self.has_ended:
            raise JournalError(f"Run {self.run} has ended: nothing more can be put on its record.")
        rows = self.make_rows(records, durable=durable)
        if durable:  # before the rows are in line: whichever commit takes them along must see it
            self.synced = self._rows.seq - 1
        self.line.extend(rows)

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        if self.has_ended:
            raise JournalError(f"Run {self.run} has ended already.")
        ending = self.make_ending(status, outcome, totals, self._clock())
        self.has_ended = True
        return self._writer.submit(self, ending)

    def make_ending(self, status: str, outcome: dict[str, Any], totals: dict[str, Any], at: float) -> Ending:
        """Return the columns that end the run after the rows that were made."""
        said, sums, count, crc = self._rows.make_ending(status, outcome, totals)
        return (status, said, sums, count, at, crc, self._n)

    def make_rows(self, records: Iterable[RecordAndBody], *, durable: bool = False) -> list[EventRow]:
        """Return the rows of records, at the run's next places."""
        return [(self._n, *columns) for columns in self._rows.make_rows(records, durable=durable)]
