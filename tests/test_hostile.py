"""Programs that want out, or to run for ever, in each sandbox: none does, and the session goes on or says it is lost.

An overrun is measured as wall time; where it is too long the program is run again, up to three times, since a loaded
machine may be late. One that outlives its limit is late each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conftest import CAMPAIGN, some_of
from hostile_programs import MAY_END_WELL, MUST_END, PROGRAMS, SPOILING
from patience import patience
from plait.core.artifacts import ArtifactHandle
from plait.core.code import CodeLimits
from plait.sandbox import OutCall, Result, SandboxSession, SandboxTurn, Settings
from sandbox_support import BACKENDS, NOW, opened

SECRET = "the-canary-sings-4711"
VAR = "PLAIT_TEST_CANARY"
LIMITS = CodeLimits(seconds=0.3, memory_mb=128, recursion=200, output_chars=5000, tool_calls=50)
LATE = 1.0
MINE = ArtifactHandle("thing-1", "<Thing>")


@dataclass
class Trap:
    """What a program must not get at, and whether it did."""

    folder: Path
    port: int
    connections: list[Any] = field(default_factory=list)

    @property
    def secret(self) -> Path:
        return self.folder / "secret.txt"

    def aim(self, program: str) -> str:
        for word, value in (
            ("@FILE@", str(self.secret)),
            ("@DIR@", str(self.folder / "open")),
            ("@PORT@", str(self.port)),
            ("@VAR@", VAR),
        ):
            program = program.replace(word, value)
        return program

    def trouble(self) -> str:
        """What a program got at, "" for nothing."""
        if self.secret.read_text() != SECRET or sorted(os.listdir(self.folder)) != ["open", "secret.txt"]:
            return "it changed files"
        if os.listdir(self.folder / "open") or any(Path(name).exists() for name in ("escape", "link", "hard")):
            return "it wrote a file"
        return f"it connected: {self.connections}" if self.connections else ""


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trap]:
    folder = tmp_path_factory.mktemp("trap")
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "secret.txt").write_text(SECRET)
    os.environ[VAR] = SECRET
    if sys.platform == "linux":  # so that a process whose parent is gone is one of ours
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        port = server.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        datagrams.settimeout(0.05)
        server.settimeout(0.05)
        trap, over = Trap(folder, port), threading.Event()

        def listen() -> None:
            while not over.is_set():
                for take in (server.accept, lambda: datagrams.recvfrom(100)):
                    with contextlib.suppress(TimeoutError):
                        trap.connections.append(take())

        listener = threading.Thread(target=listen)
        listener.start()
        yield trap
        over.set()
        listener.join()
    del os.environ[VAR]


def descendants() -> set[int]:
    """Processes that come from this one and are not dead, workers of Monty left out: its pool keeps them."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                name, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
            except OSError:
                continue
            state, parent = rest.split()[:2]
            if state != "Z" and not name.endswith("(monty"):
                parents[int(entry)] = int(parent)
    found = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return found - {os.getpid()}


@dataclass
class Outcome:
    """What came of a program."""

    turns: list[SandboxTurn] = field(default_factory=list)
    longest: float = 0.0
    stopped: bool = False
    after_stop: bool = False


async def perform(session: SandboxSession, program: str) -> Outcome:
    """Run a program, its calls answered as a runtime would; `stop` never is."""
    told = Outcome()
    turn = await timed(told, session.run(program, NOW))
    while turn.calls and len(told.turns) < 200:
        names = [call.name for call in turn.calls]
        told.after_stop = told.after_stop or any("after stop" in call.args for call in turn.calls)
        if "stop" in names:
            told.stopped = True
            break
        turn = await timed(told, session.go_on([answered(call) for call in turn.calls]))
    return told


async def timed(told: Outcome, step: Any) -> SandboxTurn:
    began = time.monotonic()
    turn: SandboxTurn = await step
    told.longest = max(told.longest, time.monotonic() - began)
    told.turns.append(turn)
    return turn


def answered(call: OutCall) -> Result:
    if call.name == "tool":
        return Result(None)
    if call.name == "thing":
        return Result(MINE)
    return Result(error="NameError", message=f"name '{call.name}' is not defined")


def handles(value: Any) -> Iterator[ArtifactHandle]:
    """All handles in what came out."""
    if isinstance(value, ArtifactHandle):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from handles(list(pair))
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from handles(one)


SETTINGS = Settings(frozenset({"tool", "thing", "stop"}), LIMITS)


@pytest.mark.parametrize(("kind", "name"), some_of(product(PROGRAMS, BACKENDS), 3))
async def test_none_gets_out_and_none_outlives_its_limit(name: str, kind: str, trap: Trap) -> None:
    """All programs of a kind, one after the other in one session: what one leaves behind, the next ones find."""
    await (await opened(name, SETTINGS)).close()  # what a sandbox keeps for all its sessions is there now
    before = descendants()
    session = await opened(name, SETTINGS)
    wrong: list[str] = []
    # The tests run some programs of each kind, others in each sandbox; the campaign runs all of them.
    programs = PROGRAMS[kind] if CAMPAIGN else PROGRAMS[kind][BACKENDS.index(name) :: 6]
    for number, program in enumerate(programs, 1):
        code = trap.aim(program)
        for _attempt in range(3):
            told = await perform(session, code)
            if told.longest < LIMITS.seconds + LATE:
                break
        problem = trouble(kind, program, told) or trap.trouble() or await stuck(session, program)
        if problem:
            wrong.append(f"{kind} {number}: {problem}")
        if problem or any(word in program for word in SPOILING):
            await session.close()
            session = await opened(name, SETTINGS)
    await session.close()
    deadline = time.monotonic() + patience(5)
    while descendants() - before and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert descendants() <= before
    assert not wrong, "\n".join(wrong)


def trouble(kind: str, program: str, told: Outcome) -> str:
    """What is wrong with what came of a program, "" for nothing."""
    if told.longest >= LIMITS.seconds + LATE:
        return f"ran {told.longest:.2f} s with a limit of {LIMITS.seconds:g} s, three times"
    if SECRET in repr(told.turns):
        return f"it told the secret: {told.turns}"
    if told.after_stop:
        return "it went on after stop()"
    given = {one for turn in told.turns for call in turn.calls for one in handles([call.args, call.kwargs])}
    if not given <= {MINE}:
        return f"it made handles of its own: {given}"
    if any(len(turn.output) > LIMITS.output_chars + 200 for turn in told.turns):
        return "its output was not cut"
    if kind in MUST_END and not program.startswith(MAY_END_WELL) and told.turns[-1].error is None:
        return f"it ended well: {told.turns[-1]}"
    return ""


async def stuck(session: SandboxSession, program: str) -> str:
    """Says so when the next piece does not run. Where names were lost, the session said so and has them anew."""
    turn = await session.run("print(1 + 1)", NOW)
    if turn.lost:
        turn = await session.run("print(1 + 1)", NOW)
    # Code may put another thing in the place of print or of what it prints to: then this is its own affair.
    right = turn.output == "2\n" or any(word in program for word in SPOILING)
    return "" if right else f"the session does not go on: {turn}"


def test_there_are_enough_programs_and_kinds() -> None:
    programs = [program for kind in PROGRAMS.values() for program in kind]
    assert len(PROGRAMS) >= 25
    assert len(programs) >= 100
    assert len(set(programs)) == len(programs)
