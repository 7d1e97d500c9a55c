"""The choice of the default sandbox, and the check that a sandbox is available on this machine."""

from __future__ import annotations

import platform
import sys
from functools import cache
from pathlib import Path

from plait.core.errors import ConfigError
from plait.sandbox.base import Sandbox, Settings
from plait.sandbox.confine_filter import MACHINES

AUTO = "auto"
"""The default: `process` where the kernel can confine it, else `monty`."""

_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
_opened: set[str] = set()
_refused: dict[str, str] = {}  # by name: why a session could not be opened


def name_of(chosen: str | Sandbox) -> str:
    """Return a sandbox's name; for `auto`, that of the default."""
    if not isinstance(chosen, str):
        return chosen.name
    return default_sandbox()[0] if chosen == AUTO else chosen


def default_sandbox() -> tuple[str, str]:
    """Return the default sandbox, and why it is not `process` ("" if it is). Reads one file at most."""
    why = _refused.get("process", "") or _without_process()
    return ("monty", why) if why else ("process", "")


async def check_sandbox(chosen: str | Sandbox) -> None:
    """Raise `ConfigError` if no session can be opened: a package is missing, or the kernel cannot confine code.

    Opens a session once per process. If `process` was only the default, `monty` becomes the default instead.
    """
    name = name_of(chosen)
    if not isinstance(chosen, str) or name in _opened:
        return
    from plait.sandbox import sandbox

    try:
        session = await sandbox(name).open(Settings())
    except ConfigError as why:
        if chosen != AUTO or name != "process":
            raise
        _refused[name] = why.message.rstrip(".")
        await check_sandbox(chosen)
        return
    _opened.add(name)
    await session.close()


def _without_process() -> str:
    if sys.platform != "linux":
        return f"{sys.platform} has no seccomp filters"
    if platform.machine() not in MACHINES:
        return f"there is no list of system calls for {platform.machine()}"
    return "" if {"errno", "kill_process"} <= _seccomp_actions(_ACTIONS) else "the kernel has no seccomp filters"


@cache
def _seccomp_actions(file: Path) -> frozenset[str]:
    try:
        return frozenset(file.read_text().split())
    except OSError:
        return frozenset()
