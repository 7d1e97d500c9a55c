"""What is the sandbox monty's own: going back to what was saved, words for Python it lacks, its workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from conftest import CAMPAIGN
from patience import patience
from plait.core.artifacts import ArtifactHandle
from plait.core.code import CodeLimits
from plait.sandbox import OutCall, Result, SandboxSession, Settings, monty_worker
from plait.sandbox.monty import MontySession
from plait.sandbox.monty_piece import adapt_code
from sandbox_support import NOW, opened, whole

Open = Callable[..., Awaitable[MontySession]]
IMAGE = ArtifactHandle("image-1", "<Image 640x480 JPEG>")


@pytest_asyncio.fixture
async def open_() -> AsyncIterator[Open]:
    sessions: list[SandboxSession] = []

    async def make(functions: frozenset[str] = frozenset({"tool", "get"}), **limits: Any) -> MontySession:
        session = await opened("monty", Settings(functions, CodeLimits(**limits)))
        sessions.append(session)
        assert isinstance(session, MontySession)
        return session

    yield make
    for session in sessions:
        await session.close()


# going back


async def test_a_piece_that_ran_too_long_is_undone_and_says_so(open_: Open) -> None:
    session = await open_(seconds=0.2)
    await whole(session, "a = 1\ndef f(n):\n    return n / 0")
    told = await whole(session, "a = 2\nb = 3\nwhile True:\n    pass")
    assert told.error is not None and not told.lost
    assert "as they were before" in told.error.message
    assert (await whole(session, "print(a)")).output == "1\n"
    assert (await whole(session, "print(b)")).error is not None
    error = (await whole(session, "x = 1\nf(x)")).error
    assert error is not None and (error.line, error.source) == (2, "f(x)")


async def test_memory_is_free_again_after_its_limit(open_: Open) -> None:
    session = await open_(memory_mb=48)
    await whole(session, "kept = 'k'\nx = []")
    told = await whole(session, "while True:\n    x.append('y' * 1000000 + str(len(x)))")
    assert told.error is not None and told.error.limit == "memory" and not told.lost
    assert (await whole(session, "print(kept, len(x))\ny = 'z' * 20000000")).output == "k 0\n"


async def test_a_state_too_big_to_be_saved_is_lost_at_a_time_limit(open_: Open, monkeypatch: Any) -> None:
    monkeypatch.setattr(monty_worker, "SAVED_BYTES", 100_000)
    session = await open_(seconds=0.2)
    await whole(session, "big = 'x' * 200000")
    told = await whole(session, "while True:\n    pass")
    assert told.error is not None and told.lost
    assert "as they were" not in told.error.message
    assert (await whole(session, "print(math.pi > 3)")).output == "True\n"
    assert (await whole(session, "print(big)")).error is not None


@pytest.mark.parametrize("when", ["idle", "waiting", "running"])
async def test_a_worker_that_is_killed_is_replaced(open_: Open, when: str) -> None:
    session = await open_()
    await whole(session, "a = 1\ni = get()", {"get": lambda: IMAGE})
    pid = session.worker.pid
    assert pid is not None
    if when == "waiting":
        await session.run("tool()", NOW)
        os.kill(pid, signal.SIGKILL)
        turn = await session.go_on([Result(1)])
    elif when == "running":
        running = asyncio.ensure_future(session.run("while True:\n    pass", NOW))
        await asyncio.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        turn = await running
    else:
        os.kill(pid, signal.SIGKILL)
        turn = await session.run("print('never')", NOW)
    assert turn.error is not None and turn.error.type == "RuntimeError" and "process ended" in turn.error.message
    assert turn.output == ""
    assert (await session.run("tool(i, a)", NOW)).calls == (OutCall("tool", (IMAGE, 1)),)


async def test_a_cancelled_piece_is_undone(open_: Open) -> None:
    session = await open_()
    await whole(session, "a = 1")
    running = asyncio.ensure_future(session.run("a = 2\nwhile True:\n    pass", NOW))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await whole(session, "print(a)")).output == "1\n"


# awaiting


async def test_a_call_that_an_async_function_returns_is_awaited_with_it(open_: Open) -> None:
    session = await open_()
    code = "async def one(n):\n    return tool(n)\nprint(await asyncio.gather(one(1), one(2)), await one(3))"
    told = await whole(session, code, {"tool": lambda n: n})
    assert told.output == "[1, 2] 3\n"
    assert [len(calls) for calls in told.calls] == [2, 1]


async def test_what_a_function_of_an_earlier_piece_returns_may_be_gathered(open_: Open) -> None:
    session = await open_()
    await whole(session, "def one(n):\n    return tool(n)")
    told = await whole(session, "print(await asyncio.gather(one(1), one(2)))\n", {"tool": lambda n: n})
    assert (told.output, [len(calls) for calls in told.calls]) == ("[1, 2]\n", [2])
    assert (await whole(session, "print(one(5) + 1)", {"tool": lambda n: n})).output == "6\n"


async def test_a_promise_of_an_earlier_piece_is_an_error_that_can_be_read(open_: Open) -> None:
    session = await open_()
    await whole(session, "t = tool(1)\nif False:\n    await t")
    told = await whole(session, "print(await t)", {"tool": lambda n: n})
    assert told.error is not None and told.calls == []
    assert "make the call again" in told.error.message and told.error.line == 1
    assert (await whole(session, "print(1 + 1)")).output == "2\n"


def test_only_a_tool_that_an_async_function_returns_gets_an_await() -> None:
    code = "def f():\n    return tool(1)\nasync def g():\n    def h(): return tool(2)\n    if h(): return  tool(ä)\n"
    code += "    return len([])"
    assert adapt_code(code, frozenset({"tool"})) == code.replace("return  tool(ä)", "return  await tool(ä)")
    own = "def tool(n):\n    return n\nasync def g():\n    return tool(1)"
    assert adapt_code(own, frozenset({"tool"})) == own
    assert adapt_code("async def g(:\n return", frozenset({"tool"})) == "async def g(:\n return"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(list(map(tool, [1, 2])), sorted(map(tool, (4, 3),)))", "[10, 20] [30, 40]\n"),
        ("print(list(map(tool, [\n    1,\n    2,\n])))", "[10, 20]\n"),
        ("print(list(map(str, [1, 2])), list(map(max, [1, 5], [3, 4])))", "['1', '2'] [3, 5]\n"),
        ("f = tool\nprint([f(x) for x in (1, 2)])", "[10, 20]\n"),
    ],
)
async def test_a_tool_may_be_mapped(open_: Open, code: str, output: str) -> None:
    session = await open_()
    assert (await whole(session, code, {"tool": lambda n: n * 10})).output == output


async def test_a_mapped_tool_may_be_gathered(open_: Open) -> None:
    session = await open_()
    told = await whole(session, "print(await asyncio.gather(*map(tool, [1, 2, 3])))", {"tool": lambda n: n})
    assert (told.output, [len(calls) for calls in told.calls]) == ("[1, 2, 3]\n", [3])


# words


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("class E(Exception):\n    pass", "does not have class inheritance"),
        ("def g():\n    yield 1", "Build a list and return it"),
        ("x = 1\ndel x", "does not have the 'del' statement"),
        ("sorted([1, 2], key=tool)", "in a for loop or a comprehension"),
        ("import statistics", "No module named 'statistics'"),
        ("vars()", "does not have vars()"),
        ("def f(x):\n    return x\ny = f(tool(1))\nawait y", "awaited where the tool is called"),
    ],
)
async def test_python_that_it_does_not_have_is_said(open_: Open, code: str, said: str) -> None:
    session = await open_()
    told = await whole(session, code, {"tool": lambda n: n})
    assert told.error is not None
    assert said in told.error.message
    assert told.error.line > 0


async def test_a_tool_may_have_the_name_of_a_builtin(open_: Open) -> None:
    session = await open_(frozenset({"sum", "input", "open"}))
    tools = dict.fromkeys(["sum", "input", "open"], lambda *given: len(given))
    told = await whole(session, "print(sum(1, 2), input('?'), open('x'), max(1, 2))", tools)
    assert told.output == "2 1 1 2\n", told.error


async def test_a_range_is_given_to_a_tool_as_its_numbers(open_: Open) -> None:
    session = await open_()
    assert (await session.run("tool(range(3), '<b>', '<p>x</p>')", NOW)).calls[0].args == ([0, 1, 2], "<b>", "<p>x</p>")


async def test_what_only_looks_like_a_handle_is_none(open_: Open) -> None:
    session = await open_()
    await session.run("i = get()\ntool(str(i))\ntool({'$thing': 'image-1', 'is': 'x'})", NOW)
    turn = await session.go_on([Result(IMAGE)])
    assert turn.calls[0].args == (IMAGE.about,)
    turn = await session.go_on([Result(None)])
    assert turn.error is not None and turn.error.type == "TypeError" and "give the object itself" in turn.error.message


# the pool

EXIT = """
import asyncio, os, signal, sys
from plait.sandbox import Settings, sandbox

