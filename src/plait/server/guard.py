"""The checks before every route: the path, the Host and Origin, the token, the content type and the body.

The first check that fails answers the request. The guard reads the whole body within a size and a time, so no route has
to limit it. `NEEDS` says who may ask for each path.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable

from starlette._utils import get_route_path
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.core.errors import PlaitError
from plait.server.auth import ANYONE, Caller, cookie_name
from plait.server.chat_format import ROOT
from plait.server.errors import ENDPOINTS, ClientGone, RequestRejected, json_response, rejection_for
from plait.server.runs import RunManager

logger = logging.getLogger("plait.server")

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
OPEN, CLIENTS, USERS, FULL = "open", "clients", "users", "full"
NEEDS = {
    OPEN: ("/", "/chat", "/login", "/logout", "/favicon.ico", "/page/", "/health/"),
    CLIENTS: ("/v1/", "/openapi.json", "/mcp/", "/ag-ui/"),
    USERS: ("/api/", "/comparison"),
}
"""The paths for which anybody may ask; callers of all kinds; users of the pages and full tokens, as far as the role of
the route allows. A path that ends in / covers all below it. Every other path needs a full token."""
USUAL = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of every answer that does not set them itself."""
TRICKS = (b"//", b"\\", b"%2f", b"%5c", b"%2e", b"%00", b"%25")
"""Parts of a path that another server might interpret differently."""
MAX_HEADERS = 64_000
"""Bytes of a request's headers with its path."""
CLOSING = (400, 401, 403, 408, 413, 415, 421, 431)
"""The connection is closed after these statuses: the request may not have been read to its end."""


