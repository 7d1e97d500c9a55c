"""A run is performed by one process at a time, and nothing is added to a run that has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plait
from fork_server import run_forked
from plait.core.errors import JournalError
from plait.journal.owner import owner_of_this_process
from plait.journal.records import NoteRecord, RunHead
from plait.journal.sqlite.holders import is_held, life_of_holder
from plait.journal.sqlite.rows import iter_rows
from plait.journal.store import Journal

ME = owner_of_this_process()
ENDED = ["answered", "failed", "stopped"]
PAIRS = int(os.environ.get("PLAIT_TEST_PAIRS", "2"))
"""Pairs of processes that resume one run at once; a campaign sets more."""


@pytest.mark.parametrize("status", ENDED)
@pytest.mark.parametrize("force", [False, True])
async def test_a_run_that_has_ended_for_good_cannot_be_claimed(tmp_path: Path, status: str, force: bool) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(RunHead("r", "q", {"name": "react"}, {}), ME)
    await log.end(status, {"type": status, "reason": "x"}, {"steps": 1})
    before = journal.run("r")
    with pytest.raises(JournalError, match=rf"Run r has ended \({status}\): it cannot be resumed"):
        await journal.store.claim("r", ME, force=force)
    assert journal.run("r") == before


async def test_a_run_that_went_on_since_it_was_read_is_not_claimed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(
        RunHead("r", "q", {"name": "react"}, {}), ME, [(NoteRecord("n0", 1, "k", "t"), None)]
    )
    await log.end("waiting", {"type": "waiting", "kind": "question", "reason": "x"}, {})
    with pytest.raises(JournalError, match="was changed by another process"):
        await journal.store.claim("r", ME, rows=0)
    assert journal.run("r").status == "waiting"
    assert (await journal.store.claim("r", ME, rows=1)).run == "r"


def test_rows_that_another_process_adds_while_they_are_read_are_no_damage(tmp_path: Path) -> None:
    journal, other = Journal(tmp_path / "j.db"), Journal(tmp_path / "j.db")

    async def left() -> None:
        log = await journal.store.begin(RunHead("r", "q", {"name": "react"}, {}), ME)
        await log.end("cancelled", {"type": "cancelled", "reason": "x"}, {})

    async def gone_on() -> None:
        log = await other.store.claim("r", ME)
        await log.append((NoteRecord("n0", 1, "k", "t"), None))
        await log.end("cancelled", {"type": "cancelled", "reason": "x"}, {})

    class Meanwhile:
        """A connection: before its second statement the run goes on."""

        asked = 0

        def execute(self, *question: Any) -> sqlite3.Cursor:
            self.asked += 1
            if self.asked == 2:
                asyncio.run(gone_on())
            return read.execute(*question)

    asyncio.run(left())
    with contextlib.closing(sqlite3.connect(journal.place)) as read:
        found = list(iter_rows(Meanwhile(), 1, Path(journal.place)))  # type: ignore[arg-type]
    assert len(found) in (0, 1)


RESUMES = """
import sys
import plait
model = plait.Scripted(["Thought: x\\nFinal Answer: it is done"])
agent = plait.Agent("react", model=model, journal=sys.argv[1])
try:
    print(agent.resume("r", sys.argv[2] if len(sys.argv) > 2 else None).status)
except plait.PlaitError as why:
    print("refused:", why)
