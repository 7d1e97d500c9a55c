"""Claims about tables: what a query may say, how dates compare, and that nothing but the table can be reached."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import for_each
from patience import patience
from plait.core.artifacts import Artifact
from plait.core.errors import ToolError
from plait.toolkits import Column, Table, tables
from plait.toolkits.sql import _like, compare_dates, query
from toolkits_server import call, named, refusal

FRIDAYS = [datetime(2023, 4, 7) - timedelta(weeks=week) for week in range(60)]
PRICES = Table(
    ["timestamp", "open", "high", "low", "close", "volume"],
    [
        (day.date().isoformat(), 250.0 + i, 260.0 + i, 240.0 + i, 300.0 - i if i < 12 else 200.0, 1_000 + i)
        for i, day in enumerate(FRIDAYS)
    ],
)
NOW = datetime(2023, 4, 7, 15, 3, 1, 624478)


def cells(sql: str, table: Table = PRICES, **options: Any) -> tuple[Any, ...]:
    """The cells of a query's only row."""
    (row,) = query(table, sql, now=NOW, **options).rows
    return row


def failure(sql: str, table: Table = PRICES, **options: Any) -> str:
    with pytest.raises(ToolError) as failed:
        query(table, sql, now=NOW, **options)
    return str(failed.value)


# --- the table itself


def test_a_table_says_its_columns_their_types_and_its_length() -> None:
    assert PRICES.about() == (
        "<Table columns=[timestamp: date, open: float, high: float, low: float, close: float, volume: int], 60 rows>"
    )
    assert Table(["a"], [("x",)]).about() == "<Table columns=[a: str], 1 row>"
    wide = Table([f"c{i}" for i in range(100)], [])
    assert "c29: str, 70 more], 0 rows>" in wide.about()
    assert "\n" not in Table(["a\nb"], []).about()


@for_each(
    ("given_cells", "type"),
    [
        ([1, None], "int"),
        ([1, 2.5], "float"),
        ([True, False], "bool"),
        ([True, 1], "str"),
        (["2023-01-02", None], "date"),
        (["2023-01-02", "2023-01-02 10:00"], "datetime"),
        (["2023-01-02T10:00:00.5Z"], "datetime"),
        (["2023-01-02", "soon"], "str"),
        ([None], "str"),
        ([], "str"),
    ],
)
def test_a_columns_type_is_the_narrowest_that_fits(given_cells: list[Any], type: str) -> None:
    assert Table(["x"], [(cell,) for cell in given_cells]).columns == (Column("x", type),)  # type: ignore[arg-type]


@for_each(
    ("columns", "rows"),
    [
        (["a", "A"], []),
        ([], []),
        (["a", "b"], [(1,)]),
        (["a"], [([1],)]),
        (["a"], [(1 << 63,)]),
        (["a"], [(b"x",)]),
    ],
)
def test_what_is_no_table_is_refused(columns: list[str], rows: list[Any]) -> None:
    with pytest.raises(ValueError):
        Table(columns, rows)


def test_a_table_does_not_change() -> None:
    with pytest.raises(AttributeError, match="cannot assign"):
        PRICES.rows = ()


def test_a_cancelled_run_ends_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.toolkits.sql.cancelled", lambda: True)
    began = time.monotonic()
    failure("SELECT count(*) FROM a, b, c, d, e", seconds=60)
    assert time.monotonic() - began < patience(30)


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.text(max_size=20),
    st.dates().map(str),
)


@st.composite
def made_tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4, unique_by=str.lower))
    rows = draw(st.lists(st.tuples(*[plain for _ in names]), max_size=6))
    return Table(names, rows)


@given(made_tables())
def test_a_table_written_down_is_the_same_again(table: Table) -> None:
    again = Artifact.kinds["table"].load(table.dump())
    assert again == table
    assert isinstance(again, Table)
    assert again.about() == table.about()


@for_each(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"columns": [["a", "colour"]], "rows": []}',
        b'{"columns": [[1, "int"]], "rows": []}',
    ],
)
def test_bytes_that_are_no_table_are_told(data: bytes) -> None:
    with pytest.raises(ValueError, match="not the bytes of a table"):
        Table.load(data)


