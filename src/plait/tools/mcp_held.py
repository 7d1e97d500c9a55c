"""One connection to an MCP server, from beginning to end.

What a connection is made of must be left by the task that entered it. So one task holds it: it enters, says that it is
ready, waits until it is told to end, and leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from plait.tools import mcp_thread
from plait.tools.mcp_stderr import Tail
from plait.tools.mcp_trouble import unreached
from plait.tools.mcp_words import Place

if TYPE_CHECKING:
    from mcp import Client

MESSAGE = 256 * 1024 * 1024
"""Bytes that one event of a server at an address may have."""


class Held:
    """A connection. Its coroutines run on the loop of `mcp_thread` alone."""

    def __init__(self, place: Place, server: Any = None) -> None:
        self.place = place
        self.tail = Tail()
        self.status = 0
        """The HTTP status that the server last refused a request with."""
        self._server = server
        self._client: Client | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._broke: BaseException | None = None
        self._asking = 0
        self._several = False

    @property
    def client(self) -> Client:
        """What asks the server, once the connection has begun."""
        assert self._client is not None
        return self._client

    @property
    def closed(self) -> bool:
        """Did it end? The SDK says so nowhere else; where it stops saying it here, the next call finds out."""
        return bool(getattr(getattr(self.client.session, "_dispatcher", None), "_closed", False))

    async def begin(self) -> None:
        """Begin the server, or reach it. Raises whatever goes wrong; `end` is to be called then as well."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Client] = loop.create_future()
        self._task = loop.create_task(self._hold(ready))
        self._client = await asyncio.shield(ready)

    async def end(self) -> None:
        """End it, and the server where it is a process of ours."""
        task = self._task
        if task is None or task.done():
            return
        self._stop.set()
        if self._client is None:  # it waits for the server, not for us
            task.cancel()
        done, _ = await asyncio.wait([task], timeout=mcp_thread.PATIENCE)
        if not done:
            task.cancel()
            with suppress(BaseException):
                await asyncio.wait([task], timeout=1)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """For each request, while it is open."""
        self._asking += 1
        self._several = self._several or self._asking > 1
        try:
            yield
        finally:
            self._asking -= 1
            self._several = self._several and self._asking > 0

    async def never_arrived(self) -> bool:
        """Of a request that failed, while it is open: did it surely not reach the server?

        An address that nobody answers at any more ends the connection with that reason. It is this request's own
        reason only when no other was open beside it: one that had arrived fails in the same moment.
        """
        if self._task is not None:
            await asyncio.wait([self._task], timeout=0.2)
        return not self._several and unreached(self._broke)

    async def _hold(self, ready: asyncio.Future[Client]) -> None:
        try:
            async with AsyncExitStack() as stack:
                from mcp import Client
                from mcp_types import Implementation

                info = Implementation(name="plait", version=version("plait"))
                reached = Client(await self._transport(stack), client_info=info, cache=None)
                client = await stack.enter_async_context(reached)
                self.tail.began()
                ready.set_result(client)
                await self._stop.wait()
        except BaseException as why:
            self._broke = why
            if not ready.done():
                ready.set_exception(why if isinstance(why, Exception) else ConnectionError("cancelled"))
            if isinstance(why, asyncio.CancelledError):
                raise
        finally:
            self.tail.close()
            if ready.done() and not ready.cancelled():
                ready.exception()

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if self._server is not None:
            return self._server
        if self.place.command:
            from mcp.client.stdio import StdioServerParameters, stdio_client

            from plait.tools.mcp_stderr import usual

            command, *arguments = self.place.command
            env = {**usual(), **self.place.environment()}
            params = StdioServerParameters(command=command, args=arguments, env=env, cwd=self.place.cwd)
            # A server may write half a character; that is its message's trouble, not the connection's.
            params.encoding_error_handler = "replace"
            return stdio_client(params, errlog=self.tail.open())
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def note(response: httpx2.Response) -> None:
            if response.status_code >= 400:
                self.status = response.status_code

        # No limit on reading: a call may take as long as its run allows.
        timeout = httpx2.Timeout(self.place.start, read=None)
        http = httpx2.AsyncClient(headers=self.place.sent(), timeout=timeout, event_hooks={"response": [note]})
        await stack.enter_async_context(http)
        return streamable_http_client(self.place.address(), http_client=http, max_sse_event_size=MESSAGE)
