"""Reads of a journal: runs, and a run's rows with their exact bodies. Never creates or changes a file."""

from __future__ import annotations

import difflib
import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from plait.core import Attachment
from plait.core.attachments import with_names
from plait.core.errors import JournalError, UnknownRun
from plait.journal import chain, codec, delta, faults, opening, owner
from plait.journal.keys import read_key
from plait.journal.records import Record, Row, RunRow, SessionRow, SessionTurn
from plait.user_files import protect_journal

PATIENCE = 2.0
"""Seconds that a read waits for another process that recovers the file. In WAL mode, writers do not block readers."""

RUN = """
    n, id, status, owner, started,
    max(updated, coalesce((SELECT at FROM events WHERE run = n ORDER BY seq DESC LIMIT 1), 0)),
    head, outcome, totals,
    (SELECT json_extract(data, '$.grade') FROM results WHERE label <> '' AND cell = label AND run = runs.id)"""


_SESSION = "session <> '' AND session"  # spelled as in its index
# A child begins after its parent. Without this condition, a journal from elsewhere could have children in a circle.
_CHILD = "caller <> '' AND caller = :run AND n > (SELECT n FROM runs WHERE id = :run)"


class NoJournal(UnknownRun):
    """Raised when there is no journal to read yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"There is no journal at {path} yet.",
            hint="The first run makes one; or name another file with --journal or PLAIT_JOURNAL.",
        )


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a checked read-only connection. Every error inside is raised as a `JournalError`."""
    if path.is_dir():
        raise faults.from_os(IsADirectoryError(21, "it is a folder", str(path)), path)
    try:
        empty = not path.exists() or path.stat().st_size == 0
    except OSError as error:
        raise faults.from_os(error, path) from None
    if empty:
        raise NoJournal(path)
    connection: sqlite3.Connection | None = None
    try:
        connection = _open(path)
        if opening.is_new(connection):  # another process is creating it
            raise NoJournal(path)
        opening.check(connection, path)
        yield connection
    except sqlite3.Error as error:
        raise faults.translate(error, path) from None
    finally:
        if connection is not None:
            connection.close()


def _open(path: Path) -> sqlite3.Connection:
    address = path.absolute().as_uri()
    protect_journal(path)
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=PATIENCE, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA user_version").fetchone()
        return connection
    except sqlite3.Error as error:
        connection.close()
        # The journal's folder is not writable (a CD, another user's). WAL needs a file there, unless SQLite knows that
        # nobody writes.
        left = path.with_name(path.name + "-wal")
        if faults.code_of(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or _has_bytes(left):
            raise
    return sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True, isolation_level=None)


def _has_bytes(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_size > 0
    return False


def read_content(connection: sqlite3.Connection, attachment: Attachment, path: Path) -> bytes:
    """Return the bytes of an attached file. Raises JournalError when they are missing or damaged."""
    found = connection.execute("SELECT body FROM contents WHERE digest = ?", (attachment.digest,)).fetchone()
    # A text may differ from its digest, because secrets in it are replaced.
    if found is None or (attachment.kind != "text" and hashlib.sha256(found[0]).hexdigest() != attachment.digest):
        what = "is not in" if found is None else "is damaged in"
        raise JournalError(
            f"The attached file {attachment} {what} the journal {path}.",
            hint="The run can be shown, but not resumed, forked or replayed. Ask the question again with the file.",
        )
    return bytes(found[0])


def run_row(found: tuple[Any, ...], path: Path) -> RunRow:
    """Return a run as listed. The status is "interrupted" if the run's process died before ending it."""
    _, _, status, owned, started, updated, head, outcome, totals, grade = found
    if status == "running" and (not owned or owner.life_of(owned, path) == "dead"):
        status = "interrupted"
    return RunRow(
        codec.decode_head(head),
        status,
        codec.decode_plain(outcome) if outcome else None,
        codec.decode_plain(totals),
        started,
        updated,
        owned,
        codec.decode_plain(grade) if grade else None,
    )


def list_runs(
    connection: sqlite3.Connection,
    path: Path,
    limit: int,
    status: str | None,
    session: str | None = None,
    *,
    children: bool = False,
) -> list[RunRow]:
    """Return the newest runs first, at most `limit`; all if it is negative. Child runs only with `children`."""
    runs: list[RunRow] = []
    asked = {"status": "running" if status == "interrupted" else status, _SESSION: session}
    asked["caller"] = None if children else ""
    wanted = {column: value for column, value in asked.items() if value is not None}
    where = "WHERE " + " AND ".join(f"{column} = ?" for column in wanted) if wanted else ""
    for found in connection.execute(f"SELECT {RUN} FROM runs {where} ORDER BY n DESC", tuple(wanted.values())):
        if len(runs) >= limit >= 0:
            break
        run = run_row(found, path)
        if status is None or run.status == status:
            runs.append(run)
    return runs


def list_children(connection: sqlite3.Connection, path: Path, run: str) -> list[RunRow]:
    """Return the child runs of a run in the order of the calls that started them; those of one call as they began."""
    found = connection.execute(f"SELECT {RUN} FROM runs WHERE {_CHILD} ORDER BY n", {"run": run})
    rows = [run_row(each, path) for each in found.fetchall()]
    keys = [read_key(row.head.caller.key if row.head.caller is not None else "") for row in rows]
    return [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: (pair[0].n, pair[0].i))]


