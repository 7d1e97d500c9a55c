"""The MCP server at /mcp, over streamable HTTP.

The guard has checked the token, Host and Origin, and read the body. A session of the transport belongs to the token
that opened it; another token cannot find it. A server whose journal others may share has no sessions: each request
stands alone, and a client of the older protocol gets a question as text. A task holds the sessions. The first request
starts the task, and it ends when the server stops and its runs are over.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from plait.journal.store import is_address
from plait.server.auth import USE
from plait.server.openapi import RoleRoute
from plait.server.runs import RunManager

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

SESSIONS = 1_000
"""Open sessions at once. One that is idle for half an hour is closed."""


def mcp_routes(manager: RunManager) -> list[Route]:
    """Return the route /mcp; none without the extra `mcp`."""
    return [RoleRoute("/mcp", McpEndpoint(manager), role=USE)] if find_spec("mcp") is not None else []


class McpEndpoint:
    """The ASGI application at /mcp."""

    def __init__(self, manager: RunManager) -> None:
        self._manager = manager
        self._ready: asyncio.Future[StreamableHTTPSessionManager]
        self._holder: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        sessions, caller = await self._start(), scope["state"]["caller"]
        # The SDK compares this user with the owner of a session.
        user = AuthenticatedUser(
            AccessToken(token=caller.owner or "none", client_id=caller.owner or "anyone", scopes=[])
        )
        await sessions.handle_request({**scope, "user": user}, receive, send)

    async def _start(self) -> StreamableHTTPSessionManager:
        if self._holder is None or self._holder.done():
            # Requests that arrive before it is ready wait for it together.
            self._ready = ready = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(ready))
            self._holder.add_done_callback(lambda task: _report_failure(ready, task))
        return await asyncio.shield(self._ready)

    async def _hold(self, ready: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from plait.server.mcp_server import make_server

        limit = int(self._manager.table.body_mb * 1_000_000)
        server = make_server(self._manager)
        # The next request of a session may come to another server on the same journal.
        is_shared = is_address(self._manager.journal.place)
        sessions = StreamableHTTPSessionManager(
            server, stateless=is_shared, max_sessions=SESSIONS, max_request_body_size=limit
        )
        async with sessions.run():
            ready.set_result(sessions)
            while not (self._manager.stopping and not self._manager.running):
                await asyncio.sleep(0.2)
            await asyncio.sleep(0.5)  # the results of the last runs are on their way


def _report_failure(ready: asyncio.Future[Any], task: asyncio.Task[None]) -> None:
    """Raise, in every waiting request, what prevented the start."""
    error = None if task.cancelled() else task.exception()
    if not ready.done():
        ready.set_exception(error or RuntimeError("the transport ended before it began"))
        ready.exception()  # mark as retrieved: maybe no request waits
