"""The journal in PostgreSQL: claims that end, lost answers, servers that go away, and errors in words.

What every store does is in test_stores.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import structs

import plait
from loop_scripts import ANSWER, LOOPS, QUESTION, SCRIPTS, reply_of
from plait.core import Call, Observation
from plait.core.errors import ConfigError, JournalError, RunExists
from plait.journal.carry import copy
from plait.journal.owner import owner_of_this_process
from plait.journal.postgres import database, schema
from plait.journal.postgres.leases import TakenOver
from plait.journal.postgres.store import PostgresStore
from plait.journal.records import IntentRecord, NoteRecord, ParentCall, ResultRecord, Resumption, RunHead
from plait.journal.sqlite.store import SqliteStore
from plait.journal.store import Journal, open_store
from postgres_server import PostgresServer, shared_server

ME = owner_of_this_process()
FAR = "another-machine:1:1:another-boot:1"
"""The owner of a process of another machine: only the lease tells whether it lives."""


def head(run: str = "r", **fields: Any) -> RunHead:
    return RunHead(run, "q", {"name": "react", "options": {}}, {"": {"spec": "scripted:x"}}, **fields)


def note(text: str) -> NoteRecord:
    return NoteRecord("", 1, "note", text)


PAY = Call("pay", {"n": 1})
INTENT = IntentRecord("3.0", 1, "call", PAY)
RESULT = ResultRecord("3.0", 1, "call", Observation("paid", value="paid"))


@pytest.fixture
def address() -> str:
    return shared_server().new_journal()


@pytest.fixture
async def stores(address: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two stores of one journal, as two machines have them, with leases of a second."""
    made = PostgresStore(address, lease=1.0, patience=5), PostgresStore(address, lease=1.0, patience=5)
    yield made
    for each in made:
        await each.close()


def stop_renewing(store: PostgresStore) -> None:
    """As if the process were frozen, or cut off."""
    store._leases.keep = lambda claim: claim  # type: ignore[method-assign]


async def ask(address: str, query: str) -> Any:
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        cursor = await connection.execute(query)
        return await cursor.fetchall() if cursor.description else None


# -- claims and leases


async def test_a_claim_whose_log_is_gone_is_not_renewed(stores: Any) -> None:
    mine, other = stores
    log = await mine.begin(head(), ME)
    await asyncio.sleep(0.5)  # the thread has renewed it once
    del log
    await asyncio.sleep(2.5)
    assert (await other.find_run("r")).status == "interrupted"


async def test_a_run_is_claimed_elsewhere_only_when_its_lease_has_ended(stores: Any) -> None:
    mine, other = stores
    log = await mine.begin(head(), FAR)
    await asyncio.sleep(1.5)  # the lease is renewed
    with pytest.raises(JournalError, match="another-machine"):
        await other.claim("r", ME)
    assert (await other.find_run("r")).status == "running"
    mine._leases.let_go(log.claim)
    await asyncio.sleep(1.2)
    assert (await other.find_run("r")).status == "interrupted"
    assert (await other.claim("r", ME)).run == "r"


async def test_whoever_lost_its_claim_writes_no_row_and_its_result_is_found(stores: Any) -> None:
    frozen, successor = stores
    stop_renewing(frozen)
    old = await frozen.begin(head(), FAR)
    await old.append((INTENT, None), durable=True)
    await old.confirm("3.0")
    await asyncio.sleep(1.1)
    new = await successor.claim("r", ME, records=[(NoteRecord("", 0, "resumed", value=Resumption({})), None)])
    assert await new.find_late("3.0") is None
    with pytest.raises(TakenOver, match="taken over by another process"):
        await old.append((RESULT, b"\x00artifacts" * 500))
    late = await new.find_late("3.0")
    assert late.record == RESULT and late.body == b"\x00artifacts" * 500
    for write in (lambda: old.append((note("again"), None)), lambda: old.end("answered", {"type": "answered"}, {})):
        with pytest.raises(TakenOver):
            await write()
    await new.append((note("goes on"), None))
    assert [row.record.text for row in (await successor.read_rows("r"))[2:]] == ["goes on"]


