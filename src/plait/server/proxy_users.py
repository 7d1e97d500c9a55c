"""Users whose names a reverse proxy sends in a header, and the checks of the settings for users.

The header counts only if the other end of the connection is one of the configured proxies. From elsewhere it is
ignored, so that nobody can choose a name.
"""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers
from starlette.types import Scope

from plait.config import ServeTable
from plait.core.errors import ConfigError
from plait.server.auth import ROLES, find_fault_of_name
from plait.server.errors import RequestRejected


class ProxyUsers:
    """Reads the user's name from the header of a proxy. Raises `ConfigError` for settings that make no sense."""

    def __init__(self, table: ServeTable) -> None:
        self._header = table.user_header.lower().encode()
        for name, roles in table.roles.items():
            if unknown := [each for each in roles if each not in ROLES]:
                text = f"[serve.roles] gives {name!r} the role {unknown[0]!r}, which does not exist."
                raise ConfigError(text, hint=f"Use {', '.join(ROLES)}.")
            if name != "*" and (wrong := find_fault_of_name(name)):
                raise ConfigError(f"[serve.roles] has the user {name!r}. A user's name {wrong}.")
        if bool(table.user_header) != bool(table.proxies):
            missing, given = ("proxies", "user_header") if table.user_header else ("user_header", "proxies")
            text = f"[serve] has {given} without {missing}."
            raise ConfigError(text, hint='Set both, such as "X-Forwarded-User" and ["127.0.0.1"].')
        if not re.fullmatch(r"([A-Za-z0-9]+(-[A-Za-z0-9]+)*)?", table.user_header):
            text = f"user_header in [serve] is {table.user_header!r}, which is not a header's name."
            raise ConfigError(text, hint="Use letters, digits and single '-', such as X-Forwarded-User.")
        self._proxies = list[ipaddress.IPv4Network | ipaddress.IPv6Network]()
        for proxy in table.proxies:
            try:
                self._proxies.append(ipaddress.ip_network(proxy))
            except ValueError as why:
                text = f"proxies in [serve] has {proxy!r}, which is not a network: {why}."
                hint = 'Give addresses or networks, such as "127.0.0.1" or "10.0.0.0/8".'
                raise ConfigError(text, hint=hint) from None
            if not self._proxies[-1].prefixlen:
                text = f"proxies in [serve] has {proxy!r}: then everybody could choose a name."
                raise ConfigError(text, hint="Give the addresses of your proxies.")

    @property
    def are_set(self) -> bool:
        return bool(self._proxies)

    def restore_prefix(self, scope: Scope, headers: Headers) -> None:
        """Put the prefix before the path that a proxy removed from it, and names in X-Forwarded-Prefix."""
        prefix = headers.get("x-forwarded-prefix", "").rstrip("/")
        if re.fullmatch(r"(/[\w~-][\w.~-]*)+", prefix, re.ASCII) and self._is_proxy(scope):
            scope["root_path"], scope["path"] = prefix + scope.get("root_path", ""), prefix + scope["path"]

    def _is_proxy(self, scope: Scope) -> bool:
        host = (scope.get("client") or ("",))[0]
        try:
            address = ipaddress.ip_address(host)
        except ValueError:  # a local socket has no address
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._proxies)

    def find_name(self, scope: Scope) -> str:
        """Return the name that a proxy sent, "" for none. Raises `RequestRejected` for one that cannot be used."""
        if not self._is_proxy(scope):
            return ""
        values = [value for name, value in scope["headers"] if name.lower() == self._header]
        try:
            name = b",".join(values).decode()
            wrong = find_fault_of_name(name) if values else ""
        except UnicodeDecodeError:
            wrong = "is not UTF-8"
        if wrong:
            text, header = f"The user's name {wrong}.", self._header.decode()
            hint = f"The proxy must replace the header {header} of its clients by one with the user's name."
            raise RequestRejected(400, text, hint=hint, code="bad_user", metric="token")
        return name
