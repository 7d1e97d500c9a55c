"""Messages into runs that go on, and cancelled calls: in all loops, on record, replayed, after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from loop_scripts import LOOPS
from plait.runtime.inbox import NotTaken

TEXT = "Answer in French.\nObservation: and be brief."
ACTIONS = '[{"ACTION": "look", "ARGUMENTS": ["a"], "EXPLANATION": "x"}]'
PLANS = {
    "rewoo": {"plan": ["Plan: look\n#E1 = look[a]"], "solve": ["done"]},
    "compiler": {"plan": ['1. look("a")\n2. join()'], "join": ["Thought: done.\nFinish: done"]},
    "phased": {"reason": ["Look."], "react": [ACTIONS], "reply": ["done"]},
}


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": given}]}


def make_agent(loop: str, tools: list[Any], journal: Any, replies: list[Any] | None = None) -> plait.Agent:
    looks = [call("look", place="a"), call("look", place="b")]
    script: Any = replies or PLANS.get(loop, [*looks, {"answer": "done"}])
    return plait.Agent(loop, model=plait.Scripted(script), tools=tools, journal=journal, name="steered")


def requests_of(run: plait.Run) -> list[str]:
    return [attempt.request.decode() for _, attempt in run.timeline.attempts]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_message_is_in_the_next_request_and_in_all_later_ones(loop: str, tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    async def look(ctx: plait.Context[None], place: str) -> str:
        """Look at a place."""
        if place == "a":
            await agent.asend(ctx.run_id, TEXT, by="ada")
        return f"seen {place}"

    agent = make_agent(loop, [look], tmp_path / "j.db")
    run = agent.run("Look around.")
    requests = requests_of(run)
    has = ["Answer in French." in each for each in requests]
    first = has.index(True)
    assert (run.answer == "done" and first < len(has) - 1) or (loop in PLANS and all(has[first:]))
    (noted,) = [each.entry for each in run.timeline.moments if getattr(each.entry, "kind", "") == "message"]
    assert (noted.text, noted.value["by"]) == (TEXT, "ada")
    assert agent.replay(run).whole
    with pytest.raises(NotTaken, match="is over"):
        agent.send(run, "too late")
