"""The checks of the server's settings before it listens."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from msgspec import structs

from plait.config import ServeTable
from plait.core.errors import ConfigError
from plait.server.auth import AccessTokens

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def override_address(table: ServeTable, host: str | None, port: int | None) -> ServeTable:
    """Return the settings with the host and the port of the command line."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return structs.replace(table, **given)


def check_settings(table: ServeTable, tokens: AccessTokens, file: Path | None = None) -> ServeTable:
    """Return the settings if the server can listen with them. `file` is where they come from. Raises `ConfigError`."""
    if not 0 <= table.port <= 65535:
        raise ConfigError(
            f"{_place(file)} port is {table.port}, which does not exist.", hint="Ports go from 0 (a free one) to 65535."
        )
    check_limits(table, file)
    if not is_loopback(table.host) and not tokens.needs_token:
        raise ConfigError(
            f"Without a token the server listens on this machine alone, and {table.host} is another address.",
            hint="Set PLAIT_SERVE_TOKEN, or leave --host at 127.0.0.1.",
        )
    return table


def check_limits(table: ServeTable, file: Path | None = None) -> ServeTable:
    """Return the settings if their limits are valid. Raises `ConfigError`."""
    for name in ("concurrent", "seconds", "body_mb", "body_seconds", "connections"):
        if not getattr(table, name) > 0:
            raise ConfigError(f"{_place(file)} {name} is {getattr(table, name)}, which is not above zero.")
    for name in ("queued", "grace"):
        if getattr(table, name) < 0:
            raise ConfigError(f"{_place(file)} {name} is {getattr(table, name)}, which is below zero.")
    return table


def _place(file: Path | None) -> str:
    return f"{file}, table [serve]:" if file is not None else "[serve]"
