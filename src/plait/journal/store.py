"""The journal: one SQLite file that holds the record of every run.

    journal = Journal.at(path)                     # nothing is opened or made yet
    log = await journal.begin(head, owner_of_this_process())
    await log.append((Intent("0a0", ...), request))   # stands before the effect
    await log.append((Result("0a0", ...), response))  # stands after it
    await log.end("answered", outcome, totals)

Several processes, threads and event loops may use one file at once. What the file looks like stands in
`schema.py` and docs/journal.md; what a row means in `records.py`.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from plait.core import Attachment
from plait.core.errors import JournalError, RecordChanged
from plait.journal import chain, codec, faults, reader, redaction
from plait.journal.effects import EffectsFile, has_effects
from plait.journal.log import ENDED, RecordAndBody, RunLog
from plait.journal.owner import OwnerLock, hold_owner_lock, life_of, owner_of_this_process
from plait.journal.records import NoteRecord, Row, RunHead, RunRow, SessionRow, SessionTurn
from plait.journal.timeline import Timeline
from plait.journal.writer import INSERTS, Writer

_BEGIN = (
    "INSERT INTO runs (id, question, loop, status, owner, parent, fork_at, started, updated, head, "
    "totals, session, label, caller, digest, state) VALUES (?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, '{}', ?, ?, ?, ?, ?)"
)

_ADD_CONTENT = "INSERT OR IGNORE INTO contents (digest, body) VALUES (?, ?)"
_DELETE_CONTENT = "DELETE FROM contents WHERE digest = ? AND NOT EXISTS (SELECT 1 FROM runs WHERE instr(head, ?))"

_going: weakref.WeakValueDictionary[tuple[str, str], RunLog] = weakref.WeakValueDictionary()
"""The logs of this process, by file and run: a run that was left behind here may be claimed here."""

_before_fork: list[Writer] = []
"""Connections that a fork brought along: never used and never closed, for they are the parent's."""


def default_path() -> Path:
    """PLAIT_JOURNAL, else plait/journal.db under XDG_STATE_HOME, else under ~/.local/state."""
    named = os.environ.get("PLAIT_JOURNAL")
    if named:
        return Path(named).expanduser()
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "plait" / "journal.db"


def _busy_seconds() -> float:
    try:
        return max(0.0, float(os.environ.get("PLAIT_BUSY_SECONDS") or 10.0))
    except ValueError:
        return 10.0


def _close_shared() -> None:
    """At the process's end: so that what was written stands in one file, without a -wal beside it."""
    for each in Journal._shared.values():
        each.close()


