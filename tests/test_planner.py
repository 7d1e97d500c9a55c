"""A planner of a user's own, the one that docs/your-own-loop.md shows: its plan is priced, approved and edited."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import plait
from docs_support import ROOT, blocks_of
from plait.agent_parts import AgentParts
from plait.core import Answered, LoopContext, LoopRun, OneKind, Splitter, Task, think, user
from plait.core.errors import ConfigError
from plait.loops.plan import Planner
from plait.runtime.planning.plan_estimate import Seen, seen_of

QUESTION = "Which is larger, Lyon or Nice?"
CALLS = "lookup: Lyon\nlookup: Nice"
PLAN = "#E1 = lookup[Lyon]\n#E2 = lookup[Nice]"
CITIES = f"lookup:{ROOT / 'examples' / 'cities.json'}"

MakeAgent = Callable[..., plait.Agent]


@pytest.fixture
def make_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeAgent:
    """Makes an agent with the page's planner; its model writes these plans."""
    for block in blocks_of((ROOT / "docs" / "your-own-loop.md").read_text(encoding="utf-8")):
        if block.file in ("planfirst.py", "outline.py"):
            (tmp_path / block.file).write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("planfirst", "outline"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from outline import Outline  # type: ignore[import-not-found]

    def make(*plans: str, **options: Any) -> plait.Agent:
        model = plait.Scripted({"plan": list(plans), "solve": ["Lyon is larger."]})
        return plait.Agent(Outline(), model=model, tools=[CITIES], journal=tmp_path / "journal.db", **options)

    return make


def test_a_planner_is_told_from_a_loop_that_only_has_a_phase_of_that_name(make_agent: MakeAgent) -> None:
    @dataclass(frozen=True)
    class Plain:
        name: ClassVar[str] = "plain"
        phases: ClassVar[tuple[str, ...]] = ("plan",)

        def run(self, task: Task, context: LoopContext) -> LoopRun:
            return Answered((yield from think("plan", (user(task.question),))).text)

        def splitter(self, phase: str) -> Splitter:
            return OneKind("answer")

    assert isinstance(make_agent(CALLS).loop, Planner)
    assert isinstance(plait.ReWOO(), Planner)
    assert not isinstance(plait.LLMCompiler(), Planner)
    with pytest.raises(ConfigError, match="'plain' makes no plan that could be approved"):
        plait.Agent(Plain(), model=plait.Scripted(["1"]), journal=False, approve="plan")
    with pytest.raises(ConfigError, match="plans first, and 'plain' does not"):
        plait.Agent(Plain(), model=plait.Scripted(["1"]), journal=False).plan(QUESTION)


def test_a_plan_is_made_and_priced_without_a_call_and_without_approval(make_agent: MakeAgent) -> None:
    made = make_agent(CALLS, approve="plan").plan(QUESTION)
    assert made.plan is not None and made.expected is not None
    assert [step.id for step in made.plan.steps] == ["E1", "E2"]
    assert [(each.phase, each.calls) for each in made.expected.phases] == [("solve", 1)]
    assert (made.expected.tool_calls, made.run.status, made.run.calls) == (2, "answered", 1)
    assert not made.run.timeline.results


async def test_the_price_of_a_plan_is_found_beside_the_event_loop(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_free = threading.Event()

    def choose_tools(*_: object) -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).add_done_callback(lambda _: is_free.set())
        assert is_free.wait(5), "the event loop stands still"

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(AgentParts, "choose_tools", choose_tools)
    made = await make_agent(CALLS).aplan(QUESTION)
    assert made.expected is not None and is_free.is_set()


def test_words_at_the_approval_make_another_plan(make_agent: MakeAgent) -> None:
    agent = make_agent(CALLS, "lookup: Lyon", approve="plan")
    run = agent.run(QUESTION)
    assert (run.status, run.outcome.reason) == ("waiting", PLAN)  # type: ignore[union-attr]
    run = agent.resume(run, "Only Lyon.")
    assert run.outcome.reason == "#E1 = lookup[Lyon]"  # type: ignore[union-attr]
    run = agent.resume(run, "yes")
    assert (run.answer, len(run.timeline.results)) == ("Lyon is larger.", 1)
    asked = run.timeline.model_calls[1].last.request.decode()
    assert "The user says: Only Lyon." in asked and "#E2 = lookup[Nice]" in asked


def test_an_edited_plan_is_checked_and_carried_out(make_agent: MakeAgent) -> None:
    agent = make_agent(CALLS, approve="plan")
    run = agent.resume(agent.run(QUESTION), "#E1 = lokup[Lyon]")
    assert "'lokup', which is no tool" in run.outcome.reason  # type: ignore[union-attr]
    run = agent.resume(run, "#E1 = lookup[Nantes]")
    assert [call.planned.input for call, _ in run.timeline.results] == ["Nantes"]
    assert agent.replay(run.id).whole


def test_steps_with_evidence_do_not_run_again(make_agent: MakeAgent) -> None:
    agent = make_agent(CALLS)
    plan = plait.Plan(agent.plan(QUESTION).plan.steps, {"E1": "522250"})  # type: ignore[union-attr]
    run = agent.with_plan(plan).run(QUESTION)
    assert [call.planned.input for call, _ in run.timeline.results] == ["Nice"]


def test_replies_of_another_loop_do_not_price_a_plan(make_agent: MakeAgent, tmp_path: Path) -> None:
    from plait.journal.store import Journal

    make_agent(CALLS).run(QUESTION)
    journal = Journal.at(tmp_path / "journal.db")
    runs = [(row.head, journal.timeline(row.head.run)) for row in journal.runs(5)]
    assert seen_of(runs, "rewoo").replies == Seen().replies
    assert set(seen_of(runs, "outline").replies) == {("plan", "scripted:scripted"), ("solve", "scripted:scripted")}


def test_a_planner_without_a_phase_for_it_refuses_steps_that_ask_the_model(make_agent: MakeAgent) -> None:
    plan = "#E1 = lookup[Lyon]\n#E2 = LLM[Is #E1 much?]"
    with pytest.raises(ConfigError, match=r"'LLM', which is no tool.*no phase 'work'"):
        make_agent().with_plan(plan)
    with pytest.raises(ConfigError, match="no phase 'work'"):
        make_agent().estimate(QUESTION, plan)
    run = make_agent(CALLS, approve="plan").run(QUESTION)
    run = make_agent(CALLS, approve="plan").resume(run, plan)
    assert run.status == "waiting" and "no phase 'work'" in run.outcome.reason  # type: ignore[union-attr]
    assert make_agent().using(loop=plait.ReWOO()).with_plan(plan).loop.plan is not None  # type: ignore[attr-defined]
