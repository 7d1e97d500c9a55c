"""Measure what the journal's commits cost: `python benchmarks/commits.py [--slow] [--dir FOLDER]`.

For one run and for 64 at once it prints CPU and wall time per entry in microseconds, and the longest and the 99th
percentile of the stalls of the event loop in milliseconds. `--slow` adds 5 ms to each commit.

- `model`: an intent with a request of 2 kB, and a result of 1 kB that is buffered
- `repeat`: intent and result of a call that may be repeated, both buffered, with a commit every tenth
- `effect`: a call that must not be repeated: its intent synced to the disk, then its result
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from plait.core import Call, Observation
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import IntentRecord, MadeCall, RequestRecord, ResponseRecord, ResultRecord, RunHead
from plait.journal.store import Journal, RunLog

TOOLS = ({"name": "send"},)


class SlowConnection(sqlite3.Connection):
    """A connection whose commits take 5 ms more."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" or (sql.startswith("INSERT") and not self.in_transaction):
            time.sleep(0.005)
        return super().execute(sql, *values)


async def watch_loop(gaps: list[float]) -> None:
    """Note by how much each sleep of 1 ms was late, in ms."""
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        gaps.append((time.perf_counter() - begun - 0.001) * 1000)


async def perform(kind: str, log: RunLog, count: int, pause: float) -> None:
    """Write the rows of so many entries, as an engine does."""
    request, answer = b'{"m":"' + b"q" * 2000, b"a" * 1000
    for n in range(count):
        if kind == "model":
            body = request + b"%d" % n
            await log.append((IntentRecord(f"{n}a0", n, "request", RequestRecord("act", "m", "p")), body))
            await asyncio.sleep(pause)
            log.buffer((ResultRecord(f"{n}a0", n, "request", ResponseRecord(200, 0.1)), answer))
        else:
            call = Call("send", {"to": "ann", "text": f"hello {n}"})
            intent = IntentRecord(f"{n}.0", n, "call", call, MadeCall(call))
            result = ResultRecord(f"{n}.0", n, "call", Observation("sent"))
            if kind == "effect":
                await log.append((intent, None), durable=True)
                await asyncio.sleep(pause)
                await log.append((result, None))
            else:
                log.buffer((intent, None), (result, None))
                await (log.append() if n % 10 == 9 else asyncio.sleep(pause))


async def measure(kind: str, runs: int, count: int, pause: float, folder: Path) -> tuple[float, float, float, float]:
    """Return CPU and wall time per entry in us, and the longest and the 99th percentile of stalls in ms."""
    journal = Journal(folder / f"{new_run_id()}.db")
    logs = [
        await journal.store.begin(
            RunHead(new_run_id(), "q", {"name": "react"}, {}, tools=TOOLS), owner_of_this_process(), []
        )
        for _ in range(runs)
    ]
    gaps: list[float] = []
    watching = asyncio.create_task(watch_loop(gaps)) if pause else None
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(perform(kind, log, count, pause) for log in logs))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if watching:
        watching.cancel()
    for log in logs:
        await log.end("answered", {}, {})
    await journal.store.close()
    gaps = sorted(gaps) or [0.0]
    each = 1e6 / (runs * count)
    return cpu * each, wall * each, gaps[-1], gaps[len(gaps) * 99 // 100]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--slow", action="store_true")
    options.add_argument("--dir", default=None)
    options.add_argument("--times", type=int, default=1)
    options.add_argument("--json", action="store_true")
    options.add_argument("--scale", type=float, default=1.0)
    chosen = options.parse_args()
    if chosen.slow:
        connect: Any = sqlite3.connect
        sqlite3.connect = lambda *words, **more: connect(*words, factory=SlowConnection, **more)
    with tempfile.TemporaryDirectory(dir=chosen.dir) as folder:
        for kind, runs, count, pause in (
            ("model", 1, 1000, 0.0),
            ("repeat", 1, 3000, 0.0),
            ("effect", 1, 200, 0.0),
            ("model", 64, 30, 0.0),
            ("effect", 64, 10, 0.0),
            ("model", 1, 300, 0.002),  # with the loop watched
            ("model", 64, 30, 0.01),
            ("effect", 64, 10, 0.01),
        ):
            count = max(5, int(count * chosen.scale / (10 if chosen.slow and runs == 1 else 1)))
            found = [asyncio.run(measure(kind, runs, count, pause, Path(folder))) for _ in range(chosen.times)]
            cpu, wall, longest, late = (round(statistics.median(each), 2) for each in zip(*found, strict=True))
            if chosen.json:
                print(json.dumps([kind, runs, pause, cpu, wall, longest, late]), flush=True)
            else:
                print(f"{kind:7}{runs:4}{pause:7} cpu {cpu:8} us  wall {wall:9} us  stall {longest:7} / {late} ms")


if __name__ == "__main__":
    main()
