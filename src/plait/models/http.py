"""HTTP to model servers: one POST, its exact answer, and what can go wrong on the way.

Each event loop has one aiohttp session, made at the first request, which keeps its connections. It lives in a started
asynchronous generator, because a loop closes those when it ends (`asyncio.run` calls `loop.shutdown_asyncgens()`). So
the session is closed with its loop.

aiohttp makes the connections (names, TLS, keep-alive) and parses the responses. Plait writes the request itself, as
one piece: the header is the same for all requests to an address, and aiohttp's own request costs twice the CPU. Only
a request through a proxy is aiohttp's own.

A request has exactly the headers `Host`, `Content-Type: application/json`, `Content-Length`, `User-Agent: plait`,
`Authorization: Bearer KEY` if there is a key, and those that the user gave. Plait asks for no compression, follows no
redirect, keeps no cookie, reads no .netrc and tries nothing twice. Proxies come from the environment (HTTPS_PROXY,
NO_PROXY ...), are looked up once for each address, and are not used for this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from plait.core.errors import BadRequest, ModelError, Unreachable
from plait.models.wires.refusals import Target

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import StreamReader
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage
    from yarl import URL

MAX_BODY = 8 << 20
"""An answer in one piece that is longer (8 MiB) is cut off. Streams have their own limits."""
CONNECT_SECONDS = 30.0
MOST_PREPARED = 256
"""Addresses whose request header a client remembers."""

_SKIPPED = ("Accept", "Accept-Encoding")
_HEADERS = {"User-Agent": "plait", "Content-Type": "application/json"}


@dataclass
class _Client:
    """What one event loop sends requests with. `prepared` has what is the same for all requests to an address."""

    session: aiohttp.ClientSession
    keeper: AsyncGenerator[aiohttp.ClientSession, None]
    prepared: dict[tuple[Any, ...], tuple[aiohttp.ClientRequest, bytes]] = field(default_factory=dict)


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()


async def _keep_session(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession, None]:
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_SKIPPED,
        headers=_HEADERS,
    )
    try:
        yield session
    finally:
        # The entry refers to the loop through the session: without this the loop would never be freed.
        _clients.pop(loop, None)
        await session.close()
        await asyncio.sleep(0)  # transports close on the loop's next turn


async def _client() -> _Client:
    """Return the running loop's client."""
    loop = asyncio.get_running_loop()
    if (client := _clients.get(loop)) is not None and not client.session.closed:
        return client
    keeper = _keep_session(loop)
    made = await anext(keeper)
    if (client := _clients.get(loop)) is not None and not client.session.closed:
        await keeper.aclose()
        return client
    client = _clients[loop] = _Client(made, keeper)
    return client


async def close() -> None:
    """Close the running loop's connections. Not needed if `asyncio.run` ends the loop."""
    if (client := _clients.get(asyncio.get_running_loop())) is not None:
        await client.keeper.aclose()


class HttpAnswer:
    """What came so far, also if an error is raised."""

    __slots__ = ("body", "cut", "headers", "status", "timed_out")

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.body = b""
        self.cut = self.timed_out = False


class _Exchange:
    """A request that was sent over a connection, and its response; the same face as aiohttp's response."""

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(self, connection: Connection, message: RawResponseMessage, content: StreamReader) -> None:
        self.status, self.headers, self.content = message.code, message.headers, content
        self._connection = connection
        content.on_eof(connection.release)

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._connection.close()


async def post(
    target: Target,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float,
    answer: HttpAnswer,
    on_bytes: Callable[[bytes], bool] | None = None,
) -> None:
    """POST once and fill `answer`. `on_bytes` gets each piece of a 200 body and ends the request by returning True.

    `timeout` is the longest silence of the endpoint in seconds. Raises `Unreachable`, also if the connection breaks
    within the body (`answer` has what came), and `BadRequest` for an invalid address. An error or a cancellation
    closes the connection.
    """
    import aiohttp

    client = await _client()
    failures = (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError)
    try:
        url = _url(target.endpoint, path)
        if (proxy := _proxy(url.scheme, url.host or "")) is None:
            response: _Exchange | aiohttp.ClientResponse = await _send(client, url, body, headers, timeout)
        else:
            response = await client.session.post(
                url, data=body, headers=headers, timeout=_timeout(timeout), proxy=proxy, allow_redirects=False
            )
    except (aiohttp.InvalidURL, ValueError):
        raise BadRequest(
            f"{target.endpoint!r} is not an address.",
            hint=f"A base address looks like https://host/v1 and is set by {target.base_env or 'base_url'}.",
        ) from None
    except failures as error:
        # "from None": aiohttp's errors hold the request's headers, and so the key.
        raise _unreachable(error, target, timeout) from None
    pieces: list[bytes] = []
    size = 0
    try:
        answer.status = response.status
        answer.headers = response.headers
        watch = on_bytes if response.status == 200 else None
        content = response.content
        while not content.at_eof():
            try:
                piece = await content.readany()
            except failures as error:
                answer.timed_out = isinstance(error, TimeoutError)
                raise _unreachable(error, target, timeout) from None
            pieces.append(piece)
            size += len(piece)
            if watch(piece) if watch is not None else size > MAX_BODY:
                answer.cut = True
                response.close()
                break
        # A body read to its end has freed its connection already.
    except BaseException:
        response.close()
        raise
    finally:
        answer.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _send(client: _Client, url: URL, body: bytes, headers: Mapping[str, str], timeout: float) -> _Exchange:
    """Send a request over a connection of the pool. Return its response when the header has come."""
    import aiohttp

    limits = _timeout(timeout)
    connector = client.session.connector
    assert connector is not None
    request, head = _prepared(client, url, headers)
    try:
        connection = await connector.connect(request, [], limits)
    except TimeoutError:
        raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {url}") from None
    try:
        protocol, transport = connection.protocol, connection.transport
        assert protocol is not None and transport is not None
        protocol.set_response_params(read_timeout=limits.sock_read, read_until_eof=True)
        transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        protocol.start_timeout()
        while True:
            message, content = await protocol.read()
            if message.code > 199 or message.code == 101:  # a lower one only announces the response
                return _Exchange(connection, message, content)
    except BaseException:
        connection.close()
        raise