def descendants(connection: sqlite3.Connection, run: str) -> list[tuple[int, str]]:
    """Return the numbers and ids of the child runs of a run, and of theirs."""
    found: list[tuple[int, str]] = []
    for n, child in connection.execute(f"SELECT n, id FROM runs WHERE {_CHILD}", {"run": run}).fetchall():
        found += [(n, child), *descendants(connection, child)]
    return found


def turns(connection: sqlite3.Connection, session: str, before: str | None, limit: int | None) -> list[SessionTurn]:
    """Return the last `limit` turns of a conversation, in order. See `Journal.turns`."""
    where, values = f"{_SESSION} = ? AND parent = ''", [session]  # type: str, list[Any]
    if before is not None and (n := _origin(connection, before)) is not None:
        where, values = f"{where} AND n < ?", [session, n]
    (count,) = connection.execute(f"SELECT count(*) FROM runs WHERE {where}", values).fetchone()
    columns = "id, question, json_extract(head, '$.attachments'), outcome, started"
    question = f"SELECT {columns} FROM runs WHERE {where} ORDER BY n DESC LIMIT ?"
    found = connection.execute(question, [*values, -1 if limit is None else limit]).fetchall()
    return [
        SessionTurn(count - i, run, with_names(asked, codec.decode_attachments(files)), _said(outcome), started)
        for i, (run, asked, files, outcome, started) in reversed(list(enumerate(found)))
    ]


def open_turns(connection: sqlite3.Connection, path: Path, session: str, run: str) -> list[RunRow]:
    """Return the runs of a conversation but `run` that have not ended, or ended with calls in doubt."""
    where = f"{_SESSION} = ? AND id <> ? AND (outcome IS NULL OR json_array_length(totals, '$.guards.approvals') > 0)"
    found = connection.execute(f"SELECT {RUN} FROM runs WHERE {where} ORDER BY n", (session, run))
    return [run_row(each, path) for each in found.fetchall()]


def session_read_outside(connection: sqlite3.Connection, session: str) -> bool:
    """Return whether a run of a conversation read content from outside."""
    where = f"{_SESSION} = ? AND json_array_length(totals, '$.guards.taint') > 0"
    return connection.execute(f"SELECT 1 FROM runs WHERE {where} LIMIT 1", [session]).fetchone() is not None


def clean_answers(connection: sqlite3.Connection, label: str, runs: int) -> set[str]:
    """See `Journal.clean_answers`."""
    question = (
        "SELECT outcome, json_array_length(totals, '$.guards.taint') > 0 FROM runs WHERE outcome IS NOT NULL AND "
        "n > (SELECT max(n) FROM runs) - ? AND substr(label, 1, ?) = ?"
    )
    rows = connection.execute(question, (runs, len(label), label))
    found = {(said.strip(), bool(outside)) for outcome, outside in rows if (said := _said(outcome)) is not None}
    return {text for text, outside in found if not outside and (text, True) not in found}