def test_numbers_that_json_has_not_become_nothing() -> None:
    assert Table(["x"], [(float("inf"),), (float("nan"),), (1.5,)]).rows == ((None,), (None,), (1.5,))


# --- what is asked


@for_each("name", ["stock_prices", "table", "df", "TABLE", '"my prices"', "main.prices", "Order", "[a b]"])
def test_the_table_is_found_by_whatever_name(name: str) -> None:
    assert cells(f"SELECT count(*) FROM {name}") == (60,)


def test_the_table_may_have_several_names_in_one_query() -> None:
    assert cells("SELECT a.close FROM prices a JOIN weeks b ON a.timestamp = b.timestamp WHERE b.volume = 1003") == (
        297.0,
    )
    assert cells(
        "WITH recent AS (SELECT * FROM t LIMIT 5), low(c) AS (SELECT min(close) FROM recent) SELECT c FROM low"
    ) == (296.0,)


def test_the_recorded_queries_give_the_week_of_the_lowest_close() -> None:
    recent = query(PRICES, "SELECT * FROM stock_prices WHERE timestamp >= '2023-01-07 15:03:01.624478'", now=NOW)
    assert len(recent) == 13
    lowest = query(recent, "SELECT * FROM filtered_stock_prices ORDER BY close ASC LIMIT 1")
    assert lowest.row(0)["timestamp"] == "2023-01-13"
    assert query(PRICES, "SELECT MIN(close) FROM stock_prices").names == ("MIN(close)",)


def test_a_result_is_a_table_with_types_of_its_own() -> None:
    found = query(PRICES, "SELECT timestamp AS day, close > 250 AS high, close, close, volume / 10 v FROM t LIMIT 2")
    assert [(column.name, column.type) for column in found.columns] == [
        ("day", "date"),
        ("high", "int"),
        ("close", "float"),
        ("close_2", "float"),
        ("v", "int"),
    ]


def test_what_a_query_does_not_change_comes_back_as_it_was() -> None:
    table = Table(
        ["text", "number", "part", "truth", "day", "time", "nothing"],
        [
            ("007", 1 << 62, 0.1, True, "2023-01-02", "2023-01-02 10:00", None),
            ("ü'\"%", -5, -1.5e300, False, "2023-01-02", "2023-01-02", None),
            ("", 0, 2.0, None, None, "2023-01-02T10:00:00.5Z", None),
        ],
    )
    assert query(table, "SELECT * FROM anything") == table
    none = query(table, "SELECT * FROM anything WHERE 0")
    assert (none.columns, len(none)) == (table.columns, 0)
    assert query(PRICES, "SELECT close AS c FROM t WHERE close < 0").about() == "<Table columns=[c: str], 0 rows>"


# --- dates


@for_each(
    ("condition", "count"),
    [
        ("timestamp = '2023-04-07'", 1),
        ("timestamp = '2023-04-07 00:00:00'", 1),
        ("timestamp >= '2023-04-07T00:00:00'", 1),
        ("timestamp >= '2023-04-07 00:00:00.000001'", 0),
        ("timestamp <= '2022-02-18 00:00:00Z'", 1),
        ("'2023-03-31' <= timestamp", 2),
        ("timestamp BETWEEN '2023-3-1' AND '2023-3-31 23:59'", 5),
        ("timestamp LIKE '2023-03%'", 5),
        ("timestamp >= date('now', '-3 months')", 13),
        ("timestamp >= date('now', '-90 days')", 13),
        ("timestamp = date('now')", 1),
        ("timestamp = current_date", 1),
        ("strftime('%Y', timestamp) = '2023'", 14),
        ("timestamp IN ('2023-04-07 00:00', '2023-03-31')", 2),
    ],
)
def test_dates_compare_as_points_in_time(condition: str, count: int) -> None:
    assert cells(f"SELECT count(*) FROM t WHERE {condition}") == (count,)


