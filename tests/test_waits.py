"""The time in which a run only waits before a retry is no time of the run; work beside it is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from journal_rows import begin, end, request, response, resumed
from plait.core import Call, Reply, Think
from plait.core.errors import ServerFailed
from plait.journal.records import Record, Row
from plait.journal.timeline import Timeline
from plait.models.base import OnText, Request, Response
from plait.runtime.clock import RunClock
from plait.runtime.limits import Limits

WAIT = 0.25


class Failing(plait.Scripted):
    """An endpoint that fails before some of its replies, and asks for a pause each time."""

    def __init__(self, replies: list[Any], failures: int, *, wait: float = WAIT) -> None:
        super().__init__(replies)
        self.failures, self.wait = failures, wait

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        if self.failures:
            self.failures -= 1
            why = ServerFailed("m does not answer (500).")
            why.after = self.wait
            raise why
        return await super().send(request, think, on_text)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "j.db"


@pytest.mark.parametrize("failures", [1, 2])
def test_pauses_before_retries_are_no_time_of_the_run(journal: Path, failures: int) -> None:
    model = Failing(["4", "4"], 0)
    agent = plait.Agent("tool_calling", model=model, journal=journal)
    agent.run("warm up")
    model.failures = failures
    began = time.monotonic()
    run = agent.run("2 + 2?")
    took = time.monotonic() - began
    assert run.status == "answered" and took > failures * WAIT
    assert run.seconds < took - failures * WAIT + 0.2
    assert run.timeline.seconds < took - failures * WAIT + 0.2, "a resumed run counts what the record says"


def test_the_limit_in_seconds_stands_still_before_a_retry(journal: Path) -> None:
    agent = plait.Agent("tool_calling", model=Failing(["4"], 3, wait=0.4), journal=journal, limits=Limits(seconds=1))
    assert agent.run("2 + 2?").status == "answered"


def test_a_limit_in_seconds_still_ends_a_call_after_a_retry(journal: Path) -> None:
    class Slow(Failing):
        async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
            response = await super().send(request, think, on_text)
            await asyncio.sleep(30)
            return response

    agent = plait.Agent("tool_calling", model=Slow(["4"], 1, wait=0.1), journal=journal, limits=Limits(seconds=0.3))
    began = time.monotonic()
    run = agent.run("2 + 2?")
    assert (run.status, run.outcome.limit) == ("stopped", "seconds")  # type: ignore[union-attr]
    assert 0.3 < time.monotonic() - began < 5


def test_a_child_that_waits_pauses_the_run_above_it(journal: Path) -> None:
    child = plait.Agent("tool_calling", model=Failing(["Lyon"], 3, wait=0.4))
    reply = Reply("", calls=(Call("child", {"question": "Where?"}, id="c"),))
    parent = plait.Agent(
        "tool_calling",
        model=plait.Scripted([reply, "Lyon"]),
        tools=[child.as_tool("child", "Asks.")],
        journal=journal,
        limits=Limits(seconds=1),
    )
    began = time.monotonic()
    run = parent.run("Where?")
    took = time.monotonic() - began
    assert run.status == "answered" and len(run.children) == 1, run.events
    assert took > 1.2 and run.seconds < took - 1.0


@for_each(
    "steps, seconds",
    [
        ("w+ 1 p+ 5 p- 1 w-", 2),
        ("w+ w+ p+ 5 p- w- w-", 5),  # one call waits, another works
        ("w+ w+ p+ p+ 5 p- p- w- w-", 0),  # both wait at once: counted once
        ("w+ w+ p+ 2 p+ 3 p- 4 p- w- w-", 6),
        ("w+ w+ p+ 2 w- 3 p- w- 1", 3),  # the other call ends during the wait
        ("w+ p+ 3 w+ 4 w- p- w- 1", 5),  # work begins during the wait
        ("w+ p+ 3 p- p+ 3 p- w-", 0),
    ],
)
def test_only_time_in_which_all_wait_is_left_out(steps: str, seconds: float) -> None:
    now = [100.0]
    parent = RunClock(now=lambda: now[0])
    clock = RunClock(parent=parent, now=lambda: now[0])
    going: dict[str, list[Any]] = {"w": [], "p": []}
    with parent.counted(working=1):  # the tool call that performs the run
        for step in steps.split():
            match step[-1]:
                case "+":
                    going[step[0]].append(clock.counted(**{"w": {"working": 1}, "p": {"waiting": 1}}[step[0]]))
                    going[step[0]][-1].__enter__()
                case "-":
                    going[step[0]].pop().__exit__(None, None, None)
                case _:
                    now[0] += float(step)
    assert clock.seconds == parent.seconds == seconds


def test_a_clock_goes_on_where_earlier_processes_ended_and_leaves_out_start_ups() -> None:
    now = [100.0]
    clock = RunClock(10.0, before=3.0, now=lambda: now[0])
    assert (clock.seconds, clock.left()) == (3.0, 7.0)
    now[0] += 5
    clock.exclude_startup(4.0)
    assert (clock.seconds, clock.left()) == (4.0, 6.0)
    now[0] += 50
    assert clock.left() == 0.0 and RunClock().left() is None


async def test_the_deadline_stands_still_while_all_work_waits() -> None:
    clock = RunClock(0.2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(clock.left()) as clock.deadline:
            with clock.counted(working=1):
                with clock.counted(waiting=1):
                    assert clock.deadline.when() is None
                    await asyncio.sleep(0.3)
                assert clock.deadline.when() is not None and not clock.deadline.expired()
                assert clock.seconds < 0.1
                await asyncio.sleep(30)
    with clock.counted(waiting=1):
        pass  # it has passed, and is left alone


def failed(n: int, attempt: int) -> Record:
    return response(f"{n}a{attempt}", 500, 0.1, "ServerFailed: out")


def asked(n: int, attempt: int) -> Record:
    return request(f"{n}a{attempt}")


CALL = begin("1.0", Call("look", {}))


@pytest.mark.parametrize(
    "records, seconds",
    [
        ([(0, asked(0, 0)), (1, failed(0, 0)), (11, asked(0, 1)), (12, response("0a1"))], 2),
        ([(0, asked(0, 0)), (1, failed(0, 0)), (11, resumed()), (12, asked(0, 1)), (13, response("0a1"))], 2),
        # two calls fail and wait; the second is asked again while the first one works
        (
            [
                (0, asked(0, 0)),
                (0, asked(1, 0)),
                (1, failed(0, 0)),
                (2, failed(1, 0)),
                (7, asked(0, 1)),
                (9, asked(1, 1)),
            ],
            4,
        ),
        # a tool works during the pause
        (
            [
                (0, CALL),
                (0, asked(2, 0)),
                (1, failed(2, 0)),
                (6, asked(2, 1)),
                (7, end("1.0", "")),
            ],
            7,
        ),
    ],
)
def test_the_record_counts_the_same(records: list[tuple[float, Record]], seconds: float) -> None:
    timeline = Timeline(Row(seq, 1000 + at, record, None) for seq, (at, record) in enumerate(records))
    assert timeline.seconds == pytest.approx(seconds)
