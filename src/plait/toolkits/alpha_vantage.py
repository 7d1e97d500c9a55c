"""Share prices, from Alpha Vantage."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.frame import Column, Table
from plait.toolkits.http import SECONDS, limited
from plait.toolkits.service import Answer, Said, Service, message
from plait.tools.tool import Tool, tool

COLUMNS = (
    Column("timestamp", "date"),
    Column("open", "float"),
    Column("high", "float"),
    Column("low", "float"),
    Column("close", "float"),
    Column("volume", "int"),
)


def stocks(*, base_url: Said = None, key: Said = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """The tool `get_weekly_stock_price`.

    `base_url` (environment: ALPHAVANTAGE_URL) is the service's address, `key` (ALPHAVANTAGE_API_KEY) its key.
    """
    service = Service(
        "Alpha Vantage",
        "ALPHAVANTAGE_URL",
        "https://www.alphavantage.co",
        "ALPHAVANTAGE_API_KEY",
        "a free key is given at its site",
        base_url,
        key,
        timeout,
    )

    @tool(read_only=True)
    async def get_weekly_stock_price(symbol: str) -> Table:
        """Prices of a share week by week over 20 years and more, the newest week first.

        Note:
            The table's columns: timestamp (the week's last trading day), open, high, low, close, volume.

        Args:
            symbol: The share's ticker symbol.
        """
        asked = symbol.strip().upper()
        if not re.fullmatch(r"[A-Z0-9][A-Z0-9.:^=-]{0,19}", asked):
            raise ToolError(
                f"{symbol[:40]!r} is no ticker symbol.",
                hint="It is a few letters, perhaps with a point and the exchange.",
            )
        params = {"function": "TIME_SERIES_WEEKLY", "symbol": asked, "datatype": "csv", "apikey": service.key()}
        return _table(await service.ask("/query", params=params), asked)

    return (get_weekly_stock_price,)


def _table(answer: Answer, symbol: str) -> Table:
    text = answer.text.lstrip("\ufeff").strip()
    if text.startswith("{"):
        raise _said(answer, symbol)
    rows = list(csv.reader(io.StringIO(text)))
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if header != [column.name for column in COLUMNS]:
        raise ToolError("Alpha Vantage answered with no table of prices.", hint="Is its address right?")
    try:
        cells = [[_date(row[0]), *(float(cell) for cell in row[1:5]), int(float(row[5]))] for row in rows[1:] if row]
    except (ValueError, IndexError):
        raise ToolError("Alpha Vantage's table can't be read.", hint="Try again later.") from None
    cells.sort(key=lambda row: str(row[0]), reverse=True)
    return Table(COLUMNS, cells)


def _date(text: str) -> str:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise ValueError(text)
    return text


def _said(answer: Answer, symbol: str) -> ToolError:
    """What the service says in place of a table: it does so with status 200, in one of these fields."""
    read: dict[str, Any] = answer.object()
    if "Error Message" in read:
        return ToolError(f"Alpha Vantage has no prices for {symbol!r}.", hint="Check the ticker symbol.")
    said = str(read.get("Note") or read.get("Information") or message(answer) or "nothing that is known")
    said = " ".join(said.split())[:300].rstrip(".")
    if re.search(r"rate limit|call frequency|requests per (day|minute|second)|calls per", said, re.I):
        return limited(answer.who, "", f": {said}")
    return ToolError(f"Alpha Vantage says: {said}.", hint="Check ALPHAVANTAGE_API_KEY.")
