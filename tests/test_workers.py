"""Workers: runs wait in a queue, are taken once, handed back, and continued elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import Waiting
from plait.core.errors import ConfigError, JournalError, UnknownRun
from plait.core.events import Answer, Asked, Began
from plait.journal.open_questions import read_questions
from plait.journal.owner import owner_of_this_process
from plait.journal.postgres.log import PostgresLog
from plait.journal.postgres.store import PostgresStore
from plait.journal.queue import QueueLimits
from plait.journal.redaction import redact_with
from plait.journal.row_codec import Bodies
from plait.journal.schedules import next_time
from plait.journal.store import Journal
from plait.server.auth import Caller
from plait.server.service import EventFollower
from plait.view.live_texts import LiveTexts
from plait.workers import QueueWorker, hand_over, version_of
from postgres_server import shared_server

ME = owner_of_this_process()
HERE = Path(__file__).parent


def make_agent(journal: str, **changes: Any) -> plait.Agent[Any, Any]:
    return plait.Agent(
        model=plait.Scripted([{"answer": "done"}]), loop="tool_calling", journal=journal, name="a"
    ).using(**changes)


@pytest.fixture
def address() -> str:
    return shared_server().new_journal()


@pytest.fixture
async def store(address: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore.at(address)
    yield made
    await made.close()


async def work_until(worker: QueueWorker, done: Callable[[], Any]) -> None:
    """Let a worker work until something holds, for at most 20 seconds."""
    working = asyncio.ensure_future(worker.work())
    for _ in range(400):
        if working.done() or await done():
            break
        await asyncio.sleep(0.05)
    worker.drain()
    await working


async def ids(store: PostgresStore, count: int = 100, queue: str = "default", **limits: Any) -> list[str]:
    taken = await store.take(queue, {"a": "v1"}, ME, count, QueueLimits(**limits))
    return [row.head.question for row in taken]


# -- taking


async def test_runs_are_taken_once_by_priority_and_time(address: str, store: PostgresStore) -> None:
    agent = make_agent(address)
    for name, more in (("1", {}), ("2", {"priority": 5}), ("3", {}), ("later", {"at": time.time() + 60})):
        await agent.asubmit(name, **more)
    await agent.using(name="other").asubmit("of another agent")
    await agent.asubmit("elsewhere", queue="slow")
    assert sorted(await ids(store, 2)) == ["1", "2"]
    assert await ids(store) == ["3"] and await ids(store) == []
    assert await ids(store, queue="slow") == ["elsewhere"]
    waiting = {each.run: each for each in await store.list_queue()}
    assert sorted(each.status for each in waiting.values()) == ["queued"] * 2 + ["running"] * 4


async def test_many_who_take_at_once_never_take_the_same(address: str, store: PostgresStore) -> None:
    agent = make_agent(address)
    await asyncio.gather(*(agent.asubmit(str(n)) for n in range(60)))
    taken = await asyncio.gather(*(ids(store, 5) for _ in range(20)))
    assert Counter(each for some in taken for each in some) == Counter(str(n) for n in range(60))


@pytest.mark.parametrize("limits", [{"runs": 7}, {"of_user": 2}, {"runs": 5, "of_user": 2}])
async def test_limits_hold_over_all_workers(address: str, store: PostgresStore, limits: dict[str, int]) -> None:
    agent = make_agent(address)
    await asyncio.gather(*(agent.asubmit(f"{user} {n}", user=user) for n in range(6) for user in ("ada", "bob", "cid")))
    await asyncio.gather(*(agent.asubmit(f"nobody {n}") for n in range(4)))
    taken = await asyncio.gather(*(ids(store, 3, **limits) for _ in range(20)))
    users = Counter(each.split()[0] for some in taken for each in some)
    most = limits.get("runs", 10)
    assert sum(users.values()) == most
    assert all(count <= limits.get("of_user", 99) for user, count in users.items() if user != "nobody")


async def test_turns_of_a_session_begin_one_after_the_other(address: str, store: PostgresStore) -> None:
    agent = make_agent(address)
    for n in range(3):
        await agent.asubmit(f"turn {n}", session="trip")
    await agent.asubmit("free")
    assert sorted(await ids(store)) == ["free", "turn 0"]
    assert await ids(store) == []


async def test_the_turns_of_a_session_see_those_before(address: str, store: PostgresStore) -> None:
    agent = make_agent(address, model=plait.Scripted(lambda think: str(len(think.messages))))
    for n in range(3):
        await agent.asubmit(f"turn {n}", session="trip")

    async def done() -> bool:
        return [row.status for row in await store.list_runs()] == ["answered"] * 3

    await work_until(QueueWorker({"a": agent}, store), done)
    turns = await store.list_turns("trip")
    assert [each.question for each in turns] == ["turn 0", "turn 1", "turn 2"]
    sizes = [int(each.answer or 0) for each in turns]
    assert sizes[0] < sizes[1] < sizes[2]


# -- performing


async def test_a_submitted_run_is_performed_with_its_words_and_files(address: str, store: PostgresStore) -> None:
    agent = make_agent(address)
    letter = plait.attach(b"Dear Ada, the code is 4711.", name="letter.txt")
    about = {"user": "ada", "tags": ["x"], "metadata": {"k": 1}, "label": "mine"}
    run = await agent.asubmit(["What is in it?", letter], **about)
    queued = await store.find_run(run)
    assert queued.status == "queued" and queued.head.agent == "a"

    async def done() -> bool:
        return (await store.find_run(run)).status == "answered"

    await work_until(QueueWorker({"a": agent}, store), done)
    row = await store.find_run(run)
    assert row.status == "answered" and row.head.user == "ada" and row.head.tags == ("x",)
    assert row.head.metadata == {"k": 1} and row.head.label == "mine" and await store.list_queue() == []
    sent = [row.body for row in await store.read_rows(run) if row.body]
    assert b"4711" in sent[0]
    assert agent.replay(run).whole


async def test_a_run_that_this_version_cannot_perform_is_left_with_the_reason(
    address: str, store: PostgresStore
) -> None:
    broken = make_agent(address, model="openai:no-such-model")
    run = await make_agent(address).asubmit("q")
    worker = QueueWorker({"a": broken}, store)

    async def blocked() -> bool:
        return any(each.reason for each in await store.list_queue())

    await work_until(worker, blocked)
    (left,) = await store.list_queue()
    assert left.run == run and left.status == "queued" and "OPENAI_API_KEY" in left.reason and left.tries == 1

    async def nothing() -> bool:
        await asyncio.sleep(1.5)
        return True

    await work_until(QueueWorker({"a": broken}, store), nothing)
    assert (await store.list_queue())[0].tries == 1  # the same version does not take it again
    await store.unblock(run)
    await work_until(QueueWorker({"a": broken}, store), blocked)
    assert (await store.list_queue())[0].tries == 1

    async def done() -> bool:
        return (await store.find_run(run)).status == "answered"

    await work_until(QueueWorker({"a": make_agent(address)}, store), done)
    assert (await store.find_run(run)).status == "answered"


async def test_a_run_that_has_not_begun_is_neither_resumed_nor_replayed_nor_deleted_as_old(
    address: str, store: PostgresStore
) -> None:
    agent = make_agent(address)
    run = await agent.asubmit("q")
    for use in (agent.aresume(run), agent.afork(run, 1), asyncio.to_thread(agent.replay, run)):
        with pytest.raises(ConfigError, match="waits in a queue and has not begun"):
            await use
    assert await asyncio.to_thread(list, Journal(store=store).old_runs()) == []
    await store.delete([run])
    assert await store.list_queue() == [] and await ids(store) == []


async def test_what_cannot_be_queued_is_said(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without a name"):
        await make_agent(address).using(name="").asubmit("q")
    with pytest.raises(ConfigError, match="is a file, and has no queue"):
        await make_agent(address).using(journal=tmp_path / "j.db").asubmit("q")
    for odd in (
        {"priority": 10**400},
        {"priority": -(1 << 31)},
        {"at": 1e300},
        {"at": float("nan")},
        {"queue": "a\0b"},
    ):
        with pytest.raises(ConfigError, match=r"queue's name|priority|no time"):
            await make_agent(address).asubmit("q", **odd)


async def test_a_worker_that_drains_hands_its_runs_back_and_another_goes_on(address: str, store: PostgresStore) -> None:
    paid: list[int] = []
    first = asyncio.Event()

    @plait.tool
    async def pay(n: int) -> str:
        first.set()
        await asyncio.sleep(0.2)
        paid.append(n)
        return "paid"

    replies = [{"calls": [{"name": "pay", "input": {"n": n}}]} for n in range(4)]
    agent = make_agent(address, tools=[pay], model=plait.Scripted([*replies, {"answer": "done"}]))
    run = await agent.asubmit("q")
    worker = QueueWorker({"a": agent}, store)
    working = asyncio.ensure_future(worker.work())
    await first.wait()
    worker.drain()
    await working
    row = await store.find_run(run)
    assert row.status == "queued" and row.owner == "" and paid == [0]  # the call that had begun is on the record

    async def done() -> bool:
        return (await store.find_run(run)).status == "answered"

    await work_until(QueueWorker({"a": agent}, store), done)
    assert paid == [0, 1, 2, 3] and (await store.find_run(run)).status == "answered"
    assert agent.replay(run).whole


async def test_a_run_whose_tool_is_gone_stays_in_the_queue_for_a_version_that_has_it(
    address: str, store: PostgresStore
) -> None:
    paying = asyncio.Event()

    @plait.tool
    async def pay(n: int) -> str:
        paying.set()
        return "paid"

    replies = [{"calls": [{"name": "pay", "input": {"n": 1}}]}, {"answer": "done"}]
    agent = make_agent(address, tools=[pay], model=plait.Scripted(replies, delay=0.2))
    run = await agent.asubmit("q")
    worker = QueueWorker({"a": agent}, store)
    working = asyncio.ensure_future(worker.work())
    await paying.wait()
    worker.drain()
    await working

    async def blocked() -> bool:
        return any(each.reason for each in await store.list_queue())

    await work_until(QueueWorker({"a": make_agent(address)}, store), blocked)
    assert "differs from its record" in (await store.list_queue())[0].reason
    listed = subprocess.run([sys.executable, "-m", "plait", "queue", "--journal", address], capture_output=True)
    assert len(listed.stdout.splitlines()) == 2 and b"differs from its record" in listed.stdout
    assert await asyncio.to_thread(list, Journal(store=store).old_runs()) == []
    # Who follows it over HTTP learns why, in one line, and goes on to the end.
    follower = EventFollower(store, await store.find_run(run), Caller(full=True), True)
    told, is_over = await follower.read_events()
    queued = json.loads(told.decode().rpartition("event: interrupted\ndata: ")[2])["queued"]
    assert not is_over and "differs from its record" in queued["reason"] and "\n" not in queued["reason"]

    async def done() -> bool:
        return (await store.find_run(run)).status == "answered"

    await work_until(QueueWorker({"a": agent}, store), done)
    told, is_over = await follower.read_events()
    assert b"event: answered" in told and is_over
    assert (await store.find_run(run)).status == "answered" and await store.check() == []


async def test_a_worker_leaves_what_it_could_not_begin_to_others(address: str) -> None:
    store = PostgresStore(address, lease=1.0)
    letter = plait.attach(b"Dear Ada", name="letter.txt")
    run = await make_agent(address).asubmit(["q", letter])

    async def change(statement: str) -> None:
        await store._database.execute(statement, ())

    async def tried() -> bool:
        return any("letter.txt" in each.reason for each in await store.list_queue())

    await change("alter table contents rename to elsewhere; create table contents (digest text, body bytea)")
    await work_until(QueueWorker({"a": make_agent(address)}, store), tried)
    await change("drop table contents; alter table elsewhere rename to contents")

    async def done() -> bool:
        return (await store.find_run(run)).status == "answered"

    await work_until(QueueWorker({"a": make_agent(address)}, store), done)
    assert (await store.find_run(run)).status == "answered"
    await store.close()


async def test_a_worker_goes_on_with_its_own_runs_when_the_journal_failed_meanwhile(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, paid = PostgresStore(address, lease=1.0), list[int]()
    real = PostgresLog._send

    async def fail(log: PostgresLog, rows: Any, ending: Any) -> None:
        if paid == [0] and not log.claim.is_lost:
            raise JournalError("The journal is away.")
        await real(log, rows, ending)

    @plait.tool
    async def pay(n: int) -> str:
        paid.append(n)
        return "paid"

    replies = [{"calls": [{"name": "pay", "input": {"n": n}}]} for n in range(2)]
    agent = make_agent(address, tools=[pay], model=plait.Scripted([*replies, {"answer": "done"}]))
    run = await agent.asubmit("q")

    async def left() -> bool:
        return any(each.reason for each in await store.list_queue())

    monkeypatch.setattr(PostgresLog, "_send", fail)
    await work_until(QueueWorker({"a": agent}, store), left)
    assert (await store.list_queue())[0].reason == "The journal is away."
    monkeypatch.setattr(PostgresLog, "_send", real)

    async def done() -> bool:
        return (await store.find_run(run)).status == "answered"

    await work_until(QueueWorker({"a": agent}, store), done)
    assert (await store.find_run(run)).status == "answered" and paid == [0, 1]
    await store.close()


async def test_child_runs_that_were_handed_back_go_on_in_the_same_process_too(
    address: str, store: PostgresStore
) -> None:
    paid, paying = list[int](), asyncio.Event()

    @plait.tool
    async def pay(n: int) -> str:
        paying.set()
        await asyncio.sleep(0.1)
        paid.append(n)
        return "paid"

    replies = [{"calls": [{"name": "pay", "input": {"n": n}}]} for n in range(3)]
    child = make_agent(address, tools=[pay], model=plait.Scripted([*replies, {"answer": "done"}]))
    ask = {"calls": [{"name": "child", "input": {"question": "pay"}}]}
    tool = child.as_tool("child", "Pays.")
    agent = make_agent(address, tools=[tool], model=plait.Scripted([ask, {"answer": "done"}]))
    run = await agent.asubmit("q")
    worker = QueueWorker({"a": agent}, store)
    working = asyncio.ensure_future(worker.work())
    await paying.wait()
    worker.drain()
    await working
    assert paid == [0]

    async def done() -> bool:
        return (await store.find_run(run)).status == "answered"

    await work_until(QueueWorker({"a": agent}, store), done)
    assert (await store.find_run(run)).status == "answered" and paid == [0, 1, 2]


async def test_a_turn_that_waits_for_the_one_before_says_so(address: str, store: PostgresStore) -> None:
    first = await make_agent(address).asubmit("1", session="trip")
    await make_agent(address).asubmit("2", session="trip")
    assert [each.reason for each in await store.list_queue()] == [
        "",
        f"waits for the turn before, run {first} (queued)",
    ]


async def test_a_run_is_cancelled_in_the_queue_while_it_waits_and_while_a_worker_performs_it(
    address: str, store: PostgresStore
) -> None:
    @plait.tool
    async def wait() -> str:
        """Waits."""
        await asyncio.sleep(60)
        return "waited"

    recorded = plait.open_journal(address)
    script = plait.Scripted([{"calls": [{"name": "wait", "input": {}}]}, {"answer": "done"}])
    agent = make_agent(address, model=script, tools=[wait])
    asking = make_agent(address, name="asks", model=script, tools=[wait], approve="effects")
    going, queued = await agent.asubmit("a"), await agent.asubmit("b", queue="other")
    waiting = (await asking.arun("c")).id
    worker = QueueWorker({"a": agent}, store)

    async def cancelled() -> bool:
        row = await store.find_run(going)
        if row.status == "running" and (await store.read_rows(going)):
            for run in (going, queued, waiting):
                await recorded.acancel(run, "enough")
        return row.status == "cancelled"

    await work_until(worker, cancelled)
    for run in (going, queued, waiting):
        row = await store.find_run(run)
        assert (row.status, (row.outcome or {}).get("reason")) == ("cancelled", "enough")
    assert await store.list_queue() == []
    with pytest.raises(ConfigError, match="was cancelled in its queue and has not begun"):
        await agent.aresume(queued)


async def test_whoever_performs_a_run_that_is_cancelled_elsewhere_is_told_so(
    address: str, store: PostgresStore
) -> None:
    agent = make_agent(address, model=plait.Scripted([{"answer": "late"}], delay=60))
    performing = asyncio.ensure_future(agent.arun("q", run_id="r"))

    async def goes_on() -> bool:
        return bool(await store.list_runs())

    await until(goes_on)
    await plait.open_journal(address).acancel("r", "enough")
    run = await performing
    assert (run.status, run.reason) == ("cancelled", "enough")
    assert (await store.find_run("r")).status == "cancelled"
    await plait.open_journal(address).acancel("r")  # again: it is


async def test_an_answer_to_a_run_that_is_cancelled_meanwhile_does_not_wait_for_ever(
    address: str, store: PostgresStore
) -> None:
    @plait.tool
    def send() -> str:
        """Sends."""
        return "sent"

    script = plait.Scripted([{"calls": [{"name": "send", "input": {}}]}, {"answer": "done"}])
    agent = make_agent(address, model=script, tools=[send], approve="effects")
    run = await agent.asubmit("q")

    async def waits() -> bool:
        return (await store.find_run(run)).status == "waiting"

    await work_until(QueueWorker({"a": agent}, store), waits)
    question = ((await store.find_run(run)).outcome or {})["question"]
    await plait.open_journal(address).acancel(run)
    with pytest.raises(JournalError, match="cancelled while it was answered"):
        await hand_over(agent, run, "yes", question, "bob")
    assert (await store.find_run(run)).status == "cancelled"
    assert [each.by for each in await read_questions(store, run)] == ["bob"]
    assert (await agent.aresume(run)).status == "answered"


async def test_a_run_that_has_had_a_child_run_is_cancelled_too(address: str, store: PostgresStore) -> None:
    child = make_agent(address, name="child").as_tool("ask_child", "Asks.")

    @plait.tool
    async def wait() -> str:
        """Waits."""
        await asyncio.sleep(20)
        return "waited"

    calls = [
        {"calls": [{"name": name, "input": given}]} for name, given in (("ask_child", {"question": "?"}), ("wait", {}))
    ]
    agent = make_agent(address, model=plait.Scripted([*calls, {"answer": "done"}]), tools=[child, wait])
    performing = asyncio.ensure_future(agent.arun("q", run_id="r"))

    async def waits() -> bool:
        rows = await store.read_rows("r") if await store.list_runs() else []
        return any(getattr(row.record, "key", "") == "3.0" for row in rows)

    await until(waits)
    await plait.open_journal(address).acancel("r", "enough")
    run = await asyncio.wait_for(performing, 15)
    assert (run.status, run.reason) == ("cancelled", "enough")


async def test_a_cancellation_that_its_process_did_not_live_to_see_is_not_for_a_run_that_was_resumed(
    address: str, store: PostgresStore
) -> None:
    other = PostgresStore(address, lease=0.5)
    agent = make_agent(address, model=plait.Scripted([{"answer": "done"}], delay=0.5))
    _, head = await agent._runs.prepare_run("q", None, None, None, None, None, "r")
    log = await other.begin(head, "elsewhere:1:2")
    assert await other.ask_to_cancel("r", "enough")
    other._leases.let_go(log.claim)  # its process is gone

    async def is_left() -> bool:
        return (await store.find_run("r")).status == "interrupted"

    await until(is_left)
    assert (await agent.aresume("r")).status == "answered"
    await other.close()


async def test_others_are_shown_no_more_of_a_reply_than_the_record_will_have(
    address: str, store: PostgresStore
) -> None:
    agent = make_agent(address)
    _, head = await agent._runs.prepare_run("q", None, None, None, None, None, "r")
    log = await store.begin(head, ME, secrets=["sk-12345678"])
    await store.watch_texts(["r"])
    with LiveTexts(store).listen() as hear:
        for event in (Began("r", "q", "react"), Asked(1, "act", "m"), Answer(1, "The key is sk-12345678.")):
            hear(event)

        async def is_shown() -> bool:
            return "The key is" in (await store.watch_texts(["r"])).get("r", "")

        await until(is_shown)
        assert "The key is [secret]." in (await store.watch_texts(["r"]))["r"]
        redact_with(lambda text: text.replace("alice@example.org", "[email]"))
        try:
            hear(Answer(1, " Write to alice@exampl"))
            await asyncio.sleep(1.5)
        finally:
            redact_with(None)
        assert "alice" not in (await store.watch_texts(["r"]))["r"]
    await log.end("failed", {}, (await store.find_run("r")).totals)
    await store.delete(["r"])
    left = await store._database.do(lambda connection: connection.execute("select count(*) from live_texts"))
    assert await left.fetchone() == (0,)


async def test_turns_of_a_session_whose_name_is_redacted_begin_too(address: str, store: PostgresStore) -> None:
    redact_with(lambda text: text.replace("alice@example.org", "[email]"))
    try:
        for _ in range(2):
            turn = make_agent(address).arun("q", session="alice@example.org")
            assert (await asyncio.wait_for(turn, 10)).status == "answered"
    finally:
        redact_with(None)


async def test_a_run_that_another_process_goes_on_with_while_it_is_read_is_not_damaged(
    address: str, store: PostgresStore
) -> None:
    @plait.tool
    def send() -> str:
        """Sends."""
        return "sent"

    script = plait.Scripted([{"calls": [{"name": "send", "input": {}}]}, {"answer": "done"}])
    agent = make_agent(address, model=script, tools=[send], approve="effects")
    waits = await agent.arun("q", run_id="r")
    found = await store._find("r")
    assert isinstance(waits.outcome, Waiting)
    assert (await agent.aresume("r", "yes", question=waits.outcome.question)).status == "answered"
    assert [row async for row in store._iter_rows(found, Bodies())]
    await store.delete(["r"])
    with pytest.raises(UnknownRun):
        _ = [row async for row in store._iter_rows(found, Bodies())]


def test_the_version_of_an_agent_is_the_same_in_every_process() -> None:
    histories = [plait.History(embedder=lambda texts: []) for _ in range(2)]  # whose repr have addresses
    made = [make_agent("postgresql://h/d", history=each) for each in histories]
    assert version_of(made[0]) == version_of(made[1])


async def test_a_worker_outlives_a_server_that_cut_its_connections(address: str, store: PostgresStore) -> None:
    await ids(store)
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'plait' and pid <> "
    await PostgresStore(address)._database.execute(f"{cut} pg_backend_pid()", ())
    assert await ids(store) == []


# -- with real processes


class Fleet:
    """Workers in processes of their own, and a ledger of what they did."""

    def __init__(self, folder: Path, address: str) -> None:
        self.ledger = folder / "ledger"
        self.environment = {
            **os.environ,
            "LEDGER": str(self.ledger),
            "PLAIT_JOURNAL": address,
            "PLAIT_LEASE_SECONDS": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "plait", "worker", "-a", "worker_agents:agent", "--concurrency", "4", *options]
        log = (self.folder / "log").open("ab")
        with log:
            process = subprocess.Popen(
                command, cwd=self.folder, env={**self.environment, **environment}, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def read_ledger(self) -> list[tuple[str, int]]:
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def stop(self) -> None:
        for each in self.processes:
            each.kill()
            each.wait()


async def until(holds: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_another_worker_continues_a_run_and_repeats_no_effect(
    address: str, store: PostgresStore, tmp_path: Path, how: str
) -> None:
    fleet = Fleet(tmp_path, address)
    agent = make_agent(address, name="payer")
    runs = [await agent.asubmit(f"q{n}") for n in range(2)]
    freeze = {"FREEZE_AT": "1"} if how == "frozen" else {}
    try:
        first = fleet.start(PAY_SECONDS="0.3", **freeze)
        if how == "frozen":

            async def is_frozen() -> bool:
                return (tmp_path / "frozen").exists()

            await until(is_frozen)
        else:

            async def has_paid() -> bool:
                return len(fleet.read_ledger()) >= 2

            await until(has_paid)
            first.send_signal(signal.SIGKILL)
        fleet.start()

        async def all_ended() -> bool:
            return all(row.status == "answered" for row in await store.list_runs())

        await until(all_ended)
        if how == "frozen":
            first.send_signal(signal.SIGCONT)
            await asyncio.sleep(1.5)
        first.send_signal(signal.SIGTERM)
    finally:
        fleet.stop()
    counts = Counter(fleet.read_ledger())
    assert max(counts.values()) == 1, (tmp_path / "log").read_text()
    for run in runs:
        timeline = await asyncio.to_thread(Journal(store=store).timeline, run)
        calls = {each.call.input["n"]: each.observation for each in timeline.tool_calls}
        done = {n for n in range(3) if (run, n) in counts}
        doubts = {n for n, seen in calls.items() if seen is not None and seen.trouble == "in_doubt"}
        assert done | doubts == {0, 1, 2}, (done, doubts)
        assert len(doubts) <= 1


# -- schedules


async def test_each_time_of_a_schedule_begins_one_run_whatever_the_number_of_workers(
    address: str, store: PostgresStore
) -> None:
    agent = make_agent(address)
    name = await agent.asubmit("good morning", every="0 8 * * *", zone="Europe/Berlin", user="ada", tags=["daily"])
    assert await store.start_due() == 0
    (schedule,) = await store.list_schedules()
    assert (schedule.name, schedule.question, schedule.agent) == (name, "good morning", "a")
    others = [PostgresStore(address) for _ in range(4)]
    now = schedule.next + 1
    for each in (store, *others):
        each._clock = lambda: now
    started = await asyncio.gather(*(each.start_due() for each in (store, *others) for _ in range(5)))
    assert sum(started) == 1
    now += 5 * 86_400  # nobody looked for five days: that is one run
    started = await asyncio.gather(*(each.start_due() for each in (store, *others)))
    assert sum(started) == 1
    runs = await store.list_runs()
    assert [(row.status, row.head.user, row.head.tags) for row in runs] == [("queued", "ada", ("daily",))] * 2
    (schedule,) = await store.list_schedules()
    assert now < schedule.next <= now + 86_400
    await store.remove_schedule(name)
    assert await store.list_schedules() == []
    for each in others:
        await each.close()


def test_times_follow_the_zone_also_when_the_clock_changes() -> None:
    def at(text: str) -> float:
        return datetime.fromisoformat(text).timestamp()

    assert next_time("0 8 * * 1", "Europe/Berlin", at("2026-11-26T12:00+00:00")) == at("2026-11-30T08:00+01:00")
    assert next_time("30 2 * * *", "Europe/Berlin", at("2026-03-28T12:00+01:00")) == at("2026-03-29T03:00+02:00")
    assert next_time("30 2 * * *", "Europe/Berlin", at("2026-10-25T02:31+02:00")) == at("2026-10-26T02:30+01:00")


@pytest.mark.parametrize(
    ("every", "zone", "said"),
    [("61 * * * *", "UTC", "is no time"), ("often", "UTC", "is no time"), ("0 8 * * *", "Mars/Base", "no time zone"),
     ("0 0 30 2 *", "UTC", "never comes|is no time"), ("0 8 * * *", "../../etc/passwd", "no time zone")],
)  # fmt: skip
async def test_a_wrong_time_is_said(address: str, every: str, zone: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        await make_agent(address).asubmit("q", every=every, zone=zone)
