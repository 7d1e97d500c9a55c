"""One connection to an MCP server, shared by all tools of the process: begun, begun again when it broke, and ended.

A connection is held by one task from beginning to end, since what it is made of must be left where it was entered. What
uses it waits for that task to have it ready. When a call finds it broken, the next call begins a new one, at most
`ENDINGS` times in `A_WHILE` seconds, so that a server that falls over at once is not started for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from plait.core.errors import CallLost, PlaitError, ToolError, UsageError
from plait.tools import mcp_thread
from plait.tools.mcp_results import progress
from plait.tools.mcp_stderr import Tail
from plait.tools.mcp_trouble import NoServer, broken, no_server, refused, unreached
from plait.tools.mcp_words import Place

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as Listed

ENDINGS = 3
A_WHILE = 60.0
PAGES = 200
"""Pages of tools that are read: a server may say for ever that there is one more."""
MOST = 5_000
"""Tools that a server may list."""
MESSAGE = 256 * 1024 * 1024
"""Bytes that one event of a server at an address may have."""


class Link:
    """The connection to one server. Its coroutines run on the loop of `mcp_thread` alone."""

    def __init__(self, place: Place, server: Any = None) -> None:
        self.place = place
        self.listed: tuple[Listed, ...] = ()
        self._server = server
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._ended: list[float] = []
        self._tail = Tail()
        self._status = 0
        self._broke: BaseException | None = None

    async def tools(self) -> tuple[Listed, ...]:
        """The server's tools as it lists them now. Raises `NoServer`."""
        fresh = self._client is None
        client = await self._ready()
        if not fresh:
            await self._list(client)
        return self.listed

    async def call(
        self, name: str, arguments: dict[str, Any], *, again: bool, said: Callable[[str], None] | None = None
    ) -> CallToolResult:
        """What the server answers to a call; `again`: it may be made a second time when the first was lost. `said` is
        told how far it is, in words.

        Raises `NoServer` when the call was not made, `CallLost` when that is not known, and `ToolError` for what the
        server refuses.
        """
        for left in (1, 0):
            client = await self._ready()
            try:
                return await self._call(client, name, arguments, said)
            except Exception as why:
                gone = await self._gone(why)
                if not gone:
                    raise refused(self.place, why) from why
                await self._drop(client)
                if left and (again or gone == "before"):
                    continue
                raise (ToolError if again else CallLost)(
                    f"The MCP server {self.place.label} ended during this call: whether it happened is not known."
                    f"{self._tail.said()}"
                ) from why
        raise AssertionError("a call is made at most twice")

    async def close(self) -> None:
        """End the connection, and the server where it is a process of ours."""
        if self._opening is not None:
            self._opening.cancel()
        await self._end()

    # -- beginning and ending

    async def _ready(self) -> Client:
        if self._client is not None and _closed(self._client):  # the server ended while nobody asked for anything
            await self._drop(self._client)
        if self._client is None:
            if self._opening is None:
                self._opening = asyncio.get_running_loop().create_task(self._open())
                self._opening.add_done_callback(self._opened)
            # Shielded: others may wait for it as well, and the next call has use for it.
            await asyncio.shield(self._opening)
        assert self._client is not None
        return self._client

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waited has it; where nobody did, nobody needs it

    async def _open(self) -> None:
        now = time.monotonic()
        self._ended = [then for then in self._ended if now - then < A_WHILE]
        if len(self._ended) >= ENDINGS:
            raise NoServer(
                f"The MCP server {self.place.label} ended {len(self._ended)} times within a minute; it is left alone "
                f"for a while.{self._tail.said()}"
            )
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._status, self._broke = 0, None
        self._stop = asyncio.Event()
        self._holder = asyncio.get_running_loop().create_task(self._hold(ready))
        try:
            async with asyncio.timeout(self.place.start):
                client = await asyncio.shield(ready)
                await self._list(client)
        except BaseException as why:
            self._ended.append(now)
            await self._end()
            # What the server wrote last may still be on its way; it says why.
            await asyncio.sleep(0)
            if isinstance(why, asyncio.CancelledError):
                raise
            if isinstance(why, PlaitError):
                raise
            raise no_server(self.place, why, self._tail.said(), self._status) from why
        self._client = client

    async def _hold(self, ready: asyncio.Future[Client]) -> None:
        try:
            async with AsyncExitStack() as stack:
                from mcp import Client
                from mcp_types import Implementation

                info = Implementation(name="plait", version=version("plait"))
                reached = Client(await self._transport(stack), client_info=info, cache=None)
                client = await stack.enter_async_context(reached)
                self._tail.began()
                ready.set_result(client)
                await self._stop.wait()
        except BaseException as why:
            self._broke = why
            if not ready.done():
                ready.set_exception(why if isinstance(why, Exception) else ConnectionError("cancelled"))
            if isinstance(why, asyncio.CancelledError):
                raise
        finally:
            self._tail.close()
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
            return stdio_client(params, errlog=self._tail.open())
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def note(response: httpx2.Response) -> None:
            if response.status_code >= 400:
                self._status = response.status_code

        # No limit on reading: a call may take as long as its run allows.
        timeout = httpx2.Timeout(self.place.start, read=None)
        http = httpx2.AsyncClient(headers=self.place.sent(), timeout=timeout, event_hooks={"response": [note]})
        await stack.enter_async_context(http)
        return streamable_http_client(self.place.address(), http_client=http, max_sse_event_size=MESSAGE)

    async def _gone(self, why: Exception) -> Literal["", "before", "during"]:
        gone = broken(why)
        if gone == "during" and self._holder is not None:
            # An address that nobody answers at any more ends the holder with the reason.
            await asyncio.wait([self._holder], timeout=0.2)
            if unreached(self._broke):
                return "before"
        return gone

    async def _drop(self, client: Client) -> None:
        """Leave a connection that broke; who comes next begins a new one."""
        if self._client is client:
            self._client = None
            self._ended.append(time.monotonic())
            await self._end()

    async def _end(self) -> None:
        self._client = None
        holder, self._holder = self._holder, None
        if holder is None or holder.done():
            return
        self._stop.set()
        done, _ = await asyncio.wait([holder], timeout=mcp_thread.PATIENCE)
        if not done:
            holder.cancel()
            with suppress(BaseException):
                await asyncio.wait([holder], timeout=1)

    # -- asking

    async def _list(self, client: Client) -> None:
        found: list[Listed] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) > MOST:
                break
        if cursor or len(found) > MOST:
            raise UsageError(
                f"The MCP server {self.place.label} lists more than {MOST:,} tools, or never ends listing them.",
                hint="Use another one.",
            )
        self.listed = tuple(found)

    async def _call(
        self, client: Client, name: str, arguments: dict[str, Any], said: Callable[[str], None] | None
    ) -> CallToolResult:
        """The call itself. Not by the client's own `call_tool`, which loses a result that does not keep to the server's
        output schema, and lets that schema say what is computed here."""
        import mcp_types as types
        from pydantic import TypeAdapter

        kinds: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        request = types.CallToolRequest(params=params)
        heard = progress(said) if said is not None else None
        result = await client.session.send_request(request, kinds, progress_callback=heard)
        if isinstance(result, types.CallToolResult):
            return result
        raise ToolError("The server asks for more input during a call, which is not supported.")


def _closed(client: Client) -> bool:
    """Did the connection end? The SDK says so nowhere else; where it stops saying it here, the next call finds out."""
    return bool(getattr(getattr(client.session, "_dispatcher", None), "_closed", False))
