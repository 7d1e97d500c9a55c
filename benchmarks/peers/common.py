"""What each framework's file shares: the job it is given, the two tools as plain functions, how it answers.

A worker is one process for one task: a JSON object on stdin, a JSON object on stdout. Needs of Plait only the two
tools, so a framework's environment holds that framework, msgspec and pydantic; `run.py` puts Plait on the path.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple


class PeerTask(NamedTuple):
    """One task for one agent. `steps` is how many model calls it may make; `tools` are Plait's words.

    `temperature` is for other frameworks' agents: our loops choose their own.
    """

    agent: str
    question: str
    tools: list[str]
    url: str
    key: str
    model: str
    steps: int
    temperature: float


class Outcome(NamedTuple):
    """What came: `status` is answered, stopped (at the step limit) or crashed, `error` says how it crashed."""

    status: str
    answer: Any = None
    error: str = ""


def functions(task: PeerTask) -> list[Callable[..., Any]]:
    """The task's tools as plain typed functions with docstrings, with the names and descriptions of Plait's.

    They raise `plait.core.errors.ToolError`, whose text is for the model, for a key that is not there or an
    expression that can't be computed.
    """
    from plait.tools.load import load

    found = {tool.name: tool for word in task.tools for tool in load(word)}

    def lookup(key: str) -> Any:
        return found["lookup"].function(key=key)

    def calculator(expression: str) -> str:
        return str(found["calculator"].function(expression=expression))

    described = found["calculator"].spec
    said = described.parameters["properties"]["expression"]["description"]
    lookup.__doc__ = f"{found['lookup'].spec.description}\n\nArgs:\n    key: The entry's key."
    calculator.__doc__ = f"{described.description}\n\nArgs:\n    expression: {said}"
    return [lookup, calculator]


def work(ask: Callable[[PeerTask], Outcome], *packages: str) -> None:
    """Do the job on stdin with `ask` and print what came. The time is that of `ask`: imports are not in it."""
    say = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints is not our one line
    task = PeerTask(**json.load(sys.stdin))
    before, cpu = time.monotonic(), time.process_time()
    try:
        outcome = ask(task)
    except Exception as error:
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        outcome = Outcome("crashed", None, f"{name}: {error}"[:800])
    seconds, own = time.monotonic() - before, time.process_time() - cpu
    versions = {package: version(package) for package in packages}
    line = {**outcome._asdict(), "seconds": round(seconds, 2), "own_cpu": round(own, 2), "versions": versions}
    say.write(json.dumps(line, default=str) + "\n")
    say.close()
