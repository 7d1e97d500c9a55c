"""2,000 runs of a scripted model on a local Ray cluster, one worker killed in the middle: all in the table, once.

python ray_cells.py [--cells 2000] [--jobs 16] [--here]      # --here: the same without Ray, to compare with
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import plait
from plait.lab import Progress, compare
from plait.lab.ray import RayEngine

REPLIES = [
    'Thought: I look it up.\nAction: calculator\nAction Input: {"expression": "6 * 7"}',
    "Thought: I know.\nFinal Answer: 42",
]


def workers() -> list[int]:
    """The worker processes of our cluster: grandchildren of this one that bear Ray's name."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    raylets = {row[0] for row in rows if row[1] == str(os.getpid())}
    return [int(row[0]) for row in rows if row[1] in raylets and row[2].startswith("ray::work")]


def main() -> None:
    """Run it and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--here", action="store_true")
    said = parser.parse_args()
    killed: list[int] = []

    def tell(progress: Progress) -> None:
        if not said.here and not killed and progress.finished >= said.cells // 2 and (found := workers()):
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[0])

    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "j.db"
        began = time.monotonic()
        found = compare(
            [
                {"id": str(number), "question": f"What is 6 * 7? ({number})", "answer": "42"}
                for number in range(said.cells)
            ],
            loops="react",
            models=[plait.Scripted(REPLIES)],
            tools=["calculator"],
            jobs=said.jobs,
            journal=journal,
            engine=None if said.here else RayEngine(),
            tell=tell,
        )
        seconds = time.monotonic() - began
        connection = sqlite3.connect(journal)
        runs, labels = connection.execute("SELECT count(*), count(DISTINCT label) FROM runs").fetchone()
        (rows,) = connection.execute("SELECT count(*) FROM events").fetchone()
        connection.close()
    row = found.rows[0]
    print(
        f"{'here' if said.here else 'ray'}: {len(found.results):,} results of {found.cells:,} cells in {seconds:.1f} s"
    )
    print(f"tasks in the table: {len({each.task for each in found.results}):,}; success {row.success:.3f}; n {row.n:,}")
    print(f"journal: {runs:,} runs with {labels:,} labels, {rows:,} rows; workers killed: {len(killed)} {killed}")
    print(f"unfinished: {found.unfinished or 'nothing'}")


if __name__ == "__main__":
    main()
