"""Many at once: tasks, threads, processes; results in the order they finish; cancellation through every face."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import some_of
from faults_support import endpoint
from fork_server import run_forked, run_together
from journal_rows import is_result
from models_server import Asked, delta, whole_stream
from patience import patience
from plait.agent_parts import AgentParts
from plait.core import Loop
from plait.core import events as ev
from plait.journal.store import Journal
from plait.models.chat import ChatModel
from plait.tools import Toolset
from plait.tools.mcp.server import TOOL_LISTS
from runtime_loops import Ahead, Watching

SCRIPT = Path(__file__).with_name("runtime_loops.py")


@plait.tool(read_only=True)
async def rest(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return f"rested {seconds}"


@plait.tool
def echo(text: str) -> str:
    """Says it again."""
    return text


def action(tool: str, given: str) -> str:
    return f'Thought: on.\nAction:\n```json\n{{"action": "{tool}", "action_input": "{given}"}}\n```'


class Parrot(plait.Scripted):
    """Calls `echo` with the question, then answers with what it observed."""

    def __init__(self) -> None:
        def reply(think: Any) -> str:
            question, *log = [m.content for m in think.messages if m.role == "user"]
            word = question.split()[-1]
            return f"Final Answer: {log[-1].split()[-1]}" if log else action("echo", word)

        super().__init__([reply] * 2)


# ---- one agent, many users


async def test_64_tasks_at_once_each_get_their_own_answer(journal: Path) -> None:
    agent = plait.Agent("react", model=Parrot(), tools=[echo], journal=journal)
    runs = await asyncio.gather(*(agent.arun(f"Say word{i}") for i in range(64)))
    assert [run.answer for run in runs] == [f"word{i}" for i in range(64)]
    assert len({run.id for run in runs}) == 64
    for run in runs[::9]:
        assert agent_replays(agent, run.id)


def agent_replays(agent: plait.Agent, run: str) -> bool:
    return agent.replay(run).whole


def test_threads_at_once_each_get_their_own_answer(journal: Path) -> None:
    agent = plait.Agent("react", model=Parrot(), tools=[echo], journal=journal)
    with ThreadPoolExecutor(8) as pool:
        blocking = list(pool.map(lambda i: agent.run(f"Say word{i}").answer, range(24)))
        own_loops = list(pool.map(lambda i: asyncio.run(agent.arun(f"Say word{i}")).answer, range(24)))
    assert blocking == own_loops == [f"word{i}" for i in range(24)]
    assert Counter(row.status for row in Journal(journal).runs(100)) == {"answered": 48}


async def test_runs_that_begin_at_once_make_the_tools_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Toolset] = []

    def make_tools(parts: AgentParts, loop: Loop) -> Toolset:
        time.sleep(0.05)
        made.append(Toolset(()))
        return made[-1]

    monkeypatch.setattr(AgentParts, "make_tools", make_tools)
    agent = plait.Agent("react", model=plait.Scripted([]), tools=["mcp:python none.py"], journal=False)
    parts = agent._parts
    for count in (1, 2):
        await asyncio.gather(*(parts.load_tools() for _ in range(4)))
        assert len(made) == count and parts.toolset is made[-1]
        monkeypatch.setattr(TOOL_LISTS, "changes", TOOL_LISTS.changes + 1)


async def test_changed_tools_are_set_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code between two awaits, such as that which makes a run's head, sees one toolset, even if it takes long."""
    monkeypatch.setattr(AgentParts, "make_tools", lambda parts, loop: Toolset(()))
    agent = plait.Agent("react", model=plait.Scripted([]), tools=["mcp:python none.py"], journal=False)
    await agent._parts.load_tools()
    before = agent._parts.toolset
    monkeypatch.setattr(TOOL_LISTS, "changes", TOOL_LISTS.changes + 1)
    changing = asyncio.create_task(agent._parts.load_tools())
    await asyncio.sleep(0)
    time.sleep(0.1)  # as a user's function for instructions may
    assert agent._parts.toolset is before
    await changing
    assert agent._parts.toolset is not before


