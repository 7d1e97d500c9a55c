"""Many clients that approve the same question at once: each approval counts once.

python tests/approval_clients.py COUNT       prints one line of figures; exit code 1 if a call was made without approval
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import plait
from plait.core.errors import PlaitError
from plait.core.outcomes import Waiting

CLIENTS = 5
"""Clients a question."""


def run_with_two_calls(journal: Path, made: list[str]) -> plait.Agent:
    """An agent that makes the same call twice, then answers; each call is appended to `made`."""

    @plait.tool
    def pay(to: str) -> str:
        """Pays."""
        made.append(to)
        return f"paid {to}"

    act = 'Thought: x\nAction:\n```\n{"action": "pay", "action_input": {"to": "Ada"}}\n```'
    script = plait.Scripted([act, act, "Final Answer: Done."], by_turn=False)
    # A model of its own for each run: the script goes by what was asked in it.
    return plait.Agent("react", model=script, tools=[pay], journal=journal, approve="effects")


def approve_at_once(count: int, answer: Callable[[int], object]) -> Counter[str]:
    """Let so many clients answer at once; what came of it, by the name of the error ("" for none)."""
    found: Counter[str] = Counter()
    ready = threading.Barrier(count)

    def client(i: int) -> None:
        ready.wait(60)
        try:
            answer(i)
        except PlaitError as why:
            found[type(why).__name__] += 1
        else:
            found[""] += 1

    threads = [threading.Thread(target=client, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


def duplicates(folder: Path, count: int, clients: int = CLIENTS) -> dict[str, int]:
    """At least `count` answers, `clients` at once to each question: how many were sent, and what came of them."""
    figures = {"answers": 0, "taken": 0, "calls": 0, "unapproved": 0, "lost": 0}
    while figures["answers"] < count:
        made: list[str] = []
        agent = run_with_two_calls(folder / "runs.db", made)
        waiting = agent.run("Pay Ada.")
        assert isinstance(waiting.outcome, Waiting)
        found = approve_at_once(clients, lambda i, agent=agent, run=waiting: agent.resume(run, "yes"))  # type: ignore[misc]
        figures["answers"] += clients
        figures["taken"] += found[""]
        figures["calls"] += len(made)
        figures["unapproved"] += max(0, len(made) - 1) + max(0, found[""] - 1)
        figures["lost"] += found[""] == 0
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        done = duplicates(Path(where), int(sys.argv[1]))
    print("duplicate approvals:", ", ".join(f"{value:,} {name}" for name, value in done.items()))
    sys.exit(bool(done["unapproved"] or done["lost"]))
