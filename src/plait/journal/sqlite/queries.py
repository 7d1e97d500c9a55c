"""Reads of the index of runs: found, listed, and their conversations. They never change a file."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from plait.core import Attachment
from plait.journal import codec
from plait.journal.claims import no_runs, several_runs, unknown_run
from plait.journal.records import LastTurn, RunRow, RunTotals, SessionRow, SessionTurn
from plait.journal.row_codec import check_content, damaged_rows, read_run, read_time, read_turn
from plait.journal.run_query import ALL, RunQuery, no_such_run
from plait.journal.sqlite import connections, faults
from plait.journal.sqlite.holders import life_of_holder
from plait.journal.sqlite.rows import check_run
from plait.journal.sqlite.writer import Writer
from plait.journal.store import NEWEST, TITLES, KeptRecord, NoJournal, seconds_of_user

T = TypeVar("T")

_GRADED = "FROM kept WHERE label <> '' AND kind = 'result' AND key = label AND kept.run = runs.id"
_RATED = """(SELECT CASE json_extract(data, '$.good') WHEN 1 THEN 'good' WHEN 0 THEN 'bad' END
    FROM kept WHERE kind = 'rating' AND key = runs.id AND json_valid(data))"""
_RUN = f"""
    n, id, status, owner, started,
    max(updated, coalesce((SELECT at FROM events WHERE run = n ORDER BY seq DESC LIMIT 1), 0)),
    head, outcome, totals,
    (SELECT json_extract(data, '$.grade') {_GRADED}),
    {_RATED}"""
_HAS_SUCCEEDED = f"""status = 'answered' AND coalesce({_RATED}, '') <> 'bad'
    AND coalesce((SELECT json_extract(data, '$.grade.success') {_GRADED}), 1)"""
_MODELS = "(SELECT json_group_array(DISTINCT json_extract(value, '$.spec')) FROM json_each(head, '$.models'))"
_NAMES = ("n", "id", "status", "owner", "started", "updated", "head", "outcome", "totals", "grade", "rating")
_SESSION = "session <> '' AND session"  # spelled as in its index
# A child begins after its parent. Without this condition, a journal from elsewhere could have children in a circle.
CHILD = "caller <> '' AND caller = :run AND n > (SELECT n FROM runs WHERE id = :run)"
# From the index alone: the runs of one user are few among those of all.
_LABELED = f"n IN (SELECT n FROM runs WHERE label <> '' AND label >= ? AND label < ? || '{chr(0x10FFFF)}')"
_IN = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter
_COST = "json_extract(totals, iif(json_type(totals, '$.tree') = 'object', '$.tree.cost_usd', '$.cost_usd'))"
_WHOLE = "iif(json_type(totals, '$.tree') = 'object', json_extract(totals, '$.tree'), totals)"
_VALUES = {
    "seconds": "json_extract(totals, '$.seconds')",
    "cost": _COST,
    "tokens": f"json_extract({_WHOLE}, '$.input_tokens') + json_extract({_WHOLE}, '$.output_tokens')",
    "steps": "json_extract(totals, '$.steps')",
}
"""What runs are sorted by. Where it is not known, it is NULL, which `_rank` puts last."""
_ANSWER = "coalesce(json_extract(outcome, '$.answer'), json_extract(outcome, '$.reason'), '')"
_LAST = 2**63 - 1  # no run has this number
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


def _read_run(found: tuple[Any, ...], path: Path) -> RunRow:
    row = dict(zip(_NAMES, found, strict=True))
    return read_run(row, is_left=not row["owner"] or life_of_holder(path, row["owner"]) == "dead")


def _list_runs(connection: sqlite3.Connection, path: Path, query: RunQuery) -> list[RunRow]:
    """Return the runs that match, in order. See `RunQuery`."""
    runs: list[RunRow] = []
    is_going_on = query.status in ("running", "interrupted")  # which of both, only the whole row tells
    for found in _select(connection, _RUN, query, -1 if is_going_on else query.limit):
        if len(runs) >= query.limit >= 0:
            break
        run = _read_run(found, path)
        if not is_going_on or run.status == query.status:
            runs.append(run)
    return runs


def _select(connection: sqlite3.Connection, columns: str, query: RunQuery, limit: int) -> Iterator[tuple[Any, ...]]:
    """Return the columns of the runs that match, in order; running runs for interrupted ones."""
    order, sign, rank = ("ASC", ">", "9e999") if query.is_ascending else ("DESC", "<", "-1")
    rank = f"coalesce({_VALUES[query.sorted_by]}, {rank})" if query.sorted_by else "n"  # what is unknown comes last
    last: list[Any] = [query.before]
    if query.before and query.sorted_by:
        found = connection.execute(f"SELECT {rank}, n FROM runs WHERE n = ?", last).fetchone()
        if found is None:
            raise no_such_run(query.before)
        last = [*found]
    words = query.words.casefold().split()
    if words:
        connection.create_function("folded", 1, lambda text: str(text or "").casefold(), deterministic=True)
    has_model = "SELECT 1 FROM json_each(head, '$.models') WHERE json_extract(value, '$.spec') = ?"
    conditions: list[tuple[str, Any]] = [
        ("status = ?", "running" if query.status == "interrupted" else query.status),
        ("loop = ?", query.loop),
        (f"{_SESSION} = ?", query.session),
        (_LABELED, query.label),
        ("user = ?", query.user),
        (f"? = (SELECT json_extract(data, '$.grade.mark') {_GRADED})", query.grade),
        (f"? = {_RATED}", query.rated),
        (f"EXISTS ({has_model})", query.model),
        ("parent = ?", query.parent),
        (CHILD.replace(":run", "?"), query.caller),
        (f"label {_IN}", query.labels and json.dumps(query.labels)),
        (f"n {_IN}", query.numbers and json.dumps(query.numbers)),
        *(("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", tag) for tag in query.tags),
        *((f"instr(folded(question || ' ' || {_ANSWER}), ?) > 0", word) for word in words),
    ]
    # The labels of served runs are serve:OWNER:AGENT:KEY. An agent's name cannot contain a GLOB character.
    served = f"serve:*:{_NO_NAME.sub('/', query.agent)}:*"
    bounds = [("started >=", query.since), ("started <", query.until)]
    bounds += [(f"{_COST} >=", query.min_cost), (f"{_COST} <=", query.max_cost)]
    where = [condition for condition, value in conditions if value]
    values = [value for condition, value in conditions if value for _ in range(condition.count("?"))]
    where += [f"{what} ?" for what, value in bounds if value is not None]
    values += [value for _, value in bounds if value is not None]
    if query.agent:
        where.append("(agent = ? OR label GLOB ?)")
        values += [query.agent, served]
    if not (query.children or query.caller or query.numbers):
        where.append("caller = ''")
    if query.is_tainted:
        where.append("json_array_length(totals, '$.guards.taint') > 0")
    if query.is_open:
        where.append("(outcome IS NULL OR json_array_length(totals, '$.guards.approvals') > 0)")
    if query.before:
        where.append(f"({rank}, n) {sign} (?, ?)" if query.sorted_by else f"n {sign} ?")
        values += last
    chosen = f"FROM runs WHERE {' AND '.join(where or ['1'])}"
    if not query.sorted_by:
        return connection.execute(f"SELECT {columns} {chosen} ORDER BY n {order} LIMIT ?", [*values, limit])
    # Chosen first and read then: sorting all runs with their long columns is slow.
    chosen = f"(SELECT n AS chosen, {rank} AS rank {chosen} ORDER BY rank {order}, n {order} LIMIT ?)"
    sql = f"SELECT {columns} FROM {chosen} JOIN runs ON n = chosen ORDER BY rank {order}, n {order}"
    return connection.execute(sql, [*values, limit])


def last_turn(connection: sqlite3.Connection, session: str) -> tuple[LastTurn, str, str]:
    """Return the last turn of a session, its status and its owner."""
    question = (
        f"SELECT id, updated, status, owner FROM runs WHERE {_SESSION} = ? AND parent = '' ORDER BY n DESC LIMIT 1"
    )
    run, updated, status, owner = connection.execute(question, [session]).fetchone() or (*LastTurn(), "", "")
    return LastTurn(run, updated), status, owner


def _origin(connection: sqlite3.Connection, run: str) -> int | None:
    """Return the number of the run at the start of a chain of forks; the run's own if it is not a fork."""
    number: int | None = None
    while run and (found := connection.execute("SELECT n, parent FROM runs WHERE id = ?", (run,)).fetchone()):
        if number is not None and found[0] >= number:  # a run is forked from an earlier one
            break
        number, run = found
    return number


