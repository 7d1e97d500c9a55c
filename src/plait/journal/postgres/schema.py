"""The tables of a journal in PostgreSQL, and the numbered steps from each version of them to the next.

The columns mean what they mean in a file (`journal/sqlite/schema.py`). `words`, `models`, `tags`, `cost`, `is_tainted`
and `has_doubts` repeat what the JSON of a run says, so that filters need not read it. The JSON lies apart from the row,
so that a filter without an index reads little. `cancel` is the reason for which somebody asks the process that
performs the run to cancel it. `live_texts` has what models write just now, for those who watch: it is no record."""

from __future__ import annotations

VERSION = 13
"""The schema's version, counted with that of files."""

READER = 12
"""The oldest version of Plait's schema that can use a database of this one: newer columns do not disturb it."""

TABLES = """
create table marks (name text primary key, value text not null);
create table runs (
    n bigint generated always as identity primary key,
    id text collate "C" not null unique,
    question text not null, loop text not null, parent text not null, fork_at integer not null, head text not null,
    session text not null, label text collate "C" not null, caller text not null, for_user text not null,
    agent text not null, tags text[] not null, models text[] not null, words text not null,
    status text not null, started double precision not null, updated double precision not null, rows integer,
    outcome text, totals text not null default '{}', cost double precision, is_tainted boolean not null default false,
    has_doubts boolean not null default false, crc bigint not null,
    owner text not null, root bigint, claim bigint not null default 1, lease_until timestamptz,
    cancel text not null default ''
) with (fillfactor = 85, toast_tuple_target = 128);
alter table runs alter column words set storage main, alter column tags set storage main,
  alter column models set storage main;
alter table runs alter column head set storage external;
create index runs_of_session on runs (session, n) where session <> '';
create index runs_of_label on runs (label) where label <> '';
create index runs_of_caller on runs (caller) where caller <> '';
create index runs_of_parent on runs (parent) where parent <> '';
create index runs_of_user on runs (for_user, n) where for_user <> '';
create index runs_of_agent on runs (agent, n) where agent <> '';
create index runs_that_are_open on runs (n) where outcome is null or has_doubts;
create index runs_by_status on runs (status, n) where status <> 'answered';
create index runs_that_are_tainted on runs (n) where is_tainted;
create index runs_by_cost on runs (cost) where cost is not null;
create index runs_of_tags_and_models on runs using gin (tags, models);
create table events (
    run bigint not null, seq integer not null, at double precision not null, kind text not null, data text not null,
    base integer, head integer, tail integer, packed integer, body bytea, crc bigint not null, claim bigint not null,
    primary key (run, seq)
);
alter table events alter column body set storage external;
create table late_results (
    id bigint generated always as identity primary key, run bigint not null, key text not null, claim bigint not null,
    kind text not null, data text, body bytea, at timestamptz not null default clock_timestamp()
);
create index late_results_of_run on late_results (run);
create table queue (
    run bigint primary key, name text not null, priority integer not null, not_before timestamptz not null,
    agent text not null, tries integer not null default 0, blocked_by text not null default '',
    reason text not null default ''
);
create index queue_in_order on queue (name, priority desc, not_before, run);
create table queue_gates (name text primary key);
create table schedules (
    name text primary key, head text not null, queue text not null, priority integer not null, every text not null,
    zone text not null, next double precision not null
);
create index schedules_by_time on schedules (next);
create unlogged table live_texts (
    run bigint primary key, watched_until timestamptz not null, data text not null default ''
);
create table kept (
    id bigint generated always as identity, kind text not null, key text not null, run text not null,
    at double precision not null, data text not null, primary key (kind, key)
);
create table contents (digest text primary key, body bytea not null);
"""

SPENDING = """
create table spending (
    name text collate "C" primary key, until double precision not null,
    most_usd bigint, most_tokens bigint, most_runs bigint,
    usd bigint not null default 0, tokens bigint not null default 0, runs bigint not null default 0,
    held_usd bigint not null default 0, held_tokens bigint not null default 0,
    beyond_usd bigint not null default 0, beyond_tokens bigint not null default 0
) with (fillfactor = 50);
create table reservations (
    id text collate "C" not null, name text collate "C" not null, run text collate "C" not null, key text not null,
    usd bigint not null, tokens bigint not null, runs bigint not null, primary key (id, name)
);
create index reservations_of_run on reservations (run);
"""
TABLES += SPENDING

MIGRATIONS: dict[int, str] = {
    13: f"""alter table runs add column cancel text not null default '';
create unlogged table live_texts (
    run bigint primary key, watched_until timestamptz not null, data text not null default ''
);
{SPENDING}"""
}
"""What makes a schema of the version before into this one, by version."""
