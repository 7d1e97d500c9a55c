"""The MCP server on its way out: streamable HTTP at /mcp, and stdio.

At /mcp the guard has been passed: it asked for a token, looked at Host and Origin, and read the body. A session of the
transport belongs to the token that opened it; with another it is not found. The sessions stand on a task of their own,
begun by the first request and ended when the server stops and its runs are over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from plait.window.callers import Caller
from plait.window.desk import Desk

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

SESSIONS = 1_000
"""Sessions of clients that are open at once; one that is idle for half an hour is closed."""


def routes(desk: Desk) -> list[BaseRoute]:
    """The route /mcp; none where the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        return []
    return [Route("/mcp", Endpoint(desk))]


class Endpoint:
    """The ASGI application at /mcp."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._holder: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        manager = await self._ready()
        await manager.handle_request(_with_owner(scope), receive, send)

    async def _ready(self) -> StreamableHTTPSessionManager:
        loop = asyncio.get_running_loop()
        if self._manager is None or self._holder is None or self._holder.done() or self._holder.get_loop() is not loop:
            # One for all, also for requests that come before it is ready.
            ready: asyncio.Future[StreamableHTTPSessionManager] = loop.create_future()
            self._manager, self._holder = ready, loop.create_task(self._hold(ready))
            self._holder.add_done_callback(lambda task: _failed(ready, task))
        return await asyncio.shield(self._manager)

    async def _hold(self, ready: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from plait.window.mcp_server import server

        most = int(self._desk.table.body_mb * 1_000_000)
        manager = StreamableHTTPSessionManager(server(self._desk), max_sessions=SESSIONS, max_request_body_size=most)
        async with manager.run():
            ready.set_result(manager)
            while not (self._desk.stopping and not self._desk.running):
                await asyncio.sleep(0.2)
            await asyncio.sleep(0.5)  # what the last runs gave is on its way


def _failed(ready: asyncio.Future[Any], task: asyncio.Task[None]) -> None:
    """Tell whoever waits what kept the transport from being begun."""
    why = None if task.cancelled() else task.exception()
    if not ready.done():
        ready.set_exception(why or RuntimeError("the transport was ended before it began"))
        ready.exception()  # nobody has to ask


def _with_owner(scope: Scope) -> Scope:
    """The scope with its caller as the transport knows owners of sessions."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    caller = scope.get("state", {}).get("caller")
    owner = caller.owner if isinstance(caller, Caller) else ""
    token = AccessToken(token=owner or "none", client_id=owner or "anyone", scopes=[])
    return {**scope, "user": AuthenticatedUser(token)}


def serve_stdio(desk: Desk) -> None:
    """Serve over this process's stdin and stdout until stdin ends, or Ctrl-C or SIGTERM.

    Nothing but the protocol is written on stdout: whatever else prints there goes to stderr. Runs under way are given
    `grace` seconds at a signal, then cancelled, and can be resumed.
    """
    asyncio.run(_stdio(desk))


async def _stdio(desk: Desk) -> None:
    import signal

    from mcp.server.stdio import stdio_server

    from plait.window.mcp_server import server

    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    # What whoever started us ignores, as a script does for its background jobs, is ignored.
    for number in (each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN):
        loop.add_signal_handler(number, asked.set)
    async with stdio_server() as (read, write):
        ours = server(desk)
        serving = loop.create_task(_ended(ours.run(read, write, ours.create_initialization_options())))
        told = loop.create_task(_ended(asked.wait()))
        await asyncio.wait([serving, told], return_when=asyncio.FIRST_COMPLETED)
        # A client that closed stdin hears no answer any more; one that asked us to end may.
        await desk.stop(0 if serving.done() else None)
        for task in (serving, told):
            task.cancel()
        await asyncio.wait([serving, told], timeout=5)
        if not serving.done() or asked.is_set():
            _leave()


async def _ended(work: Coroutine[Any, Any, Any]) -> None:
    await work


def _leave() -> None:
    """End the process though a thread still waits for a line on stdin, which nothing can take it from."""
    import os
    import sys

    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