def find_run(connection: sqlite3.Connection, prefix: str, path: Path) -> tuple[int, RunRow]:
    """Return the run whose id is `prefix`, or the only one that begins with it, with its number.

    "last": the newest that is no child run.
    """
    if prefix == "last":
        found = connection.execute(f"SELECT {_RUN} FROM runs WHERE caller = '' ORDER BY n DESC LIMIT 1").fetchall()
        if not found:
            raise no_runs()
    else:
        found = connection.execute(f"SELECT {_RUN} FROM runs WHERE id = ?", (prefix,)).fetchall()
        if not found and prefix:
            found = connection.execute(
                f"SELECT {_RUN} FROM runs WHERE id > ? AND id < ? ORDER BY id LIMIT 5", (prefix, prefix + "\U0010ffff")
            ).fetchall()
    if len(found) == 1:
        check_run(connection, found[0][0], path)
        return found[0][0], _read_run(found[0], path)
    if found:
        raise several_runs(prefix, [row[1] for row in found])
    known = [each for (each,) in connection.execute("SELECT id FROM runs ORDER BY n DESC LIMIT 1000")]
    if prefix in known:
        if connection.execute("SELECT 1 FROM runs WHERE id = ?", (prefix,)).fetchone():
            return find_run(connection, prefix, path)  # another process has just begun it
        raise damaged_rows(path, prefix, "its entry in the index of ids is damaged")
    raise unknown_run(prefix, known)


