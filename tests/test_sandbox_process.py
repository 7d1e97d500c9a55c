"""What the kernel refuses the code of the process sandbox; each try is one that works without it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import pytest_asyncio

from conftest import some_of
from patience import patience
from plait.core.artifacts import ArtifactHandle
from plait.core.code import CodeLimits
from plait.core.errors import ConfigError
from plait.sandbox import OutCall, Result, Settings, process_child
from plait.sandbox.base import PROGRAM
from plait.sandbox.confine_filter import ALLOWED, NOT_EXECUTABLE
from plait.sandbox.process import Process, ProcessSession
from sandbox_support import NOW, whole

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox needs Linux")
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls by their numbers on x86_64")

CANARY = "coal-mine-7"
SETTINGS = Settings(frozenset({"tool", "get", "stop"}), CodeLimits(seconds=20.0))


LACKS = {
    "landlock": "landlock = lambda: 0",
    "namespaces": "namespaces = list",
    "seccomp": f"_SYS_SECCOMP = {{{platform.machine()!r}: -1}}",
}
"""What makes the worker find that its kernel lacks something."""


async def opened(settings: Settings = SETTINGS, *without: str) -> ProcessSession:
    patches = "".join(f"__import__('plait.sandbox.confine', fromlist=['x']).{LACKS[each]}\n" for each in without)
    program = PROGRAM.replace("del here\n", f"del here\n{patches}")
    with patch("plait.sandbox.process_child.PROGRAM", program):
        session = await Process().open(settings)
    assert isinstance(session, ProcessSession)
    return session


@pytest_asyncio.fixture(params=["all walls", "no landlock", "no namespaces", "seccomp alone"])
async def walled(request: pytest.FixtureRequest) -> AsyncIterator[ProcessSession]:
    """A session behind everything that this kernel has, and behind less: seccomp alone must hold."""
    less = {"no landlock": ["landlock"], "no namespaces": ["namespaces"], "seccomp alone": ["landlock", "namespaces"]}
    session = await opened(SETTINGS, *less.get(request.param, []))
    yield session
    await session.close()


@pytest_asyncio.fixture
async def session() -> AsyncIterator[ProcessSession]:
    session = await opened()
    yield session
    await session.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home folder, with a secret in it and one in the environment."""
    (tmp_path / "secret").write_text(CANARY)
    (tmp_path / "program").write_text(f"#!/bin/sh\necho {CANARY}\n")
    (tmp_path / "program").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLAIT_SECRET", CANARY)
    return tmp_path


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


# tries: {home}, {port} and {parent} are filled in; each ends with "in" when it works

FILES = {
    "read a system file": "print(len(open('/etc/passwd').read()) > 0 and 'in')",
    "read a secret in the home": "print(open('{home}/secret').read() and 'in')",
    "look whether a file is there": "import os\nos.stat('{home}/secret')\nprint('in')",
    "list a folder": "import os\nprint('secret' in os.listdir('{home}') and 'in')",
    "write a file outside": "open('{home}/new', 'w').write('x')\nprint('in')",
    "write a file in its own folder": "open('here', 'w').write('x')\nprint('in')",
    "make a folder": "import os\nos.mkdir('{home}/made')\nprint('in')",
    "delete a file": "import os\nopen('{home}/gone', 'w').close()\nos.unlink('{home}/gone')\nprint('in')",
    "make a link": "import os\nos.symlink('{home}/secret', '{home}/link')\nprint('in')",
    "read its environment": "print(open('/proc/self/environ') and 'in')",
    "read the parent's environment": "print(open('/proc/{parent}/environ', 'rb').read() and 'in')",
    "read its own memory": "print(open('/proc/self/mem', 'rb') and 'in')",
    "make memory with a name": "import os\nos.memfd_create('x')\nprint('in')",
    "change its folder": "import os\nos.chdir('/')\nprint('in')",
}
NETWORK = {
    "make a socket": "import socket\nsocket.socket()\nprint('in')",
    "make a local socket": "import socket\nsocket.socket(socket.AF_UNIX)\nprint('in')",
    "make a pair of sockets": "import socket\nsocket.socketpair()\nprint('in')",
    "connect": "import socket\nsocket.create_connection(('127.0.0.1', {port}))\nprint('in')",
    "send a datagram": "import socket as s\ns.socket(type=s.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))\nprint('in')",
    "listen": "import socket\nsocket.create_server(('127.0.0.1', 0))\nprint('in')",
}
PROCESSES = {
    "fork": "import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\nprint('in')",
    "spawn": "import os\nos.waitpid(os.posix_spawn('/bin/true', ['x'], {{}}), 0)\nprint('in')",
    "run a program": "from subprocess import run\nprint(run(['{home}/program'], capture_output=True).stdout and 'in')",
    "a shell": "import os\nprint(os.system('true') == 0 and 'in')",
    "become another program": "import os\nos.execv('/bin/echo', ['echo', 'in'])",
    "signal the parent": "import os\nos.kill({parent}, 0)\nprint('in')",
    "signal itself": "import os\nos.kill(os.getpid(), 0)\nprint('in')",
    "start a thread": "import threading\nthreading.Thread(target=print, args=('in',)).start()",
    "make a pipe": "import os\nos.pipe()\nprint('in')",
    "raise a limit": "import os\nos.nice(1)\nprint('in')",
    "set a timer": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 100)\nprint('in')",
}
TRIES = FILES | NETWORK | PROCESSES


