"""The journal's thread begins and ends: with several event loops, files, at the process's end, at kills and forks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import NoteRecord, RunHead
from plait.journal.sqlite import writer
from plait.journal.sqlite.log import SqliteLog
from plait.journal.store import Journal


async def begin(journal: Journal) -> SqliteLog:
    return await journal.store.begin(RunHead(new_run_id(), "q", {"name": "react"}, {}), owner_of_this_process())


async def append(log: SqliteLog, n: int) -> None:
    await log.append((NoteRecord(f"n{n}", 1, "test", "x"), None))


def keys(journal: Journal, log: SqliteLog) -> list[str]:
    return [row.record.key for row in journal.rows(log.run)]


# -- event loops, threads, files


def test_several_event_loops_share_one_thread_and_one_connection(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", busy_seconds=60)
    names: list[str] = []
    used: set[int] = set()

    async def run() -> None:
        log = await begin(journal)
        for n in range(30):
            await append(log, n)
        used.add(id(journal.store._writer))
        await log.end("answered", {}, {})
        names.append(log.run)

    threads = [threading.Thread(target=lambda: asyncio.run(run())) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(names) == 5 and len(used) == 1
    for name in names:
        assert [row.record.key for row in journal.rows(name)] == [f"n{n}" for n in range(30)]
    journal.close()


async def test_a_run_of_a_replaced_file_keeps_its_writer_and_new_runs_have_another(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    old = await begin(journal)
    await append(old, 0)
    for each in tmp_path.glob("j.db*"):
        each.rename(tmp_path / f"moved{each.name[4:]}")
    new = await begin(journal)
    await asyncio.gather(append(old, 1), append(new, 0))
    assert keys(journal, new) == ["n0"]
    journal.close()
    old._writer.close()
    assert keys(Journal(tmp_path / "moved"), old) == ["n0", "n1"]


async def test_the_thread_ends_when_it_has_nothing_to_do_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE", 0.02)
    journal = Journal(tmp_path / "j.db")
    logs = [await begin(journal), await begin(journal)]
    found = journal.store._writer
    for n in range(4):
        for _ in range(500):
            if found._thread is None:
                break
            await asyncio.sleep(0.01)
        assert found._thread is None
        await asyncio.gather(*(append(log, n) for log in logs))
    assert journal.store._writer is found and keys(journal, logs[1]) == ["n0", "n1", "n2", "n3"]
    journal.close()
    thread = threading.active_count()
    del found, journal, logs
    gc.collect()
    assert threading.active_count() <= thread


async def test_no_row_waits_for_a_thread_that_ends_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE", 0.0005)
    journal = Journal(tmp_path / "j.db")
    logs = [await begin(journal), await begin(journal)]

    async def write(log: SqliteLog) -> None:
        for n in range(200):
            await asyncio.wait_for(append(log, n), 20)
            await asyncio.sleep(0.0004 + 0.0004 * (n % 3))

    await asyncio.gather(*map(write, logs))
    assert all(len(keys(journal, log)) == 200 for log in logs)
    journal.close()


async def test_a_row_that_comes_when_the_thread_is_about_to_end_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE", 0.02)
    journal = Journal(tmp_path / "j.db")
    logs = [await begin(journal), await begin(journal)]
    has_work, loop = writer.Writer._has_work, asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def find_nothing_but_too_early(self: writer.Writer) -> bool:
        found = has_work(self)
        if not found and not tasks:
            loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(append(logs[0], 0))))
            while self._queue.empty():
                time.sleep(0.001)
        return found

    monkeypatch.setattr(writer.Writer, "_has_work", find_nothing_but_too_early)
    await asyncio.gather(*(append(log, 1) for log in logs))
    while not tasks:
        await asyncio.sleep(0.005)
    await asyncio.wait_for(tasks[0], 20)
    assert keys(journal, logs[0]) == ["n1", "n0"]
    journal.close()


# -- the end of the process, kills and forks

LEAVES_ROWS = """
import asyncio, os, sys, threading, time
from plait.journal.sqlite import connections
from plait.journal.owner import owner_of_this_process
from plait.journal.records import NoteRecord, RunHead
from plait.journal.store import Journal
import sqlite3

class Slow(sqlite3.Connection):
    def execute(self, sql, *values):
        if sql == "COMMIT" or (sql.startswith("INSERT") and not self.in_transaction):
            time.sleep(0.05)
        return super().execute(sql, *values)

