"""PostgreSQL's errors translated for users: what was wrong, where, and what to do."""

from __future__ import annotations

import psycopg

from plait.core.errors import JournalError, WrongJournal

_ELSEWHERE = "give another journal with --journal or PLAIT_JOURNAL"
_FIRST = {
    "28": ("refused the user or the password", "Correct the address, or set PGPASSWORD or ~/.pgpass."),
    "3D": ("does not exist", "Create it (`createdb`), or correct the address."),
    "42501": (
        "does not permit this user what Plait needs",
        "GRANT CREATE on the database, and ownership of its schema.",
    ),
    "25006": ("takes no writes: it is a standby, or set to read-only", "Give the address of the primary server."),
    "53100": ("can't write: the server's disk is full", "Free some space on the server, then resume the run."),
    "53300": ("has no connection left", "Raise its max_connections, or run fewer processes."),
    "53": ("has no resources left", "Look at the server's log."),
    "57014": ("took too long over a statement", "Look at the load and the locks of the server."),
    "55P03": ("took too long over a lock", "Look at what holds the locks (pg_locks)."),
    "57P": ("is shutting down or starting", "Try again when it is up."),
    "XX001": ("has damaged data", "Restore a backup, then run `plait journal restored`."),
    "XX002": ("has a damaged index", "REINDEX the tables of the journal."),
}
"""By SQLSTATE or its beginning: what the database does, and what to do."""

_PASSING = ("08", "40", "53", "55P03", "57P", "25006")
"""The beginnings of SQLSTATEs that may pass: connections, conflicts, resources, restarts, a failover under way."""


def is_passing(error: BaseException) -> bool:
    """Return whether the same statement may succeed soon."""
    if (state := getattr(error, "sqlstate", None)) is not None:
        return str(state).startswith(_PASSING)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError | OSError)


def translate(error: BaseException, place: str) -> JournalError:
    """Return any error of the driver as a `JournalError`: one sentence, and what to do."""
    state = getattr(error, "sqlstate", None) or ""
    # psycopg-pool and libpq give errors of the first connection without their SQLSTATE.
    text = " ".join(str(error).split())
    if not state:
        known = {"role": "28", "does not exist": "3D", "password": "28", "authentication": "28"}
        known |= {"too many clients": "53300"}
        state = next((code for words, code in known.items() if words in text and "FATAL" in text), "")
    for code, (what, hint) in _FIRST.items():
        if state.startswith(code):
            kind = WrongJournal if code in ("28", "3D", "42501") else JournalError
            return kind(f"The journal {place} {what}: {_shorten(text)}", hint=hint)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        hint = f"Check that the server is up and the address is right, or {_ELSEWHERE}."
        return WrongJournal(f"The journal {place} can't be reached: {_shorten(text)}", hint=hint)
    return JournalError(f"The journal {place} failed: {_shorten(text)}", hint=f"If it stays so, {_ELSEWHERE}.")


def _shorten(text: str) -> str:
    return (text if len(text) <= 300 else f"{text[:297]}...") or "no reason was given"
