"""Every fault of the file is one clear sentence with what to do, and nothing is lost silently."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from journal_rows import request
from plait.core.errors import JournalError
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import IntentRecord, NoteRecord, RunHead
from plait.journal.sqlite import schema
from plait.journal.sqlite.log import SqliteLog
from plait.journal.store import Journal

ME = owner_of_this_process()


def head(run: str = "") -> RunHead:
    return RunHead(run or new_run_id(), "How many?", {"name": "react"}, {})


def note(n: int, text: str = "x") -> NoteRecord:
    return NoteRecord(f"n{n}", 1, "test", text)


async def fill(journal: Journal, runs: int, steps: int = 20) -> dict[str, list[bytes]]:
    """Runs with bodies that grow; gives the bodies by run."""
    sent: dict[str, list[bytes]] = {}
    for i in range(runs):
        log = await journal.store.begin(head(f"run-{i:03}"), ME)
        body = b"run %d:" % i
        for n in range(steps):
            body += os.urandom(30).hex().encode()
            sent.setdefault(log.run, []).append(body)
            await log.append((think(n), body))
        await log.end("answered", {"type": "answered", "answer": i}, {})
    return sent


async def all_fail(path: Path, what: str) -> None:
    """Writing and reading both say the same clear thing."""
    journal = Journal(path, busy_seconds=0.2)
    with pytest.raises(JournalError, match=what) as told:
        await journal.store.begin(head(), ME)
    assert str(path) in told.value.message and told.value.hint and told.value.message.endswith(".")
    with pytest.raises(JournalError, match=what):
        journal.runs()
    with pytest.raises(JournalError, match=what):
        await journal.store.claim("last", ME)
    journal.close()


# ---- not a journal


async def test_a_folder_in_the_file_s_place(tmp_path: Path) -> None:
    await all_fail(tmp_path, r"can't be opened: (it is a folder|Is a directory)")


async def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(JournalError, match=r"can't be opened: (Not a directory|File exists)"):
        await Journal(tmp_path / "file" / "j.db").store.begin(head(), ME)


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "j.db").write_bytes(b"Dear diary, today I ran an agent. " * 100)
    await all_fail(tmp_path / "j.db", "is not a journal: it is not an SQLite database")


async def test_a_database_of_another_program(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "j.db")
    connection.execute("CREATE TABLE runs (mine)")
    connection.close()
    before = (tmp_path / "j.db").read_bytes()
    await all_fail(tmp_path / "j.db", "database of another program")
    assert (tmp_path / "j.db").read_bytes() == before


async def test_a_journal_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    await fill(journal, 1)
    journal.close()
    connection = sqlite3.connect(tmp_path / "j.db")
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    assert len(journal.runs()) == 1  # it says that this version can read it
    journal.close()
    connection = sqlite3.connect(tmp_path / "j.db")
    connection.execute(f"UPDATE marks SET value = {schema.VERSION + 1} WHERE name = 'reader'")
    connection.commit()
    connection.close()
    before = (tmp_path / "j.db").read_bytes()
    known = schema.VERSION
    await all_fail(tmp_path / "j.db", rf"newer Plait \(schema {known + 1}, this one knows {known}\).*Upgrade")
    assert (tmp_path / "j.db").read_bytes() == before


async def test_a_newer_version_may_have_added_plain_tables_and_nothing_that_computes(tmp_path: Path) -> None:
    await fill(Journal(tmp_path / "j.db"), 1)
    connection = sqlite3.connect(tmp_path / "j.db")
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.execute("CREATE TABLE queue (n INTEGER PRIMARY KEY, place TEXT NOT NULL DEFAULT '')")
    connection.execute("CREATE INDEX queue_of_place ON queue (place, n)")
    connection.close()
    assert len(Journal(tmp_path / "j.db").runs()) == 1
    for attack in (
        "CREATE VIEW v AS SELECT * FROM runs",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END",
        "CREATE TABLE g (a INTEGER, b INTEGER AS (a + 1))",
        "CREATE INDEX i ON runs (abs(n))",
        "CREATE INDEX p ON runs (n) WHERE length(head) > 1",
    ):
        shutil.copy(tmp_path / "j.db", tmp_path / "a.db")
        connection = sqlite3.connect(tmp_path / "a.db")
        connection.execute(attack)
        connection.close()
        await all_fail(tmp_path / "a.db", "somebody changed its tables")


async def test_a_journal_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    await fill(journal, 1)
    journal.close()
    connection = sqlite3.connect(tmp_path / "j.db")
    connection.executescript(
        "DELETE FROM marks; DROP TABLE spending; DROP TABLE reservations; PRAGMA user_version = 11"
    )
    connection.close()
    await all_fail(tmp_path / "j.db", "schema 11 of an earlier Plait.*plait journal migrate")
    assert await journal.store.migrate() == (11, schema.VERSION)
    assert await journal.store.migrate() == (schema.VERSION, schema.VERSION)
    assert len(journal.rows("run-000")) == 20


@pytest.mark.parametrize("version", [11, schema.VERSION + 1])
async def test_no_code_of_a_file_runs_while_its_version_is_looked_at(tmp_path: Path, version: int) -> None:
    journal = Journal(tmp_path / "j.db")
    await fill(journal, 1)
    journal.close()
    for attack in (
        "CREATE TRIGGER t AFTER INSERT ON marks BEGIN DELETE FROM runs; END",
        "DROP TABLE marks; CREATE VIEW marks AS WITH RECURSIVE c(name, value) AS "
        "(SELECT 'x', 1 UNION ALL SELECT 'x', value + 1 FROM c) SELECT name, value FROM c",
    ):
        shutil.copy(tmp_path / "j.db", tmp_path / "a.db")
        connection = sqlite3.connect(tmp_path / "a.db")
        connection.executescript(f"{attack}; PRAGMA user_version = {version}")
        connection.close()
        store = Journal(tmp_path / "a.db").store
        for use in (store.migrate, store.info):
            with pytest.raises(JournalError):
                await use()
        connection = sqlite3.connect(tmp_path / "a.db")
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        connection.close()


async def test_an_empty_file_is_taken_for_a_new_journal(tmp_path: Path) -> None:
    (tmp_path / "j.db").touch()
    await fill(Journal(tmp_path / "j.db"), 1)
    assert len(Journal(tmp_path / "j.db").runs()) == 1


# ---- permissions, as a user who is not root

AS_NOBODY = """
import asyncio, os, sys
from plait.core.errors import JournalError
from plait.journal.store import Journal
from plait.journal.owner import owner_of_this_process
from plait.journal.records import NoteRecord, RunHead

