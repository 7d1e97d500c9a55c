"""Many processes on one journal: they run agents, are killed, and resume each other's runs.

    python tests/shared_journal.py 20           # 20 processes, prints figures

Each process asks its agent again and again; at times it resumes a run that no process holds any more. Some processes
kill themselves before, within or after an effect, and another takes their place. Each effect is a line in the file
`ledger`. At the end, the runs that are left are resumed. No line may be there twice, each run that answered has all of
its lines or a call in doubt, and every row is whole.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plait
from plait.core import Call, Reply
from plait.core.errors import PlaitError
from plait.journal.run_query import RunQuery
from plait.journal.store import Journal, wait_for
from plait.journal.timeline import Timeline

RUNS, EFFECTS = 8, 3
"""Runs that each process begins, and effects of each."""
DEADLY = 0.04
"""The chance that a process dies at one of the three moments around an effect."""


@dataclass
class Shared:
    """What came of it."""

    processes: int = 0
    kills: int = 0
    runs: int = 0
    effects: int = 0
    in_doubt: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"processes {self.processes} kills {self.kills} runs {self.runs} effects {self.effects} "
            f"in doubt {self.in_doubt} wrong {len(self.wrong)}"
        )


def make_agent(folder: Path, chance: random.Random | None) -> plait.Agent[Any]:
    """Return the agent of all processes; with `chance`, its tool may kill the process."""

    def may_die() -> None:
        if chance is not None and chance.random() < DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)

    @plait.tool
    def pay(who: str, n: int) -> str:
        """Pay somebody."""
        may_die()
        ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(ledger, f"{who} {n}\n".encode())
        os.close(ledger)
        may_die()
        return "paid"

    def call(n: int) -> Any:
        def say(think: Any) -> Reply:
            may_die()
            who = next(each.content for each in think.messages if each.role == "user")
            return Reply("", calls=(Call("pay", {"who": who, "n": n}, str(n)),))

        return say

    script = [*map(call, range(EFFECTS)), "done"]
    return plait.Agent("tool_calling", model=plait.Scripted(script), tools=[pay], journal=folder / "j.db")


def work(folder: Path, name: str, seed: int) -> None:
    """Run the agent, and resume what others left."""
    chance = random.Random(seed)
    agent, store = make_agent(folder, chance), Journal(folder / "j.db").store
    for i in range(RUNS):
        run = agent.run(f"{name}-{i}")
        assert run.status == "answered", run.reason
        for row in wait_for(store.list_runs(RunQuery(limit=20))):
            if row.status == "running" and chance.random() < 0.3:
                try:
                    resumed = agent.resume(row.head.run)
                except PlaitError as why:  # it goes on, or another process was quicker
                    if not any(each in str(why) for each in ("still going on", "by another process", "has ended")):
                        raise
                else:
                    assert resumed.status == "answered", resumed.reason


def share(count: int, seed: int, folder: Path) -> Shared:
    """Let so many processes work at once, and as many again for those that die; then resume what is left."""
    chance, found = random.Random(seed), Shared()
    going: list[subprocess.Popen[str]] = []
    left = 2 * count

    def start() -> None:
        nonlocal left
        left -= 1
        words = [sys.executable, __file__, "work", str(folder), f"p{found.processes}", str(chance.getrandbits(32))]
        going.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        found.processes += 1

    for _ in range(count):
        start()
    while going:
        time.sleep(0.02)
        for each in [each for each in going if each.poll() is not None]:
            going.remove(each)
            if each.returncode == -signal.SIGKILL:
                found.kills += 1
                if left:
                    start()
            elif each.returncode:
                found.wrong.append(each.stdout.read() if each.stdout else "")
            each.stdout.close() if each.stdout else None
    journal, agent = Journal(folder / "j.db"), make_agent(folder, None)
    for row in journal.runs(-1):
        if row.status != "answered":
            run = agent.resume(row.head.run)
            if run.status != "answered":
                found.wrong.append(f"{row.head.question}: {run.status} {run.reason}")
    paid = Counter((folder / "ledger").read_text().splitlines())
    found.effects = paid.total()
    found.wrong += [f"{line} was paid {times} times" for line, times in paid.items() if times > 1]
    for row in journal.runs(-1):
        seen = Timeline(journal.rows(row.head.run)).tool_calls
        doubts = sum(each.seen is not None and each.seen.trouble == "in_doubt" for each in seen)
        lines = sum(paid[f"{row.head.question} {n}"] for n in range(EFFECTS))
        found.runs += 1
        found.in_doubt += doubts
        if lines + doubts < EFFECTS:
            found.wrong.append(f"{row.head.question}: {lines} effects and {doubts} doubts of {EFFECTS}")
    found.wrong += wait_for(journal.store.check())
    journal.close()
    return found


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        with tempfile.TemporaryDirectory() as name:
            result = share(int(sys.argv[1]), 1, Path(name))
        print(result, *result.wrong, sep="\n")