class SqliteIndex:
    """The part of a `SqliteStore` that reads the index of runs, and what is kept about them."""

    def __init__(
        self, path: str | os.PathLike[str], *, busy_seconds: float | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = Path(path).expanduser()
        self.busy_seconds = seconds_of_user("PLAIT_BUSY_SECONDS", 10.0) if busy_seconds is None else busy_seconds
        self._is_memory = self.path == connections.MEMORY
        self._where = f"{self.path} {id(self)}" if self._is_memory else str(self.path.absolute())
        self._clock = clock
        self._writer: Writer | None = None
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        return str(self.path)

    async def read_contents(self, attachments: Iterable[Attachment]) -> dict[str, bytes]:
        wanted = {each.digest: each for each in attachments}
        if not wanted:
            return {}

        def read(connection: sqlite3.Connection) -> dict[str, bytes]:
            question = f"SELECT digest, body FROM contents WHERE digest IN ({', '.join('?' * len(wanted))})"
            return dict(connection.execute(question, list(wanted)).fetchall())

        stored = await self._read(read)
        return {digest: check_content(each, stored.get(digest), self.path) for digest, each in wanted.items()}

    async def find_run(self, prefix: str) -> RunRow:
        return (await self._read(lambda connection: find_run(connection, prefix, self.path)))[1]

    async def list_runs(self, query: RunQuery = ALL) -> list[RunRow]:
        return await self._read(lambda connection: _list_runs(connection, self.path, query))

    async def list_totals(self, query: RunQuery = ALL, *, models: bool = False) -> list[RunTotals]:
        columns, decode = "id, label, user, agent, tags, fork_at, started, totals", codec.decode_plain
        columns += f", status, {_HAS_SUCCEEDED}, {_MODELS if models else 'NULL'}"

        def read(connection: sqlite3.Connection, query: RunQuery = query) -> list[RunTotals]:
            if query.status in ("running", "interrupted"):  # which of both, only a whole row tells
                going = tuple(row.n for row in _list_runs(connection, self.path, query))
                query = structs.replace(query, numbers=going or (0,))
            found = _select(connection, columns, query, query.limit)
            return [
                RunTotals(
                    *(run, label, user, agent, tuple(decode(tags)) if tags != "[]" else (), fork_at, read_time(at)),
                    *(codec.decode_totals(totals), status, bool(well), tuple(decode(specs)) if specs else ()),
                )
                for run, label, user, agent, tags, fork_at, at, totals, status, well, specs in found
            ]

        return await self._list(read)

    async def list_values(self, label: str = "") -> dict[str, list[str]]:
        chosen = f"FROM runs {f'WHERE {_LABELED}' if label else ''} ORDER BY n DESC LIMIT {NEWEST}"
        newest, values = f"(SELECT loop, session, agent, user, tags, head {chosen})", [label] * 2 if label else []
        columns = {"loops": "loop", "sessions": "session", "agents": "agent", "users": "user"}
        queries = {name: f"SELECT DISTINCT {column} FROM {newest}" for name, column in columns.items()} | {
            "tags": f"SELECT DISTINCT value FROM (SELECT DISTINCT tags FROM {newest}), json_each(tags)",
            "models": "SELECT DISTINCT json_extract(value, '$.spec') FROM "
            f"(SELECT DISTINCT json_extract(head, '$.models') AS models FROM {newest}), json_each(models)",
        }

        def read(connection: sqlite3.Connection) -> dict[str, list[str]]:
            found = {name: connection.execute(query, values).fetchall() for name, query in queries.items()}
            return {name: sorted(str(value) for (value,) in rows if value) for name, rows in found.items()}

        return await self._read(read)

    async def list_turns(
        self, session: str, *, before: str | None = None, limit: int | None = None
    ) -> list[SessionTurn]:
        columns = "id, question, json_extract(head, '$.attachments'), outcome, started, updated"

        def read(connection: sqlite3.Connection) -> list[SessionTurn]:
            where, values = f"{_SESSION} = ? AND parent = ''", [session]  # type: str, list[Any]
            if before is not None and (n := _origin(connection, before)) is not None:
                where, values = f"{where} AND n < ?", [session, n]
            (count,) = connection.execute(f"SELECT count(*) FROM runs WHERE {where}", values).fetchone()
            question = f"SELECT {columns} FROM runs WHERE {where} ORDER BY n DESC LIMIT ?"
            found = connection.execute(question, [*values, -1 if limit is None else limit]).fetchall()
            return [
                read_turn(count - i, run, asked, codec.decode_attachments(stored), *others)
                for i, (run, asked, stored, *others) in reversed(list(enumerate(found)))
            ]

        return await self._list(read)

    async def list_sessions(
        self, limit: int = 50, *, owner: str | None = None, words: str = "", before: int = 0
    ) -> list[SessionRow]:
        where, values = ["session <> ''"], list[Any]()
        if owner is None:
            where.append("parent = ''")
        elif owner:
            where, values = [*where, "session >= ?", "session < ?"], [owner, f"{owner}\U0010ffff"]
        else:
            where.append("(session < '@' OR session >= 'A')")  # A follows @
        if folded := words.casefold().split():
            texts = {"FROM runs": f"question || ' ' || {_ANSWER}", "FROM kept": "json_extract(data, '$.words')"}
            said, titled = (" AND ".join([f"instr(folded({text}), ?) > 0"] * len(folded)) for text in texts.values())
            where.append(
                f"(session IN (SELECT session FROM runs WHERE {' AND '.join(where)} AND {said}) OR"
                f" session IN (SELECT key FROM kept WHERE kind = '{TITLES}' AND {titled}))"
            )
            values += [*values, *folded, *folded]
        question = f"""SELECT c.session, c.turns, l.question, l.started, f.question, c.n FROM (
                SELECT session, count(*) AS turns, min(n) AS first, max(n) AS n FROM runs
                WHERE {" AND ".join(where)} GROUP BY session HAVING max(n) < ? ORDER BY max(n) DESC LIMIT ?
            ) c JOIN runs l ON l.n = c.n JOIN runs f ON f.n = c.first ORDER BY c.n DESC"""

        def read(connection: sqlite3.Connection) -> list[Any]:
            connection.create_function("folded", 1, lambda text: str(text or "").casefold(), deterministic=True)
            return connection.execute(question, [*values, before or _LAST, limit]).fetchall()

        found = await self._list(read)
        return [SessionRow(name, turns, asked, read_time(at), first, n) for name, turns, asked, at, first, n in found]

    async def list_kept(self, kind: str, keys: Iterable[str] | None = None) -> list[KeptRecord]:
        columns = "key, run, at, CAST(data AS BLOB)"  # a file from elsewhere may have anything there
        where, values = ("", []) if keys is None else (f" AND key {_IN}", [json.dumps(list(keys))])
        question = f"SELECT {columns} FROM kept WHERE kind = ?{where} ORDER BY rowid"
        found = await self._list(lambda connection: connection.execute(question, (kind, *values)).fetchall())
        return [KeptRecord(key, run, read_time(at), data) for key, run, at, data in found]

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self._is_memory:
            with connections.reading(self.path) as connection:
                yield connection
            return
        writer = self._open_writer()
        with writer.in_sqlite:
            try:
                yield writer.connection()
            except sqlite3.Error as error:
                raise faults.translate(error, self.path) from None

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Read in a thread. Every error is raised as a `JournalError`."""

        def work() -> T:
            with self._reading() as connection:
                return read(connection)

        return await asyncio.to_thread(work)

    async def _list(self, read: Callable[[sqlite3.Connection], list[T]]) -> list[T]:
        """Read in a thread; nothing if there is no journal yet."""
        try:
            return await self._read(read)
        except NoJournal:
            return []

    def _open_writer(self) -> Writer:
        """Return the process's writer of the file at the path (and not of a deleted one)."""
        found = self._writer
        if found is not None and found.pid == os.getpid() and (found.is_current() or not found.idle):
            return found
        with self._lock:
            # One of a file that is gone is let be: its runs may still write to it.
            self._writer = Writer(self.path, self.busy_seconds)
            return self._writer
