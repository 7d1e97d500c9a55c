"""Whole runs against an endpoint that answers as a report says. The tool `weather` notes its calls.

Pauses before attempts are noted and take no time.
"""

from __future__ import annotations

import asyncio
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import Any
from unittest.mock import patch

import plait
from cli_support import run_in_process
from models_server import Asked, Server, whole_stream
from plait.core import events as ev
from plait.runtime.performers import ask_model
from wire_exchanges import Imitation

WARM = whole_stream("21 degrees.")
FINAL = whole_stream("Thought: I know it.\nFinal Answer: 21 degrees.")
QUESTION = "How warm is it in Lyon?"


class Ran:
    """A run, the requests that it made, its pauses, and the cities whose weather it asked for."""

    def __init__(self, agent: plait.Agent, made: plait.Run, server: Server) -> None:
        self.agent, self.run = agent, made
        self.cities: list[str] = []
        self.pauses: list[float] = []
        self.status, self.answer, self.reason = made.status, made.answer, str(made.reason or "")
        self.requests: list[Asked] = server.asked
        self.bodies = [asked.body for asked in server.asked]
        self.notes = [event.text for event in made.events if isinstance(event, ev.Noted)]

    def replays(self) -> bool:
        """Whether a replay of the record, which compares each request, reaches the run's end."""
        return self.agent.replay(self.run.id).whole


def run_against(*replies: Any, **more: Any) -> Ran:
    """Run an agent against these replies: see `Imitation`. A reply may also be a function of the request."""
    cities: list[str] = []

    @plait.tool(read_only=True)
    def weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return f"{city}: 21 degrees"

    return run_agent(cities, [weather], *replies, **more)


def run_agent(
    cities: list[str],
    tools: list[Any],
    *replies: Any,
    loop: Any = "tool_calling",
    model: dict[str, Any] | None = None,
    question: Any = QUESTION,
    session: str | None = None,
    history: Any = None,
    **more: Any,
) -> Ran:
    """Run an agent with these tools. `more` are options of the agent."""
    imitation = Imitation(*replies)

    async def answer(asked: Asked) -> None:
        if imitation.replies and callable(imitation.replies[0]):
            await imitation.replies.pop(0)(asked)
        else:
            await imitation(asked)

    pauses: list[float] = []
    pause = ask_model._pause

    def note_pause(why: Any, failures: int) -> float:
        pauses.append(pause(why, failures))
        return 0.0

    async def main() -> Ran:
        async with Server(answer) as server:
            agent = plait.Agent(loop, model=server.model(**(model or {})), tools=tools, **more)
            return Ran(agent, await agent.arun(question, session=session, history=history), server)

    with patch.object(ask_model, "_pause", note_pause):
        made = asyncio.run(main())
    made.cities, made.pauses = cities, pauses
    return made


def run_plait(*args: str) -> str:
    """Run `plait ARGS` in this process; returns what it prints on stdout."""
    with redirect_stdout(TextIOWrapper(BytesIO(), "utf-8")) as out:
        assert run_in_process(list(args)) == 0
        out.flush()
        return out.buffer.getvalue().decode()  # type: ignore[attr-defined]