async def test_nothing_begins_past_the_deadline_and_the_successor_knows_it(stores: Any) -> None:
    frozen, successor = stores
    stop_renewing(frozen)
    old = await frozen.begin(head(), FAR)
    await old.append((INTENT, None), durable=True)
    await asyncio.sleep(1.1)
    new = await successor.claim("r", ME)
    old.claim.is_lost = True  # a renewal tells that
    with pytest.raises(TakenOver):
        await old.confirm("3.0")
    late = await new.find_late("3.0")
    assert late is not None and late.record is None
    await new.append((INTENT, None), durable=True)  # begun again: the word of the first says nothing of this
    assert await new.find_late("3.0") is None


async def test_a_deadline_that_passed_waits_for_a_renewal(stores: Any) -> None:
    store, _ = stores
    log = await store.begin(head(), FAR)
    log.claim.deadline = 0.0
    begun = time.monotonic()
    await log.confirm("3.0")
    assert 0.01 < time.monotonic() - begun < 3 and log.claim.is_sure()


async def test_child_runs_belong_to_the_claim_of_the_run_at_the_top(stores: Any) -> None:
    frozen, successor = stores
    stop_renewing(frozen)
    parent = await frozen.begin(head(), FAR)
    caller = {"caller": ParentCall("r", "1.0:cab.0")}
    child = await frozen.begin(head("r-child", **caller), FAR, [(note("1"), None)])
    assert child.claim is parent.claim
    with pytest.raises(JournalError, match="is a child of run r"):
        await successor.claim("r-child", ME, force=True)
    await asyncio.sleep(1.1)
    assert {(await successor.find_run(run)).status for run in ("r", "r-child")} == {"interrupted"}
    top = await successor.claim("r", ME)
    taken = await successor.claim("r-child", ME, force=True)
    assert taken.claim is top.claim
    with pytest.raises(TakenOver):
        await child.append((note("late"), None))
    with pytest.raises(JournalError, match="taken over its parent"):
        parent.claim.is_lost = False
        await frozen.begin(head("r-other", **caller), FAR)
    await taken.append((note("2"), None))
    assert [row.record.text for row in await successor.read_rows("r-child")] == ["1", "2"]


async def test_many_appends_of_children_do_not_hold_up_renewals(stores: Any) -> None:
    store, other = stores
    parent = await store.begin(head(), FAR)
    caller = {"caller": ParentCall("r", "1.0:cab.0")}
    logs = [await store.begin(head(f"r-{n}", **caller), FAR) for n in range(8)]
    until = time.monotonic() + 3

    async def write(log: Any) -> int:
        count = 0
        while time.monotonic() < until:
            await log.append((note(str(count)), None))
            assert parent.claim.is_sure()
            count += 1
        return count

    counts = await asyncio.gather(*map(write, logs))
    assert min(counts) > 20
    with pytest.raises(JournalError):
        await other.claim("r", ME)


# -- lost answers and servers that go away


async def test_a_statement_whose_answer_was_lost_is_sent_again_and_stands_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, lose = PostgresStore(address, patience=5), database._do_in_time, [""]

    async def lossy(work: Any, connection: Any, seconds: float) -> Any:
        result = await real(work, connection, seconds)
        if lose[0] and lose[0] in work.__qualname__:
            lose[0] = ""
            raise psycopg.OperationalError("the connection is lost")
        return result

    monkeypatch.setattr(database, "_do_in_time", lossy)
    await store.info()
    lose[0] = "begin"
    log = await store.begin(head(), ME, [(note("0"), None)])
    for n in range(1, 4):
        lose[0] = "_send"
        await log.append((note(str(n)), None), durable=True)
    lose[0] = "_send"
    await log.end("waiting", {"type": "waiting"}, {})
    lose[0], number = "_try_claim", log.claim.number
    log = await store.claim("r", ME, rows=4, records=[(note("claimed"), None)])
    assert log.claim.number == number + 1 and not lose[0]
    lose[0] = "_send"
    await log.end("answered", {"type": "answered", "answer": "a"}, {})
    assert [row.record.text for row in await store.read_rows("r")] == ["0", "1", "2", "3", "claimed"]
    assert (await store.find_run("r")).status == "answered"
    with pytest.raises(RunExists, match="There is a run r already"):
        await store.begin(head(), ME)
    await store.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    shared_server()  # skips where there is none
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_run_goes_on_when_its_server_was_restarted(own_server: PostgresServer, how: signal.Signals) -> None:
    store = PostgresStore(own_server.new_journal(), patience=20)
    log = await store.begin(head(), ME)
    await log.append((note("before"), None), durable=True)
    own_server.stop(how)
    waiting = asyncio.ensure_future(log.append((note("while it was away"), None), durable=True))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    own_server.start()  # not in a thread, at whose end the system would stop it
    await waiting
    assert [row.record.text for row in await store.read_rows("r")] == ["before", "while it was away"]
    await store.close()


