"""Opens the journal's file: creates the tables of a new file, and checks an existing one."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from plait.core.errors import JournalError
from plait.journal.claims import require_schema
from plait.journal.sqlite import faults, schema
from plait.journal.sqlite.lost_frames import has_lost_effects
from plait.journal.store import NoJournal
from plait.user_files import protect_journal

MEMORY = Path(":memory:")
"""The place of a store without a file."""

MARK_LOSS = "INSERT OR REPLACE INTO marks (name, value) VALUES ('restored', ?)"
"""Notes that rows written before this time may be missing."""

PATIENCE = 2.0
"""Seconds that a read waits for another process that recovers the file. In WAL mode, writers do not block readers."""

_OWN = {statement for statement in schema.statements() if statement.startswith("CREATE")}
_PLAIN = re.compile(
    r"CREATE TABLE \w+ \((\w+ [A-Z ]+(DEFAULT '[^']*')?(, )?)+\)|CREATE (UNIQUE )?INDEX \w+ ON \w+ \([\w, ]+\)"
)
"""What a newer Plait may have added, which computes nothing."""
_STATISTICS = {f"CREATE TABLE sqlite_stat{each}" for each in ("1(tbl,idx,stat)", "4(tbl,idx,neq,nlt,ndlt,sample)")}
"""What `ANALYZE` creates."""


def open_connection(path: Path) -> tuple[sqlite3.Connection, tuple[int, int]]:
    """Return a connection to the journal at the path, and the file's device and inode. Raises sqlite3.Error,
    JournalError."""
    if path == MEMORY:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        prepare(connection, path)
        return connection, (0, 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Create the file here, not in SQLite, so that only its owner can read it. Never open an existing file: closing
        # it would drop the locks that other threads of this process have on it, and the next process to close it would
        # delete the -wal file in use.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if not os.access(path, os.R_OK):
            raise PermissionError(13, "Permission denied", str(path))
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder", str(path))
        found = os.stat(path)
    except OSError as error:
        raise faults.from_os(error, path) from None
    protect_journal(path)
    address = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(
        address, uri=True, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=32
    )
    try:
        prepare(connection, path)
        if has_lost_effects(connection, path):
            connection.execute(MARK_LOSS, (repr(time.time()),))
    except BaseException:
        connection.close()
        raise
    return connection, (found.st_dev, found.st_ino)


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
        raise NoJournal(str(path))
    connection: sqlite3.Connection | None = None
    try:
        connection = _open_to_read(path)
        if is_new(connection):  # another process is creating it
            raise NoJournal(str(path))
        check(connection, path)
        yield connection
    except sqlite3.Error as error:
        raise faults.translate(error, path) from None
    finally:
        if connection is not None:
            connection.close()


def _open_to_read(path: Path) -> sqlite3.Connection:
    address = path.absolute().as_uri()
    protect_journal(path)
    # One thread at a time uses it, but not always the same one.
    connect = partial(sqlite3.connect, uri=True, isolation_level=None, check_same_thread=False)
    connection = connect(f"{address}?mode=ro", timeout=PATIENCE)
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
    return connect(f"{address}?mode=ro&immutable=1")


def _has_bytes(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_size > 0
    return False


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the schema in a new file; check it in an existing one. Raises sqlite3.Error, JournalError."""
    if is_new(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection):
            # Check again inside the transaction: another process may have created it first.
            for statement in schema.statements() if _state(connection) == (0, 0) else ():
                connection.execute(statement)
    check(connection, path)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: otherwise a loss of power can take what was confirmed
    connection.execute("PRAGMA trusted_schema = OFF")


def is_new(connection: sqlite3.Connection) -> bool:
    """Return whether the file has no marks and no tables, so that nothing was created in it."""
    return _state(connection) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise JournalError if the file is not a journal that this version supports."""
    application, version = _state(connection)
    if application != schema.APPLICATION_ID or version < 1:
        hint = "Give another file with --journal or PLAIT_JOURNAL."
        raise JournalError(f"{path} is a database of another program, not a journal of Plait.", hint=hint)
    reader = _reader(connection) if version > schema.VERSION else 0
    require_schema(path, version, reader, schema.VERSION, schema.OLDEST)
    _check_tables(connection, path, version)


def _check_tables(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Raise JournalError if a file of this version has something that a journal does not have."""
    # A view, a trigger or a generated column of a file from elsewhere could compute for hours. SQLite goes by the SQL
    # alone, whatever the other columns say. It makes some indexes itself, without SQL.
    rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    found = {sql for name, sql in rows if sql is not None or not str(name).startswith("sqlite_autoindex_")}
    if version != schema.VERSION:
        found -= {sql for sql in found - _OWN if _PLAIN.fullmatch(str(sql))}
    later = {each for number, steps in schema.MIGRATIONS.items() if number > version for each in steps}
    if not _OWN - later <= found <= _OWN | _STATISTICS:
        what = max(map(str, found - _OWN), default="a table is missing")
        hint = "If it is not yours, do not use it. If you added a table or an index yourself, remove that."
        raise JournalError(f"The journal {path} is damaged, or somebody changed its tables: {what[:80]!r}.", hint=hint)


def migrate(path: Path) -> tuple[int, int]:
    """Bring the schema of a file up to date. Returns the versions before and after. Raises `JournalError`."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=10, isolation_level=None)
    try:
        application, version = _state(connection)
        if application == schema.APPLICATION_ID and schema.OLDEST <= version < schema.VERSION:
            _check_tables(connection, path, version)  # a trigger of a file from elsewhere must not run
            with transaction(connection):
                for number in range(_state(connection)[1] + 1, schema.VERSION + 1):
                    for statement in schema.MIGRATIONS[number]:
                        connection.execute(statement)
        check(connection, path)
        return version, _state(connection)[1]
    except sqlite3.Error as error:
        raise faults.translate(error, path) from None
    finally:
        connection.close()


def _reader(connection: sqlite3.Connection) -> int:
    """Return the oldest schema whose Plait can use a newer file; a large number if the file does not say it."""
    made = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'marks'").fetchone()
    if made is None or made[0] not in _OWN:  # a view could compute for hours
        return 1 << 30
    found = connection.execute("SELECT value FROM marks WHERE name = 'reader'").fetchone()
    return int(found[0]) if found is not None and str(found[0]).isdigit() else 1 << 30


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Lock the file for writing, and commit what is done inside: all, or after an error nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def _state(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version
