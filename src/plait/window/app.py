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
    said = f"There is nothing at {request.url.path}." if status == 404 else f"{request.method} can't be done here."
    return json_answer(error_body(said, "invalid_request_error", "not_found"), status, getattr(why, "headers", None))