def sessions(connection: sqlite3.Connection, limit: int) -> list[SessionRow]:
    """Return the conversations, the most recently used first. See `Journal.sessions`."""
    last = (
        "SELECT session, count(*) AS turns, max(n) AS n FROM runs WHERE session <> '' AND parent = '' GROUP BY session"
    )
    question = f"SELECT l.session, l.turns, r.question, r.started FROM ({last}) l JOIN runs r USING (n)"
    found = connection.execute(f"{question} ORDER BY n DESC LIMIT ?", [limit])
    return [SessionRow(*each) for each in found]


def version(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)


def _origin(connection: sqlite3.Connection, run: str) -> int | None:
    """Return the number of the run at the start of a chain of forks; the run's own if it is not a fork."""
    number: int | None = None
    while run and (found := connection.execute("SELECT n, parent FROM runs WHERE id = ?", (run,)).fetchone()):
        if number is not None and found[0] >= number:  # a run is forked from an earlier one
            break
        number, run = found
    return number


def _said(outcome: str | None) -> str | None:
    """Return the answer in an outcome, as text."""
    answer = codec.decode_plain(outcome).get("answer") if outcome else None
    return answer if answer is None or isinstance(answer, str) else codec.encode(answer).decode()


def find(connection: sqlite3.Connection, prefix: str, path: Path) -> tuple[int, RunRow]:
    """Return the run whose id is `prefix`, or the only one that begins with it, with its number.

    "last": the newest that is no child run.
    """
    if prefix == "last":
        found = connection.execute(f"SELECT {RUN} FROM runs WHERE caller = '' ORDER BY n DESC LIMIT 1").fetchall()
        if not found:
            raise UnknownRun("There is no run in the journal yet.", hint="`plait run` makes one.")
    else:
        found = connection.execute(f"SELECT {RUN} FROM runs WHERE id = ?", (prefix,)).fetchall()
        if not found and prefix:
            found = connection.execute(
                f"SELECT {RUN} FROM runs WHERE id > ? AND id < ? ORDER BY id LIMIT 5",
                (prefix, prefix + "\U0010ffff"),
            ).fetchall()
    if len(found) == 1:
        check_run(connection, found[0][0], path)
        return found[0][0], run_row(found[0], path)
    if found:
        some = ", ".join(row[1] for row in found) + ("" if len(found) < 5 else " ...")
        raise UnknownRun(f"More than one run begins with {prefix!r}: {some}.", hint="Write more of the id.")
    known = [each for (each,) in connection.execute("SELECT id FROM runs ORDER BY n DESC LIMIT 1000")]
    # Ids of one day share their first half, so only a mistyped sign or two makes an id near.
    starts = {each[: len(prefix)]: each for each in reversed(known)}
    near = [starts[each] for each in difflib.get_close_matches(prefix, starts, cutoff=0.85)]
    near = near or [each for each in known if len(prefix) >= 4 and prefix in each][:3]
    hint = f"Did you mean {' or '.join(near)}? " if near else "" if known else "It has no runs yet. "
    raise UnknownRun(
        f"There is no run {prefix!r} in the journal; it may have been deleted.", hint=f"{hint}`plait runs` lists them."
    )


def check_run(connection: sqlite3.Connection, n: int, path: Path) -> None:
    """Raise `JournalError` if a run's own row was changed or damaged."""
    (*begun, digest, status, owned, rows, outcome, totals, state) = connection.execute(_OWN, (n,)).fetchone()
    if (
        chain.digest_of_run(*begun) != digest
        or chain.digest_of_state(digest, status, owned, rows, outcome, totals) != state
    ):
        raise faults.damaged_rows(path, str(begun[0]), "its own row in the table of runs is damaged")


_OWN = (
    "SELECT id, question, loop, parent, fork_at, head, session, digest, "
    "status, owner, rows, outcome, totals, state FROM runs WHERE n = ?"
)


