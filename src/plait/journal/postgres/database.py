"""The connections to one PostgreSQL database: a pool in an event loop of its own, which every loop and thread shares.

Theory of operation. What was handed over is done even if whoever waits for it is cancelled: an append that may have
been committed is no append that was taken back. Each statement that writes may be sent again, because it finds what it
wrote before. So a lost connection, a restart or a failover is waited for, for a bounded time. A statement that takes
too long is not cancelled, because a commit that waits for a standby would then succeed with a warning: its connection
is closed, and the statement is sent again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from plait.background import BackgroundLoop
from plait.core.errors import ConfigError, JournalError
from plait.journal.claims import require_schema
from plait.journal.postgres import faults, schema
from plait.journal.postgres.leases import boot_time
from plait.journal.store import seconds_of_user

T = TypeVar("T")
Connection = AsyncConnection[tuple[Any, ...]]

LOOP = BackgroundLoop("plait-postgres")

CONNECTIONS = 20
"""The most connections of a process to one database, but for that which renews leases: PLAIT_CONNECTIONS."""
WRITE_SECONDS, READ_SECONDS = 5.0, 60.0
"""How long a statement may take before its connection is closed."""
SLOWEST = 200_000.0
"""Bytes in a second that a connection takes at least: a long body gets more time."""

SETTINGS = (
    "-c synchronous_commit=on -c lock_timeout=4000 -c idle_in_transaction_session_timeout=2000 "
    "-c tcp_keepalives_idle=2 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3 -c tcp_user_timeout=5000 "
    "-c client_connection_check_interval=1000 -c timezone=UTC -c client_encoding=utf8 -c bytea_output=hex"
)
"""A confirmed commit is on the disk, whatever the server's default. A client that has gone silent holds no lock for
long."""

logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())  # what it says of lost connections is expected

_LOCK = "select pg_advisory_xact_lock(7811887)"
"""Two processes never create or change the tables at once."""
_SEARCH_PATH = re.compile(r"-c\s*search_path=([a-z_][a-z0-9_]{0,50})(?=\s|$)")


class Database:
    """A database with a journal. `address` is a connection string of libpq; its schema is `plait`, or the one that
    `options=-csearch_path=NAME` names. Making one opens nothing."""

    def __init__(self, address: str, patience: float | None = None) -> None:
        try:
            known: dict[str, Any] = conninfo_to_dict(address)
        except psycopg.Error as error:
            why = re.sub(r'".*"', '"***"', " ".join(str(error).split()))  # it may be a part of the password
            hint = "Write postgresql://USER@HOST:5432/DATABASE; a password belongs in PGPASSWORD or ~/.pgpass."
            raise ConfigError(f"The journal's address cannot be read: {why}.", hint=hint) from None
        if "@" in str(known.get("host")):
            hint = "Write an @ in a user's name or password as %40."
            raise ConfigError("The journal's address cannot be read: its host has an @.", hint=hint)
        options = str(known.pop("options", "") or "")
        found = _SEARCH_PATH.search(options)
        if found is None and "search_path" in options:
            hint = "Write options=-csearch_path%3DNAME, with one name of small letters, digits and _."
            raise ConfigError("The journal's address names no schema that can be used.", hint=hint)
        self.schema = found[1] if found is not None else "plait"
        known |= {"options": f"{options} {SETTINGS} -c search_path={self.schema}", "connect_timeout": 5}
        known.setdefault("application_name", "plait")
        self.conninfo = make_conninfo(**known)
        self.place = _describe(known, self.schema)
        self.patience = seconds_of_user("PLAIT_BUSY_SECONDS", 30.0) if patience is None else patience
        self._clock_offset = time.time() - boot_time()
        """Seconds to add to this machine's `boot_time` for the database's time: a step of its clock changes nothing."""
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._pid = 0
        self._opening: asyncio.Lock | None = None
        self._listeners: dict[str, Connection] = {}

    def now(self) -> float:
        """Return the database's time, in seconds since 1970."""
        return boot_time() + self._clock_offset

    async def do(
        self, work: Callable[[Connection], Awaitable[T]], *, seconds: float = READ_SECONDS, retry: bool = True
    ) -> T:
        """Do something with a connection, from any event loop. It is done again if the connection fails: give a single
        statement, or one that can be repeated, else no `retry`. Raises `JournalError`."""
        return await asyncio.shield(asyncio.wrap_future(LOOP.submit(self.do_here(work, seconds, retry))))

    async def execute(
        self, statement: str, values: Any = (), *, seconds: float = WRITE_SECONDS, retry: bool = True
    ) -> list[tuple[Any, ...]]:
        """Execute one statement as `do` does, and return its rows."""

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self.do(work, seconds=seconds, retry=retry)

    async def do_here(self, work: Callable[[Connection], Awaitable[T]], seconds: float, retry: bool = True) -> T:
        """Do the same, on the database's own loop."""
        until, pause = time.monotonic() + self.patience, 0.05
        while True:
            try:
                pool = await self._open()
                async with pool.connection() as connection:
                    return await _do_in_time(work, connection, seconds)
            except (psycopg.Error, PoolTimeout, OSError, UnicodeError) as error:
                if not retry or not faults.is_passing(error) or time.monotonic() + pause > until:
                    raise faults.translate(error, self.place) from None
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, 0.5)

    async def _open(self) -> AsyncConnectionPool[Connection]:
        """Return the open pool. The first connection is checked, and creates the tables."""
        if self._pid != os.getpid():  # a forked process has neither the loop nor the connections
            self._pool, self._listeners, self._pid, self._opening = None, {}, os.getpid(), asyncio.Lock()
        assert self._opening is not None
        async with self._opening:
            if self._pool is None:
                async with await self.connect() as connection:
                    await _do_in_time(self._prepare, connection, READ_SECONDS)
                size = _read_number("PLAIT_CONNECTIONS", CONNECTIONS)
                pool = AsyncConnectionPool[Connection](
                    self.conninfo,
                    min_size=0,
                    max_size=size,
                    open=False,
                    timeout=3,
                    max_idle=60,
                    reconnect_timeout=1.0,
                    kwargs={"autocommit": True, "prepare_threshold": 2},
                )
                await pool.open()
                self._pool = pool
        return self._pool

    async def connect(self) -> Connection:
        """Return a connection of its own. Raises psycopg.Error."""
        return await AsyncConnection.connect(self.conninfo, autocommit=True)

    async def _prepare(self, connection: Connection) -> None:
        """Check the server and the schema; create the tables of a new one. Raises `JournalError`, psycopg.Error."""

        async def ask(query: str, *values: Any) -> Any:
            return await (await connection.execute(query, values)).fetchone()

        (pid,) = await ask("select pg_backend_pid()")
        if pid != connection.info.backend_pid:
            raise JournalError(
                f"The address of the journal {self.place} leads to a connection pooler, not to PostgreSQL itself.",
                hint="Give the server's own address: Plait has a pool of its own, and its settings and notifications "
                "belong to a connection.",
            )
        encoding, fsync, version, seconds = await ask(
            "select current_setting('server_encoding'), current_setting('fsync'), "
            "current_setting('server_version_num')::int, extract(epoch from clock_timestamp())::float8"
        )
        self._clock_offset = seconds - boot_time()
        if version < 140000:
            raise JournalError(f"The journal {self.place} is a PostgreSQL {version // 10000}.", hint="Use 14 or newer.")
        if fsync != "on":
            hint = "Set fsync = on in postgresql.conf: what was confirmed must outlive a loss of power."
            raise JournalError(f"The server of the journal {self.place} runs with fsync = off.", hint=hint)
        if encoding != "UTF8":
            hint = "Create it with `createdb --encoding UTF8 --template template0`."
            raise JournalError(f"The database of the journal {self.place} has the encoding {encoding}.", hint=hint)
        async with connection.transaction():
            await connection.execute(_LOCK)
            (found,) = await ask("select to_regclass(%s)::text", f"{self.schema}.marks")
            if found is None:
                (taken,) = await ask("select to_regclass(%s)::text", f"{self.schema}.runs")
                if taken is not None:
                    hint = "Choose another schema: add ?options=-csearch_path%3DNAME to the address."
                    what = f"The schema {self.schema} of {self.place} has a table of another program."
                    raise JournalError(what, hint=hint)
                (is_there,) = await ask("select to_regnamespace(%s)::text", self.schema)
                if is_there is None:
                    await connection.execute(sql.SQL("create schema {}").format(sql.Identifier(self.schema)))
                await connection.execute(schema.TABLES)
                await self.mark(connection, {"version": str(schema.VERSION), "reader": str(schema.READER)})
            await self._check(connection)

    async def migrate(self) -> tuple[int, int]:
        """Bring the schema up to date, and return the versions before and after. Raises `JournalError`."""

        async def work() -> tuple[int, int]:
            try:
                async with await self.connect() as connection, connection.transaction():
                    await connection.execute(_LOCK)
                    version = int((await self.marks(connection)).get("version", 0))
                    for number in range(version + 1, schema.VERSION + 1):
                        await connection.execute(schema.MIGRATIONS[number])
                        await self.mark(connection, {"version": str(number), "reader": str(schema.READER)})
                    return version, max(version, schema.VERSION)
            except psycopg.Error as error:
                raise faults.translate(error, self.place) from None

        await self.close()
        return await asyncio.wrap_future(LOOP.submit(work()))

    async def _check(self, connection: Connection) -> None:
        marks = await self.marks(connection)
        version, reader = (int(marks.get(name, 0)) for name in ("version", "reader"))
        require_schema(self.place, version, reader, schema.VERSION)
        # A promoted standby has a timeline of its own, and may lack what the old primary had confirmed.
        found = await connection.execute(
            "select (select system_identifier::text from pg_control_system()) || '/' || "
            "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
        )
        (where,) = await found.fetchone() or ("",)
        if marks.setdefault("server", where) != where:
            await self.mark(connection, {"restored": repr(self.now())})
        if marks.get("server") != where or "restored" not in marks:
            await self.mark(connection, {"server": where})

    async def marks(self, connection: Connection) -> dict[str, str]:
        """Return what is known of the whole journal."""
        return dict(await (await connection.execute("select name, value from marks")).fetchall())

    async def mark(self, connection: Connection, marks: Mapping[str, str]) -> None:
        """Note something about the whole journal."""
        statement = "insert into marks values (%s, %s) on conflict (name) do update set value = excluded.value"
        await connection.cursor().executemany(statement, list(marks.items()))

    async def wait_for(self, subject: str, seconds: float) -> None:
        """Wait until something is notified of `subject`, or so many seconds: on a connection of its own, which stays
        open from one wait to the next, one at a time. If it fails, the time passes."""

        async def work() -> None:
            begun = time.monotonic()
            try:
                listener = self._listeners.get(subject)
                if listener is None or listener.closed:
                    listener = self._listeners[subject] = await self.connect()
                    await _do_in_time(
                        lambda each: each.execute(f"listen {self.schema}_{subject}"), listener, WRITE_SECONDS
                    )
                async for _ in listener.notifies(timeout=seconds, stop_after=1):
                    return
            except (psycopg.Error, OSError):
                self._listeners.pop(subject, None)
                await asyncio.sleep(max(0.0, seconds - time.monotonic() + begun))

        await asyncio.wrap_future(LOOP.submit(work()))

    async def close(self) -> None:
        """Close the connections. The next use opens new ones."""
        pool, self._pool = self._pool, None
        listeners, self._listeners = self._listeners, {}
        if self._pid == os.getpid():
            for listener in listeners.values():
                await asyncio.wrap_future(LOOP.submit(listener.close()))
            if pool is not None:
                await asyncio.wrap_future(LOOP.submit(pool.close()))


