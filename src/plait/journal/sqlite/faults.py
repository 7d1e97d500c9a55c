"""SQLite's errors translated for users: what was wrong, where, and what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from plait.core.errors import JournalError, WrongJournal

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 for an error of Python itself."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether another process is writing, so that a retry can succeed."""
    return code_of(error) in _BUSY


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether part of the file is missing or overwritten."""
    return code_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "Could not decode" in str(error)


def lock_error(path: Path, seconds: float) -> JournalError:
    """Return the error for a journal that stayed locked for too long."""
    return JournalError(
        f"The journal {path} has been locked by another process for more than {seconds:g} s.",
        hint="Find out what holds it (a backup, a database browser with an open change?), or give another "
        "file with --journal.",
    )


def newer(path: Path, found: int, known: int) -> JournalError:
    """Return the error for a file from a later version."""
    return JournalError(
        f"The journal {path} was written by a newer Plait (schema {found}, this one knows {known}).",
        hint="Upgrade Plait (pip install -U plait), or give another file with --journal.",
    )


def older(path: Path, found: int, known: int) -> JournalError:
    """Return the error for a file from a version before the first release."""
    return JournalError(
        f"The journal {path} was written by a development version of Plait (schema {found}, this one uses {known}).",
        hint="Move the file away: the next run makes a new one. Or give another file with --journal.",
    )


def damaged_rows(path: Path, run: str, rows: str) -> JournalError:
    """Return the error for rows of a run that were changed or damaged."""
    return JournalError(
        f"The journal {path} is damaged: of run {run}, {rows}.",
        hint="It can't be resumed or replayed; other runs can. `plait journal check` names all damaged ones.",
    )


def foreign(path: Path) -> JournalError:
    """Return the error for a database that is not a journal."""
    return JournalError(
        f"{path} is a database of another program, not a journal of Plait.",
        hint="Give another file with --journal or PLAIT_JOURNAL.",
    )


def altered(path: Path, what: str) -> JournalError:
    """Return the error for a journal whose tables are not those that Plait creates."""
    return JournalError(
        f"The journal {path} is damaged, or somebody changed its tables: {what[:80]!r}.",
        hint="If it is not yours, do not use it. If you added a table or an index yourself, remove that.",
    )


def from_os(error: OSError, path: Path) -> JournalError:
    """Return the error for a file or folder that cannot be created or opened."""
    what = error.strerror or str(error)
    return WrongJournal(
        f"The journal {path} can't be opened: {what} ({error.filename or path}).",
        hint="Give a file that you may write with --journal or PLAIT_JOURNAL, or run without a journal.",
    )


def translate(error: sqlite3.Error, path: Path) -> JournalError:
    """Return any error as a `JournalError`: one sentence, and what to do."""
    code = code_of(error)
    if is_damaged(error) and code != sqlite3.SQLITE_NOTADB:
        code = sqlite3.SQLITE_CORRUPT
    elsewhere = "give another file with --journal or PLAIT_JOURNAL"
    if code in _BUSY:
        return JournalError(f"The journal {path} is locked by another process.", hint="Try again soon.")
    if code == sqlite3.SQLITE_READONLY:
        return JournalError(
            f"The journal {path} can't be written: the file, or its folder, is read-only for this user.",
            hint=f"Change its permissions, or {elsewhere}.",
        )
    if code == sqlite3.SQLITE_FULL:
        return JournalError(
            f"The journal {path} can't be written: the disk is full.",
            hint=f"Free some space and resume the run, or {elsewhere}.",
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return JournalError(
            f"The journal {path} is damaged: a part of the file is missing or overwritten.",
            hint=f"Put a backup in its place and run `plait journal restored`. Without one, move it away; "
            f"`sqlite3 {path} .recover` may still print what can be read.",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return JournalError(
            f"{path} is not a journal: it is not an SQLite database, or its first bytes are damaged.",
            hint=f"Move it away, or {elsewhere}.",
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return JournalError(
            f"The journal {path} can't be opened: the file or its folder is missing or not permitted.",
            hint=f"Check that the folder is there and may be written, or {elsewhere}.",
        )
    if code == sqlite3.SQLITE_IOERR:
        which = getattr(error, "sqlite_errorname", "") or "SQLITE_IOERR"
        return JournalError(
            f"The journal {path} can't be read or written: the disk reports an error ({error}, {which}).",
            hint=f"Check the disk and its free space, or {elsewhere}.",
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return JournalError(
            f"Another process writes to this run in the journal {path}.",
            hint="It has claimed the run; let it go on there, or resume the run here when it has ended.",
        )
    if code == sqlite3.SQLITE_TOOBIG:
        return JournalError(
            f"A record is too long for the journal {path}: a row can hold a thousand million bytes.",
            hint="Let the tool return less, such as the name of a file with the data.",
        )
    return JournalError(f"The journal {path} failed: {error}.", hint=f"If it stays so, {elsewhere}.")
