"""Claims about the toolkit `shell`: what a command can do in its folder, and each way out of it that is tried."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import plait
from patience import patience
from plait.core.errors import ConfigError
from plait.sandbox import command as commands
from plait.toolkits import shell
from plait.tools import Tool, anchor_word, load
from toolkits_server import call, refusal

CANARY = "coal-mine-7"
PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module", autouse=True)
def _kernel() -> None:
    """Skip only where the kernel lacks namespaces or Landlock: elsewhere a shell that is refused is a defect."""
    spaces = subprocess.run(["unshare", "--user", "--map-root-user", "--pid", "--fork", "--net", "--mount", "true"])
    landlock = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)
    if spaces.returncode or landlock < 1:
        pytest.skip(f"this kernel can't confine a shell (unshare: {spaces.returncode}, Landlock: {landlock})")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a shell; beside it, in a home folder and in the environment, secrets."""
    (tmp_path / "secret").write_text(CANARY)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLAIT_SECRET", CANARY)
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


@pytest.fixture
def tools(place: Path) -> tuple[Tool, ...]:
    return shell(place, readable=[sys.base_prefix])


def running(marker: str) -> list[str]:
    """The processes of this machine whose command line has a word."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = each.read_bytes().split(b"\0")
            found += [each.parent.name] if words[:2] == [b"sleep", marker.encode()] else []
    return found


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + patience(20)
    while not what():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


async def run(tools: tuple[Tool, ...], command: str, seconds: int = 30) -> str:
    return str(await call(tools, "run_command", command=command, seconds=seconds))


async def python(tools: tuple[Tool, ...], place: Path, code: str) -> str:
    (place / "program.py").write_text(code)
    return await run(tools, f"{PYTHON} -I program.py")


# --- what a command can do


async def test_a_command_works_in_its_folder(place: Path, tools: tuple[Tool, ...]) -> None:
    (place / "a.txt").write_text("one\ntwo\n")
    assert await run(tools, "wc -l < a.txt; echo new > b.txt; pwd") == f"exit code 0\nstdout:\n2\n{place}"
    assert (place / "b.txt").read_text() == "new\n" and (place / "b.txt").stat().st_uid == os.geteuid()
    assert await run(tools, "echo oh >&2; exit 7") == "exit code 7\nstderr:\noh"
    assert await run(tools, "kill -9 $$") == "exit code 137"
    assert await run(tools, "printf '#!/bin/sh\\necho ran\\n' > s; chmod 755 s; ./s") == "exit code 0\nstdout:\nran"
    assert await run(tools, "echo é 🙂 | tr -d ' '") == "exit code 0\nstdout:\né🙂"
    assert await run(tools, "echo to > /dev/null; echo x > /tmp/y; cat /tmp/y") == "exit code 0\nstdout:\nx"
    assert await run(tools, "cat /tmp/y") == "exit code 1\nstderr:\ncat: /tmp/y: No such file or directory"


async def test_the_environment_has_four_variables(tools: tuple[Tool, ...]) -> None:
    said = await run(tools, "env")
    names = {line.partition("=")[0] for line in said.splitlines()[2:]}
    assert (
        {"PATH", "HOME", "LANG", "TMPDIR"} <= names <= {"PATH", "HOME", "LANG", "TMPDIR", "PWD", "SHLVL", "_", "OLDPWD"}
    )
    assert CANARY not in said


async def test_the_ends_of_a_large_output_are_kept(tools: tuple[Tool, ...]) -> None:
    said = await run(tools, "seq 1 1000000; seq 1 1000000 >&2")
    assert said.startswith("exit code 0\nstdout:\n1\n2\n3\n") and said.endswith("\n999999\n1000000")
    cut = re.findall(r"\[\.\.\. ([\d,]+) bytes left out here \.\.\.\]", said)
    assert cut == [f"{6_888_896 - commands.OUTPUT:,}"] * 2 and len(said) < 3 * commands.OUTPUT


async def test_input_that_is_no_command_is_refused(place: Path, tools: tuple[Tool, ...]) -> None:
    for command in ("", "  \n", "a\0b", "x" * 20_001, "\ud800"):
        assert "not a command" in await refusal(tools, "run_command", command=command)
    for seconds in (0, -1, 601):
        assert "Give 1 to 600" in await refusal(tools, "run_command", command="true", seconds=seconds)
    assert "exit code 0" in await run(tools, "true # " + "🙂" * 19_000)
    os.rename(place, place.with_name("gone"))
    assert "is gone" in await refusal(tools, "run_command", command="true")


# --- files


@pytest.mark.parametrize(
    "command",
    [
        "cat {outside}/secret",
        "stat {outside}/secret",
        "rm -f {outside}/secret && test ! -e {outside}/secret && false",
        "chmod 777 {outside}/secret",
        "ln -s {outside}/secret link && cat link",
        "ln {outside}/secret hard",
        "cat ../secret",
        "cd ..; cat secret",
        "echo x > /usr/plait-was-here",
        "mkdir /plait-was-here",
        "chmod 777 /etc/passwd",
        "echo x >> /etc/passwd",
        "cat /etc/shadow",
        "ls /home",
        "cat /proc/1/root/{outside}/secret",
        "echo 1 > /proc/sys/kernel/printk",
        "echo b > /proc/sysrq-trigger",
        "cp /bin/true t && chmod 4755 t",
        "chmod 2755 .",
        "mknod m b 8 0",
        "mount -t tmpfs none /tmp",
        "unshare -r true",
        "chroot . /bin/true",
    ],
)
async def test_no_command_leaves_the_folder(command: str, place: Path, tools: tuple[Tool, ...]) -> None:
    said = await tried(tools, command, place)
    assert not said.startswith("exit code 0")


async def test_the_kernels_files_do_not_exist_for_a_command(tools: tuple[Tool, ...]) -> None:
    listed = await run(tools, "ls /proc; ls /sys; hostname")
    names = set(listed.partition("stdout:\n")[2].partition("\nstderr")[0].split())
    assert {name for name in names if not name.isdigit()} <= {"self", "thread-self", "plait"}
    hidden = "cmdline keys key-users meminfo cpuinfo version kallsyms modules net sys/kernel/hostname partitions kcore"
    said = await run(tools, f"cd /proc; for name in {hidden}; do cat $name; done")
    assert "stdout" not in said and said.count("No such file") == len(hidden.split())
    assert socket.gethostname() not in await run(tools, "hostname; uname -n; cat /proc/self/cgroup")


async def test_a_folder_that_another_one_replaced_gets_no_command(place: Path, tools: tuple[Tool, ...]) -> None:
    os.rename(place, place.with_name("gone"))
    place.symlink_to(place.parent)
    assert "another one" in await refusal(tools, "run_command", command="cat secret")
    with pytest.raises(ConfigError, match="not the one"):  # between the look and the start
        await commands.run_command(place, "cat secret", 5, (), (place.with_name("gone").stat().st_ino,))


@pytest.mark.parametrize(
    "command",
    ["ls -la {outside}", "echo x > {outside}/new", "touch {outside}/secret", "mv {outside} /tmp/x", "ls -laR /root"],
)
async def test_a_path_to_the_folder_has_nothing_else(command: str, place: Path, tools: tuple[Tool, ...]) -> None:
    """The folders above it are empty ones in memory, and end with the command."""
    said = await tried(tools, command, place)
    assert "secret" not in said.replace("'", " ").split() and ".bashrc" not in said


async def tried(tools: tuple[Tool, ...], command: str, place: Path) -> str:
    """What a command says that must change nothing outside of the folder."""
    outside = place.parent
    before = (outside / "secret").stat()
    said = await run(tools, command.format(outside=outside))
    assert CANARY not in said
    assert (outside / "secret").read_text() == CANARY and sorted(os.listdir(outside)) == ["inside", "secret"]
    after = (outside / "secret").stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert not any(each.lstat().st_mode & 0o6000 for each in place.rglob("*"))
    return said


async def test_further_folders_can_be_read_and_not_changed(place: Path) -> None:
    other = place.parent / "other"
    other.mkdir()
    (other / "a.txt").write_text("shown\n")
    tools = shell(place, readable=[other])
    assert await run(tools, f"cat {other}/a.txt") == "exit code 0\nstdout:\nshown"
    for command in ("echo x >> {}/a.txt", "chmod 777 {}/a.txt", "touch {}/b", "rm -f {}/a.txt"):
        assert not (await run(tools, command.format(other))).startswith("exit code 0")
    assert (other / "a.txt").read_text() == "shown\n" and (other / "a.txt").stat().st_mode & 0o777 != 0o777


async def test_no_call_makes_a_program_that_runs_as_its_owner(place: Path, tools: tuple[Tool, ...]) -> None:
    code = (
        "import os\nopen('t', 'w').close()\nfile = os.open('t', os.O_RDONLY)\nhere = os.open('.', os.O_RDONLY)\n"
        "for attempt in (\n    lambda: os.chmod('t', 0o4755),\n    lambda: os.chmod('t', 0o2755),\n"
        "    lambda: os.chmod(file, 0o4755),\n    lambda: os.chmod('t', 0o4755, dir_fd=here),\n"
        "    lambda: os.open('u', os.O_CREAT | os.O_WRONLY, 0o4755),\n"
        "    lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755),\n    lambda: os.mknod('v', 0o104755),\n"
        "    lambda: os.mknod('v', 0o104755, dir_fd=here),\n):\n    try:\n        attempt()\n        print('made')\n"
        "    except OSError as error:\n        print(error.strerror)\n"
    )
    assert (await python(tools, place, code)).split("\n")[2:] == ["Operation not permitted"] * 8
    assert not any(each.stat().st_mode & 0o6000 for each in place.iterdir())


async def test_a_link_that_leads_out_leads_nowhere(place: Path, tools: tuple[Tool, ...]) -> None:
    (place / "out").symlink_to(place.parent)
    said = await run(tools, "cat out/secret; echo x > out/new; ls -l out")
    assert CANARY not in said and not (place.parent / "new").exists()


# --- the network


@pytest.fixture
def servers(place: Path) -> Iterator[dict[str, socket.socket]]:
    """Servers of this machine: TCP, UDP, and Unix sockets in the folder, outside of it and without a file."""
    here = os.getcwd()
    os.chdir(place)  # the path of a socket has at most 107 characters
    found = {"tcp": socket.socket(), "udp": socket.socket(type=socket.SOCK_DGRAM)}
    for each in found.values():
        each.bind(("127.0.0.1", 0))
    for name, address in (("inside", "sock"), ("outside", "../sock"), ("abstract", f"\0plait-{os.getpid()}")):
        found[name] = socket.socket(socket.AF_UNIX)
        found[name].bind(address)
    found["dgram"] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found["dgram"].bind("dgram")
    os.chdir(here)
    for each in found.values():
        each.setblocking(False)
        if each.type == socket.SOCK_STREAM:
            each.listen()
    yield found
    for each in found.values():
        each.close()
    (place.parent / "sock").unlink()


REACH = """
import os, socket
def attempt(name, what):
    try:
        what()
        print(name, "REACHED")
    except OSError as error:
        print(name, error.strerror)
