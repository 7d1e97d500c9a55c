"""The way to one MCP server, shared by all tools of the process: begun, begun again when it broke, and ended.

When a call finds the connection broken, the next call begins a new one, at most `ENDINGS` times in `A_WHILE` seconds,
so that a server that falls over at once is not started for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from plait.core.errors import CallLost, PlaitError, ToolError, UsageError
from plait.tools.mcp_held import Held
from plait.tools.mcp_results import progress
from plait.tools.mcp_trouble import NoServer, broken, no_server, refused
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


class Link:
    """The way to one server. Its coroutines run on the loop of `mcp_thread` alone."""

    def __init__(self, place: Place, server: Any = None) -> None:
        self.place = place
        self.listed: tuple[Listed, ...] = ()
        self._server = server
        self._held: Held | None = None
        self._opening: asyncio.Task[Held] | None = None
        self._ended: list[float] = []
        self._wrote = ""
        """What the server wrote that ended last."""

    async def tools(self) -> tuple[Listed, ...]:
        """The server's tools as it lists them now. Raises `NoServer`, and `UsageError` for a list without an end."""
        before = self._held
        held = await self._ready()
        if held is not before:  # they were listed when it began
            return self.listed
        held.status = 0
        try:
            async with asyncio.timeout(self.place.start):
                await self._list(held)
        except PlaitError:
            raise
        except Exception as why:
            if not broken(why):
                raise no_server(self.place, why, held.tail.said(), held.status) from why
            await self._drop(held)
            await self._ready()
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
            held = await self._ready()
            with held.asking():
                try:
                    return await _call(held.client, name, arguments, said)
                except Exception as error:
                    why, gone = error, await _gone(error, held)
            if not gone:
                raise refused(self.place, why) from why
            await self._drop(held)
            if left and (again or gone == "before"):
                continue
            raise (ToolError if again else CallLost)(
                f"The MCP server {self.place.label} ended during this call: whether it happened is not known."
                f"{held.tail.said()}"
            ) from why
        raise AssertionError("a call is made at most twice")

    async def close(self) -> None:
        """End the connection, and the server where it is a process of ours."""
        held, self._held = self._held, None
        if (opening := self._opening) is not None:
            opening.cancel()
            await asyncio.wait([opening])
        if held is not None:
            await held.end()

    async def _ready(self) -> Held:
        if self._held is not None and self._held.closed:  # the server ended while nobody asked for anything
            await self._drop(self._held)
        if self._held is not None:
            return self._held
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)
        # Shielded: others may wait for it as well, and the next call has use for it.
        return await asyncio.shield(self._opening)

    def _opened(self, task: asyncio.Task[Held]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waited has it; where nobody did, nobody needs it

    async def _open(self) -> Held:
        now = time.monotonic()
        self._ended = [then for then in self._ended if now - then < A_WHILE]
        if len(self._ended) >= ENDINGS:
            raise NoServer(
                f"The MCP server {self.place.label} ended {len(self._ended)} times within a minute; it is left alone "
                f"for a while.{self._wrote}"
            )
        held = Held(self.place, self._server)
        try:
            async with asyncio.timeout(self.place.start):
                await held.begin()
                await self._list(held)
        except BaseException as why:
            self._ended.append(now)
            await held.end()
            self._wrote = held.tail.said()
            if isinstance(why, (asyncio.CancelledError, PlaitError)):
                raise
            raise no_server(self.place, why, self._wrote, held.status) from why
        self._held = held
        return held

    async def _drop(self, held: Held) -> None:
        """Leave a connection that broke; who comes next begins a new one."""
        if self._held is held:
            self._held = None
            self._ended.append(time.monotonic())
            await held.end()
            self._wrote = held.tail.said()

    async def _list(self, held: Held) -> None:
        found: list[Listed] = []
        cursor: str | None = None
        with held.asking():
            for _ in range(PAGES):
                page = await held.client.list_tools(cursor=cursor)
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


async def _gone(why: Exception, held: Held) -> Literal["", "before", "during"]:
    gone = broken(why)
    return "before" if gone == "during" and await held.never_arrived() else gone


async def _call(
    client: Client, name: str, arguments: dict[str, Any], said: Callable[[str], None] | None
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
