"""Tools over tables: a SELECT, and one row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.frame import Table
from plait.tools.tool import Tool, tool


def tables(*, now: Callable[[], datetime] | None = None) -> tuple[Tool, ...]:
    """The tools `run_sql_query` and `get_table_row`. `now` is the clock that SQL's 'now' is read from (in UTC)."""

    @tool(read_only=True)
    def run_sql_query(table: Table, sql: str) -> Table:
        """Filters, sorts, groups or picks columns of a table by one SQL SELECT (SQLite); gives a new table.

        Note:
            Dates are ISO texts (year-month-day) and compare in order; date('now', '-N months') works.

        Args:
            table: The table that is queried.
            sql: The SELECT; any name after FROM means the given table.
        """
        from plait.toolkits.sql import query

        return query(table, sql, now=now() if now else None)

    @tool(read_only=True)
    def get_table_row(table: Table, row: int) -> dict[str, Any]:
        """One row of a table, as an object with a value for each column.

        Args:
            table: The table.
            row: Which row, counted from 0; -1 is the last.
        """
        try:
            return table.row(row)
        except IndexError:
            count = len(table)
            said = f"rows 0 to {count - 1}" if count > 1 else "row 0 only" if count else "no rows"
            raise ToolError(f"There is no row {row}: the table has {said}.", hint="Rows count from 0.") from None

    return (run_sql_query, get_table_row)
