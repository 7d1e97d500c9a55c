"""The server as one ASGI application: all routes behind the guard, the health, and the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from plait.core.errors import JournalError
from plait.journal.run_query import RunQuery
from plait.server.ag_ui import ag_ui_routes
from plait.server.auth import ANY, Caller
from plait.server.chat_api import chat_routes
from plait.server.completions import completion_routes
from plait.server.errors import ENDPOINTS, error_body, json_response
from plait.server.guard import AccessCheck
from plait.server.improve_api import improve_routes
from plait.server.mcp_http import mcp_routes
from plait.server.memory_api import memory_routes
from plait.server.openapi import ApiRoute, answer_document
from plait.server.pages import page_routes
from plait.server.responses import response_routes
from plait.server.runs import RunManager
from plait.server.runs_api import viewer_routes
from plait.server.service import service_routes


def build_app(manager: RunManager, identify: Callable[[Scope], Caller] | None = None) -> Starlette:
    """Build the application. Routes find the caller in `request.state.caller`. `identify` see `AccessCheck`."""
    routes: list[Route] = [*completion_routes(manager), *response_routes(manager), *service_routes(manager)]
    routes += [*ag_ui_routes(manager), *improve_routes(manager), *memory_routes(manager)]
    routes += [*health_routes(manager), *page_routes(manager), *chat_routes(manager), *viewer_routes(manager)]
    routes += mcp_routes(manager)
    return Starlette(
        routes=[*routes, ApiRoute("/openapi.json", answer_document, role=ANY)],
        middleware=[Middleware(AccessCheck, manager=manager, identify=identify)],
        exception_handlers={404: _answer_http_error, 405: _answer_http_error},
    )


def health_routes(manager: RunManager) -> list[ApiRoute]:
    """Return /health (the server lives), /health/ready (it accepts runs) and /metrics."""

    async def live(request: Request) -> Response:
        """Return whether the server lives."""
        return json_response({"status": "ok"})

    async def ready(request: Request) -> Response:
        """Return whether the server takes runs (200, or 503)."""
        problem = "stopping" if manager.stopping else ""
        try:
            await asyncio.to_thread(manager.journal.find, RunQuery(limit=1))
        except JournalError:
            problem = problem or "the journal can't be read"
        return json_response({"status": problem or "ok"}, 503 if problem else 200)

    async def metrics(request: Request) -> Response:
        """Return the metrics, for Prometheus."""
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        text = await asyncio.to_thread(encode, manager.metrics.registry)  # which may wait for the database
        return Response(text, headers={"content-type": kind})

    return [ApiRoute("/health", live), ApiRoute("/health/ready", ready), ApiRoute("/metrics", metrics)]


async def _answer_http_error(request: Request, error: Exception) -> Response:
    status, headers = getattr(error, "status_code", 404), getattr(error, "headers", None) or {}
    text, code = f"There is nothing at {request.url.path}. {ENDPOINTS}", "not_found"
    if status == 405:
        allowed = f" Use {headers['Allow']}." if "Allow" in headers else ""
        text, code = f"{request.method} can't be used here.{allowed}", "method_not_allowed"
    return json_response(error_body(text, "invalid_request_error", code), status, headers)
