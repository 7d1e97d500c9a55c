"""Downloads from addresses that a model gives, from the public network only.

A model's address may come from a page that wants to reach this machine's private network. So every name is looked up
here, and Plait never connects to an address that is not public, even after a redirect.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from plait.addresses import read_address
from plait.core.errors import ToolError
from plait.toolkits.service import SECONDS, describe_failure, open_session, read_body, require_proxy, too_many_requests

REDIRECTS = 5


@dataclass(frozen=True)
class Downloaded:
    """The response of an address: the address after all redirects, the header Content-Type, and the bytes."""

    url: str
    content_type: str
    data: bytes


async def download_page(
    url: str,
    max_bytes: int,
    *,
    seconds: float = SECONDS,
    private: bool = False,
    hosts: Collection[str] = (),
    accept: str = "*/*",
) -> Downloaded:
    """Return what is at an http(s) address, at most `max_bytes`, after at most five redirects.

    Addresses of this machine and of private networks are refused unless `private`, and hosts that are not in `hosts`
    if there are any. Behind a proxy, the proxy looks names up, so only numeric addresses are checked here. Raises
    `ToolError`.
    """
    for _ in range(REDIRECTS + 1):
        address = _check_address(url, private)
        host = (address.raw_host or "").rstrip(".")
        if hosts and host not in hosts:
            raise ToolError(f"The host {host[:80]} is not allowed.", hint=f"Allowed: {', '.join(hosts)}.")
        proxy = require_proxy(url, host)
        connector = None if private or proxy else aiohttp.TCPConnector(resolver=PublicResolver(), use_dns_cache=False)
        try:
            async with (
                open_session(seconds, connector) as session,
                session.get(
                    address, allow_redirects=False, proxy=proxy and proxy.url, headers={"Accept": accept}
                ) as response,
            ):
                if response.status in (301, 302, 303, 307, 308) and "Location" in response.headers:
                    url = urljoin(url, response.headers["Location"])
                    continue
                if response.status == 429:
                    raise too_many_requests(host, response.headers.get("Retry-After", ""))
                if response.status != 200:
                    said = f"{response.status} {response.reason or ''}".rstrip()
                    raise ToolError(f"{host} answered {said}.", hint="Check the address.")
                data = await read_body(response, max_bytes, host)
                return Downloaded(url, response.headers.get("Content-Type", ""), data)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, aiohttp.ClientConnectorDNSError) and "not public" in str(error):
                raise _not_public(host) from None
            said = describe_failure(error, seconds, proxy)
            raise ToolError(f"{host} can't be reached{said}.", hint="Check the address.") from None
    raise ToolError(f"The address leads to more than {REDIRECTS} others in turn.", hint="Give the last of them.")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is public: not this machine, private or link-local networks, or their IPv6 forms."""
    inner: Any = None
    if isinstance(address, IPv6Address):
        teredo = address.teredo
        inner = address.ipv4_mapped or address.sixtofour or (teredo and teredo[1])
        if inner is None and int(address) >> 32 in (0x64FF9B << 64, 0):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None and not is_public(inner):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _check_address(url: str, private: bool) -> URL:
    """Return the address. Raises `ToolError` if it is not a plain http(s) address, or numeric and not public."""
    try:
        address = read_address(url)
    except ValueError as why:
        raise ToolError(f"{url[:80]!r} is not a web address: {why}.", hint="Write https://HOST/PATH.") from None
    name = (address.raw_host or "").rstrip(".")
    if private:
        return address
    try:
        closed = not is_public(ip_address(name))
    except ValueError:
        closed = name == "localhost" or name.endswith(".localhost")
    if closed:
        raise _not_public(name)
    return address


def _not_public(host: str) -> ToolError:
    return ToolError(f"{host[:80]} is not on the open network.", hint="Only public addresses can be downloaded from.")


def look_up(host: str, port: int, family: int) -> list[Any]:
    """Return the addresses of a name. Raises `OSError` if any of them is not public."""
    found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    for *_, address in found:
        if not is_public(ip_address(str(address[0]).partition("%")[0])):
            raise OSError(None, f"{host} is not public")
    return found


class PublicResolver(AbstractResolver):
    """Looks names up for aiohttp and returns only public addresses, so the connected address is the checked one."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=int(address[1]), family=kind, proto=protocol, flags=flags
            )
            for kind, _, protocol, _, address in await asyncio.to_thread(look_up, host, port, family)
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
