"""Reads of the index of runs in PostgreSQL: found, listed, and their conversations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import structs
from psycopg.rows import dict_row

from plait.core import Attachment
from plait.journal import codec, row_codec
from plait.journal.claims import no_runs, several_runs, unknown_run
from plait.journal.postgres.database import READ_SECONDS, Connection, Database
from plait.journal.postgres.leases import life_of_holder
from plait.journal.postgres.log import clean_text, clean_value
from plait.journal.records import RunRow, RunTotals, SessionRow, SessionTurn
from plait.journal.row_codec import check_content, crc_of_begun, crc_of_state, damaged_rows, read_time, read_turn
from plait.journal.run_query import ALL, RunQuery, no_such_run
from plait.journal.store import NEWEST, TITLES, KeptRecord

_DATA = r"regexp_replace(data, '\\u(0000|d[89a-f]..)', '\\ufffd', 'gi')::json"
"""The functions for JSON refuse texts with U+0000 or half of a surrogate pair, wherever in it they are."""
_GRADE = f"{_DATA} -> 'grade'"
_GRADED = "from kept k where r.label <> '' and k.kind = 'result' and k.key = r.label and k.run = r.id"
_WITH_GRADE = f"""r.id in (select run from kept where kind = 'result' and key = r.label
  and {_GRADE} ->> 'mark' = %(grade)s)"""
_RATED = f"""(select case {_DATA} ->> 'good' when 'true' then 'good' when 'false' then 'bad' end
  from kept k where k.kind = 'rating' and k.key = r.id)"""
_WITH_RATING = f"""r.id in (select key from kept where kind = 'rating'
  and {_DATA} ->> 'good' = case %(rated)s when 'good' then 'true' when 'bad' then 'false' end)"""
# Sets of the few, read once: a subquery for each of 100,000 runs takes seconds.
_HAS_SUCCEEDED = f"""r.status = 'answered'
  and r.id not in (select key from kept where kind = 'rating' and {_DATA} ->> 'good' = 'false')
  and (r.label, r.id) not in (select key, run from kept where kind = 'result' and key <> ''
    and {_GRADE} ->> 'success' = 'false')"""
RUN = f"""r.n, r.id, r.status, r.owner, r.started, r.head, r.outcome, r.totals, r.crc, r.rows, r.question, r.loop,
  r.parent, r.fork_at, r.session, r.root, t.claim, t.lease_until,
  coalesce(t.lease_until < clock_timestamp(), true) as is_over,
  greatest(r.updated, coalesce((select at from events e where e.run = r.n order by seq desc limit 1), 0)) as updated,
  (select ({_GRADE})::text {_GRADED}) as grade, {_RATED} as rating"""
FROM = "from runs r join runs t on t.n = coalesce(r.root, r.n)"
"""A run and the one at the top of its tree, which holds the lease."""
_OWN = """split_part(r.totals, ',"guards":', 1)"""
_WHOLE = f"""coalesce(nullif(split_part({_OWN}, '"tree":', 2), ''), {_OWN})"""
_TEXT = """rtrim(split_part(split_part({}, '"{}":', 2), ',', 1), '}}')"""
_NUMBER = f"nullif(nullif({_TEXT}, ''), 'null')::double precision"
_VALUES = {
    "seconds": _NUMBER.format(_OWN, "seconds"),
    "cost": "r.cost",
    "tokens": " + ".join(_NUMBER.format(_WHOLE, name) for name in ("input_tokens", "output_tokens")),
    "steps": _NUMBER.format(_OWN, "steps"),
}
"""What runs are sorted by. To cut texts is three times as fast as to read JSON; Plait writes totals without spaces."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


def check_run(row: dict[str, Any], place: str) -> int:
    """Return the check sum of what a run began with. Raises `JournalError` if the run's own row is damaged."""
    begun = crc_of_begun([row[name] for name in ("id", "question", "loop", "parent", "fork_at", "head", "session")])
    if crc_of_state(begun, row["status"], "", row["rows"], row["outcome"], row["totals"]) != row["crc"]:
        raise damaged_rows(place, row["id"], "its own row in the table of runs is damaged")
    return begun