class Journal:
    """A journal file. Making one opens nothing; the file and its folder are made by the first run.

    `busy_seconds`: how long to wait for another process that holds the file's lock, PLAIT_BUSY_SECONDS (10)
    by default. `clock` gives seconds since 1970. Every method raises `JournalError`, and no other error, when
    the file can't be used.
    """

    _shared: ClassVar[dict[Path, Journal]] = {}

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        busy_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path).expanduser() if path is not None else default_path()
        self._place = str(self.path.absolute())
        self.busy_seconds = busy_seconds if busy_seconds is not None else _busy_seconds()
        self._clock = clock
        self._writers: dict[threading.Thread, Writer] = {}
        self._lock = threading.Lock()
        self._owner_lock: OwnerLock | None = None

    @classmethod
    def at(cls, path: str | os.PathLike[str] | None = None) -> Journal:
        """The process's one journal at a path: its connection stays open from run to run."""
        wanted = (Path(path).expanduser() if path is not None else default_path()).absolute()
        if not cls._shared:
            atexit.register(_close_shared)
        return cls._shared.setdefault(wanted, cls(wanted))

    def __repr__(self) -> str:
        return f"Journal({str(self.path)!r})"

    def close(self) -> None:
        """Close this journal's connections. The next use opens new ones."""
        with self._lock:
            writers, self._writers = self._writers, {}
        for each in writers.values():
            if each.pid == os.getpid():
                each.close()

    # ---- writing

    async def begin(
        self,
        head: RunHead,
        owner: str,
        records: Sequence[RecordAndBody] = (),
        *,
        secrets: Iterable[str] = (),
        contents: Mapping[str, bytes] = MappingProxyType({}),
    ) -> RunLog:
        """Begin a run: its row, its first records and the `contents` of its attachments (by digest) are written
        together. A content that the journal has is not written again. Raises JournalError."""
        writer = self.writer()
        scrubber = redaction.scrubber(secrets)
        now = self._clock()
        text = scrubber(codec.encode(head)).decode()
        question = scrubber(head.question.encode("utf-8", "replace")).decode()
        name = scrubber(str(head.loop.get("name", "")).encode("utf-8", "replace")).decode()
        session = scrubber(head.session.encode("utf-8", "replace")).decode()
        origin = chain.digest_of_run(head.run, question, name, head.parent, head.fork_at, text, session)
        state = chain.digest_of_state(origin, "running", owner, None, None, "{}")
        caller = head.caller.run if head.caller is not None else ""
        begun = (
            head.run,
            question,
            name,
            owner,
            head.parent,
            head.fork_at,
            now,
            now,
            text,
            session,
            head.label,
            caller,
        )
        effects = EffectsFile(self.path, head.run, is_new=True)
        stored = [
            (each.digest, scrubber(contents[each.digest]) if each.kind == "text" else contents[each.digest])
            for each in head.attachments
            if each.digest in contents
        ]

        def work(connection: sqlite3.Connection) -> RunLog:
            self._hold_lock(owner)
            try:
                n = connection.execute(_BEGIN, (*begun, origin, state)).lastrowid or 0
            except sqlite3.IntegrityError:
                raise JournalError(
                    f"There is a run {head.run} already in the journal {self.path}.",
                    hint="Give the new run another id.",
                ) from None
            connection.executemany(_ADD_CONTENT, stored)
            if has_effects(head):
                effects.start(len(records))
            log = RunLog(writer, n, head.run, scrubber, self._clock, origin=origin, effects=effects)
            if records:
                connection.executemany(INSERTS[1], [log.row(*each) for each in records])
            return log

        return self._keep(await writer.transact(work), writer)

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        force: bool = False,
        secrets: Iterable[str] = (),
        rows: int | None = None,
        records: Sequence[RecordAndBody] = (),
    ) -> RunLog:
        """Take over a run to resume it: nobody else can claim it from then on.

        `rows` is how many rows the caller has read; `records` are written together with the claim. So what was decided
        by these rows, such as an answer to an open question, is recorded only if nobody wrote since. Where calls are in
        doubt because the journal has lost rows (`RunLog.lost`), the note "resumed" among the records says so.

        Raises RecordChanged if the record has more rows. Raises JournalError if the run has ended for good (answered,
        failed or stopped), or if its process still lives; without `force` also if nobody knows whether it lives. The
        log continues at the next place of the record.
        """
        self._must_exist()
        writer = self.writer()
        scrubber = redaction.scrubber(secrets)

        def work(connection: sqlite3.Connection) -> RunLog:
            n, run = reader.find(connection, run_id, self.path)
            (seq,) = connection.execute("SELECT coalesce(max(seq), -1) + 1 FROM events WHERE run = ?", (n,)).fetchone()
            if rows is not None and rows != seq:
                raise RecordChanged(
                    f"Run {run.head.run} was changed by another process.", hint="Read it again, then go on with it."
                )
            self._may_claim(run, force)
            self._hold_lock(owner)
            origin, totals = connection.execute("SELECT digest, totals FROM runs WHERE n = ?", (n,)).fetchone()
            state = chain.digest_of_state(origin, "running", owner, None, None, totals)
            bodies = reader.Bodies()
            for _ in reader.iter_rows(connection, n, self.path, bodies):
                pass
            connection.execute(
                "UPDATE runs SET owner = ?, status = 'running', outcome = NULL, rows = NULL, updated = ?, state = ? "
                "WHERE n = ?",
                (owner, self._clock(), state, n),
            )
            effects = EffectsFile(self.path, run.head.run)
            digest = bodies.digests[-1] if bodies.digests else origin
            log = RunLog(
                writer,
                n,
                run.head.run,
                scrubber,
                self._clock,
                seq,
                bodies.last,
                origin=origin,
                digest=digest,
                effects=effects,
            )
            if has_effects(run.head) or effects.path.exists():
                log.lost = effects.compare([each.hex() for each in bodies.digests])
            written = [(log.lost.noted_in(record), body) if log.lost else (record, body) for record, body in records]
            if records:
                connection.executemany(INSERTS[1], [log.row(*each) for each in written])
            return log

        log = await writer.transact(work)
        if log.lost is not None and any(
            isinstance(record, NoteRecord) and record.kind == "resumed" for record, _ in records
        ):
            # What is in doubt stands in the journal from here on, so the file can begin again.
            EffectsFile(self.path, log.run).start(log.rows)
        return self._keep(log, writer)

    async def delete(self, run_id: str) -> None:
        """Remove a run and its child runs with their records. Raises JournalError when it is unknown or still going on.

        Its rating goes with it, and attached files that no other run has; its forks, its session's other turns and
        results of comparisons stay. What was deleted may still be in the file's free pages: `compact` removes it and
        makes the file smaller.
        """
        self._must_exist()
        removed: list[str] = []

        def work(connection: sqlite3.Connection) -> None:
            n, run = reader.find(connection, run_id, self.path)
            if run.status == "running" and life_of(run.owner, self.path) == "alive":
                raise JournalError(f"Run {run.head.run} is still going on.", hint="Stop it first, then delete it.")
            family = [(n, run.head.run), *reader.descendants(connection, run.head.run)]
            attached = [
                each for _, name in family for each in reader.find(connection, name, self.path)[1].head.attachments
            ]
            for each, name in family:
                connection.execute("DELETE FROM events WHERE run = ?", (each,))
                connection.execute("DELETE FROM runs WHERE n = ?", (each,))
                connection.execute("DELETE FROM ratings WHERE run = ?", (name,))
                removed.append(name)
            for file in attached:  # unless another run has it too
                connection.execute(_DELETE_CONTENT, (file.digest, file.digest))

        await self.writer().transact(work)
        for each in removed:
            EffectsFile(self.path, each).remove()

    def old_runs(self, older_than: float | None = None, keep: int | None = None) -> list[RunRow]:
        """The runs that are not among the newest `keep`, and were last written more than `older_than` seconds ago.

        Runs that go on or wait for a person are never among them. The oldest comes first.
        """
        runs = [run for run in self.runs(-1) if run.status not in ("running", "waiting")]
        before = self._clock() - (older_than or 0.0)
        return [run for run in reversed(runs[keep or 0 :]) if older_than is None or run.updated < before]

    def compact(self) -> None:
        """Remove what was deleted from the file for good. Needs the file for itself for a moment."""
        self._must_exist()
        try:
            self.writer().connection().execute("VACUUM")
            self.writer().connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise faults.translate(error, self.path) from None

    # ---- reading

    def runs(
        self, limit: int = 50, status: str | None = None, session: str | None = None, *, children: bool = False
    ) -> list[RunRow]:
        """The newest runs first. `status`: running, interrupted (its process died), or an outcome's. `session`:
        only those of that conversation, forks of its turns included. Child runs are listed only with `children`."""
        with reader.reading(self.path) as connection:
            return reader.list_runs(connection, self.path, limit, status, session, children=children)

    def children(self, run_id: str) -> list[RunRow]:
        """The child runs that the tools of a run started, in the order of the calls."""
        try:
            with reader.reading(self.path) as connection:
                return reader.list_children(connection, self.path, run_id)
        except reader.NoJournal:
            return []

    def turns(self, session: str, *, before: str | None = None, limit: int | None = None) -> list[SessionTurn]:
        """The turns of a conversation in the order they began, the last `limit` of them.

        `before`: those that began before that run (a fork's: before the run it comes from). A fork is no turn: it
        is another course of one. An unknown session has none, and so has a journal that is not there.
        """
        try:
            with reader.reading(self.path) as connection:
                return reader.turns(connection, session, before, limit)
        except reader.NoJournal:
            return []

    def open_turns(self, session: str, run: str) -> list[RunRow]:
        """The turns of a conversation but `run` that have not ended, or ended with calls in doubt."""
        with reader.reading(self.path) as connection:
            return reader.open_turns(connection, self.path, session, run)

    def session_read_outside(self, session: str) -> bool:
        """Return whether a run of a conversation read content from outside, such as a web page."""
        try:
            with reader.reading(self.path) as connection:
                return reader.session_read_outside(connection, session)
        except reader.NoJournal:
            return False

    def clean_answers(self, label: str, runs: int = 1000) -> set[str]:
        """Return the answers, stripped, that runs with such labels gave without content from outside, and no run gave
        after it read some. Looks at the last `runs` runs."""
        with reader.reading(self.path) as connection:
            return reader.clean_answers(connection, label, runs)

    def sessions(self, limit: int = 50) -> list[SessionRow]:
        """The conversations, the one whose last turn is the newest first; none where no journal is there."""
        try:
            with reader.reading(self.path) as connection:
                return reader.sessions(connection, limit)
        except reader.NoJournal:
            return []

    def run(self, prefix: str) -> RunRow:
        """The run whose id begins with `prefix`, or the newest for "last".

        Raises JournalError naming near ones when there is none, and all when there are several.
        """
        with reader.reading(self.path) as connection:
            return reader.find(connection, prefix, self.path)[1]

    def head(self, run_id: str) -> RunHead:
        """Return the head of a run: the settings that it was started with."""
        return self.run(run_id).head

    def contents(self, attachments: Iterable[Attachment]) -> dict[str, bytes]:
        """The bytes of attached files, by digest. Raises JournalError when one is missing or damaged."""
        wanted = {each.digest: each for each in attachments}
        if not wanted:
            return {}
        with reader.reading(self.path) as connection:
            return {digest: reader.read_content(connection, each, self.path) for digest, each in wanted.items()}

    def rows(self, run_id: str) -> list[Row]:
        """A run's whole record in order, every body byte for byte as it was."""
        return list(self.iter_rows(run_id, reader.KEEP_AT_MOST))

    def iter_rows(self, run_id: str, max_bytes: int = reader.READ_AT_MOST) -> Iterator[Row]:
        """The same, a row at a time: bodies of a long run need not all be in memory. `max_bytes` limits their sum."""
        with reader.reading(self.path) as connection:
            n, _ = reader.find(connection, run_id, self.path)
            yield from reader.iter_rows(connection, n, self.path, reader.Bodies(max_bytes))

    def timeline(self, run_id: str, *, bodies: bool = True) -> Timeline:
        """A run's record as typed values. Without `bodies`, requests and responses are empty, which saves memory."""
        timeline = Timeline(run=self.run(run_id).head.run)
        for row in self.iter_rows(run_id, reader.KEEP_AT_MOST if bodies else reader.READ_AT_MOST):
            timeline.add(row, keep_body=bodies)
        return timeline

    # ---- inside

    def _may_claim(self, run: RunRow, force: bool) -> None:
        name = run.head.run
        if run.status in ENDED:
            raise JournalError(
                f"Run {name} has ended ({run.status}): it cannot be resumed.",
                hint=f"`plait show {name}` shows it. `plait fork {name} --at N` starts a new run from step N.",
            )
        if not run.owner:
            return
        life = life_of(run.owner, self.path)
        host, pid, *_ = (*run.owner.split(":"), "?")
        if life == "elsewhere" and not force:
            raise JournalError(
                f"Run {name} belongs to a process on host {host}, and this machine cannot tell whether it still runs.",
                hint="If it does not, take the run over with --force (in Python: force=True).",
            )
        here = run.owner == owner_of_this_process()
        log = _going.get((self._place, name))
        if life == "alive" and (not here or (log is not None and not log.has_ended)):
            where = "this very process" if here else f"process {pid} on host {host}"
            raise JournalError(f"Run {name} is still going on, in {where}.", hint="Wait for its end, or stop it first.")

    def _hold_lock(self, owner: str) -> None:
        """Hold this process's lock beside the journal: it tells other namespaces that this process lives."""
        if self._owner_lock is None or owner != self._owner_lock.owner:
            self._owner_lock = hold_owner_lock(self.path, owner)

    def _keep(self, log: RunLog, writer: Writer) -> RunLog:
        _going[self._place, log.run] = log
        writer.logs.add(log)
        return log

    def _must_exist(self) -> None:
        with reader.reading(self.path):
            pass

    def writer(self) -> Writer:
        """This thread's writer, with the file at the path open (and not a deleted one)."""
        thread = threading.current_thread()
        found = self._writers.get(thread)
        if found is not None and found.pid == os.getpid() and (found.is_current() or not found.idle):
            return found
        with self._lock:
            for each, other in list(self._writers.items()):
                # A thread that is over has nothing open. Its number does not tell: a new thread may have it again.
                if not each.is_alive() and other.pid == os.getpid():
                    del self._writers[each]
                    other.close()
            if found is not None and found.pid != os.getpid():
                _before_fork.append(found)
            # One of a file that is gone is let be: its runs may still write to it.
            made = self._writers[thread] = Writer(self.path, self.busy_seconds)
            return made