@pytest.fixture
def aimed(home: Path, listener: socket.socket) -> Any:
    port = listener.getsockname()[1]
    return lambda code: code.format(home=home, port=port, parent=os.getpid())


@pytest.mark.parametrize("code", TRIES.values(), ids=TRIES.keys())
def test_without_the_sandbox_each_try_works(code: str, aimed: Any, home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", aimed(code)], capture_output=True, text=True, timeout=60, cwd=home)
    assert done.stdout.strip() == "in", done.stderr


async def test_in_the_sandbox_each_try_is_refused_and_the_session_goes_on(
    walled: ProcessSession, aimed: Any, home: Path, listener: socket.socket
) -> None:
    before = sorted(os.listdir(home))
    for what, code in TRIES.items():
        told = await whole(walled, aimed(code))
        assert not told.lost and "in" not in told.output.split(), what
        assert told.error is not None or told.output.strip() in ("False", "None"), what
        if told.error is not None:
            assert told.error.type in ("PermissionError", "OSError", "RuntimeError", "itimer_error"), (what, told.error)
    assert sorted(os.listdir(home)) == before
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert (await whole(walled, "print('on')")).output == "on\n"


RAW = {
    "open 2, openat 257, openat2 437, creat 85, open_by_handle_at 304, name_to_handle_at 303",
    "stat 4, lstat 6, access 21, statx 332, readlink 89, getdents64 217, chdir 80, getcwd 79",
    "socket 41, connect 42, sendto 44, sendmsg 46, recvmsg 47, bind 49, socketpair 53",
    "fork 57, vfork 58, clone 56, clone3 435, execve 59, execveat 322",
    "kill 62, tkill 200, tgkill 234, rt_sigqueueinfo 129, pidfd_open 434, pidfd_send_signal 424, pidfd_getfd 438",
    "ptrace 101, process_vm_readv 310, process_vm_writev 311, perf_event_open 298, bpf 321, userfaultfd 323",
    "io_uring_setup 425, io_setup 206, keyctl 250, add_key 248, memfd_create 319, memfd_secret 447",
    "mount 165, umount2 166, chroot 161, pivot_root 155, unshare 272, setns 308, fsopen 430, open_tree 428",
    "prctl 157, seccomp 317, setrlimit 160, prlimit64 302, setuid 105, capset 126, personality 135, ioctl 16",
    "ftruncate 77, dup 32, fcntl 72, shmget 29, msgget 68, semget 64, mq_open 240, init_module 175, reboot 169",
}


@X86
async def test_system_calls_made_past_python_are_refused(walled: ProcessSession) -> None:
    names = {int(number): name for line in RAW for name, number in re.findall(r"(\w+) (\d+)", line)}
    # ctypes was taken away, but what the worker used of it to lock itself can still be found.
    find = "import gc\nlibc = next(o for o in gc.get_objects() if type(o).__name__ == 'CDLL')\n"
    code = find + f"print({{n: libc.syscall(n, 0, 0, 0, 0, 0) for n in {sorted(names)}}})"
    told = await whole(walled, code)
    assert told.error is None
    got = eval(told.output)
    assert {names[n]: result for n, result in got.items() if result != -1} == {}


@X86
async def test_no_memory_can_be_made_executable(session: ProcessSession) -> None:
    code = "import mmap\nprint(len(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE{more})))"
    control = subprocess.run(
        [sys.executable, "-c", code.format(more=" | mmap.PROT_EXEC")], capture_output=True, text=True
    )
    assert control.stdout == "4096\n"
    assert (await whole(session, code.format(more=""))).output == "4096\n"
    error = (await whole(session, code.format(more=" | mmap.PROT_EXEC"))).error
    assert error is not None and error.type == "PermissionError"


@pytest.mark.parametrize("open_before", [0, 300])
async def test_it_has_no_more_than_its_socket_and_an_empty_environment(open_before: int) -> None:
    code = (
        "import os\nopen_ = []\n"
        "for fd in range(4096):\n    try:\n        os.lseek(fd, 0, 1)\n        open_.append(fd)\n"
        "    except OSError as e:\n        if e.errno != 9: open_.append(fd)\n"
        "print(len(open_), sorted(os.environ), os.sys.argv, os.sys.path)"
    )
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(open_before)]
    session = await Process().open(Settings())
    try:
        assert (await whole(session, code)).output == "4 ['TZ'] [''] []\n"
    finally:
        await session.close()
        for fd in held:
            os.close(fd)


