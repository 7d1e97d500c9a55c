"""The queue: runs that were submitted, and which of them a worker may take.

Theory of operation. A run that was submitted has a row in `queue` until it has ended. Workers take them with
`for update skip locked`, so that no two take the same and none waits for another. A worker that died is known by the
end of its lease: its runs are taken again, and continued. Where a limit holds over all workers, they take one after
another, behind a lock on the row of their queue; what goes on is counted, so no counter can be wrong after a crash.

The turns of a session begin in their order. One that waits for its user blocks the later ones until it is answered or
cancelled. That is the state of rows: no lock is held while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.journal.postgres import queries
from plait.journal.postgres.database import Connection
from plait.journal.store import QueuedRun, QueueLimits

PUT = """, put as (insert into queue (run, name, priority, not_before, agent)
    select n, %(queue)s, %(priority)s, coalesce(to_timestamp(%(at)s), clock_timestamp()), %(agent)s from new),
  told as (select pg_notify(current_schema() || '_queue', ''), n from new) select n from told"""
"""Notifies, because its end refers to `told`: what nothing refers to is not done."""
"""Puts the run `new` in a queue."""

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


async def take(
    connection: Connection,
    queue: str,
    agents: Mapping[str, str],
    owner: str,
    count: int,
    lease: float,
    limits: QueueLimits,
) -> dict[int, int]:
    """Claim up to `count` runs. Returns the numbers of the claims by those of the runs."""
    values: dict[str, Any] = {"queue": queue, "agents": list(agents), "versions": [v for v in agents.values() if v]}
    values |= {"owner": owner, "count": count, "lease": lease, "runs": limits.runs, "of_user": limits.of_user}
    if limits == QueueLimits():
        return dict(await (await connection.execute(_TAKE.format(chosen=_FREE), values)).fetchall())
    async with connection.transaction():
        await connection.execute("insert into queue_gates values (%s) on conflict do nothing", (queue,))
        await connection.execute("select 1 from queue_gates where name = %s for update", (queue,))
        return dict(await (await connection.execute(_TAKE.format(chosen=_WITHIN), values)).fetchall())


async def block(connection: Connection, run: int, claim: int, version: str, reason: str) -> None:
    """Let go of a run that a version of its agent cannot perform; for "", when its lease has ended."""
    values = {"n": run, "claim": claim, "version": version, "reason": queries.clean_value(reason)}
    await connection.execute(
        """with freed as (update runs set owner = '', lease_until = case when %(version)s = '' then lease_until end
          where n = %(n)s and claim = %(claim)s returning n)
        update queue set blocked_by = coalesce(nullif(%(version)s, ''), blocked_by), reason = %(reason)s
          from freed where run = freed.n""",
        values,
    )


async def unblock(connection: Connection, run: int) -> None:
    """Let every worker take a run again that could not be performed."""
    await connection.execute("update queue set blocked_by = '', reason = '', tries = 0 where run = %s", (run,))
    await connection.execute("select pg_notify(current_schema() || '_queue', '')")


async def list_queue(connection: Connection, queue: str | None) -> list[QueuedRun]:
    """Return the runs of a queue, or of all, in their order."""
    question = f"""select r.id, q.name, q.agent, case when r.lease_until >= clock_timestamp() then 'running'
          when r.status = 'running' then 'interrupted' else r.status end, q.priority,
          extract(epoch from q.not_before)::float8, q.tries,
          case when q.reason <> '' then q.reason
            when q.tries >= 10 then 'ten processes that performed it have died'
            when r.status = 'queued' then coalesce((select 'waits for the turn before, run ' || e.id || ' (' || e.status
              || ')' {_EARLIER} order by e.n limit 1), '') else '' end
        from queue q join runs r on r.n = q.run where %s::text is null or q.name = %s
        order by q.name, q.priority desc, q.not_before, q.run"""
    found = await (await connection.execute(question, (queue, queue))).fetchall()
    return [QueuedRun(*each) for each in found]
