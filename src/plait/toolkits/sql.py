"""Runs one SELECT over one table in isolation: an SQLite database in memory that holds and reaches nothing more.

Theory of operation. An authorizer allows only reading this table and calling listed functions, so ATTACH, PRAGMA,
extensions and files are refused in any statement. A progress handler ends the statement at its time limit. Lengths are
bounded, and LIKE and printf are replaced, so that no single operation exceeds the limit by much. The table is found
under any name: when SQLite reports "no such table: X", the table gets the name X and the statement runs again.

Dates are ISO texts that compare as points in time: by a collation, '2023-01-07' equals '2023-01-07 00:00:00'. 'now'
comes from the given clock.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.frame import Column, Table
from plait.tools.call_context import cancelled

SECONDS = 5.0
MAX_ROWS = 100_000
MAX_SQL = 10_000
MAX_TEXT = 250_000
MAX_RESULT = 32 << 20
NAMES = 16
"""Maximum number of different names of the table in one statement."""

_TYPES = {
    "int": "INTEGER",
    "float": "REAL",
    "bool": "INTEGER",
    "date": "TEXT COLLATE moment",
    "datetime": "TEXT COLLATE moment",
}
_RESERVED = """
all as by case check default each end foreign group in index into order primary table to values transaction unique
update where
"""

_CLOCKS = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")
_TODAY = {"current_date": "date", "current_time": "time", "current_timestamp": "datetime"}
_PLAIN = """
abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh count cume_dist
degrees dense_rank exp first_value floor format group_concat hex ifnull iif instr json json_array json_array_length
json_extract json_group_array json_group_object json_object json_quote json_type json_valid lag last_value lead length
like ln log log10 log2 lower ltrim max min mod nth_value ntile nullif percent_rank pi pow power printf quote radians
random rank replace round row_number rtrim sign sin sinh sqrt string_agg substr substring sum tan tanh timediff total
trim trunc typeof unhex unicode upper -> ->>
"""
FUNCTIONS = frozenset((*_PLAIN.split(), *_CLOCKS, *_TODAY))
_ISO = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,9})\d*)?)?)?(?:Z|\+00:?00| UTC)?")


def query(
    table: Table, sql: str, *, now: datetime | None = None, seconds: float = SECONDS, max_rows: int = MAX_ROWS
) -> Table:
    """Run one SELECT (or WITH, VALUES) over `table`, under any table name, and return its rows.

    `now` is the clock's time for 'now' (UTC; None: this machine's). Raises `ToolError` for a statement that is wrong,
    does anything but read, takes longer than `seconds`, or returns more than `max_rows` rows.
    """
    if len(sql) > MAX_SQL or "\0" in sql:
        raise ToolError(f"The query is longer than {MAX_SQL:,} characters or has a null in it.", hint="Write it anew.")
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)) as database,
        closing(sqlite3.connect(":memory:")) as plain,
    ):
        _create_table(database, table)
        _register_functions(database, plain, now or datetime.now(UTC))
        # Reserved words of SQLite may name the table, as in FROM table.
        skipped = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
        named = re.compile(rf"{skipped}|\b((?:from|join)\s+)({'|'.join(_RESERVED.split())})\b", re.I | re.S)
        sql = named.sub(lambda match: f'{match[1]}"{match[2]}"' if match[1] else match[0], sql.strip())
        return _run(database, table, sql, seconds, max_rows)


def _run(database: sqlite3.Connection, table: Table, sql: str, seconds: float, max_rows: int) -> Table:
    names: list[str] = ["data"]
    # A name in WITH (before `AS (`, perhaps with columns) wins over the table; SQLite's own stay inaccessible.
    bare = re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", " ", sql, flags=re.DOTALL)
    pattern = r'([`"\[]?[^\s,()]+)\s*(?:\([^()]*\)\s*)?\bas\b\s*(?:not\s+)?(?:materialized\s*)?\('
    parts = {name.strip('"`[]').lower() for name in re.findall(pattern, bare, re.I)}
    parts = {name for name in parts if not name.startswith(("sqlite_", "pragma_"))}
    refused: list[str] = []
    end = time.monotonic() + seconds
    database.set_progress_handler(lambda: cancelled() or time.monotonic() > end, 2000)
    while True:
        database.set_authorizer(_make_authorizer(names, parts, refused))
        try:
            cursor = database.execute(sql)
            return _fetch_rows(cursor, table, max_rows)
        except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError) as error:
            said = str(error)
        missing = re.fullmatch(r"no such table: (?:main\.|temp\.)?(.+)", said, re.DOTALL)
        if missing is None or len(names) > NAMES or missing[1].lower().startswith("sqlite_"):
            raise _explain_error(said, refused, table, seconds)
        database.set_authorizer(None)
        name = _quote(missing[1])
        try:  # one more name: its own at first, then those of views
            if len(names) == 1:
                database.execute(f'ALTER TABLE "data" RENAME TO {name}')
                names.insert(0, missing[1])
            else:
                database.execute(f"CREATE VIEW {name} AS SELECT * FROM {_quote(names[0])}")
                names.append(missing[1])
        except sqlite3.Error:
            raise _explain_error(said, refused, table, seconds) from None


def _make_authorizer(names: list[str], parts: set[str], refused: list[str]) -> Callable[..., int]:
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


def _fetch_rows(cursor: sqlite3.Cursor, table: Table, max_rows: int) -> Table:
    if cursor.description is None:
        raise ToolError("The query gives no rows: it is no SELECT.", hint="Write a SELECT.")
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        cells = tuple(f"x'{cell.hex()}'" if isinstance(cell, bytes) else cell for cell in row)
        size += sum(len(cell) if isinstance(cell, str) else 8 for cell in cells)
        rows.append(cells)
        if len(rows) > max_rows or size > MAX_RESULT:
            hint = "Add WHERE or LIMIT."
            raise ToolError(f"The query gives more than {max_rows:,} rows or {MAX_RESULT >> 20} MiB.", hint=hint)
    names: list[str] = []
    for described in cursor.description:
        name, number = described[0], 2
        while name.lower() in {other.lower() for other in names}:
            name, number = f"{described[0]}_{number}", number + 1
        names.append(name)
    found = Table(names, rows)
    types = {column.name.lower(): column.type for column in table.columns}
    columns = list(found.columns)
    kept: list[Sequence[Any]] = []
    for i, column in enumerate(columns):
        known = types.get(column.name.lower())
        values = [row[i] for row in found.rows]
        is_bool = known == "bool" and set(values) <= {0, 1, None}
        if known and (is_bool or set(values) <= {None}):  # the cells alone do not determine the type
            columns[i] = Column(column.name, known)
            values = [bool(value) if is_bool and value is not None else value for value in values]
        kept.append(values)
    return Table(columns, zip(*kept, strict=True))


def _explain_error(said: str, refused: list[str], table: Table, seconds: float) -> ToolError:
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


def _create_table(database: sqlite3.Connection, table: Table) -> None:
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.create_collation("moment", compare_dates)
    columns = ", ".join(f"{_quote(column.name)} {_TYPES.get(column.type, 'TEXT')}" for column in table.columns)
    marks = ", ".join("?" * len(table.columns))
    try:
        database.execute(f'CREATE TABLE "data" ({columns})')
        database.execute("BEGIN")
        database.executemany(f'INSERT INTO "data" VALUES ({marks})', table.rows)
        database.execute("COMMIT")
    except (sqlite3.Error, UnicodeEncodeError) as error:
        raise ToolError(f"The table can't be queried: {error}.") from error
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2 * MAX_SQL),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        database.setlimit(limit, value)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _register_functions(database: sqlite3.Connection, plain: sqlite3.Connection, now: datetime) -> None:
    """Register SQLite's time functions with the given 'now', and bounded versions of functions that could run long."""
    if now.tzinfo is not None:
        now = now.astimezone(UTC).replace(tzinfo=None)
    moment = now.isoformat(" ", "milliseconds")

    def same(name: str, given: list[Any]) -> Any:
        return plain.execute(f"SELECT {name}({', '.join('?' * len(given))})", given).fetchone()[0]

    def clock(name: str) -> Callable[..., Any]:
        at = 1 if name == "strftime" else 0

        def call(*values: Any) -> Any:
            given = list(values)
            if len(given) <= at:
                given.append(moment)
            elif isinstance(given[at], str) and given[at].strip().lower() == "now":
                given[at] = moment
            return same(name, given)

        return call

    def printf(*values: Any) -> Any:
        if values and isinstance(values[0], str) and re.search(r"\*|\d{5}", values[0]):
            raise ValueError("a width is too large")
        return same("printf", list(values))

    for name in _CLOCKS:
        database.create_function(name, -1, clock(name), deterministic=True)
    for name, of in _TODAY.items():
        database.create_function(name, 0, clock(of), deterministic=True)
    for name in ("printf", "format"):
        database.create_function(name, -1, printf, deterministic=True)
    for count in (2, 3):
        database.create_function("like", count, _like, deterministic=True)


