"""HTTP to model servers: one POST, its exact answer, and its errors.

Each event loop has one aiohttp session, which keeps its connections. It lives in a started asynchronous generator, so
`loop.shutdown_asyncgens()` closes it with its loop.

A request has exactly the headers `Host`, `Content-Type: application/json`, `Content-Length`, `User-Agent: plait`,
those of the wire (`Authorization: Bearer KEY`, `x-api-key` ...) and the user's own. Plait requests no compression,
follows no redirect, stores no cookie, reads no .netrc and repeats nothing. HTTP proxies come from the environment
(HTTPS_PROXY, ALL_PROXY, NO_PROXY ...) and are not used for this machine. An error names the proxy and its variable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from msgspec import Struct, structs

from plait.core.errors import BadRequest, ModelError, Unreachable
from plait.models.real_models import require_real_models
from plait.models.wires.refusals import Target
from plait.proxies import Proxy, find_proxy, is_this_machine

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

MAX_BODY = 8 << 20
"""Maximum bytes of an answer in one piece (8 MiB). Streams have their own limits."""
CONNECT_SECONDS = 30.0
END_SECONDS = 1.0
"""Maximum wait for the end of the body, behind the end of a stream."""
_HEADER_BREAKS = frozenset("\r\n\0")

_sessions: WeakKeyDictionary[
    asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[aiohttp.ClientSession, None]]
] = WeakKeyDictionary()


async def _keep_session(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession, None]:
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding"),
        headers={"User-Agent": "plait", "Content-Type": "application/json"},
    )
    try:
        yield session
    finally:
        # The entry refers to the loop through the session; without this the loop would never be freed.
        _sessions.pop(loop, None)
        await session.close()
        await asyncio.sleep(0)  # transports close on the loop's next turn


async def _open_session(loop: asyncio.AbstractEventLoop) -> aiohttp.ClientSession:
    keeper = _keep_session(loop)
    made = await anext(keeper)
    if (entry := _sessions.get(loop)) is not None and not entry[0].closed:
        await keeper.aclose()
        return entry[0]
    _sessions[loop] = (made, keeper)
    return made


async def close() -> None:
    """Close the running loop's connections. Not needed if `asyncio.run` ends the loop."""
    if (entry := _sessions.get(asyncio.get_running_loop())) is not None:
        await entry[1].aclose()


class HttpAnswer(Struct):
    """The bytes received so far, also if an error is raised."""

    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    cut: bool = False
    timed_out: bool = False


