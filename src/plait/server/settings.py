"""The checks of the server's settings before it listens."""

from __future__ import annotations

import ipaddress

from plait.config import ServeTable
from plait.core.errors import ConfigError
from plait.server.auth import AccessTokens

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_settings(table: ServeTable, tokens: AccessTokens) -> ServeTable:
    """Return the settings if the server can listen with them. Raises `ConfigError`."""
    if not is_loopback(table.host) and not tokens.needs_token:
        raise ConfigError(
            f"Without a token the server listens on this machine alone, and {table.host} is another address.",
            hint="Set PLAIT_SERVE_TOKEN, or leave --host at 127.0.0.1.",
        )
    return table
