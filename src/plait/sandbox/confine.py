"""A permanent lock of the current process: no files, no network, no new processes. Runs in the worker: stdlib only.

The seccomp filter decides (see `confine_filter`); Plait does not use a process without it. Namespaces without a
network, an unprivileged user, Landlock and resource limits are added where the kernel has them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from plait.sandbox.confine_filter import MACHINES, program

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD_RULE, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_RULE_PATH_BENEATH = 1
READ_AND_RUN = 1 | 4 | 8
"""Landlock's rights to execute and read files, and to list folders."""
DEVICES = 2 | 4 | 8 | 1 << 14
"""Landlock's rights to read and write files that exist."""
ALL_BUT_DEVICES = (1 << 15) - 1 & ~(1 << 6 | 1 << 11)
"""Landlock's rights to do everything in a folder but make devices."""
_NAMESPACES = {"user": 0x10000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000}
_NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)


class CannotConfine(Exception):
    """Raised when this machine cannot confine code. The text says what is missing."""


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def call_kernel(*arguments: int | bytes | ctypes.Structure | None) -> int:
    """Make a raw system call. Raises `OSError`."""
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    given = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in given]  # type: ignore[misc]
    _libc.syscall.restype = ctypes.c_long
    result: int = _libc.syscall(*given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def set_process(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def namespaces() -> list[str]:
    """Move into new namespaces, as far as the kernel allows it; returns their names. Call before any thread starts."""
    for names in (("user", "net", "ipc", "uts"), ("user", "net"), ("user",)):
        if _libc.unshare(sum(_NAMESPACES[name] for name in names)) == 0:
            return list(names)
    return []


def drop_privileges() -> None:
    """Change from root to nobody. Read everything that needs root before."""
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        except OSError:
            pass  # root of a user namespace without nobody: it has no rights outside anyway


def landlock(allowed: Iterable[tuple[str, int]] = ()) -> int:
    """Refuse every file, TCP port, abstract socket and signal to this thread and those it starts, with Landlock.

    `allowed` are exceptions: a folder, and the rights below it. Returns the kernel's version of Landlock, 0 for none.
    """
    try:
        version = call_kernel(_SYS_LANDLOCK_CREATE, None, 0, 1)
        # linux/landlock.h: the rights of each version. A right that is handled and allowed nowhere is refused.
        files = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
        words = [files] + [3] * (version >= 4) + [3] * (version >= 6)
        rules = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
        ruleset = call_kernel(_SYS_LANDLOCK_CREATE, rules, len(rules), 0)
        for folder, rights in allowed:
            below = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            rule = (rights & files).to_bytes(8, sys.byteorder) + below.to_bytes(4, sys.byteorder)
            call_kernel(_SYS_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
            os.close(below)
        call_kernel(_SYS_LANDLOCK_RESTRICT, ruleset, 0)
        os.close(ruleset)
        return version
    except OSError:
        return 0


def limits(memory: int, highest_fd: int, statm: TextIO) -> None:
    """Set resource limits: `memory` more bytes of address space, no file written or opened, no core, no process.
    `statm` is /proc/self/statm, opened earlier."""
    now = int(statm.read().split()[0]) * resource.getpagesize()
    statm.close()
    none = dict.fromkeys(("CORE", "FSIZE", "MEMLOCK", "MSGQUEUE", "NPROC"), 0)
    set_limits({"AS": now + memory, "NOFILE": highest_fd + 1, **none})


def set_limits(limits: dict[str, int]) -> None:
    """Set resource limits by their names, without `RLIMIT_`. A lower hard limit stays."""
    for name, limit in limits.items():
        what = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(what)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (limit, limit))


def die_with(parent: int) -> None:
    """End when the parent process ends. Also forbid others to inspect this process or give it new rights."""
    set_process(PR_SET_DUMPABLE, 0)
    set_process(PR_SET_NO_NEW_PRIVS, 1)
    set_process(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def require_filter() -> None:
    """Raise `CannotConfine` early if the kernel has no filter for system calls."""
    machine = platform.machine()
    if machine not in MACHINES or sys.maxsize < 2**32 or sys.byteorder != "little":
        raise CannotConfine(
            f"there is no list of system calls for {machine}; there is one for {' and '.join(MACHINES)}"
        )


def lock() -> None:
    """Put the filter on all threads, then test it. Raises `CannotConfine` if it does not hold."""
    install_filter(program(platform.machine()))
    require_refused(
        "its seccomp filter lets code",
        ("open a file", lambda: os.open("/", os.O_RDONLY)),
        ("look at a file", lambda: os.stat("/")),
        ("make a socket", lambda: call_kernel(41 if platform.machine() == "x86_64" else 198, 1, 1, 0)),
        ("start a process", lambda: os.fork() or os._exit(0)),
        ("signal another process", lambda: os.kill(os.getpid(), 0)),
        error=errno.EPERM,  # Landlock's own is another
    )


def install_filter(code: bytes) -> None:
    """Put a filter on all threads. Raises `CannotConfine`."""
    filter_ = _Program(len(code) // 8, code)
    try:
        refused = call_kernel(
            _SYS_SECCOMP[platform.machine()], _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, filter_
        )
    except OSError as problem:
        raise CannotConfine(f"the kernel takes no seccomp filter ({problem.strerror})") from None
    if refused:
        raise CannotConfine(f"the filter could not be put on thread {refused}")


def require_refused(words: str, *attempts: tuple[str, Callable[[], object]], error: int = 0) -> None:
    """Try once what must be refused, with this error (0 for any). Raises `CannotConfine` if something is not."""
    for what, attempt in attempts:
        try:
            attempt()
        except OSError as refusal:
            if error in (0, refusal.errno):
                continue
        raise CannotConfine(f"{words} {what}")