def test_processes_share_one_journal(journal: Path) -> None:
    code = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(SCRIPT.parent)!r})
        from test_runtime_concurrency import Parrot, echo
        import asyncio, plait
        agent = plait.Agent("react", model=Parrot(), tools=[echo], journal={str(journal)!r})
        async def main():
            return await asyncio.gather(*(agent.arun(f"Say {{sys.argv[1]}}{{i}}") for i in range(20)))
        print(*(run.answer for run in asyncio.run(main())))
        """
    )
    words = ["red", "green", "blue"]
    children = run_together([["-c", code, word] for word in words])
    for word, child in zip(words, children, strict=True):
        assert child.stdout.split() == [f"{word}{i}" for i in range(20)]
    runs = Journal(journal).runs(100)
    assert len(runs) == 60 and all(row.status == "answered" for row in runs)
    for row in runs[::13]:
        word = row.head.question.split()[-1]
        assert row.outcome is not None and row.outcome["answer"] == word


async def test_a_process_that_comes_and_goes_loses_no_record_of_threads_that_go_on(journal: Path) -> None:
    """Closing any handle of a file drops all locks its process has on it: a thread must not do that to another."""
    come_and_go = textwrap.dedent(
        f"""
        import plait
        agent = plait.Agent("react", model=plait.Scripted(["Final Answer: gone"]), journal={str(journal)!r})
        print(agent.run("q").answer)
        """
    )

    @plait.tool
    async def visit(text: str) -> str:
        """Lets another thread, and then another process, use the journal."""
        agent = plait.Agent("react", model=Parrot(), tools=[echo], journal=journal)
        await asyncio.to_thread(lambda: asyncio.run(agent.arun("Say hello")))
        done = await asyncio.to_thread(run_forked, ["-c", come_and_go])
        return str(done.stdout + done.stderr)

    agent = plait.Agent(
        "react", model=plait.Scripted([action("visit", "x"), "Final Answer: back"]), tools=[visit], journal=journal
    )
    run = await agent.arun("q")
    assert run.answer == "back"
    assert "gone" in next(row.record.value.text for row in run.trace if is_result(row.record))
    # Read by a process of its own, which has nothing but the files.
    code = f"from plait.journal.store import Journal; print(*(row.status for row in Journal({str(journal)!r}).runs()))"
    seen = run_forked(["-c", code])
    assert seen.stdout.split() == ["answered"] * 3, seen.stderr


def test_a_forked_process_runs_agents_of_its_own(journal: Path) -> None:
    agent = plait.Agent("react", model=Parrot(), tools=[echo], journal=journal)
    assert agent.run("Say parent").answer == "parent"
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if agent.run("Say child").answer == "child" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert agent.run("Say parent2").answer == "parent2"
    assert len(Journal(journal).runs()) == 3


# ---- the blocking face


async def test_run_works_inside_a_running_event_loop() -> None:
    agent = plait.Agent("react", model=Parrot(), tools=[echo])
    assert agent.run("Say notebook").answer == "notebook"


def interrupted(code: str, cwd: Path, ready: str) -> tuple[int, str, str]:
    """A Python script that gets SIGINT once the file `ready` is there: its exit code, stdout and stderr."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + patience(20)
    while not (cwd / ready).exists():
        assert time.monotonic() < end and child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = child.communicate(timeout=20)
    assert time.monotonic() - began < patience(5)
    return child.returncode, out, err


HANGING = """
    import asyncio, time, plait
    @plait.tool
    {kind} hang(text: str) -> str:
        "Hangs."
        open("begun", "w").close()
        {wait}
        return "never"
    turn = 'Action:\\n```json\\n{{"action": "hang", "action_input": "x"}}\\n```'
    agent = plait.Agent("react", model=plait.Scripted([turn, "Final Answer: ok"]), tools=[hang], journal="j.db")
    {begin}
"""
BLOCKING = """
    try:
        agent.run("q")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    run = agent.resume("last")
    print(run.status, run.answer)
"""


@pytest.mark.parametrize(
    ("kind", "wait"), [("def", "time.sleep(600)"), ("async def", "await asyncio.sleep(600)")], ids=["sync", "async"]
)
def test_ctrl_c_in_the_blocking_face_cancels_records_and_is_passed_on(tmp_path: Path, kind: str, wait: str) -> None:
    code = HANGING.format(kind=kind, wait=wait, begin=BLOCKING)
    returned, out, err = interrupted(code, tmp_path, "begun")
    assert (returned, out, err) == (0, "interrupted\nanswered ok\n", "")


def test_ctrl_c_in_asyncio_run_cancels_and_records(tmp_path: Path) -> None:
    code = HANGING.format(kind="async def", wait="await asyncio.sleep(600)", begin="asyncio.run(agent.arun('q'))")
    returned, out, err = interrupted(code, tmp_path, "begun")
    assert returned != 0 and out == "" and err.rstrip().endswith("KeyboardInterrupt")
    assert Journal(tmp_path / "j.db").run("last").status == "cancelled"


# ---- cancellation from code


def waiting_agent(journal: Path) -> plait.Agent:
    model = plait.Scripted([action("rest", "60"), "Final Answer: ok"])
    return plait.Agent("react", model=model, tools=[rest], journal=journal)


async def test_a_run_that_is_waited_for_too_long_is_cancelled_and_says_so(journal: Path) -> None:
    agent = waiting_agent(journal)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.arun("q"), 0.3)
    assert Journal(journal).run("last").status == "cancelled"
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await agent.arun("q")
    assert [row.status for row in Journal(journal).runs()] == ["cancelled", "cancelled"]


async def test_leaving_a_stream_early_cancels_the_run(journal: Path) -> None:
    stream = waiting_agent(journal).stream("q")
    async for event in stream:
        if isinstance(event, ev.Called):
            break
    await stream.aclose()
    assert Journal(journal).run("last").status == "cancelled"
    async for event in waiting_agent(journal).stream("q"):
        if isinstance(event, ev.Called):
            break
    await asyncio.sleep(0.1)  # left without a word, it is closed by the event loop
    assert [row.status for row in Journal(journal).runs()] == ["cancelled", "cancelled"]
    assert len(asyncio.all_tasks()) == 1


