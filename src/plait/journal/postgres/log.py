"""The record of one run as it grows, in PostgreSQL.

Theory of operation. An append is one statement in one round trip: it locks the row of the run at the top, checks the
claim number, requires that the row before is there, and inserts. So no lock waits for a client, and the same statement
can be sent again after a lost answer: a claim number that still holds means that the rows stand. Rows that come while a
statement is under way go with the next one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from plait.background import DONE
from plait.core.errors import JournalError
from plait.journal import bodies, codec
from plait.journal.postgres.database import LOOP, READ_SECONDS, SLOWEST, WRITE_SECONDS, Connection, Database
from plait.journal.postgres.leases import Claim, LeaseKeeper, TakenOver
from plait.journal.row_codec import RowColumns, RowWriter, crc_of_state
from plait.journal.store import LateResult, RecordAndBody, settle_all

FENCE = "select n from runs where n = %(root)s and claim = %(claim)s for share"
INSERT_ROWS = """insert into events (run, seq, at, kind, data, base, head, tail, packed, body, crc, claim)
    select {run}, u.*, %(claim)s from {source}, unnest(%(rows_seq)s::int[], %(rows_at)s::float8[],
      %(rows_kind)s::text[], %(rows_data)s::text[], %(rows_base)s::int[], %(rows_head)s::int[], %(rows_tail)s::int[],
      %(rows_packed)s::int[], %(rows_body)s::bytea[], %(rows_crc)s::bigint[]) u on conflict (run, seq) do nothing"""
_COLUMNS = ("seq", "at", "kind", "data", "base", "head", "tail", "packed", "body", "crc")

ENDING = """status = %(status)s, outcome = %(outcome)s, totals = %(totals)s, rows = %(rows)s, updated = %(updated)s,
    crc = %(crc)s, cost = %(cost)s, words = %(words)s, is_tainted = %(is_tainted)s, has_doubts = %(has_doubts)s,
    owner = '', lease_until = null, cancel = ''"""
_APPEND = f"""with fence as materialized ({FENCE}),
  before as materialized (select 1 from fence where %(first)s = 0
    or exists (select 1 from events where run = %(run)s and seq = %(first)s - 1)),
  written as ({INSERT_ROWS.format(run="%(run)s", source="before")}){{end}}
  select (select count(*) from fence), (select count(*) from before)"""
APPEND = _APPEND.format(end="")
END = _APPEND.format(
    end=f""", ended as (update runs set {ENDING} where n = %(run)s and exists (select 1 from before)),
    left_queue as (delete from queue where run = %(run)s and %(status)s <> 'waiting'
      and exists (select 1 from before))"""
)
HAND_BACK = (
    _APPEND.format(
        end=""", ended as (update runs set status = 'queued', owner = '', lease_until = null, updated = %(updated)s,
      totals = '{}', crc = %(crc)s where n = %(run)s and exists (select 1 from before)),
    calmed as (update queue set tries = 0, reason = '' where run = %(run)s and exists (select 1 from before)),
    told as (select pg_notify(current_schema() || '_queue', ''))"""
    )
    + ", (select count(*) from told)"
)  # what nothing refers to is not done
_LATE = """insert into late_results (run, key, claim, kind, data, body)
  select %(run)s, u.* from unnest(%(keys)s::text[], %(claims)s::bigint[], %(kinds)s::text[], %(datas)s::text[],
    %(bodies)s::bytea[]) u (key, claim, kind, data, body)
  where not exists (select 1 from late_results l where l.run = %(run)s and l.key = u.key and l.claim = u.claim)"""
_FIND_LATE = """select kind, data, body from late_results where run = %(run)s and key = %(key)s and claim =
    (select max(claim) from events where run = %(run)s and kind = 'effect'
      and substring(data from '"key": ?"([^"]*)"') = %(key)s) order by kind limit 1"""
"""What the last process that began the call wrote: the word of an earlier one says nothing of a call that was made
again. Functions for JSON would refuse texts with U+0000."""


def columns_of(rows: list[RowColumns]) -> dict[str, Any]:
    """Return rows as the parameters of `INSERT_ROWS`."""
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    return {f"rows_{name}": list(values) for name, values in zip(_COLUMNS, columns, strict=True)}


class _Asked(NamedTuple):
    """Rows up to which to write, with the run's ending if it ends."""

    ending: dict[str, Any] | None
    future: asyncio.Future[None]


