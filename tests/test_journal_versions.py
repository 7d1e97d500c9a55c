"""A journal of an older version is read as it is, brought up to date by the first write, and loses nothing."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import plait
from plait.journal import schema
from plait.journal.owner import owner_of_this_process
from plait.journal.records import NoteRecord, RunHead
from plait.journal.salvage import salvage
from plait.journal.store import Journal

ME = owner_of_this_process()

VERSION_1 = """
CREATE TABLE runs (n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, question TEXT NOT NULL, strategy TEXT NOT NULL,
  status TEXT NOT NULL, owner TEXT NOT NULL, parent TEXT NOT NULL, fork_at INTEGER NOT NULL, started REAL NOT NULL,
  updated REAL NOT NULL, rows INTEGER, head TEXT NOT NULL, outcome TEXT, totals TEXT NOT NULL);
CREATE TABLE events (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL,
  kind TEXT NOT NULL, data TEXT NOT NULL, base INTEGER, head INTEGER, tail INTEGER, packed INTEGER, body BLOB);
CREATE UNIQUE INDEX events_of_run ON events (run, seq);
PRAGMA application_id = 1349280105;
PRAGMA user_version = 1;
"""
"""The statements as version 1 had them."""

BEGIN_1 = (
    "INSERT INTO runs (id, question, strategy, status, owner, parent, fork_at, started, updated, head, totals) "
    "VALUES (?, 'How many?', 'react', 'running', '', '', 0, 1.0, 1.0, ?, '{}')"
)
HEAD_1 = '{"run":"%s","question":"How many?","strategy":{"name":"react","options":{}},"models":{"":{"spec":"m"}}}'


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of version 1 with a run that ended and one that was interrupted."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(VERSION_1)
    for n, run in enumerate(("20260101-120000-aaaaaa", "20260101-120000-bbbbbb"), 1):
        connection.execute(BEGIN_1, (run, HEAD_1 % run))
        data = '{"type":"note","n":0,"step":1,"kind":"test","text":"was here"}'
        connection.execute(
            "INSERT INTO events (run, seq, at, kind, data, body) VALUES (?, 0, 1.0, 'note', ?, x'00ff')", (n, data)
        )
    outcome = '{"type":"answered","answer":"42"}'
    connection.execute("UPDATE runs SET status = 'answered', rows = 1, outcome = ? WHERE n = 1", (outcome,))
    connection.close()
    assert [file.name for file in tmp_path.iterdir()] == ["old.db"]
    return path


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def read_all(path: Path) -> None:
    """Everything that only reads, on the old runs."""
    journal = Journal(path)
    ended, left = reversed([run for run in journal.runs() if not run.head.session])
    assert (ended.status, ended.outcome) == ("answered", {"type": "answered", "answer": "42"})
    assert left.status == "interrupted" and left.head.question == "How many?"
    assert [(row.record, row.body) for row in journal.rows("20260101-120000-a")] == [
        (NoteRecord(0, 1, "test", "was here"), b"\x00\xff")
    ]
    assert journal.runs(session="trip") == [] == journal.runs(session="")
    assert journal.turns("trip") == []


def test_reading_an_old_file_changes_nothing_in_it(old: Path) -> None:
    before = old.read_bytes()
    read_all(old)
    assert old.read_bytes() == before and version(old) == 1


def test_an_old_file_that_may_not_be_written_stays_readable(old: Path) -> None:
    program = """
import asyncio, os, pathlib, sys
from plait.core.errors import JournalError
from test_journal_versions import ME, Journal, RunHead, read_all

path, other = map(pathlib.Path, sys.argv[1:])
head = RunHead("20260102-120000-cccccc", "q", {"name": "react"}, {})
# Once with every right: all that Python loads while it works is loaded.
read_all(path)
asyncio.run(Journal(other).begin(head, ME))
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
read_all(path)
try:
    asyncio.run(Journal(path).begin(head, ME))
except JournalError as why:
    print(why)
