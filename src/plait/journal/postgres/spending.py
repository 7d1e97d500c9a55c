"""The counters of spend limits in a database.

Each step is one statement, so no lock waits for a client. It locks the counters in the order of their names, so two
requests never wait for each other, and then reads them as they are."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import convert, structs

from plait.journal.postgres.database import WRITE_SECONDS, Connection
from plait.journal.postgres.queries import PostgresIndex
from plait.journal.spending import Reservation, SpendAmount, SpendBound, SpendCounter

_COLUMNS = ", ".join(f"s.{name}" for name in SpendCounter.__struct_fields__)
_ADD = """insert into spending (name, until) select * from unnest(%(names)s::text[], %(untils)s::float8[]) u (n, until)
  order by n on conflict do nothing"""
_RESERVE = f"""with asked as (select * from unnest(%(names)s::text[], %(most_usds)s::bigint[],
    %(most_tokenss)s::bigint[], %(most_runss)s::bigint[]) a (name, new_usd, new_tokens, new_runs)),
  found as materialized (select {_COLUMNS}, new_usd, new_tokens, new_runs from spending s join asked using (name)
    order by s.name for update of s),
  room as materialized (select count(*) = cardinality(%(names)s::text[]) and bool_and(
    (new_usd is null or usd + held_usd + %(usd)s <= new_usd)
    and (new_tokens is null or tokens + held_tokens + %(tokens)s <= new_tokens)
    and (new_runs is null or %(runs)s = 0 or runs + %(runs)s <= new_runs)) as is_there from found),
  made as (insert into reservations select %(id)s, f.name, %(run)s, %(key)s, %(usd)s, %(tokens)s, %(runs)s
    from found f, room where room.is_there on conflict do nothing returning name),
  held as (update spending s set most_usd = f.new_usd, most_tokens = f.new_tokens, most_runs = f.new_runs,
    held_usd = s.held_usd + %(usd)s, held_tokens = s.held_tokens + %(tokens)s, runs = s.runs + %(runs)s
    from made m join found f using (name) where s.name = m.name)
  select {_COLUMNS}, room.is_there from found s, room"""
_SETTLE = """with gone as materialized (delete from reservations where id = %(id)s returning name, usd, tokens, runs),
  locked as materialized (select s.name from spending s join gone using (name) order by s.name for update of s)
  update spending s set usd = s.usd + %(usd)s, tokens = s.tokens + %(tokens)s, runs = s.runs + %(runs)s - g.runs,
    held_usd = s.held_usd - g.usd, held_tokens = s.held_tokens - g.tokens,
    beyond_usd = s.beyond_usd + greatest(0, %(usd)s - g.usd),
    beyond_tokens = s.beyond_tokens + greatest(0, %(tokens)s - g.tokens)
  from gone g join locked using (name) where s.name = g.name"""


class PostgresSpending(PostgresIndex):
    """The counters of a `PostgresStore`. See `SpendingStore`."""

    async def reserve(self, asked: Reservation, bounds: Sequence[SpendBound]) -> list[SpendCounter]:
        values = {"id": asked.id, "run": asked.run, "key": asked.key, **structs.asdict(asked.amount)}
        values |= {f"{name}s": [getattr(each, name) for each in bounds] for name in SpendBound.__struct_fields__}
        tries = 0

        async def work(connection: Connection) -> list[SpendCounter]:
            nonlocal tries
            tries += 1
            rows = await (await connection.execute(_RESERVE, values)).fetchall()
            if len(rows) < len(bounds):
                await connection.execute(_ADD, values)
                rows = await (await connection.execute(_RESERVE, values)).fetchall()
            if rows and rows[0][-1]:
                return []
            mine = "select 1 from reservations where id = %(id)s"
            if tries > 1 and await (await connection.execute(mine, values)).fetchone() is not None:
                return []  # an answer was lost
            return [SpendCounter(*row[:-1]) for row in rows]

        return await self._database.do(work, seconds=WRITE_SECONDS)

    async def settle(self, id: str, used: SpendAmount) -> None:
        values = {"id": id, **structs.asdict(used)}
        await self._database.execute(_SETTLE, values)

    async def list_reserved(self, run: str) -> list[Reservation]:
        question = "select distinct id, run, key, usd, tokens, runs from reservations where run = %s"
        rows = await self._fetch(question, (run,))
        return [Reservation(row["id"], run, row["key"], convert(row, SpendAmount)) for row in rows]

    async def list_counters(self, since: float) -> list[SpendCounter]:
        question = f"select {_COLUMNS} from spending s where until > %s order by name"
        rows = await self._fetch(question, (since,))
        return [SpendCounter(**row) for row in rows]
