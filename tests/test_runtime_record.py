"""Replay, resume, fork: one walk over one record."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import plait
from journal_rows import is_request
from plait.core.errors import BadRequest
from plait.journal.store import Journal

CALLS: list[str] = []


@plait.tool(read_only=True)
def look(key: str) -> str:
    """Look something up."""
    CALLS.append(key)
    return f"{key} is known"


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def action(value: str) -> str:
    return f'Thought: look for {value}.\nAction:\n```json\n{{"action": "look", "action_input": "{value}"}}\n```'


REPLIES = [
    action("a"),
    "this is no turn at all",
    action("b"),
    action("c"),
    "Thought: good.\nFinal Answer: abc",
]


def agent(journal: Path, replies: list[Any] = REPLIES, loop: Any = "react", **options: Any) -> plait.Agent:
    return plait.Agent(loop, model=plait.Scripted(replies), tools=[look], journal=journal, **options)


LOOPS = [
    plait.ReAct(),
    plait.ReAct(transcript="user"),
    plait.ReAct(transcript="completion"),
    plait.ReAct(dialect="lines"),
    plait.ReAct(dialect="numbered", transcript="user"),
]


@pytest.mark.parametrize("transcript", ["chat", "user", "completion"])
def test_replay_makes_the_same_requests_and_does_nothing(journal: Path, transcript: Any) -> None:
    one = agent(journal, loop=plait.ReAct(transcript=transcript))
    run = one.run("What is abc?")
    assert run.status == "answered", run.reason
    CALLS.clear()
    replayed = one.replay(run.id)
    assert (replayed.requests, replayed.whole, replayed.steps) == (run.calls, True, run.steps)
    assert replayed.outcome == run.outcome
    assert CALLS == []


def test_replay_stops_at_the_first_difference_and_shows_it(journal: Path, tmp_path: Path) -> None:
    run = agent(journal).run("What is abc?")
    prompts = tmp_path / "prompts" / "react"
    prompts.mkdir(parents=True)
    (prompts / "question.j2").write_text("Please: {{ question }}")
    with pytest.raises(plait.ReplayDiffers) as difference:
        agent(journal, prompts=tmp_path / "prompts").replay(run.id)
    assert difference.value.at == 1
    assert "Please: What is abc?" in str(difference.value) and "Question: What is abc?" in str(difference.value)


def test_a_fork_shares_the_first_steps_and_performs_the_rest_with_another_model(journal: Path) -> None:
    run = agent(journal).run("What is abc?")
    CALLS.clear()
    other = agent(journal, [action("a"), action("z"), "Final Answer: z it is"])
    fork = other.fork(run.id, at=2)
    assert (fork.status, fork.answer, fork.steps) == ("answered", "z it is", 3)
    assert CALLS == ["z"]  # step 1 was taken from the record
    row = Journal(journal).run(fork.id)
    assert (row.head.parent, row.head.fork_at) == (run.id, 2)
    assert other.replay(fork.id).whole


def test_a_fork_may_change_the_prompts_of_the_steps_it_shares(journal: Path, tmp_path: Path) -> None:
    run = agent(journal).run("What is abc?")
    prompts = tmp_path / "prompts" / "react"
    prompts.mkdir(parents=True)
    (prompts / "system.txt").write_text("Be brief.\r\n")
    fork = agent(journal, prompts=tmp_path / "prompts").fork(run.id, at=3)
    assert fork.status == "answered"
    assert b'"Be brief.\\r\\n"' in [r.body for r in fork.trace if is_request(r.record)][-1]
    assert agent(journal, prompts=tmp_path / "prompts").replay(fork.id).whole


def test_a_fork_with_other_prompts_that_broke_off_is_resumed(journal: Path, tmp_path: Path) -> None:
    run = agent(journal).run("What is abc?")
    prompts = tmp_path / "prompts" / "react"
    prompts.mkdir(parents=True)
    (prompts / "system.txt").write_text("Be brief.")
    broken = agent(journal, [action("a"), BadRequest("no"), "Final Answer: x"], prompts=tmp_path / "prompts")
    fork = broken.fork(run.id, at=2)
    assert fork.status == "crashed"
    CALLS.clear()
    whole = agent(journal, [action("a"), action("z"), "Final Answer: z it is"], prompts=tmp_path / "prompts")
    resumed = whole.resume(fork.id)
    assert (resumed.status, resumed.answer, CALLS) == ("answered", "z it is", ["z"])


@pytest.mark.parametrize("limits", [plait.Limits(steps=2), plait.Limits(calls=3)])
def test_a_stopped_run_goes_on_in_a_fork_with_higher_limits(journal: Path, limits: plait.Limits) -> None:
    script = [action("a"), action("b"), action("c"), "Final Answer: abc"]
    run = agent(journal, script, limits=limits).run("What is abc?")
    assert run.status == "stopped"
    CALLS.clear()
    fork = agent(journal, script).fork(run.id, at=3)
    assert (fork.status, fork.answer, fork.steps) == ("answered", "abc", 4)
    assert CALLS == ["c"]  # the calls before the limit were taken over
    assert agent(journal, script).replay(fork.id).whole


def test_a_fork_at_a_step_that_is_not_there_says_which_there_are(journal: Path) -> None:
    run = agent(journal).run("What is abc?")
    with pytest.raises(plait.ConfigError, match="steps 1 to 4"):
        agent(journal).fork(run.id, at=9)
    with pytest.raises(plait.ConfigError, match="number of the first step"):
        agent(journal).fork(run.id, at="1")  # type: ignore[arg-type]


def test_a_finished_run_is_not_performed_again_by_resume(journal: Path) -> None:
    run = agent(journal).run("What is abc?")
    CALLS.clear()
    again = agent(journal).resume(run.id)
    assert (again.answer, again.steps, again.calls, again.usage) == (
        run.answer,
        run.steps,
        run.calls,
        run.usage,
    )
    assert CALLS == []


def test_events_told_from_the_record_are_those_that_were_seen(journal: Path) -> None:
    import asyncio

    from plait.core import events as ev

    async def main() -> list[Any]:
        return [event async for event in agent(journal).stream("What is abc?")]

    seen = asyncio.run(main())
    ended = seen[-1]
    assert isinstance(ended, ev.Ended)

    def joined(events: list[Any]) -> list[tuple[str, int, str]]:
        out: list[tuple[str, int, str]] = []
        for event in events:
            if isinstance(event, (ev.Thought, ev.Action, ev.Answer)):
                kind = type(event).__name__
                if out and out[-1][:2] == (kind, event.step):
                    out[-1] = (kind, event.step, out[-1][2] + event.text)
                else:
                    out.append((kind, event.step, event.text))
            elif isinstance(event, ev.Observed):
                out.append(("Observed", event.step, event.observation.text))
        return out

    assert joined(seen) == joined(ended.run.events)
    assert joined(seen)[-1] == ("Answer", 4, "abc")


@pytest.mark.parametrize("transcript", ["chat", "user", "completion"])
def test_the_journal_grows_in_line_with_the_steps(tmp_path: Path, transcript: Any) -> None:
    def size(steps: int) -> int:
        path = tmp_path / f"{steps}.db"
        replies = [action(f"key number {i}") for i in range(steps - 1)] + ["Final Answer: done"]
        limits = plait.Limits(steps=steps + 1, repeats=0)
        run = agent(path, replies, plait.ReAct(transcript=transcript), limits=limits).run("Go")
        assert run.status == "answered" and run.steps == steps
        Journal.at(path).close()
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.stat().st_size

    assert size(200) <= 3 * size(100)


def test_without_a_journal_the_run_still_has_its_record() -> None:
    run = plait.Agent("react", model=plait.Scripted(REPLIES), tools=[look], journal=False).run("What is abc?")
    assert run.answer == "abc" and len(run.trace) > 10
