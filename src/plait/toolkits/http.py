"""How the toolkits speak HTTP: bounds on time and size, proxies, and what went wrong in words.

aiohttp is imported at the first call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from plait.core.errors import ToolError

if TYPE_CHECKING:
    import aiohttp

SECONDS = 20.0
"""A request's time limit, from connecting to the last byte."""
AGENT = "plait-toolkits/0.1"


@asynccontextmanager
async def opened(
    seconds: float, connector: aiohttp.BaseConnector | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for a call: no cookies, no compression, no .netrc."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": AGENT, "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=seconds),
        auto_decompress=False,
    ) as session:
        yield session


def proxy(url: str) -> str | None:
    """The proxy that the environment names for an address (HTTPS_PROXY, NO_PROXY ...); none for this machine."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return None if not found or proxy_bypass(host) else found


async def read(response: aiohttp.ClientResponse, most: int, who: str) -> bytes:
    """The body, at most `most` bytes. Raises `ToolError` for a longer one, and for one that came compressed."""
    too_long = ToolError(f"{who} sent more than {most / 1e6:.0f} MB.", hint="Ask for something smaller.")
    said = response.headers.get("Content-Length", "")
    if said.isdigit() and int(said) > most:
        raise too_long
    if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise ToolError(f"{who} sent its answer compressed, though not asked to.", hint="Ask its operator.")
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise too_long
    return b"".join(pieces)


def trouble(error: Exception, seconds: float) -> str:
    """What kept a request from being answered, in words."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known (DNS), or there is no network"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no secure connection"
    if isinstance(error, TimeoutError):
        return f"no answer in {seconds:g} s"
    if isinstance(error, aiohttp.InvalidURL):
        return "its address is none"
    if isinstance(error, aiohttp.ClientConnectorError):
        said = error.os_error.strerror or str(error.os_error)
        return "connection refused" if "refused" in said.lower() or "connect call" in said.lower() else said
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionError)):
        return "the connection broke"
    return f"{type(error).__name__}: {error}"


def limited(who: str, after: str, because: str = "") -> ToolError:
    """The error for a service that asks to slow down; `after` is its Retry-After."""
    try:
        wait = f"Wait {float(after):g} s, then call again." if after else "Wait a minute, then call again."
    except ValueError:
        wait = f"Call again after {after[:40]}."
    return ToolError(f"{who} asks to slow down (429){because}.", hint=wait)
