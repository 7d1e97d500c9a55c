"""The process that runs a shell command: it builds the command's own root folder, locks itself, and starts the shell.

Three processes: this one waits outside; its child is the first process of a PID namespace, so that all that the
command started ends with it; the shell is a child of that. Stdlib only, like the workers of the process sandbox.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import signal
import stat
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from plait.sandbox import confine
from plait.sandbox.confine import CannotConfine, call_kernel, require_refused, set_process
from plait.sandbox.confine_filter import command_program

_SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /nix/store /gnu/store /run/current-system"
_ETC = """alternatives bash.bashrc ca-certificates debian_version fonts gai.conf group host.conf hosts inputrc java
ld.so.cache ld.so.conf ld.so.conf.d locale.alias localtime login.defs magic mime.types nsswitch.conf os-release
passwd pki/tls/certs profile protocols python3 R services shells ssl/certs ssl/openssl.cnf terminfo timezone"""
READABLE = (*_SYSTEM.split(), *(f"/etc/{name}" for name in _ETC.split()))
"""What a command reads of the machine: programs, libraries, and some files of /etc. Others may hold secrets."""
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}

_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""Linux's flags for mounts, cgroups, the host's name, IPC, users, processes and the network."""
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18  # linux/mount.h
_RDONLY, _RECURSIVE, _DETACH, _AT_FDCWD = 1, 0x8000, 2, -100
_PR_CAPBSET_DROP = 24
_SYS = {"x86_64": {"pivot_root": 155, "capset": 126}, "aarch64": {"pivot_root": 41, "capset": 91}}
_SYS_MOUNT_SETATTR = 442
_libc = ctypes.CDLL(None, use_errno=True)


def start(settings: str, status: str) -> NoReturn:
    """Run the command that the settings describe and exit with its exit code, or write to `status` what is missing."""
    _enter(_run, json.loads(settings), int(status))


def _run(settings: dict[str, Any], status: int) -> int:
    confine.require_filter()
    _end_with_parent()
    if os.getppid() != settings["parent"]:
        return 125
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NAMESPACES):
        raise CannotConfine(f"the kernel gives no namespaces ({os.strerror(ctypes.get_errno())})")
    try:
        for name, line in ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    except OSError as problem:
        raise CannotConfine(f"the kernel gives no user namespace ({problem.strerror})") from None
    _end_with_parent()
    alive, mine = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(mine)
        _enter(_first_process, settings, status, alive)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    os.close(status)
    _, ended = os.waitpid(first, 0)  # the kernel ends all processes of the namespace before this returns
    return _exit_code(ended)


def _enter(work: Callable[..., int], settings: dict[str, Any], status: int, *rest: Any) -> NoReturn:
    """Exit with the code that the work returns."""
    code = 125
    try:
        code = work(settings, status, *rest)
    except (CannotConfine, OSError) as problem:
        with contextlib.suppress(OSError):  # it is closed once the command can start
            os.write(status, str(problem).encode())
    finally:  # never back into the caller, whatever happens
        os._exit(code)


def _first_process(settings: dict[str, Any], status: int, alive: int) -> int:
    _end_with_parent()
    os.set_blocking(alive, False)
    try:
        os.read(alive, 1)
        return 125  # the parent ended before it was watched
    except BlockingIOError:
        os.close(alive)
    folder = settings["folder"]
    _build_root(folder, settings)
    set_process(confine.PR_SET_DUMPABLE, 0)
    set_process(confine.PR_SET_NO_NEW_PRIVS, 1)
    for capability in range(64):  # for the programs that it starts, too, also if it is root
        _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), *[ctypes.c_ulong(0)] * 3)
    header = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)
    call_kernel(_SYS[platform.machine()]["capset"], header, bytes(24))
    rules = [("/", confine.READ_AND_RUN), ("/dev", confine.DEVICES)]
    rules += [(path, confine.ALL_BUT_DEVICES) for path in ("/tmp", "/dev/shm", folder)]
    if not confine.landlock(rules):
        raise CannotConfine("the kernel has no Landlock")
    confine.install_filter(command_program(platform.machine()))
    require_refused(
        "the confinement lets a command",
        ("make a socket", lambda: call_kernel(41 if platform.machine() == "x86_64" else 198, 2, 1, 0)),
        ("make namespaces", lambda: call_kernel(272 if platform.machine() == "x86_64" else 97, 0x10000000)),
        ("write outside of its folder", lambda: os.open("/plait", os.O_CREAT | os.O_WRONLY)),
        ("become another user", lambda: os.setuid(os.getuid() + 1)),
    )
    os.write(status, b"ready")
    os.closerange(3, 1024)
    shell = os.fork()
    if shell == 0:
        _enter(_start_shell, settings, status)
    while True:
        ended, code = os.wait()
        if ended == shell:
            return _exit_code(code)


