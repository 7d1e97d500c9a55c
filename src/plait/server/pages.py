"""The pages: their HTML, scripts and styles, and the login. None of them holds data."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plait.server.auth import LOGGED_IN, cookie_name
from plait.server.errors import RequestRejected, json_response
from plait.server.runs import RunManager
from plait.server.service import parse_body
from plait.view.html_file import read_asset, site_frame

PAGES = resources.files("plait.view.page")
KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The pages' policy: they may only run their own scripts and ask this server."""


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    token: str


def page_routes(manager: RunManager) -> list[Route]:
    async def index(request: Request) -> Response:
        """Return the page of runs, or the one that asks for the token."""
        return answer(request, read_asset("index.html"))

    async def chat(request: Request) -> Response:
        """Return the page to talk to agents, or the one that asks for the token."""
        page = site_frame().replace('page.css">', 'page.css">\n<link rel="stylesheet" href="page/chat.css">')
        return answer(request, page.replace("page/main.js", "page/chat.js"))

    def answer(request: Request, page: str) -> Response:
        caller = request.state.caller
        is_known = caller is not None and not caller.is_client and "login" not in request.query_params
        if not is_known and manager.proxy_users.are_set and not manager.tokens.open_pages:
            text, hint = "The pages need a user's name.", "Open them through the proxy."
            raise RequestRejected(401, text, hint=hint, kind="authentication_error", code="bad_token", metric="token")
        return _respond(request, (page if is_known else read_asset("login.html")).encode(), "html")

    async def asset(request: Request) -> Response:
        """Return a script, a style or a picture of the pages."""
        name = request.path_params["name"]
        is_name = name.replace(".", "").replace("-", "").isalnum() and name.endswith((".js", ".css", ".svg"))
        if not is_name or not PAGES.joinpath(name).is_file():
            raise RequestRejected(404, f"There is no page {name!r}.")
        return _respond(request, PAGES.joinpath(name).read_bytes(), name.rpartition(".")[2])

    async def login(request: Request) -> Response:
        """Exchange a token for a cookie that scripts cannot read, and a part that the page stores."""
        token = (await parse_body(request, LoginBody)).token
        login = manager.tokens.login(token)
        if login is None:
            text = "The token does not open the viewer."
            raise RequestRejected(401, text, kind="authentication_error", code="bad_token", metric="token")
        answer, cookie = json_response({"page": login.page}), find_cookie(request)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(value=login.cookie, max_age=LOGGED_IN, secure=is_secure, **cookie)
        return answer

    async def logout(request: Request) -> Response:
        """Delete the cookie. The page deletes its own part."""
        answer = json_response({})
        answer.delete_cookie(**find_cookie(request))
        return answer

    def find_cookie(request: Request) -> dict[str, Any]:
        """Return the name of the cookie, the path that has it, and that only this site's requests send it."""
        key, path = cookie_name(request.headers.get("host", "")), f"{request.scope.get('root_path', '')}/"
        return {"key": key, "path": path, "httponly": True, "samesite": "strict"}

    actions = [Route(f"/{act.__name__}", act, methods=["POST"]) for act in (login, logout)]
    return [Route("/", index), Route("/chat", chat), Route("/page/{name}", asset), *actions]


def _respond(request: Request, content: bytes, kind: str) -> Response:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    # A page is asked for each time it is opened; what has not changed is not sent again.
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "ETag": tag, "Vary": "Cookie"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=KINDS[kind], headers=headers)