class PostgresLog:
    """A `RunLog` in a database. When an append fails, its records wait in line, and the next append writes them
    first: a run's rows have no gap."""

    def __init__(
        self,
        database: Database,
        leases: LeaseKeeper,
        claim: Claim,
        run: str,
        n: int,
        rows: RowWriter,
        clock: Callable[[], float],
        question: str,
    ) -> None:
        self.run = run
        self.scrub = rows.scrub
        self.claim = claim
        self.has_ended = False
        """`end` was called and the run's row says so."""
        self._database, self._leases, self._n, self._rows, self._clock = database, leases, n, rows, clock
        self._question = question
        self._next = rows.seq
        """The place of the first row in line: `rows` is ahead of the line while it makes some."""
        self._line: list[RowColumns] = []
        self._asked: list[_Asked] = []
        self._is_writing = False
        self._pid = os.getpid()

    # -- on the loop of the run

    def append(self, *records: RecordAndBody, durable: bool = False) -> Awaitable[None]:
        self.buffer(*records, durable=durable)
        return self._write(None) if self._line or self._is_writing or self._asked else DONE

    def buffer(self, *records: RecordAndBody, durable: bool = False) -> None:
        if self.has_ended:
            raise JournalError(f"Run {self.run} has ended: nothing more can be put on its record.")
        self._line.extend(self._rows.make_rows(records, durable=durable))

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        if self.has_ended:
            raise JournalError(f"Run {self.run} has ended already.")
        made = self._rows.make_ending(status, outcome, totals)
        ending = describe_ending(self._question, status, totals, *made, self._clock())
        self.has_ended = True
        return self._write(ending)

    def _write(self, ending: dict[str, Any] | None) -> Awaitable[None]:
        if self._pid != os.getpid():
            hint = "Start or resume the run in this process."
            raise JournalError(f"Run {self.run} was begun by the process that started this one.", hint=hint)
        asked = _Asked(ending, asyncio.get_running_loop().create_future())
        LOOP.start().call_soon_threadsafe(self._take, asked)
        return asked.future

    async def confirm(self, key: str) -> None:
        until = asyncio.get_running_loop().time() + self._database.patience
        while not self.claim.is_sure():
            if self.claim.is_lost or asyncio.get_running_loop().time() > until:
                await self._keep_late([(key, "unstarted", None, None)])
                if self.claim.is_lost:
                    raise self._taken_over()
                hint = f"`plait resume {self.run}` goes on with it."
                raise JournalError(f"Run {self.run} could not renew its claim in {self._database.place}.", hint=hint)
            await asyncio.sleep(0.02)

    @property
    def is_queued(self) -> bool:
        return self.claim.is_taken and self.claim.root == self._n

    @property
    def wants_back(self) -> bool:
        return self.claim.is_taken and self._leases.wants_back

    def hand_back(self) -> Awaitable[None]:
        if self.claim.root != self._n:  # a child run goes on with the run at the top
            return self.append()
        self.has_ended = True
        crc = crc_of_state(self._rows.begun, "queued", "", None, None, "{}")
        return self._write({"updated": self._clock(), "crc": crc, "handed_back": True})

    def on_cancel(self, cancel: Callable[[str], None]) -> None:
        if self.claim.root == self._n:  # a child run is cancelled with the run at the top
            self.claim.cancel = cancel

    async def find_late(self, key: str) -> LateResult | None:
        asked = {"run": self._n, "key": key}
        for kind, data, body in await self._database.execute(_FIND_LATE, asked, seconds=READ_SECONDS):
            return LateResult(codec.decode_record(data), body) if kind == "result" else LateResult()
        return None

    # -- on the loop of the database

    def _take(self, asked: _Asked) -> None:
        self._asked.append(asked)
        if not self._is_writing:
            self._is_writing = True
            self._writing = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, []
                ending = next((each.ending for each in asked if each.ending is not None), None)
                rows = self._line[:]
                error: BaseException | None = None
                try:
                    await self._send(rows, ending)
                    del self._line[: len(rows)]
                    self._next += len(rows)
                except BaseException as why:
                    error = why
                    if ending is not None:
                        self.has_ended = False
                for each in asked:
                    with suppress(RuntimeError):  # its loop has ended
                        each.future.get_loop().call_soon_threadsafe(settle_all, [(each.future, None, error)])
        finally:
            self._is_writing = False

    async def _send(self, rows: list[RowColumns], ending: dict[str, Any] | None) -> None:
        if self.claim.is_lost:
            await self._fail_taken_over(rows)
        values = {"root": self.claim.root, "claim": self.claim.number, "run": self._n, "first": self._next}
        values |= columns_of(rows) | (ending or {})
        statement = APPEND if ending is None else HAND_BACK if "handed_back" in ending else END

        async def work(connection: Connection) -> tuple[Any, ...] | None:
            return await (await connection.execute(statement, values)).fetchone()

        size = sum(len(body) for *_, body, _ in rows if body)
        holds, follows, *_ = await self._database.do_here(work, WRITE_SECONDS + size / SLOWEST) or (0, 0)
        if not holds:
            self.claim.is_lost = True
            await self._fail_taken_over(rows)
        if not follows:
            marks = {"restored": repr(self._database.now())}
            await self._database.do_here(lambda connection: self._database.mark(connection, marks), WRITE_SECONDS)
            raise JournalError(
                f"The journal {self._database.place} has lost rows of run {self.run} that it had confirmed.",
                hint="It came back from a backup, or failed over without a synchronous standby. Resumed runs need "
                "approval for calls with effects from now on.",
            )
        if ending is not None and self.claim.root == self._n:
            self._leases.let_go(self.claim)

    async def _fail_taken_over(self, rows: list[RowColumns]) -> None:
        """Keep the results of what this process did, for the process that goes on. Raises `TakenOver`."""
        late: list[tuple[str, str, str | None, bytes | None]] = []
        for _, _, kind, data, _, head, tail, packed, body, _ in rows:
            if kind == "result":
                whole = bodies.decode(bodies.Coded(head, tail, packed, body)) if body is not None else None
                late.append((codec.decode_record(data).key, kind, data, whole))
        await self._keep_late(late)
        self._line.clear()
        raise self._taken_over()

    async def _keep_late(self, results: list[tuple[str, str, str | None, bytes | None]]) -> None:
        if results:
            keys, kinds, datas, parts = (list(column) for column in zip(*results, strict=True))
            values = {"run": self._n, "keys": keys, "kinds": kinds, "datas": datas, "bodies": parts}
            values["claims"] = [self.claim.number] * len(keys)
            await self._database.execute(_LATE, values, seconds=READ_SECONDS)

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"Run {self.run} was taken over by another process, because this one had not renewed its claim in time.",
            hint=f"It goes on there: `plait show {self.run}`.",
        )


