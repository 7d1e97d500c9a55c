"""The journal's tables. Plait creates files from them and checks docs/journal.md against them."""

from __future__ import annotations

from typing import NamedTuple

APPLICATION_ID = 0x506C6169
"""An id in the file's header ("Plai"), which distinguishes it from another program's database."""

VERSION = 13
"""The schema's version, in `PRAGMA user_version`. It grows when a table or column changes."""

READER = 12
"""The oldest schema whose Plait can use a file of this one: what is newer does not disturb it."""

OLDEST = 11
"""The oldest version that `MIGRATIONS` start from."""


class SqlColumn(NamedTuple):
    """One column: its name, its SQL type with constraints, and its content."""

    name: str
    sql: str
    meaning: str


class SqlTable(NamedTuple):
    """One table: its name, what a row is, and its columns in order."""

    name: str
    meaning: str
    columns: tuple[SqlColumn, ...]


# The long columns of a run come last: a filter over many runs then reads none of their pages.
RUNS = SqlTable(
    "runs",
    "One row per run, written when the run begins, when a process claims it for a resume, and when it ends.",
    (
        SqlColumn("n", "INTEGER PRIMARY KEY", "the run's number in this file; `events.run` refers to it"),
        SqlColumn("id", "TEXT NOT NULL UNIQUE", "the run's public name, such as 20261121-035501-k3f9qd"),
        SqlColumn("loop", "TEXT NOT NULL", "the loop's name"),
        SqlColumn("status", "TEXT NOT NULL", "`running`, or the outcome's status"),
        SqlColumn("owner", "TEXT NOT NULL", "host:pid:start:boot:namespace of the process that performs it; '': none"),
        SqlColumn("parent", "TEXT NOT NULL", "the run that this one was forked from; '': none"),
        SqlColumn("fork_at", "INTEGER NOT NULL", "the step of the fork; 0: not a fork"),
        SqlColumn("started", "REAL NOT NULL", "when it began, in seconds since 1970"),
        SqlColumn("updated", "REAL NOT NULL", "when this row was last written"),
        SqlColumn("rows", "INTEGER", "how many rows its record had when it ended; NULL while it runs"),
        SqlColumn("session", "TEXT NOT NULL DEFAULT ''", "the conversation of which the run is a turn; '': none"),
        SqlColumn("label", "TEXT NOT NULL DEFAULT ''", "a name to find the run by: a cell of a comparison; '': none"),
        SqlColumn("caller", "TEXT NOT NULL DEFAULT ''", "the run whose tool started this run as its child; '': none"),
        SqlColumn("user", "TEXT NOT NULL DEFAULT ''", "the user for whom it was made; '': not given"),
        SqlColumn("agent", "TEXT NOT NULL DEFAULT ''", "the name of the agent that made it; '': none"),
        SqlColumn("tags", "TEXT NOT NULL DEFAULT '[]'", "JSON list of its tags"),
        SqlColumn("totals", "TEXT NOT NULL", "JSON of the sums (steps, calls, usage, cost ...); `{}` until the end"),
        SqlColumn(
            "crc",
            "INTEGER NOT NULL",
            "CRC-32 of id, question, loop, parent, fork_at, head and session, and then of status, owner, rows, outcome "
            "and totals",
        ),
        SqlColumn("question", "TEXT NOT NULL", "the task, as asked"),
        SqlColumn("head", "TEXT NOT NULL", "JSON of the `RunHead`: everything needed to start the run again"),
        SqlColumn("outcome", "TEXT", "JSON of the outcome; NULL while it runs"),
    ),
)

EVENTS = SqlTable(
    "events",
    "One row per record. Rows are only added. A body is the exact request or response of the record.",
    (
        SqlColumn("id", "INTEGER PRIMARY KEY", "order of writing in the whole file"),
        SqlColumn("run", "INTEGER NOT NULL", "`runs.n`"),
        SqlColumn("seq", "INTEGER NOT NULL", "number in the run: 0, 1, 2 ... without gaps; unique within the run"),
        SqlColumn("at", "REAL NOT NULL", "when, in seconds since 1970"),
        SqlColumn("kind", "TEXT NOT NULL", "`intent`, `effect` (a synced intent), `result`, `raised` or `note`"),
        SqlColumn("data", "TEXT NOT NULL", "JSON of the record; its `type` is `intent`, `result`, `raised` or `note`"),
        SqlColumn("base", "INTEGER", "`seq` of the row whose body is the base of this one; NULL: none"),
        SqlColumn("head", "INTEGER", "bytes that it shares with the start of the base's body; NULL: no base"),
        SqlColumn("tail", "INTEGER", "bytes that it shares with the end of the base's body; NULL: no base"),
        SqlColumn("packed", "INTEGER", "1: `body` is compressed with zlib (RFC 1950); NULL: not compressed"),
        SqlColumn("body", "BLOB", "the body's bytes, or those between head and tail; NULL: no body"),
        SqlColumn("crc", "INTEGER NOT NULL", "CRC-32 of the columns from `seq` on, after what the run began with"),
    ),
)

