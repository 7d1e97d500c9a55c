"""Puts the routes together: `build(desk)` is the whole server as an ASGI application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from plait.window import api, completions, health, mcp_server
from plait.window.answers import json_answer
from plait.window.desk import Desk
from plait.window.errors import error_body
from plait.window.guard import Guard


def build(desk: Desk) -> Starlette:
    """The server. Routes find the desk in `request.app.state.desk` and who asks in `request.state.caller`."""
    rooms = (completions, health, api, mcp_server)
    routes: list[BaseRoute] = [route for room in rooms for route in room.routes(desk)]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, desk=desk)],
        exception_handlers={404: _absent, 405: _absent},
    )
    app.state.desk = desk
    return app


async def _absent(request: Request, why: Exception) -> Response:
    status = getattr(why, "status_code", 404)
    headers = getattr(why, "headers", None) or {}
    said, code = f"There is nothing at {request.url.path}.", "not_found"
    if status == 405:
        allowed = headers.get("Allow", "")
        said, code = (
            f"{request.method} can't be done here. {f'Use {allowed}.' if allowed else ''}",
            "method_not_allowed",
        )
    return json_answer(error_body(said.strip(), "invalid_request_error", code), status, headers)
