"""What docs/deploy.md promises: metrics and health of workers, roles of the database, and the files to copy."""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

import plait
from plait.core import File
from plait.core.errors import ConfigError, JournalError
from plait.journal.open_questions import find_open_questions
from plait.journal.owner import owner_of_this_process
from plait.journal.postgres.begin import FILES_GATE
from plait.journal.postgres.store import PostgresStore
from plait.journal.store import Journal, open_store
from plait.models.base import Abilities
from plait.server.metrics import ProcessMetrics, serve_status
from plait.workers import QueueWorker
from postgres_server import find_binaries, shared_server
from test_workers import Fleet, make_agent, until

PAGE = Path(__file__).parent.parent / "docs" / "deploy.md"


@pytest.fixture
def address() -> str:
    return shared_server().new_journal()


@pytest.fixture
async def store(address: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore.at(address)
    yield made
    await made.close()


def read_metrics(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and values of their labels."""
    families = text_string_to_metric_families(text)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


async def collect(store: Any) -> dict[tuple[str, ...], float]:
    families = await asyncio.to_thread(lambda: list(ProcessMetrics(store).registry.collect()))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# -- metrics


async def test_the_queue_is_counted_by_state(address: str, store: PostgresStore) -> None:
    agent = make_agent(address)
    await agent.asubmit("delayed", at=time.time() + 600)
    for name in ("first", "second"):
        await agent.asubmit(name, session="s")
    ready = await agent.asubmit("ready", queue="other")
    blocked, died, unlucky = [await agent.using(name="b").asubmit(name) for name in ("blocked", "died", "unlucky")]
    taken = {row.head.run for row in await store.take("default", {"b": "v1"}, owner_of_this_process(), 9)}
    assert taken == {blocked, died, unlucky}
    await store.block(blocked, "v1", "its tool is gone")
    running = await agent.using(name="c").asubmit("running")
    await store.take("default", {"c": "v1"}, owner_of_this_process(), 1)

    @plait.tool
    def pay() -> str:
        """Pay."""
        return "paid"

    calls = plait.Scripted([{"calls": [{"name": "pay", "input": {}}]}])
    asking = make_agent(address, approve="always", tools=[pay], name="d", model=calls)
    waiting = await asking.asubmit("waiting")
    worker = QueueWorker({"d": asking}, store)
    working = asyncio.ensure_future(worker.work())

    async def waits() -> bool:
        return (await store.find_run(waiting)).status == "waiting"

    await until(waits)
    worker.drain()
    await working
    async with await psycopg.AsyncConnection.connect(store._database.conninfo, autocommit=True) as connection:
        late = "status = 'running', lease_until = clock_timestamp() - interval '90 s', claim = claim + 1"
        await connection.execute(f"update runs set {late} where id = any (%s)", ([died, unlucky],))
        ten = "update queue set tries = 10 where run = (select n from runs where id = %s)"
        await connection.execute(ten, (unlucky,))
        await connection.execute("update runs set updated = updated - 500 where id = %s", (ready,))
        await connection.execute("update queue set not_before = not_before - interval '300 s'")
        held = "update runs set lease_until = clock_timestamp() + interval '8 s', claim = claim + 1 where id = %s"
        await connection.execute(held, (running,))
    found = await collect(store)
    counts = {each[1:]: value for each, value in found.items() if each[0] == "plait_queue_runs"}
    assert counts == {
        ("default", "delayed"): 1,
        ("default", "ready"): 1,
        ("default", "turn"): 1,
        ("default", "blocked"): 2,
        ("default", "running"): 1,
        ("default", "waiting"): 1,
        ("default", "interrupted"): 1,
        ("other", "ready"): 1,
    }
    age = {each[1:]: value for each, value in found.items() if each[0] == "plait_queue_age_seconds"}
    assert 300 <= age["other", "ready"] < 330 and 90 <= age["default", "interrupted"] < 120
    assert 12 <= age["default", "running"] < 20 and age["default", "delayed"] == 0
    assert found["plait_journal_up",] == 1


async def test_many_who_read_metrics_ask_the_database_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = PostgresStore.count_queue

    async def count(self: PostgresStore) -> Any:
        asked.append(1)
        return await real(self)

    monkeypatch.setattr(PostgresStore, "count_queue", count)
    metrics = ProcessMetrics(store)
    assert asked == []
    await asyncio.gather(*(asyncio.to_thread(list, metrics.registry.collect()) for _ in range(5)))
    assert asked == [1]


async def test_metrics_are_there_without_the_database_and_on_a_file(tmp_path: Path) -> None:
    found = await collect(PostgresStore("postgresql://nobody@127.0.0.1:1/none"))
    assert found["plait_journal_up",] == 0 and found["plait_runs_running",] == 0
    await plait.Agent("react", model=plait.Scripted(["Final Answer: 1"]), journal=tmp_path / "j.db").arun("q")
    found = await collect(open_store(tmp_path / "j.db"))
    assert not [each for each in found if each[0].startswith(("plait_queue", "plait_journal"))]
    assert found["plait_steps_total", "request"] >= 1


async def test_a_worker_counts_what_it_takes_over_and_says_whether_it_takes_work(
    address: str, store: PostgresStore, tmp_path: Path
) -> None:
    fleet, port = Fleet(tmp_path, address), free_port()
    await make_agent(address, name="payer").asubmit("q")
    url = f"http://127.0.0.1:{port}"

    async def has_paid() -> bool:
        return len(fleet.read_ledger()) >= 1

    async def has_ended() -> bool:
        return (await store.find_run("last")).status == "answered"

    async def is_ready() -> bool:
        return (await asyncio.to_thread(fetch, f"{url}/health"))[0] == 200

    try:
        fleet.start(PAY_SECONDS="0.3")
        await until(has_paid)
        fleet.processes[0].kill()
        second = fleet.start("--metrics", f"127.0.0.1:{port}")
        await until(has_ended)
        await until(is_ready)
        for query in ("", "?name[]=plait_takeovers_total"):
            status, text = await asyncio.to_thread(fetch, f"{url}/metrics{query}")
            assert status == 200 and read_metrics(text)["plait_takeovers_total",] == 1
        found = read_metrics((await asyncio.to_thread(fetch, f"{url}/metrics"))[1])
        assert found["plait_runs_total", "payer", "answered"] == 1 and found["plait_runs_running",] == 0
        assert found["plait_steps_total", "request"] >= 1
        await make_agent(address, name="payer").asubmit("long")
        await asyncio.sleep(0.1)
        second.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(second.wait, 20) == 0
    finally:
        fleet.stop()


async def test_a_run_that_was_handed_back_is_not_taken_over(address: str, store: PostgresStore) -> None:
    @plait.tool
    async def pay() -> str:
        """Pay."""
        await asyncio.sleep(0.3)
        return "paid"

    replies = [{"calls": [{"name": "pay", "input": {}}]}, {"answer": "done"}]
    agent = make_agent(address, tools=[pay], model=plait.Scripted(replies))
    run = await agent.asubmit("q")
    first, second = QueueWorker({"a": agent}, store), QueueWorker({"a": agent}, store)
    second.metrics = ProcessMetrics(store)
    working = asyncio.ensure_future(first.work())

    async def has_begun() -> bool:
        return any(row.record.key.startswith("1.") for row in await store.read_rows(run))

    async def has_ended() -> bool:
        return (await store.find_run(run)).status == "answered"

    await until(has_begun)
    first.drain()
    await working
    assert (await store.find_run(run)).status == "queued"
    working = asyncio.ensure_future(second.work())
    await until(has_ended)
    second.drain()
    await working
    samples = {each.name: each.value for each in next(iter(second.metrics.takeovers.collect())).samples}
    assert samples["plait_takeovers_total"] == 0


async def test_a_worker_that_drains_or_whose_database_is_away_is_not_healthy(store: PostgresStore) -> None:
    worker, port = QueueWorker({"a": make_agent(store.place)}, store), free_port()
    serve_status(worker, f"127.0.0.1:{port}")
    url = f"http://127.0.0.1:{port}/health"
    assert (await asyncio.to_thread(fetch, url))[0] == 503  # it has not looked yet
    working = asyncio.ensure_future(worker.work())

    async def is_ready() -> bool:
        return (await asyncio.to_thread(fetch, url))[0] == 200

    await until(is_ready)
    worker._looked -= 60  # as if the database were silent
    assert (await asyncio.to_thread(fetch, url))[0] == 503
    await until(is_ready)
    worker.drain()
    assert (await asyncio.to_thread(fetch, url))[0] == 503
    await working


@pytest.mark.parametrize("wrong", ["9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "no.such.host.invalid:1"])
async def test_an_address_that_cannot_be_listened_on_is_said(store: PostgresStore, wrong: str) -> None:
    worker = QueueWorker({"a": make_agent(store.place)}, store)
    with pytest.raises(ConfigError, match="--metrics"):
        serve_status(worker, wrong)


# -- retention


async def test_a_run_that_a_worker_left_behind_is_never_old(address: str, store: PostgresStore) -> None:
    agent = make_agent(address)
    run = await agent.asubmit("q")
    await store.take("default", {"a": "v1"}, owner_of_this_process(), 1)
    async with await psycopg.AsyncConnection.connect(store._database.conninfo, autocommit=True) as connection:
        await connection.execute("update runs set status = 'running', lease_until = null, owner = '', updated = 1")
    assert [row.status for row in await store.list_runs()] == ["interrupted"]
    assert await store.delete([run], skip_active=True) == 0
    assert len(await store.list_runs()) == 1


async def test_a_file_that_a_run_begins_with_right_now_is_not_removed(address: str) -> None:
    picture = File.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100), "a.png")
    model = plait.Scripted([{"answer": "a cat"}], abilities=Abilities(images=True))
    agent = plait.Agent("tool_calling", model=model, journal=address, name="a")
    store = PostgresStore.at(address)
    conninfo, other_run = store._database.conninfo, await make_agent(address).arun("q")
    await store.delete([(await agent.arun(["What is it?", picture])).id])
    async with await psycopg.AsyncConnection.connect(conninfo) as other:
        await other.execute(f"select pg_advisory_xact_lock_shared({FILES_GATE})")
        removing = asyncio.ensure_future(store.compact())
        await asyncio.sleep(0.3)
        assert not removing.done()
        its = (
            f"updated = extract(epoch from clock_timestamp()), head = replace(head, %s, %s) where id = '{other_run.id}'"
        )
        await other.execute(f"update runs set {its}", ('"q"', f'"{picture.attachment.digest}"'))
        await other.commit()
        await removing
        assert await store.read_contents([picture.attachment])
        # And a run with a file waits while some are removed.
        await other.execute(f"select pg_advisory_xact_lock({FILES_GATE})")
        beginning = asyncio.ensure_future(agent.arun(["And now?", picture]))
        await asyncio.sleep(0.3)
        assert len(await store.list_runs()) == 1
        await other.rollback()
        await store.delete([(await beginning).id])
        await other.execute("update runs set updated = 1, head = ''")
        await other.commit()
    await store.compact()
    async with await psycopg.AsyncConnection.connect(conninfo) as other:
        assert await (await other.execute("select count(*) from contents")).fetchone() == (0,)
    await store.close()


# -- restore


async def test_what_was_queued_before_a_backup_begins_only_when_a_user_says_so(
    address: str, store: PostgresStore
) -> None:
    agent = make_agent(address)
    run = await agent.asubmit("queued when the backup was made")
    await agent.asubmit("later", at=time.time() + 1.5)
    await agent.asubmit("nightly", every="0 0 1 1 *")
    async with await psycopg.AsyncConnection.connect(store._database.conninfo, autocommit=True) as connection:
        await connection.execute("update schedules set next = 1")  # its time came after the backup
    await store.mark_restored()
    assert await store.start_due() == 0 and (await store.list_schedules())[0].next > time.time()
    await agent.asubmit("submitted afterwards")
    mine = {"a": "v1"}, owner_of_this_process()
    assert [row.head.question for row in await store.take("default", *mine, 9)] == ["submitted afterwards"]
    assert [each.run for each in await store.list_queue() if "after the backup" in each.reason] == [run]
    assert (await collect(store))["plait_queue_runs", "default", "blocked"] == 1
    await asyncio.sleep(1.5)
    assert [row.head.question for row in await store.take("default", *mine, 9)] == ["later"]
    await store.unblock(run)
    assert [row.head.run for row in await store.take("default", *mine, 9)] == [run]


async def test_a_dump_made_while_workers_run_is_restored_and_repeats_nothing(tmp_path: Path) -> None:
    server, binaries = shared_server(), find_binaries()
    assert binaries is not None
    base, names = server.address.rpartition("/")[0], [f"{each}_{os.getpid()}" for each in ("dumped", "restored")]
    before, after = [f"{base}/{name}" for name in names]
    paid: list[str] = []

    @plait.tool
    async def pay(ctx: plait.Context[Any], n: int) -> str:
        """Pay."""
        if len(paid) == 2:  # the run goes on until the dump is made
            await dumped.wait()
        paid.append(f"{ctx.run_id} {n}")
        return "paid"

    dumped = asyncio.Event()
    replies = [*({"calls": [{"name": "pay", "input": {"n": n}}]} for n in range(4)), {"answer": "done"}]
    admin = psycopg.connect(server.address, autocommit=True)
    try:
        for name in names:
            admin.execute(f"create database {name}")
        agent = make_agent(before, tools=[pay], model=plait.Scripted(replies))
        store = PostgresStore.at(before)
        runs = [await agent.asubmit("q"), await agent.asubmit("q")]
        worker = QueueWorker({"a": agent}, store, concurrency=1)
        working = asyncio.ensure_future(worker.work())

        async def has_paid() -> bool:
            return len(paid) >= 2

        async def all_answered() -> bool:
            return all(row.status == "answered" for row in await store.list_runs())

        await until(has_paid)
        dump = tmp_path / "plait.dump"
        command = [binaries / "pg_dump", "--format=custom", "--schema=plait", f"--file={dump}", before]
        await asyncio.to_thread(subprocess.run, command, check=True)
        dumped.set()
        await until(all_answered)
        worker.drain()
        await working
        await store.close()
        command = [binaries / "pg_restore", f"--dbname={after}", dump]
        await asyncio.to_thread(subprocess.run, command, check=True)
        store = PostgresStore.at(after)
        assert await store.mark_restored() == 2 and await store.check() == []
        async with await psycopg.AsyncConnection.connect(after, autocommit=True) as connection:
            await connection.execute("update plait.runs set lease_until = null")  # as after 20 seconds
        restored = agent.using(journal=after)
        worker = QueueWorker({"a": restored}, store)
        working = asyncio.ensure_future(worker.work())

        async def waits() -> bool:
            return (await store.find_run(runs[0])).status == "waiting"

        await until(waits)
        worker.drain()
        await working
        assert len(paid) == 8  # as before the dump was restored: nothing is repeated
        assert (await store.find_run(runs[1])).status == "queued"
        asked = (await find_open_questions(store, runs[0]))[0].question
        await restored.aresume(runs[0], "yes", question=asked)
        assert len(paid) == 9
        await store.close()
    finally:
        for name in names:
            admin.execute(f"drop database if exists {name} with (force)")
        admin.close()


# -- the page


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```", PAGE.read_text(), re.M | re.S)


async def test_a_worker_needs_no_more_rights_than_the_page_gives(tmp_path: Path) -> None:
    server = shared_server()
    database = f"deploy_{os.getpid()}"
    admin = psycopg.connect(server.address, autocommit=True)
    admin.execute(f"create database {database}")
    admin.execute(f"create role plait login; alter database {database} owner to plait")
    superuser = server.address.rpartition("/")[0] + f"/{database}"
    owner, plain = (superuser.replace("postgres@", f"{role}@") for role in ("plait", "plait_worker"))
    try:
        await make_agent(owner).arun("makes the tables")
        with psycopg.connect(superuser, autocommit=True) as connection:
            [block] = blocks("sql")
            connection.execute(block)
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute("create table plait.of_a_later_version (n int)")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("insert into plait.of_a_later_version values (1)")
        agent = make_agent(plain)
        store = PostgresStore.at(plain)
        picture = File.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100), "a.png")
        seeing = agent.using(model=plait.Scripted([{"answer": "1"}], abilities=Abilities(images=True)))
        run = await seeing.asubmit(["What?", picture])
        worker = QueueWorker({"a": seeing}, store)
        working = asyncio.ensure_future(worker.work())

        async def done() -> bool:
            return (await store.find_run(run)).status == "answered"

        await until(done)
        worker.drain()
        await working
        assert (await collect(store))["plait_journal_up",] == 1
        await asyncio.to_thread(Journal(store=store).run, run)
        with pytest.raises(JournalError, match="permission denied"):
            await store.delete([run])
        with psycopg.connect(plain) as connection:
            for forbidden in (
                "drop table plait.runs",
                "create table plait.x (n int)",
                "truncate plait.events",
                "update plait.events set data = ''",
                "delete from plait.events",
                "delete from plait.late_results",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(forbidden)
                connection.rollback()
        await store.close()
        assert await PostgresStore.at(owner).delete([run]) == 1
        await PostgresStore.at(owner).compact()
        await PostgresStore.at(owner).close()
    finally:
        admin.execute(f"drop database {database} with (force)")
        admin.execute("drop role if exists plait_worker, plait")
        admin.close()


def test_the_files_of_the_page_can_be_read() -> None:
    for text in blocks("ini"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(text)
        assert {"Unit", "Service", "Install"} <= set(unit.sections())
    yaml = pytest.importorskip("yaml")
    [compose] = [yaml.safe_load(text) for text in blocks("yaml") if "services:" in text]
    names = set(compose["services"])
    for service in compose["services"].values():
        assert set(service.get("depends_on", ())) <= names
        assert {each.partition(":")[0] for each in service.get("volumes", ())} <= set(compose["volumes"])