def read_run(row: dict[str, Any]) -> RunRow:
    """Return a run as listed: its process has left it if it died, or its lease ended."""
    is_left = not row["owner"] or row["is_over"] or life_of_holder(row["owner"]) == "dead"
    return row_codec.read_run(row, is_left=is_left)


async def fetch(connection: Connection, query: str, values: Any = ()) -> list[dict[str, Any]]:
    """Return rows as dictionaries."""
    cursor = connection.cursor(row_factory=dict_row)
    return await (await cursor.execute(query, values)).fetchall()


class PostgresIndex:
    """The part of a store in PostgreSQL that reads the index of runs, and what is kept about them."""

    _database: Database

    @property
    def place(self) -> str:
        return self._database.place

    async def _fetch(self, query: str, values: Any = ()) -> list[dict[str, Any]]:
        return await self._database.do(lambda connection: fetch(connection, query, values))

    async def find_run(self, prefix: str) -> RunRow:
        return read_run(await self._find(prefix))

    async def _find(self, prefix: str) -> dict[str, Any]:
        """Return the row of the run whose id is `prefix`, or of the only one that begins with it. "last": the newest
        that is no child run."""
        prefix = clean_text(prefix)
        if prefix == "last":
            found = await self._fetch(f"select {RUN} {FROM} where r.caller = '' order by r.n desc limit 1")
            if not found:
                raise no_runs()
        else:
            found = await self._fetch(f"select {RUN} {FROM} where r.id = %s", [prefix])
            if not found and prefix:
                question = f"select {RUN} {FROM} where r.id > %s and r.id < %s order by r.id limit 5"
                found = await self._fetch(question, [prefix, prefix + "\U0010ffff"])
        if len(found) == 1:
            check_run(found[0], self.place)
            return found[0]
        if found:
            raise several_runs(prefix, [row["id"] for row in found])
        raise unknown_run(
            prefix, [row["id"] for row in await self._fetch("select id from runs order by n desc limit 1000")]
        )

    async def list_runs(self, query: RunQuery = ALL) -> list[RunRow]:
        (where, values), order = _conditions(query), _order(query)
        is_going_on = query.status in ("running", "interrupted")  # which of both, only the whole row tells
        limit = None if is_going_on or query.limit < 0 else query.limit
        # Chosen first and joined then: long columns of runs that are not shown are not read.
        chosen = f"select r.n from runs r where {where} order by {order} limit %(most)s"
        question = f"select {RUN} {FROM} join ({chosen}) c on c.n = r.n order by {order}"
        found = [read_run(row) for row in await self._fetch(question, {**values, "most": limit})]
        is_after_run = not found and query.before and query.sorted_by
        if is_after_run and not await self._fetch("select 1 from runs where n = %s", [query.before]):
            raise no_such_run(query.before)
        if is_going_on:
            found = [row for row in found if row.status == query.status]
        return found[: query.limit] if query.limit >= 0 else found

    async def list_totals(self, query: RunQuery = ALL, *, models: bool = False) -> list[RunTotals]:
        if query.status in ("running", "interrupted"):
            query = structs.replace(query, numbers=tuple(row.n for row in await self.list_runs(query)) or (0,))
        (where, values), order = _conditions(query), _order(query)
        columns = "r.id, r.label, r.for_user, r.agent, r.tags, r.fork_at, r.started, r.totals"
        columns += f", r.status, {_HAS_SUCCEEDED}, {'r.models' if models else 'array[]::text[]'}"
        question = f"select {columns} from runs r where {where} order by {order} limit %(most)s"
        values["most"] = query.limit if query.limit >= 0 else None
        found = await self._database.execute(question, values, seconds=READ_SECONDS)
        return [
            RunTotals(
                *(run, label, user, agent, tuple(tags), fork_at, read_time(at), codec.decode_totals(totals)),
                *(status, well, tuple(specs)),
            )
            for run, label, user, agent, tags, fork_at, at, totals, status, well, specs in found
        ]

    async def list_values(self, label: str = "") -> dict[str, list[str]]:
        where = "where label <> '' and starts_with(label, %(label)s)" if label else ""
        chosen = f"from runs {where} order by n desc limit {NEWEST}"
        newest = f"(select loop, session, agent, for_user, tags, models {chosen}) r"
        columns = {"loops": "loop", "sessions": "session", "agents": "agent", "users": "for_user"}
        columns |= {"models": "unnest(models)", "tags": "unnest(tags)"}
        queries = {name: f"select distinct {column} from {newest}" for name, column in columns.items()}
        values = {}
        for name, query in queries.items():
            found = await self._database.execute(query, {"label": clean_text(label)}, seconds=READ_SECONDS)
            values[name] = sorted(value for (value,) in found if value)
        return values

    async def list_turns(
        self, session: str, *, before: str | None = None, limit: int | None = None
    ) -> list[SessionTurn]:
        last = None if before is None else await self._origin(before)
        found = await self._fetch(
            """select id, question, head, outcome, started, updated, row_number() over (order by n) as number from runs
            where session <> '' and session = %s and parent = '' and (%s::bigint is null or n < %s)
            order by n desc limit %s""",
            [clean_text(session), last, last, limit],
        )
        return [
            read_turn(row.pop("number"), row.pop("id"), files=codec.decode_head(row.pop("head")).attachments, **row)
            for row in reversed(found)
        ]

    async def _origin(self, run: str) -> int | None:
        """Return the number of the run at the start of a chain of forks; the run's own if it is not a fork."""
        number: int | None = None
        while run:
            found = await self._fetch("select n, parent from runs where id = %s", [clean_text(run)])
            if not found or (number is not None and found[0]["n"] >= number):  # a run is forked from an earlier one
                break
            number, run = found[0]["n"], found[0]["parent"]
        return number

    async def list_sessions(
        self, limit: int = 50, *, owner: str | None = None, words: str = "", before: int = 0
    ) -> list[SessionRow]:
        where, values = ["session <> ''"], list[Any]()
        if owner is None:
            where.append("parent = ''")
        else:
            where.append("starts_with(session, %s)" if owner else "not starts_with(session, '@')")
            values += [clean_text(owner)] if owner else []
        if folded := [clean_text(word) for word in words.casefold().split()]:
            said = " and ".join(["strpos(words, %s) > 0"] * len(folded))
            titled = " and ".join(["strpos(data::jsonb->>'words', %s) > 0"] * len(folded))
            where.append(
                f"(session in (select session from runs where {' and '.join(where)} and {said}) or"
                f" session in (select key from kept where kind = '{TITLES}' and {titled}))"
            )
            values += [*values, *folded, *folded]
        found = await self._fetch(
            f"""select c.session, c.turns, l.question, l.started, f.question as first, c.n from (
                select session, count(*) as turns, min(n) as first, max(n) as n from runs
                where {" and ".join(where)} group by session having max(n) < %s or %s = 0 order by max(n) desc limit %s
            ) c join runs l on l.n = c.n join runs f on f.n = c.first order by c.n desc""",
            [*values, before, before, limit if limit >= 0 else None],
        )
        return [
            SessionRow(
                each["session"], each["turns"], each["question"], read_time(each["started"]), each["first"], each["n"]
            )
            for each in found
        ]

    async def list_kept(self, kind: str, keys: Iterable[str] | None = None) -> list[KeptRecord]:
        which, values = ("", [kind]) if keys is None else (" and key = any (%s)", [kind, clean_value(list(keys))])
        found = await self._fetch(f"select key, run, at, data from kept where kind = %s{which} order by id", values)
        return [KeptRecord(each["key"], each["run"], read_time(each["at"]), each["data"].encode()) for each in found]

    async def read_contents(self, attachments: Iterable[Attachment]) -> dict[str, bytes]:
        wanted = {each.digest: each for each in attachments}
        if not wanted:
            return {}
        found = await self._fetch("select digest, body from contents where digest = any (%s)", [list(wanted)])
        stored = {each["digest"]: each["body"] for each in found}
        return {digest: check_content(each, stored.get(digest), self.place) for digest, each in wanted.items()}