def _like(pattern: Any, text: Any, escape: str | None = None) -> bool | None:
    """Implement LIKE without exponential time: a part between two % has a fixed length, so its first match is best."""
    if pattern is None or text is None:
        return None
    text = str(text)
    parts: list[str] = [""]
    characters = iter(str(pattern))
    for character in characters:
        if escape and character == escape:
            parts[-1] += re.escape(next(characters, ""))
        elif character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    compiled = [re.compile(part, re.IGNORECASE | re.DOTALL) for part in parts]
    if len(parts) == 1:
        return compiled[0].fullmatch(text) is not None
    at = 0
    for i, part in enumerate(compiled[:-1]):
        found = part.match(text) if i == 0 else part.search(text, at)
        if found is None:
            return False
        at = found.end()
    ending = re.compile(f"(?:{parts[-1]})\\Z", re.IGNORECASE | re.DOTALL)
    return ending.search(text, at) is not None


def compare_dates(left: str, right: str) -> int:
    """Compare two dates or times: -1, 0 or 1. Other texts compare as texts."""
    if len(left) == len(right) == 10:  # two dates in their usual form
        return (left > right) - (left < right)
    a, b = _normalise_date(left), _normalise_date(right)
    return (a > b) - (a < b)


@lru_cache(maxsize=4096)
def _normalise_date(text: str) -> str:
    """Return a date or time in a form that sorts as text; other text stays unchanged."""
    read = _ISO.fullmatch(text)
    if read is None:
        return text
    year, month, day, hour, minute, second, part = read.groups(default="0")
    return f"{year}-{month:0>2}-{day:0>2} {hour:0>2}:{minute}:{second:0>2}.{part:0<9}".replace(":0:", ":00:")