async def test_what_python_has_can_be_imported_and_what_it_would_have_to_load_can_not(session: ProcessSession) -> None:
    modules = (
        "math, re, json, statistics, datetime, itertools, collections, decimal, fractions, random, string, functools, "
        "operator, heapq, bisect, textwrap, uuid, io, urllib.parse, copy, enum, dataclasses, typing, hashlib, csv, html"
    )
    assert (await whole(session, "print(datetime.strptime('2024-02-29', '%Y-%m-%d').date())")).output == "2024-02-29\n"
    told = await whole(session, f"import {modules}\nprint(hashlib.sha256(b'x').hexdigest()[:6], '\\N{{BULLET}}')")
    assert (told.error, told.output) == (None, "2d7116 \N{BULLET}\n")
    told = await whole(session, "import ftplib")
    assert told.error is not None and told.error.type == "ModuleNotFoundError"
    assert "ftplib" in told.error.message and "load no files" in told.error.message


# memory, time, the process itself


async def test_memory_has_a_limit_and_the_names_stay(session: ProcessSession) -> None:
    await whole(session, "kept = 1")
    told = await whole(session, "x = bytearray(1 << 30)")
    assert told.error is not None and (told.error.type, told.error.limit, told.lost) == ("MemoryError", "memory", False)
    assert (await whole(session, "print(kept)")).output == "1\n"


async def test_a_process_that_ends_itself_is_lost_and_another_goes_on(session: ProcessSession) -> None:
    told = await whole(session, "kept = 1\nprint('so far')\nimport os\nos._exit(3)")
    assert told.lost and told.output == "so far\n" and told.error is not None and "status 3" in told.error.message
    told = await whole(
        session,
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(g): g(g)\nimport functools\n"
        "f(functools.partial(f))\nx = []\nfor i in range(10**6): x = [x]\nprint(x == x, repr(x))",
    )
    assert told.error is not None
    error = (await whole(session, "print(kept)")).error
    assert error is not None and error.type == "NameError"