class AccessCheck:
    """ASGI middleware. It puts the `Caller` into the scope's state under "caller", and under "login" whether the caller
    is a browser that logged in. `identify` returns the caller if not the guard, but an application around it decides
    who that is."""

    def __init__(self, app: ASGIApp, manager: RunManager, identify: Callable[[Scope], Caller] | None = None) -> None:
        self._app, self._identify = app, identify
        self._manager, self._tokens, self._table = manager, manager.tokens, manager.table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in USUAL.items():
                    headers.setdefault(name, value)
                if (place := headers.get("location", "")).startswith("/"):
                    headers["location"] = scope.get("root_path", "") + place
            await send(message)

        try:
            headers = Headers(scope=scope)
            # Refuse headers that are too long. uvicorn limits only those that arrive in several pieces.
            size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
            if size + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > MAX_HEADERS:
                text = f"The request line and the headers have more than {MAX_HEADERS:,} bytes."
                raise RequestRejected(431, text, hint="Send less.", code="headers_too_large", metric="size")
            self._manager.proxy_users.restore_prefix(scope, headers)
            ROOT.set(scope.get("root_path", ""))
            _check_path(scope)
            self._check_site(headers)
            scope["state"] = {**scope.get("state", {}), "login": False}
            needs = find_needs(get_route_path(scope))
            identify = self._identify
            caller = identify(scope) if identify is not None else self._authenticate(scope, headers, needs)
            if caller is not None and ((needs == FULL and not caller.full) or (needs == USERS and caller.is_client)):
                text = "This token opens the endpoints only." if caller.is_client else "This needs a full token."
                kind, code = "permission_error", "forbidden"
                raise RequestRejected(403, text, hint=ENDPOINTS, kind=kind, code=code, metric="token")
            scope["state"]["caller"] = caller
            body = await self._read_body(scope, headers, receive)
            await self._app(scope, _replay(body, receive), send_guarded)
        except ClientGone:
            return
        except Exception as error:
            rejection = rejection_for(error)
            if not isinstance(error, PlaitError):
                logger.error("%s %r broke", scope["method"], scope["path"], exc_info=error)
            if rejection.metric:
                self._manager.metrics.refused.labels(rejection.metric).inc()
            if begun:
                raise
            closing = {"connection": "close"} if rejection.status in CLOSING else {}
            refusal, caller = rejection.body(), scope.get("state", {}).get("caller")
            if caller is not None and not caller.full:  # where the journal is, and how it names a client
                said = refusal["error"]["message"].replace(self._manager.journal.place, "the journal")
                refusal["error"]["message"] = said.replace(f"@{caller.owner}/", "")
            answer = json_response(refusal, rejection.status, {**rejection.headers, **closing})
            await answer(scope, receive, send_guarded)

    def _check_site(self, headers: Headers) -> None:
        """Refuse pages of other sites, and host names that were made to point to this server."""
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        is_any = self._manager.needs_token or self._identify is not None
        if not host or not (is_any or self._is_known_host(host)):
            raise _wrong_host(host)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        foreign = origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}")
        # A link from another site may open a page, because opening a page changes nothing.
        followed = headers.get("sec-fetch-mode") == "navigate" and origin is None
        if foreign or (site in ("cross-site", "same-site") and not followed):
            text = "Pages of other sites can't use this server."
            hint = "Use a client that is not a web page, a browser extension or an app made of web pages."
            raise RequestRejected(403, text, hint=hint, code="cross_site", metric="origin")

    def _is_known_host(self, host: str) -> bool:
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        return name.lower() in (*LOCAL_NAMES, *self._table.hosts)

    def _authenticate(self, scope: Scope, headers: Headers, needs: str) -> Caller | None:
        if not self._manager.needs_token:
            return ANYONE
        caller, authorization, host = None, headers.get("authorization"), headers.get("host", "")
        kind, _, token = (authorization or "").partition(" ")
        # Other servers on this machine set cookies of any form: read each one by itself.
        cookie = cookie_parser(headers.get("cookie", "")).get(cookie_name(host))
        user = "" if kind.lower() == "bearer" else self._manager.proxy_users.find_name(scope)
        if user:  # a token wins over a name, and a name over a cookie: a browser may have had other users
            # A page whose host name was made to point here can send the header from a proxy's machine.
            if not self._is_known_host(host):
                raise _wrong_host(host)
            caller = Caller.of_user(user, self._table.roles)
        elif authorization is not None:
            caller = self._tokens.find_caller(token.strip()) if kind.lower() == "bearer" else None
        elif cookie is not None:
            # An event stream and a link cannot send headers.
            page = headers.get("x-plait-page") or QueryParams(scope.get("query_string", b"")).get("page", "")
            # An expired cookie counts as none: the page asks for the token again.
            caller = self._tokens.find_login(cookie, None if needs == OPEN else page)
            scope["state"]["login"] = caller is not None
        if caller is not None and caller.name:
            caller = Caller.of_user(caller.name, self._table.roles)  # a login keeps no roles
        if needs == OPEN and (caller is not None or authorization is None):
            return caller
        if caller is None:
            text = "A token is needed." if authorization is None else "The token is not known."
            hint, kind = "Send it as Authorization: Bearer TOKEN.", "authentication_error"
            if not self._tokens.are_set:
                hint = "Ask through the proxy, which names the user."
            raise RequestRejected(401, text, hint=hint, kind=kind, code="invalid_api_key", metric="token")
        return caller

    async def _read_body(self, scope: Scope, headers: Headers, receive: Receive) -> bytes:
        bodiless = scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE")
        if bodiless and "content-length" not in headers and "transfer-encoding" not in headers:
            return b""
        limit = int(self._table.body_mb * 1_000_000)
        text = f"The body has more than {limit:,} bytes."
        hint = "Send less, or raise body_mb in [serve] of plait.toml."
        too_large = RequestRejected(413, text, hint=hint, code="body_too_large", metric="size")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            raise too_large
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if length != "0" and kind != "application/json":
            text = f"The body's content type is {kind or 'missing'}."
            hint = "Send JSON with the header Content-Type: application/json."
            raise RequestRejected(415, text, hint=hint, metric="type")
        if (coding := headers.get("content-encoding", "identity").lower()) != "identity":
            text = f"The body is compressed ({coding})."
            raise RequestRejected(415, text, hint="Send it without Content-Encoding.", metric="type")
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self._table.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestRejected(400, "The body ends too early.")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            text = f"The body did not arrive within {self._table.body_seconds:g} seconds."
            raise RequestRejected(408, text, code="slow_body", metric="slow") from None
        return bytes(body)


def _wrong_host(host: str) -> RequestRejected:
    text = f"This server does not answer for the host {host!r}."
    hint = "Ask 127.0.0.1 or localhost, or add the host's name to hosts in [serve] of plait.toml."
    return RequestRejected(421, text, hint=hint, code="wrong_host", metric="host")


def _check_path(scope: Scope) -> None:
    """Refuse paths that another server might interpret differently. In a client's path, remove superfluous slashes:
    base URLs often end in one."""
    below = get_route_path(scope)  # the path below that of an application around this one
    above = scope["path"].removesuffix(below)
    path = re.sub("//+", "/", below).rstrip("/")
    raw = bytes(scope.get("raw_path") or scope["path"].encode())
    if find_needs(path) == CLIENTS:
        raw = re.sub(b"//+", b"/", raw).rstrip(b"/")
        scope["path"], scope["raw_path"] = above + path, raw
    if any(trick in raw.lower() for trick in TRICKS) or {b".", b".."} & set(raw.split(b"/")):
        text = "This path is not one of this server's."
        raise RequestRejected(400, text, hint=ENDPOINTS, code="bad_path", metric="path")


def find_needs(path: str) -> str:
    """Return who may ask for a path: OPEN, CLIENTS, USERS or FULL."""
    for needs, paths in NEEDS.items():
        if path in paths or f"{path}/".startswith(tuple(each for each in paths if each[1:].endswith("/"))):
            return needs
    return FULL


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what a route receives: the body, then whether the client went away."""
    read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return read.pop() if read else await receive()

    return next_message
