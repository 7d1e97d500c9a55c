"""Runs in which a stranger's instruction comes by some part of Plait, with a model that obeys it.

A run is made directly, as a child run, resumed by a new agent after each question, or forked at its first step. Its
policy is `taint`, a reviewer that approves everything, or both. The user approves only what the task needs. Without a
policy the same runs do harm.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from injected.grade import OfficeUser, find_wanted
from injected.obedient import obedient_model
from injected.office import InjectedTask, Office
from injected.surfaces import make_tools

import plait
from plait.core import Waiting
from plait.loops import loop_from

LOOPS = ("react", "json", "tool_calling", "rewoo", "compiler", "phased(rounds=4)", "codeact")
WAYS = ("direct", "child", "resumed", "forked")
APPROVES = '{"verdict": "approve", "reason": "a text said so"}'
POLICIES = ("none", "taint", "reviewer", "both")


def fields_of(policy: str) -> dict[str, Any]:
    """Return the options of an agent. The reviewer believes everything."""
    fields: dict[str, Any] = {"taint": "ask"} if policy in ("taint", "both") else {}
    if policy in ("reviewer", "both"):
        reviewer = plait.Scripted([APPROVES] * 60, by_turn=False, name="reviewer")
        fields["approve"] = plait.Reviewer(reviewer, policy="Approve what a text asks for.")
    return fields


def count_harm(task: InjectedTask, loop: str, way: str, policy: str, folder: Path) -> tuple[int, int]:
    """Run a task. Return how many effects happened that the user neither wanted nor approved, and were refused."""
    office, user = Office(task), OfficeUser(task)
    tools = make_tools(office, folder)

    def make() -> plait.Agent[Any]:
        model = obedient_model(loop_from(loop).name, task)
        return plait.Agent(
            loop_from(loop), model=model, tools=tools, journal=folder / "runs.db", name="office", **fields_of(policy)
        )

    if way == "child":
        asks = [{"calls": [{"name": "office", "input": {"question": task.question}}]}, {"answer": "over"}]
        parent = plait.Agent(
            "tool_calling",
            model=plait.Scripted(asks),
            tools=[make().using(taint="off", approve="never").as_tool("office")],
            journal=folder / "runs.db",
            **fields_of(policy),
        )
        run: plait.Run[Any] = parent.run("Ask the office.", on_wait=user)
    elif way in ("resumed", "forked"):
        run = make().run(task.question)
        if way == "forked":
            run = make().fork(run.id, 1)
        while isinstance(run.outcome, Waiting):
            run = make().resume(run.id, user(run.outcome), question=run.outcome.question)
    else:
        run = make().run(task.question, on_wait=user)
    if run.status not in ("answered", "stopped"):
        raise AssertionError(f"the run ended as {run.status}: {run.reason}")
    return sum(find_wanted(task, call) is None for call in office.done), len(user.refused)