async def test_nothing_runs_between_two_turns(session: ProcessSession) -> None:
    """Code may say that it waits and run on: its process is stopped all the same."""
    told = await session.run("tool()", NOW)
    assert told.calls
    child = session._child
    assert child is not None
    deadline = time.monotonic() + patience(10)
    while (state := Path(f"/proc/{child.process.pid}/stat").read_text().rsplit(")")[1].split()[0]) != "T":
        assert time.monotonic() < deadline, state


async def test_more_pieces_than_can_be_given_up_lose_the_session_and_say_so(session: ProcessSession) -> None:
    lost = 0
    for _ in range(40):
        turn = await session.run("stop()", NOW)
        lost += turn.lost
        assert turn.calls or (turn.error is not None and "given up" in turn.error.message)
    assert lost == 1


PARENT = """
import asyncio, sys
from plait.sandbox import Settings, sandbox
async def main():
    session = await sandbox("process").open(Settings())
    print(session._child.process.pid, flush=True)
    await session.run("while True: pass", 0.0)
asyncio.run(main())
"""


BESIDE = """
import asyncio, threading, time
from plait.sandbox import Settings, sandbox
async def use():
    first = await sandbox("process").open(Settings())
    await first.run("x = 40", 0.0)
    opened.set()
    while threading.main_thread().is_alive():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    second = await sandbox("process").open(Settings())
    for session, code in (first, "print(x + 2)"), (second, "print(43)"):
        print((await session.run(code, 0.0)).output.strip())
        await session.close()
opened = threading.Event()
threading.Thread(target=lambda: asyncio.run(use())).start()
opened.wait()
"""


def test_it_works_in_a_thread_that_outlives_the_main_thread() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, timeout=patience(60))
    assert (done.stdout.split(), done.stderr) == (["42", "43"], "")


def test_it_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert os.path.exists(f"/proc/{pid}")
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + patience(20)
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return
    pytest.fail("it outlived its parent")


def test_it_outlives_the_thread_and_the_event_loop_that_opened_it() -> None:
    sessions: list[ProcessSession] = []
    thread = threading.Thread(target=lambda: sessions.append(asyncio.run(opened())))
    thread.start()
    thread.join()
    told = asyncio.run(whole(sessions[0], "x = 2\nprint(x)"))
    assert told.output == "2\n"
    assert asyncio.run(whole(sessions[0], "print(x)")).output == "2\n"
    asyncio.run(sessions[0].close())


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_it_leaves_nothing_behind(folders: Path) -> None:
    await (await opened()).close()  # what is made once
    gc.collect()
    files = os.listdir("/proc/self/fd")
    session = await opened()
    assert session._child is not None
    pid = session._child.process.pid
    assert not list(folders.iterdir())  # its folder is deleted already
    if os.geteuid() == 0:  # nobody else may look
        assert os.readlink(f"/proc/{pid}/cwd").endswith(" (deleted)")
    await session.run("while True:\n    tool()", NOW)
    await session.close()
    assert not os.path.exists(f"/proc/{pid}")
    for _ in range(100):  # threads of earlier tests may open and close files meanwhile
        if len(os.listdir("/proc/self/fd")) <= len(files):
            break
        await asyncio.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) <= len(files)


async def test_a_start_that_is_cancelled_leaves_no_folder(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, is_cancelled = process_child._start, threading.Event()

    def slow_start(output_bytes: int) -> process_child.Child:
        child = start(output_bytes)
        is_cancelled.wait(patience(20))
        return child

    monkeypatch.setattr(process_child, "_start", slow_start)
    opening = asyncio.create_task(opened())
    while not list(folders.iterdir()):
        await asyncio.sleep(0.01)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    is_cancelled.set()
    async with asyncio.timeout(patience(20)):
        while list(folders.iterdir()):
            await asyncio.sleep(0.01)


async def test_a_process_that_can_not_be_started_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await opened()).close()  # what is made once
    gc.collect()
    files = os.listdir("/proc/self/fd")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="could not start its process"):
        await opened()
    assert len(os.listdir("/proc/self/fd")) <= len(files)


# a process that lies