async def post(
    target: Target,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float,
    answer: HttpAnswer,
    on_bytes: Callable[[bytes], bool | None] | None = None,
    count_content: Callable[[], int] = int,
) -> Target:
    """POST once and fill `answer`. `on_bytes` gets each piece of a body and ends the request by returning True. None
    says that all has come: some endpoints then keep the connection open.

    `timeout` is the longest time in seconds without content, as `count_content` counts it after each piece: comments,
    empty events and single bytes of headers keep no request alive. Returns the target, with the proxy that may have
    written the answer. Raises `Unreachable`, also if the connection breaks within the body (`answer` has what came),
    and `BadRequest` for an invalid address or header. An error or a cancellation closes the connection.
    """
    import aiohttp

    require_real_models(target.where)
    loop = asyncio.get_running_loop()
    entry = _sessions.get(loop)
    sender = entry[0] if entry is not None and not entry[0].closed else await _open_session(loop)
    for name, value in headers.items():
        if not _HEADER_BREAKS.isdisjoint(value):
            hint = f"The key is set by {target.key_env}." if target.key_env else "Correct the key or the header."
            raise BadRequest(f"The header {name!r} for {target.endpoint} holds a line end or a null.", hint=hint)
    proxy: Proxy | None = None
    try:
        url = _url(target.endpoint, path)
        proxy = find_proxy(url.scheme, url.host or "", url.port or 0)
        if proxy is not None and proxy.fault:
            raise ValueError(proxy.fault)
        async with asyncio.timeout(timeout + min(CONNECT_SECONDS, timeout)):
            response = await sender.post(
                url,
                data=body,
                headers=headers,
                timeout=_timeout(timeout),
                proxy=proxy and proxy.url,
                allow_redirects=False,
            )
        if proxy is not None and response.status == 407:
            response.close()
            raise aiohttp.ClientHttpProxyError(response.request_info, (), status=407, message=response.reason or "")
    except (aiohttp.InvalidURL, ValueError) as error:
        if proxy is not None:
            raise _unreachable(error, target, timeout, proxy) from None
        raise BadRequest(
            f"{target.endpoint!r} is not an address.",
            hint=f"A base address looks like https://host/v1 and is set by {target.base_env or 'base_url'}.",
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        # "from None": aiohttp's errors hold the request's headers, and so the key.
        raise _unreachable(error, target, timeout, proxy) from None
    pieces: list[bytes] = []
    size = 0
    enough: bool | None = False
    seen, until = 0, loop.time() + timeout
    try:
        answer.status = 200 if response.status in (201, 202, 203) else response.status
        answer.headers = response.headers
        watch = on_bytes if answer.status == 200 else None
        content = response.content
        # A body that has come as a whole needs no time limit, and no second read to find its end.
        while not content.at_eof() or content.exception() is not None:
            try:
                async with asyncio.timeout_at(None if content.is_eof() else until):
                    piece = await content.readany()
            except (aiohttp.ClientError, OSError) as error:
                if enough is None:
                    response.close()
                    break
                answer.timed_out = isinstance(error, TimeoutError)
                raise _unreachable(error, target, timeout, proxy) from None
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
            ended = enough is None
            enough = watch(piece) if watch is not None else size > MAX_BODY
            if not ended and (enough is None or count_content() > seen):
                seen, until = count_content(), loop.time() + (timeout if enough is not None else END_SECONDS)
            if enough:
                answer.cut = True
                response.close()
                break
        # A body read to its end has freed its connection already.
    except BaseException:
        response.close()
        raise
    finally:
        answer.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    # A response through a tunnel (https) is the endpoint's own.
    return structs.replace(target, proxy=proxy.shown) if proxy is not None and url.scheme == "http" else target


def _unreachable(error: Exception, target: Target, timeout: float, proxy: Proxy | None) -> ModelError:
    import aiohttp

    local = is_this_machine(urlsplit(target.endpoint if proxy is None else proxy.url).hostname or "")
    start = "Is the server running?" if local else "Is the address right, and the network there?"
    hint = f"{start} The address is set by {target.base_env or 'base_url'}."
    if proxy is not None:
        hint = f"Correct or unset {proxy.variable}, or name the host of the model in NO_PROXY."
    sent, retry = True, True
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        said, sent = f"{'its' if proxy is None else 'that'} name is not known (DNS)", False
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
            # Nothing listens there. On this machine, waiting does not help, because nothing starts the server.
            said, retry = "connection refused", not local
    elif isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionError):
        said = "the connection broke"
    elif proxy is not None and isinstance(error, aiohttp.ClientHttpProxyError):
        said, sent, retry = f"the proxy answered {error.status} {error.message}".rstrip(), False, error.status >= 500
        if error.status == 407:
            hint = f"Put the user and the password into {proxy.variable}: http://USER:PASSWORD@host:port."
    elif proxy is not None and isinstance(error, aiohttp.ClientResponseError | ValueError):
        said, sent, retry = proxy.fault or "the proxy does not speak HTTP", False, False
    else:
        said = f"{type(error).__name__}: {error}"
    where = structs.replace(target, proxy=proxy.shown if proxy is not None else "").where
    made = Unreachable(target.clean(f"{where} can't be reached: {said}."), hint=hint)
    made.retry, made.sent = retry, sent
    return made


@lru_cache(maxsize=256)
def _url(endpoint: str, path: str) -> URL:
    from yarl import URL

    base = URL(endpoint)
    if base.scheme not in ("http", "https") or not base.host:
        raise ValueError(endpoint)
    # A query in the base address (?api-version=...) stays at the end, with that of the path (?alt=sse).
    path, _, query = path.partition("?")
    return base.with_path(f"{base.path.rstrip('/')}/{path}", keep_query=True).extend_query(query)


@lru_cache(maxsize=64)
def _timeout(silence: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_SECONDS, silence), sock_read=silence)
