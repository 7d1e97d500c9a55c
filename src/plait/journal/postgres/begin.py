"""How runs begin: the statements, and the columns of a run as PostgreSQL can hold them."""

from __future__ import annotations

from typing import Any

from plait.core.secrets import Scrubber
from plait.journal import codec
from plait.journal.postgres.log import FENCE, INSERT_ROWS, clean_value, words_of
from plait.journal.records import RunHead
from plait.journal.row_codec import BegunRun, describe_run

PUT = """, put as (insert into queue (run, name, priority, not_before, agent)
    select n, %(queue)s, %(priority)s, coalesce(to_timestamp(%(at)s), clock_timestamp()), %(agent)s from new),
  told as (select pg_notify(current_schema() || '_queue', ''), n from new) select n from told"""
"""Notifies, because its end refers to `told`: what nothing refers to is not done."""
"""Puts the run `new` in a queue."""

FILES_GATE = 7811888
"""The number of the lock that keeps files from being removed while a run begins with them."""
_FILES = f"""gate as materialized (select pg_advisory_xact_lock_shared({FILES_GATE})
    where cardinality(%(digests)s::text[]) > 0),
  files as (insert into contents select f.* from new, gate, unnest(%(digests)s::text[], %(contents)s::bytea[]) f
    on conflict do nothing)"""
_BEGUN = (*BegunRun._fields[:9], "for_user", *BegunRun._fields[10:])
"""The columns of a run that never change: `user` is a word of SQL."""
_BEGIN = f"""{{fence}} new as (insert into runs ({", ".join(_BEGUN)}, models, words, status, started, updated, crc,
    owner, root, claim, lease_until) select {", ".join(f"%({each})s" for each in _BEGUN)}, %(models)s, %(words)s,
    'running', %(started)s, %(started)s, %(state)s, %(owner)s, %(root)s, %(claim)s, {{lease}}
    on conflict (id) do nothing returning n),
  written as ({INSERT_ROWS.format(run="new.n", source="new")}),
  {_FILES}
  select n from new"""
LEASE = "clock_timestamp() + %(lease)s * interval '1 s'"
BEGIN = _BEGIN.format(fence="with", lease=LEASE)
BEGIN_CHILD = _BEGIN.format(fence=f"with fence as materialized ({FENCE}),", lease="null from fence")
START = f"""with fence as materialized (select n from runs where n = %(root)s and claim = %(claim)s for no key update),
  new as (update runs set ({", ".join(_BEGUN)}, models, words, status, started, updated, crc, owner, lease_until) =
    ({", ".join(f"%({each})s" for each in _BEGUN)}, %(models)s, %(words)s, 'running', %(started)s, %(started)s,
    %(state)s, %(owner)s, {LEASE}) where n in (select n from fence) returning n),
  written as ({INSERT_ROWS.format(run="new.n", source="new")}),
  {_FILES}
  select n from new"""
"""Begins a run that was taken from a queue."""
SUBMIT = (
    _BEGIN.format(fence="with", lease="null").replace("'running'", "'queued'").replace("\n  select n from new", PUT)
)


def describe(head: RunHead, scrubber: Scrubber) -> tuple[BegunRun, dict[str, Any]]:
    """Return the columns of a run that begins as PostgreSQL can hold them, and the values of `BEGIN` that they give."""
    described = describe_run(head, scrubber)._asdict()
    begun = BegunRun(**{name: clean_value(value) for name, value in described.items()})
    specs = [str(model.get("spec", "")) for model in head.models.values()]
    models = codec.decode_plain(scrubber(codec.encode(specs)).decode())
    values = dict(zip(_BEGUN, begun, strict=True))
    values |= {"tags": codec.decode_plain(begun.tags), "models": sorted(set(models))}
    return begun, values | {"words": words_of(begun.question, None)}