READ_AT_MOST, KEEP_AT_MOST = 32 << 30, 1 << 30
"""Bytes of all bodies of a run: restored one after another (32 GiB), and in memory at once (1 GiB)."""


class Bodies:
    """Restore bodies in the order of rows. Stores only the last of each phase, to save memory. `limit`: how many bytes
    they may have together, because each can repeat the one before."""

    def __init__(self, limit: int = READ_AT_MOST) -> None:
        self._left, self._limit = limit, limit
        self.last: dict[str, tuple[int, bytes]] = {}
        self.digests: list[bytes] = []
        """The digests of the rows so far, in order."""

    def restore(self, record: Record, seq: int, base: int | None, coded: tuple[Any, ...]) -> bytes | None:
        """Return the exact body of a row. Raises `delta.Unrestorable`."""
        head, tail, packed, stored = coded
        if stored is None:
            return None
        phase = delta.find_phase(record)
        before = self.last.get(phase) if phase is not None else None
        if base is not None and (before is None or before[0] != base):
            raise delta.Unrestorable("the body that it refers to is not there")
        body = delta.decode(delta.Coded(head, tail, packed, stored), before[1] if before else None)
        self._left -= len(body)
        if self._left < 0:
            raise delta.Unrestorable(f"the bodies up to it are longer than {self._limit >> 30} GiB")
        if phase is not None:
            self.last[phase] = (seq, body)
        return body


def iter_rows(connection: sqlite3.Connection, n: int, path: Path, bodies: Bodies | None = None) -> Iterator[Row]:
    """Yield a run's rows in order, one at a time, up to the first damaged one.

    Raises `JournalError` there, which names all damaged and missing rows of the run.
    """
    bodies = bodies or Bodies()
    bad: list[str] = []
    run, count, before, place = "", None, b"", 0
    try:
        for run, count, begun, *columns, digest in connection.execute(_ROWS, (n,)):  # noqa: B007 - used below
            seq, at, _, data, *coded = columns
            if seq is None:  # the run has no rows
                break
            before = before if place else begun
            if seq == place and chain.digest_of_row(before, columns) != digest:
                bad.append(f"row {seq} is damaged")
            elif seq != place:
                bad.append(f"rows {place} to {seq - 1} are missing" if seq > place + 1 else f"row {place} is missing")
            before, place = digest, seq + 1
            if not bad:
                try:
                    record = codec.decode_record(data.decode())
                    bodies.digests.append(digest)
                    yield Row(seq, at, record, bodies.restore(record, seq, coded[0], tuple(coded[1:])))
                except (delta.Unrestorable, JournalError, UnicodeDecodeError) as why:
                    bad.append(f"row {seq} can't be read ({why})")
    except (sqlite3.DatabaseError, TypeError, AttributeError) as why:  # a damaged page, or a value of another type
        if not run or (isinstance(why, sqlite3.Error) and not faults.is_damaged(why)):
            raise
        bad.append(f"the rows from {place} on can't be read")
    if not bad and count is not None and count != place:
        bad.append(f"rows {place} to {count - 1} are missing")
    if bad:
        raise faults.damaged_rows(path, run, ", ".join(bad))


def rows_without_bodies(connection: sqlite3.Connection, n: int, after: int, until: int | None = None) -> list[Row]:
    """Return the rows of a run after `after`, up to `until`, as they are now. Unchecked, for following a live run."""
    query = "SELECT seq, at, data FROM events WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq"
    found = connection.execute(query, (n, after, 1 << 60 if until is None else until)).fetchall()
    return [Row(seq, at, codec.decode_record(data)) for seq, at, data in found]


_ROWS = (
    "SELECT r.id, r.rows, r.digest, e.seq, e.at, CAST(e.kind AS BLOB), CAST(e.data AS BLOB), e.base, e.head, e.tail, "
    "e.packed, e.body, e.digest FROM runs r LEFT JOIN events e ON e.run = r.n WHERE r.n = ? ORDER BY e.seq"
)
"""Reads the rows and their number in one statement, because another process may add some. Reads texts as bytes, because
damaged ones are not UTF-8."""
