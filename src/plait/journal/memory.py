"""A run's record in memory, for runs without a journal. It can still be read and replayed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterable
from typing import Any

from plait.background import DONE
from plait.core.errors import JournalError
from plait.journal import codec, redaction
from plait.journal.records import Row, RunHead
from plait.journal.store import LocalLog, RecordAndBody


class MemoryLog(LocalLog):
    """The interface of `RunLog`, with the rows in memory. Secrets are replaced here too."""

    def __init__(self, head: RunHead, *, secrets: Iterable[str] = ()) -> None:
        self.head = head
        self.outcome: dict[str, Any] | None = None
        self.totals: dict[str, Any] = {}
        self._rows: list[Row] = []
        self.scrub = redaction.scrubber(secrets)

    @property
    def run(self) -> str:
        return self.head.run

    def append(self, *records: RecordAndBody, durable: bool = False) -> Awaitable[None]:
        self.buffer(*records)
        return DONE

    def buffer(self, *records: RecordAndBody, durable: bool = False) -> None:
        """Add records; none is durable: nothing is resumed after this process."""
        if self.outcome is not None:
            raise JournalError(f"Run {self.run} has ended: nothing more can be put on its record.")
        for record, body in records:
            if self.scrub:
                record = codec.decode_record(self.scrub(codec.encode_record(record)).decode())
                body = None if body is None else self.scrub(body)
            self._rows.append(Row(len(self._rows), time.time(), record, body))

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        """Record that the run is over or waits."""
        if self.scrub:
            outcome, totals = (
                codec.decode_plain(self.scrub(codec.encode(each)).decode()) for each in (outcome, totals)
            )
        self.outcome, self.totals = outcome, totals
        return DONE

    def read_rows(self) -> list[Row]:
        return list(self._rows)