def describe_ending(
    question: str, status: str, totals: dict[str, Any], said: str, sums: str, rows: int, crc: int, at: float
) -> dict[str, Any]:
    """Return the columns that end a run. `said` and `sums` are the JSON of its outcome and totals."""
    guards, tree = totals.get("guards") or {}, totals.get("tree")
    return {
        "status": status,
        "outcome": said,
        "totals": sums,
        "rows": rows,
        "updated": at,
        "crc": crc,
        "cost": (tree if isinstance(tree, dict) else totals).get("cost_usd"),
        "words": words_of(question, codec.decode_plain(said)),
        "is_tainted": bool(guards.get("taint")),
        "has_doubts": bool(guards.get("approvals")),
    }


def words_of(question: str, outcome: dict[str, Any] | None) -> str:
    """Return the text in which a filter looks for words: the question and the answer, or the reason."""
    said = outcome or {}
    found = said.get("answer") if said.get("answer") is not None else said.get("reason")
    text = found if isinstance(found, str) else codec.encode(found).decode() if found is not None else ""
    return clean_text(f"{question} {text}".casefold())


def clean_text(text: str) -> str:
    """Return a text as PostgreSQL can hold it: without U+0000 and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def clean_value(value: Any) -> Any:
    """Return a text, or the texts in a list, as PostgreSQL can hold them."""
    if isinstance(value, list):
        return [clean_value(each) for each in value]
    return clean_text(value) if isinstance(value, str) else value