def _start_shell(settings: dict[str, Any], _: int) -> int:
    confine.set_limits(settings["limits"])
    _end_with_parent()
    os.chdir(settings["folder"])
    os.execve("/bin/sh", ["sh", "-c", settings["command"]], settings["environment"])
    return 127


def _end_with_parent() -> None:
    set_process(confine.PR_SET_PDEATHSIG, signal.SIGKILL)


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _build_root(folder: str, settings: dict[str, Any]) -> None:
    """Make a root folder in memory that shows only what a command needs, and leave the machine's own for good."""
    _mount("", "/", "", _REC | _PRIVATE)
    shown = (folder, *settings["readable"])
    opened = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in shown]  # /tmp may hide their paths below
    if settings["inodes"] and [os.fstat(each).st_ino for each in opened] != settings["inodes"]:
        raise CannotConfine("a folder of the shell is not the one that it was")
    root = "/tmp"
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=2k,mode=755")
    for path in READABLE:
        _show(path, root)
    os.mkdir(f"{root}/dev")
    for name in DEVICES:
        open(f"{root}/dev/{name}", "w").close()
        _mount(f"/dev/{name}", f"{root}/dev/{name}", "", _BIND)
    for name, target in LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    os.mkdir(f"{root}/proc")
    if tuple(map(int, platform.release().split("-")[0].split(".")[:2])) >= (6, 14):  # before, it is the machine's own
        with contextlib.suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:
            file.write(str(settings["pids"]))  # also bounds root's processes
    with contextlib.suppress(OSError):  # a container that hides parts of /proc allows no other; commands do without
        # Only the processes: the files of the kernel tell of the whole machine.
        _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC, "subset=pid")
        _restrict(f"{root}/proc", _RDONLY)
    if _libc.sethostname(b"plait", 5):
        raise CannotConfine("the kernel gives no namespace for the host's name")
    for path in ("/tmp", "/dev/shm"):
        os.mkdir(root + path)
        _mount("tmpfs", root + path, "tmpfs", _NOSUID | _NODEV, f"size={settings['tmp_mb']}m,nr_inodes=50k,mode=700")
    for path, descriptor in reversed(tuple(zip(shown, opened, strict=True))):
        os.makedirs(root + path, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", root + path, "", _BIND | _REC)
        _restrict(root + path, _NOSUID | _NODEV | (0 if path == folder else _RDONLY))
    os.chdir(root)
    call_kernel(_SYS[platform.machine()]["pivot_root"], b".", b".")
    if _libc.umount2(b".", _DETACH):
        raise CannotConfine("the machine's files could not be unmounted")
    os.chdir("/")
    _restrict("/", _RDONLY, 0)


def _show(path: str, root: str) -> None:
    """Show a file or a folder of the machine in the new root, read-only. A link stays a link."""
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        return
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if stat.S_ISLNK(kind):
        os.symlink(os.readlink(path), target)
        return
    if stat.S_ISDIR(kind):
        os.mkdir(target)
    elif stat.S_ISREG(kind):
        open(target, "w").close()
    else:
        return
    _mount(path, target, "", _BIND | _REC)
    _restrict(target, _RDONLY | _NOSUID | _NODEV)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    if _libc.mount(*map(os.fsencode, (source, target, kind)), ctypes.c_ulong(flags), options.encode()):
        raise OSError(ctypes.get_errno(), f"{target} can't be mounted ({os.strerror(ctypes.get_errno())})")


def _restrict(path: str, attributes: int, flags: int = _RECURSIVE) -> None:
    attr = attributes.to_bytes(8, sys.byteorder) + bytes(24)
    call_kernel(_SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attr, len(attr))
