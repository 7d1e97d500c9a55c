"""Long and interrupted conversations as people met them. README.md names the thread of each test."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from endpoint_runs import WARM, Ran, run_against, run_agent

import plait
from models_server import Asked, Server, delta, event, whole_stream
from plait.core import Waiting
from plait.core.errors import PlaitError

DONE = event(b"[DONE]")


def call(*inputs: Any, tool: str = "read_page", id: str = "a") -> bytes:
    calls = [
        {"index": place, "id": f"{id}{place}", "function": {"name": tool, "arguments": json.dumps(given)}}
        for place, given in enumerate(inputs)
    ]
    return delta(tool_calls=calls, finish="tool_calls") + DONE


def check_pairs(messages: list[dict[str, Any]]) -> int:
    """Check that each call has its result right behind it, and each result its call; return the number of calls."""
    open_calls: list[str] = []
    count = 0
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, f"a result without its call: {message}"
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, f"calls without results: {open_calls}"
        open_calls = [each["id"] for each in message.get("tool_calls") or ()]
        count += len(open_calls)
    assert not open_calls and messages[-1]["role"] in ("user", "tool")
    return count


@pytest.mark.parametrize("end", ["cancelled", "killed by its time", "refused"])
def test_a_call_that_was_interrupted_does_not_break_the_next_turns(end: str, journal: Path) -> None:
    begun = asyncio.Event()

    @plait.tool(requires_approval=end == "refused")
    async def read_page(number: int) -> str:
        """A page."""
        begun.set()
        await asyncio.sleep(60)
        return "never"

    bodies: list[dict[str, Any]] = []

    async def answer(asked: Asked) -> None:
        bodies.append(asked.body)
        last = asked.body["messages"][-1]
        begins = last["role"] == "user" and "Read the pages." in str(last["content"])
        await asked.stream(call({"number": 1}, {"number": 2}) if begins else WARM)

    async def main() -> None:
        async with Server(answer) as server:
            limits = plait.Limits(seconds=0.3) if end == "killed by its time" else plait.Limits()
            agent = plait.Agent("tool_calling", model=server.model(), tools=[read_page], journal=journal, limits=limits)
            first = asyncio.ensure_future(agent.arun("Read the pages.", session="s"))
            if end == "cancelled":
                await begun.wait()
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
            else:
                made = await first
                while isinstance(made.outcome, Waiting):
                    made = await agent.aresume(made.id, "no, not now", question=made.outcome.question)
            after = agent.using(limits=plait.Limits())
            for question in ("How warm is it?", "And now?"):
                assert (await after.arun(question, session="s")).answer == "21 degrees."

    asyncio.run(main())
    for body in bodies:
        check_pairs(body["messages"])


ORPHANS: dict[str, list[dict[str, Any]]] = {
    "a result without its call": [
        {"role": "tool", "tool_call_id": "gone", "content": "21"},
        {"role": "assistant", "content": "It is warm."},
    ],
    "a call without its result": [
        {"role": "user", "content": "Read it."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "It is warm."},
    ],
    "an assistant at the end": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It is warm."}],
}


@pytest.mark.parametrize("history", ORPHANS.values(), ids=ORPHANS)
def test_a_history_that_another_program_cut_is_sent_in_pairs(history: list[dict[str, Any]]) -> None:
    made = run_against(WARM, history=history)
    assert made.answer == "21 degrees."
    for body in made.bodies:
        check_pairs(body["messages"])
        assert "It is warm." in json.dumps(body["messages"])


def test_compaction_keeps_calls_beside_their_results_and_the_instructions(journal: Path) -> None:
    @plait.tool(read_only=True)
    def read_page(number: int) -> str:
        """A page."""
        return f"page {number}: " + "words of the page " * 100

    turns = 0

    async def answer(asked: Asked) -> None:
        nonlocal turns
        if not asked.body.get("tools"):
            await asked.stream(whole_stream("The pages so far were about words."))
            return
        turns += 1
        await asked.stream(call({"number": turns}, {"number": -turns}, id=f"t{turns}-") if turns < 14 else WARM)

    options = {"instructions": "Speak like a sailor.", "limits": plait.Limits(steps=40), "journal": journal}
    made = run_agent([], [read_page], *[answer] * 40, model={"context_tokens": 6000}, question="Read all.", **options)
    assert (made.status, made.answer, turns) == ("answered", "21 degrees.", 14)
    turn_bodies = [body for body in made.bodies if body.get("tools")]
    sizes = [len(json.dumps(body)) for body in turn_bodies]
    assert sizes[-1] < 26 * 1500, "nothing was compacted"
    for body in turn_bodies:
        check_pairs(body["messages"])
        assert "Speak like a sailor." in json.dumps(body["messages"]) and "Read all." in json.dumps(body["messages"])
    assert made.replays()


def test_a_long_conversation_without_calls_does_not_read_the_records_of_its_turns(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plait.journal.sqlite.store import SqliteStore

    read: list[str] = []
    real = SqliteStore.iter_rows

    def count(store: SqliteStore, run: str, *args: Any, **options: Any) -> Any:
        read.append(run)
        return real(store, run, *args, **options)

    monkeypatch.setattr(SqliteStore, "iter_rows", count)
    for loop, reads in (("react", 0), ("codeact", 3)):
        replies = (
            ["Thought: k\nFinal Answer: 21"] if loop == "react" else [" so.\nACTION 1:\n```python\nstop('21')\n```"]
        )
        agent = plait.Agent(loop, model=plait.Scripted(replies), journal=journal)
        for number in range(3):
            assert agent.run(f"question {number}", session=loop).answer == "21"
        assert len(read) == reads, loop


def refused_for_good(made: Ran) -> None:
    assert (made.status, len(made.bodies), made.pauses) == ("crashed", 1, [])


def test_a_request_that_is_refused_for_its_messages_is_not_sent_again() -> None:
    said = "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_01ATkq"
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    refused_for_good(run_against(*[(400, body)] * 4, model={"wire": "anthropic"}))


def test_the_calls_of_a_killed_process_do_not_break_its_session(journal: Path) -> None:
    """The process dies in the middle of the call; another one goes on with the conversation."""
    import os

    def kill() -> None:
        @plait.tool
        def pay(amount: int) -> str:
            """Pays."""
            os._exit(9)

        run_agent([], [pay], call({"amount": 3}, tool="pay"), question="Pay 3.", session="s", journal=journal)

    child = os.fork()
    if child == 0:
        try:
            kill()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    paid: list[int] = []

    @plait.tool
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    bodies: list[dict[str, Any]] = []
    for question in ("What now?", "Really?"):
        try:
            made = run_agent([], [pay], WARM, question=question, session="s", journal=journal)
        except PlaitError as why:  # the interrupted turn has to be settled first
            assert "session" in str(why) or "conversation" in str(why), why
            agent = plait.Agent("tool_calling", model=plait.Scripted(["It may have been paid."]), tools=[pay])
            agent = agent.using(journal=journal)
            assert agent.resume("last").status in ("answered", "waiting")
            made = run_agent([], [pay], WARM, question=question, session="s", journal=journal)
        assert made.answer == "21 degrees."
        bodies += made.bodies
    assert paid == []
    for body in bodies:
        check_pairs(body["messages"])
