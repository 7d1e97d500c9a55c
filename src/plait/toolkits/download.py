"""Downloads from addresses that a model gives, from the open network only.

A model's address may come from a page that wants to reach what only this machine can. So every name is looked up here,
and an address that is not public is not connected to, neither in the first place nor after a redirect.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from plait.core.errors import ToolError
from plait.toolkits.service import SECONDS, describe_failure, find_proxy, open_session, read_body, too_many_requests

REDIRECTS = 5


async def download(url: str, most: int, *, seconds: float = SECONDS, private: bool = False) -> bytes:
    """Returns the bytes at an http(s) address, at most `most`, after at most five redirects.

    Addresses of this machine and of private networks are refused unless `private`. Behind a proxy the proxy looks
    names up: there only addresses in numbers are checked here. Raises `ToolError`.
    """
    for _ in range(REDIRECTS + 1):
        host = _check_address(url, private)
        proxy = find_proxy(url)
        connector = None if private or proxy else aiohttp.TCPConnector(resolver=PublicResolver(), use_dns_cache=False)
        try:
            async with (
                open_session(seconds, connector) as session,
                session.get(url, allow_redirects=False, proxy=proxy) as response,
            ):
                if response.status in (301, 302, 303, 307, 308) and "Location" in response.headers:
                    url = urljoin(url, response.headers["Location"])
                    continue
                if response.status == 429:
                    raise too_many_requests(host, response.headers.get("Retry-After", ""))
                if response.status != 200:
                    said = f"{response.status} {response.reason or ''}".rstrip()
                    raise ToolError(f"{host} answered {said}.", hint="Check the address.")
                return await read_body(response, most, host)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, aiohttp.ClientConnectorDNSError) and "not public" in str(error):
                raise _not_public(host) from None
            said = describe_failure(error, seconds)
            raise ToolError(f"{host} can't be reached: {said}.", hint="Check the address.") from None
    raise ToolError(f"The address leads to more than {REDIRECTS} others in turn.", hint="Give the last of them.")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Tells whether anyone may reach it: not this machine, private and link-local networks, and IPv6 forms of those."""
    inner: Any = None
    if isinstance(address, IPv6Address):
        teredo = address.teredo
        inner = address.ipv4_mapped or address.sixtofour or (teredo and teredo[1])
        if inner is None and int(address) >> 32 in (0x64FF9B << 64, 0):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None and not is_public(inner):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _check_address(url: str, private: bool) -> str:
    """Returns the address's host as it is connected to, in which other scripts' digits and dots are plain ones.

    Raises `ToolError` for what is not an http(s) address, and for one in numbers that is not public.
    """
    try:
        parts = urlsplit(url)
        host, _ = URL(url).raw_host, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or len(url) > 4000:
        raise ToolError(f"{url[:80]!r} is no address of the web.", hint="It looks like https://host/picture.jpg.")
    if not private:
        name = host.partition("%")[0].rstrip(".")
        try:
            closed = not is_public(ip_address(name))
        except ValueError:
            # What is all numbers may be connected to without being looked up, such as 127.1.
            numbers = ":" in name or name.replace(".", "").isdigit()
            closed = numbers or name == "localhost" or name.endswith(".localhost")
        if closed:
            raise _not_public(host)
    return host


def _not_public(host: str) -> ToolError:
    return ToolError(f"{host[:80]} is not on the open network.", hint="Only public addresses can be downloaded from.")


def look_up(host: str, port: int, family: int) -> list[Any]:
    """Returns the addresses of a name. Raises `OSError` if any of them is not public."""
    found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    for *_, address in found:
        if not is_public(ip_address(str(address[0]).partition("%")[0])):
            raise OSError(None, f"{host} is not public")
    return found


class PublicResolver(AbstractResolver):
    """Looks names up for aiohttp and gives public addresses only: what is connected to is what was checked."""

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
        """Does nothing: nothing is held open."""
