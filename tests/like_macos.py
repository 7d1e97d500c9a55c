"""Makes this process look like macOS to Plait: no /proc, and none of what only Linux has. Import it before Plait.

The standard library and other packages are imported before, because they choose their code by the platform.
"""

import asyncio
import ctypes
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
from importlib import import_module
from typing import Any

import pydantic_monty

PACKAGES = (
    "aiohttp",
    "pydantic",
    "click",
    "rich.console",
    "jinja2",
    "mcp.client.stdio",
    "uvicorn",
    "starlette",
    "psycopg_pool",
)
ONLY_LINUX = {
    os: (
        *("memfd_create", "eventfd", "sched_getaffinity", "sched_setaffinity", "pidfd_open", "setresuid", "setresgid"),
        *("O_PATH", "O_TMPFILE", "O_DIRECT", "O_NOATIME", "O_RSYNC", "unshare", "setns", "splice", "posix_fadvise"),
        *(
            "posix_fallocate",
            "fdatasync",
            "getrandom",
            "getxattr",
            "setxattr",
            "copy_file_range",
            "pipe2",
            "GRND_NONBLOCK",
        ),
        *(name for name in dir(os) if name.startswith(("MFD_", "EFD_", "CLONE_", "SCHED_", "SPLICE_", "XATTR_"))),
    ),
    resource: ("prlimit", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_SIGPENDING", "RLIMIT_OFILE"),
    signal: ("SIGSTKFLT", "SIGPWR", "SIGPOLL", "SIGCLD", "SIGRTMIN", "SIGRTMAX", "sigwaitinfo", "sigtimedwait"),
    socket: ("SO_PEERCRED", "AF_NETLINK", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "SO_DOMAIN", "SO_PROTOCOL"),
}


def look_like_macos() -> None:
    """Hide what only Linux has. Cannot be undone in this process."""
    import fcntl

    for name in PACKAGES:
        import_module(name)
    assert asyncio and subprocess and pydantic_monty  # imported before the platform changes
    for module, names in {**ONLY_LINUX, fcntl: tuple(n for n in dir(fcntl) if "SEAL" in n or "OFD" in n)}.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
    platform.machine = lambda: "arm64"
    platform.system = lambda: "Darwin"
    platform.release = lambda: "25.1.0"
    readlink, stat = os.readlink, os.stat

    def hide(path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(("/proc", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", path)

    def hidden(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir"):
            hide(arguments[0])

    sys.addaudithook(hidden)
    os.readlink = lambda path, **more: hide(path) or readlink(path, **more)  # type: ignore[assignment]
    os.stat = lambda path, **more: hide(path) or stat(path, **more)  # type: ignore[assignment]
    library = type(ctypes.CDLL(None))

    def find(self: Any, name: str) -> Any:
        if name in ("prctl", "unshare", "mallopt", "setns"):
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return found(self, name)

    found, library.__getattr__ = library.__getattr__, find  # type: ignore[method-assign]
