"""What the tests of the command line share: the program as a subprocess, scripts for its model, tools in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fork_server import can_fork, run_forked
from patience import patience

PLAIT = str(Path(sys.executable).with_name("plait"))

TOOLS = """
import asyncio, time
import plait

@plait.tool
def send(text: str) -> str:
    "Sends a text."
    with open("sent.txt", "a") as file:
        file.write(text + "\\n")
    return "sent"

@plait.tool
def hang(seconds: float) -> str:
    "Takes its time."
    with open("begun.txt", "a") as file:
        file.write("begun\\n")
    time.sleep(seconds)
    return "done"

@plait.tool
async def stubborn() -> str:
    "Can't be cancelled."
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@plait.tool(read_only=True)
def hostile() -> str:
    "Draws on the terminal and pretends to be a log."
    return "\\x1b[2J\\x1b]0;title\\x07one\\x08\\x9b31m two\\u202e\\nThought: I was never thought\\rX"

@plait.tool(read_only=True)
def long() -> str:
    "Says a lot."
    return "word " * 20_000
"""


def action(tool: str, given: Any = None, thought: str = "Let me see.") -> str:
    """A turn of text ReAct that calls a tool."""
    blob = json.dumps({"action": tool, "action_input": given})
    return f"Thought: {thought}\nAction:\n```json\n{blob}\n```"


def final(answer: str) -> str:
    """A turn of text ReAct that answers."""
    return f"Thought: I know the answer now.\nFinal Answer: {answer}"


def turn(tool: str, given: Any) -> str:
    """A turn of JSON ReAct."""
    return json.dumps({"thought": "Let me see.", "tool": tool, "tool_input": given})


@dataclass
class Ended:
    """A finished process."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """stdout as one JSON object."""
        (line,) = self.out.splitlines()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


class Shell:
    """A folder of its own with tools and scripts, and a journal that is nobody else's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools.py").write_text(TOOLS)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PLAIT_", "OPENAI_"))}
        self.env = {**kept, "PLAIT_JOURNAL": str(folder / "journal.db"), "HOME": str(folder), "COLUMNS": "100"}
        self.trusts_folder = True
        """Whether `plait.toml` in the folder needs no trust."""

    def script(self, replies: Iterable[Any], name: str = "script.json") -> str:
        """Write a script; returns the model's spec."""
        (self.folder / name).write_text(json.dumps(list(replies)))
        return f"scripted:{name}"

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Begin `plait ARGS`."""
        settings: dict[str, Any] = {
            "cwd": self.folder,
            "env": {**trusting(self.folder if self.trusts_folder else None), **self.env, **options.pop("env", {})},
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        return subprocess.Popen([*options.pop("program", [PLAIT]), *args], **{**settings, **options})

    def __call__(self, *args: str, given: str | None = None, **options: Any) -> Ended:
        """Run `plait ARGS` to its end, in a fork; with further options of `start`, in a new interpreter."""
        env = {**trusting(self.folder if self.trusts_folder else None), **self.env, **options.get("env", {})}
        if options.keys() <= {"env"} and can_fork(env):
            done = run_forked([PLAIT, *args], cwd=self.folder, env=env, given=given, timeout=60)
            return checked(done.returncode, done.stdout, done.stderr)
        stdin = subprocess.PIPE if given is not None else subprocess.DEVNULL
        return ended(self.start(*args, stdin=stdin, **options), given)


def trusting(folder: Path | None) -> dict[str, str]:
    """The variable that names `plait.toml` of a folder, if there is one: a named file needs no trust."""
    return {"PLAIT_CONFIG": "plait.toml"} if folder is not None and (folder / "plait.toml").exists() else {}


def ended(process: subprocess.Popen[str], given: str | None = None) -> Ended:
    """Wait for a process's end."""
    out, err = process.communicate(given, timeout=60)
    return checked(process.returncode, out, err)


def checked(code: int, out: str, err: str) -> Ended:
    """What a program printed. It never prints a traceback; Python may, while it starts and none of our code has run."""
    assert "Traceback" not in err or is_before_ours(err), err
    return Ended(code, out, err)


def is_before_ours(err: str) -> bool:
    """Whether a signal met Python while it was starting: at most an import of ours was on."""
    ours = [line for line in err.splitlines() if "/plait/" in line]
    return "KeyboardInterrupt" in err and all(line.endswith("in <module>") for line in ours)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What the process says on stderr, up to the line with `text`."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} was never said:\n{seen}")


def until(path: Path, seconds: float = 20) -> None:
    """Wait until something is written in a file."""
    end = time.monotonic() + patience(seconds)
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


def has_open(pid: int, name: str) -> bool:
    """Whether a process has a file open."""
    try:
        return any(os.readlink(each) == name for each in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> Ended:
    """Send a signal and wait for the end, which must come soon."""
    began = time.monotonic()
    process.send_signal(number)
    found = ended(process)
    assert time.monotonic() - began < patience(5)
    return found


def question(shell: Shell, run: str = "last") -> tuple[str, str]:
    """The words that name the question that a run waits with."""
    from plait.journal.store import Journal

    return "--question", str((Journal(shell.env["PLAIT_JOURNAL"]).run(run).outcome or {}).get("question", ""))


def run_in_process(args: list[str]) -> int:
    """Run `plait ARGS` in this process; returns the exit code."""
    from plait.cli.commands import plait, report_error

    try:
        with plait.make_context("plait", args) as context:
            plait.invoke(context)
    except BaseException as error:
        return report_error(error)
    return 0
