"""Attacks on the journal in PostgreSQL, each of which once succeeded: silent networks, odd texts, passwords."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from msgspec import structs

import plait
from plait.core import Call, Observation
from plait.core.errors import ConfigError, JournalError
from plait.journal import bodies
from plait.journal.postgres import database
from plait.journal.postgres.leases import TakenOver
from plait.journal.postgres.store import PostgresStore
from plait.journal.records import ResultRecord
from plait.journal.run_query import RunQuery
from postgres_server import shared_server
from test_postgres import FAR, INTENT, ME, RESULT, ask, head, note, stop_renewing


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


class Wire(threading.Thread):
    """Passes bytes on. Connections of an earlier `generation` are silent: nothing passes, and nothing ends them."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.to, self.generation, self.listener = port, 0, socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        while True:
            client, server = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.to))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(one, other, self.generation), daemon=True).start()

    def copy(self, one: socket.socket, other: socket.socket, generation: int) -> None:
        with one, suppress(OSError):
            while data := one.recv(65536):
                if generation == self.generation:
                    other.sendall(data)


async def test_only_the_last_process_that_began_a_call_says_what_became_of_it(address: str, stores: Any) -> None:
    frozen, successor = stores
    stop_renewing(frozen)
    called = structs.replace(INTENT, asked=Call("pay", {"n": "\0 and \ud800"}))  # functions for JSON would refuse it
    old = await frozen.begin(head(), FAR)
    await old.append((called, None), durable=True)
    await asyncio.sleep(1.1)
    new = await successor.claim("r", ME)
    await new.append((called, None), durable=True)  # its key was closed, so it is made again
    refused = ResultRecord("3.0", 1, "call", Observation("the key is closed", trouble="raised"))
    with pytest.raises(TakenOver):
        await old.append((refused, None))
    assert await new.find_late("3.0") is None
    await ask(address, "insert into late_results (run, key, claim, kind) select n, '3.0', claim, 'unstarted' from runs")
    late = await new.find_late("3.0")
    assert late is not None and late.record is None


