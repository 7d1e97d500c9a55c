"""Recorded runs of a Python-session agent with method search, read: what the model thought and did, what it was shown.

`run_cells` runs the recorded actions in a plain CPython process of their own, with the tools of a world.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fork_server import run_forked

MODELS = ("gpt-3.5-turbo", "text-davinci-003", "gpt-4")
"""In the order of the published table's columns."""


@dataclass(frozen=True)
class Step:
    """One turn: the thought, the action's code, and what came of it (None for the turn that stopped the run)."""

    number: int
    thought: str
    code: str
    observation: str | None

    @property
    def error(self) -> str:
        """The type of the error that the action ended with, "" for none."""
        match = re.match(r"ERROR: (\w+)", self.observation or "")
        return match[1] if match else ""


@dataclass(frozen=True)
class Log:
    """One run: its task's letter and text, the model, its turns, and how it ended: by `stop()`, or because the prompt
    had become too long for the model."""

    letter: str
    model: str
    task: str
    steps: tuple[Step, ...]
    end: Literal["stop", "overflow"]
    text: str
    """The whole file."""

    @property
    def name(self) -> str:
        return f"{self.letter}-{self.model}"

    @property
    def plan(self) -> tuple[str, ...]:
        """The steps that the task was taken apart into, from the first thought."""
        return tuple(re.findall(r"^\d+\. (.+)$", self.steps[0].thought, re.M))


_STEP = re.compile(
    r"^THOUGHT (?P<n>\d+):\n(?P<thought>.*?)\n?^ACTION (?P=n):\n```[Pp]ython\n(?P<code>.*?)^```\n?"
    r"(?:^OBSERVATION (?P=n):\n(?P<seen>.*?))?(?=^THOUGHT \d+:\n|^\.\.\.\nERROR |\Z)",
    re.M | re.S,
)


def read(path: Path) -> Log:
    """The run in a log. Raises `ValueError` where a part of it is not understood."""
    text = path.read_text()
    begin = text.rindex("\nTASK: ")
    task, _, rest = text[begin:].removeprefix("\nTASK: ").partition("\n")
    steps, at = [], 0
    for match in _STEP.finditer(rest):
        if match.start() != at:
            raise ValueError(f"{path.name}: {rest[at : match.start()][:80]!r} is no step")
        seen = match["seen"]
        steps.append(
            Step(int(match["n"]), match["thought"], match["code"], None if seen is None else seen.rstrip("\n"))
        )
        at = match.end()
    tail = rest[at:].strip()
    if tail and "maximum context length" not in tail:
        raise ValueError(f"{path.name}: {tail[:80]!r} is no end")
    letter, model = path.name[0], path.name.split("__")[1]
    return Log(letter, model, task, tuple(steps), "overflow" if tail else "stop", text)


def read_all(folder: Path) -> list[Log]:
    """All runs, by model and task."""
    logs = [read(path) for path in sorted(folder.glob("*.txt"))]
    return sorted(logs, key=lambda log: (MODELS.index(log.model), log.letter))


@dataclass(frozen=True)
class Ran:
    """What came of one action here: what it printed, the error's type and message, whether it stopped the run."""

    output: str
    error: str = ""
    message: str = ""
    stopped: bool = False


@dataclass(frozen=True)
class Cells:
    """What came of the actions of a run: each one, and what was sent, in plain values."""

    ran: tuple[Ran, ...]
    sent: tuple[dict[str, object], ...]
    grade: str


def run_cells(log: Log, word: str) -> Cells:
    """Run the actions of a run, one after the other in one namespace, in a process of their own."""
    asked = json.dumps({"letter": log.letter, "word": word, "cells": [step.code for step in log.steps]})
    done = run_forked([__file__], given=asked, timeout=300)
    if done.returncode:
        raise AssertionError(done.stderr)
    told = json.loads(done.stdout)
    return Cells(tuple(Ran(**each) for each in told["ran"]), tuple(told["sent"]), told["grade"])


def _child() -> None:
    """In the process: runs the cells that stdin names."""
    import ast
    import contextlib
    import io
    import math
    from datetime import date, datetime, timedelta

    from plait.lab.world import RunEvidence, task_of, world_of

    asked = json.load(sys.stdin)
    world = world_of(asked["word"])

    class Stop(BaseException):
        pass

    def stop() -> None:
        raise Stop

    def method_search(description: str) -> None:
        print("\n".join(f"`{tool.name}{tool.signature.shape}`: {tool.spec.description}" for tool in world.tools[:3]))

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):  # type: ignore[no-untyped-def,override]
            return world.now.replace(tzinfo=None)

    names: dict[str, object] = {
        "datetime": Clock,
        "date": date,
        "timedelta": timedelta,
        "math": math,
        "stop": stop,
        "method_search": method_search,
        **{tool.name: tool for tool in world.tools},
    }
    ran = []
    for cell in asked["cells"]:
        out = io.StringIO()
        told = {}
        with contextlib.redirect_stdout(out):
            try:
                tree = ast.parse(cell)
                if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(tree)):
                    raise ImportError("imports are disabled")
                exec(compile(tree, "<action>", "exec"), names)
            except Stop:
                told = {"stopped": True}
            except Exception as error:
                told = {"error": type(error).__name__, "message": str(error)}
        ran.append({"output": out.getvalue(), **told})
    printed = "".join(str(each["output"]) for each in ran)
    grade = task_of(asked["letter"]).grade(world, RunEvidence(None, printed))
    json.dump({"ran": ran, "sent": [sent.json() for sent in world.sent], "grade": str(grade)}, sys.stdout)


if __name__ == "__main__":
    _child()
