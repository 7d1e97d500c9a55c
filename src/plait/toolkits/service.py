"""The HTTP client of the toolkits: a service's settings, one request to it, and errors that say what to do.

A setting is an argument of the toolkit or an environment variable, read when a tool is called. A key is sent only in
the request. It is removed from the service's answer before anyone, including the journal, sees it. Requests are not
repeated, and a service's redirects are not followed, so that a key reaches nobody else.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from plait.core.errors import ToolError
from plait.core.secrets import Scrubber
from plait.proxies import Proxy, find_proxy

if TYPE_CHECKING:
    import aiohttp

SECONDS = 20.0
"""A request's time limit in seconds, from connecting to the last byte."""
MAX_ANSWER = 8 << 20
"""Maximum size of a service's answer: 8 MiB."""
AGENT = "plait-toolkits/0.1"

Setting = str | None
"""A setting given in Python; None: from the environment, or the default."""


@dataclass(frozen=True)
class ServiceAnswer:
    """A service's answer, without the key: `who` is the service's name."""

    who: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json_object(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raises `ToolError` if it is not one."""
        what = "an object"
        try:
            read = json.loads(self.body)
        except (ValueError, RecursionError):
            read, what = None, f"JSON: {' '.join(self.text[:80].split())!r}"
        if not isinstance(read, dict):
            raise ToolError(f"{self.who} answered with something else than {what}.", hint="Is its address right?")
        return read

    def message(self) -> str:
        """Return the service's message in the body of a refusal, in a line of at most 200 characters."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        for name in ("error", "message", "reason", "msg", "error_message", "detail", "info"):
            while isinstance(found, dict) and isinstance(found.get(name), (str, dict)):
                found = found[name]
        if not isinstance(found, str):
            found = self.text if self.headers.get("Content-Type", "").startswith("text/plain") else ""
        return " ".join(found.split())[:200].rstrip(".")


@dataclass(frozen=True)
class Service:
    """A service: its name for messages, and where its address and its key are set.

    `base` is the default address, or ""; `base_url` and `given_key` are given in Python. `key_hint`: how to get a key.
    """

    name: str
    base_env: str
    base: str = ""
    key_env: str = ""
    key_hint: str = ""
    base_url: Setting = field(default=None, repr=False)
    given_key: Setting = field(default=None, repr=False)
    seconds: float = SECONDS

    def address(self) -> str:
        """Return the base address. Raises `ToolError` if it is missing or invalid."""
        address = self.base_url or os.environ.get(self.base_env, "").strip() or self.base
        if not address:
            raise self._missing(f"{self.name} is not set up: {self.base_env} is not set.", self.base_env)
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            hint = "It looks like https://host/path."
            raise ToolError(f"{self.name}: the address in {self.base_env} is none.", hint=hint)
        return address.rstrip("/")

    def key(self, needed: bool = True) -> str:
        """Return the key, "" if it is missing and not `needed`. Raises `ToolError` if a needed key is missing."""
        key = (self.given_key or os.environ.get(self.key_env, "") if self.key_env else "").strip()
        if needed and not key:
            raise self._missing(f"{self.name} needs a key, and {self.key_env} is not set.", self.key_env)
        return key

    def _missing(self, said: str, variable: str) -> ToolError:
        where = f": {self.key_hint}" if self.key_hint else ""
        return ToolError(said, hint=f"Set {variable} in the environment of this program{where}.")

    async def ask(
        self,
        path: str = "",
        *,
        method: str = "GET",
        params: Mapping[str, Any] | None = None,
        address: str | None = None,
        refusals: bool = False,
        secrets: tuple[str, ...] = (),
        **options: Any,
    ) -> ServiceAnswer:
        """Send one request and return the answer.

        `address` replaces the base address and path. `secrets` are removed from the answer, like the key. `options` are
        those of aiohttp. Raises `ToolError` if the service was not reached, if it refused (unless `refusals`), or if
        the answer is too long.
        """
        import aiohttp

        url = address if address is not None else self.address() + path
        clean = Scrubber((*secrets, self.key(needed=False)))
        named = {key: str(value) for key, value in (params or {}).items() if value is not None}
        proxy = require_proxy(url, self.name)
        options |= {"params": named, "proxy": proxy and proxy.url, "allow_redirects": False}
        try:
            async with open_session(self.seconds) as session, session.request(method, url, **options) as response:
                body = await read_body(response, MAX_ANSWER, self.name)
                answer = ServiceAnswer(self.name, response.status, dict(response.headers), clean(body))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # "from None": these errors hold the request, and so the key.
            said = f"{self.name} can't be reached{describe_failure(error, self.seconds, proxy)}."
            hint = f"Is the network there? The address is set by {self.base_env}."
            raise ToolError(clean.text(said), hint=hint) from None
        if not refusals or answer.status == 429 or answer.status >= 500:
            self.check(answer)
        return answer

    def check(self, answer: ServiceAnswer) -> None:
        """Raise `ToolError` for a status that is not a success."""
        status = answer.status
        if 200 <= status < 300:
            return
        said = answer.message()
        because = f": {said}" if said else ""
        if status == 429:
            raise too_many_requests(self.name, answer.headers.get("Retry-After", ""), because)
        if 300 <= status < 400:
            raise ToolError(f"{self.name} has moved ({status}).", hint=f"Set {self.base_env} to its new address.")
        if status in (401, 403):
            hint = f"Check {self.key_env or self.base_env}."
            raise ToolError(f"{self.name} refuses access ({status}){because}.", hint=hint)
        if status >= 500:
            raise ToolError(f"{self.name} has failed ({status}){because}.", hint="Try again later.")
        raise ToolError(f"{self.name} refuses the request ({status}){because}.")


@asynccontextmanager
async def open_session(
    seconds: float, connector: aiohttp.BaseConnector | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session for one call: no cookies, no compression, no .netrc."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": AGENT, "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=seconds),
        auto_decompress=False,
    ) as session:
        yield session


def require_proxy(url: str, who: str) -> Proxy | None:
    """Return the proxy that the environment sets for an address. Raises `ToolError` for one that cannot be used."""
    parts = urlsplit(url)
    proxy = find_proxy(parts.scheme, parts.hostname or "", parts.port or 0)
    if proxy is not None and proxy.fault:
        hint = f"Correct or unset {proxy.variable}, or name the host in NO_PROXY."
        raise ToolError(f"{who} can't be reached through the proxy {proxy.shown}: {proxy.fault}.", hint=hint)
    return proxy


async def read_body(response: aiohttp.ClientResponse, max_bytes: int, who: str) -> bytes:
    """Read the body. Raises `ToolError` if it has more than `max_bytes` bytes, or is compressed."""
    too_long = ToolError(f"{who} sent more than {max_bytes / 1e6:.0f} MB.", hint="Ask for something smaller.")
    if (response.content_length or 0) > max_bytes:
        raise too_long
    if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise ToolError(f"{who} sent its answer compressed, though not asked to.", hint="Ask its operator.")
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            raise too_long
    return bytes(body)


def describe_failure(error: Exception, seconds: float, proxy: Proxy | None) -> str:
    """Describe why a request got no answer, as the end of a sentence, with the proxy that it went through."""
    through = f" through the proxy {proxy.shown}" if proxy is not None else ""
    return f"{through}: {_describe_error(error, seconds)}"


def _describe_error(error: Exception, seconds: float) -> str:
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


def too_many_requests(who: str, after: str, because: str = "") -> ToolError:
    """Return the error for a service that asks to slow down; `after` is its Retry-After."""
    try:
        wait = f"Wait {float(after):g} s, then call again." if after else "Wait a minute, then call again."
    except ValueError:
        wait = f"Call again after {after[:40]}."
    return ToolError(f"{who} asks to slow down (429){because}.", hint=wait)