connect = sqlite3.connect
connections.sqlite3.connect = lambda *a, **k: connect(*a, **k, **({} if k.get("timeout") else {"factory": Slow}))

async def main(path, how):
    logs = []
    for name in ("a", "b", "c"):
        head = RunHead(name, "q", {"name": "react"}, {})
        logs.append(await Journal.at(path).store.begin(head, owner_of_this_process()))
    for n in range(20):
        for log in logs:
            log.append((NoteRecord(f"n{n}", 1, "k", "t"), None))
        await asyncio.sleep(0.001)
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "raise":
        raise SystemExit(3)
    return logs

async def in_child(path, log):
    try:
        log.append((NoteRecord("n99", 1, "k", "t"), None))
    except Exception as error:
        print(type(error).__name__, error)
    head = RunHead("child", "q", {"name": "react"}, {})
    other = await Journal.at(path).store.begin(head, owner_of_this_process())
    await other.append((NoteRecord("n0", 1, "k", "t"), None))
    print("child done", flush=True)

if sys.argv[2] == "thread":
    worker = threading.Thread(target=lambda: asyncio.run(main(sys.argv[1], "")), daemon=True)
    worker.start()
    worker.join()
else:
    logs = asyncio.run(main(sys.argv[1], sys.argv[2]))
    if sys.argv[2] == "fork":  # while rows wait
        pid = os.fork()
        if pid == 0:
            asyncio.run(in_child(sys.argv[1], logs[0]))
        else:
            os.waitpid(pid, 0)
"""


def leave_rows(path: Path, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LEAVES_ROWS, str(path), how]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 3), ("thread", 0)])
def test_the_end_of_the_process_writes_what_waits_and_does_not_hang(tmp_path: Path, how: str, code: int) -> None:
    begun = time.monotonic()
    done = leave_rows(tmp_path / "j.db", how)
    assert (done.returncode, done.stderr) == (code, "") and time.monotonic() - begun < 20
    assert not (tmp_path / "j.db-wal").exists()  # closed
    for name in ("a", "b", "c"):
        assert [row.record.key for row in Journal(tmp_path / "j.db").rows(name)] == [f"n{n}" for n in range(20)]


def test_a_kill_while_commits_wait_leaves_whole_beginnings(tmp_path: Path) -> None:
    done = leave_rows(tmp_path / "j.db", "kill")
    assert done.returncode == -signal.SIGKILL
    for name in ("a", "b", "c"):
        found = [row.record.key for row in Journal(tmp_path / "j.db").rows(name)]
        assert found == [f"n{n}" for n in range(len(found))]
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_forked_process_leaves_the_connection_of_its_parent_alone(tmp_path: Path) -> None:
    done = leave_rows(tmp_path / "j.db", "fork")
    assert done.returncode == 0, done.stderr
    assert "JournalError" in done.stdout and "opened by the process that started this one" in done.stdout
    assert "child done" in done.stdout
    journal = Journal(tmp_path / "j.db")
    for name in ("a", "b", "c"):
        assert [row.record.key for row in journal.rows(name)] == [f"n{n}" for n in range(20)]
    assert len(journal.rows("child")) == 1


def test_forks_in_the_middle_of_commits_do_not_hang(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", busy_seconds=30)
    children: list[int] = []

    async def write(log: SqliteLog) -> None:
        for n in range(100):
            await append(log, n)

    async def main() -> None:
        logs = [await begin(journal) for _ in range(4)]
        writing = asyncio.gather(*map(write, logs))
        for _ in range(10):
            await asyncio.sleep(0.002)
            pid = os.fork()
            if pid == 0:
                _in_child(tmp_path / "j.db")
            children.append(pid)
        await writing
        assert all(len(journal.rows(log.run)) == 100 for log in logs)

    asyncio.run(main())
    until = time.monotonic() + 30
    codes = [_wait_for(pid, until) for pid in children]
    assert codes == [0] * 10
    journal.close()
    assert len(Journal(tmp_path / "j.db").runs()) == 14


def _in_child(path: Path) -> None:
    """Begin a run with an event loop of the child's own, and end the process."""
    code = 1
    try:
        done: list[bool] = []

        async def work() -> None:
            await append(await begin(Journal(path, busy_seconds=20)), 0)
            done.append(True)

        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        thread.join()
        code = 0 if done else 2
    finally:
        os._exit(code)


def _wait_for(pid: int, until: float) -> int:
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -99
