"""What the tests of MCP share: real servers as processes, over stdio and over HTTP."""

from __future__ import annotations

import atexit
import json
import os
import select
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Thread

from fork_server import Child, start_forked

HERE = Path(__file__).parent
LAUNCHER = HERE / "launch_forked"
"""Without an ending: Plait names a server for the first script of its command."""
SHOP = HERE / "mcp_shop.py"
ODD = HERE / "mcp_odd.py"


def command(log: Path, *more: str, script: Path = SHOP) -> str:
    """A server as a command: the shop, or that script."""
    start = [sys.executable, "-S", "-E", str(LAUNCHER), _launching(os.getpid())] if script != ODD else [sys.executable]
    return shlex.join([*start, str(script), str(log), *more])


@cache
def _launching(pid: int) -> str:
    """A socket of this process that starts what `launch_forked` asks for."""
    folder = tempfile.TemporaryDirectory(prefix="mcp-")
    atexit.register(folder.cleanup)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder.name}/socket")
    listener.listen()

    def accept() -> None:
        while True:
            Thread(target=_launch, args=[listener.accept()[0]], daemon=True).start()

    Thread(target=accept, daemon=True).start()
    return f"{folder.name}/socket"


@cache
def python_in_path(pid: int) -> Path:
    """A folder with the program `python`: scripts, code and modules run in forks, the rest in a new interpreter."""
    folder = Path(_launching(pid)).parent
    fork = shlex.join([sys.executable, "-S", "-E", str(LAUNCHER), _launching(pid)])
    real = shlex.quote(sys.executable)
    which = f'case "$1" in -c | -m | *.py) exec {fork} "$@" ;; esac'
    (folder / "python").write_text(f'#!/bin/sh\n{which}\nexec {real} "$@"\n')
    (folder / "python").chmod(0o755)
    return folder


def _launch(connection: socket.socket) -> None:
    """Fork the server, and tell its exit code. The server is killed if its launcher is."""
    with connection:
        size, streams, _, _ = socket.recv_fds(connection, 4, 3)
        order = json.loads(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        stdin, stdout, stderr = streams
        child = start_forked(**order, stdin=stdin, stdout=stdout, stderr=stderr)
        for stream in streams:
            os.close(stream)
        with suppress(OSError, EOFError):  # the launcher or the fork server has ended
            while child.poll() is None:
                if select.select([connection], [], [], 0.02)[0]:
                    child.kill()
                    child.wait()
            connection.sendall(child.wait().to_bytes(4, "big", signed=True))


def trusted(command: str) -> str:
    """The word for a server whose marks are believed."""
    return "mcp:" + json.dumps({"command": shlex.split(command), "trust": True})


def lines(log: Path) -> list[str]:
    """What the server saw."""
    return log.read_text().splitlines() if log.exists() else []


def pids(log: Path) -> list[int]:
    """The processes that the server began as, in order."""
    return [int(line.split()[1]) for line in lines(log) if line.startswith("began ")]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(true: object, seconds: float = 60) -> None:
    """Wait for something to become true."""
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds:g} seconds"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def over_http(log: Path, port: int = 0) -> Iterator[tuple[str, Child]]:
    """The shop behind an address; its process."""
    port = port or free_port()
    with open(os.devnull, "r+b") as nothing:
        stream = nothing.fileno()
        process = start_forked([SHOP, log, str(port)], stdin=stream, stdout=stream, stderr=stream)
    try:
        until(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()
