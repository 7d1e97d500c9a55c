"""The journal in a PostgreSQL database, for any number of processes and machines.

What the tables look like stands in `schema.py` and docs/postgres.md; what a row means in `records.py`. A run is held by
a claim with a number and a lease (`leases.py`): nobody else can write to it, whatever became of its former holder.
Child runs belong to the claim of the run at the top."""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from psycopg import Rollback

from plait.core.errors import JournalError, RecordChanged, RunExists, UnknownRun
from plait.core.secrets import Scrubber
from plait.journal import codec, redaction
from plait.journal.claims import mark_lost, require_claimable, require_turn
from plait.journal.owner import owner_of_this_process
from plait.journal.postgres import queries, schema
from plait.journal.postgres.begin import BEGIN, BEGIN_CHILD, FILES_GATE, LEASE, START, describe
from plait.journal.postgres.database import READ_SECONDS, WRITE_SECONDS, Connection
from plait.journal.postgres.leases import Claim, boot_time, life_of_holder
from plait.journal.postgres.log import (
    ENDING,
    FENCE,
    INSERT_ROWS,
    PostgresLog,
    clean_text,
    clean_value,
    columns_of,
    describe_ending,
)
from plait.journal.postgres.queue import PostgresQueue
from plait.journal.postgres.spending import PostgresSpending
from plait.journal.records import LastTurn, Row, RunHead
from plait.journal.row_codec import (
    KEEP_AT_MOST,
    Bodies,
    RowReader,
    RowWriter,
    crc_of_state,
    damaged_rows,
    read_time,
    scrub_contents,
)
from plait.journal.schedules import next_time
from plait.journal.store import ACTIVE, ENDED, KEEP_REQUESTS, CarriedRun, RecordAndBody, StoreInfo

_CLAIM = """update runs set owner = %(owner)s, status = 'running', outcome = null, rows = null, updated = %(now)s,
  crc = %(crc)s"""
_ROWS = """select seq, at, kind, data, base, head, tail, packed, body, crc from events where run = %s and seq > %s
  order by seq limit %s"""
_ONE_TURN = "select pg_advisory_xact_lock(hashtextextended(current_schema() || %(session)s, 0))"
_LAST_TURN = """select id, updated,
    case when status = 'queued' or (status = 'running' and lease_until >= clock_timestamp())
  then status else '' end from runs where session <> '' and session = %(session)s and parent = ''
  order by n desc limit 1"""
_UNFINISHED = f"status not in ({', '.join(f'{each!r}' for each in sorted(ENDED))})"
_RESTORED = (
    "After this run was last written, the database came back from a backup, or another server took its place: what the "
    "run did last may not be on its record."
)
_LOCK = """select n from runs where id = any (%s) and not (%s and exists (select 1 from queue where run = n))
  order by n for update"""
_UNUSED = """select coalesce(max(n), 0), extract(epoch from clock_timestamp())::float8, array(
    select digest from contents except select each[1] from runs, regexp_matches(head, '[0-9a-f]{64}', 'g') each
    where strpos(head, '"digest"') > 0) from runs having exists (select 1 from contents)"""
"""The files that no run has, by one look at all heads, without a lock."""
_DELETE_UNUSED = """with new as materialized (select head from runs where n > %s or updated > %s)
  delete from contents where digest = any (%s) and not exists (select 1 from new where strpos(head, digest) > 0)"""
_HOLD_QUEUED = """update queue q set tries = 10, reason = 'It may have begun after the backup was made.' from runs r
  where r.n = q.run and r.status = 'queued' and q.not_before <= clock_timestamp()
    and not exists (select 1 from events e where e.run = r.n)"""
"""Those on record ask for approval instead."""
_FAMILIES = """with recursive family as (select n, id from runs where id = any (%s)
    union select r.n, r.id from runs r join family f on r.caller = f.id and r.caller <> '' and r.n > f.n)
  select n, id from family"""
"""Some runs, their child runs, and theirs."""
_PIECE = 200
"""Rows that are read at once when a run is read piece by piece."""


