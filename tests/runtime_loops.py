"""Loops that start effects and take results as they finish, for tests; and a script that performs one in a process.

python runtime_loops.py JOURNAL COUNTS FATAL       prints the answer; FATAL: die in that send, 0 in none
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import plait
from plait.core import (
    Act,
    Answered,
    Call,
    LoopContext,
    LoopRun,
    OneKind,
    Splitter,
    Task,
    Think,
    start,
    think,
    user,
    wait_next,
)


@dataclass(frozen=True)
class Ahead:
    """Starts a call for each pair of (tool, input), asks a model meanwhile, and answers in the order of finishing."""

    calls: tuple[tuple[str, Any], ...] = ()
    ask: bool = True

    name: ClassVar[str] = "ahead"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    prompts: ClassVar[dict[str, str]] = {"none": "it renders none"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        yield from start(*(Act((Call(tool, given),)) for tool, given in self.calls))
        if self.ask:
            yield from think("act", (user(task.question),))
        seen = []
        for _ in self.calls:
            taken = yield from wait_next()
            seen.append(taken.observations[0].text)
            if self.ask:
                yield from think("act", (user("\n".join(seen)),))
        return Answered(seen)

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")


@dataclass(frozen=True)
class Watching(Ahead):
    """Reads a reply while it is written. Answers with the pieces, "|" where it began anew, and the whole reply."""

    name: ClassVar[str] = "watching"

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        (ticket,) = yield from start(Think("act", (user(task.question),), watch=True))
        pieces = []
        while True:
            taken = yield from wait_next(ticket)
            if taken.done:
                assert taken.reply is not None
                return Answered(["".join(pieces), taken.reply.text])
            pieces.append("|" * taken.again + taken.piece)


def wait_for_results(journal: str, number: int) -> None:
    """Wait until the journal holds the results of so many calls: the kill that follows must not lose them."""
    results = "SELECT count(*) FROM events WHERE kind = 'result' AND json_extract(data, '$.work') = 'call'"
    with closing(sqlite3.connect(journal)) as connection:
        while connection.execute(results).fetchone()[0] < number:
            time.sleep(0.01)


if __name__ == "__main__":
    journal, counts, fatal = sys.argv[1], Path(sys.argv[2]), sys.argv[3]

    @plait.tool
    def send(text: str) -> str:
        """Sends; must never be called twice."""
        time.sleep(0.05 * int(text))
        with counts.open("a") as file:
            file.write(text + "\n")
        if text == fatal:
            wait_for_results(journal, int(fatal) - 1)
            os.kill(os.getpid(), signal.SIGKILL)
        return f"sent {text}"

    agent = plait.Agent(
        Ahead((("send", "3"), ("send", "1"), ("send", "2"))),
        model=plait.Scripted(["fine"] * 9, by_turn=False),
        tools=[send],
        journal=journal,
    )
    run = agent.resume("last") if "resume" in sys.argv else agent.run("Send three.")
    print(run.status, run.answer)
