"""The HTTP proxies that the environment sets (HTTPS_PROXY, ALL_PROXY, NO_PROXY ...)."""

from __future__ import annotations

import ipaddress
import os
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit


class Proxy(NamedTuple):
    """A proxy: its address, the variable that sets it, and why it cannot be used ("": it can)."""

    url: str
    variable: str
    fault: str = ""

    @property
    def shown(self) -> str:
        """Return the address without user and password, and the variable."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]} ({self.variable})" if self.url else f"of {self.variable}"


@lru_cache(maxsize=256)
def find_proxy(scheme: str, host: str, port: int) -> Proxy | None:
    """Return the proxy for an address; None for none, and for this machine. A process reads the environment once for
    each address. aiohttp's own look-up reads it, and .netrc, every time."""
    if is_this_machine(host):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies: dict[str, str] = getproxies()
    kind = scheme if proxies.get(scheme) else "all"
    value = proxies.get(kind, "")
    if not value or proxy_bypass(f"{host}:{port}"):
        return None
    names = (f"{kind}_proxy", f"{kind}_PROXY".upper())
    variable = next((name for name in names if os.environ.get(name) == value), "the system's settings")
    url = value.strip() if "://" in value else f"http://{value.strip()}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme.lower() in ("http", "https")
        fault = "" if usable else f"Plait can use HTTP proxies only, and this one is {parts.scheme.upper()}"
        return Proxy(url, variable, fault if parts.hostname and parts.port != 0 else "its address has no host or port")
    except ValueError:
        return Proxy("", variable, "its address cannot be read")


def is_this_machine(host: str) -> bool:
    """Return whether a host's name or address is that of this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
