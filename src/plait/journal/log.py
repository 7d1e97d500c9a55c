"""One run's log: gives its records their places, codes their bodies, and has them written."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from plait.core.errors import JournalError
from plait.journal import codec, delta
from plait.journal.records import Record, Thinking
from plait.journal.secrets import Scrubber
from plait.journal.writer import EventRow, Writer

Entry: TypeAlias = tuple[Record, bytes | None]
"""A record and the exact bytes it carries, if any."""


class AnyLog(Protocol):
    """What a runtime writes to: a `RunLog` in a file, or a `MemoryLog`."""

    @property
    def run(self) -> str:
        """The run's id."""
        ...

    def append(self, *entries: Entry) -> Awaitable[None]:
        """Add records, in order; they stand for good once this is awaited."""
        ...

    def buffer(self, *entries: Entry) -> None:
        """Add records that may be written together with the next append."""
        ...

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        """The run is over, or waits."""
        ...

    def scrub(self, data: bytes) -> bytes:
        """The bytes as they stand on the record: secrets replaced."""
        ...


class RunLog:
    """The record of one run, being written to a journal. Made by `Journal.begin` and `Journal.claim`.

    Records of one run are appended from one thread; their order is the order of the calls. When an append
    fails (`JournalError`), its records stay in line (`unsaved`) and the next append, or `end`, writes them
    first: nothing that was said to the log is lost as long as the log lives.
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
    ) -> None:
        self._writer = writer
        self._n = n
        self._run = run
        self._scrub = scrubber
        self._clock = clock
        self._seq = seq
        self._last = last if last is not None else {}  # phase: place and bytes of its last request
        self._line: list[EventRow] = []
        self._ended = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run

    @property
    def unsaved(self) -> int:
        """How many records wait to be written: buffered ones, and those of a failed append."""
        return len(self._line)

    @property
    def ended(self) -> bool:
        """`end` was called and the run's row says so."""
        return self._ended

    def append(self, *entries: Entry) -> Awaitable[None]:
        """Add records, in order. When awaited they outlive this process (SIGKILL), for they are committed.

        Raises JournalError, at the call or when awaited: the file can't be written, or stayed locked. The
        records are then still in line. Cancelling whoever waits does not take the records back.
        """
        self.buffer(*entries)
        rows, self._line = self._line, []
        return self._writer.submit(self, rows)

    def buffer(self, *entries: Entry) -> None:
        """Add records that are written with the next append or the end: no commit of their own."""
        if self._ended:
            raise JournalError(f"Run {self._run} has ended: nothing more can be put on its record.")
        self._line.extend([self.row(record, body) for record, body in entries])

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        """Write what is in line and the run's end; nobody owns the run from then on. Raises JournalError.

        `status` is the outcome's, `waiting` included: the run can be claimed again.
        """
        if self._ended:
            raise JournalError(f"Run {self._run} has ended already.")
        rows, self._line = self._line, []
        told = (self._text(outcome), self._text(totals))
        self._ended = True
        done = self._writer.submit(self, rows, (status, *told, self._seq, self._clock(), self._n))
        if self._ended:
            self._writer.logs.discard(self)
        return done

    def scrub(self, data: bytes) -> bytes:
        """The bytes as they stand on the record, secrets replaced: what replay must compare with."""
        return self._scrub(data)

    def row(self, record: Record, body: bytes | None) -> EventRow:
        """The record's row, at the run's next place."""
        seq = self._seq
        kind, data = codec.kind_of(record), self._text(record)
        self._seq = seq + 1
        if body is None:
            return (self._n, seq, self._clock(), kind, data, None, None, None, None, None)
        if self._scrub:
            body = self._scrub(body)
        base = None
        if isinstance(record, Thinking):
            before = self._last.get(record.phase)
            self._last[record.phase] = (seq, body)
            coded = delta.encode(body, before[1] if before else None)
            if before and coded.head is not None:
                base = before[0]
        else:
            coded = delta.encode(body)
        return (self._n, seq, self._clock(), kind, data, base, *coded)

    def take_back(self, rows: Sequence[EventRow]) -> None:
        """Rows that could not be written, back in front of the line (for the writer's use)."""
        self._line[:0] = rows
        if self._ended:
            self._ended = False
            self._writer.logs.add(self)

    def _text(self, value: Any) -> str:
        data = codec.encode(value)
        return (self._scrub(data) if self._scrub else data).decode()