async def test_a_stream_that_another_task_closes_ends_with_the_cancelled_run(journal: Path) -> None:
    stream = waiting_agent(journal).stream("q")
    seen: list[ev.Event] = []

    async def follow() -> None:
        async for event in stream:
            seen.append(event)

    task = asyncio.create_task(follow())
    while not any(isinstance(event, ev.Called) for event in seen):
        await asyncio.sleep(0.01)
    await stream.aclose()
    await task  # ends without an error: nobody cancelled the one who iterates
    assert isinstance(seen[-1], ev.Ended) and seen[-1].run.status == "cancelled"
    never = waiting_agent(journal).stream("q")
    await never.aclose()
    assert [event async for event in never] == [] and len(Journal(journal).runs()) == 1


async def test_one_run_of_a_group_that_fails_cancels_the_others(journal: Path) -> None:
    async def fails() -> None:
        await asyncio.sleep(0.3)
        raise ValueError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(waiting_agent(journal).arun("q")) for _ in range(5)]
            group.create_task(fails())
    assert all(task.cancelled() for task in tasks)
    assert [row.status for row in Journal(journal).runs()] == ["cancelled"] * 5


# ---- started effects


def ahead(journal: Path | bool, *naps: float, ask: bool = False) -> plait.Agent:
    loop = Ahead(tuple(("rest", nap) for nap in naps), ask)
    model = plait.Scripted(["fine"] * 20, by_turn=False)
    return plait.Agent(loop, model=model, tools=[rest], journal=journal)  # type: ignore[arg-type]


def test_started_effects_overlap_and_are_taken_in_the_order_they_finish(journal: Path) -> None:
    agent = ahead(journal, 0.4, 0.1, 0.3, 0.2)
    run = agent.run("go")
    # One after another they would finish in the order in which they began.
    assert run.answer == ["rested 0.1", "rested 0.2", "rested 0.3", "rested 0.4"]
    assert agent.replay(run.id).whole
    assert agent.replay(run.id).outcome == run.outcome


def test_results_that_came_while_the_loop_was_busy_are_taken_in_the_order_they_came(journal: Path) -> None:
    class Slow(plait.Scripted):
        async def send(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0.15)
            return await super().send(*args, **kwargs)

    loop = Ahead((("rest", 0.1), ("rest", 0.05), ("rest", 0.01)))
    agent = plait.Agent(loop, model=Slow(["fine"] * 20, by_turn=False), tools=[rest], journal=journal)
    run = agent.run("go")
    assert run.answer == ["rested 0.01", "rested 0.05", "rested 0.1"]
    replayed = agent.replay(run.id)
    assert (replayed.whole, replayed.requests, replayed.steps) == (True, 4, run.steps)


@pytest.mark.parametrize("fatal", some_of(["2", "1", "3"]))
def test_a_killed_run_with_started_calls_repeats_none_of_them(tmp_path: Path, fatal: str) -> None:
    args = [SCRIPT, tmp_path / "j.db", tmp_path / "counts"]
    killed = run_forked([*args, fatal], timeout=30)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = (tmp_path / "counts").read_text().split()
    resumed = run_forked([*args, "0", "resume"], timeout=30)
    assert resumed.stdout.startswith("answered "), resumed.stderr
    # All three had begun: those whose end is not on record are in doubt, and nobody makes them again.
    assert (tmp_path / "counts").read_text().split() == before
    assert resumed.stdout.count("not repeated") == 3 - resumed.stdout.count("'sent")
    assert resumed.stdout.count("'sent") >= int(fatal) - 1


# ---- a reply that is read while it is written


async def test_pieces_of_a_watched_reply_come_in_order_and_begin_anew_after_a_broken_stream() -> None:
    times = 0

    async def breaks_once(asked: Asked) -> None:
        nonlocal times
        times += 1
        await asked.begin()
        for part in ("on", "e\ntw", "o\nthree"):
            await asked.piece(delta(part))
            await asyncio.sleep(0.02 if times == 1 else 0)
        if times == 1:
            asked.writer.transport.abort()
        else:
            await asked.piece(whole_stream("\nfour"))
            await asked.end()

    with endpoint(breaks_once) as at:
        model = ChatModel(spec="t:m", name="m", endpoint=at.server.url)
        agent = plait.Agent(Watching(), model=model, journal=False)
        run = await agent.arun("count")
    # Whole lines come as pieces, the last line with the reply.
    assert run.answer == ["one\ntwo\n|one\ntwo\nthree\n", "one\ntwo\nthree\nfour"]


def test_a_tool_thread_does_not_hold_up_the_end_of_the_program(tmp_path: Path) -> None:
    code = HANGING.format(kind="def", wait="time.sleep(600)", begin="print(agent.run('q').status)").replace(
        "agent = plait.Agent(", "agent = plait.Agent(limits=plait.Limits(tool_seconds=0.3), loop="
    )
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, timeout=10
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "answered\n", "")
    assert threading.active_count() < 50
