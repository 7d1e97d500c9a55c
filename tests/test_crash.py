"""A run that is killed with SIGKILL and resumed ends with the same answer, and repeats no effect."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import plait
from conftest import some_of
from crash_support import kill_and_resume, run_script
from loop_scripts import ANSWER, LOOPS
from models_server import Server
from plait.journal.run_query import RunQuery
from plait.journal.store import Journal
from profile_matrix import ONE_OF_EACH_WIRE, PROFILES


@pytest.mark.parametrize("loop", some_of(LOOPS, 2))
def test_a_run_killed_at_each_kind_of_point_is_resumed_and_repeats_no_effect(loop: str, tmp_path: Path) -> None:
    """One kill before and after each kind of effect, and after each kind of write. The campaign kills at every one."""
    whole = run_script(tmp_path / "whole", loop)
    assert (whole["status"], whole["answer"]) == ("answered", ANSWER)
    points: list[str] = whole["points"]
    assert {"after intent call", "after "} & {*points}, "the intents of calls are writes too"
    effects = ("model", "send", "fetch")
    writes = "after " if loop != "codeact" else "after send"  # codeact starts a sandbox each time
    kinds = {kind for kind in points if kind.startswith(writes) or kind.endswith(effects)}
    kinds.discard("after ")  # a write of rows in line, because a call took long: it is not in every run
    assert {"before model", "after model", "before send", "after send", "before fetch", "after fetch"} <= kinds
    found = {kind: kill_and_resume(tmp_path / kind, loop, kind) for kind in sorted(kinds)}
    assert [each.wrong for each in found.values() if each.wrong] == []
    assert sum(each.kills for each in found.values()) == len(kinds)
    assert [kind for kind, each in found.items() if each.repeated or each.lost] == []
    assert found["after send"].in_doubt >= 1


@pytest.mark.parametrize("wire", ONE_OF_EACH_WIRE)
async def test_a_run_killed_behind_an_effect_is_resumed_on_each_wire(wire: str, tmp_path: Path) -> None:
    """The resumed run sends the reasoning of the first process back, so the journal must have it."""
    name = ONE_OF_EACH_WIRE[wire]
    handler = PROFILES[name].server()
    async with Server(handler) as server:
        endpoint = (name, server.url)
        found = await asyncio.to_thread(
            kill_and_resume, tmp_path / "run", "tool_calling", "after send", endpoint=endpoint
        )
    assert (found.wrong, found.kills, found.repeated, found.lost, found.in_doubt) == ("", 1, 0, 0, 1)
    assert handler.refused == []


def test_a_run_of_a_live_process_is_not_resumed(journal: Path) -> None:
    @plait.tool
    async def slow(text: str) -> str:
        """Takes long."""
        await asyncio.sleep(30)
        return text

    agent = plait.Agent(
        "react",
        model=plait.Scripted(['Action:\n```json\n{"action": "slow", "action_input": "x"}\n```', "Final Answer: y"]),
        tools=[slow],
        journal=journal,
    )

    async def main() -> None:
        task = asyncio.create_task(agent.arun("go"))
        for _ in range(200):
            await asyncio.sleep(0.01)
            if Journal(journal).find(RunQuery("running")):
                break
        with pytest.raises(plait.PlaitError, match="still going on"):
            await agent.aresume("last")
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert Journal(journal).run("last").status == "cancelled"
