"""The desk: what all routes stand on. Runs begun, gone on with, forked and cancelled, by whom they may be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import plait
from plait import Scripted
from plait.config import ServeTable
from plait.core import Waiting
from plait.core.errors import PlaitError, UnknownRun, UsageError
from plait.core.events import Event
from plait.window.agents import changed
from plait.window.callers import Caller
from plait.window.desk import STOPPED, Desk
from plait.window.errors import Rejected, rejected
from plait.window.marks import Mark, mark_of
from plait.window.settings import served

ASK = '{"thought": "x", "tool": "ask_user", "tool_input": "Which?"}'
DONE = '{"thought": "x", "tool": "final_answer", "tool_input": "That one."}'
ONE, TWO = Caller("aaaaaaaaaaaaaaaa", False), Caller("bbbbbbbbbbbbbbbb", False)


def desk_of(journal: Path, *replies: Any, delay: float = 0.0, **table: Any) -> Desk:
    model = Scripted(replies or (DONE,), delay=delay)
    settings = ServeTable(**table)
    return Desk([served("plait", plait.Agent("json", model=model, journal=journal), settings)], settings)


async def test_a_run_is_on_record_when_it_has_begun(journal: Path) -> None:
    desk = desk_of(journal, delay=0.2)
    seen: list[Event] = []
    performing = await desk.start("plait", "Which one?", caller=ONE, session="@x/s", key="k", emit=seen.append)
    row = desk.journal.run(performing.run)
    assert (row.status, row.head.session, mark_of(row.head.label)) == ("running", "@x/s", Mark(ONE.owner, "plait", "k"))
    assert desk.performing == {performing.run: performing} and desk.running == 1
    run = await performing.done()
    assert run.answer == "That one." and type(seen[-1]).__name__ == "Ended"
    await asyncio.sleep(0)
    assert not desk.performing and desk.running == 0


async def test_a_run_that_waits_is_gone_on_with_by_its_owner_alone(journal: Path) -> None:
    desk = desk_of(journal, ASK, DONE)
    waits = await (await desk.start("plait", "?", caller=ONE)).done()
    run, asked = waits.run, question_of(waits)
    with pytest.raises(UnknownRun):
        await desk.resume(run, "This.", question=asked, caller=TWO)
    assert (await (await desk.resume(run, "This.", question=asked, caller=ONE)).done()).answer == "That one."
    with pytest.raises(Rejected, match="is over") as over:
        await desk.resume(run, caller=ONE)
    assert over.value.status == 409


async def test_what_a_turn_waits_for_is_answered_after_the_turn_under_way(journal: Path) -> None:
    desk = desk_of(journal, ASK, DONE, delay=0.2)
    waits = await (await desk.start("plait", "?", session="trip")).done()
    run = waits.run
    async with desk.turn("trip"):
        going = asyncio.ensure_future(desk.go_on(run, "This.", question=question_of(waits)))
        await asyncio.sleep(0.2)
        assert not going.done() and desk.waiting == 1
    performing = await going
    with pytest.raises(Rejected, match="is going on"):  # at once: it does not wait for itself
        await desk.go_on(run, "This.")
    async with desk.turn("trip"):
        assert performing.result is not None and performing.result.answer == "That one."


async def test_a_run_that_goes_on_is_not_resumed(journal: Path) -> None:
    desk = desk_of(journal, delay=30)
    performing = await desk.start("plait", "?")
    with pytest.raises(Rejected, match="is going on"):
        await desk.resume(performing.run)
    assert desk.cancel(performing.run, reason="enough")
    assert (await performing.done()).reason == "enough"
    assert not desk.cancel(performing.run)
    assert desk.journal.run(performing.run).outcome["reason"] == "enough"  # type: ignore[index]


async def test_another_owners_run_is_not_cancelled(journal: Path) -> None:
    desk = desk_of(journal, delay=30)
    performing = await desk.start("plait", "?", caller=ONE)
    with pytest.raises(UnknownRun):
        desk.cancel(performing.run, caller=TWO)
    assert desk.cancel(performing.run, caller=ONE)
    await performing.done()


async def test_a_fork_may_change_what_names_no_file(journal: Path) -> None:
    desk = desk_of(journal, ASK, DONE)
    run = (await (await desk.start("plait", "?", caller=ONE)).done()).run
    fork = await (await desk.fork(run, 1, {"strategy": "json", "options": {"misses": 5}}, caller=ONE)).done()
    head = desk.journal.head(fork.run)
    assert (head.parent, head.strategy["options"]["misses"]) == (run, 5)
    assert mark_of(head.label) == Mark(ONE.owner, "plait")
    for change in ({"tools": ["evil.py"]}, {"prompts": "/etc"}, {"system": "x"}, {"journal": "x.db"}, {"sandbox": "x"}):
        with pytest.raises(Rejected, match="can't change"):
            await desk.fork(run, 1, change, caller=ONE)
    with pytest.raises(UnknownRun):
        await desk.fork(run, 1, caller=TWO)


def test_a_fork_keeps_models_of_single_phases_unless_all_get_another() -> None:
    phases = {"reason": Scripted(["r"]), "reply": Scripted(["p"])}
    agent = plait.Agent("phased", model=Scripted(["all"]), models=phases)
    other = Scripted(["other"])
    assert changed(agent, {"models": {"reply": other}}).models == {"reason": phases["reason"], "reply": other}
    assert changed(agent, {"options": {"misses": 3}}).models == phases
    assert changed(agent, {"model": other}).models == {}
    assert changed(agent, {"model": other, "models": {"reply": other}}).models == {"reply": other}
    assert changed(agent, {"strategy": "react"}).models == {}


async def test_stopping_lets_runs_end_and_cancels_the_rest(journal: Path) -> None:
    desk = desk_of(journal, delay=1.0)
    short = await desk.start("plait", "?")
    assert await desk.stop(60) == 0
    assert (await short.done()).status == "answered"
    with pytest.raises(Rejected) as refused:
        await desk.start("plait", "?")
    assert (refused.value.status, refused.value.code) == (503, "stopping")
    desk = desk_of(journal, delay=30)
    long = await desk.start("plait", "?")
    assert await desk.stop(0.1) == 1
    assert (await long.done()).reason == STOPPED
    assert [row.head.run for row in desk.journal.runs(status="cancelled")] == [long.run]
    assert [row.head.run for row in desk.left_behind()] == [long.run]


async def test_who_stops_waiting_for_a_place_gives_it_up(journal: Path) -> None:
    desk = desk_of(journal, delay=1.0, concurrent=1)
    first = await desk.start("plait", "One?")
    waiting = asyncio.ensure_future(desk.start("plait", "Two?"))
    await asyncio.sleep(0.1)
    assert desk.waiting == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert desk.waiting == 0
    await first.done()
    assert (await (await desk.start("plait", "Three?")).done()).status == "answered"
    assert len(desk.journal.runs()) == 2


async def test_a_run_that_cant_begin_gives_its_place_back(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    desk = desk_of(tmp_path / "folder", concurrent=1)
    for _ in range(3):
        with pytest.raises(PlaitError) as why:
            await desk.start("plait", "?")
        assert rejected(why.value).status == 503
    assert desk.running == 0


def test_what_is_wrong_with_an_agent_is_told_before_it_is_asked(journal: Path) -> None:
    for wrong in ({"model": "nowhere:x"}, {"tools": ["nothing-of-that-name"]}):
        with pytest.raises(UsageError):
            Desk([served("plait", plait.Agent(**{"model": Scripted([]), "journal": journal, **wrong}), ServeTable())])


def test_all_agents_share_one_journal(tmp_path: Path) -> None:
    agents = [plait.Agent(model=Scripted([]), journal=tmp_path / f"{i}.db") for i in range(2)]
    desk = Desk([served(f"a{i}", agent, ServeTable()) for i, agent in enumerate(agents)])
    assert {each.agent.journal for each in desk.agents.values()} == {tmp_path / "0.db"}


def test_a_defect_is_told_without_its_words() -> None:
    told = rejected(ValueError("the secret is 42"))
    assert told.status == 500 and "42" not in str(told)


def question_of(run: plait.Run) -> str:
    """The id of the question that a run waits with."""
    assert isinstance(run.outcome, Waiting)
    return run.outcome.question