KEPT = SqlTable(
    "kept",
    "One row per result of a cell, comparison and rating of a user.",
    (
        SqlColumn("kind", "TEXT NOT NULL", "`result`, `comparison` or `rating`"),
        SqlColumn("key", "TEXT NOT NULL", "the cell (the `label` of its run), the comparison's name, or the rated run"),
        SqlColumn("run", "TEXT NOT NULL", "the run's id; '' for a comparison"),
        SqlColumn("at", "REAL NOT NULL", "when it was written, in seconds since 1970"),
        SqlColumn("data", "TEXT NOT NULL", "JSON: the `Result`, the `Comparison` or the `Rating`"),
    ),
)

MARKS = SqlTable(
    "marks",
    "One row per fact about the whole journal.",
    (
        SqlColumn(
            "name",
            "TEXT PRIMARY KEY",
            "`restored`: rows from before this time may be missing; `reader`: the oldest schema whose Plait can use it",
        ),
        SqlColumn("value", "TEXT NOT NULL", "its value: seconds since 1970, or a version"),
    ),
)

CONTENTS = SqlTable(
    "contents",
    "One row per attached file. Runs name its digest in their head, and requests refer to it.",
    (
        SqlColumn("digest", "TEXT PRIMARY KEY", "SHA-256 of the file, in hex"),
        SqlColumn("body", "BLOB NOT NULL", "the file's bytes; in a text file, secrets are replaced"),
    ),
)

SPENDING = SqlTable(
    "spending",
    "One row per spend limit, whose it is (a user, agent or tag), and day or month. USD are in billionths.",
    (
        SqlColumn("name", "TEXT PRIMARY KEY", "JSON list: `day` or `month`, its first day, zone, user, agent and tag"),
        SqlColumn("until", "REAL NOT NULL", "the end of the day or month, in seconds since 1970"),
        SqlColumn("most_usd", "INTEGER", "the limit when the last request was sent; NULL: none"),
        SqlColumn("most_tokens", "INTEGER", "likewise"),
        SqlColumn("most_runs", "INTEGER", "likewise"),
        SqlColumn("usd", "INTEGER NOT NULL", "what was spent"),
        SqlColumn("tokens", "INTEGER NOT NULL", "likewise"),
        SqlColumn("runs", "INTEGER NOT NULL", "how many runs have sent a request"),
        SqlColumn("held_usd", "INTEGER NOT NULL", "what is reserved"),
        SqlColumn("held_tokens", "INTEGER NOT NULL", "likewise"),
        SqlColumn("beyond_usd", "INTEGER NOT NULL", "what requests took beyond their reservations"),
        SqlColumn("beyond_tokens", "INTEGER NOT NULL", "likewise"),
    ),
)

RESERVATIONS = SqlTable(
    "reservations",
    "One row per request under way and limit. A request whose process ended keeps it until the run is resumed.",
    (
        SqlColumn("id", "TEXT NOT NULL", "the reservation"),
        SqlColumn("name", "TEXT NOT NULL", "`spending.name`"),
        SqlColumn("run", "TEXT NOT NULL", "`runs.id`"),
        SqlColumn("key", "TEXT NOT NULL", "the key of the request in the run's record"),
        SqlColumn("usd", "INTEGER NOT NULL", "the most that it is estimated to take"),
        SqlColumn("tokens", "INTEGER NOT NULL", "likewise"),
        SqlColumn("runs", "INTEGER NOT NULL", "1 for the first request of a run"),
    ),
)

TABLES = (RUNS, EVENTS, KEPT, MARKS, CONTENTS, SPENDING, RESERVATIONS)

SESSIONS = "CREATE INDEX runs_of_session ON runs (session) WHERE session <> ''"
LABELS = "CREATE INDEX runs_of_label ON runs (label) WHERE label <> ''"
CALLERS = "CREATE INDEX runs_of_caller ON runs (caller) WHERE caller <> ''"

OF_RESERVATIONS = (
    "CREATE UNIQUE INDEX reservations_of_id ON reservations (id, name)",
    "CREATE INDEX reservations_of_run ON reservations (run)",
)

INDEXES = (
    "CREATE UNIQUE INDEX events_of_run ON events (run, seq)",
    "CREATE UNIQUE INDEX kept_of_key ON kept (kind, key)",
    SESSIONS,
    LABELS,
    CALLERS,
    *OF_RESERVATIONS,
)
"""The first is unique, so that two processes can never both write the same row of a run."""


def _create(table: SqlTable) -> str:
    return f"CREATE TABLE {table.name} ({', '.join(f'{each.name} {each.sql}' for each in table.columns)})"


def statements() -> tuple[str, ...]:
    """Return the SQL that creates a new journal, marks included."""
    tables = (_create(table) for table in TABLES)
    return (*tables, *INDEXES, f"PRAGMA application_id = {APPLICATION_ID}", *_mark(VERSION, READER))


def _mark(version: int, reader: int) -> tuple[str, ...]:
    return f"PRAGMA user_version = {version}", f"INSERT OR REPLACE INTO marks VALUES ('reader', '{reader}')"


MIGRATIONS: dict[int, tuple[str, ...]] = {
    12: _mark(12, 12),
    13: (_create(SPENDING), _create(RESERVATIONS), *OF_RESERVATIONS, *_mark(13, READER)),
}
"""The SQL that makes a journal of the version before into this one, by version, in order."""
