"""The queue: runs that were submitted, and which of them a worker may take.

Theory of operation. A run that was submitted has a row in `queue` until it has ended. Workers take them with
`for update skip locked`, so that no two take the same and none waits for another. A worker that died is known by the
end of its lease: its runs are taken again, and continued. Where a limit holds over all workers, they take one after
another, behind a lock on the row of their queue; what goes on is counted, so no counter can be wrong after a crash.

The turns of a session begin in their order. One that waits for its user blocks the later ones until it is answered or
cancelled. That is the state of rows: no lock is held while a run goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import structs

from plait.core.errors import RunExists
from plait.core.secrets import Scrubber
from plait.journal import codec, redaction
from plait.journal.owner import new_run_id
from plait.journal.postgres import queries
from plait.journal.postgres.begin import SUBMIT, describe
from plait.journal.postgres.database import READ_SECONDS, WRITE_SECONDS, Connection, Database
from plait.journal.postgres.leases import Claim, LeaseKeeper, boot_time
from plait.journal.postgres.log import PostgresLog, clean_text, clean_value, columns_of
from plait.journal.queue import ANY_NUMBER, QueuedRun, QueueLimits
from plait.journal.records import RunHead, RunRow
from plait.journal.row_codec import crc_of_state, scrub_contents
from plait.journal.schedules import Schedule, next_time
from plait.journal.store import seconds_of_user

_EARLIER = """from runs e where r.session <> '' and e.session = r.session and e.parent = '' and e.caller = ''
  and e.n < r.n and e.status in ('queued', 'running', 'waiting')"""
"""The turns of its session for which a run waits."""
_MAY_BEGIN = f"""q.name = %(queue)s and q.agent = any (%(agents)s) and q.not_before <= clock_timestamp()
    and r.status in ('queued', 'running') and coalesce(r.lease_until < clock_timestamp(), true)
    and q.blocked_by <> all (%(versions)s) and q.tries < 10
    and not exists (select 1 {_EARLIER})"""
_ORDER = "q.priority desc, q.not_before, q.run"
_FREE = f"""select r.n from queue q join runs r on r.n = q.run where {_MAY_BEGIN} order by {_ORDER} limit %(count)s
  for no key update of r skip locked"""
_GOING = """select r.for_user, count(*) as going from queue q join runs r on r.n = q.run
    where q.name = %(queue)s and r.lease_until >= clock_timestamp() group by 1"""
_WITHIN = f"""select n from runs where n in (select n from (
    select r.n, r.for_user, q.priority, q.not_before,
      coalesce(u.going, 0) + row_number() over (partition by r.for_user order by {_ORDER}) as of_user
    from queue q join runs r on r.n = q.run left join ({_GOING}) u on u.for_user = r.for_user where {_MAY_BEGIN}) c
  where (%(of_user)s::bigint is null or c.for_user = '' or c.of_user <= %(of_user)s)
    order by priority desc, not_before, n
    limit greatest(0, least(%(count)s::bigint, coalesce(%(runs)s::bigint, 1 << 30)
      - (select coalesce(sum(going), 0) from ({_GOING}) g)))) for no key update skip locked"""
_TAKE = """with c as materialized ({chosen}),
  tried as (update queue set tries = tries + 1 where run in (select n from c))
  update runs r set owner = %(owner)s, claim = r.claim + 1, lease_until = clock_timestamp() + %(lease)s * interval '1 s'
  from c where r.n = c.n returning r.n, r.claim"""
_BLOCK = """with freed as (update runs set owner = '', lease_until = case when %(version)s = '' then lease_until end
    where n = %(n)s and claim = %(claim)s returning n)
  update queue set blocked_by = coalesce(nullif(%(version)s, ''), blocked_by), reason = %(reason)s
    from freed where run = freed.n"""
"""Lets go of a run that a version of its agent cannot perform; for "", when its lease has ended."""
_SHOW = """with shown as (update live_texts l set data = u.data
    from unnest(%(runs)s::text[], %(texts)s::text[]) u (id, data) join runs r on r.id = u.id
    where l.run = r.n and l.watched_until >= clock_timestamp() returning 1),
  c as (select count(*) as number from shown)
  select number, case when number > 0 then pg_notify(current_schema() || '_texts', '')::text else '' end from c"""
_WATCH = """with old as (delete from live_texts where watched_until < clock_timestamp() - interval '1 min'),
  watched as (insert into live_texts as l (run, watched_until)
    select n, clock_timestamp() + interval '10 s' from runs where id = any (%(runs)s::text[])
    on conflict (run) do update set watched_until = excluded.watched_until
      where l.watched_until < clock_timestamp() + interval '5 s')
  select r.id, l.data from live_texts l join runs r on r.n = l.run where r.id = any (%(runs)s::text[])"""
"""Lets the texts of runs be shown for some seconds more, and returns them."""
_CANCEL = """with asked as (update runs set cancel = %(reason)s where n = %(n)s and status = 'running'
    and lease_until >= clock_timestamp() returning n)
  select pg_notify(current_schema() || '_cancel', '') from asked"""
_LIST = f"""select r.id, q.name, q.agent, case when r.lease_until >= clock_timestamp() then 'running'
    when r.status = 'running' then 'interrupted' else r.status end, q.priority,
    extract(epoch from q.not_before)::float8, q.tries,
    case when q.reason <> '' then q.reason
      when q.tries >= 10 then 'ten processes that performed it have died'
      when r.status = 'queued' then coalesce((select 'waits for the turn before, run ' || e.id || ' (' || e.status
        || ')' {_EARLIER} order by e.n limit 1), '') else '' end
  from queue q join runs r on r.n = q.run where (%s::text is null or q.name = %s) and (%s::text is null or r.id = %s)
  order by q.name, q.priority desc, q.not_before, q.run"""
_COUNT = """with found as (select coalesce(q.name, '') as queue,
    case when r.lease_until >= now() then 'running' when r.status = 'waiting' then 'waiting'
      when q.blocked_by <> '' or q.tries >= 10 then 'blocked' when r.status = 'running' then 'interrupted'
      when q.not_before > now() then 'delayed' when r.session <> ''
        and r.n > min(r.n) filter (where r.parent = '' and r.caller = '') over (partition by r.session) then 'turn'
      else 'ready' end as state,
    case when r.lease_until >= now() then r.lease_until - %s * interval '1 s'
      else coalesce(r.lease_until, greatest(q.not_before, to_timestamp(r.updated))) end as since
    from runs r left join queue q on q.run = r.n
    where r.status in ('queued', 'running', 'waiting') and r.root is null)
  select queue, state, count(*), greatest(0, max(extract(epoch from now() - since)))::float8
    from found group by 1, 2"""
"""One look at all of them: a look for the earlier turns of each takes seconds with 100,000."""


class PostgresQueue(queries.PostgresIndex):
    """The part of a store in PostgreSQL that is its queue."""

    def __init__(self, address: str, *, patience: float | None = None, lease: float | None = None) -> None:
        self._database = Database(address, patience)
        seconds = max(1.0, seconds_of_user("PLAIT_LEASE_SECONDS", 20.0)) if lease is None else lease
        self._leases = LeaseKeeper(self._database.conninfo, seconds, f"{self._database.schema}_cancel")
        self._clock: Callable[[], float] = self._database.now
        self._going: weakref.WeakValueDictionary[str, PostgresLog] = weakref.WeakValueDictionary()
        """The logs of this process by run: one that was left behind here may be claimed here."""
        self._taken: dict[str, Claim] = {}
        """The claims to runs that were taken from a queue and have not begun."""

    async def submit(
        self,
        head: RunHead,
        *,
        queue: str = "default",
        priority: int = 0,
        at: float | None = None,
        secrets: Iterable[str] = (),
        contents: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        scrubber = redaction.scrubber(secrets)
        stored = scrub_contents(head, contents, scrubber)
        values = self._describe_queued(head, scrubber, queue, priority, at)
        values |= {"digests": list(stored), "contents": list(stored.values())}
        tries = 0

        async def work(connection: Connection) -> None:
            nonlocal tries
            tries += 1
            if await (await connection.execute(SUBMIT, values)).fetchone() is None and tries == 1:
                raise RunExists(head.run, self.place)

        await self._database.do(work, seconds=WRITE_SECONDS)

    def _describe_queued(
        self, head: RunHead, scrubber: Scrubber, queue: str, priority: int, at: float | None
    ) -> dict[str, Any]:
        """Return the values of `SUBMIT` for a run without files."""
        begun, values = describe(head, scrubber)
        values |= columns_of([]) | {"queue": queue, "priority": priority, "at": at, "started": self._clock()}
        values |= {"owner": "", "root": None, "claim": 0, "digests": [], "contents": []}
        return values | {"state": crc_of_state(begun.crc, "queued", "", None, None, "{}")}

    async def add_schedule(
        self, head: RunHead, every: str, zone: str, *, queue: str = "default", priority: int = 0
    ) -> None:
        text = redaction.scrubber(())(codec.encode(head)).decode()
        values = (head.run, text, queue, priority, every, zone, next_time(every, zone, self._clock()))
        await self._database.execute(
            "insert into schedules values (%s, %s, %s, %s, %s, %s, %s) on conflict do nothing", values
        )

    async def list_schedules(self) -> list[Schedule]:
        question = "select name, head, queue, every, zone, next from schedules order by next"
        found = await self._fetch(question)
        heads = [codec.decode_head(each.pop("head")) for each in found]
        return [
            Schedule(agent=head.agent, question=head.question, **each) for head, each in zip(heads, found, strict=True)
        ]

    async def remove_schedule(self, name: str) -> None:
        await self._database.execute("delete from schedules where name = %s", (clean_text(name),))

    async def start_due(self) -> int:
        async def work(connection: Connection) -> int:
            now = self._clock()
            async with connection.transaction():
                question = "select * from schedules where next <= %s order by next limit 20 for update skip locked"
                due = await queries.fetch(connection, question, (now,))
                for each in due:
                    head = codec.decode_head(each["head"])
                    head = structs.replace(head, run=new_run_id(), label=head.label or f"every:{each['name']}")
                    values = self._describe_queued(
                        head, redaction.scrubber(()), each["queue"], each["priority"], each["next"]
                    )
                    await connection.execute(SUBMIT, values)
                    after = (next_time(each["every"], each["zone"], now), each["name"])
                    await connection.execute("update schedules set next = %s where name = %s", after)
                return len(due)

        return await self._database.do(work, seconds=WRITE_SECONDS)

    async def take(
        self, queue_name: str, agents: Mapping[str, str], owner: str, count: int, limits: QueueLimits = ANY_NUMBER
    ) -> list[RunRow]:
        began, seconds = boot_time(), self._leases.seconds

        values: dict[str, Any] = {"queue": queue_name, "agents": list(agents), "owner": owner, "lease": seconds}
        values |= {"versions": [each for each in agents.values() if each], "count": count}
        values |= {"runs": limits.runs, "of_user": limits.of_user}

        async def claim_some(connection: Connection) -> dict[int, int]:
            if limits == ANY_NUMBER:
                return dict(await (await connection.execute(_TAKE.format(chosen=_FREE), values)).fetchall())
            async with connection.transaction():
                await connection.execute("insert into queue_gates values (%s) on conflict do nothing", (queue_name,))
                await connection.execute("select 1 from queue_gates where name = %s for update", (queue_name,))
                return dict(await (await connection.execute(_TAKE.format(chosen=_WITHIN), values)).fetchall())

        async def work(connection: Connection) -> list[dict[str, Any]]:
            claims = await claim_some(connection)
            found = await queries.fetch(
                connection, f"select {queries.RUN} {queries.FROM} where r.n = any (%s) order by r.n", [list(claims)]
            )
            for each in found:
                claim = Claim(each["n"], claims[each["n"]], began, seconds, is_taken=True)
                self._taken[each["id"]] = self._leases.keep(claim)
            return found

        return [queries.read_run(each) for each in await self._database.do(work, seconds=WRITE_SECONDS)]

    async def block(self, run: str, version: str, reason: str) -> None:
        held = self._taken.pop(run, None) or ((log := self._going.get(run)) and log.claim)
        if held:
            self._leases.let_go(held)
            values = {"n": held.root, "claim": held.number, "version": version, "reason": clean_value(reason)}
            await self._database.execute(_BLOCK, values)

    async def unblock(self, run: str) -> None:
        n = (await self._find(run))["n"]
        await self._database.execute("update queue set blocked_by = '', reason = '', tries = 0 where run = %s", (n,))
        await self._database.execute("select pg_notify(current_schema() || '_queue', '')")

    async def ask_to_cancel(self, run: str, reason: str) -> bool:
        values = {"n": (await self._find(run))["n"], "reason": clean_text(reason) or "Cancelled."}
        return bool(await self._database.execute(_CANCEL, values))

    def call_back(self, wanted: bool = True) -> None:
        self._leases.wants_back = wanted

    async def list_queue(self, queue_name: str | None = None, run: str | None = None) -> list[QueuedRun]:
        found = await self._database.execute(_LIST, (queue_name, queue_name, run, run), seconds=READ_SECONDS)
        return [QueuedRun(*each) for each in found]

    async def count_queue(self) -> list[tuple[str, str, int, float]]:
        found: list[Any] = await self._database.execute(_COUNT, (self._leases.seconds,), seconds=3, retry=False)
        return found

    async def wait_for_work(self, queue_name: str, seconds: float) -> None:
        await self._database.wait_for("queue", seconds)

    async def show_texts(self, texts: Mapping[str, str]) -> int:
        logs = [(self._going.get(run), text) for run, text in texts.items()]
        shown = {log.run: clean_text(log.scrub(text.encode()).decode()) for log, text in logs if log is not None}
        values = {"runs": list(shown), "texts": list(shown.values())}
        ((count, _),) = await self._database.execute(_SHOW, values, retry=False)
        return int(count)

    async def watch_texts(self, runs: Iterable[str]) -> dict[str, str]:
        found: list[Any] = await self._database.execute(_WATCH, {"runs": list(runs)}, retry=False)
        return dict(found)

    async def wait_for_texts(self, seconds: float) -> None:
        await self._database.wait_for("texts", seconds)
