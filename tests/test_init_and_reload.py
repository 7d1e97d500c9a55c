"""`plait init` writes a project that works, and `plait serve --reload` starts again when its files change."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli_support import Shell, read_until, until
from fork_server import run_forked
from patience import patience
from plait.journal.owner import _start_of
from window_server import ask

ROOT = Path(__file__).parents[1]
REPLIES = [
    {"calls": [{"name": "convert_length", "input": {"value": 1, "unit": "mile", "to": "m"}}]},
    {"answer": "1609 m"},
]


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.trusts_folder = False  # what `plait init` trusts is enough
    shell.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    return shell


def test_the_project_runs_its_test_passes_and_nothing_is_overwritten(plait: Shell) -> None:
    made = plait("init", "shop", "--model", "openai:gpt-5")
    assert made.code == 0 and "OPENAI_API_KEY is not set" in made.out and "cd shop" in made.out
    folder = plait.folder / "shop"
    assert sorted(each.name for each in folder.iterdir()) == [".gitignore", "agent.py", "plait.toml", "test_agent.py"]
    assert 'model="openai:gpt-5"' in (folder / "agent.py").read_text()
    again = plait("init", "shop")
    assert again.code == 2 and "already has agent.py, test_agent.py, plait.toml, .gitignore" in again.err

    unknown = plait("init", "other", "--model", "no-such:model")
    assert unknown.code == 2 and "no-such" in unknown.err and not (plait.folder / "other").exists()

    plait.folder = folder
    model = plait.script(REPLIES)
    assert plait("run", "-a", "assistant", "How long is a mile?", "--model", model, "--quiet").out == "1609 m\n"
    talk = plait("chat", "-a", "assistant", "--model", model, given="How long is a mile?\n")
    assert (talk.code, talk.out) == (0, "1609 m\n")
    agent = folder / "agent.py"
    agent.write_text(agent.read_text().replace('"openai:gpt-5"', repr(model)))
    assert plait("run", "How long is a mile?", "--quiet").out == "1609 m\n"  # the only agent needs no name
    assert plait("chat", given="How long is a mile?\n").out == "1609 m\n"
    unlike = plait("run", "How long is a mile?", "--model", model)  # another model is another agent, without its tools
    assert unlike.code == 0 and "1609" not in unlike.out
    env = {**plait.env, "PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["pytest", "-q", "-p", "plait.testing.pytest_plugin", "-p", "no:cacheprovider"]
    programs = Path(sys.executable).parent
    tested = run_forked([str(programs / words[0]), *words[1:]], cwd=folder, env=env)
    assert tested.returncode == 0 and "1 passed" in tested.stdout, tested.stdout + tested.stderr


def test_one_file_that_is_there_is_enough_to_write_nothing(plait: Shell) -> None:
    (plait.folder / ".gitignore").symlink_to("elsewhere")
    refused = plait("init")
    assert refused.code == 2 and ".gitignore" in refused.err
    assert not (plait.folder / "agent.py").exists() and not (plait.folder / "elsewhere").exists()


SLOW = """
import asyncio, pathlib, plait

@plait.tool(read_only=True)
async def nap() -> str:
    "Nap."
    pathlib.Path("naps.txt").open("a").write("nap\\n")
    await asyncio.sleep(SECONDS)
    return "slept"

agent = plait.Agent("tool_calling", model="scripted:replies.json", tools=[nap], name="sleeper")
"""


def test_a_change_starts_the_server_again_and_goes_on_with_its_runs(plait: Shell) -> None:
    agent, naps = plait.folder / "agent.py", plait.folder / "naps.txt"
    plait.script([{"calls": [{"name": "nap", "input": {}}]}, {"answer": "rested"}], "replies.json")
    agent.write_text(SLOW.replace("SECONDS", "600"))
    (plait.folder / "plait.toml").write_text("[serve]\ngrace = 0.1\n")
    plait.trusts_folder = True
    process = plait.start("serve", "--reload", "--port", "0", "-a", "agent.py:agent")
    try:
        port = int(re.findall(r"Listening on http://[^:]+:(\d+)", read_until(process, "Listening on"))[0])
        question = {"model": "sleeper", "messages": [{"role": "user", "content": "Rest."}]}
        with ThreadPoolExecutor(1) as threads:
            refused = threads.submit(ask, port, "POST", "/v1/chat/completions", question)
            until(naps)
            agent.write_text(SLOW.replace("SECONDS", "0"))
            read_until(process, "Changed: agent.py. The server starts again.")
            read_until(process, "1 run of an earlier server did not end. Resuming now.")
            assert "the server stopped" in refused.result(60)[2]["error"]["message"]
        wait_until(lambda: "answered" in plait("runs").out)
        assert naps.read_text() == "nap\n" * 2, "the call was read only, so the resumed run made it again"

        (plait.folder / "helper.py").write_text("def (")
        agent.write_text("import helper\n")
        said = read_until(process, "ended with code 2. It starts again when a file changes.")
        assert "helper.py, line 1: SyntaxError" in said
        (plait.folder / "notes.json").write_text("{}")  # what tools write changes nothing
        agent.write_text(SLOW.replace("SECONDS", "1"))
        pid = server_in(read_until(process, "Listening on"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0 and _start_of(pid) is None
    finally:
        process.kill()
        process.communicate(timeout=60)


WATCHED = """
import os, pathlib, time
from plait.cli.reload import fork_at_changes
fork_at_changes([pathlib.Path()])
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_watching_process_ends_both(number: signal.Signals, tmp_path: Path) -> None:
    words = [sys.executable, "-c", WATCHED]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(number)
    process.wait(60)
    wait_until(lambda: _start_of(pid) is None)
    process.stdout.close()


def server_in(said: str) -> int:
    """The number of the process that listens."""
    return int(re.findall(r"\(process (\d+)\)", said)[-1])


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + patience(30)
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)
