"""Logins at MCP servers that want OAuth: where they are stored, how they are used, and how a user makes one.

A login is a file that only the user can read, one for each address: the tokens, the client that was registered, and the
authorization server. A run uses and refreshes a login, and never asks for one: `plait mcp login` does. No token is ever
in a journal: what a server sends back is searched for them.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import sys
import time
import webbrowser
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from plait.core.errors import ConfigError
from plait.core.secrets import Scrubber
from plait.core.text import clean
from plait.user_folders import state_folder

EARLY = 30
"""Seconds before its end at which an access token is refreshed."""
LOCK_SECONDS = 20.0
LOGIN_SECONDS = 300.0
MAX_REQUEST = 16_384
"""Bytes of a request to the page to which the browser returns."""
CALLBACK = "/callback"


class LoginFile:
    """The stored login of one address, whatever its query is, as the SDK's storage of tokens. `path` has the rights
    0600, its folder 0700."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        digest = hashlib.sha256(self.address.encode()).hexdigest()[:32]
        self.path = state_folder() / "mcp-logins" / f"{digest}.json"

    def read(self) -> dict[str, Any]:
        """Return what is stored; an empty dictionary if there is nothing that can be read."""
        with suppress(OSError, ValueError):
            found = json.loads(self.path.read_bytes())
            return found if isinstance(found, dict) and found.get("address") == self.address else {}
        return {}

    def write(self, **fields: Any) -> None:
        """Replace some fields. The file is never there with the rights of others, nor in part."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump({**self.read(), "address": self.address, **fields}, file)
        os.replace(new, self.path)

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Keep others from refreshing the same login meanwhile: most servers take a refresh token once."""
        with open(os.open(self.path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            for _ in range(int(LOCK_SECONDS / 0.05)):
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                await asyncio.sleep(0.05)
            yield

    def scrubber(self) -> Scrubber:
        """Return what removes the secrets of this login from a text."""
        found = self.read()
        named = [(found.get("tokens") or {}).get(name) for name in ("access_token", "refresh_token")]
        return Scrubber(each for each in (*named, (found.get("client") or {}).get("client_secret")) if each)

    async def get_tokens(self) -> OAuthToken | None:
        found = self.read().get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        until = time.time() + tokens.expires_in - EARLY if tokens.expires_in else 0
        self.write(tokens=tokens.model_dump(mode="json", exclude_none=True), until=until)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = self.read().get("client")
        return OAuthClientInformationFull.model_validate(found) if found else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.write(client=client_info.model_dump(mode="json", exclude_none=True))


class StoredLogin(OAuthClientProvider):
    """Uses a stored login for requests, and refreshes it. If that fails, the server's refusal is the response."""

    def __init__(self, login: LoginFile, redirect: str = f"http://127.0.0.1{CALLBACK}", **handlers: Any) -> None:
        metadata = OAuthClientMetadata.model_validate({"redirect_uris": [redirect], "client_name": "Plait"})
        super().__init__(login.address, metadata, login, **handlers)
        self._login = login

    async def _initialize(self) -> None:
        await super()._initialize()
        found, context = self._login.read(), self.context
        context.token_expiry_time = found.get("until") or None
        if found.get("server"):
            context.oauth_metadata = OAuthMetadata.model_validate(found["server"])
        if found.get("resource"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(found["resource"])

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        context = self.context
        for is_refused in (False, True):
            await self._initialize()  # another process may have refreshed it
            if is_refused and not context.can_refresh_token():
                return
            if (is_refused or not context.is_token_valid()) and context.can_refresh_token():
                used = context.current_tokens
                async with self._login.alone():
                    await self._initialize()
                    if context.current_tokens == used:
                        refreshing = await self._refresh_token()
                        _require_secure(str(refreshing.url), self._login.address)
                        if not await self._handle_refresh_response((yield refreshing)):
                            self._login.write(tokens=None)  # it is of no use any more
            if context.current_tokens:
                self._add_auth_header(request)
            response = yield request
            if response.status_code != 401:
                return


class NewLogin(StoredLogin):
    """Makes a login when the server refuses a request: finds its authorization server, registers a client, and lets the
    user log in there."""

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        self._initialized = True  # without the tokens of an earlier login
        flow = OAuthClientProvider._auth_flow(self, request)
        outgoing = await flow.__anext__()
        while True:
            _require_secure(str(outgoing.url), self._login.address)
            response = yield outgoing
            try:
                outgoing = await flow.asend(response)
            except StopAsyncIteration:
                break
        found = {"server": self.context.oauth_metadata, "resource": self.context.protected_resource_metadata}
        self._login.write(**{name: each and each.model_dump(mode="json") for name, each in found.items()})


async def make_login(address: str, paste: Callable[[str], str] | None) -> None:
    """Log the user in at a server, and store the login. `paste` gets the address that the user opens, and returns the
    one to which the browser was sent then. None: this opens the browser, which comes back to this process. Raises
    `ConfigError` if that fails, or if the server wants no login."""
    login = LoginFile(address)
    port = int(login.read().get("port") or 0)
    returned: asyncio.Future[AuthorizationCodeResult | ConfigError | None] = asyncio.get_running_loop().create_future()
    opened: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a request of the browser. One with another state is refused, and changes nothing."""
        with suppress(OSError, ValueError):
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("ascii", "replace").split()
            result = _read_return(line[1] if len(line) > 1 and line[0] == "GET" else "", opened)
            status, text = "400 Bad Request", "This address belongs to no login."
            if result is not None:
                status, text = "200 OK", "The login has ended. You can close this page."
                if not returned.done():
                    returned.set_result(result)
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{text}".encode())
            await writer.drain()
        writer.close()

    async def open_page(url: str) -> None:
        _require_secure(url, address)
        opened.append(url)
        if paste is None:
            print(f"Open this address and log in:\n{clean(url)}", file=sys.stderr, flush=True)
            with suppress(webbrowser.Error):
                await asyncio.to_thread(webbrowser.open, url)

    async def wait_for_user() -> AuthorizationCodeResult:
        if paste is not None:
            returned.set_result(_read_return((await asyncio.to_thread(paste, opened[-1])).strip(), opened))
        async with asyncio.timeout(LOGIN_SECONDS):
            result = await returned
        if isinstance(result, AuthorizationCodeResult):
            return result
        hint = "Copy the whole address from the browser, after the login: it begins with http://127.0.0.1."
        raise result or ConfigError("This is not the address to which the login leads.", hint=hint)

    try:
        page = await asyncio.start_server(answer, "127.0.0.1", port, limit=MAX_REQUEST)
    except OSError:
        page = await asyncio.start_server(answer, "127.0.0.1", 0, limit=MAX_REQUEST)
    async with page:
        now = page.sockets[0].getsockname()[1]
        login.write(port=now)
        handlers = {"redirect_handler": open_page, "callback_handler": wait_for_user}
        auth = NewLogin(login, f"http://127.0.0.1:{now}{CALLBACK}", **handlers)
        if now == port:  # else the client is registered with another address
            auth.context.client_info = await login.get_client_info()
        ping = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
        accepted = {"accept": "application/json, text/event-stream"}
        http = httpx2.AsyncClient(auth=auth, headers=accepted, timeout=30)
        try:
            async with http, http.stream("POST", address, json=ping) as response:
                status = response.status_code
        except (OAuthFlowError, httpx2.HTTPError, TimeoutError, ValueError) as error:
            said = clean(f"{type(error).__name__}: {error}")[:300]
            raise ConfigError(f"The login at {address} failed ({said}).", hint="Try again.") from error
    if auth.context.current_tokens is None:
        raise ConfigError(f"The MCP server {address} wants no login: it answered {status}.", hint="Use it as it is.")


def _read_return(target: str, opened: list[str]) -> AuthorizationCodeResult | ConfigError | None:
    """Return what the browser brings back from a login; an error if the user or the server refused it; None for an
    address that belongs to no login of this process."""
    parts = urlsplit(target)
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    states = [parse_qs(urlsplit(url).query).get("state") for url in opened[-1:]]
    if parts.path != CALLBACK or [given.get("state")] not in states:
        return None
    if "code" not in given:
        said = clean(f"{given.get('error', 'no code')}: {given.get('error_description', '')}")[:300]
        return ConfigError(f"The login was refused ({said}).", hint="Try again.")
    return AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given.get("iss"))


def _require_secure(url: str, address: str) -> None:
    """Raise `ConfigError` for an address that would send a secret without encryption over a network."""
    parts, server = urlsplit(url), urlsplit(address)
    is_here = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and (is_here or parts.netloc == server.netloc)):
        text = f"The login would lead to {parts.scheme}://{parts.netloc}, which is not encrypted."
        raise ConfigError(text, hint="Ask the operator of the server for https.")
