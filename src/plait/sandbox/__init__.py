"""The Python sessions that code actions run in, the sandboxes that open them, and the choice of the default.

session = await sandbox().open(Settings(functions=frozenset({"weather"})))
turn = await session.run("print(weather('Oslo'))", now=0.0)     # turn.calls: weather('Oslo')
turn = await session.go_on([Result("rain")])                     # turn.output: "rain\\n"
"""

from __future__ import annotations

import platform
import sys
from functools import cache
from pathlib import Path

from plait.core.errors import ConfigError
from plait.sandbox.base import OutCall as OutCall
from plait.sandbox.base import Result as Result
from plait.sandbox.base import Sandbox as Sandbox
from plait.sandbox.base import SandboxSession as SandboxSession
from plait.sandbox.base import SandboxTurn as SandboxTurn
from plait.sandbox.base import Settings as Settings
from plait.sandbox.confine_filter import MACHINES

BACKENDS = {
    "process": "all of CPython, in a process that the kernel confines",
    "monty": "pydantic-monty, a small Python without access to the machine",
}
"""The sandboxes by name, each with a description."""

AUTO = "auto"
"""The default: `process` where the kernel can confine it, else `monty`."""

_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
_opened: set[str] = set()
_refused: dict[str, str] = {}  # by name: why a session could not be opened


def sandbox(name: str = AUTO) -> Sandbox:
    """Return the sandbox of that name: `auto`, one of `BACKENDS`, or `process:` and installed packages. Raises
    `ConfigError` for another name, and for a package that is not installed."""
    name = default_sandbox()[0] if name == AUTO else name
    if name == "monty":
        from plait.sandbox.monty import MontySandbox

        return MontySandbox()
    if name.partition(":")[0] == "process":
        from plait.sandbox.process import Process

        return Process(packages_of(name))
    hint = f"There are: {AUTO}, {', '.join(BACKENDS)}; process:pandas,numpy also has installed packages."
    raise ConfigError(f"There is no sandbox {name!r}.", hint=hint)


def name_of(chosen: str | Sandbox) -> str:
    """Return a sandbox's name; for `auto`, that of the default."""
    if not isinstance(chosen, str):
        return chosen.name
    return default_sandbox()[0] if chosen == AUTO else chosen


def packages_of(chosen: str | Sandbox) -> tuple[str, ...]:
    """Return the names of the packages that code of a sandbox may import."""
    kind, _, packages = name_of(chosen).partition(":")
    return tuple(each.strip() for each in packages.split(",")) if packages and kind == "process" else ()


def modules_of(chosen: str | Sandbox) -> tuple[str, ...]:
    """Return the modules that code of a sandbox may import of installed packages. Raises `ConfigError`."""
    from plait.sandbox.packages import find_packages

    return find_packages(packages).modules if (packages := packages_of(chosen)) else ()


def default_sandbox() -> tuple[str, str]:
    """Return the default sandbox, and why it is not `process` ("" if it is). Reads one file at most."""
    if not (why := _refused.get("process", "")):
        if sys.platform != "linux":
            why = f"{sys.platform} has no seccomp filters"
        elif platform.machine() not in MACHINES:
            why = f"there is no list of system calls for {platform.machine()}"
        elif not {"errno", "kill_process"} <= _seccomp_actions(_ACTIONS):
            why = "the kernel has no seccomp filters"
    return ("monty", why) if why else ("process", "")


async def check_sandbox(chosen: str | Sandbox) -> None:
    """Raise `ConfigError` if no session can be opened: a package is missing, or the kernel cannot confine code. Opens a
    session once per process. If `process` was only the default, `monty` becomes the default instead."""
    name = name_of(chosen)
    if name in _opened or not (isinstance(chosen, str) or packages_of(chosen)):
        return
    try:
        session = await (sandbox(name) if isinstance(chosen, str) else chosen).open(Settings())
    except ConfigError as why:
        if chosen == AUTO and name == "monty":
            problem = f"Code cannot run here: 'process' is not available ({default_sandbox()[1]})"
            raise ConfigError(f"{problem}, and 'monty' is not installed.", hint=why.hint) from why
        if chosen != AUTO or name != "process":
            raise
        _refused[name] = why.message.rstrip(".")
        await check_sandbox(chosen)
        return
    _opened.add(name)
    await session.close()


@cache
def _seccomp_actions(file: Path) -> frozenset[str]:
    try:
        return frozenset(file.read_text().split())
    except OSError:
        return frozenset()
