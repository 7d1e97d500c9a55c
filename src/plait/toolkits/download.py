"""Fetches what an address given by a model leads to, from the open network only.

A model's address may come from a page that wants to reach what only this machine can: so every name is looked up
here, and an address that is not public is not connected to, in the first place and after every redirect.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from plait.core.errors import ToolError
from plait.toolkits.http import SECONDS, limited, opened, proxy, read, trouble

if TYPE_CHECKING:
    import aiohttp

REDIRECTS = 5


async def download(url: str, most: int, *, seconds: float = SECONDS, private: bool = False) -> bytes:
    """The bytes at an http(s) address, at most `most`, through at most five redirects.

    Addresses of this machine and of private networks are refused unless `private`. Behind a proxy the proxy looks
    names up: there only addresses in numbers are checked here. Raises `ToolError`.
    """
    import aiohttp

    from plait.toolkits.resolver import Public

    for _ in range(REDIRECTS + 1):
        host = _checked(url, private)
        by = proxy(url)
        connector = None if private or by else aiohttp.TCPConnector(resolver=Public(), use_dns_cache=False)
        try:
            async with (
                opened(seconds, connector) as session,
                session.get(url, allow_redirects=False, proxy=by) as response,
            ):
                if response.status in (301, 302, 303, 307, 308) and "Location" in response.headers:
                    url = urljoin(url, response.headers["Location"])
                    continue
                _status(response, host)
                return await read(response, most, host)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, aiohttp.ClientConnectorDNSError) and "not public" in str(error):
                raise _not_public(host) from None
            said = trouble(error, seconds)
            raise ToolError(f"{host} can't be reached: {said}.", hint="Check the address.") from None
    raise ToolError(f"The address leads to more than {REDIRECTS} others in turn.", hint="Give the last of them.")


def public(address: IPv4Address | IPv6Address) -> bool:
    """May anyone reach it? False for this machine, private and link-local networks, and IPv6 forms of those."""
    inner: Any = None
    if isinstance(address, IPv6Address):
        teredo = address.teredo
        inner = address.ipv4_mapped or address.sixtofour or (teredo and teredo[1])
        if inner is None and int(address) >> 32 in (0x64FF9B << 64, 0):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None and not public(inner):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _checked(url: str, private: bool) -> str:
    """The address's host as it is connected to, where other scripts' digits and dots are plain ones. Raises `ToolError`
    for what is no http(s) address, or one in numbers that is not public."""
    from yarl import URL

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
            closed = not public(ip_address(name))
        except ValueError:
            # What is all numbers may be connected to without being looked up, such as 127.1.
            numbers = ":" in name or name.replace(".", "").isdigit()
            closed = numbers or name == "localhost" or name.endswith(".localhost")
        if closed:
            raise _not_public(host)
    return host


def _not_public(host: str) -> ToolError:
    return ToolError(f"{host[:80]} is not on the open network.", hint="Only public addresses can be downloaded from.")


def _status(response: aiohttp.ClientResponse, host: str) -> None:
    if response.status == 429:
        raise limited(host, response.headers.get("Retry-After", ""))
    if response.status != 200:
        said = f"{response.status} {response.reason or ''}".rstrip()
        raise ToolError(f"{host} answered {said}.", hint="Check the address.")


def resolved(host: str, port: int, family: int) -> list[Any]:
    """What a name stands for. Raises `OSError` when any of it is not public."""
    found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    for *_, address in found:
        if not public(ip_address(str(address[0]).partition("%")[0])):
            raise OSError(None, f"{host} is not public")
    return found
