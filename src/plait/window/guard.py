"""What stands before every route: who asks, from where, and how much.

Theory of operation. A request passes these in turn, and the first that speaks against it ends it: its path (nothing
that another server might read otherwise), its Host and Origin (no page of another site, no name that was made to point
here), its token, its content type, its body. The body is read here, whole, within a size and a time, and handed on; so
no route has to think of it. What each path needs stands in `NEEDS`.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.core.errors import PlaitError
from plait.journal.codec import encode
from plait.window.callers import ANYONE, Caller, Door, cookie_name
from plait.window.desk import Desk
from plait.window.errors import Gone, Rejected, rejected
from plait.window.idempotency import Idempotency
from plait.window.settings import LOCAL_NAMES

logger = logging.getLogger("plait.window")

OPEN, CLIENTS, FULL = "open", "clients", "full"
NEEDS = (
    ("/", OPEN),
    ("/login", OPEN),
    ("/favicon.ico", OPEN),
    ("/page/", OPEN),
    ("/health", OPEN),
    ("/health/", OPEN),
    ("/v1/", CLIENTS),
    ("/mcp", CLIENTS),
    ("/mcp/", CLIENTS),
)
"""Who may ask for a path: one that ends in / stands for all below it. What is not listed is for full tokens."""

USUAL = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of every answer that does not set them itself."""


class Guard:
    """Middleware. It puts the `Caller` into the scope's state under "caller"."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app = app
        self._idempotency = Idempotency(app)
        self._desk = desk
        self._door: Door = desk.door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in USUAL.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._path(scope)
            self._from_here(headers)
            caller = scope.setdefault("state", {})["caller"] = self._caller(scope, headers)
            body = await self._body(scope, headers, receive)
            await self._idempotency.answer(scope, body, receive, guarded, caller.owner if caller is not None else "")
        except Gone:
            return
        except Exception as why:
            found = rejected(why)
            if not isinstance(why, PlaitError):
                logger.error("%s %r broke", scope["method"], scope["path"], exc_info=why)
            if begun:
                raise
            await answer(found, guarded)

    def _path(self, scope: Scope) -> None:
        raw = bytes(scope.get("raw_path") or scope["path"].encode())
        low = raw.lower()
        tricks = (b"//", b"\\", b"%2f", b"%5c", b"%2e", b"%00", b"%25")
        if any(trick in low for trick in tricks) or any(part in (b".", b"..") for part in low.split(b"/")):
            self._desk.counts.refused("path")
            raise Rejected(400, "The path can't be that of a page here.", code="bad_path")

    def _from_here(self, headers: Headers) -> None:
        """No page of another site may use the server, and no name that was made to point to it."""
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        if not host or not (self._door.locked or name.lower() in (*LOCAL_NAMES, *self._desk.table.hosts)):
            self._desk.counts.refused("host")
            raise Rejected(
                421, f"The server is not asked for as {host!r}.", hint="Ask 127.0.0.1 or localhost.", code="wrong_host"
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        foreign = origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}")
        # A link from elsewhere may be followed to a page; that asks for nothing to be done.
        followed = headers.get("sec-fetch-mode") == "navigate" and origin is None
        if foreign or (site in ("cross-site", "same-site") and not followed):
            self._desk.counts.refused("origin")
            raise Rejected(403, "Pages of other sites can't use this server.", code="cross_site")

    def _caller(self, scope: Scope, headers: Headers) -> Caller | None:
        needs = _needs(scope["path"])
        if not self._door.locked:
            return ANYONE
        caller, given = self._known(scope, headers, needs)
        if needs == OPEN and (caller is not None or not given):
            return caller
        if caller is None:
            self._desk.counts.refused("token")
            told = "The token is not known." if given else "A token is needed."
            raise Rejected(
                401, told, hint="Send it as Authorization: Bearer TOKEN.", kind="authentication_error",
                code="invalid_api_key",
            )  # fmt: skip
        if needs == FULL and not caller.full:
            self._desk.counts.refused("token")
            raise Rejected(403, "The token is for the endpoint only.", kind="permission_error", code="forbidden")
        return caller

    def _known(self, scope: Scope, headers: Headers, needs: str) -> tuple[Caller | None, bool]:
        """Who asks, and whether they gave anything to be known by. A token wins over a cookie."""
        said = headers.get("authorization")
        if said is not None:
            kind, _, token = said.partition(" ")
            return (self._door.by_token(token.strip()) if kind.lower() == "bearer" else None), True
        # Other servers of this machine put cookies of theirs beside ours, of any form: each is read by itself.
        cookie = cookie_parser(headers.get("cookie", "")).get(cookie_name(headers.get("host", "")))
        if cookie is None:
            return None, False
        # What opens a stream of events, or a link, can send no headers.
        page = headers.get("x-plait-page") or QueryParams(scope.get("query_string", b"")).get("page", "")
        # A cookie that is not known any more is as none: the page asks for the token again.
        return self._door.by_login(cookie, None if needs == OPEN else page), False

    async def _body(self, scope: Scope, headers: Headers, receive: Receive) -> bytes:
        bodiless = scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE")
        if bodiless and "content-length" not in headers and "transfer-encoding" not in headers:
            return b""
        most = int(self._desk.table.body_mb * 1_000_000)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise self._too_large(most)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if length != "0" and kind != "application/json":
            self._desk.counts.refused("type")
            raise Rejected(415, f"The body is {kind or 'of no type'}.", hint="Send JSON, as application/json.")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._desk.table.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Rejected(400, "The body ends too early.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > most:
                        raise self._too_large(most)
        except TimeoutError:
            self._desk.counts.refused("slow")
            raise Rejected(
                408, f"The body was not there within {self._desk.table.body_seconds:g} seconds.", code="slow_body"
            ) from None
        return b"".join(parts)

    def _too_large(self, most: int) -> Rejected:
        self._desk.counts.refused("size")
        return Rejected(413, f"The body has more than {most:,} bytes.", code="body_too_large")


async def answer(why: Rejected, send: Send) -> None:
    """Answer with an error. The connection is closed where its request may not have been read to the end."""
    body = encode(why.body())
    headers = {**why.headers, "content-type": "application/json", "content-length": str(len(body))}
    if why.status in (400, 401, 403, 408, 413, 415, 421):
        headers["connection"] = "close"
    raw = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": why.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _needs(path: str) -> str:
    for known, needs in NEEDS:
        if path == known or (known.endswith("/") and known != "/" and path.startswith(known)):
            return needs
    return FULL
