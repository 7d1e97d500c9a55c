"""The manager: what all routes stand on. Runs begun, gone on with, forked and cancelled, by whom they may be."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import plait
from plait import Scripted
from plait.config import ServeTable
from plait.core import Waiting
from plait.core.errors import ConfigError, PlaitError, UnknownRun
from plait.core.events import Event
from plait.journal.served_runs import RunLabel
from plait.server.agents import change_agent, serve_agent
from plait.server.auth import Caller
from plait.server.errors import RequestRejected, rejection_for
from plait.server.runs import STOPPED, RunManager

ASK = '{"thought": "x", "tool": "ask_user", "tool_input": "Which?"}'
DONE = '{"thought": "x", "tool": "final_answer", "tool_input": "That one."}'
ONE, TWO = Caller("aaaaaaaaaaaaaaaa", False), Caller("bbbbbbbbbbbbbbbb", False)


def manager_of(journal: Path, *replies: Any, delay: float = 0.0, **table: Any) -> RunManager:
    model = Scripted(replies or (DONE,), delay=delay)
    settings = ServeTable(**table)
    return RunManager([serve_agent("plait", plait.Agent("json", model=model, journal=journal), settings)], settings)


async def test_a_run_is_on_record_when_it_has_begun(journal: Path) -> None:
    manager = manager_of(journal, delay=0.2)
    seen: list[Event] = []
    performing = await manager.start("plait", "Which one?", caller=ONE, session="@x/s", key="k", on_event=seen.append)
    row = manager.journal.run(performing.run)
    assert (row.status, row.head.session, RunLabel.parse(row.head.label)) == (
        "running",
        "@x/s",
        RunLabel(ONE.owner, "plait", "k"),
    )
    assert manager.active == {performing.run: performing} and manager.running == 1
    run = await performing.done()
    assert run.answer == "That one." and type(seen[-1]).__name__ == "Ended"
    await asyncio.sleep(0)
    assert not manager.active and manager.running == 0


async def test_a_run_that_waits_is_gone_on_with_by_its_owner_alone(journal: Path) -> None:
    manager = manager_of(journal, ASK, DONE)
    waits = await (await manager.start("plait", "?", caller=ONE)).done()
    run, asked = waits.id, question_of(waits)
    with pytest.raises(UnknownRun):
        await manager.resume(run, "This.", question=asked, caller=TWO)
    assert (await (await manager.resume(run, "This.", question=asked, caller=ONE)).done()).answer == "That one."
    with pytest.raises(RequestRejected, match="is over") as over:
        await manager.resume(run, caller=ONE)
    assert over.value.status == 409


async def test_what_a_turn_waits_for_is_answered_after_the_turn_under_way(journal: Path) -> None:
    manager = manager_of(journal, ASK, DONE, delay=0.2)
    waits = await (await manager.start("plait", "?", session="trip")).done()
    run = waits.id
    with await manager.take_turn("trip"):
        going = asyncio.ensure_future(manager.resume_in_turn(run, "This.", question=question_of(waits)))
        await asyncio.sleep(0.2)
        assert not going.done() and manager.waiting == 1
    performing = await going
    with pytest.raises(RequestRejected, match="is under way"):  # at once: it does not wait for itself
        await manager.resume_in_turn(run, "This.")
    with await manager.take_turn("trip"):
        assert performing.result is not None and performing.result.answer == "That one."


async def test_a_run_that_goes_on_is_not_resumed(journal: Path) -> None:
    manager = manager_of(journal, delay=30)
    performing = await manager.start("plait", "?")
    with pytest.raises(RequestRejected, match="is under way"):
        await manager.resume(performing.run)
    await manager.cancel(performing.run, reason="enough")
    assert (await performing.done()).reason == "enough"
    await manager.cancel(performing.run, reason="again")
    assert manager.journal.run(performing.run).outcome["reason"] == "enough"  # type: ignore[index]


async def test_another_owners_run_is_not_cancelled(journal: Path) -> None:
    manager = manager_of(journal, delay=30)
    performing = await manager.start("plait", "?", caller=ONE)
    with pytest.raises(UnknownRun):
        await manager.cancel(performing.run, caller=TWO)
    await manager.cancel(performing.run, caller=ONE)
    await performing.done()


async def test_a_fork_may_change_the_loop(journal: Path) -> None:
    manager = manager_of(journal, ASK, DONE)
    run = (await (await manager.start("plait", "?", caller=ONE)).done()).id
    before = manager.journal.head(run)
    agent = change_agent(manager.agent_for(before), {"loop": "json", "options": {"max_parse_errors": 5}})
    forked = await manager.fork_with(agent, before, 1, **manager.annotate_fork(before, ONE))
    head = manager.journal.head((await forked.done()).id)
    assert (head.parent, head.loop["options"]["max_parse_errors"]) == (run, 5)
    assert RunLabel.parse(head.label) == RunLabel(ONE.owner, "plait")
    with pytest.raises(UnknownRun):
        await manager.find_run(run, TWO)


def test_a_fork_keeps_models_of_single_phases_unless_all_get_another() -> None:
    phases = {"reason": Scripted(["r"]), "reply": Scripted(["p"])}
    agent = plait.Agent("phased", model=Scripted(["all"]), models=phases)
    other = Scripted(["other"])
    assert change_agent(agent, {"models": {"reply": other}}).models == {"reason": phases["reason"], "reply": other}
    assert change_agent(agent, {"options": {"max_parse_errors": 3}}).models == phases
    assert change_agent(agent, {"model": other}).models == {}
    assert change_agent(agent, {"model": other, "models": {"reply": other}}).models == {"reply": other}
    assert change_agent(agent, {"loop": "react"}).models == {}


async def test_stopping_lets_runs_end_and_cancels_the_rest(journal: Path) -> None:
    manager = manager_of(journal, delay=1.0)
    short = await manager.start("plait", "?")
    assert await manager.stop(60) == 0
    assert (await short.done()).status == "answered"
    with pytest.raises(RequestRejected) as refused:
        await manager.start("plait", "?")
    assert (refused.value.status, refused.value.code) == (503, "stopping")
    manager = manager_of(journal, delay=30)
    long = await manager.start("plait", "?")
    assert await manager.stop(0.1) == 1
    assert (await long.done()).reason == STOPPED
    assert [row.head.run for row in manager.journal.runs(status="cancelled")] == [long.run]
    assert [row.head.run for row in manager.unfinished_runs()] == [long.run]


async def test_an_unfinished_run_is_found_behind_any_number_of_others(journal: Path) -> None:
    manager = manager_of(journal, delay=30)
    long = await manager.start("plait", "?")
    await manager.stop(0.1)
    await long.done()
    connection = sqlite3.connect(journal)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
    new = {"n": "NULL", "id": "id || '-' || value", "label": "'mine'"}
    connection.execute(
        f"WITH RECURSIVE numbers(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < 10100) "
        f"INSERT INTO runs SELECT {', '.join(new.get(each, each) for each in columns)} FROM runs, numbers"
    )
    connection.commit()
    connection.close()
    assert [row.head.run for row in manager.unfinished_runs()] == [long.run]


async def test_who_stops_waiting_for_a_place_gives_it_up(journal: Path) -> None:
    manager = manager_of(journal, delay=1.0, concurrent=1)
    first = await manager.start("plait", "One?")
    waiting = asyncio.ensure_future(manager.start("plait", "Two?"))
    await asyncio.sleep(0.1)
    assert manager.waiting == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert manager.waiting == 0
    await first.done()
    assert (await (await manager.start("plait", "Three?")).done()).status == "answered"
    assert len(manager.journal.runs()) == 2


async def test_a_run_that_cant_begin_gives_its_place_back(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    manager = manager_of(tmp_path / "folder", concurrent=1)
    for _ in range(3):
        with pytest.raises(PlaitError) as why:
            await manager.start("plait", "?")
        assert rejection_for(why.value).status == 503
    assert manager.running == 0


def test_what_is_wrong_with_an_agent_is_told_before_it_is_asked(journal: Path) -> None:
    for wrong in ({"model": "nowhere:x"}, {"tools": ["nothing-of-that-name"]}):
        with pytest.raises(ConfigError):
            RunManager(
                [
                    serve_agent(
                        "plait", plait.Agent(**{"model": Scripted([]), "journal": journal, **wrong}), ServeTable()
                    )
                ]
            )


def test_all_agents_share_one_journal(tmp_path: Path) -> None:
    agents = [plait.Agent(model=Scripted([]), journal=tmp_path / f"{i}.db") for i in range(2)]
    manager = RunManager([serve_agent(f"a{i}", agent, ServeTable()) for i, agent in enumerate(agents)])
    assert {each.agent.journal for each in manager.agents.values()} == {tmp_path / "0.db"}


def test_a_defect_is_told_without_its_words() -> None:
    told = rejection_for(ValueError("the secret is 42"))
    assert told.status == 500 and "42" not in str(told)


def question_of(run: plait.Run) -> str:
    """The id of the question that a run waits with."""
    assert isinstance(run.outcome, Waiting)
    return run.outcome.question
