"""The Python sessions that code actions run in, and the sandboxes that open them.

session = await sandbox().open(Settings(functions=frozenset({"weather"})))
turn = await session.run("print(weather('Oslo'))", now=0.0)     # turn.calls: weather('Oslo')
turn = await session.go_on([Result("rain")])                     # turn.output: "rain\\n"
"""

from __future__ import annotations

from plait.core.errors import ConfigError
from plait.sandbox.base import OutCall, Result, Sandbox, SandboxSession, SandboxTurn, Settings
from plait.sandbox.choosing import AUTO, check_sandbox, default_sandbox, name_of

__all__ = [
    "AUTO",
    "BACKENDS",
    "OutCall",
    "Result",
    "Sandbox",
    "SandboxSession",
    "SandboxTurn",
    "Settings",
    "check_sandbox",
    "default_sandbox",
    "name_of",
    "sandbox",
]

BACKENDS = {
    "process": "the whole of CPython, in a process that the kernel confines",
    "monty": "Python as pydantic-monty knows it: small, fast, with nothing of the machine in reach",
}
"""The sandboxes by name, each with a description."""


def sandbox(name: str = AUTO) -> Sandbox:
    """Return the sandbox of that name. Raises `ConfigError` for a name other than `BACKENDS` and `auto`."""
    if name == AUTO:
        name = default_sandbox()[0]
    if name == "monty":
        from plait.sandbox.monty import MontySandbox

        return MontySandbox()
    if name == "process":
        from plait.sandbox.process import ProcessSandbox

        return ProcessSandbox()
    raise ConfigError(f"There is no sandbox {name!r}.", hint=f"There are: {AUTO}, {', '.join(BACKENDS)}.")
