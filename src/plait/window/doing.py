"""What the window's pages do: log in, start a run, answer or resume one, fork, cancel."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plait.window.answers import json_answer
from plait.window.callers import LOGGED_IN, LoginLimit, cookie_name
from plait.window.desk import Desk
from plait.window.errors import Rejected

Answer = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class Start(msgspec.Struct, forbid_unknown_fields=True):
    """A run to begin."""

    agent: str
    question: str
    session: str | None = None


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    """What the person says to the question of that id; None to a run that was interrupted."""

    answer: str | None = None
    question: str | None = None


class Fork(msgspec.Struct, forbid_unknown_fields=True):
    """A fork, and what is other in it."""

    at: int
    model: str | None = None
    models: dict[str, str] | None = None
    strategy: str | None = None
    options: dict[str, Any] | None = None


class Login(msgspec.Struct, forbid_unknown_fields=True):
    """A browser that logs in."""

    token: str


def id_of(request: Request) -> str:
    """The run that the address names."""
    return str(request.path_params["id"])


def login(desk: Desk) -> Answer:
    """Trades a token for a cookie that the page's scripts cannot read, and a part that the page keeps."""
    limit = LoginLimit()

    async def answer(request: Request) -> Response:
        wanted = await _body(request, Login)
        if wait := limit.wait(time.monotonic()):
            desk.counts.refused("login")
            raise Rejected(429, "Too many wrong tokens were tried.", hint="Try again later.", code="login", after=wait)
        login = desk.door.login(wanted.token)
        if login is None:
            limit.failed(time.monotonic())
            desk.counts.refused("token")
            raise Rejected(401, "The token does not open the window.", kind="authentication_error", code="bad_token")
        given = json_answer({"page": login.page})
        given.set_cookie(
            cookie_name(request.headers.get("host", "")),
            login.cookie,
            max_age=LOGGED_IN,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return given

    return answer


def routes(desk: Desk) -> list[Route]:
    """What is posted under /api/runs."""

    async def start(request: Request) -> Response:
        wanted = await _body(request, Start)
        caller = request.state.caller
        session = caller.session(wanted.session) if wanted.session else None
        async with desk.turn(session) as turn:
            found = await desk.start(wanted.agent, wanted.question, caller=caller, session=session)
            turn.lasts(found)
        return json_answer({"run": found.run}, 201)

    async def resume(request: Request) -> Response:
        wanted = await _body(request, Resume)
        found = await desk.go_on(id_of(request), wanted.answer, question=wanted.question, caller=request.state.caller)
        return json_answer({"run": found.run}, 202)

    async def fork(request: Request) -> Response:
        wanted = await _body(request, Fork)
        given = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "at"}
        changes = {name: value for name, value in given.items() if value not in (None, {}, "")}
        found = await desk.fork(id_of(request), wanted.at, changes, caller=request.state.caller)
        return json_answer({"run": found.run}, 201)

    async def cancel(request: Request) -> Response:
        if not desk.cancel(id_of(request), caller=request.state.caller):
            raise Rejected(409, "This server is not performing that run.", hint="Cancel it where it was started.")
        return json_answer({}, 202)

    return [
        Route("/api/runs", start, methods=["POST"]),
        Route("/api/runs/{id}/resume", resume, methods=["POST"]),
        Route("/api/runs/{id}/fork", fork, methods=["POST"]),
        Route("/api/runs/{id}/cancel", cancel, methods=["POST"]),
    ]


async def _body(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as why:
        raise Rejected(400, f"The body can't be taken: {why}.") from None