def test_now_is_the_clock_that_is_given_and_in_utc() -> None:
    assert cells("SELECT date('now'), datetime('now'), strftime('%H', 'now'), date(), current_timestamp") == (
        "2023-04-07",
        "2023-04-07 15:03:01",
        "15",
        "2023-04-07",
        "2023-04-07 15:03:01",
    )
    east = datetime(2023, 4, 8, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert query(PRICES, "SELECT datetime('now')", now=east).rows == (("2023-04-07 23:00:00",),)
    (said,) = query(PRICES, "SELECT date('now')").rows[0]
    assert abs((datetime.now(UTC).date() - datetime.fromisoformat(str(said)).date()).days) <= 1


@given(st.datetimes(), st.datetimes())
def test_the_order_of_texts_is_the_order_of_times(a: datetime, b: datetime) -> None:
    order = (a > b) - (a < b)
    for left in (str(a), a.isoformat()):
        for right in (str(b), b.isoformat("T")):
            assert compare_dates(left, right) == order


@given(st.text("ab%_\\A", max_size=8), st.text("abAB%_", max_size=10))
def test_like_is_sqlites_like(pattern: str, text: str) -> None:
    database = sqlite3.connect(":memory:")
    try:
        (plain_like,) = database.execute("SELECT ? LIKE ?", (text, pattern)).fetchone()
        assert _like(pattern, text) == bool(plain_like)
    finally:
        database.close()


# --- what can't be reached


REFUSED = [
    "ATTACH '{file}' AS other",
    "ATTACH 'file:{file}?mode=rwc' AS other",
    "VACUUM INTO '{file}'",
    "PRAGMA database_list",
    "PRAGMA temp_store_directory = '{folder}'",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_table_info('data')",
    "SELECT load_extension('{file}')",
    "SELECT readfile('{file}')",
    "SELECT writefile('{file}', 'x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT edit('x')",
    "SELECT randomblob(10)",
    "SELECT zeroblob(1000000000)",
    "SELECT sqlite_compileoption_get(1)",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM main.sqlite_schema",
    "SELECT * FROM sqlite_temp_master",
    "WITH x AS (SELECT sql FROM sqlite_master) SELECT * FROM x",
    "SELECT (SELECT group_concat(name) FROM sqlite_master)",
    "SELECT * FROM dbstat",
    "SELECT * FROM sqlite_stmt",
    "SELECT * FROM bytecode('select 1')",
    "SELECT * FROM json_each('[1]')",
    "CREATE TABLE t2 (x)",
    "CREATE TEMP TABLE t2 (x)",
    "CREATE VIRTUAL TABLE v USING fts5(x)",
    "CREATE VIRTUAL TABLE v USING csv(filename='{file}')",
    "CREATE TRIGGER t AFTER INSERT ON data BEGIN SELECT 1; END",
    "INSERT INTO data VALUES (1, 2, 3, 4, 5, 6)",
    "WITH x AS (SELECT 1) DELETE FROM data",
    "UPDATE data SET close = 0 RETURNING close",
    "REPLACE INTO data VALUES (1, 2, 3, 4, 5, 6)",
    "DROP TABLE data",
    "ALTER TABLE data RENAME TO other",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "SAVEPOINT a",
    "DETACH main",
    "SELECT 1; DROP TABLE data",
    "EXPLAIN ATTACH '{file}' AS other",
    "",
    "-- nothing",
    ";",
]


@for_each("sql", REFUSED)
def test_nothing_but_reading_the_table_is_allowed(sql: str, tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    assert failure(sql.format(file=file, folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_another_database_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "secrets.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE secrets AS SELECT 'the word' AS word")
    database.commit()
    database.close()
    for sql in (f"ATTACH '{file}' AS s", "SELECT * FROM s.secrets", f"SELECT * FROM '{file}'.secrets"):
        assert "the word" not in failure(sql)


WORDS = """
SELECT FROM WHERE WITH RECURSIVE AS ( ) , * ; attach pragma 'x.db' "t" t main sqlite_master temp vacuum into database
= 1 union all values insert delete update set drop table create view trigger virtual using fts5 csv load_extension
readfile writefile pragma_database_list . -- /* */ x'00' explain ? :a reindex detach as
"""
words = st.sampled_from(WORDS.split())


@given(st.lists(words, min_size=1, max_size=14).map(" ".join))
def test_whatever_is_said_gives_a_table_or_a_tool_error_and_no_file(sql: str) -> None:
    before = set(Path.cwd().iterdir())
    with suppress(ToolError):
        assert isinstance(query(PRICES, sql, seconds=1, max_rows=1000), Table)
    assert set(Path.cwd().iterdir()) == before


@given(made_tables(), st.text(max_size=30))
def test_any_table_can_be_queried_with_any_text(table: Table, text: str) -> None:
    with suppress(ToolError):
        query(table, text, seconds=1)
    try:
        found = query(table, "SELECT * FROM whatever", seconds=5)
    except ToolError as error:
        # A name or text with a null, or half a character, is nothing that SQLite holds.
        assert any(bad in repr((table.names, table.rows)) for bad in ("\\x00", "\\ud")), str(error)
        return
    assert len(found) == len(table)


ENDLESS = [
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
    "SELECT count(*) FROM a, b, c, d, e",
    "SELECT max(a.timestamp) FROM a, b, c, d",
    "SELECT sum(length(hex(hex(a.close)))) FROM a, b, c, d ORDER BY 1",
]


@pytest.mark.parametrize("sql", ENDLESS)
def test_a_query_without_end_is_ended(sql: str) -> None:
    began = time.monotonic()
    assert "longer than 0.3 s" in failure(sql, seconds=0.3)
    assert time.monotonic() - began < patience(10)


LARGE = [
    "SELECT printf('%.*c', 2000000000, 'x')",
    "SELECT format('%.2000000000c', 'x')",
    "SELECT '" + "a" * 9000 + "' LIKE '" + "%a" * 80 + "%b'",
    "SELECT group_concat(a.timestamp) FROM a, b",
    "WITH RECURSIVE r(x) AS (SELECT 'aaaaaaaa' UNION ALL SELECT x || x FROM r) SELECT max(length(x)) FROM r",
    "SELECT replace(replace(replace(hex(9e9), '3', timestamp || timestamp), '0', timestamp), '-', timestamp) FROM t",
]


@for_each("sql", LARGE)
def test_no_single_step_takes_long_or_grows_without_bound(sql: str) -> None:
    began = time.monotonic()
    try:
        found = query(PRICES, sql, seconds=2)
        assert sum(len(str(cell)) for row in found.rows for cell in row) <= 40_000_000
    except ToolError:
        pass
    assert time.monotonic() - began < patience(15)


def test_too_many_rows_are_told_and_not_cut() -> None:
    assert "more than 100,000 rows" in failure("SELECT a.close FROM a, b, c", seconds=30)
    assert "more than 10 rows" in failure("SELECT close FROM a", max_rows=10)


@for_each(
    ("sql", "said"),
    [
        ("SELECT week FROM t", "no such column: week. The table's columns: timestamp: date"),
        ("SELEC close FROM t", 'near "SELEC": syntax error'),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("SELECT nosuch(close) FROM t", "no such function: nosuch"),
        ("DROP TABLE data", "may only read the table"),
        ("SELECT ?", "SQLite can't run the query"),
        ("SELECT 1 -- " + "x" * 20_000, "longer than 10,000 characters"),
    ],
)
def test_an_error_says_what_is_wrong_and_what_there_is(sql: str, said: str) -> None:
    assert said in failure(sql)


# --- the tools


async def test_the_tools_query_a_table_by_the_runs_clock_and_give_a_row() -> None:
    toolkit = tables(now=lambda: NOW)
    found = await call(
        toolkit, "run_sql_query", table=PRICES, sql="SELECT timestamp FROM prices WHERE timestamp = date('now')"
    )
    assert await call(toolkit, "get_table_row", table=found, row=0) == {"timestamp": "2023-04-07"}
    assert (await call(toolkit, "get_table_row", table=PRICES, row=-1))["timestamp"] == "2022-02-18"
    assert "rows 0 to 59" in await refusal(toolkit, "get_table_row", table=PRICES, row=60)
    assert "row 0 only" in await refusal(toolkit, "get_table_row", table=found, row=1)
    empty = Table(["a"], [])
    assert "no rows" in await refusal(toolkit, "get_table_row", table=empty, row=0)


def test_the_tools_are_read_only_and_named_as_recorded() -> None:
    toolkit = tables()
    assert [tool.name for tool in toolkit] == ["run_sql_query", "get_table_row"]
    assert all(tool.read_only for tool in toolkit)
    assert list(named(toolkit, "run_sql_query").spec.parameters["properties"]) == ["table", "sql"]
    assert list(named(toolkit, "get_table_row").spec.parameters["properties"]) == ["table", "row"]
