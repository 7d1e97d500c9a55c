"""Whatever a tool does: an observation comes of it, the run goes on, and the answer alone is on stdout."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from typing import Any

import pytest

from cli_support import PLAIT, Shell, action, final
from faults_support import observations, shell
from journal_rows import is_request
from patience import patience
from plait.journal.store import Journal
from plait.runtime.calls.make_call import UNKNOWN

__all__ = ["shell"]

BAD_TOOLS = """
import asyncio, os, subprocess, sys, time
import plait

print("the tools are imported")

@plait.tool
def raises(text: str) -> str:
    "Raises."
    raise ValueError("no such city")

@plait.tool
def exits(text: str) -> str:
    "Wants to end the program."
    sys.exit(7)

@plait.tool
async def exits_async(text: str) -> str:
    "Wants to end the program, on the event loop."
    raise SystemExit(7)

@plait.tool
def interrupts(text: str) -> str:
    "Raises what Ctrl-C raises."
    raise KeyboardInterrupt("not a person")

@plait.tool
async def cancels_itself(text: str) -> str:
    "Waits for something that was cancelled."
    task = asyncio.ensure_future(asyncio.sleep(5))
    task.cancel()
    await task
    return "never"

@plait.tool
def wicked(text: str) -> str:
    "Raises an error that can't be looked at."
    class Wicked(Exception):
        def __str__(self): raise RuntimeError("no")
    raise Wicked

@plait.tool(timeout=0.3)
def hangs(text: str) -> str:
    "Hangs."
    time.sleep(600)

@plait.tool(timeout=0.3)
async def hangs_async(text: str) -> str:
    "Hangs, on the event loop."
    await asyncio.sleep(600)

@plait.tool
def speaks(text: str) -> str:
    "Prints, and starts a program that prints."
    print("printed by python")
    os.write(1, b"written below python\\n")
    subprocess.run(["echo", "said by a program"], check=True)
    return "spoken"

@plait.tool
def big(text: str) -> str:
    "Returns ten million characters."
    return "0123456789" * 1_000_000

@plait.tool
def raises_big(text: str) -> str:
    "Raises an error of ten million characters."
    raise ValueError("0123456789" * 1_000_000)

@plait.tool
def gives_bytes(text: str) -> bytes:
    "Returns bytes."
    return b"\\x89PNG\\r\\n\\x1a\\n" + bytes(1000)

@plait.tool
def gives_object(text: str):
    "Returns an object."
    return object()

@plait.tool
def gives_nothing(text: str):
    "Returns None."

@plait.tool
def takes_number(number: int) -> int:
    "Doubles."
    return number * 2
"""


CALLS: list[tuple[str, Any, str, str]] = [
    # tool, input, trouble, the observation
    ("raises", "x", "raised", "Error: ValueError: no such city"),
    ("exits", "x", "raised", "Error: SystemExit: 7"),
    ("gives_bytes", "x", "", "1,008 bytes (image/png)"),
    ("exits_async", "x", "raised", "Error: SystemExit: 7"),
    ("interrupts", "x", "raised", "Error: KeyboardInterrupt: not a person"),
    ("cancels_itself", "x", "raised", "Error: CancelledError"),
    ("gives_nothing", "x", "", "(no result)"),
    ("wicked", "x", "raised", "Error: Wicked: (its message can't be shown)"),
    ("hangs", "x", "in_doubt", f"Error: 'hangs' gave no result within 0.3 seconds. {UNKNOWN}"),
    ("hangs_async", "x", "in_doubt", f"Error: 'hangs_async' gave no result within 0.3 seconds. {UNKNOWN}"),
    ("gives_object", "x", "", "object"),
    ("takes_number", "many", "bad_input", "number"),
    ("takes_number", {"number": "many"}, "bad_input", "number"),
    ("takes_number", {"count": 3}, "bad_input", "count"),
    ("takes_numbers", 3, "unknown_tool", "takes_number"),
    ("takes_number", 3, "", "6"),
]


@pytest.fixture
def tools(shell: Shell) -> Shell:
    """A shell with the tools above."""
    (shell.folder / "bad.py").write_text(BAD_TOOLS)
    return shell


def used(shell: Shell, *calls: tuple[str, Any]) -> tuple[list[Any], str]:
    """A run in which the model makes calls and then answers: the observations, and what was said on stderr."""
    model = shell.script([*(action(*call) for call in calls), final("went on")])
    done = shell("run", "q", "--model", model, "--tools", "bad.py")
    assert (done.code, done.out) == (0, "went on\n"), done.err
    assert Journal(shell.env["PLAIT_JOURNAL"]).run("last").status == "answered"
    return observations(shell), done.err


def test_whatever_a_tool_does_is_an_observation_and_the_run_goes_on(tools: Shell) -> None:
    began = time.monotonic()
    # Eight errors in a row are a loop's end: results stand between them.
    found, told = used(tools, *((tool, given) for tool, given, _, _ in CALLS))
    assert time.monotonic() - began < patience(8)  # a tool that hangs does not hold up the end of the program
    assert "defect" not in told
    assert len(found) == len(CALLS)
    for observation, (tool, _, trouble, text) in zip(found, CALLS, strict=True):
        assert observation.trouble == trouble, (tool, observation)
        assert text in observation.text, (tool, observation)
        if trouble in ("raised", "in_doubt"):
            assert observation.text == text
            assert text in told
    assert tools("replay", "last").code == 0


def test_what_tools_print_never_spoils_stdout(tools: Shell) -> None:
    _, told = used(tools, ("speaks", "x"))
    for words in ("the tools are imported", "printed by python", "written below python", "said by a program"):
        assert words in told
    as_object = tools("run", "q", "--model", "scripted:script.json", "--tools", "bad.py", "--json")
    assert as_object.object["answer"] == "went on"


def test_what_tools_print_is_no_matter_where_stderr_is_closed(tools: Shell) -> None:
    model = tools.script([action("speaks", "x"), final("went on")])
    shut = ["sh", "-c", f"'{PLAIT}' run q --model {model} --tools bad.py 2>&-"]
    done = subprocess.run(shut, cwd=tools.folder, env=tools.env, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "went on\n")
    # And what was said went nowhere: not into the file that was opened next.
    assert tools("replay", "last").code == 0


@pytest.mark.parametrize("tool", ["big", "raises_big"])
def test_ten_megabytes_are_shortened_in_the_prompt_and_whole_in_the_record(tools: Shell, tool: str) -> None:
    (observation,), told = used(tools, (tool, "x"))
    assert "0123456789" * 1_000_000 in observation.text
    assert len(told) < 20_000
    requests = [row.body for row in Journal(tools.env["PLAIT_JOURNAL"]).rows("last") if is_request(row.record)]
    assert len(requests[-1] or b"") < 30_000 and b"0123456789" in (requests[-1] or b"")
    with sqlite3.connect(tools.env["PLAIT_JOURNAL"]) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    # Once as text and at most once as its value.
    assert os.path.getsize(tools.env["PLAIT_JOURNAL"]) < 25_000_000
    assert tools("replay", "last").code == 0