async def _do_in_time(work: Callable[[Connection], Awaitable[T]], connection: Connection, seconds: float) -> T:
    task = asyncio.ensure_future(work(connection))
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if done:
        return task.result()
    connection.pgconn.finish()  # cancelling the task would send the server a request to cancel, and wait for it
    task.cancel()
    with suppress(asyncio.CancelledError, psycopg.Error):
        await task
    raise psycopg.OperationalError(f"no answer within {seconds:g} s")


def _describe(known: Mapping[str, Any], schema_name: str) -> str:
    """Return an address for people, without the password."""
    host, port, user, name = (str(known.get(key) or "") for key in ("host", "port", "user", "dbname"))
    more = [f"{key}={quote(str(known[key]))}" for key in ("hostaddr", "service") if known.get(key)]
    at = f"{quote(user, safe='')}@" * bool(user) + (quote(host, safe=",:[]") or "localhost" * (not more))
    more += [f"options=-csearch_path%3D{schema_name}"] * (schema_name != "plait")
    return (
        f"postgresql://{at}{f':{port}' * bool(port)}/{quote(name or user, safe='')}{'?' * bool(more)}{'&'.join(more)}"
    )


def _read_number(variable: str, usual: int) -> int:
    value = os.environ.get(variable) or str(usual)
    if not value.isdigit() or not 1 <= int(value) <= 10_000:
        raise ConfigError(f"{variable} is {value!r}.", hint="Give a number from 1 to 10000.")
    return int(value)
