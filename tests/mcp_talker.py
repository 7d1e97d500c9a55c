"""What the tests of served MCP share: agents that answer, ask, fail and take long; a client of the official package."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import plait
from plait import Agent, Scripted


@plait.tool(read_only=True)
def population(town: str) -> int:
    "How many people live in a town."
    return {"Lyon": 522_250, "Nice": 348_085}[town]


@plait.tool
def send(text: str) -> str:
    "Sends a text."
    return f"sent: {text}"


@plait.tool(read_only=True)
def wait(seconds: float) -> str:
    "Waits."
    end = time.monotonic() + seconds
    while time.monotonic() < end and not plait.cancelled():
        time.sleep(0.05)
    return "waited"


def act(tool: str, **given: Any) -> str:
    return f"Thought: I call it.\nAction:\n```json\n{json.dumps({'action': tool, 'action_input': given})}\n```\n"


def done(answer: str = "done") -> str:
    return f"Thought: That is all.\nFinal Answer: {answer}"


def agent(journal: Path, *script: Any, **fields: Any) -> Agent:
    """A ReAct agent with a script."""
    return Agent(
        "react", **{"model": Scripted(list(script)), "tools": (population, send, wait), "journal": journal, **fields}
    )