def stream(family, address):
    return lambda: socket.socket(family).connect(address)
def datagram(family, address):
    return lambda: socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", address)
def pair(kind):
    return lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", "dgram")
attempt("tcp", stream(socket.AF_INET, ("127.0.0.1", TCP)))
attempt("udp", datagram(socket.AF_INET, ("127.0.0.1", UDP)))
attempt("ipv6", stream(socket.AF_INET6, ("::1", TCP)))
attempt("inside", stream(socket.AF_UNIX, "sock"))
attempt("outside", stream(socket.AF_UNIX, "../sock"))
attempt("abstract", stream(socket.AF_UNIX, ABSTRACT))
attempt("dgram", datagram(socket.AF_UNIX, "dgram"))
attempt("pair", pair(socket.SOCK_DGRAM))
attempt("raw pair", pair(socket.SOCK_RAW))
attempt("netlink", lambda: socket.socket(16, 3, 0))
attempt("alg", lambda: socket.socket(38, 5, 0))
attempt("vsock", lambda: socket.socket(40, 1, 0))
one, other = socket.socketpair()
one.send(b"pairs of streams work")
print(other.recv(100).decode())
"""


async def test_no_socket_of_any_kind_is_reached(
    place: Path, tools: tuple[Tool, ...], servers: dict[str, socket.socket]
) -> None:
    values = {"TCP": servers["tcp"].getsockname()[1], "UDP": servers["udp"].getsockname()[1]}
    code = REACH.replace("ABSTRACT", repr(servers["abstract"].getsockname()))
    for name, value in values.items():
        code = code.replace(name, str(value))
    said = await python(tools, place, code)
    assert "REACHED" not in said and said.count("Operation not permitted") == 12, said
    assert "pairs of streams work" in said
    for each in servers.values():
        with pytest.raises(BlockingIOError):
            each.accept() if each.type == socket.SOCK_STREAM else each.recv(1)


# --- other processes


async def test_other_processes_are_neither_seen_nor_reached(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = os.getpid()
    said = await run(tools, f"cat /proc/{pid}/environ; cat /proc/[0-9]*/environ; kill -9 {pid}; kill -9 -1; ls /proc")
    assert CANARY not in said and "plait" not in said.partition("stdout")[2].replace(str(place), "")
    numbers = [word for word in said.split() if word.isdigit()]
    assert len(numbers) < 10 and str(pid) not in numbers


async def test_open_files_of_this_process_are_not_inherited(place: Path, tools: tuple[Tool, ...]) -> None:
    with (place.parent / "secret").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        said = await run(tools, f"cat /proc/self/fd/{secret.fileno()} /proc/1/fd/*; ls /proc/self/fd")
    assert CANARY not in said
    assert "stdout:\n0\n1\n2\n3\nstderr" in said  # 3 is the folder that ls lists


async def test_a_command_has_no_privileges(tools: tuple[Tool, ...]) -> None:
    said = await run(tools, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
    assert said.split() == ["exit", "code", "0", "stdout:"] + [
        word for name in ("Inh", "Prm", "Eff", "Bnd", "Amb") for word in (f"Cap{name}:", "0000000000000000")
    ] + ["NoNewPrivs:", "1", "Seccomp:", "2"]


async def test_landlock_confines_a_command_too(place: Path, tools: tuple[Tool, ...]) -> None:
    """Only Landlock refuses to control a device that the command can open."""
    if ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 5:
        pytest.skip("Landlock refuses the control of devices since Linux 6.10")
    code = (
        "import fcntl\ntry:\n    fcntl.ioctl(open('/dev/zero'), 0x5401)\n"
        "except OSError as error:\n    print(error.strerror)"
    )
    assert (await python(tools, place, code)).endswith("Permission denied")


async def test_what_a_command_leaves_running_ends_with_it(tools: tuple[Tool, ...]) -> None:
    leave = "sleep 86401 & (setsid sleep 86401 &) ; exec > /dev/null 2>&1; nohup sleep 86401 &"
    assert await run(tools, leave) == "exit code 0"
    assert running("86401") == []


async def test_a_time_limit_ends_all_processes_of_a_command(tools: tuple[Tool, ...]) -> None:
    said = await run(tools, "echo begun; trap '' TERM; setsid sleep 86402 & sleep 86402", seconds=1)
    assert said == "stopped after its 1 seconds\nstdout:\nbegun"
    assert running("86402") == []


async def test_a_cancelled_call_ends_its_command(place: Path, tools: tuple[Tool, ...]) -> None:
    task = asyncio.create_task(run(tools, "touch begun; sleep 86403"))
    while not (place / "begun").exists():
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running("86403") == []


def test_a_command_ends_when_the_program_that_runs_it_is_killed(place: Path) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path; from plait.sandbox.command import run_command\n"
        "asyncio.run(run_command(Path(sys.argv[1]), 'sleep 86404 & touch begun; wait', 60))"
    )
    program = subprocess.Popen([sys.executable, "-c", script, place])
    wait_for((place / "begun").exists)
    wait_for(lambda: running("86404"))
    program.send_signal(signal.SIGKILL)
    program.wait()
    wait_for(lambda: not running("86404"))


# --- limits


async def test_processes_memory_and_files_are_bounded(place: Path, tools: tuple[Tool, ...]) -> None:
    said = await python(
        tools,
        place,
        "try:\n    bytearray(5 << 30)\nexcept MemoryError:\n    print('no memory')\n"
        "try:\n    open('large', 'wb').truncate(2 << 30)\nexcept OSError as error:\n    print(error.strerror)\n"
        "try:\n    open('/tmp/large', 'wb').write(bytes(300 << 20))\n"
        "except OSError as error:\n    print(error.strerror)\n",
    )
    assert said == "exit code 0\nstdout:\nno memory\nFile too large\nNo space left on device"


async def test_a_fork_bomb_has_a_bounded_number_of_processes(place: Path, tools: tuple[Tool, ...]) -> None:
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if os.geteuid() == 0 and release < (6, 14):
        pytest.skip("the kernel bounds the processes of root since Linux 6.14")
    bomb = (
        "import os, time\ncount = 0\ntry:\n    while count < 3000:\n        if os.fork() == 0:\n"
        "            time.sleep(1000)\n        count += 1\nexcept OSError as error:\n    print(count, error.strerror)\n"
    )
    said = await python(tools, place, bomb)
    count = int(said.split()[4])
    assert 100 < count < commands.PROCESSES and said.endswith("Resource temporarily unavailable")


# --- the word


def test_each_command_waits_for_approval_and_is_shown_exactly(place: Path, tmp_path: Path) -> None:
    replies = [
        'Thought: x\nAction: run_command\nAction Input: {"command": "echo hi > a.txt; rm -f \\u200b/b"}',
        "Thought: y\nFinal Answer: done",
    ]
    agent = plait.Agent(
        "react",
        model=plait.Scripted(replies, by_turn=False),
        tools=[f"shell:{place}"],
        journal=tmp_path / "j.db",
        approve="never",
    )
    waiting = agent.run("Write hi.")
    assert waiting.status == "waiting" and not (place / "a.txt").exists()
    assert "echo hi > a.txt; rm -f \\u200b/b" in waiting.reason
    assert agent.resume(waiting, "yes").status == "answered" and (place / "a.txt").read_text() == "hi\n"
    marks = load(f"shell:{place}")[0]
    assert (marks.requires_approval, marks.destructive, marks.open_world, marks.read_only) == (True, True, True, False)


def test_the_word_names_a_folder_that_is_not_the_systems(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [tool.name for tool in load("shell:inside")] == ["run_command"]
    assert anchor_word("shell:inside") == f"shell:{place}"
    for word, said in (
        ("shell", "Write shell:FOLDER"),
        ("shell:none", "no folder 'none'"),
        ("shell:/", "can't be restricted to /"),
        ("shell:/usr", "can't be restricted to /usr"),
        ("shell:.", "your home folder is in it"),
        ("shell:..", "your home folder is in it"),
        ("shell:inside/../../../../../../../../../../etc", "can't be restricted to /etc"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(word)


def test_without_namespaces_there_is_no_shell(place: Path) -> None:
    """A namespace that allows no others is a kernel without them."""
    code = (
        f"import plait.tools\ntry:\n    plait.tools.load('shell:{place}')\n"
        "except plait.ConfigError as error:\n    print(error)"
    )
    inner = f'echo 0 > /proc/sys/user/max_user_namespaces; exec {sys.executable} -c "$1"'
    ran = subprocess.run(["unshare", "-r", "sh", "-c", inner, "sh", code], capture_output=True, text=True)
    assert "This machine can't confine a shell: the kernel gives no namespaces" in ran.stdout, ran.stderr
    assert "Leave the shell out." in ran.stdout


def test_on_another_system_there_is_no_shell(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands.sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="this is darwin, not Linux"):
        shell(place)
