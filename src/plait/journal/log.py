"""One run's log: gives its records their places, codes their bodies, and has them written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from plait.core import Call
from plait.core.errors import JournalError
from plait.core.secrets import Scrubber
from plait.journal import chain, codec, delta
from plait.journal.effects import EffectsFile, Lost, Mark, digest_of_call
from plait.journal.records import Record
from plait.journal.writer import EventRow, Writer

RecordAndBody: TypeAlias = tuple[Record, bytes | None]
"""A record and the exact bytes it carries, if any."""

ENDED = frozenset({"answered", "failed", "stopped"})
"""The statuses of a run that nothing can be added to. All others can be resumed."""


class AnyLog(Protocol):
    """The log that a runtime writes to: a `RunLog` in a file, or a `MemoryLog`."""

    @property
    def run(self) -> str:
        """The run's id."""
        ...

    def append(self, *records: RecordAndBody) -> Awaitable[None]:
        """Add records, in order; they stand for good once this is awaited."""
        ...

    async def append_before(self, calls: Sequence[Call], *records: RecordAndBody) -> None:
        """Add records, and note outside of the journal that these calls begin, which must not be repeated."""
        ...

    def buffer(self, *records: RecordAndBody) -> None:
        """Add records that may be written together with the next append."""
        ...

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        """The run is over, or waits."""
        ...

    def scrub(self, data: bytes) -> bytes:
        """Return the bytes as the record stores them, with secrets replaced."""
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
        *,
        origin: bytes = b"",
        digest: bytes | None = None,
        effects: EffectsFile | None = None,
    ) -> None:
        self._writer = writer
        self._n = n
        self.run = run
        """The run's id."""
        self.scrub: Callable[[bytes], bytes] = scrubber
        """Returns bytes as they stand on the record, secrets replaced: what replay must compare with."""
        self._has_secrets = bool(scrubber)
        self._clock = clock
        self._seq = seq
        self._last = last if last is not None else {}  # phase: place and bytes of its last request
        self._line: list[EventRow] = []
        self._ended = False
        self._origin = origin
        self._digest = origin if digest is None else digest
        self._effects = effects
        self.lost: Lost | None = None
        """The calls that the claim found in doubt."""

    @property
    def rows(self) -> int:
        """Return the number of rows of the run, with those that wait."""
        return self._seq

    @property
    def unsaved_count(self) -> int:
        """Return the number of records that wait to be written: buffered ones, and those of a failed append."""
        return len(self._line)

    @property
    def has_ended(self) -> bool:
        """`end` was called and the run's row says so."""
        return self._ended

    def append(self, *records: RecordAndBody) -> Awaitable[None]:
        """Add records, in order. When awaited they outlive this process (SIGKILL), for they are committed.

        Raises JournalError, at the call or when awaited: the file can't be written, or stayed locked. The
        records are then still in line. Cancelling whoever waits does not take the records back.
        """
        self.buffer(*records)
        rows, self._line = self._line, []
        return self._writer.submit(self, rows)

    async def append_before(self, calls: Sequence[Call], *records: RecordAndBody) -> None:
        """Add records, and note in the run's own file that these calls begin, which must not be repeated.

        When awaited both are on the disk: no damage to the journal makes a resumed run repeat the calls. Raises
        JournalError: then the calls must not be made.
        """
        written = self.append(*records)
        # The marks name the last of these rows: others may come while these are written.
        seq, row = self._seq - 1, self._digest.hex()
        await written
        if self._effects is not None and calls:
            marks = [Mark(seq, row, digest_of_call(self.run, call)) for call in calls]
            await asyncio.to_thread(self._effects.add, marks)

    def buffer(self, *records: RecordAndBody) -> None:
        """Add records that are written with the next append or the end: no commit of their own."""
        if self._ended:
            raise JournalError(f"Run {self.run} has ended: nothing more can be put on its record.")
        for record, body in records:
            self._line.append(self.row(record, body))

    async def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> None:
        """Write what is in line and the run's end; nobody owns the run from then on. Raises JournalError.

        `status` is the outcome's, `waiting` included: the run can be claimed again.
        """
        if self._ended:
            raise JournalError(f"Run {self.run} has ended already.")
        rows, self._line = self._line, []
        ending = self.scrub(codec.encode(outcome)).decode(), self.scrub(codec.encode(totals)).decode()
        self._ended = True
        state = chain.digest_of_state(self._origin, status, "", self._seq, *ending)
        done = self._writer.submit(self, rows, (status, *ending, self._seq, self._clock(), state, self._n))
        if self._ended:  # else its rows were taken back
            self._writer.logs.discard(self)
        await done
        if self._effects is not None and status in ENDED:  # it cannot be resumed
            self._effects.remove()

    def row(self, record: Record, body: bytes | None) -> EventRow:
        """The record's row, at the run's next place."""
        seq = self._seq
        data = codec.encode_record(record)
        if self._has_secrets:
            data = self.scrub(data)
        self._seq = seq + 1
        base: int | None = None
        coded: tuple[int | None, int | None, int | None, bytes | None] = delta.NO_BODY
        if body is not None:
            if self._has_secrets:
                body = self.scrub(body)
            if (phase := delta.find_phase(record)) is not None:
                before = self._last.get(phase)
                self._last[phase] = (seq, body)
                coded = delta.encode(body, before[1] if before else None)
                if before and coded[0] is not None:
                    base = before[0]
            else:
                coded = delta.encode(body)
        # A float, as SQLite gives the time back.
        kind = str(record.__struct_config__.tag)
        columns = (seq, float(self._clock()), kind, data.decode(), base, *coded)
        self._digest = chain.digest_of_row(self._digest, columns)
        return (self._n, *columns, self._digest)

    def take_back(self, rows: Sequence[EventRow]) -> None:
        """Rows that could not be written, back in front of the line (for the writer's use)."""
        self._line[:0] = rows
        if self._ended:
            self._ended = False
            self._writer.logs.add(self)
