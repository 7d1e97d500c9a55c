"""What the tests of MCP share: real servers as processes, over stdio and over HTTP."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
SHOP = HERE / "mcp_shop.py"
ODD = HERE / "mcp_odd.py"


def command(log: Path, *more: str, script: Path = SHOP) -> str:
    """The shop, as a command."""
    return shlex.join([sys.executable, str(script), str(log), *more])


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
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


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
def over_http(log: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The shop behind an address; its process."""
    port = port or free_port()
    process = subprocess.Popen(
        [sys.executable, str(SHOP), str(log), str(port)], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        until(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