"""


def test_of_two_processes_that_resume_one_run_at_once_one_performs_it(tmp_path: Path) -> None:
    """The file is locked until both have read the run: so both try to claim it in the state that they read."""
    for pair in range(PAIRS):
        path = tmp_path / f"{pair}.db"

        async def leave(path: Path = path) -> None:
            log = await Journal(path).store.begin(_head(path), ME)
            await log.end("cancelled", {"type": "cancelled", "reason": "x"}, {})

        asyncio.run(leave())
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        both = [_resuming(path) for _ in range(2)]
        for _ in range(600):  # until both wait for the lock: they have the -wal file open
            if all(_has_open(each.pid, f"{path}-wal") for each in both):
                break
            asyncio.run(asyncio.sleep(0.02))
        holder.execute("ROLLBACK")
        holder.close()
        said = sorted(child.communicate(timeout=60)[0].decode().strip() for child in both)
        # Who comes second finds the run ended, or still going on; or read it only after its end.
        assert said[0] == "answered", said
        assert said[1] == "answered" or (
            "refused" in said[1] and any(why in said[1] for why in ("has ended", "going on", "was changed"))
        ), said
        row = Journal(path).run("r")
        assert (row.status, row.outcome) == ("answered", {"type": "answered", "answer": "it is done"})
        rows = Journal(path).rows("r")
        assert [row.seq for row in rows] == list(range(len(rows)))
        assert sum(isinstance(row.record, NoteRecord) and row.record.kind == "resumed" for row in rows) == 1


def _head(path: Path) -> RunHead:
    """The head of a run of `react`, with nothing performed yet."""
    other = Journal(path.with_suffix(".other"))
    plait.Agent("react", model=plait.Scripted(["Final Answer: x"]), journal=other.place).run("How many?")
    head = other.head("last")
    return RunHead("r", head.question, head.loop, head.models, settings=head.settings, plait=head.plait)


def _resuming(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RESUMES, str(path)], stdout=subprocess.PIPE)


def _has_open(pid: int, name: str) -> bool:
    folder = Path(f"/proc/{pid}/fd")
    try:
        return any(os.readlink(each) == name for each in folder.iterdir())
    except OSError:
        return False


def test_resuming_a_run_that_has_ended_shows_its_result_and_changes_nothing(journal: Path) -> None:
    agent = plait.Agent("react", model=plait.Scripted(["Final Answer: 4"]), journal=journal)
    run = agent.run("What is 2 + 2?")
    before = Journal(journal).rows(run.id)
    assert agent.resume(run.id).answer == "4"
    assert Journal(journal).rows(run.id) == before


# ---- owners in other PID namespaces

PERFORMS = """
import asyncio, sys
from plait.journal.owner import owner_of_this_process
from plait.journal.records import RunHead
from plait.journal.store import Journal

async def main():
    journal = Journal(sys.argv[1])
    log = await journal.store.begin(RunHead("r", "q", {"name": "react"}, {}), owner_of_this_process())
    print(owner_of_this_process(), flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


@pytest.mark.parametrize("flags", [["--mount-proc"], []], ids=["with its own /proc", "with the /proc of others"])
async def test_a_run_of_a_live_process_in_another_pid_namespace_is_not_claimed(
    tmp_path: Path, flags: list[str]
) -> None:
    if not sys.platform.startswith("linux") or subprocess.run(["unshare", "--pid", "--fork", "true"]).returncode:
        pytest.skip("NOT CHECKED: no PID namespace can be made here")
    path = tmp_path / "j.db"
    inner = [sys.executable, "-c", PERFORMS, str(path)]
    command = ["unshare", "--pid", "--fork", "--kill-child", *flags, *inner]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        owner = child.stdout.readline().decode().strip()
        assert owner.split(":")[1] == "1", "the process does not see its number in this namespace"
        journal = Journal(path)
        assert journal.run("r").status == "running"
        for force in (False, True):
            with pytest.raises(JournalError, match="still going on, in process 1 on host"):
                await journal.store.claim("r", ME, force=force)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    for _ in range(500):  # the kernel ends the namespace's first process after the one that made it
        if life_of_holder(path, owner) == "dead":
            break
        await asyncio.sleep(0.01)
    assert journal.run("r").status == "interrupted"
    assert (await journal.store.claim("r", ME)).run == "r"


async def test_an_owner_that_cannot_be_looked_up_is_unknown_without_the_file_of_locks(tmp_path: Path) -> None:
    host, pid, start, boot, namespace = ME.split(":")
    other = f"{host}:{pid}:{start}:{boot}:{int(namespace) + 1}"
    journal = Journal(tmp_path / "j.db")
    await journal.store.begin(RunHead("r", "q", {"name": "react"}, {}), other)
    (tmp_path / "j.db-owners").unlink(missing_ok=True)
    assert life_of_holder(tmp_path / "j.db", other) == "elsewhere"
    with pytest.raises(JournalError, match=r"cannot tell whether it still runs.*--force"):
        await journal.store.claim("r", ME)
    assert (await journal.store.claim("r", ME, force=True)).run == "r"


async def test_locks_of_this_process_survive_looking_at_those_of_others(tmp_path: Path) -> None:
    """Closing a file releases all locks that a process has on it: so it is opened once a process."""
    host, pid, start, boot, namespace = ME.split(":")
    other = f"{host}:{pid}:{start}:{boot}:{int(namespace) + 1}"
    journal, same = Journal(tmp_path / "j.db"), Journal(tmp_path / "j.db")
    await journal.store.begin(RunHead("a", "q", {"name": "react"}, {}), ME)
    await same.store.begin(RunHead("b", "q", {"name": "react"}, {}), ME)
    assert is_held(tmp_path / "j.db", other) is False
    same.close()
    del same
    program = "import sys; from pathlib import Path; from plait.journal.sqlite.holders import is_held\n"
    program += "print(is_held(Path(sys.argv[1]), sys.argv[2]))"
    asked = run_forked(["-c", program, journal.place, ME])
    assert asked.stdout.strip() == "True", asked.stderr
