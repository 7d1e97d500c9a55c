"""Share prices, from Alpha Vantage."""

from __future__ import annotations

import csv
import io
import re

from plait.core.errors import ToolError
from plait.toolkits.frame import Column, Table
from plait.toolkits.service import SECONDS, Service, ServiceAnswer, Setting, too_many_requests
from plait.tools.tool import Tool, tool

_PRICES = tuple(Column(name, "float") for name in ("open", "high", "low", "close"))
COLUMNS = (Column("timestamp", "date"), *_PRICES, Column("volume", "int"))


def stocks(*, base_url: Setting = None, key: Setting = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tool `get_weekly_stock_price`.

    `base_url` (environment: ALPHAVANTAGE_URL) is the service's address, `key` (ALPHAVANTAGE_API_KEY) its key.
    """
    base, key_hint = "https://www.alphavantage.co", "a free key is given at its site"
    names = ("ALPHAVANTAGE_URL", base, "ALPHAVANTAGE_API_KEY", key_hint)
    service = Service("Alpha Vantage", *names, base_url, key, timeout)

    @tool(read_only=True, open_world=True)
    async def get_weekly_stock_price(symbol: str) -> Table:
        """Prices of a share week by week over 20 years and more, the newest week first.

        Note:
            The table's columns: timestamp (the week's last trading day), open, high, low, close, volume.

        Args:
            symbol: The share's ticker symbol.
        """
        asked = symbol.strip().upper()
        if not re.fullmatch(r"[A-Z0-9][A-Z0-9.:^=-]{0,19}", asked):
            hint = "It is a few letters, perhaps with a point and the exchange."
            raise ToolError(f"{symbol[:40]!r} is no ticker symbol.", hint=hint)
        params = {"function": "TIME_SERIES_WEEKLY", "symbol": asked, "datatype": "csv", "apikey": service.key()}
        return _read_table(await service.ask("/query", params=params), asked)

    return (get_weekly_stock_price,)


def _read_table(answer: ServiceAnswer, symbol: str) -> Table:
    text = answer.text.lstrip("\ufeff").strip()
    if text.startswith("{"):
        # The service sends an error with status 200, in one of these fields.
        read = answer.json_object()
        if "Error Message" in read:
            raise no_such_symbol(symbol)
        said = str(read.get("Note") or read.get("Information") or answer.message() or "nothing that is known")
        said = " ".join(said.split())[:300].rstrip(".")
        if re.search(r"rate limit|call frequency|requests per (day|minute|second)|calls per", said, re.I):
            raise too_many_requests(answer.who, "", f": {said}")
        raise ToolError(f"Alpha Vantage says: {said}.", hint="Check ALPHAVANTAGE_API_KEY.")
    rows = list(csv.reader(io.StringIO(text)))
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if header != [column.name for column in COLUMNS]:
        raise ToolError("Alpha Vantage answered with no table of prices.", hint="Is its address right?")
    try:
        cells = [[row[0], *map(float, row[1:5]), int(float(row[5]))] for row in rows[1:] if row]
        if not all(re.fullmatch(r"\d{4}-\d\d-\d\d", str(row[0])) for row in cells):
            raise ValueError("a day is not a date")
    except (ValueError, IndexError):
        raise ToolError("Alpha Vantage's table can't be read.", hint="Try again later.") from None
    cells.sort(key=lambda row: str(row[0]), reverse=True)
    return Table(COLUMNS, cells)


def no_such_symbol(symbol: str) -> ToolError:
    return ToolError(f"Alpha Vantage has no prices for {symbol!r}.", hint="Check the ticker symbol.")
