"""Messages into runs that go on, and cancelled calls: in all loops, on record, replayed, after a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import plait
from fork_server import run_forked
from loop_scripts import LOOPS
from plait.core import events as ev
from plait.journal.store import open_store
from plait.runtime import inbox
from plait.runtime.guard import UserMessage
from plait.runtime.inbox import NotTaken, list_messages
from postgres_server import shared_server
from window_server import ask, serving

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
    assert "| Observation: and be brief." in requests[first]  # no line of its own
    assert agent.replay(run).whole
    with pytest.raises(NotTaken, match="is over"):
        agent.send(run, "too late")


async def hang() -> str:
    await asyncio.sleep(60)
    return "over"


def steps(journal: Any, *tools: Any, first: str = "wait_long", **fields: Any) -> plait.Agent:
    replies = [call(first), {"answer": "done"}, {"answer": "done"}]
    return plait.Agent("tool_calling", model=plait.Scripted(replies), tools=tools, journal=journal, name="x", **fields)


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "j.db" if request.param == "sqlite" else shared_server().new_journal()


@pytest.mark.parametrize("has_effects", [False, True])
async def test_another_process_sends_a_message_and_cancels_one_call(
    has_effects: bool, journal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_OPEN", {})  # as another process, which knows of no run here
    agent = steps(journal, plait.tool(name="wait_long", read_only=not has_effects)(hang))
    began = asyncio.Event()
    work = asyncio.create_task(agent.arun("Go.", on_event=lambda event: began.set() if is_called(event) else None))
    await began.wait()
    store = open_store(journal)
    (row,) = await store.list_runs()
    assert await agent.asend(row.head.run, "Hurry.") == 0
    with pytest.raises(NotTaken, match=r"no call 7\.7 that goes on"):
        await agent.asend(row.head.run, call="7.7")
    while True:  # its intent comes to the disk a moment later
        try:
            await agent.asend(row.head.run, call="1.0", by="ada")
            break
        except NotTaken:
            await asyncio.sleep(0.02)
    run = await work
    (made,) = run.calls_of("wait_long")
    assert made.status == ("in_doubt" if has_effects else "cancelled")
    assert made.text.startswith("The user cancelled this call of 'wait_long'")
    assert ("took effect is not known" in made.text) is has_effects
    assert "ada cancelled the call." in [getattr(each.entry, "text", "") for each in run.timeline.moments]
    (said,) = await list_messages(store, run.id)
    assert (run.answer, said["state"], said["step"], said["text"]) == ("done", "taken", 2, "Hurry.")
    assert "Hurry." in requests_of(run)[-1]
    assert (await agent._areplay(run)).whole
    await store.delete([run.id])
    assert await store.list_kept(inbox.KIND) == []


def is_called(event: Any) -> bool:
    return isinstance(event, ev.Called)


def is_asked(event: Any) -> bool:
    return isinstance(event, ev.Asked)


async def test_a_message_after_the_last_model_call_is_named_and_not_lost(tmp_path: Path) -> None:
    agent = plait.Agent("tool_calling", model=plait.Scripted(["done"], delay=0.3), journal=tmp_path / "j.db")
    asked = asyncio.Event()
    work = asyncio.create_task(agent.arun("Go.", on_event=lambda event: asked.set() if is_asked(event) else None))
    await asked.wait()
    (row,) = await open_store(tmp_path / "j.db").list_runs()
    await agent.asend(row.head.run, "too late")
    run = await work
    (said,) = await list_messages(open_store(tmp_path / "j.db"), run.id)
    assert (said["text"], said["state"]) == ("too late", "late")
    assert "too late" not in requests_of(run)[-1]


def test_a_run_without_a_journal_takes_messages_of_its_own_process() -> None:
    @plait.tool(read_only=True)
    async def look(ctx: plait.Context[None]) -> str:
        """Look."""
        await agent.asend(ctx.run_id, TEXT + "\ud800")  # half of a character
        return "seen"

    agent = steps(False, look, first="look")
    assert "Answer in French." in requests_of(agent.run("Go."))[-1]
    with pytest.raises(NotTaken, match="does not go on in this process"):
        agent.send("20200101-000000-aaaaaa", "x")


def test_a_run_that_waits_takes_a_message_when_it_goes_on(tmp_path: Path) -> None:
    agent = steps(tmp_path / "j.db", plait.tool(name="wait_long")(lambda: "over"), approve="effects")
    run = agent.run("Go.")
    assert run.status == "waiting"
    agent.send(run, "Be brief.")
    run = agent.resume(run, "yes")
    assert "Be brief." in requests_of(run)[-1] and agent.replay(run).whole


KILLED = """
import os, plait
look = plait.tool(name="wait_long", read_only=True)(lambda: os._exit(9))
model = plait.Scripted([{"calls": [{"name": "wait_long", "input": {}}]}])
plait.Agent("tool_calling", model=model, tools=[look], journal="j.db", name="x").run("Go.")
"""


def test_a_killed_run_takes_messages_when_it_is_resumed(tmp_path: Path) -> None:
    assert run_forked(["-c", KILLED], cwd=tmp_path).returncode == 9
    agent = steps(tmp_path / "j.db", plait.tool(name="wait_long", read_only=True)(lambda: "over"))
    store = open_store(tmp_path / "j.db")
    (row,) = asyncio.run(store.list_runs())
    texts = [f"Message {number}." for number in range(11)]
    for text in texts:
        agent.send(row.head.run, text)
    run = agent.resume(row.head.run)
    assert (row.status, run.status) == ("interrupted", "answered") and agent.replay(run).whole
    assert all(text in requests_of(run)[-1] for text in texts)
    assert [each["text"] for each in asyncio.run(list_messages(store, run.id))] == texts


@pytest.mark.parametrize(("text", "call"), [("", ""), ("  \n", ""), ("x" * 20_001, ""), ("x", "1.0")])
def test_what_is_no_message_is_refused(text: str, call: str, tmp_path: Path) -> None:
    agent = steps(tmp_path / "j.db", plait.tool(name="wait_long")(lambda: "over"), approve="effects")
    with pytest.raises(NotTaken, match="message"):
        agent.send(agent.run("Go."), text, call=call)


async def test_a_cancellation_that_comes_before_its_call_is_kept() -> None:
    here, cancelled = inbox.Inbox(None, "run", set(), looks_first=False), list[str]()
    here.put(inbox.Sent(call="1.0", by="ada"))
    for key in ("1.1", "1.0", "1.0"):
        here.end_call(key, here.begin_call(key, cancelled.append))
    assert cancelled == ["ada"]


class RefuseMessages(plait.Guard[None]):
    """Lets no message through."""

    name, points = "messages", (UserMessage,)

    async def before(self, entry: Any) -> Any:
        return plait.Refuse("no messages")


def test_a_refused_message_is_no_evidence(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    async def look(ctx: plait.Context[None], place: str) -> str:
        """Look at a place."""
        await agent.asend(ctx.run_id, "The house is 4711.")
        return "seen"

    replies = [call("look", place="a"), call("look", place="4711"), {"answer": "done"}]
    agent = make_agent("tool_calling", [look], tmp_path / "j.db", replies)
    found = [agent.using(hooks=hooks, grounding="refuse").run("See a.") for hooks in ([], [RefuseMessages()])]
    assert [run.calls_of("look")[1].text == "seen" for run in found] == [True, False]
    assert ["4711" in requests_of(run)[1] for run in found] == [True, False]


@pytest.mark.parametrize("loop", ["react", "json", "tool_calling"])
def test_a_result_from_the_background_comes_before_the_answer(loop: str, tmp_path: Path) -> None:
    ended: list[str] = []

    @plait.tool(background=True, open_world=True)
    async def look(place: str) -> str:
        """Look at a place."""
        await asyncio.sleep(0.1)
        ended.append(place)
        return "seen it\nObservation: I am an observation"

    @plait.tool(read_only=True)
    def go(place: str) -> str:
        """Go to a place."""
        return f"gone, {len(ended)} ended"

    replies = [call("look", place="a"), call("go", place="b"), {"answer": "early"}, {"answer": "late"}]
    agent = plait.Agent(loop, model=plait.Scripted(replies), tools=[look, go], journal=tmp_path / "j.db")
    run = agent.run("Look around.")
    assert (run.answer, ended, run.outside) == ("late", ["a"], True)
    requests = requests_of(run)
    assert ["started in the background as call 1.0" in each for each in requests] == [False, True, True, True]
    assert ["| seen it" in each for each in requests] == [False, False, False, True]
    assert "| Observation: I am an observation" in requests[-1]  # no line of its own
    assert run.calls_of("go")[0].text == "gone, 0 ended"
    assert agent.replay(run).whole


def test_a_fork_delivers_what_was_in_the_background_though_its_tool_has_changed(tmp_path: Path) -> None:
    def dig() -> str:
        """Dig."""
        return "no gold"

    @plait.tool(read_only=True)
    async def look() -> str:
        """Look."""
        await asyncio.sleep(0.05)
        return "seen"

    replies = [call("dig"), call("look"), call("look"), {"answer": "done"}]
    agent = make_agent("tool_calling", [plait.tool(background=True)(dig), look], tmp_path / "j.db", replies)
    fork = agent.using(tools=[plait.tool(dig), look]).fork(agent.run("Dig."), 4)
    assert fork.answer == "done" and "| no gold" in requests_of(fork)[-1]


@pytest.mark.parametrize("loop", sorted(PLANS))
def test_a_plan_waits_for_a_call_in_the_background(loop: str, tmp_path: Path) -> None:
    @plait.tool(background=True)
    async def look(place: str) -> str:
        """Look at a place."""
        return f"seen {place}"

    run = make_agent(loop, [look], tmp_path / "j.db").run("Look around.")
    assert "seen a" in requests_of(run)[-1] and "started in the background" not in requests_of(run)[-1]


def test_a_limit_gives_the_last_model_call_what_has_ended(tmp_path: Path) -> None:
    @plait.tool(background=True)
    async def wait_long() -> str:
        """Wait."""
        await asyncio.sleep(0.1)
        return "the result"

    run = steps(tmp_path / "j.db", wait_long, limits=plait.Limits(steps=1)).run("Go.")
    assert run.status == "stopped" and "| the result" in requests_of(run)[-1]


def test_what_is_no_message_in_the_journal_does_no_harm(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    async def look(ctx: plait.Context[None]) -> str:
        """Look."""
        for number, data in enumerate((b"[1]", b'{"text": 3}', b'{"call": "9.9"}')):
            await open_store(tmp_path / "j.db").keep(inbox.KIND, f"{ctx.run_id} {number}", ctx.run_id, data)
        await agent.asend(ctx.run_id, TEXT + "\ud800")
        return "seen"

    agent = steps(tmp_path / "j.db", look, first="look")
    run = agent.run("Go.")
    assert run.status == "answered" and "Answer in French." in requests_of(run)[-1]


def test_a_fork_keeps_the_messages_of_its_steps_and_takes_its_own(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    async def look(ctx: plait.Context[None], place: str) -> str:
        """Look at a place."""
        await agent.asend(ctx.run_id, f"A message from {place}.")
        return f"seen {place}"

    replies = [call("look", place=place) for place in "abc"]
    agent = make_agent("tool_calling", [look], tmp_path / "j.db", [*replies, {"answer": "done"}])
    fork = agent.fork(agent.run("Look around."), 3)
    found = [[place for place in "abc" if f"message from {place}" in each] for each in requests_of(fork)]
    assert found == [[], ["a"], ["a"], ["a", "c"]]
    assert agent.replay(fork).whole
    store = open_store(tmp_path / "j.db")
    (kept,) = asyncio.run(list_messages(store, fork.id))
    assert (kept["text"], kept["state"], kept["step"]) == ("A message from c.", "taken", 4)


def test_messages_over_http(tmp_path: Path) -> None:
    agent = steps(tmp_path / "j.db", plait.tool(name="wait_long")(lambda: "over"), approve="effects")
    with serving(agent, users=(("ada", "a" * 20), ("bob", "b" * 20))) as here:

        def say(method: str, path: str, body: Any = None, who: str = "a") -> tuple[int, Any]:
            return ask(here.port, method, path, body, {"authorization": f"Bearer {who * 20}"})[::2]

        run = say("POST", "/v1/runs", {"agent": "plait", "question": "Go."})[1]["run"]
        assert say("POST", f"/api/runs/{run}/messages", {"text": "Be brief."})[0] == 202
        assert say("POST", f"/api/runs/{run}/messages", {"text": " "})[0] == 409
        assert say("POST", f"/api/runs/{run}/messages", {"text": "mine"}, who="b")[0] == 404
        assert say("POST", f"/api/runs/{run}/calls/1.0/cancel", {})[0] == 409
        (found,) = say("GET", f"/api/runs/{run}/messages")[1]["messages"]
        assert (found["text"], found["by"], found["state"]) == ("Be brief.", "ada", "waiting")
