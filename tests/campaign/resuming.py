"""Pairs of processes resume one run at once, while the journal is locked until both have read it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figures, line_of

from fork_server import Child, start_forked
from journal_rows import name_of
from plait.journal.owner import owner_of_this_process
from plait.journal.store import Journal
from test_journal_claims import RESUMES, _has_open, _head


def run(count: int, seed: int, folder: Path) -> Figures:
    """Resume so many runs twice at once."""
    performed, refused, failures = 0, 0, []
    for pair in range(count):
        path = folder / f"{pair}.db"
        try:
            one, other = resume_twice(path)
        except AssertionError as why:
            failures.append(f"pair {pair}: {why}")
            continue
        performed += 1
        refused += "refused" in one + other
    return Figures(line_of(pairs=count, performed_once=performed, refused=refused, wrong=len(failures)), failures)


def resume_twice(path: Path) -> list[str]:
    """What the two processes printed. Raises `AssertionError` unless the run was performed exactly once."""

    async def leave() -> None:
        log = await Journal(path).store.begin(_head(path), owner_of_this_process())
        await log.end("cancelled", {"type": "cancelled", "reason": "x"}, {})

    asyncio.run(leave())
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    both = [start(path) for _ in range(2)]
    until = time.monotonic() + 20
    while not all(_has_open(child.pid, f"{path}-wal") for child, _ in both) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)  # they have opened the journal; most have read the run by now
    holder.execute("ROLLBACK")
    holder.close()
    said = []
    for child, out in both:
        child.wait(60)
        out.seek(0)
        said.append(out.read().decode().strip())
        out.close()
    assert "answered" in said and all(each == "answered" or "refused" in each for each in said), said
    row, rows = Journal(path).run("r"), Journal(path).rows("r")
    assert (row.status, row.outcome) == ("answered", {"type": "answered", "answer": "it is done"}), row
    assert [each.seq for each in rows] == list(range(len(rows)))
    kinds = [name_of(each.record) for each in rows]
    assert kinds.count("note resumed") == 1 and kinds.count("intent request") == 1, kinds
    return said


def start(path: Path) -> tuple[Child, Any]:
    out = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    with open(os.devnull, "r+b") as nothing:
        streams = {"stdin": nothing.fileno(), "stdout": out.fileno(), "stderr": nothing.fileno()}
        return start_forked(["-c", RESUMES, str(path)], **streams), out
