"""Runs a shell command in a process that the kernel confines to one folder (see `command_child`).

It takes Linux with Landlock, seccomp filters and unprivileged user namespaces, on x86_64 or aarch64.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.sandbox.base import HERE, PROGRAM

PROCESSES, OPEN_FILES, TMP_MB, FILE_MB, MEMORY_MB = 512, 1024, 256, 1024, 4096
"""Limits of a command: processes and threads, open files of a process, MB of temporary files, of a file, of a process.
"""
OUTPUT = 20_000
"""Bytes that are kept of each output stream: two thirds from its beginning, the rest from its end."""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/run/current-system/sw/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
}
_SYSTEM = "/ /usr /bin /sbin /lib /lib32 /lib64 /etc /dev /dev/shm /proc /sys /tmp /run /var /boot /nix /gnu"
TOO_WIDE = frozenset(_SYSTEM.split())
"""Folders that a shell cannot be restricted to, because its own root folder has them."""
_GRACE = 10.0
"""Seconds that the processes of a command have to vanish after their end was ordered."""


class CommandResult(Struct, frozen=True):
    """The end of a command. `code` is its exit code, 128 + N if signal N ended it; None if it exceeded its time."""

    code: int | None
    stdout: str
    stderr: str


@functools.lru_cache(maxsize=32)
def check_folder(folder: Path, readable: tuple[str, ...] = ()) -> None:
    """Run an empty command, confined to the folder. Raises `ConfigError` if this machine cannot confine it."""
    home = Path(os.path.expanduser("~")).resolve()
    if str(folder) in TOO_WIDE or folder == home or folder in home.parents:
        raise ConfigError(
            f"A shell can't be restricted to {folder}: the system or your home folder is in it.",
            hint="Name a folder of your own below it.",
        )
    if sys.platform != "linux":
        raise _cannot_confine(f"this is {sys.platform}, not Linux")
    reader, writer = os.pipe()
    with open(reader, "rb") as status:
        try:
            arguments = _arguments(folder, ":", 10, readable, writer)
            subprocess.run(arguments, **_options(writer), stdout=subprocess.DEVNULL, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise _cannot_confine(f"the process did not start ({problem})") from None
        finally:
            os.close(writer)
        _check_status(status.read())


async def run_command(
    folder: Path, command: str, seconds: int, readable: tuple[str, ...] = (), inodes: tuple[int, ...] = ()
) -> CommandResult:
    """Run `/bin/sh -c command` in the folder, for at most so many seconds.

    `inodes` are those of the folder and the readable ones, so that a path that changes meanwhile leads nowhere else.
    All processes of the command have ended when this returns, also if it is cancelled. Raises `ConfigError` if this
    machine cannot confine the command.
    """
    reader, writer = os.pipe()
    with open(reader, "rb") as status:
        try:
            process = await asyncio.create_subprocess_exec(
                *_arguments(folder, command, seconds, readable, writer, inodes),
                **_options(writer),
                stdout=asyncio.subprocess.PIPE,
            )
        except (OSError, ValueError) as problem:
            raise ConfigError(f"The shell did not start: {problem}.") from None
        finally:
            os.close(writer)
        outputs = [asyncio.create_task(_read_ends(stream)) for stream in (process.stdout, process.stderr)]
        code: int | None = None
        try:
            async with asyncio.timeout(seconds):
                code = await process.wait()
        except TimeoutError:
            pass
        finally:
            await asyncio.shield(_end(process))
            _, late = await asyncio.wait(outputs, timeout=_GRACE)
            for task in late:
                task.cancel()
        if code is not None:
            _check_status(status.read())
    stdout, stderr = (task.result() if task.done() and not task.cancelled() else "" for task in outputs)
    return CommandResult(code, stdout, stderr)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End all processes of a command, and wait for that."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_GRACE):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _arguments(
    folder: Path, command: str, seconds: int, readable: Iterable[str], status: int, inodes: tuple[int, ...] = ()
) -> list[str]:
    settings = {
        "parent": os.getpid(),
        "folder": str(folder),
        "readable": list(readable),
        "inodes": inodes,
        "command": command,
        "environment": ENVIRONMENT,
        "pids": PROCESSES,
        "tmp_mb": TMP_MB,
        "limits": {
            "AS": MEMORY_MB << 20,
            "FSIZE": FILE_MB << 20,
            "NPROC": PROCESSES,
            "NOFILE": OPEN_FILES,
            "CPU": seconds + 1,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        },
    }
    python = [sys.executable, "-I", "-S", "-X", "utf8", "-c", PROGRAM]
    return [*python, "plait.sandbox.command_child", HERE, json.dumps(settings, ensure_ascii=False), str(status)]


def _options(status: int) -> dict[str, Any]:
    return {
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "env": {},
        "cwd": "/",
        "pass_fds": (status,),
        "start_new_session": True,
    }


def _check_status(status: bytes) -> None:
    if status != b"ready":
        raise _cannot_confine(status.decode("utf-8", "replace")[:500] or "the process ended without a word")


def _cannot_confine(missing: str) -> ConfigError:
    hint = "It takes Linux with Landlock, seccomp filters and unprivileged user namespaces. Leave the shell out."
    return ConfigError(f"This machine can't confine a shell: {missing}.", hint=hint)


async def _read_ends(stream: asyncio.StreamReader | None) -> str:
    """Read a stream to its end, and return its beginning and its end as text."""
    assert stream is not None
    head, tail, total = bytearray(), bytearray(), 0
    room = OUTPUT * 2 // 3
    while piece := await stream.read(1 << 16):
        total += len(piece)
        more = room - len(head)
        head += piece[:more]
        tail += piece[more:] if more else piece
        if len(tail) > OUTPUT:
            del tail[: len(tail) - (OUTPUT - room)]
    cut = total - len(head) - min(len(tail), OUTPUT - room)
    end = bytes(tail[-(OUTPUT - room) :])
    note = f"\n[... {cut:,} bytes left out here ...]\n".encode() if cut else b""
    return (bytes(head) + note + end).decode("utf-8", "replace")