async def main(path):
    journal = Journal(path)
    try:
        await journal.store.begin(RunHead("mine", "q", {"name": "react"}, {}), owner_of_this_process())
        print("written")
    except JournalError as error:
        print("write:", error)
    try:
        print("read:", [run.head.run for run in journal.runs()], len(journal.rows("run-000")))
    except JournalError as error:
        print("read:", error)
    journal.close()

asyncio.run(main(sys.argv[2]))  # once with every right: all that Python loads while it works is loaded
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter (pytest's own is closed to them)."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def as_nobody(path: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as warm:
        command = [sys.executable, "-c", AS_NOBODY, str(path), f"{warm}/j.db"]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[2:]


async def test_a_read_only_file_or_folder_is_told_and_can_still_be_read(open_folder: Path) -> None:
    path = open_folder / "j.db"
    journal = Journal(path)
    await fill(journal, 1)
    journal.close()
    path.chmod(0o444)
    open_folder.chmod(0o777)
    wrote, read = as_nobody(path)
    assert wrote.startswith(f"write: The journal {path} can't be written: the file, or its folder, is read-only")
    assert read == "read: ['run-000'] 20"
    for each in open_folder.glob("j.db-*"):
        each.unlink()
    path.chmod(0o666)
    open_folder.chmod(0o555)
    wrote, read = as_nobody(path)
    assert wrote.startswith(f"write: The journal {path} can't be ") and "folder" in wrote and "--journal" in wrote
    assert read == "read: ['run-000'] 20"
    assert len(list(open_folder.iterdir())) == 1


def test_a_folder_that_may_not_be_written_gets_no_new_journal(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    wrote, read = as_nobody(open_folder / "deeper" / "j.db")
    assert wrote.startswith("write: The journal") and "Permission denied" in wrote and "--journal" in wrote
    assert "no journal at" in read


async def test_a_journal_that_may_not_be_read(open_folder: Path) -> None:
    journal = Journal(open_folder / "j.db")  # made for its owner's eyes only
    await fill(journal, 1)
    journal.close()
    if os.getuid() != 0:
        (open_folder / "j.db").chmod(0)
    wrote, read = as_nobody(open_folder / "j.db")
    assert "Permission denied" in wrote
    assert read.startswith("read: The journal") and "can't be opened" in read


# ---- locked

HOLDS_THE_LOCK = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-c", HOLDS_THE_LOCK, str(path), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"locked\n"
        yield
        child.kill()


async def rounds_during(task: asyncio.Task[None]) -> int:
    """How often the event loop came round while a task went on."""
    rounds = 0
    while not task.done():
        await asyncio.sleep(0.005)
        rounds += 1
    return rounds


@pytest.mark.parametrize("runs", [1, 3])
async def test_a_lock_is_waited_for_without_stopping_the_loop(runs: int, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", busy_seconds=30)
    logs = [await journal.store.begin(head(), ME) for _ in range(runs)]

    async def write(log: SqliteLog) -> None:
        await log.append((note(0), None))
        await log.append((note(1), None))
        await log.end("answered", {}, {})

    with locked(tmp_path / "j.db", 0.7):
        begun = time.monotonic()
        tasks = [asyncio.create_task(write(log)) for log in logs]
        rounds = await rounds_during(tasks[0])
        await asyncio.gather(*tasks)
        assert time.monotonic() - begun > 0.5
        assert rounds > 5  # a loop that stands still comes round once or twice
    assert all([row.record for row in journal.rows(log.run)] == [note(0), note(1)] for log in logs)
    assert all(run.status == "answered" for run in journal.runs())


@pytest.mark.parametrize("runs", [1, 3])
async def test_a_lock_that_stays_is_an_error_and_the_records_stay_in_line(runs: int, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", busy_seconds=0.3)
    logs = [await journal.store.begin(head(), ME) for _ in range(runs)]
    with locked(tmp_path / "j.db", 60):
        told = await asyncio.gather(
            *(log.append((note(0), None), (think(1), b"asked " * 50)) for log in logs), return_exceptions=True
        )
        assert all(isinstance(each, JournalError) for each in told)
        assert "locked by another process for more than 0.3 s" in str(told[0])
        assert [len(log.line) for log in logs] == [2] * runs
        with pytest.raises(JournalError, match=r"locked by another process for more than 0\.3 s"):
            await journal.store.begin(head(), ME)
        with pytest.raises(JournalError, match="locked"):
            await logs[0].end("answered", {}, {})
    for log in logs:
        await log.append((think(2), b"asked " * 51))
        await log.end("answered", {}, {})
        rows = journal.rows(log.run)
        assert [row.record for row in rows] == [note(0), think(1), think(2)]
        assert [row.body for row in rows] == [None, b"asked " * 50, b"asked " * 51]


def think(n: int) -> IntentRecord:
    return request(f"{n}a0", n)


async def test_records_of_a_loop_that_ends_while_the_journal_is_locked_stay_in_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(head(), ME)

    def another_loop() -> None:
        async def main() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_wait(log.append((note(0), None))), 0.1)

        asyncio.run(main())

    with locked(tmp_path / "j.db", 60):
        journal_thread = asyncio.get_running_loop().run_in_executor(None, another_loop)
        await journal_thread
        assert len(log.line) == 1
    await log.append((note(1), None))
    assert [row.record for row in journal.rows(log.run)] == [note(0), note(1)]


async def _wait(done: object) -> None:
    await done  # type: ignore[misc]


# ---- the disk is full


@pytest.mark.parametrize("runs", [1, 2])
async def test_a_full_disk_is_told_at_the_append_and_can_be_gone_on_with(runs: int, tmp_path: Path) -> None:
    """SQLite's own limit on the file's size gives the same error as a full disk."""
    journal = Journal(tmp_path / "j.db")
    logs = [await journal.store.begin(head(), ME, [(note(0), None)]) for _ in range(runs)]
    connection = journal.store._open_writer().connection()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    big, small = note(1, "y" * 100_000), note(1, "fits")
    told = await asyncio.gather(
        *(append(log, big if log is logs[0] else small) for log in logs), return_exceptions=True
    )
    assert (
        isinstance(told[0], JournalError) and "the disk is full" in str(told[0]) and "Free some space" in str(told[0])
    )
    assert told[1:] == [None] * (runs - 1)  # what does fit is written, though it shared the commit
    assert [len(log.line) for log in logs] == [1] + [0] * (runs - 1)
    connection.execute("PRAGMA max_page_count = 100000")
    await logs[0].append((note(2), None))
    assert [row.record for row in journal.rows(logs[0].run)] == [note(0), big, note(2)]


async def append(log: SqliteLog, record: NoteRecord) -> None:
    await log.append((record, None))


async def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small disk to fill: {mounted.stderr.decode().strip()}")
    try:
        journal = Journal(disk / "j.db")
        log = await journal.store.begin(head("r"), ME)
        kept = 0
        with pytest.raises(JournalError, match=r"disk is full|disk reports an error"):
            for n in range(1000):
                await log.append((note(n, "z" * 3000), None))
                kept += 1
        assert kept > 5
        rows = journal.rows("r")
        assert [row.record.key for row in rows] == [f"n{n}" for n in range(kept)]
        journal.close()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# ---- damaged


async def test_a_file_cut_to_half_says_so_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    await fill(journal, 120)
    journal.close()
    size = path.stat().st_size
    os.truncate(path, size // 2)
    await all_fail(path, r"is damaged: a part of the file is missing.*plait journal restored")
    assert path.stat().st_size == size // 2, "nothing is written to it"
    (damage,) = await journal.store.check()
    assert str(path) in damage and "is damaged" in damage


@pytest.mark.parametrize("left", [0.02, 0.1, 0.3, 0.7, 0.95])
async def test_wherever_a_file_is_cut_no_other_error_comes_out(left: float, tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    sent = await fill(journal, 20)
    journal.close()
    os.truncate(path, int(path.stat().st_size * left))
    await all_fail(path, "is damaged|not a journal")
    for run in sent:
        with pytest.raises(JournalError, match=r"is damaged|not a journal"):
            journal.rows(run)
    assert await journal.store.check()


async def test_pages_overwritten_in_the_middle_refuse_their_runs_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    sent = await fill(journal, 30)
    journal.close()
    with path.open("r+b") as file:
        for page in _leaves(path, 2):
            file.seek(4096 * (page - 1))
            file.write(b"\xa5" * 4096)
    whole, refused = [], []
    for name in sent:
        try:
            assert [row.body for row in journal.rows(name)] == sent[name]
            whole.append(name)
        except JournalError as error:
            refused.append(name)
            assert "is damaged" in error.message and error.hint
    assert len(whole) > 5 and refused
    damage = " ".join(await journal.store.check())
    assert "is damaged" in damage and not [name for name in whole if f"of run {name}," in damage]
    log = await journal.store.begin(head("after"), ME, [(note(0), None)])
    assert len(journal.rows(log.run)) == 1
    journal.close()


def _leaves(path: Path, count: int) -> list[int]:
    """The numbers of some pages of the table of rows, from its middle."""
    with closing(sqlite3.connect(path)) as connection:
        kind = "SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf' ORDER BY path"
        pages = [number for (number,) in connection.execute(kind)]
    return pages[len(pages) // 2 :][:count]
