"""SQLite's errors translated for users: what was wrong, where, and what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from plait.core.errors import JournalError, WrongJournal
from plait.user_folders import NETWORK_HINT, find_network

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
    text, hint = _TEXTS.get(code, ("The journal {path} failed: {error}.", f"If it stays so, {_ELSEWHERE}."))
    which = getattr(error, "sqlite_errorname", "") or "SQLITE_IOERR"
    hint = hint.format(path=path)
    if network := find_network(path):
        hint = f"{hint} The folder is on a network file system ({network}): {NETWORK_HINT}"
    return JournalError(text.format(path=path, error=error, which=which), hint=hint)


_ELSEWHERE = "give another file with --journal or PLAIT_JOURNAL"
_LOCKED = ("The journal {path} is locked by another process.", "Try again soon.")
_TEXTS = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: (
        "The journal {path} can't be written: the file, or its folder, is read-only for this user.",
        f"Change its permissions, or {_ELSEWHERE}.",
    ),
    sqlite3.SQLITE_FULL: (
        "The journal {path} can't be written: the disk is full.",
        f"Free some space and resume the run, or {_ELSEWHERE}.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "The journal {path} is damaged: a part of the file is missing or overwritten.",
        "Put a backup in its place and run `plait journal restored`. Without one, move it away; "
        "`sqlite3 {path} .recover` may still print what can be read.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "{path} is not a journal: it is not an SQLite database, or its first bytes are damaged.",
        f"Move it away, or {_ELSEWHERE}.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "The journal {path} can't be opened: the file or its folder is missing or not permitted.",
        f"Check that the folder is there and may be written, or {_ELSEWHERE}.",
    ),
    sqlite3.SQLITE_IOERR: (
        "The journal {path} can't be read or written: the disk reports an error ({error}, {which}).",
        f"Check the disk and its free space, or {_ELSEWHERE}.",
    ),
    sqlite3.SQLITE_CONSTRAINT: (
        "Another process writes to this run in the journal {path}.",
        "It has claimed the run; let it go on there, or resume the run here when it has ended.",
    ),
    sqlite3.SQLITE_TOOBIG: (
        "A record is too long for the journal {path}: a row can hold a thousand million bytes.",
        "Let the tool return less, such as the name of a file with the data.",
    ),
}
"""By result code: what was wrong, and what to do."""
