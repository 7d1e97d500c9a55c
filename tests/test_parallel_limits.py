"""Limits that calls in parallel share: child runs, model calls, tokens and USD, in all loops that call in parallel."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core import Call, Reply
from plait.core import events as ev
from plait.journal.store import Journal
from plait.models.prices import Rate

PRICE = Rate("tokens", input=5.0, output=20.0)

CODE_GATHER = """ a
ACTION 1:
```python
import asyncio
got = await asyncio.gather(*[sub(question=f"q{i}") for i in range(10)], return_exceptions=True)
print(sum(isinstance(each, Exception) for each in got))
```"""

PARALLEL: dict[str, Any] = {
    "tool_calling": [Reply("", calls=tuple(Call("sub", {"question": f"q{i}"}, str(i)) for i in range(10))), "Done."],
    "phased": {
        "reason": ["All."] * 9,
        "react": [
            json.dumps([{"ACTION": "sub", "ARGUMENTS": [f"q{i}"], "EXPLANATION": "x"} for i in range(10)]),
            *["[]"] * 9,
        ],
        "reply": ["Done."] * 9,
    },
    "rewoo": {"plan": ["".join(f"Plan: p\n#E{i} = sub[q{i}]\n" for i in range(1, 11))], "solve": ["Done."]},
    "compiler": {
        "plan": ["".join(f'{i}. sub("q{i}")\n' for i in range(1, 11)) + "11. join()"],
        "join": ["Finish: Done."],
    },
    "codeact": [CODE_GATHER, " a\nACTION 2:\n```python\nstop('Done.')\n```"],
    "arun": [Reply("", calls=(Call("many", {"n": 10}),)), "Done."],
}


class Looks(plait.Hook):
    """Looks at each request for a while, so that parallel ones overlap."""

    async def before_model(self, context: Any, request: Any) -> None:
        await asyncio.sleep(0.001)


def helper() -> plait.Agent:
    return plait.Agent("tool_calling", model=plait.Scripted(["found"], rate=PRICE), journal=False)


@plait.tool(idempotent=True)
async def many(ctx: plait.Context[None], n: int) -> str:
    """Run many agents at once."""
    runs = await asyncio.gather(*(ctx.arun(helper(), f"q{i}") for i in range(n)), return_exceptions=True)
    return str(sum(isinstance(each, Exception) for each in runs))


def limited(loop: str, journal: Any, **limits: Any) -> plait.Agent:
    return plait.Agent(
        "tool_calling" if loop == "arun" else loop,
        model=plait.Scripted(PARALLEL[loop], rate=PRICE),
        tools=[helper().as_tool("sub", "Finds."), many],
        journal=journal,
        limits=plait.Limits(**limits),
    )


@pytest.mark.parametrize(("kept", "hooks"), [(True, []), (False, [Looks()])], ids=["journal", "hook"])
@pytest.mark.parametrize("loop", PARALLEL)
def test_of_ten_parallel_child_runs_exactly_as_many_run_as_may(
    loop: str, kept: bool, hooks: list[Any], journal: Path
) -> None:
    made = limited(loop, journal if kept else False, children=4).using(hooks=hooks)
    run = made.run("?")
    assert (run.answer, len(run.children)) == ("Done.", 4), run.reason
    texts = [each.observation.text for each in run.events if isinstance(each, ev.Observed)]
    if loop == "arun":
        assert texts == ["6"]
    elif loop != "compiler":  # which runs no more of a plan once a call failed
        errors = [text.startswith("Error: A limit of the run is reached") for text in texts].count(True)
        assert errors == (4 if loop == "phased" else 6)  # which makes at most eight calls at once
    if kept:  # no more of them when it goes on, nor in a replay
        assert made.replay(run.id).whole and len(made.resume(run.id).children) == 4


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("most", "total"), [(1, 1), (4, 4), (7, 7)])
def test_the_children_of_child_runs_count_for_the_run_at_the_top(
    most: int, total: int, kept: bool, journal: Path
) -> None:
    at = journal if kept else False
    calls = tuple(Call("sub", {"question": f"m{i}"}, str(i)) for i in range(4))
    boss = limited("tool_calling", at)
    top = plait.Agent(
        "tool_calling",
        model=plait.Scripted([Reply("", calls=calls), "Done."]),
        tools=[boss.as_tool("sub", "Finds.")],
        journal=at,
        limits=plait.Limits(children=most),
    )

    def count(run: plait.Run) -> int:
        return sum(1 + count(child) for child in run.children)

    assert count(top.run("?")) == total


@pytest.mark.parametrize(("kept", "hooks"), [(True, [Looks()]), (False, [])], ids=["journal", "memory"])
@pytest.mark.parametrize("limits", [{"calls": 6}, {"tokens": 1_500}, {"usd": 0.02}], ids=["calls", "tokens", "usd"])
@pytest.mark.parametrize("loop", ["tool_calling", "rewoo", "arun"])
def test_parallel_child_runs_stay_within_a_budget(
    loop: str, limits: dict[str, Any], hooks: list[Any], kept: bool, journal: Path
) -> None:
    made = limited(loop, journal if kept else False, **limits).using(hooks=hooks)
    run = made.run("?")
    spent = run.tree
    assert spent.requests <= limits.get("calls", 99) and spent.usage.tokens <= limits.get("tokens", 10**9)
    assert (spent.cost_usd or 0) <= limits.get("usd", 1)
    assert run.status == "stopped" or limits.get("calls") is None


@for_each("hooks", [[], [Looks()]])
@for_each("calls", [3, 5, 7])
def test_model_calls_that_a_plan_starts_together_stay_within_the_limit(calls: int, hooks: list[Any]) -> None:
    plan = "".join(f"Plan: p\n#E{i} = LLM[q{i}]\n" for i in range(1, 9))
    model = plait.Scripted({"plan": [plan], "work": ["w"], "solve": ["Done."]})
    run = plait.Agent("rewoo", model=model, journal=False, limits=plait.Limits(calls=calls), hooks=hooks).run("?")
    assert run.calls <= calls and run.status == "stopped"


def test_the_count_of_child_runs_outlives_the_process(journal: Path) -> None:
    lived, here = Path(f"{journal}.lived"), os.getpid()

    @plait.tool(read_only=True)
    def die_once(x: str) -> str:
        """Kills the process in its third call, but not the one that resumes the run."""
        with lived.open("a") as file:
            file.write("x")
        if os.getpid() != here and len(lived.read_text()) >= 3:  # of calls side by side none may see exactly three
            os._exit(9)
        return x

    calls = tuple(Call("sub", {"question": f"q{i}"}, str(i)) for i in range(10))
    model = plait.Scripted([Reply("", calls=(Call("die_once", {"x": "a"}),)), "found"])
    child = plait.Agent("tool_calling", model=model, tools=[die_once], journal=False)
    script = [Reply("", calls=calls), Reply("", calls=calls[:2]), "Done."]
    top = plait.Agent(
        "tool_calling",
        model=plait.Scripted(script),
        tools=[child.as_tool("sub", "Finds.")],
        journal=journal,
        limits=plait.Limits(children=4),
    )
    process = multiprocessing.get_context("fork").Process(target=top.run, args=["?"])
    process.start()
    process.join()
    assert process.exitcode == 9
    run = top.resume("last")
    assert (run.answer, len(run.children)) == ("Done.", 4)
    assert len(Journal(journal).runs(-1, children=True)) == 5
