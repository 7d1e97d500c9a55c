"""The counters of spend limits in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from plait.journal.spending import Reservation, SpendAmount, SpendBound, SpendCounter
from plait.journal.sqlite.queries import SqliteIndex

T = TypeVar("T")

_COLUMNS = SpendCounter.__struct_fields__
_ADD = f"INSERT OR IGNORE INTO spending VALUES ({', '.join('?' * len(_COLUMNS))})"
_HOLD = """UPDATE spending SET most_usd = ?, most_tokens = ?, most_runs = ?, held_usd = held_usd + ?,
  held_tokens = held_tokens + ?, runs = runs + ? WHERE name = ?"""
_SETTLE = """UPDATE spending AS s SET usd = s.usd + :usd, tokens = s.tokens + :tokens, runs = s.runs + :runs - r.runs,
  held_usd = held_usd - r.usd, held_tokens = held_tokens - r.tokens, beyond_usd = beyond_usd + max(0, :usd - r.usd),
  beyond_tokens = beyond_tokens + max(0, :tokens - r.tokens)
  FROM reservations r WHERE r.id = :id AND r.name = s.name"""


class SqliteSpending(SqliteIndex):
    """The counters of a `SqliteStore`. See `SpendingStore`."""

    async def reserve(self, asked: Reservation, bounds: Sequence[SpendBound]) -> list[SpendCounter]:
        amount = asked.amount

        def work(connection: sqlite3.Connection) -> list[SpendCounter]:
            connection.executemany(_ADD, [structs.astuple(SpendCounter(each.name, each.until)) for each in bounds])
            found = [_read(connection, "name = ?", each.name)[0] for each in bounds]
            if not all(each.has_room(bound, amount) for each, bound in zip(found, bounds, strict=True)):
                return found
            for each in bounds:
                values = (asked.id, each.name, asked.run, asked.key, *structs.astuple(amount))
                connection.execute("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?)", values)
                more = (amount.usd, amount.tokens, amount.runs, each.name)
                connection.execute(_HOLD, (each.most_usd, each.most_tokens, each.most_runs, *more))
            return []

        return await self._open_writer().transact(work, is_short=True)

    async def settle(self, id: str, used: SpendAmount) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_SETTLE, {"id": id, **structs.asdict(used)})
            connection.execute("DELETE FROM reservations WHERE id = ?", (id,))

        await self._open_writer().transact(work, is_short=True)

    async def list_reserved(self, run: str) -> list[Reservation]:
        question = "SELECT DISTINCT id, run, key, usd, tokens, runs FROM reservations WHERE run = ?"

        def read(connection: sqlite3.Connection) -> list[Reservation]:
            rows = connection.execute(question, (run,)).fetchall()
            return [Reservation(id, run, key, SpendAmount(*amount)) for id, run, key, *amount in rows]

        return await self._list(read)

    async def list_counters(self, since: float) -> list[SpendCounter]:
        return await self._list(lambda connection: _read(connection, "until > ? ORDER BY name", since))


def _read(connection: sqlite3.Connection, which: str, value: object) -> list[SpendCounter]:
    question = f"SELECT {', '.join(_COLUMNS)} FROM spending WHERE {which}"
    return [SpendCounter(*row) for row in connection.execute(question, (value,)).fetchall()]
