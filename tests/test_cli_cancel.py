"""Ctrl-C and SIGTERM at any time: one clear line, exit code 130, the record says cancelled, and the run goes on."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_support import Ended, Shell, action, ended, final, has_open, interrupt, read_until, until

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def silence() -> Iterator[tuple[str, threading.Event]]:
    """An endpoint that takes a request and never answers: its address, and an event for "it was asked"."""
    asked = threading.Event()
    held: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            while True:
                connection, _ = server.accept()
                held.append(connection)
                connection.recv(1024)
                asked.set()
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/v1", asked
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    for each in held:
        each.close()
    thread.join(2)


def cancelled(done: Ended, plait: Shell) -> str:
    """Check that a run was cancelled in order; returns its id."""
    assert (done.code, done.out) == (130, "")
    lines = done.err.splitlines()
    assert lines[-2].startswith("cancelled · ")
    run = lines[-2].rpartition("run ")[2]
    assert lines[-1] == f"To continue, run: plait resume {run}"
    assert "cancelled" in plait("runs", "--limit", "1").out
    return run


@pytest.mark.parametrize("number", SIGNALS)
def test_while_a_tool_hangs(plait: Shell, number: int) -> None:
    model = plait.script([action("hang", 120), final("ok")])
    process = plait.start("run", "q", "--model", model, "--tools", "tools.py")
    until(plait.folder / "begun.txt")
    run = cancelled(interrupt(process, number), plait)
    # The call may have happened, and its tool must not be called twice: it is in doubt, and said so.
    resumed = plait("resume", run)
    assert (resumed.code, resumed.out) == (0, "ok\n")
    assert (plait.folder / "begun.txt").read_text() == "begun\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_while_an_endpoint_hangs(plait: Shell, silence: tuple[str, threading.Event], number: int) -> None:
    address, asked = silence
    env = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-secret-of-the-test"}
    process = plait.start("run", "q", "--model", "openai:m", env=env)
    assert asked.wait(20)
    done = interrupt(process, number)
    cancelled(done, plait)
    assert "sk-secret" not in done.err


def test_with_json_the_object_says_cancelled(plait: Shell) -> None:
    model = plait.script([action("hang", 120), final("ok")])
    process = plait.start("run", "q", "--model", model, "--tools", "tools.py", "--json")
    until(plait.folder / "begun.txt")
    done = interrupt(process)
    assert done.code == 130
    assert done.object["status"] == "cancelled"


@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_users_tools_are_imported(plait: Shell, number: int) -> None:
    (plait.folder / "slow.py").write_text(
        "import sys, time\nprint('here', file=sys.stderr, flush=True)\ntime.sleep(60)"
    )
    process = plait.start("run", "q", "--model", plait.script([final("ok")]), "--tools", "slow.py")
    read_until(process, "here")
    done = interrupt(process, number)
    assert (done.code, done.out) == (130, "")
    assert done.err == "Cancelled before the run began.\n"


@pytest.mark.parametrize("module", ["click.core", "plait.core", "msgspec", "asyncio.events", "plait.agent"])
def test_while_plait_itself_is_imported(plait: Shell, module: str) -> None:
    program = [sys.executable, "-X", "importtime", "-c", "from plait.cli.main import main; main()"]
    model = plait.script([{"error": "Unreachable", "message": "down"}] * 4)
    process = plait.start("run", "q", "--model", model, program=program)
    read_until(process, f" {module}\n" if module != "plait.agent" else "plait.agent")
    done = interrupt(process)
    assert (done.code, done.out) == (130, "")
    assert [line for line in done.err.splitlines() if "ancelled" in line]


def test_while_the_journal_is_locked_by_another(plait: Shell) -> None:
    import sqlite3

    model = plait.script([final("ok")])
    assert plait("run", "q", "--model", model).code == 0
    with sqlite3.connect(plait.folder / "journal.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        process = plait.start("run", "q", "--model", model)
        while not has_open(process.pid, f"{plait.folder / 'journal.db'}-wal"):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.3)  # it has opened the journal, and waits for the lock
        assert process.poll() is None
        done = interrupt(process)
        other.execute("ROLLBACK")
    other.close()
    assert (done.code, done.out) == (130, "")
    assert done.err == "Cancelled before the run began.\n"


def test_a_second_one_quits_at_once_whatever_a_tool_does(plait: Shell) -> None:
    model = plait.script([action("stubborn"), final("ok")])
    process = plait.start("run", "q", "--model", model, "--tools", "tools.py")
    read_until(process, "Action: stubborn")
    process.send_signal(signal.SIGINT)
    read_until(process, "Ctrl-C again quits at once")
    done = interrupt(process)
    assert done.code == 130
    assert "To continue, run: plait resume " in done.err
    # Nobody was left to write the end: the run stands as interrupted and goes on all the same.
    assert "interrupted" in plait("runs").out
    assert plait("resume", "last").out == "ok\n"


def test_while_it_waits_to_try_again(plait: Shell) -> None:
    model = plait.script([{"error": "Unreachable", "message": "The endpoint is down."}] * 9 + [final("ok")])
    process = plait.start("run", "q", "--model", model)
    read_until(process, "Trying again")
    cancelled(interrupt(process), plait)


def test_while_the_question_is_read_from_a_terminal_nobody_types_at(plait: Shell) -> None:
    import os
    import subprocess

    reading, writing = os.pipe()
    process = plait.start("run", "-", "--model", plait.script([final("ok")]), stdin=reading)
    time.sleep(0.7)
    done = interrupt(process)
    os.close(reading)
    os.close(writing)
    assert (done.code, done.out, done.err) == (130, "", "Cancelled.\n")
    assert isinstance(process, subprocess.Popen)


def test_a_killed_run_goes_on_and_what_may_have_happened_is_not_repeated(plait: Shell) -> None:
    model = plait.script([action("send", "hello"), action("hang", 120), final("ok")])
    process = plait.start("run", "q", "--model", model, "--tools", "tools.py")
    until(plait.folder / "begun.txt")
    process.kill()
    ended(process)
    assert "interrupted" in plait("runs").out
    resumed = plait("resume", "last")
    assert (resumed.code, resumed.out) == (0, "ok\n")
    assert "not repeated" in resumed.err
    assert (plait.folder / "sent.txt").read_text() == "hello\n"
    assert (plait.folder / "begun.txt").read_text() == "begun\n"


def test_a_call_in_doubt_is_repeated_when_the_person_says_so(plait: Shell) -> None:
    model = plait.script([action("hang", 1), final("ok")])
    process = plait.start("run", "q", "--model", model, "--tools", "tools.py")
    until(plait.folder / "begun.txt")
    process.kill()
    ended(process)
    assert plait("resume", "last", "--on-interrupted-call", "repeat").out == "ok\n"
    assert (plait.folder / "begun.txt").read_text() == "begun\nbegun\n"


@pytest.mark.parametrize(
    "error",
    [
        "class Dropped:\n    def __del__(self): raise KeyboardInterrupt\ndef swallow(): Dropped()",
        "class Wrapping:\n    def __set_name__(self, *_): raise KeyboardInterrupt\n"
        "def swallow(): type('Made', (), {'field': Wrapping()})",
    ],
    ids=["dropped in a callback", "wrapped while a class is created"],
)
def test_an_interrupt_that_python_swallows_still_cancels(plait: Shell, error: str) -> None:
    """Ctrl-C during an import can end up in a callback, where Python drops it, or become a RuntimeError."""
    code = f"{error}\nfrom plait.cli import commands, main\ncommands.config.read_folder = swallow\nmain.main()"
    program = [sys.executable, "-c", code]
    done = plait("run", "q", "--model", plait.script([final("ok")]), program=program)
    assert (done.code, done.out, done.err) == (130, "", "Cancelled.\n")