async def test_a_server_that_stays_away_is_named_and_nothing_is_lost(own_server: PostgresServer) -> None:
    store = PostgresStore(own_server.new_journal(), patience=0.3)
    log = await store.begin(head(), ME)
    own_server.stop()
    try:
        with pytest.raises(JournalError, match=r"The journal postgresql://.* can't be reached"):
            await log.append((note("1"), None))
    finally:
        own_server.start()  # not in a thread, at whose end the system would stop it
    await log.append((note("2"), None))
    assert [row.record.text for row in await store.read_rows("r")] == ["1", "2"]
    await store.close()


async def test_a_server_that_hangs_is_left_by_closing_the_connection(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.journal.postgres.log.WRITE_SECONDS", 0.3)
    store = PostgresStore(own_server.new_journal(), patience=20)
    log = await store.begin(head(), ME)
    blocked = await psycopg.AsyncConnection.connect(own_server.address)
    await blocked.execute("select pg_sleep(0)")
    (name,) = (await ask(own_server.address, f"select '{store._database.schema}'"))[0]
    await blocked.execute(f"lock table {name}.events in access exclusive mode")
    writing = asyncio.ensure_future(log.append((note("1"), None), durable=True))
    await asyncio.sleep(1.0)
    assert not writing.done()
    await blocked.close()
    await writing
    assert len(await store.read_rows("r")) == 1
    await store.close()


async def test_rows_that_a_server_has_lost_mark_the_journal_as_restored(address: str, stores: Any) -> None:
    store, _ = stores
    log = await store.begin(head(), ME)
    await log.append((note("1"), None), (note("2"), None))
    await ask(address, "delete from events where seq = 1")
    with pytest.raises(JournalError, match="has lost rows of run r"):
        await log.append((note("3"), None))
    assert (await store.info()).restored > 0


async def test_a_server_that_took_the_place_of_another_marks_the_journal_as_restored(address: str) -> None:
    store = PostgresStore(address)
    await store.begin(head(), GONE := f"{ME.split(':')[0]}:999999999:1:{':'.join(ME.split(':')[3:])}")
    assert (await store.info()).restored == 0 and GONE
    await ask(address, "update marks set value = split_part(value, '/', 1) || '/00000000' where name = 'server'")
    await store.close()
    assert (await store.info()).restored > 0
    resumed = NoteRecord("", 0, "resumed", value=Resumption({}))
    await store.claim("r", ME, records=[(resumed, None)])
    assert "another server took its place" in (await store.read_rows("r"))[-1].record.value.lost
    await store.close()


# -- errors in words


def use(address: str, what: str = "info") -> Any:
    """Return what a store says, and close it."""

    async def work() -> Any:
        store = PostgresStore(address)
        try:
            return await getattr(store, what)()
        finally:
            await store.close()

    return asyncio.run(work())


def fails(address: str, patience: float = 0.2) -> JournalError:
    async def use() -> None:
        store = PostgresStore(address, patience=patience)
        try:
            log = await store.begin(head(f"r{os.urandom(4).hex()}"), ME)
            await log.append((note("1"), None))
        finally:
            await store.close()

    with pytest.raises(JournalError) as why:
        asyncio.run(use())
    assert "hunter2" not in str(why.value) and why.value.hint
    return why.value


def test_each_fault_of_a_database_is_an_error_in_words(address: str) -> None:
    server = shared_server()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "can't be reached" in fails(f"postgresql://me:hunter2@127.0.0.1:{port}/postgres").message
    missing = fails(server.address.replace("postgres@", "postgres:hunter2@")[: -len("postgres")] + "no_such")
    assert "does not exist" in missing.message and "createdb" in missing.hint
    assert "takes no writes" in fails(f"{address}%20-cdefault_transaction_read_only%3Don").message
    assert "refused the user" in fails(address.replace("postgres@", "nobody:hunter2@")).message
    asyncio.run(ask(address.split("?")[0], "drop role if exists guest; create role guest login"))
    guest = server.address.replace("postgres@", "guest@") + "?options=-csearch_path%3Dhers"
    assert "does not permit" in fails(guest).message
    full = """create function no_space() returns trigger language plpgsql as
        $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$;
        create trigger no_space before insert on events for each row execute function no_space()"""
    use(address)
    asyncio.run(ask(address, full))
    assert "disk is full" in fails(address).message
    with pytest.raises(ConfigError, match="cannot be read") as why:
        PostgresStore("postgresql://me:hunter2@host:port:x/y?no_such=1")
    assert "hunter2" not in str(why.value)


def test_a_password_stands_nowhere(address: str) -> None:
    named = address.replace("postgres@", "postgres:hunter2@")
    store = open_store(named)
    agent = plait.Agent(model=plait.Scripted(["Final Answer: a"]), loop="react", journal=named)
    run = agent.run("q")
    shown = f"{store.place} {Journal.at(named)!r} {run!r} {use(named)}"
    assert "hunter2" not in shown and open_store(store.place) is store
    assert "hunter2" not in str(asyncio.run(ask(address, "select * from runs"))) + str(
        asyncio.run(ask(address, "select * from events"))
    )


class Pooler(threading.Thread):
    """Passes bytes on, and gives its own number for the server's process, as PgBouncer does."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.to, self.listener = port, socket.create_server(("127.0.0.1", 0))

    def run(self) -> None:
        client, server = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.to))
        threading.Thread(target=self.copy, args=(client, server), daemon=True).start()
        self.listener.close()
        read = b""
        while b"K\x00\x00\x00\x0c" not in read:
            read += server.recv(65536)
        at = read.index(b"K\x00\x00\x00\x0c") + 5
        client.sendall(read[:at] + struct.pack("!i", 77) + read[at + 4 :])
        self.copy(server, client)

    def copy(self, one: socket.socket, other: socket.socket) -> None:
        with one:
            while data := one.recv(65536):
                other.sendall(data)
            with suppress(OSError):
                other.shutdown(socket.SHUT_WR)


def test_a_connection_pooler_is_refused(address: str) -> None:
    pooler = Pooler(shared_server().port)
    pooler.start()
    address = address.replace(str(shared_server().port), str(pooler.listener.getsockname()[1]))
    assert "leads to a connection pooler" in fails(f"{address}&gssencmode=disable&sslmode=disable").message


def test_a_newer_schema_is_refused_unless_it_says_that_this_version_can_read_it(address: str) -> None:
    use(address)
    asyncio.run(ask(address, "update marks set value = '99' where name = 'version'"))
    use(address)
    asyncio.run(ask(address, "update marks set value = '99' where name = 'reader'"))
    assert "was written by a newer Plait (schema 99" in fails(address).message


def test_a_schema_that_was_brought_up_to_date_is_like_a_new_one(address: str) -> None:
    use(address)
    columns = "select table_name, column_name, data_type, column_default from information_schema.columns"
    columns += " where table_schema = current_schema() order by 1, 2"
    new = asyncio.run(ask(address, columns))
    asyncio.run(ask(address, "alter table runs drop column cancel"))
    asyncio.run(ask(address, "drop table live_texts, spending, reservations"))
    asyncio.run(ask(address, "update marks set value = '12' where name = 'version'"))
    assert use(address, "migrate") == (12, schema.VERSION)
    assert asyncio.run(ask(address, columns)) == new


def test_an_older_schema_is_brought_up_to_date_step_by_step(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(address)
    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 2)
    steps = {now + 1: "alter table runs add column a integer", now + 2: "alter table runs add column b integer"}
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    assert "plait journal migrate" in fails(address).hint
    assert use(address, "migrate") == (now, now + 2)
    assert use(address, "migrate") == (now + 2, now + 2)
    asyncio.run(ask(address, "select a, b from runs"))


# -- from one store to the other


async def test_a_journal_is_copied_with_its_runs_and_what_is_kept_about_them(tmp_path: Any, address: str) -> None:
    file, base = SqliteStore(tmp_path / "a.db"), PostgresStore(address)
    for run, status in (("a", "answered"), ("b", "failed"), ("c", "waiting")):
        log = await file.begin(head(run, user="ada"), ME, [(INTENT, None), (RESULT, b"body" * 1000)])
        caller = ParentCall(run, "1.0:cab.0")
        child = await file.begin(head(f"{run}-child", caller=caller), ME, [(note("x"), None)])
        await child.end("answered", {"type": "answered", "answer": "x"}, {})
        await log.end(status, {"type": status, "answer": "é"}, {"cost_usd": 0.5})
    await file.keep("rating", "a", "a", b'{"good":true}')
    assert await copy(file, base) == (4, ["c"], [])
    assert await copy(file, base) == (4, ["c"], [])
    assert structs.replace(await base.find_run("a"), n=1) == structs.replace(await file.find_run("a"), n=1)
    for run in ("a", "b", "a-child"):
        assert await base.read_rows(run) == await file.read_rows(run)
    assert [each.key for each in await base.list_kept("rating")] == ["a"]
    back = SqliteStore(tmp_path / "b.db")
    assert await copy(base, back) == (4, [], [])
    assert await back.read_rows("a") == await file.read_rows("a")
    await (await base.begin(head("d"), ME)).end("answered", {"type": "answered"}, {})
    await (await file.begin(head("d"), ME)).end("answered", {"type": "answered"}, {})
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("UPDATE events SET data = '{}' WHERE run = (SELECT n FROM runs WHERE id = 'a')")
    connection.commit()
    connection.close()
    gone = await file.begin(head("e"), ME)
    await file.begin(head("e-child", caller=ParentCall("e", "1.0:cab.0")), ME)  # it never ended
    await gone.end("answered", {"type": "answered"}, {})
    count, left, wrong = await copy(file, base)  # what is damaged, or in the way, hinders no other run
    assert (count, left) == (2, ["c", "e"])
    assert ["damaged: of run a" in wrong[0], "Another run d" in wrong[1], len(wrong)] == [True, True, 2]
    for each in (file, base, back):
        await each.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_one_program_has_the_same_trace_and_replay_in_both_stores(loop: str, tmp_path: Path, address: str) -> None:
    @plait.tool(idempotent=True)
    def fetch(key: str) -> str:
        """Fetch a value."""
        return f"value of {key}"

    @plait.tool
    def send(text: str) -> str:
        """Send a text."""
        return f"sent {text}"

    traces = []
    for journal in (tmp_path / "j.db", address):
        script = {phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[loop].items()}
        models = dict.fromkeys(script, plait.Scripted(script))
        agent = plait.Agent(loop, models=models, tools=[fetch, send], journal=journal)
        run = agent.run(QUESTION)
        assert (run.status, run.answer) == ("answered", ANSWER) and agent.replay(run).whole
        rows = [(row.record, row.body) for row in Journal.at(journal).rows(run.id)]
        # Which of parallel calls ends first, and what a planner starts then, is chance: the work is the same.
        named = [(type(it).__name__, getattr(it, "work", ""), body) for it, body in rows]
        traces.append(sorted(named, key=repr))
    assert traces[0] == traces[1] and len(traces[0]) > 8
