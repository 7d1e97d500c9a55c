"""Performs a scenario of `step_scenarios.py` in one process, up to its end, a question, or a kill.

    python steps_script.py FOLDER SCENARIO POINT [QUESTION ANSWER]

POINT is "after:3", "before:3" (SIGKILL right after or before the third write to a journal), "after:3:TERM" (SIGTERM) or
"0" (never). The process begins the scenario's next run, or resumes the last one, with the answer if one is given. It
prints one JSON object. After SIGTERM it cancels its run and exits with 143.
A write is a transaction that changes the file, whoever makes it: so a kill can be anywhere in the life of a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

FOLDER, SCENARIO, POINT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["PLAIT_STEPS_TALLY"] = str(FOLDER / "tally")

import plait  # noqa: E402
from lifecycle_scenarios import name_file  # noqa: E402
from plait.core import Waiting  # noqa: E402
from plait.core import events as ev  # noqa: E402
from plait.core.errors import JournalError  # noqa: E402
from plait.journal.open_questions import find_open_questions  # noqa: E402
from plait.journal.store import Journal, wait_for  # noqa: E402
from row_kills import SCENARIOS  # noqa: E402
from step_parts import EFFECTS, read_tally, tally  # noqa: E402

writes = 0


class Watched(sqlite3.Connection):
    """A connection that counts its writes, and may kill the process before or after one."""

    def execute(self, sql: str, *rest: Any) -> Any:
        return self._do(super().execute, sql, *rest)

    def executemany(self, sql: str, *rest: Any) -> Any:
        return self._do(super().executemany, sql, *rest)

    def _do(self, perform: Any, sql: str, *rest: Any) -> Any:
        global writes
        first = sql.split(None, 1)[0].upper()
        ends = first == "COMMIT" if self.in_transaction else first in ("INSERT", "UPDATE", "DELETE", "REPLACE")
        if ends:
            die_at(f"before:{writes + 1}")
        result = perform(sql, *rest)
        if ends:
            writes += 1
            die_at(f"after:{writes}")
        return result


def die_at(point: str) -> None:
    """Get a signal if this is the point."""
    if point == POINT.removesuffix(":TERM"):
        os.kill(os.getpid(), signal.SIGTERM if POINT.endswith("TERM") else signal.SIGKILL)


def watch_writes() -> None:
    """Let all connections of this process be watched."""
    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **options: connect(*args, **{"factory": Watched, **options})


def perform() -> list[plait.Run[Any]]:
    """Begin the scenario's next run, or resume the last one, until one waits or all have ended. Return them."""
    agent = scenario.make(journal)
    answer: dict[str, Any] = dict(zip(("question", "answer"), sys.argv[4:], strict=False))
    events: list[ev.Event] = []
    options: dict[str, Any] = {"on_wait": scenario.on_wait} if scenario.on_wait is not None else {}
    options |= {"on_event": events.append} if scenario.streams else {}

    async def main() -> plait.Run[Any]:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        recorded = list_runs()
        run = await agent.aresume(recorded[0], **answer, **options) if recorded else None
        for begin in scenario.begin[len(recorded) :]:
            if run is None or run.status != "waiting":
                run = await begin(agent, options)
        assert run is not None
        if events:
            shown = "".join(each.text for each in events if isinstance(each, ev.Answer))
            assert isinstance(events[-1], ev.Ended) and events[-1].outcome == run.outcome
            assert shown in ("", run.answer), shown
        return run

    last = asyncio.run(main())
    return [*(agent.resume(run) for run in reversed(list_runs()) if run != last.id), last]


def list_runs() -> list[str]:
    """Return the runs that no other run began, the newest first; none if there is no journal yet."""
    with contextlib.suppress(JournalError):
        return [row.head.run for row in Journal(journal).runs()]
    return []


def describe(runs: list[plait.Run[Any]]) -> dict[str, Any]:
    """Return what the driver must know of the runs; the last one is that which goes on."""
    calls = [ended for run in runs for each in family(run) for ended in each.timeline.results]
    results, last = [call.seen or seen for call, seen in calls], runs[-1]
    return {
        "status": last.status,
        "answer": last.answer,
        "reason": last.reason,
        "open": [(each.question, each.text) for each in wait_for(find_open_questions(Journal(journal).store, last.id))]
        if last.status == "waiting"
        else [],
        "first": last.outcome.question if isinstance(last.outcome, Waiting) else "",
        "in_doubt": [seen.text for seen in results if seen.trouble == "in_doubt"],
        "refused": [seen.text for seen in results if seen.trouble == "refused"],
        "requests": sum(run.tree.requests for run in runs),
        "made": sum(seen.was_made for each, seen in calls if each.call.tool in EFFECTS),
        "files": sorted(name_file(file.name, file.data) for run in runs for file in run.files),
        "writes": writes,
    }


def family(run: plait.Run[Any]) -> list[plait.Run[Any]]:
    """Return a run and all runs below it."""
    return [run, *(each for child in run.children for each in family(child))]


if __name__ == "__main__":
    scenario, journal = SCENARIOS[SCENARIO], FOLDER / "j.db"
    watch_writes()
    try:
        runs = perform()
    except asyncio.CancelledError:
        tally(f"ended {os.getpid()}")
        sys.exit(143)
    found = describe(runs)
    if all(run.status in ("answered", "failed", "stopped") for run in runs):
        before = read_tally()
        replays = [(scenario.make(journal).replay(run), run) for run in runs]
        found["whole"] = all(replayed.whole and replayed.outcome == run.outcome for replayed, run in replays)
        found["performed"] = read_tally()[len(before) :]
        found["replay_writes"] = writes - found["writes"]
    tally(f"ended {os.getpid()}")
    print(json.dumps(found))