"""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to other users
        path = Path(folder) / "old.db"
        shutil.copy(old, path)
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        command = [sys.executable, "-c", program, str(path), str(old)]
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
        Path(folder).chmod(0o755)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"The journal {path} can't be ") and "--journal" in done.stdout
        assert version(path) == 1


async def test_the_first_write_brings_an_old_file_up_to_date_and_keeps_its_runs(old: Path) -> None:
    journal = Journal(old)
    head = RunHead("20260102-120000-cccccc", "And now?", {"name": "react"}, {}, session="trip")
    await (await journal.begin(head, ME)).end("answered", {"type": "answered", "answer": "2"}, {})
    assert version(old) == schema.VERSION
    read = [(turn.number, turn.question, turn.answer) for turn in journal.turns("trip")]
    assert read == [(1, "And now?", "2")]
    assert [run.head for run in journal.runs(session="trip")] == [head]
    assert [run.head.session for run in journal.runs()] == ["trip", "", ""]
    log = await journal.claim("20260101-120000-b", ME)  # the interrupted one goes on
    await log.append((NoteRecord(1, 1, "test", "went on"), None))
    await log.end("failed", {"type": "failed", "reason": "no"}, {})
    assert [row.seq for row in journal.rows("20260101-120000-b")] == [0, 1]
    journal.close()
    connection = sqlite3.connect(old)
    made = sqlite3.connect(":memory:")
    for statement in schema.statements():
        made.execute(statement)
    shapes = [
        [db.execute(f"PRAGMA table_info({table})").fetchall() for table in ("runs", "events")]
        + [sorted(row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql <> ''"))]
        for db in (connection, made)
    ]
    assert shapes[0] == shapes[1]
    connection.close()
    made.close()


async def test_a_writer_of_the_old_version_that_has_the_file_open_goes_on(old: Path) -> None:
    before = sqlite3.connect(old, isolation_level=None)
    before.execute("SELECT count(*) FROM runs").fetchone()
    journal = Journal(old)
    await (await journal.begin(RunHead("20260102-120000-cccccc", "q", {"name": "r"}, {}), ME)).end("answered", {}, {})
    before.execute(BEGIN_1, ("20260103-120000-dddddd", HEAD_1 % "20260103-120000-dddddd"))
    before.close()
    assert len(journal.runs()) == 4
    journal.close()


def test_several_processes_bring_one_file_up_to_date_at_once(old: Path) -> None:
    program = """
import asyncio, sys
from plait.journal.store import Journal
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import RunHead

async def main():
    journal = Journal(sys.argv[1], busy_seconds=120)
    sys.stdin.read(1)
    head = RunHead(new_run_id(), "q", {"name": "react"}, {}, session="many")
    await (await journal.begin(head, owner_of_this_process())).end("answered", {"answer": 1}, {})
    journal.close()

asyncio.run(main())
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(old)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"x")
        child.stdin.flush()
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors.decode()
    assert version(old) == schema.VERSION
    assert len(Journal(old).turns("many")) == 6
    read_all(old)


def test_an_old_file_that_is_locked_is_said_to_be_and_stays_whole(old: Path) -> None:
    holder = sqlite3.connect(old, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    agent = plait.Agent(model=plait.Scripted(["Final Answer: 1"]), journal=old)
    agent._store.busy_seconds = 0.2  # type: ignore[union-attr]
    with pytest.raises(plait.PlaitError, match="locked by another process"):
        agent.run("q", session="s")
    holder.execute("ROLLBACK")
    assert holder.execute("PRAGMA user_version").fetchone() == (1,)
    holder.close()
    assert agent.run("q", session="s").status == "answered"
    assert version(old) == schema.VERSION


def test_what_can_be_read_of_an_old_file_is_salvaged_into_a_new_one(old: Path) -> None:
    new = old.parent / "new.db"
    done = salvage(old, new)
    assert (done.whole, done.cut, done.rows, done.lost) == (1, 1, 2, 0)
    assert version(new) == schema.VERSION
    assert [run.status for run in Journal(new).runs()] == ["crashed", "answered"]


def test_a_file_of_no_version_is_not_taken_for_a_journal(old: Path) -> None:
    odd = old.parent / "odd.db"
    shutil.copy(old, odd)
    connection = sqlite3.connect(odd)
    connection.execute("PRAGMA user_version = 0")
    connection.close()
    with pytest.raises(plait.PlaitError, match="database of another program"):
        Journal(odd).runs()
