"""The journal's thread writes together what waits, in order; errors, cancellation and ended loops lose nothing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from plait.core import Call
from plait.core.errors import JournalError
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import IntentRecord, NoteRecord, RunHead
from plait.journal.sqlite import rows, writer
from plait.journal.sqlite.log import SqliteLog
from plait.journal.store import Journal

ME = owner_of_this_process()
NORMAL, FULL = 1, 2
"""Values of `PRAGMA synchronous`."""


class Spy(sqlite3.Connection):
    """A connection that notes its commits with their thread and how they are synced, and can be made slow or break."""

    commits: ClassVar[list[str]] = []
    synced: ClassVar[list[int]] = []
    delay = 0.0
    error: Exception | None = None
    gate: threading.Event | None = None

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" or (sql.startswith("INSERT") and not self.in_transaction):
            Spy.commits.append(threading.current_thread().name)
            Spy.synced.append(super().execute("PRAGMA synchronous").fetchone()[0])
            if Spy.gate is not None:
                assert Spy.gate.wait(20)
            time.sleep(Spy.delay)
            if Spy.error is not None:
                raise Spy.error
        if sql.startswith("PRAGMA wal_checkpoint"):
            Spy.commits.append(f"checkpoint in {threading.current_thread().name}")
        return super().execute(sql, *values)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Spy]]:
    connect: Any = sqlite3.connect

    def with_spy(*words: Any, **more: Any) -> Any:
        is_reader = bool(more.get("timeout"))
        return connect(*words, **more) if is_reader else connect(*words, **more, factory=Spy)

    monkeypatch.setattr(sqlite3, "connect", with_spy)
    Spy.commits, Spy.synced, Spy.delay, Spy.error, Spy.gate = [], [], 0.0, None, None
    yield Spy
    if Spy.gate is not None:
        Spy.gate.set()
    Spy.delay, Spy.error, Spy.gate = 0.0, None, None


def head(run: str = "", **more: Any) -> RunHead:
    return RunHead(run or new_run_id(), "How many?", {"name": "react"}, {}, **more)


def note(n: int, text: str = "x") -> NoteRecord:
    return NoteRecord(f"n{n}", 1, "test", text)


def keys(journal: Journal, log: SqliteLog) -> list[str]:
    return [row.record.key for row in journal.rows(log.run)]


async def append(log: SqliteLog, n: int) -> None:
    await log.append((note(n), None))


async def begin(journal: Journal, count: int) -> list[SqliteLog]:
    return [await journal.store.begin(head(), ME) for _ in range(count)]


# -- grouping and order


async def test_what_waits_is_written_in_one_commit_and_the_loop_does_none(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 20)
    for log in logs:
        log.buffer((note(0), None))  # goes along
    spy.commits, spy.delay = [], 0.02
    await asyncio.gather(*(append(log, 1) for log in logs))
    assert set(spy.commits) == {"plait-journal"} and len(spy.commits) <= 4
    assert all(keys(journal, log) == ["n0", "n1"] for log in logs)
    await journal.store.close()


async def test_an_event_loop_is_woken_once_for_all_that_a_commit_wrote(
    tmp_path: Path, spy: type[Spy], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 20)
    loop = asyncio.get_running_loop()
    wake, woken = loop.call_soon_threadsafe, 0

    def count_wake_up(*words: Any, **more: Any) -> Any:
        nonlocal woken
        woken += 1
        return wake(*words, **more)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count_wake_up)
    spy.commits = []
    await asyncio.gather(*(append(log, 1) for log in logs))
    assert 1 <= woken <= len(spy.commits) < 20
    await journal.store.close()


async def test_the_loop_goes_on_while_a_commit_is_slow(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 2)
    spy.delay = 0.5
    writing = asyncio.gather(*(append(log, 0) for log in logs))
    rounds = 0
    while not writing.done():
        await asyncio.sleep(0.005)
        rounds += 1
    assert rounds > 10
    await journal.store.close()


async def test_rows_that_are_added_while_a_commit_goes_on_follow_in_order(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    spy.delay = 0.003
    waiting = []
    for n in range(60):
        if n % 3:
            waiting.append(asyncio.ensure_future(append(log, n)))
        else:
            log.buffer((note(n), None))
        await asyncio.sleep(0.001 if n % 4 else 0)
    await asyncio.gather(*waiting)
    await log.end("answered", {}, {})
    assert keys(journal, log) == [f"n{n}" for n in range(60)]
    assert len(spy.commits) < 60 and len(log.line) == 0
    await journal.store.close()


async def test_one_run_commits_on_its_loop_until_a_commit_was_slow(
    tmp_path: Path, spy: type[Spy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "QUICK", 0.2)
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    for n in range(200):
        await append(log, n)
        if spy.commits[-1] == "MainThread":
            break
    assert spy.commits[-1] == "MainThread"
    spy.delay = 0.21
    for more in range(5):
        await append(log, n + 1 + more)
    assert spy.commits[-5:] == ["MainThread", *["plait-journal"] * 4]
    spy.delay = 0.0
    second = (await begin(journal, 1))[0]
    spy.commits = []
    for n in range(20):
        await asyncio.gather(append(log, 1000 + n), append(second, n))
    assert "MainThread" not in spy.commits
    assert keys(journal, second) == [f"n{n}" for n in range(20)]
    await journal.store.close()


async def test_the_thread_copies_the_wal_file_to_the_journal(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    for n in range(120):
        await log.append((note(n, "".join(chr(33 + (n * k) % 90) for k in range(100_000))), None))
    for _ in range(200):
        if "checkpoint in plait-journal" in spy.commits:
            break
        await asyncio.sleep(0.01)
    assert "checkpoint in plait-journal" in spy.commits and "checkpoint in MainThread" not in spy.commits
    await append(log, 120)  # the first commit after a checkpoint syncs the -wal file
    at = spy.commits.index("checkpoint in plait-journal")
    assert spy.commits[at + 1] == "plait-journal"
    assert (tmp_path / "j.db-wal").stat().st_size < 10_000_000
    assert len(journal.rows(log.run)) == 121
    await journal.store.close()


# -- effects that must not be repeated


def intent(n: int) -> IntentRecord:
    return IntentRecord(f"{n}.0", n, "call", Call("send", {"n": n}))


async def test_the_intent_of_an_effect_is_synced_in_the_thread_and_nothing_else_is(
    tmp_path: Path, spy: type[Spy]
) -> None:
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    for n in range(30):
        await append(log, n)
    spy.commits, spy.synced = [], []
    for n in range(5):
        await log.append((intent(n), None), durable=True)
    assert (spy.commits, spy.synced) == (["plait-journal"] * 5, [FULL] * 5)
    for n in range(5):
        await append(log, n)
    await log.end("answered", {}, {})
    assert spy.synced[5:] == [NORMAL] * 6
    await journal.store.close()


async def test_effects_that_begin_at_once_share_a_sync(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 20)
    spy.commits, spy.synced, spy.delay = [], [], 0.02
    durable = [log.append((intent(n), None), durable=True) for n, log in enumerate(logs[:10])]
    others = [log.append((note(n), None)) for n, log in enumerate(logs[10:])]
    await asyncio.gather(*map(_wait, [*durable, *others]))
    assert set(spy.commits) == {"plait-journal"} and len(spy.commits) <= 4 and FULL in spy.synced
    assert all(len(journal.rows(log.run)) == 1 for log in logs)
    await journal.store.close()


async def test_what_was_buffered_before_an_effect_is_synced_with_it(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    log.buffer((note(0), None))
    spy.synced = []
    await log.append((intent(1), None), durable=True)
    assert keys(journal, log) == ["n0", "1.0"] and spy.synced == [FULL]
    await journal.store.close()


async def test_an_intent_that_a_commit_of_other_rows_takes_along_is_synced(tmp_path: Path, spy: type[Spy]) -> None:
    """The thread has taken the order to write a note when the intent is buffered, and writes both."""
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    thread = journal.store._open_writer()  # type: ignore[attr-defined]
    with thread.in_sqlite:
        written = [asyncio.ensure_future(append(log, 0))]
        while thread._taken == thread._done:  # it is about to write the note
            await asyncio.sleep(0.001)
        spy.synced = []
        written.append(asyncio.ensure_future(_wait(log.append((intent(1), None), durable=True))))
        await asyncio.sleep(0.01)
    await asyncio.gather(*written)
    assert keys(journal, log) == ["n0", "1.0"] and spy.synced == [FULL]
    await journal.store.close()


@pytest.mark.parametrize("size", range(1, 4))
async def test_a_log_that_nobody_holds_is_not_kept_by_the_thread_that_wrote_it(size: int, tmp_path: Path) -> None:
    """Its run was left behind in this process, and can be claimed, whether its orders came alone or together."""
    journal = Journal(tmp_path / "j.db")
    store, (first,) = journal.store, await begin(journal, 1)
    thread = store._open_writer()  # type: ignore[attr-defined]
    with thread.in_sqlite:
        orders: list[asyncio.Future[Any]] = [asyncio.ensure_future(append(first, 0))]
        while thread._taken == thread._done:  # it is about to write the note, so that the others come together
            await asyncio.sleep(0.001)
        orders += [asyncio.ensure_future(store.begin(head(f"run {n}"), ME)) for n in range(size)]
        await asyncio.sleep(0.01)
    await asyncio.gather(*orders)
    del orders
    for n in range(size):
        await store.claim(f"run {n}", ME)


async def test_the_mark_of_a_restore_is_synced(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    spy.synced = []
    await journal.store.mark_restored()
    await append(log, 1)
    assert spy.synced == [FULL, NORMAL]
    await journal.store.close()


async def test_a_buffered_intent_is_synced_by_whatever_commit_writes_it(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    for n in range(30):
        await append(log, n)
    spy.commits, spy.synced = [], []
    log.buffer((intent(1), None), durable=True)
    await append(log, 30)
    await append(log, 31)
    assert (spy.commits[0], spy.synced) == ("plait-journal", [FULL, NORMAL])
    await journal.store.close()


async def _wait(done: Awaitable[None]) -> None:
    await done


# -- errors


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), MemoryError("none left"), OSError("x")])
async def test_an_error_in_the_thread_reaches_all_who_wait_and_no_row_is_lost(
    tmp_path: Path, spy: type[Spy], error: Exception
) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 3)
    spy.error = error
    expected = JournalError if isinstance(error, sqlite3.Error) else type(error)
    for n in range(3):
        found = await asyncio.gather(*(append(log, n) for log in logs), return_exceptions=True)
        assert [type(each) for each in found] == [expected] * 3
    with pytest.raises(expected):
        await logs[0].end("answered", {}, {})
    assert not logs[0].has_ended and [len(log.line) for log in logs] == [3, 3, 3]
    with pytest.raises(expected):
        await journal.store.begin(head(), ME)
    spy.error = None
    await logs[0].end("answered", {}, {})
    await asyncio.gather(*(append(log, 3) for log in logs[1:]))
    assert [len(keys(journal, log)) for log in logs] == [3, 4, 4]
    assert keys(journal, logs[1]) == [f"n{n}" for n in range(4)] and journal.run(logs[0].run).status == "answered"
    await journal.store.close()


async def test_a_defect_of_the_writer_leaves_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 2)
    with monkeypatch.context() as patch:
        patch.setattr(writer.Writer, "_insert", lambda *_, **__: 1 / 0)
        found = await asyncio.gather(*(append(log, 0) for log in logs), return_exceptions=True)
        assert [type(each) for each in found] == [ZeroDivisionError] * 2
    await asyncio.gather(*(append(log, 1) for log in logs))
    assert all(keys(journal, log) == ["n0", "n1"] for log in logs)
    await journal.store.close()


async def test_runs_whose_common_commit_failed_are_written_one_by_one(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 3)
    failures = []

    def fail_together(connection: sqlite3.Connection, some: Any, endings: Any) -> None:
        if len({row[0] for row in some}) > 1:
            failures.append(len(some))
            raise sqlite3.OperationalError("all of them")
        rows.insert(connection, some, endings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "insert", fail_together)
        spy.delay, spy.synced = 0.02, []
        await asyncio.wait_for(
            asyncio.gather(*(_wait(log.append((intent(0), None), durable=True)) for log in logs)), 20
        )
    assert failures and all(keys(journal, log) == ["0.0"] for log in logs)
    assert set(spy.synced) == {FULL}
    await journal.store.close()


# -- cancellation


async def test_cancelling_all_who_wait_loses_no_row(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 5)
    spy.gate = threading.Event()
    tasks = [asyncio.create_task(append(log, n)) for n in range(3) for log in logs]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in found} == {asyncio.CancelledError}
    spy.gate.set()
    await asyncio.gather(*(append(log, 3) for log in logs))
    assert all(keys(journal, log) == ["n0", "n1", "n2", "n3"] for log in logs)
    await journal.store.close()


async def test_a_run_whose_begin_is_cancelled_has_begun_or_is_not_there(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    (log,) = await begin(journal, 1)
    spy.gate = threading.Event()
    writing = asyncio.create_task(append(log, 0))
    while len(spy.commits) < 2:
        await asyncio.sleep(0.001)
    waits = asyncio.create_task(journal.store.begin(head("waits"), ME))
    await asyncio.sleep(0.01)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    spy.gate.set()
    await writing
    spy.gate = threading.Event()
    begun: list[SqliteLog] = []

    async def begin_and_go_on() -> None:
        begun.append(await journal.store.begin(head("begun"), ME))
        await asyncio.sleep(10)

    spy.commits = []
    begins = asyncio.create_task(begin_and_go_on())
    while not spy.commits:
        await asyncio.sleep(0.001)
    begins.cancel()
    await asyncio.sleep(0.01)
    spy.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await begins
    assert [each.run for each in begun] == ["begun"]  # and cancelled where it waited next
    assert {run.head.run for run in journal.runs()} == {"begun", log.run}
    await journal.store.close()


async def test_a_begin_that_waits_for_a_lock_can_be_cancelled_at_any_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", busy_seconds=30)
    await begin(journal, 1)
    with closing(sqlite3.connect(tmp_path / "j.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        for n in range(30):
            started = time.monotonic()
            waits = asyncio.create_task(journal.store.begin(head(f"r{n}"), ME))
            await asyncio.sleep(0.001 * n)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            assert time.monotonic() - started < 5
        holder.execute("ROLLBACK")
    await begin(journal, 1)
    assert len(journal.runs()) == 2
    await journal.store.close()


async def test_a_timeout_around_the_begin_of_a_run_is_a_timeout(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    await begin(journal, 1)
    spy.delay = 0.2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await journal.store.begin(head("r"), ME)
            await asyncio.sleep(10)
    await asyncio.sleep(0)
    await journal.store.close()


# -- event loops that end


def test_rows_of_an_event_loop_that_has_ended_are_written(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    logs: list[SqliteLog] = []

    async def leave() -> None:
        logs.extend(await begin(journal, 2))
        spy.gate = threading.Event()
        for log in logs:
            log.append((note(0), None))

    asyncio.run(leave())
    assert spy.gate is not None
    spy.gate.set()
    journal.close()
    assert all(keys(journal, log) == ["n0"] for log in logs)

    async def go_on() -> None:
        await asyncio.gather(*(append(log, 1) for log in logs))

    asyncio.run(go_on())
    assert all(keys(journal, log) == ["n0", "n1"] for log in logs)
    journal.close()


async def test_a_fork_waits_until_the_thread_has_left_sqlite(tmp_path: Path, spy: type[Spy]) -> None:
    journal = Journal(tmp_path / "j.db")
    logs = await begin(journal, 2)
    spy.commits, spy.gate = [], threading.Event()
    writing = asyncio.gather(*(append(log, 0) for log in logs))
    while not spy.commits:
        await asyncio.sleep(0.001)

    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    forking = asyncio.ensure_future(asyncio.to_thread(fork))
    await asyncio.sleep(0.2)
    assert not forking.done()
    spy.gate.set()
    assert await asyncio.wait_for(forking, 20) == 0
    await writing
    await journal.store.close()