FIND = (
    "import os, sys, json\n"
    "main = next(f for f in sys._current_frames().values() if f.f_code.co_name == '_until_back').f_back.f_back\n"
    "fd, request = main.f_locals['fd'], main.f_locals['request']\n"
    "def say(message, number=None):\n"
    "    data = message if isinstance(message, bytes) else json.dumps(message).encode()\n"
    "    number = request['number'] if number is None else number\n"
    "    os.write(fd, len(data).to_bytes(4, 'big') + number.to_bytes(8, 'big') + data)\n"
)
LIES: dict[str, str] = {
    "no message at all": "os.write(fd, b'x' * 100)",
    "an endless one": "os.write(fd, b'\\xff' * 12)",
    "a flood": "while True: os.write(fd, b'\\0' * 65536)",
    "not its number": "say({'error': None}, 1)",
    "no JSON": "say(b'{{{')",
    "no object": "say([1, 2])",
    "nothing in it": "say({})",
    "very deep": "say(b'[' * 100000)",
    "no call": "say({'calls': [[1, 2, 3]]})",
    "no calls": "say({'calls': []})",
    "very many calls": "say({'calls': [['tool', [], {}]] * 100000})",
    "a deep argument": "say(b'{\"calls\": [[\"tool\", [' + b'[' * 90 + b']' * 90 + b'], {}]]}')",
    "a key that is a list": "say({'calls': [['tool', [{'$dict': [[[], 1]]}], {}]]})",
    "a date that is none": "say({'calls': [['tool', [{'$date': 'today'}], {}]]})",
    "a long integer": "say({'calls': [['tool', [{'$int': '0x' + 'f' * 100000}], {}]]})",
    "a long integer in JSON": "say(b'{\"calls\": [[\"tool\", [' + b'9' * 100000 + b'], {}]]}')",
    "an unheard-of kind": "say({'calls': [['tool', [{'$object': 'x'}], {}]]})",
    "a handle that it was not given": "say({'calls': [['tool', [{'$handle': 'image-2'}], {}]]})",
    "a handle of the journal": "say({'calls': [['tool', [{'$thing': 'image-2'}], {}]]})",
    "a dict that passes for a handle": "say({'calls': [['tool', [{'$dict': [['$thing', 'image-2']]}], {}]]})",
    "very many values": "say(b'{\"calls\": [[\"tool\", [[' + b'[],' * 1000000 + b'[]]], {}]]}')",
    "an error that is none": "say({'error': 7})",
    "an error with odd parts": "say({'error': {'type': 'E'}})",
}


@pytest.mark.parametrize("lie", some_of(LIES.values()), ids=some_of(LIES))
async def test_a_lie_costs_the_session_its_names_and_nothing_else(lie: str) -> None:
    session = await opened(Settings(frozenset({"tool"}), CodeLimits(seconds=1.5, output_chars=1000)))
    try:
        turn = await session.run(FIND + lie + "\nwhile True: pass", NOW)
        assert turn.lost and turn.error is not None and turn.calls == ()
        assert (await whole(session, "print('on')")).output == "on\n"
    finally:
        await session.close()


async def test_a_forged_call_is_a_call_that_the_code_could_have_made() -> None:
    session = await opened(Settings(frozenset({"tool"}), CodeLimits(seconds=1.5)))
    try:
        turn = await session.run(FIND + "say({'calls': [['tool', [1], {}]]})\nwhile True: pass", NOW)
        assert turn.calls == (OutCall("tool", (1,)),) and not turn.lost
        turn = await session.go_on([Result(2)])
        assert turn.error is not None and turn.error.limit == "time" and turn.lost
        turn = await session.run(FIND + "say({'error': None})\nsay({'calls': [['tool', [1], {}]]})", NOW)
        assert turn.calls == () and turn.error is None
        turn = await session.run("print('next')", NOW)
        assert turn.lost and turn.calls == ()
        assert (await whole(session, "print('on')")).output == "on\n"
    finally:
        await session.close()