async def test_rows_in_the_making_are_no_lost_rows(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = stores
    log = await store.begin(head(), ME)
    made, real, making = threading.Event(), bodies.encode, threading.Event()

    def encode(*given: Any) -> Any:
        making.set()
        made.wait(10)
        return real(*given)

    monkeypatch.setattr(bodies, "encode", encode)
    other = threading.Thread(target=lambda: log.buffer((RESULT, b"x")))
    other.start()
    making.wait(10)
    await log._write(None)  # as when the thread of the database has its turn meanwhile
    made.set()
    other.join()
    await log.append((note("goes on"), None))
    assert (await store.info()).restored == 0 and len(await store.read_rows("r")) == 2


async def test_a_run_that_waited_before_it_is_handed_back_stays_whole(stores: Any) -> None:
    store, _ = stores
    await store.submit(head(agent="a"))
    await store.take("default", {"a": "v"}, ME, 1)
    log = await store.begin(head(agent="a"), ME)
    await log.end("waiting", {"type": "waiting"}, {"steps": 3})
    log = await store.claim("r", ME)
    log.claim.is_taken = True  # whoever answered has died, and a worker took it
    await log.hand_back()
    assert (await store.find_run("r")).status == "queued" and await store.check() == []


async def test_whoever_waits_for_work_is_told_of_it(stores: Any) -> None:
    store, _ = stores
    await store.info()
    for make in (store.submit(head(agent="a")), None):
        waiting = asyncio.ensure_future(store.wait_for_work("default", 20))
        await asyncio.sleep(0.3)
        if make is not None:
            await make
        else:
            await store.take("default", {"a": "v"}, ME, 1)
            log = await store.begin(head(agent="a"), ME)
            await log.hand_back()
        await asyncio.wait_for(waiting, 5)


async def test_a_lease_outlives_a_network_that_went_silent(address: str) -> None:
    wire = Wire(shared_server().port)
    wire.start()
    store = PostgresStore(address.replace(str(shared_server().port), str(wire.port)), lease=2.0, patience=5)
    log = await store.begin(head(), FAR)
    await asyncio.sleep(0.8)  # the thread has its connection
    wire.generation += 1
    await asyncio.sleep(3.5)
    begun = time.monotonic()
    await log.confirm("3.0")
    assert time.monotonic() - begun < 4
    await store.close()


async def test_a_server_that_goes_silent_at_the_first_look_is_left(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "READ_SECONDS", 0.3)
    use_it = await psycopg.AsyncConnection.connect(address)
    await PostgresStore(address).info()
    await use_it.execute(f"lock table {PostgresStore(address)._database.schema}.marks in access exclusive mode")
    begun = time.monotonic()
    with pytest.raises(JournalError, match="no answer within"):
        await PostgresStore(address, patience=0.2).info()
    assert time.monotonic() - begun < 3
    await use_it.close()


async def test_the_clock_of_a_journal_is_no_clock_that_people_set(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = stores
    log = await store.begin(head(), ME)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    await log.append((note("1"), None))
    assert abs((await store.read_rows("r"))[0].at - real()) < 60


async def test_where_no_boot_is_named_only_the_lease_tells(stores: Any) -> None:
    store, other = stores
    await store.begin(head(), f"{ME.split(':')[0]}:999999999:0::")  # a machine with the same name, such as "app"
    assert (await other.find_run("r")).status == "running"
    with pytest.raises(JournalError, match="cannot tell whether it still runs"):
        await other.claim("r", ME)
    assert await other.is_holder_gone("app:1:0::") is None


async def test_a_long_body_gets_more_time(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = stores
    log = await store.begin(head(), ME)
    monkeypatch.setattr("plait.journal.postgres.log.WRITE_SECONDS", 0.05)
    await log.append((RESULT, os.urandom(10_000_000)))
    assert len((await store.read_rows("r"))[0].body) == 10_000_000


async def test_what_is_kept_about_one_run_hides_no_other(stores: Any) -> None:
    store, _ = stores
    await store.begin(head(label="x"), ME)
    await store.keep("result", "x", "r", rb'{"answer":"\u0000 \ud800 \\ud800","grade":{"mark":"right","why":"\u0000"}}')
    assert [row.grade and row.grade["mark"] for row in await store.list_runs()] == ["right"]
    assert len(await store.list_runs(RunQuery(grade="right"))) == 1 and not await store.list_runs(
        RunQuery(grade="wrong")
    )


async def test_a_deleted_run_leaves_the_queue(address: str, stores: Any) -> None:
    store, _ = stores
    await store.submit(head(agent="a"))
    await store.delete(["r"])
    assert await ask(address, "select * from queue") == []


@pytest.mark.parametrize(
    "text",
    ["//me:hun%zzter2@h/db", "//h/db?password=hun%zzter2", "//me:secret@hunter2@h/db", "//me:hunter2@h@h:x/db?b=1"],
)
def test_an_address_that_cannot_be_read_shows_no_password(text: str) -> None:
    with pytest.raises(ConfigError, match="address cannot be read") as why:
        PostgresStore(f"postgresql:{text}")
    assert "ter2" not in str(why.value)


def test_two_databases_never_share_a_store() -> None:
    pairs = ["?service=a", "?service=b"], ["/d?hostaddr=10.0.0.1", "/d?hostaddr=10.0.0.2"], ["a%40b@h/d", "a@b/d"]
    for one, other in pairs:
        places = [PostgresStore(f"postgresql://{each}").place for each in (one, other)]
        assert places[0] != places[1] and [PostgresStore(each).place for each in places] == places
    for search_path in ("Team", "a%2Cb", "%22x%22"):
        with pytest.raises(ConfigError, match="no schema that can be used"):
            PostgresStore(f"postgresql://h/d?options=-csearch_path%3D{search_path}")


def test_an_agent_shows_no_password_of_its_journal() -> None:
    for address in (
        "postgresql://me:hunter2@h/d",
        "postgresql://h/d?password=hunter2",
        "postgresql://me:a@hunter2@h/d",
    ):
        agent = plait.Agent(model="scripted:x", journal=address)
        assert "hunter2" not in repr(agent) + agent._repr_html_()
        with pytest.raises(ConfigError, match="can't be pickled"):
            pickle.dumps(agent)


async def test_odd_names_of_queues_are_errors_in_words(address: str) -> None:
    agent = plait.Agent(model="scripted:x", name="a", journal=address)
    for name in ("\0", "\ud800", "", "x" * 9000):
        with pytest.raises(ConfigError, match="can't be a queue's name"):
            await agent.asubmit("q", queue=name)
    assert await agent.asubmit("q", queue="x" * 200)


async def test_one_process_takes_no_live_run_from_itself_by_another_address(stores: Any) -> None:
    one, other = stores
    log = await one.begin(head(), ME)
    with pytest.raises(JournalError, match="in this very process"):
        await other.claim("r", ME)
    await log.append((note("goes on"), None))
    del log
    await other.claim("r", ME)  # it was left behind
