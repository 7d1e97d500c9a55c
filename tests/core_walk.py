"""One walk through everything: an act of a payment that needs approval and a child run that asks a question.

As a script it is one process of that run, on a journal file, and kills itself at a point:

    python core_walk.py FOLDER DIES_AT [ANSWER QUESTION]      prints the status, and how many points it passed
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

import plait
from core_runs import Steps, asker, texts
from plait.core import Call, LoopRun
from plait.core.effects import Act
from plait.core.errors import UnknownRun
from plait.journal.sqlite.log import SqliteLog
from plait.journal.store import Journal


class Cap(plait.Hook):
    """Lowers each payment to 100."""

    def before_tool(self, context: Any, call: Call) -> Any:
        if call.tool == "pay" and call.input["amount"] > 100:
            return structs.replace(call, input={**call.input, "amount": 100})
        return None


def walk() -> LoopRun:
    """Pay 500 and ask the child, at once."""
    both = Call("pay", {"amount": 500}), Call("helper", {"question": "Which Ann?"})
    return texts((yield Act(both)))  # type: ignore[return-value]


def make_agent(pay: plait.Tool, *, has_hooks: bool = True, journal: Any = False) -> plait.Agent[Any]:
    """Return the agent of the walk."""
    child = plait.Agent(Steps(asker, asks=True), model=plait.Scripted(["x"]), journal=journal)
    return plait.Agent(
        Steps(walk),
        model=plait.Scripted(["x"]),
        tools=[pay, child.as_tool("helper", "Ask it.")],
        approve="effects",
        hooks=[Cap()] if has_hooks else [],
        journal=journal,
    )


def paying_into(file: Path) -> plait.Tool:
    """Return a tool that writes each payment into a file."""

    @plait.tool(inline=True)
    def pay(amount: int, to: str = "Ann") -> str:
        """Pay somebody."""
        with file.open("a") as payments:
            payments.write(f"{amount} to {to}\n")
        return f"paid {amount}"

    return pay


class Points:
    """Counts the points before and after each write to the journal, and kills the process at one."""

    def __init__(self, dies_at: int) -> None:
        self.dies_at, self.passed = dies_at, 0

    def watch(self) -> None:

        def with_points(write: Callable[..., Any]) -> Callable[..., Any]:
            async def write_with_points(*given: Any, **how: Any) -> None:
                self._pass()
                await write(*given, **how)
                self._pass()

            return write_with_points

        for name in ("append", "end"):
            setattr(SqliteLog, name, with_points(getattr(SqliteLog, name)))

    def _pass(self) -> None:
        self.passed += 1
        if self.passed == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, dies_at: int, answer: str | None = None, question: str | None = None) -> None:
    points = Points(dies_at)
    points.watch()
    agent = make_agent(paying_into(folder / "payments"), journal=folder / "runs.db")
    try:
        id = Journal(folder / "runs.db").run("last").head.run
    except UnknownRun:
        run = agent.run("q")
    else:
        run = agent.resume(id, answer, question=question)
    print(json.dumps([run.id, run.status, points.passed]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