class PostgresStore(PostgresQueue, PostgresSpending):
    """A `Store` in a PostgreSQL database. Making one opens nothing; the tables are made by the first use.

    `address` is a connection string of libpq. `patience`: for how many seconds a database that is away is waited for,
    PLAIT_BUSY_SECONDS (30) by default. `lease`: seconds that a run is held without a renewal, PLAIT_LEASE_SECONDS (20)
    by default."""

    _shared: ClassVar[dict[tuple[str, int], PostgresStore]] = {}
    _of_process: ClassVar[weakref.WeakValueDictionary[tuple[str, int], PostgresLog]] = weakref.WeakValueDictionary()
    """The logs by run and claim number: the address of one database can be written in two ways."""

    @classmethod
    def at(cls, address: str) -> PostgresStore:
        """Return the process's one store at an address, which may be its `place`."""
        pid = os.getpid()
        if (found := cls._shared.get((address, pid))) is None:
            made = cls(address)
            found = cls._shared.setdefault((made.place, pid), made)
            cls._shared[address, pid] = found
        return found

    async def close(self) -> None:
        await self._database.close()

    # -- the record of a run

    async def begin(
        self,
        head: RunHead,
        owner: str,
        records: Sequence[RecordAndBody] = (),
        *,
        secrets: Iterable[str] = (),
        contents: Mapping[str, bytes] = MappingProxyType({}),
        after_turn: LastTurn | None = None,
    ) -> PostgresLog:
        scrubber = redaction.scrubber(secrets)
        stored = scrub_contents(head, contents, scrubber)
        parent = self._going.get(head.caller.run) if head.caller is not None else None
        above = parent.claim if parent is not None and not parent.has_ended else None
        taken = self._taken.pop(head.run, None)
        started = self._clock()
        begun, values = describe(head, scrubber)
        rows = RowWriter(scrubber, self._clock, begun.crc)
        values |= columns_of(rows.make_rows(records)) | {"started": started, "owner": owner}
        values |= {"lease": self._leases.seconds, "state": crc_of_state(begun.crc, "running", "", None, None, "{}")}
        held = above or taken
        values |= {"root": held.root if held else None, "claim": held.number if held else 1}
        values |= {"digests": list(stored), "contents": list(stored.values())}
        tries, began = 0, boot_time()

        async def work(connection: Connection) -> int:
            if after_turn is None or taken:  # the queue keeps the turns of a session in order
                return await write(connection)
            async with connection.transaction():
                its = {"session": clean_text(head.session)}  # as `list_turns` reads it, not as it is redacted
                await connection.execute(_ONE_TURN, its)
                run, updated, status = await (await connection.execute(_LAST_TURN, its)).fetchone() or ("", 0.0, "")
                if run != head.run:  # else an answer was lost
                    require_turn(head, after_turn, LastTurn(run, updated), status)
                return await write(connection)

        async def write(connection: Connection) -> int:
            nonlocal tries
            tries += 1
            statement = BEGIN_CHILD if above else START if taken else BEGIN
            found = await (await connection.execute(statement, values)).fetchone()
            if found is None and tries > 1:  # an answer was lost: it may be there already
                question = "select n from runs where id = %(id)s and owner = %(owner)s and crc = %(state)s"
                found = await (await connection.execute(question, values)).fetchone()
            if found is None:
                if held and await (await connection.execute(FENCE, values)).fetchone() is None:
                    whose = "its parent" if above else "it"
                    raise JournalError(f"Run {head.run} can't begin: another process has taken over {whose}.")
                raise RunExists(head.run, self.place)
            return int(found[0])

        n = await self._database.do(work, seconds=WRITE_SECONDS)
        claim = held or self._leases.keep(Claim(n, 1, began, self._leases.seconds))
        return self._watch(claim, begun.id, begun.question, n, rows)

    def _watch(self, claim: Claim, run: str, question: str, n: int, rows: RowWriter) -> PostgresLog:
        log = PostgresLog(self._database, self._leases, claim, run, n, rows, self._clock, question)
        self._going[run] = self._of_process[run, claim.number] = log
        return log

    async def claim(
        self,
        run: str,
        owner: str,
        *,
        force: bool = False,
        secrets: Iterable[str] = (),
        rows: int | None = None,
        records: Sequence[RecordAndBody] = (),
    ) -> PostgresLog:
        scrubber = redaction.scrubber(secrets)
        while (log := await self._try_claim(run, owner, force, scrubber, rows, records)) is None:
            pass
        return log

    async def _try_claim(
        self, run: str, owner: str, force: bool, scrubber: Scrubber, count: int | None, records: Sequence[RecordAndBody]
    ) -> PostgresLog | None:
        """Claim a run; None if it was claimed or written by another process between the look at it and the claim."""
        found = await self._find(run)
        is_taken = self._taken.pop(found["id"], None) is not None
        restored = Bodies()
        seq = 0
        async for _ in self._iter_rows(found, restored):  # they are whole
            seq += 1
        if count is not None and count != seq:
            hint = "Read it again, then go on with it."
            raise RecordChanged(f"Run {found['id']} was changed by another process.", hint=hint)
        row, going = queries.read_run(found), self._going.get(found["id"])
        if going is None and row.owner == owner_of_this_process():
            going = self._of_process.get((found["id"], found["claim"]))
        is_going = going is not None and not going.has_ended and not going.claim.is_lost
        above = self._leases.find(found["root"]) if found["root"] is not None else None
        if found["root"] is not None and above is None:
            parent = row.head.caller and row.head.caller.run
            hint = "Resume the run at the top, which continues with its child runs."
            raise JournalError(f"Run {found['id']} is a child of run {parent}.", hint=hint)
        is_free = above is not None or found["is_over"]  # the claim number keeps everybody else out
        require_claimable(row, "dead" if is_free and not is_going else life_of_holder(row.owner), is_going, force)
        n, begun, began = found["n"], queries.check_run(found, self.place), boot_time()
        number = above.number if above else found["claim"] + 1
        rows = RowWriter(scrubber, self._clock, begun, seq, restored.last)
        lease = self._leases.seconds
        values = {"n": n, "run": n, "owner": owner, "now": self._clock(), "claim": number, "lease": lease}
        values["crc"] = crc_of_state(begun, "running", "", None, None, found["totals"])
        fence = "select 1 from runs where n = %s and claim = %s" + (" for share" if above else " for no key update")
        hold = "" if above else f", claim = %(claim)s, lease_until = {LEASE}"
        hold += "" if above or is_taken else ", cancel = ''"  # whoever resumes it no longer wants it cancelled

        restored_at = float((await self._database.do(self._database.marks)).get("restored", 0))
        lost = _RESTORED if found["updated"] < restored_at else ""
        values.update(columns_of(rows.make_rows(mark_lost(records, lost))))
        tries = 0

        async def work(connection: Connection) -> bool:
            nonlocal tries
            tries += 1
            async with connection.transaction():
                # Two statements: the second one sees what was written by whoever held the lock before.
                root = (above.root, above.number) if above else (n, found["claim"])
                if await (await connection.execute(fence, root)).fetchone() is not None:
                    counted = await connection.execute("select count(*) from events where run = %s", (n,))
                    if await counted.fetchone() == (seq,):
                        await connection.execute(f"{_CLAIM}{hold} where n = %(n)s", values)
                        await connection.execute(INSERT_ROWS.format(run="%(run)s", source="(select 1) s"), values)
                        return True
                if tries == 1:
                    return False
                # An answer was lost: it may be there already.
                mine = "select 1 from runs where n = %(n)s and owner = %(owner)s and updated = %(now)s"
                return await (await connection.execute(mine, values)).fetchone() is not None

        if not await self._database.do(work, seconds=WRITE_SECONDS):
            return None
        claim = above or self._leases.keep(Claim(n, number, began, self._leases.seconds, is_taken=is_taken))
        return self._watch(claim, found["id"], found["question"], n, rows)

    async def read_rows(self, run: str, after: int = -1, *, until: int | None = None, bodies: bool = True) -> list[Row]:
        found = await self._find(run)
        if bodies:
            rows = [row async for row in self._iter_rows(found, Bodies(KEEP_AT_MOST), size=None)]
            return [row for row in rows if row.seq > after and (until is None or row.seq <= until)]
        question = "select seq, at, data from events where run = %s and seq > %s and seq <= %s order by seq"
        values = (found["n"], after, (1 << 31) - 1 if until is None else until)
        new = await self._fetch(question, values)
        return [Row(each["seq"], read_time(each["at"]), codec.decode_record(each["data"])) for each in new]

    async def iter_rows(self, run: str) -> AsyncGenerator[Row, None]:
        async for row in self._iter_rows(await self._find(run), Bodies()):
            yield row

    async def _iter_rows(
        self, found: dict[str, Any], restored: Bodies, size: int | None = _PIECE
    ) -> AsyncGenerator[Row, None]:
        """Yield the rows of a run, checked. No transaction stays open between two pieces."""
        reader, last = RowReader(queries.check_run(found, self.place), restored), -1
        while True:
            piece = await self._database.execute(_ROWS, (found["n"], last, size), seconds=READ_SECONDS)
            for columns in piece:
                last = columns[0]
                if (row := reader.read(columns)) is not None:
                    yield row
            if size is None or len(piece) < size:
                break
        # Rows that came since `found` was read do no harm: somebody went on with the run.
        if wrong := reader.end(found["rows"] if last < (found["rows"] or 0) else None):
            await self._find(found["id"])  # else it was deleted while it was read
            raise damaged_rows(self.place, found["id"], wrong)

    # -- the index of all runs

    async def delete(self, runs: Iterable[str], *, skip_active: bool = False) -> int:
        wanted = list(runs) if skip_active else [(await self._find(run))["id"] for run in runs]

        async def work(connection: Connection) -> int:
            async with connection.transaction():
                lock = _LOCK + " skip locked" * skip_active
                locked = [each["n"] for each in await queries.fetch(connection, lock, (wanted, skip_active))]
                # Read after that: nobody claims them any more.
                whole = f"select {queries.RUN} {queries.FROM} where r.n = any (%s)"
                rows = [queries.read_run(each) for each in await queries.fetch(connection, whole, [locked])]
                if skip_active:
                    rows = [row for row in rows if row.status not in ACTIVE]
                elif going := [row.head.run for row in rows if row.status == "running"]:
                    raise JournalError(f"Run {going[0]} is still going on.", hint="Stop it first, then delete it.")
                family = await queries.fetch(connection, _FAMILIES, [[row.head.run for row in rows]])
                numbers, ids = ([each[name] for each in family] for name in ("n", "id"))
                for table in ("events", "late_results", "queue", "live_texts"):
                    await connection.execute(f"delete from {table} where run = any (%s)", (numbers,))
                await connection.execute("delete from runs where n = any (%s)", (numbers,))
                await connection.execute("delete from kept where kind = 'rating' and key = any (%s)", (ids,))
                await connection.execute("delete from kept where kind = 'sent' and run = any (%s)", (ids,))
                await connection.execute("delete from reservations where run = any (%s)", (ids,))
            return len(rows)

        return await self._database.do(work)

    async def compact(self) -> None:
        async def work(connection: Connection) -> None:
            for last, at, unused in await (await connection.execute(_UNUSED)).fetchall():
                async with connection.transaction():
                    await connection.execute(f"select pg_advisory_xact_lock({FILES_GATE})")
                    await connection.execute(_DELETE_UNUSED, (last, at - 60, unused))
            old = self._clock() - KEEP_REQUESTS
            await connection.execute("delete from kept where kind = 'request' and at < %s", (old,))
            await connection.execute("vacuum (analyze) runs, events, late_results, kept, contents")

        await self._database.do(work, seconds=3600)

    async def add(self, runs: Sequence[CarriedRun]) -> bool:
        heads = [codec.decode_head(each.head) for each in runs]

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                for each, head in zip(runs, heads, strict=True):
                    question = "select started, updated from runs where id = %s"
                    found = await (await connection.execute(question, (head.run,))).fetchone()
                    if found == (each.started, each.updated):
                        continue
                    if found is not None:
                        raise Rollback
                    begun, values = describe(head, redaction.scrubber(()))
                    rows = RowWriter(redaction.scrubber(()), iter([at for at, *_ in each.rows]).__next__, begun.crc)
                    made = rows.make_rows((codec.decode_record(data), body) for _, data, body in each.rows)
                    made_ending = rows.make_ending(each.status, each.outcome, each.totals)
                    values |= columns_of(made)
                    values |= {"started": each.started, "owner": "", "lease": 0, "root": None, "claim": 1}
                    values |= {"digests": list(each.contents), "contents": list(each.contents.values())}
                    values["state"] = made_ending[-1]
                    (n,) = await (await connection.execute(BEGIN, values)).fetchone() or (0,)
                    ending = describe_ending(begun.question, each.status, each.totals, *made_ending, each.updated)
                    await connection.execute(f"update runs set {ENDING} where n = %(n)s", {**ending, "n": n})
                return True
            return False

        return await self._database.do(work, seconds=3600)

    # -- what is kept about runs

    async def keep(self, kind: str, key: str, run: str, data: bytes, *, replace: bool = True) -> None:
        values = tuple(clean_value(each) for each in (kind, key, run, self._clock(), data.decode()))
        changes = "update set run = excluded.run, at = excluded.at, data = excluded.data" if replace else "nothing"
        new = "insert into kept (kind, key, run, at, data) values (%s, %s, %s, %s, %s)"
        await self._database.execute(f"{new} on conflict (kind, key) do {changes}", values)

    async def forget(self, kind: str, keys: Iterable[str], *, labels: bool = False) -> None:
        wanted = [clean_text(key) for key in keys]
        await self._database.execute("delete from kept where kind = %s and key = any (%s)", (kind, wanted))
        if labels:
            await self._database.execute("update runs set label = '' where label <> '' and label = any (%s)", (wanted,))

    # -- the whole store

    async def is_holder_gone(self, owner: str) -> bool | None:
        return {"dead": True, "alive": False}.get(life_of_holder(owner))

    async def check(self) -> list[str]:
        wrong = []
        for each in await self._fetch("select id from runs order by n"):
            try:
                async for _ in self.iter_rows(each["id"]):
                    pass
            except UnknownRun:  # deleted meanwhile
                continue
            except JournalError as why:
                wrong.append(why.message)
        return wrong

    async def info(self) -> StoreInfo:
        async def work(connection: Connection) -> StoreInfo:
            sizes = (
                "pg_total_relation_size('runs') + pg_total_relation_size('events') + pg_total_relation_size('contents')"
            )
            question = f"select (select count(*) from runs), (select count(*) from events), {sizes}"
            runs, rows, size = await (await connection.execute(question)).fetchone() or (0, 0, 0)
            restored = float((await self._database.marks(connection)).get("restored", 0))
            return StoreInfo(self.place, schema.VERSION, runs, rows, size, restored)

        return await self._database.do(work)

    async def migrate(self) -> tuple[int, int]:
        return await self._database.migrate()

    async def mark_restored(self) -> int:
        async def work(connection: Connection) -> int:
            now = self._clock()
            async with connection.transaction():
                await self._database.mark(connection, {"restored": repr(now)})
                await connection.execute(_HOLD_QUEUED)
                for each in await queries.fetch(
                    connection, "select * from schedules where next <= %s for update", [now]
                ):
                    after = (next_time(each["every"], each["zone"], now), each["name"])
                    await connection.execute("update schedules set next = %s where name = %s", after)
                unfinished = f"select count(*) from runs where {_UNFINISHED}"
                (count,) = await (await connection.execute(unfinished)).fetchone() or (0,)
            return int(count)

        return await self._database.do(work)