async def main():
    session = await sandbox("monty").open(Settings())
    print(session.worker.pid, flush=True)
    if sys.argv[1] == "waiting":
        await session.run("tool()", 0.0)
    if sys.argv[1] == "running":
        asyncio.ensure_future(session.run("while True: pass", 0.0))
        await asyncio.sleep(0.2)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["idle", "waiting", "running", "killed"])
def test_no_worker_is_left_when_the_program_ends(how: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", EXIT, how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == (-signal.SIGKILL if how == "killed" else 0), ended.stderr
    assert "Fatal" not in ended.stderr and "ResourceWarning" not in ended.stderr
    pid = int(ended.stdout)
    assert _gone(pid)


def test_a_program_that_used_it_ends_well_each_time() -> None:
    """The package's threads still let go of Python objects at the end; one in twelve programs was aborted for it."""
    for _ in range(12 if CAMPAIGN else 4):
        ended = subprocess.run([sys.executable, "-c", EXIT, "idle"], capture_output=True, timeout=60)
        assert ended.returncode == 0, ended.stderr


def _gone(pid: int) -> bool:
    import time

    deadline = time.monotonic() + patience(20)
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


FULL = """
import asyncio
from plait.sandbox import Settings, monty_worker, sandbox
monty_worker.MAX_PROCESSES, monty_worker.WAIT_SECONDS = 2, 0.2

async def main():
    sessions = [await sandbox("monty").open(Settings()) for _ in range(2)]
    try:
        await sandbox("monty").open(Settings())
    except monty_worker.NoWorker as full:
        print(full)
    await sessions[0].close()
    third = await sandbox("monty").open(Settings())
    print((await third.run("print(1 + 1)", 0.0)).output)

asyncio.run(main())
"""


def test_when_all_workers_are_taken_it_says_so() -> None:
    ended = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "All 2 processes of the sandbox are taken" in ended.stdout and ended.stdout.endswith("2\n\n")


UNSTARTED = """
import asyncio, os, resource
import pydantic_monty
from plait.sandbox import Settings, monty_worker, sandbox

async def main():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, most[1]))
    try:
        await sandbox("monty").open(Settings())
    except monty_worker.NoWorker as none:
        print(none)
    resource.setrlimit(resource.RLIMIT_NOFILE, most)
    print((await (await sandbox("monty").open(Settings())).run("print(1 + 1)", 0.0)).output)

asyncio.run(main())
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="it takes Linux to know how many files are open")
def test_a_worker_that_can_not_be_started_is_said_and_the_next_is_tried_anew() -> None:
    ended = subprocess.run([sys.executable, "-c", UNSTARTED], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "could not be started" in ended.stdout and ended.stdout.endswith("2\n\n")
    assert "Traceback" not in ended.stderr


async def test_half_a_character_can_get_in_as_another(open_: Open) -> None:
    session = await open_(frozenset({"f"}))
    for result, seen in (
        (Result("\ud800"), "?"),
        (Result(["\ud800"]), "['?']"),
        (Result(ArtifactHandle("image-1", "<\ud800>")), "<?>"),
    ):
        await session.run("print(f())", NOW)
        assert (await session.go_on([result])).output == f"{seen}\n"
    await session.run("f()", NOW)
    error = (await session.go_on([Result(error="ValueError", message="\ud800")])).error
    assert error is not None and error.message == "?"


def test_without_the_package_it_names_the_extra() -> None:
    code = (
        "import sys, asyncio\nsys.modules['pydantic_monty'] = None\nfrom plait.sandbox import Settings, sandbox\n"
        "asyncio.run(sandbox('monty').open(Settings()))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ConfigError" in ended.stderr and "[code]" in ended.stderr


def test_a_package_without_its_program_is_an_error_before_the_run() -> None:
    code = """
import plait, pydantic_monty

def broken(**options):
    raise FileNotFoundError("could not locate the monty binary")

pydantic_monty.AsyncMonty = broken
plait.Agent("codeact", model=plait.Scripted(["x"]), sandbox="monty", journal=False).run("x")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    last = ended.stderr.strip().split("\n")[-1]
    assert "ConfigError: The sandbox 'monty' does not start: could not locate the monty binary." in last, ended.stderr
    assert "[code]" in last


# what it would do otherwise than Python, without a word

OTHERWISE = {
    "any": "any(tool(r) for r in range(1, 6))",
    "next": "next(r for r in range(9) if tool(r))",
    "sum": "sum(tool(r) for r in [1, 2])",
    "never used": "lazy = (tool(r) for r in [1])",
    "through a function": "def f(r):\n    return tool(r)\nprint(any(f(r) for r in [1]))",
    "through a lambda": "g = lambda r: tool(r)\nall(g(r) for r in [1])",
    "through a method": "class A:\n    def f(self):\n        return tool(1)\na = A()\nany(a.f() for _ in [1])",
    "an unknown name": "any(tol(r) for r in [1])",
    "map": "next(iter(map(tool, [1, 2])))",
    "a map in a map": "list(map(tool, map(tool, [1, 2])))",
    "in the second loop": "any(x for r in [1] for x in tool(r))",
    "not equal": "class A:\n    def __ne__(self, other):\n        return 1",
    "truth": "class A:\n    def __bool__(self):\n        return False",
    "length": "class A:\n    def __len__(self):\n        return 0",
    "in place": "class A:\n    def __iadd__(self, other):\n        return self",
    "set": "class A:\n    def __setattr__(self, name, value):\n        pass",
}


@pytest.mark.parametrize("code", OTHERWISE.values(), ids=OTHERWISE.keys())
async def test_what_would_run_otherwise_than_in_python_is_refused_before_it_runs(open_: Open, code: str) -> None:
    session = await open_()
    told = await whole(session, "print('runs')\n" + code, {"tool": lambda n: n})
    assert told.calls == [] and told.output == "" and told.error is not None
    assert told.error.type == "NotImplementedError" and told.error.message.startswith("This Python ")
    assert told.error.line > 1 and told.error.source


ALIKE = {
    "list(tool(r) for r in [1, 2])": 2,
    "sorted(tool(r) for r in [2, 1])": 2,
    "', '.join(str(tool(r)) for r in [2, 1])": 2,
    "[tool(r) for r in [1, 2]]": 2,
    "sum(r * 2 for r in tool([1, 2]))": 1,
    "def f(n):\n    return str(n).upper()\nprint(any(f(r) for r in [1]))": 0,
    "max(len(w.strip()) for w in ['a'])": 0,
}


@pytest.mark.parametrize(("code", "calls"), ALIKE.items())
async def test_what_calls_as_python_does_is_run(open_: Open, code: str, calls: int) -> None:
    told = await whole(await open_(), code, {"tool": lambda n: n})
    assert told.error is None and len(told.calls) == calls


ORPHAN = """
import asyncio, os, signal, sys
from plait.core.code import CodeLimits
from plait.sandbox import Settings, sandbox

async def main():
    session = await sandbox("monty").open(Settings(frozenset(), CodeLimits(seconds=1.0)))
    print(session.worker.pid, flush=True)
    asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGKILL)
    await session.run(sys.argv[1], 0.0)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it there")
async def test_a_worker_whose_host_is_killed_has_a_limit_of_processor_time(open_: Open) -> None:
    import resource

    session = await open_(seconds=3.0)
    await whole(session, "x = 1")
    pid = session.worker.pid
    assert pid is not None
    assert 3 < resource.prlimit(pid, resource.RLIMIT_CPU)[0] <= 6


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it there")
def test_a_worker_whose_host_is_killed_ends_within_its_limit() -> None:
    code = "x = 7 ** 3000000\nwhile True:\n    y = x * x"
    ended = subprocess.run([sys.executable, "-c", ORPHAN, code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert _gone(int(ended.stdout))
