"""The journal's tables, in one place: files are made from it, and docs/journal.md is checked against it."""

from __future__ import annotations

from typing import NamedTuple, get_args

from plait.journal.records import Record

APPLICATION_ID = 0x506C6169
"""Stands in the file's header ("Plai"), so that another program's database is told apart."""

VERSION = 2
"""The schema's version, in `PRAGMA user_version`. It grows when a table or column changes meaning."""


class Column(NamedTuple):
    """One column: its name, its SQL type with constraints, and what stands in it."""

    name: str
    sql: str
    meaning: str


class Table(NamedTuple):
    """One table: its name, what a row of it is, and its columns in order."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


RUNS = Table(
    "runs",
    "One row a run. It is written when the run begins, when it is claimed for resuming, and when it ends.",
    (
        Column("n", "INTEGER PRIMARY KEY", "the run's number in this file; what `events.run` refers to"),
        Column("id", "TEXT NOT NULL UNIQUE", "the run's name elsewhere, such as 20261121-035501-k3f9qd"),
        Column("question", "TEXT NOT NULL", "the task, as asked"),
        Column("strategy", "TEXT NOT NULL", "the strategy's name"),
        Column("status", "TEXT NOT NULL", "`running`, or the outcome's status"),
        Column("owner", "TEXT NOT NULL", "host:pid:start of the process that performs it, '': none"),
        Column("parent", "TEXT NOT NULL", "the run this one was forked from, '' when from none"),
        Column("fork_at", "INTEGER NOT NULL", "the step it was forked at, 0 when it was not forked"),
        Column("started", "REAL NOT NULL", "when it began, in seconds since 1970"),
        Column("updated", "REAL NOT NULL", "when this row was last written"),
        Column("rows", "INTEGER", "how many rows its record had when it ended, NULL while the run goes on"),
        Column("head", "TEXT NOT NULL", "JSON of the `RunHead`: all that is needed to start the run again"),
        Column("outcome", "TEXT", "JSON of the outcome, NULL while the run goes on"),
        Column(
            "totals",
            "TEXT NOT NULL",
            "JSON of the sums (steps, calls, usage, cost ...), `{}` till the end",
        ),
        Column("session", "TEXT NOT NULL DEFAULT ''", "the conversation the run is a turn of, '' when of none"),
    ),
)

EVENTS = Table(
    "events",
    "One row a record, only ever added. A body is the exact request or response the record carries.",
    (
        Column("id", "INTEGER PRIMARY KEY", "order of writing in the whole file"),
        Column("run", "INTEGER NOT NULL", "`runs.n`"),
        Column("seq", "INTEGER NOT NULL", "place in the run: 0, 1, 2 ... with no gap; unique within the run"),
        Column("at", "REAL NOT NULL", "when, in seconds since 1970"),
        Column("kind", "TEXT NOT NULL", "the record's kind, one of the list below"),
        Column("data", "TEXT NOT NULL", "JSON of the record; its `type` is the kind"),
        Column("base", "INTEGER", "`seq` of the row whose body this one is told from; NULL: none"),
        Column(
            "head",
            "INTEGER",
            "how many bytes it shares with the start of the base's; NULL: no base",
        ),
        Column("tail", "INTEGER", "how many bytes it shares with the end of the base's; NULL: no base"),
        Column("packed", "INTEGER", "1: `body` is compressed with zlib (RFC 1950); NULL: as it is"),
        Column("body", "BLOB", "the body's bytes, or those between head and tail; NULL: no body"),
    ),
)

TABLES = (RUNS, EVENTS)

SESSIONS = "CREATE INDEX runs_of_session ON runs (session) WHERE session <> ''"

INDEXES = ("CREATE UNIQUE INDEX events_of_run ON events (run, seq)", SESSIONS)
"""The first is unique, so that two processes can never both write one place of a run."""

UPGRADES: dict[int, tuple[str, ...]] = {
    # Last in the table, with a default: a process of the older version that has the file open goes on writing.
    1: (f"ALTER TABLE runs ADD COLUMN session {RUNS.columns[-1].sql}", SESSIONS),
}
"""By version: the statements that make a file of that version one of the next."""


def kinds() -> tuple[tuple[str, str], ...]:
    """Every record kind with its record's name, as in `records.py`."""
    return tuple(sorted((str(each.__struct_config__.tag), each.__name__) for each in get_args(Record)))


def statements() -> tuple[str, ...]:
    """The SQL that makes a new journal, marks included."""
    tables = (
        f"CREATE TABLE {table.name} ({', '.join(f'{each.name} {each.sql}' for each in table.columns)})"
        for table in TABLES
    )
    marks = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}")
    return (*tables, *INDEXES, *marks)


def upgrade(version: int) -> tuple[str, ...]:
    """The SQL that makes a journal of an older version one of this, mark included; nothing for one of this."""
    steps = [statement for old in range(version, VERSION) for statement in UPGRADES[old]]
    return (*steps, f"PRAGMA user_version = {VERSION}") if steps else ()


def reference() -> str:
    """The part of docs/journal.md that lists tables, columns and record kinds, as Markdown."""
    lines: list[str] = []
    for table in TABLES:
        lines += [
            f"### `{table.name}`",
            "",
            table.meaning,
            "",
            "| column | type | what it is |",
            "|---|---|---|",
        ]
        lines += [f"| `{each.name}` | {each.sql} | {each.meaning} |" for each in table.columns]
        lines.append("")
    lines += ["### Record kinds", "", "| kind | record |", "|---|---|"]
    lines += [f"| `{kind}` | `{name}` |" for kind, name in kinds()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")
