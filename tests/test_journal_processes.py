"""Several processes write one journal at once, and some are killed: nothing that was awaited is lost."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from fork_server import run_together, start_forked
from plait.journal.records import IntentRecord, NoteRecord, RequestRecord
from plait.journal.store import Journal

FIFTY_RUNS = """
import asyncio, sys
from plait.journal.store import Journal
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import IntentRecord, NoteRecord, RequestRecord, RunHead

me, at_once = sys.argv[2], int(sys.argv[3])

async def run(journal, i):
    head = RunHead(new_run_id(), f"{me} {i}", {"name": "react"}, {})
    log = await journal.store.begin(head, owner_of_this_process(), [(NoteRecord("n0", 0, "k", "first"), None)])
    for n in range(10):
        body = f"{me} {i}: ".encode() + b"x" * 100 + str(n).encode()
        await log.append((IntentRecord(f"{n}a0", n, "request", RequestRecord("act", "m", "p")), body))
        await asyncio.sleep(0)
    await log.end("answered", {"type": "answered", "answer": f"{me} {i}"}, {})

async def main():
    journal = Journal(sys.argv[1], busy_seconds=120)
    gate = asyncio.Semaphore(at_once)
    async def one(i):
        async with gate:
            await run(journal, i)
    await asyncio.gather(*map(one, range(50)))
    journal.close()

asyncio.run(main())
"""


def test_4_processes_of_50_runs_lose_nothing_and_keep_each_run_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "j.db"  # all four find no file, and make it at once
    programs = [["-c", FIFTY_RUNS, path, f"p{i}", str(at_once)] for i, at_once in enumerate((1, 1, 10, 50))]
    for done in run_together(programs, timeout=200):
        assert done.returncode == 0, done.stderr
    journal = Journal(path)
    runs = journal.runs(limit=1000)
    assert sorted(run.head.question for run in runs) == sorted(f"p{p} {i}" for p in range(4) for i in range(50))
    for run in runs:
        rows = journal.rows(run.head.run)
        assert [row.seq for row in rows] == list(range(11))
        assert [row.record for row in rows] == [
            NoteRecord("n0", 0, "k", "first"),
            *(IntentRecord(f"{n}a0", n, "request", RequestRecord("act", "m", "p")) for n in range(10)),
        ]
        name = run.head.question.encode()
        assert [row.body for row in rows[1:]] == [name + b": " + b"x" * 100 + b"%d" % n for n in range(10)]
        assert run.outcome == {"type": "answered", "answer": run.head.question}


WRITES_UNTIL_KILLED = """
import asyncio, sys
from plait.journal.store import Journal
from plait.journal.owner import owner_of_this_process
from plait.journal.records import NoteRecord, RunHead

async def run(journal, name):
    log = await journal.store.begin(RunHead(name, "q", {"name": "react"}, {}), owner_of_this_process())
    for n in range(1_000_000):
        await log.append((NoteRecord(f"n{n}", 1, "k", "t" * 300), None))
        sys.stdout.write(f"{name} {n}\\n")
        sys.stdout.flush()
        await asyncio.sleep(0)

async def main():
    journal = Journal(sys.argv[1])
    await asyncio.gather(*(run(journal, name) for name in sys.argv[2:]))

asyncio.run(main())
"""


def test_what_was_awaited_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    for turn, names in enumerate((["a"], ["b"], ["c", "d", "e"], ["f", "g", "h"])):
        path = tmp_path / "j.db"
        words = ["-c", WRITES_UNTIL_KILLED, path, *names]
        with (tmp_path / f"said{turn}").open("wb") as said:
            child = start_forked(words, stdin=0, stdout=said.fileno(), stderr=2)
            while not (tmp_path / f"said{turn}").stat().st_size:
                assert child.poll() is None
                time.sleep(0.01)
            time.sleep(random.random() / 5)
            child.send_signal(signal.SIGKILL)
            child.wait()
        whole = (tmp_path / f"said{turn}").read_text().rpartition("\n")[0].split("\n")
        journal = Journal(path)
        for name in names:
            told = [int(line.split()[1]) for line in whole if line.startswith(name)]
            kept = [row.record.key for row in journal.rows(name)]
            assert kept == [f"n{n}" for n in range(len(kept))]
            assert told and len(told) <= len(kept) <= len(told) + 1
            assert journal.run(name).status == "interrupted"