def _prepared(client: _Client, url: URL, headers: Mapping[str, str]) -> tuple[aiohttp.ClientRequest, bytes]:
    """Return what aiohttp connects with, and the header of each request up to its length.

    Raises `ValueError` for a header that holds a line break.
    """
    import aiohttp
    from multidict import CIMultiDict

    key = (url, *headers.items())
    if (found := client.prepared.get(key)) is not None:
        return found
    merged = CIMultiDict(_HEADERS)
    merged.update(headers)
    request = aiohttp.ClientRequest(
        "POST", url, headers=merged, skip_auto_headers=_SKIPPED, loop=asyncio.get_running_loop()
    )
    fields = [(name, value) for name, value in request.headers.items() if name.lower() != "content-length"]
    lines = [f"POST {request.url.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    if any(sign in line for line in lines for sign in "\r\n\0"):
        raise ValueError("a header holds a line break")
    if len(client.prepared) >= MOST_PREPARED:
        client.prepared.clear()
    client.prepared[key] = request, "".join(f"{line}\r\n" for line in lines).encode()
    return client.prepared[key]


def _unreachable(error: Exception, target: Target, timeout: float) -> ModelError:
    import aiohttp

    address = target.endpoint
    local = _host_is_here(urlsplit(address).hostname or "")
    start = "Is the server running?" if local else "Is the address right, and the network there?"
    hint = f"{start} The address is set by {target.base_env or 'base_url'}."
    sent, retry = True, True
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        said, sent = "its name is not known (DNS)", False
    elif isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError):
        said, hint = f"no secure connection: {error}", "Check the address, the clock and the certificates."
        sent = retry = False
    elif isinstance(error, TimeoutError):
        connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
        seconds = min(CONNECT_SECONDS, timeout) if connecting else timeout
        sent = not connecting
        said = f"{'no connection' if connecting else 'silence'} for {seconds:g} s"
        if not connecting:
            hint = "The model may need longer: raise `timeout` in plait.toml."
    elif isinstance(error, aiohttp.ClientConnectorError):
        said, sent = error.os_error.strerror or str(error.os_error), False
        if isinstance(error.os_error, ConnectionRefusedError) or "connect call failed" in said.lower():
            # Nothing listens there. On this machine that is no matter of the network: to wait starts no server.
            said, retry = "connection refused", not local
    elif isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionError):
        said = "the connection broke"
    else:
        said = f"{type(error).__name__}: {error}"
    made = Unreachable(target.clean(f"{address} ({target.name}) can't be reached: {said}."), hint=hint)
    made.retry, made.sent = retry, sent
    return made


@lru_cache(maxsize=256)
def _url(endpoint: str, path: str) -> URL:
    from yarl import URL

    base = URL(endpoint)
    if base.scheme not in ("http", "https") or not base.host:
        raise ValueError(endpoint)
    # A query in the base address (?api-version=...) stays at the end.
    return base.with_path(f"{base.path.rstrip('/')}/{path}", keep_query=True)


@lru_cache(maxsize=64)
def _timeout(silence: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_SECONDS, silence), sock_read=silence)


@lru_cache(maxsize=256)
def _proxy(scheme: str, host: str) -> str | None:
    # aiohttp's own look-up (trust_env) reads the environment and .netrc again for every request.
    if _host_is_here(host):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies: dict[str, Any] = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    return None if not proxy or proxy_bypass(host) else str(proxy)


def _host_is_here(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
