"""Agents in notebooks and other programs that run an event loop. README.md names the thread of each test."""

from __future__ import annotations

import asyncio
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

import plait
from models_server import Asked, Server, whole_stream

ANSWER = "Thought: k\nFinal Answer: 21"


def scripted(*replies: str) -> plait.Agent:
    return plait.Agent("react", model=plait.Scripted(list(replies) or [ANSWER]))


def test_run_works_in_a_cell_whose_loop_is_running() -> None:
    async def cell() -> list[str]:
        agent = scripted(ANSWER, ANSWER)
        return [agent.run("?").answer, agent.run("?").answer]

    assert asyncio.run(cell()) == ["21", "21"]


def test_await_and_run_may_alternate_in_one_notebook() -> None:
    async def cells() -> list[str]:
        agent = scripted(*[ANSWER] * 3)
        return [(await agent.arun("?")).answer, agent.run("?").answer, (await agent.arun("?")).answer]

    assert asyncio.run(cells()) == ["21"] * 3


def test_a_tool_may_run_an_agent_in_the_loop_of_a_notebook() -> None:
    inner = scripted()

    @plait.tool(read_only=True)
    def ask_inner() -> str:
        """Asks."""
        return str(inner.run("?").answer)

    call = 'Thought: x\nAction:\n```json\n{"action": "ask_inner", "action_input": null}\n```'
    outer = plait.Agent("react", model=plait.Scripted([call, "Thought: k\nFinal Answer: so 21"]), tools=[ask_inner])

    async def cell() -> plait.Run:
        return outer.run("?")

    made = asyncio.run(cell())
    assert (made.status, made.answer) == ("answered", "so 21")


def test_an_agent_with_an_http_model_survives_the_end_of_its_loop() -> None:
    async def answer(asked: Asked) -> None:
        await asked.stream(whole_stream("21"))

    started, ended = threading.Event(), threading.Event()
    found: list[Server] = []

    def serve() -> None:
        async def main() -> None:
            async with Server(answer) as server:
                found.append(server)
                started.set()
                await asyncio.to_thread(ended.wait, 60)

        asyncio.run(main())

    thread = threading.Thread(target=serve)
    thread.start()
    assert started.wait(60)
    try:
        agent = plait.Agent("tool_calling", model=found[0].model())
        answers = [asyncio.run(agent.arun("?")).answer for _ in range(3)]
        answers.append(agent.run("?").answer)
    finally:
        ended.set()
        thread.join(60)
    assert answers == ["21"] * 4


def test_run_does_not_use_a_closed_loop_that_is_the_threads_current_one() -> None:
    answers: list[str] = []

    def work() -> None:
        loop = asyncio.new_event_loop()
        loop.close()
        asyncio.set_event_loop(loop)
        answers.append(str(scripted().run("?").answer))
        asyncio.set_event_loop(None)
        answers.append(str(scripted().run("?").answer))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert answers == ["21", "21"]


@pytest.mark.skipif(find_spec("ipykernel") is None, reason="ipykernel is not installed")
def test_a_real_kernel_runs_the_first_example(tmp_path: Path) -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(cwd=str(tmp_path))
    said: list[str] = []
    code = (
        f"import plait\nrun = plait.Agent('react', model=plait.Scripted([{ANSWER!r}] * 2)).run('?')\nprint(run.answer)"
    )
    more = f"made = await plait.Agent('react', model=plait.Scripted([{ANSWER!r}])).arun('?')\nprint(made.answer)\nrun"
    try:
        for cell in (code, more):
            client.execute_interactive(
                cell, timeout=60, output_hook=lambda message: said.append(str(message["content"]))
            )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert sum("21\\n" in each for each in said) == 2 and not any("Traceback" in each for each in said), said
