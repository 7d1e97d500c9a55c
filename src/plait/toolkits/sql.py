"""One SELECT over one table, confined: an SQLite database in memory that holds nothing else and can reach nothing.

Theory of operation. An authorizer refuses everything but reading this table and calling functions of a list, so
there is no ATTACH, PRAGMA, extension or file, whatever the statement's form. A progress handler ends it at its time
limit; lengths are bounded, and LIKE and printf are such that no single operation outlasts that by much. The table is
found under any name: when SQLite says "no such table: X", the table gets the name X and the statement is tried again.

Dates are ISO texts that compare as points in time: by a collation, '2023-01-07' is '2023-01-07 00:00:00'. What
SQLite says of 'now' comes from the clock that is given.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.frame import Column, Table
from plait.toolkits.sql_functions import FUNCTIONS, compare, functions
from plait.tools.call_context import cancelled

SECONDS = 5.0
MAX_ROWS = 100_000
MAX_SQL = 10_000
MAX_TEXT = 250_000
MAX_RESULT = 32 << 20
NAMES = 16
"""Different names of the table in one statement."""

_AFFINITY = {"int": "INTEGER", "float": "REAL", "bool": "INTEGER"}
_PIECE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|\w+|.", re.DOTALL)
_TAKEN = """
all as by case check default each end foreign group in index into order primary table to values transaction unique
update where
"""


def query(
    table: Table,
    sql: str,
    *,
    now: datetime | None = None,
    seconds: float = SECONDS,
    max_rows: int = MAX_ROWS,
) -> Table:
    """The rows that one SELECT (or WITH, VALUES) gives over `table`, whatever name it gives the table.

    `now` is the clock's time for 'now' (UTC; None: this machine's). Raises `ToolError` for a statement that is wrong,
    would do anything but read, takes longer than `seconds`, or gives more than `max_rows` rows.
    """
    if len(sql) > MAX_SQL or "\0" in sql:
        raise ToolError(f"The query is longer than {MAX_SQL:,} characters or has a null in it.", hint="Write it anew.")
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)) as database,
        closing(sqlite3.connect(":memory:")) as plain,
    ):
        _fill(database, table)
        functions(database, plain, now or datetime.now(UTC))
        return _read(database, table, _named(sql.strip()), seconds, max_rows)


def _read(database: sqlite3.Connection, table: Table, sql: str, seconds: float, max_rows: int) -> Table:
    names: list[str] = ["data"]
    # What WITH names is read under that name; what SQLite itself holds is not to be had so.
    parts = {name for name in _parts(sql) if not name.startswith(("sqlite_", "pragma_"))}
    refused: list[str] = []
    end = time.monotonic() + seconds
    database.set_progress_handler(lambda: cancelled() or time.monotonic() > end, 2000)
    while True:
        database.set_authorizer(_authorizer(names, parts, refused))
        try:
            cursor = database.execute(sql)
            return _result(cursor, table, max_rows)
        except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError) as error:
            said = str(error)
        missing = re.fullmatch(r"no such table: (?:main\.|temp\.)?(.+)", said, re.DOTALL)
        if missing is None or len(names) > NAMES or missing[1].lower().startswith("sqlite_"):
            raise _trouble(said, refused, table, seconds)
        database.set_authorizer(None)
        try:
            _call_it(database, names, missing[1])
        except sqlite3.Error:
            raise _trouble(said, refused, table, seconds) from None


def _call_it(database: sqlite3.Connection, names: list[str], name: str) -> None:
    """One more name for the table: its own at first, then views of it."""
    if len(names) == 1:
        database.execute(f'ALTER TABLE "data" RENAME TO {_quoted(name)}')
        names.insert(0, name)
    else:
        database.execute(f"CREATE VIEW {_quoted(name)} AS SELECT * FROM {_quoted(names[0])}")
        names.append(name)


def _authorizer(names: list[str], parts: set[str], refused: list[str]) -> Callable[..., int]:
    known = {name.lower() for name in names} | parts

    def allow(action: int, first: str | None, second: str | None, *_: Any) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and (first or "").lower() in known:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS:
            return sqlite3.SQLITE_OK
        what = "the function " + str(second) if action == sqlite3.SQLITE_FUNCTION else str(first or second or "")
        refused.append(what)
        return sqlite3.SQLITE_DENY

    return allow


def _result(cursor: sqlite3.Cursor, table: Table, max_rows: int) -> Table:
    if cursor.description is None:
        raise ToolError("The query gives no rows: it is no SELECT.", hint="Write a SELECT.")
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        cells = tuple(f"x'{cell.hex()}'" if isinstance(cell, bytes) else cell for cell in row)
        size += sum(len(cell) if isinstance(cell, str) else 8 for cell in cells)
        rows.append(cells)
        if len(rows) > max_rows or size > MAX_RESULT:
            raise ToolError(
                f"The query gives more than {max_rows:,} rows or {MAX_RESULT >> 20} MiB.", hint="Add WHERE or LIMIT."
            )
    names: list[str] = []
    for described in cursor.description:
        name, number = described[0], 2
        while name.lower() in {other.lower() for other in names}:
            name, number = f"{described[0]}_{number}", number + 1
        names.append(name)
    return _typed(Table(names, rows), table)


def _typed(found: Table, table: Table) -> Table:
    """The result, in which a column of the table's keeps its type where its cells alone don't tell it."""
    types = {column.name.lower(): column.type for column in table.columns}
    columns = list(found.columns)
    truths: set[int] = set()
    for i, column in enumerate(columns):
        known = types.get(column.name.lower())
        cells = {row[i] for row in found.rows}
        if known is not None and (cells <= {None} or (known == "bool" and cells <= {0, 1, None})):
            columns[i] = Column(column.name, known)
            truths |= {i} if known == "bool" else set()
    if columns == list(found.columns):
        return found
    rows = ([bool(c) if i in truths and c is not None else c for i, c in enumerate(row)] for row in found.rows)
    return Table(columns, rows)


def _trouble(said: str, refused: list[str], table: Table, seconds: float) -> ToolError:
    columns = ", ".join(f"{column.name}: {column.type}" for column in table.columns[:40])
    hint = f"The table's columns: {columns}. Any name after FROM is this table."
    if said == "interrupted":
        return ToolError(f"The query took longer than {seconds:g} s and was ended.", hint="Write a simpler one.")
    if refused or "prohibited" in said or "not authorized" in said:
        what = f" ({refused[-1]})" if refused and refused[-1] else ""
        return ToolError(f"The query may only read the table{what}.", hint=f"Write one SELECT. {hint}")
    if "one statement" in said:
        return ToolError("The query has more than one statement.", hint="Write one SELECT.")
    if "user-defined" in said:
        said = "a function does not take what it was given"
    return ToolError(f"SQLite can't run the query: {said}.", hint=hint)


def _fill(database: sqlite3.Connection, table: Table) -> None:
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.create_collation("moment", compare)
    columns = ", ".join(f"{_quoted(column.name)} {_declared(column)}" for column in table.columns)
    marks = ", ".join("?" * len(table.columns))
    try:
        database.execute(f'CREATE TABLE "data" ({columns})')
        database.execute("BEGIN")
        database.executemany(f'INSERT INTO "data" VALUES ({marks})', table.rows)
        database.execute("COMMIT")
    except (sqlite3.Error, UnicodeEncodeError) as error:
        raise ToolError(f"The table can't be queried: {error}.") from error
    for limit, most in (
        (sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2 * MAX_SQL),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        database.setlimit(limit, most)


def _declared(column: Column) -> str:
    if column.type in ("date", "datetime"):
        return "TEXT COLLATE moment"
    return _AFFINITY.get(column.type, "TEXT")


def _parts(sql: str) -> set[str]:
    """What may be the names of a WITH: those before `AS (`, a list of columns between them left out."""
    words = [piece for piece in _PIECE.findall(sql) if not piece.isspace() and not piece.startswith(("--", "/*"))]
    found: set[str] = set()
    for i, word in enumerate(words):
        if word.lower() == "as" and i > 0 and "(" in [each.lower() for each in words[i + 1 : i + 4]]:
            at = i - 1
            if words[at] == ")":
                while at > 0 and words[at] != "(":
                    at -= 1
                at -= 1
            found.add(words[at].strip('"`[]').lower())
    return found


def _named(sql: str) -> str:
    """The statement with words that SQLite keeps for itself in quotes where they name the table: FROM table."""
    pieces = _PIECE.findall(sql)
    before = ""
    for i, piece in enumerate(pieces):
        if piece.isspace() or piece.startswith(("--", "/*")):
            continue
        if before in ("from", "join") and piece.lower() in _TAKEN.split():
            pieces[i] = f'"{piece}"'
        before = piece.lower()
    return "".join(pieces)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