def _rank(query: RunQuery) -> str:
    if not query.sorted_by:
        return "r.n"
    return f"coalesce({_VALUES[query.sorted_by]}, '{'' if query.is_ascending else '-'}infinity')"  # the unknown: last


def _order(query: RunQuery) -> str:
    direction = "asc" if query.is_ascending else "desc"
    return f"{_rank(query)} {direction}, r.n {direction}"


def _conditions(query: RunQuery) -> tuple[str, dict[str, Any]]:
    """Return the condition on runs `r` that match, and its values; running runs for interrupted ones."""
    conditions: dict[str, tuple[str, Any]] = {
        "before": (
            f"({_rank(query)}, r.n) {'>' if query.is_ascending else '<'} "
            f"(select {_rank(query)}, r.n from runs r where r.n = %(before)s)" if query.sorted_by
            else f"r.n {'>' if query.is_ascending else '<'} %(before)s",
            query.before,
        ),
        "status": ("r.status = %(status)s", "running" if query.status == "interrupted" else query.status),
        "loop": ("r.loop = %(loop)s", query.loop),
        "session": ("r.session <> '' and r.session = %(session)s", query.session),
        "label": ("r.label <> '' and starts_with(r.label, %(label)s)", query.label),
        "user": ("r.for_user <> '' and r.for_user = %(user)s", query.user),
        "grade": (_WITH_GRADE, query.grade),
        "rated": (_WITH_RATING, query.rated),
        "model": ("r.models @> array[%(model)s::text]", query.model),
        "parent": ("r.parent <> '' and r.parent = %(parent)s", query.parent),
        # A child begins after its parent: no circles.
        "caller": ("r.caller <> '' and r.caller = %(caller)s and r.n > (select n from runs where id = %(caller)s)",
                   query.caller),
        "labels": ("r.label = any (%(labels)s)", list(query.labels)),
        "numbers": ("r.n = any (%(numbers)s)", list(query.numbers)),
        "tags": ("r.tags @> %(tags)s::text[]", list(query.tags)),
    }  # fmt: skip
    bounds = {
        "since": ("r.started >= %(since)s", query.since),
        "until": ("r.started < %(until)s", query.until),
        "min_cost": ("r.cost >= %(min_cost)s", query.min_cost),
        "max_cost": ("r.cost <= %(max_cost)s", query.max_cost),
    }
    where = {name: (text, clean_value(value)) for name, (text, value) in conditions.items() if value}
    where |= {name: (text, value) for name, (text, value) in bounds.items() if value is not None}
    for n, word in enumerate(query.words.casefold().split()):
        where[f"word{n}"] = (f"strpos(r.words, %(word{n})s) > 0", clean_value(word))
    if query.agent:
        # The labels of served runs are serve:OWNER:AGENT:KEY.
        served = f"^serve:[^:]*:{re.escape(_NO_NAME.sub('/', query.agent))}:"
        where["agent"] = ("(r.agent = %(agent)s or (r.label <> '' and r.label ~ %(served)s))", clean_value(query.agent))
        where["served"] = ("true", clean_value(served))
    texts = [f"({text})" for text, _ in where.values()]
    if not (query.children or query.caller or query.numbers):
        texts.append("r.caller = ''")
    if query.is_tainted:
        texts.append("r.is_tainted")
    if query.is_open:
        texts.append("(r.outcome is null or r.has_doubts)")
    return " and ".join(texts) or "true", {name: value for name, (_, value) in where.items()}
