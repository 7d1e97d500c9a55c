"""What the server is started with: where it listens, its limits, the agents it serves."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from plait.agent import Agent
from plait.config import ServeTable
from plait.core.errors import UsageError
from plait.window.callers import Door

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ServedAgent:
    """An agent under the name that clients ask it by. `thoughts`: whether its thoughts are told to them."""

    name: str
    agent: Agent
    description: str = ""
    thoughts: bool = False
    created: int = field(default_factory=lambda: int(time.time()))


def served(name: str, agent: Agent, table: ServeTable, *, description: str = "", thoughts: bool = False) -> ServedAgent:
    """An agent as the server runs it: within the server's time for a run. Raises `UsageError` for a bad name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be an agent's name.", hint="Letters, digits, '.', '_' and '-', 64 of them at most."
        )
    own = agent.limits.seconds
    limits = structs.replace(agent.limits, seconds=table.seconds if own is None else min(own, table.seconds))
    return ServedAgent(name, agent.using(limits=limits), description, thoughts)


def by_name(agents: Iterable[ServedAgent]) -> dict[str, ServedAgent]:
    """The agents by name, in order. Raises `UsageError` where there is none."""
    found = {each.name: each for each in agents}
    if not found:
        raise UsageError("There is no agent to serve.", hint="Name one in plait.toml: [agents.NAME].")
    return found


def is_loopback(host: str) -> bool:
    """The address is this machine's own, reached by nobody else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def checked(table: ServeTable, door: Door, file: Path | None = None) -> ServeTable:
    """The settings, looked at before anything is bound; `file` is where they stand. Raises `UsageError`."""
    if not 0 <= table.port <= 65535:
        raise UsageError(
            f"{_place(file)} port is {table.port}, and there is no such port.",
            hint="Ports go from 0 (a free one) to 65535.",
        )
    bounded(table, file)
    if not is_loopback(table.host) and not door.locked:
        raise UsageError(
            f"Without a token the server listens on this machine alone, and {table.host} is not that.",
            hint="Set PLAIT_SERVE_TOKEN, or leave --host at 127.0.0.1.",
        )
    return table


def bounded(table: ServeTable, file: Path | None = None) -> ServeTable:
    """The settings, their limits looked at. Raises `UsageError`."""
    for name in ("concurrent", "seconds", "body_mb", "body_seconds", "connections"):
        if not getattr(table, name) > 0:
            raise UsageError(f"{_place(file)} {name} is {getattr(table, name)}, which is not above zero.")
    for name in ("queued", "grace"):
        if getattr(table, name) < 0:
            raise UsageError(f"{_place(file)} {name} is {getattr(table, name)}, which is below zero.")
    return table


def _place(file: Path | None) -> str:
    return f"{file}, table [serve]:" if file is not None else "[serve]"


def with_flags(table: ServeTable, host: str | None, port: int | None) -> ServeTable:
    """The table, changed by what the command line says."""
    said = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return structs.replace(table, **said)
