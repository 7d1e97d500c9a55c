"""A journal in memory, whose processes die where a test wants, for the tests of the core.

A `Disk` is what outlives a process. A `Process` is a journal on it, with the interface of `plait.journal.store.Store`
as far as runs use it. What a process has committed stays; what waits in line is lost when it dies. A process passes a
point before and after each commit and dies at the point `dies_at`. From then on it raises `Killed` at each write, so
nothing more is done in its name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait.core.errors import JournalError, RecordChanged, UnknownRun
from plait.journal import codec
from plait.journal.records import IntentRecord, RaisedRecord, ResultRecord, Row, RunHead, RunRow
from plait.journal.run_query import RunQuery
from plait.journal.store import ENDED, LocalLog, RecordAndBody
from plait.journal.timeline import Timeline

RUN = "20260101-000000-root"
"""The id of the run at the top."""


class Killed(BaseException):
    """The process is dead. Not an `Exception`, so that nobody handles it."""


@dataclass
class Stored:
    """A run as a journal has it."""

    head: RunHead
    rows: list[Row] = field(default_factory=list)
    status: str = "running"
    outcome: dict[str, Any] | None = None
    totals: dict[str, Any] = field(default_factory=dict)


@dataclass
class Disk:
    """The runs of a journal, in the order they began."""

    runs: dict[str, Stored] = field(default_factory=dict)

    def copy(self) -> Disk:
        return Disk({name: _copy(each) for name, each in self.runs.items()})

    def rows(self, run: str = RUN) -> list[Row]:
        return list(self.runs[run].rows) if run in self.runs else []

    def timeline(self, run: str = RUN) -> Timeline:
        return Timeline(self.rows(run), run=run)

    def records(self, run: str = RUN, kind: type = object) -> list[Any]:
        """Return the records of a run, or those of one kind."""
        return [row.record for row in self.rows(run) if isinstance(row.record, kind)]

    def keys(self, run: str = RUN, kind: type = object) -> list[str]:
        """Return the keys of records, without the digests of decisions, in their order."""
        return [
            each.key.partition("@")[0]
            for each in self.records(run, kind)
            if isinstance(each, IntentRecord | ResultRecord | RaisedRecord)
        ]


def _copy(stored: Stored) -> Stored:
    return Stored(stored.head, list(stored.rows), stored.status, stored.outcome, dict(stored.totals))


class Process:
    """A journal as one process has it. `pause` returns how many times a commit lets other tasks go first."""

    def __init__(self, disk: Disk, dies_at: int | None = None, pause: Callable[[], int] = lambda: 0) -> None:
        self.disk, self.dies_at, self.pause = disk, dies_at, pause
        self.points = 0
        self.is_dead = False
        self.line: list[Callable[[], None]] = []
        """The changes that wait for the next commit, of all runs."""

    def require_life(self) -> None:
        if self.is_dead:
            raise Killed

    def _pass_point(self) -> None:
        self.points += 1
        if self.dies_at is not None and self.points >= self.dies_at:
            self.is_dead = True
        self.require_life()

    def commit(self) -> None:
        self.require_life()
        if self.line:
            self._pass_point()
            changes, self.line = self.line, []
            for change in changes:
                change()
            self._pass_point()

    # -- what runs use of a journal

    async def list_kept(self, kind: str, keys: Any = None) -> list[Any]:
        """Nobody sends these runs messages."""
        return []

    async def begin(
        self,
        head: RunHead,
        owner: str,
        records: Sequence[RecordAndBody] = (),
        *,
        secrets: Iterable[str] = (),
        contents: Mapping[str, bytes] | None = None,
        after_turn: object = None,
    ) -> ProcessLog:
        stored = Stored(codec.decode_head(codec.encode(head).decode()))
        log = ProcessLog(self, stored)
        log.buffer(*records)
        self.line.append(lambda: self.disk.runs.update({head.run: stored}))
        await log.append()
        return log

    async def claim(
        self,
        run: str,
        owner: str,
        *,
        force: bool = False,
        secrets: Iterable[str] = (),
        rows: int | None = None,
        records: Sequence[RecordAndBody] = (),
    ) -> ProcessLog:
        stored = self._find(run)
        if stored.status in ENDED:
            raise JournalError(f"Run {run} has ended ({stored.status}).")
        if rows is not None and rows != len(stored.rows):
            raise RecordChanged(f"Run {run} was changed.")

        def go_on() -> None:
            stored.status, stored.outcome = "running", None

        self.line.append(go_on)
        log = ProcessLog(self, stored)
        await log.append(*records)
        return log

    def _find(self, run: str) -> Stored:
        self.require_life()
        if run not in self.disk.runs:
            raise UnknownRun(f"There is no run {run}.")
        return self.disk.runs[run]

    async def find_run(self, prefix: str) -> RunRow:
        found = self._find(prefix)
        return RunRow(found.head, found.status, found.outcome, found.totals, 0.0, 0.0, "")

    async def read_rows(self, run: str, after: int = -1, *, until: int | None = None, bodies: bool = True) -> list[Row]:
        return list(self._find(run).rows)

    async def iter_rows(self, run: str) -> AsyncGenerator[Row, None]:
        for row in self._find(run).rows:
            yield row

    async def list_runs(self, query: RunQuery) -> list[RunRow]:
        heads = [each.head for each in self.disk.runs.values()]
        found = [head.run for head in heads if head.caller is not None and head.caller.run == query.caller]
        return [await self.find_run(run) for run in reversed(found)]


class ProcessLog(LocalLog):
    """The log of one run in a process."""

    def __init__(self, process: Process, stored: Stored) -> None:
        self._process, self._stored, self._seq = process, stored, len(stored.rows)
        self._line: list[Row] = []

    @property
    def run(self) -> str:
        return self._stored.head.run

    def scrub(self, data: bytes) -> bytes:
        return data

    def buffer(self, *entries: RecordAndBody, durable: bool = False) -> None:
        self._process.require_life()
        for record, body in entries:
            stored = codec.decode_record(codec.encode_record(record).decode())
            self._line.append(Row(self._seq, float(self._seq), stored, body))
            self._seq += 1

    def append(self, *entries: RecordAndBody, durable: bool = False) -> Awaitable[None]:
        self.buffer(*entries)
        rows, self._line = self._line, []
        if rows:
            self._process.line.append(lambda: self._stored.rows.extend(rows))
        return _Commit(self._process)

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        texts = codec.encode(outcome).decode(), codec.encode(totals).decode()

        def end() -> None:
            self._stored.status = status
            self._stored.outcome, self._stored.totals = map(codec.decode_plain, texts)

        writing = self.append()
        self._process.line.append(end)
        return writing


class _Commit:
    def __init__(self, process: Process) -> None:
        self._process = process

    def __await__(self) -> Iterator[None]:
        for _ in range(self._process.pause()):
            yield  # other tasks go on while the disk is slow
        self._process.commit()