async def test_forged_output_is_cut_as_any_other(session: ProcessSession) -> None:
    code = (
        "import sys\nshared = sys.stdout.shared\nprint('x')\nshared[:16] = b'\\xff' * 16\n"
        "shared[16:] = b'\\xff' * (len(shared) - 16)"
    )
    turn = await session.run(code, NOW)
    assert turn.error is None
    assert len(turn.output) <= SETTINGS.limits.output_chars + 100
    assert (await whole(session, "print('on')")).output == "on\n"


async def test_half_a_character_can_not_get_out(session: ProcessSession) -> None:
    turn = await session.run("print('a\\ud800b')\ntool('\\ud800', **{'\\udfff': 1})", NOW)
    turn.output.encode()
    assert turn.calls == (OutCall("tool", ("?",), {"?": 1}),)
    turn = await session.run("raise ValueError('\\ud800')", NOW)
    assert turn.error is not None
    turn.error.message.encode()


async def test_a_things_token_can_not_be_guessed(session: ProcessSession) -> None:
    await session.run("i = get()", NOW)
    await session.go_on([Result(ArtifactHandle("image-1", "<Image>"))])
    told = await whole(session, "print(dir(i), repr(i))")
    assert "image-1" not in told.output and "<Image>" in told.output


# where it can't confine


async def test_without_seccomp_it_refuses_to_start(folders: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't confine.*seccomp") as refusal:
        await opened(SETTINGS, "seccomp")
    assert "monty" in refusal.value.hint
    assert not list(folders.iterdir())


async def test_it_says_what_confines_it(session: ProcessSession) -> None:
    assert session.walls["seccomp"] is True
    less = await opened(SETTINGS, "landlock", "namespaces")
    assert less.walls == {"seccomp": True, "landlock": 0, "namespaces": []}
    await less.close()


# each wall by itself, in a process that only puts up that one

WALLS = {
    "landlock": (
        "print(open('/etc/passwd') and 'in')",
        "import os\nconfine.die_with(os.getppid())\nif not confine.landlock(): print('lacking'); raise SystemExit",
    ),
    "namespaces": (
        "import socket\nsocket.create_connection(('127.0.0.1', {port}))\nprint('in')",
        "if 'net' not in confine.namespaces(): print('lacking'); raise SystemExit",
    ),
    "limits": (
        "open('{home}/limited', 'w').write('x')\nx = bytearray(300 << 20)\nprint('in')",
        "confine.limits(200 << 20, 3, open('/proc/self/statm'))",
    ),
    "unprivileged": (
        "import os\nprint(os.geteuid() == 0 and open('{home}/secret') and 'in')",
        "import os\nos.chmod('{home}/secret', 0o600)\nconfine.drop_privileges()",
    ),
    "no new rights": (
        "print('NoNewPrivs:\\t0' in open('/proc/thread-self/status').read() and 'in')",
        "import os\nconfine.die_with(os.getppid())",
    ),
}


@pytest.mark.parametrize("wall", WALLS)
def test_each_wall_holds_by_itself(wall: str, aimed: Any) -> None:
    attempt, put_up = (aimed(code) for code in WALLS[wall])
    if wall == "unprivileged" and os.geteuid() != 0:
        pytest.skip("only root can lose root's rights")

    def run(code: str) -> str:
        code = "import encodings.idna\nfrom plait.sandbox import confine\n" + code
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip()

    assert run(attempt) == "in"
    with_wall = run(put_up + "\n" + attempt)
    if with_wall == "lacking":
        pytest.skip(f"this kernel has no {wall}")
    assert with_wall != "in"


@pytest.mark.parametrize(
    ("header", "column"),
    [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0), ("/usr/include/asm-generic/unistd.h", 1)],
)
def test_the_numbers_of_system_calls_are_those_of_the_kernels_headers(header: str, column: int) -> None:
    if not os.path.exists(header):
        pytest.skip(f"no {header}")
    text = Path(header).read_text()
    for name, numbers in (ALLOWED | NOT_EXECUTABLE).items():
        if numbers[column] is not None:
            found = re.search(rf"#define __NR(?:3264)?_{name}\s+(\d+)", text)
            assert found and int(found[1]) == numbers[column], name
