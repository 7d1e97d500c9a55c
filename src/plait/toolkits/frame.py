"""Tables that a run passes by handle, with typed columns and rows of plain values, and tools over them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

from msgspec import Struct

from plait.core.artifacts import Artifact
from plait.core.errors import ToolError
from plait.tools.tool import Tool, tool

Type: TypeAlias = Literal["int", "float", "bool", "str", "date", "datetime"]
Cell: TypeAlias = str | int | float | bool | None

SHOWN = 30
"""Number of columns in the short description of a table."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


class Column(Struct, frozen=True):
    """A column: its name and the type of its cells. Dates and times are ISO texts, such as 2023-01-13."""

    name: str
    type: Type


@dataclass(frozen=True, init=False, repr=False)
class Table(Artifact):
    """A table: `columns`, and `rows` with a cell a column. A cell is a text, a number, a boolean or None."""

    kind: ClassVar[str] = "table"

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __init__(self, columns: Sequence[Column | str], rows: Iterable[Sequence[Any]]) -> None:
        """Make a table. A column given only by name gets the type that fits its cells. Numbers that JSON does not have
        (infinity, not-a-number) become None. Raises `ValueError` for two columns of one name (in any case), a row of
        another length, and a cell that is not a plain value."""
        names = [column if isinstance(column, str) else column.name for column in columns]
        folded = [name.lower() for name in names]
        if not names or len(set(folded)) != len(names):
            raise ValueError(f"A table's columns need names of their own: {', '.join(names) or 'none'}.")
        plain = tuple(tuple(_check_cell(value) for value in row) for row in rows)
        for number, row in enumerate(plain):
            if len(row) != len(names):
                raise ValueError(f"Row {number} has {len(row)} cells; there are {len(names)} columns.")
        typed = tuple(
            Column(column, _infer_type([row[i] for row in plain])) if isinstance(column, str) else column
            for i, column in enumerate(columns)
        )
        object.__setattr__(self, "rows", plain)
        object.__setattr__(self, "columns", typed)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return self.about()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def row(self, number: int) -> dict[str, Cell]:
        """Return one row by column name, counted from 0, or from the end if negative. Raises `IndexError`."""
        return dict(zip(self.names, self.rows[number], strict=True))

    def about(self) -> str:
        named = [" ".join(f"{column.name}: {column.type}".split()) for column in self.columns[:SHOWN]]
        if len(self.columns) > SHOWN:
            named.append(f"{len(self.columns) - SHOWN} more")
        return f"<Table columns=[{', '.join(named)}], {len(self)} row{'' if len(self) == 1 else 's'}>"

    def dump(self) -> bytes:
        columns = [[column.name, column.type] for column in self.columns]
        return json.dumps({"columns": columns, "rows": self.rows}, ensure_ascii=False).encode("utf-8", "surrogatepass")

    @classmethod
    def load(cls, data: bytes) -> Self:
        try:
            read = json.loads(data.decode("utf-8", "surrogatepass"))
            columns = [Column(name, type) for name, type in read["columns"]]
            if not all(isinstance(each.name, str) and each.type in get_args(Type) for each in columns):
                raise ValueError("a column has no name or no type")
            return cls(columns, read["rows"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"These are not the bytes of a table that was written down: {error}.") from error


def _check_cell(value: Any) -> Cell:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError("A table's whole numbers have at most 64 bits.")
        return value
    raise ValueError(f"A {type(value).__name__} is no cell of a table: texts, numbers, booleans and None are.")


def _infer_type(cells: list[Cell]) -> Type:
    """Return the narrowest type of all cells; None fits any type."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int"
    if kinds and kinds <= {int, float}:
        return "float"
    if kinds == {str}:
        texts = [cell for cell in cells if isinstance(cell, str)]
        if all(_DATE.fullmatch(text) for text in texts):
            return "date"
        if all(_DATE.fullmatch(text) or _DATETIME.fullmatch(text) for text in texts):
            return "datetime"
    return "str"


def tables(*, now: Callable[[], datetime] | None = None) -> tuple[Tool, ...]:
    """Makes the tools `run_sql_query` and `get_table_row`. `now` is the clock of SQL's 'now' (in UTC)."""

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
