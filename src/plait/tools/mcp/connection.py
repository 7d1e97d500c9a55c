"""Connections to MCP servers: one for each server in a process, opened again after it broke.

This module imports the SDK, which takes a second. So it is imported when the first server is needed.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import time
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar

import mcp_types as types
from mcp import MCPError

from plait.core.errors import CallLost, ConfigError, PlaitError, ToolError
from plait.tools.call_context import held_calls
from plait.tools.mcp.errors import (
    McpServerUnavailable,
    describe_call_error,
    describe_failure,
    find_fault,
    find_status,
    may_be_unknown_session,
)
from plait.tools.mcp.replies import MARK, read_raw
from plait.tools.mcp.server import MCP_LOOP, McpServer
from plait.tools.mcp.server_call import ServerCall
from plait.tools.mcp.session import CLOSE_SECONDS, McpSession

T = TypeVar("T")

MAX_FAILURES = 3
FAILURE_SECONDS = 60.0
"""Plait does not start a server again that failed `MAX_FAILURES` times in `FAILURE_SECONDS`."""
MAX_ROUNDS = 20
"""How often a server may ask for input during one call."""
PAUSE_SECONDS = 0.25
MAX_STATE = 200_000
"""Characters of a result that asks for input, which the journal stores with the question."""
OLD_STATUSES = (400, 404, 405, 406, 415)
"""With these a server of 2024 refuses the handshake of a later one."""
MAX_PAGES = 200
MAX_TOOLS = 5_000


class AnyResult(types.Result, extra="allow"):
    """A result of any request, with all that it has."""


_LISTS: dict[str, Any] = {
    "resources": types.ListResourcesRequest,
    "resourceTemplates": types.ListResourceTemplatesRequest,
    "prompts": types.ListPromptsRequest,
}
_connections: dict[tuple[int, Hashable], McpConnection] = {}
"""The connections by process and server, because a forked process leaves its parent's alone."""


def connection_to(server: McpServer, in_process: Any = None) -> McpConnection:
    """Return the connection to a server that all its tools share. It opens with the first request. Raises `ConfigError`
    if a variable that the server needs is not set."""
    key = server.connection_key() if in_process is None else id(in_process)
    return _connections.setdefault((os.getpid(), key), McpConnection(server, in_process))


def close() -> None:
    """End all servers and connections of this process. A later call of a tool starts its server again."""

    async def close_all() -> None:
        await asyncio.gather(*(connection.close() for connection in connections))
        while held_calls:
            await held_calls.popitem()[1].cancel()

    connections = [connection for (process, _), connection in _connections.items() if process == os.getpid()]
    if connections:
        with suppress(TimeoutError):
            MCP_LOOP.wait(close_all(), CLOSE_SECONDS + 2)


atexit.register(close)
for _name in ("mcp", "client"):  # the SDK's loggers would write on the terminal; our errors say enough
    logging.getLogger(_name).addHandler(logging.NullHandler())


class McpConnection:
    """The connection to one server. Its methods run on the background loop."""

    def __init__(self, server: McpServer, in_process: Any = None) -> None:
        self.server = server
        self.tools: tuple[types.Tool, ...] = ()
        """The tools as the server listed them last."""
        self._in_process = in_process
        self._session: McpSession | None = None
        self._opening = asyncio.Lock()
        self._is_old = False
        """Whether the server has the transport of 2024, HTTP with SSE."""
        self._failures: deque[float] = deque(maxlen=MAX_FAILURES)
        self._stderr = ""

    async def list_tools(self) -> tuple[types.Tool, ...]:
        """Return the tools that the server has. Raises `McpServerUnavailable`; `ConfigError`: an endless list."""
        if self._session is None:
            await self._ready()  # opening a session lists the tools
        else:
            try:
                await self._request(self._read_tools, is_repeatable=True)
            except MCPError as error:
                raise describe_failure(self.server, error, "") from error
        return self.tools

    async def call_tool(self, name: str, arguments: dict[str, Any], is_repeatable: bool, call: ServerCall) -> Any:
        """Return the server's result of a call, as JSON. Plait makes a lost call once more if `is_repeatable`.

        Raises `McpServerUnavailable` if no call was made, `CallLost` if that is not known, and `ToolError` if the
        server refuses the call.
        """
        more: dict[str, Any] = {}
        for round in range(call.round, MAX_ROUNDS):
            params = {"name": name, "arguments": arguments, **more}
            request = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params, by_name=False))
            try:
                if call.state is None:
                    result = await self._request(
                        partial(McpSession.send_call, request=request, call=call), is_repeatable
                    )
                else:
                    result, call.state = call.state["result"], None
            except McpServerUnavailable as error:
                text = "" if is_repeatable else " The call was not made."  # it may have been lost before
                raise McpServerUnavailable(error.message + text, hint=error.hint) from error
            except PlaitError:
                raise
            except Exception as error:
                if not isinstance(error, MCPError) or error.code != types.URL_ELICITATION_REQUIRED:
                    raise ToolError(describe_call_error(self.server, error)) from error
                asked = error.data.get("elicitations") if isinstance(error.data, dict) else None
                if not isinstance(asked, list) or not asked:
                    raise ToolError(describe_call_error(self.server, error)) from error
                for each in asked:
                    params = {"url": "", **each, "mode": "url"} if isinstance(each, dict) else {}
                    if (await call.ask("elicitation/create", params)).get("action") != "accept":
                        raise ToolError(f"{error.message} (The user did not open the address.)") from error
                continue
            if not isinstance(result, dict) or result.get("resultType") != "input_required":
                return result
            more = {"requestState": result.get("requestState"), "inputResponses": {}}
            inputs = result.get("inputRequests")
            state = {"round": round, "result": result} if len(json.dumps(result)) < MAX_STATE else None
            for key, each in (inputs if isinstance(inputs, dict) else {}).items():
                asked = each if isinstance(each, dict) else {}
                params = asked["params"] if isinstance(asked.get("params"), dict) else {}
                reply = await call.ask(str(asked.get("method")), params, state=state)
                if "error" in reply:
                    raise ToolError(f"The MCP server {self.server.label} asks for input: {reply['error']}")
                more["inputResponses"][key] = reply
            if not more["inputResponses"]:
                await asyncio.sleep(PAUSE_SECONDS)
        raise ToolError(f"The MCP server {self.server.label} asks for input more than {MAX_ROUNDS} times in one call.")

    async def ask(self, request: types.ClientRequest) -> Any:
        """Return the server's result of a request that changes nothing, as JSON. Raises `ToolError` for an error."""

        async def send(session: McpSession) -> Any:
            return read_raw(await session.client.session.send_request(request, AnyResult))

        try:
            return await self._request(send, is_repeatable=True)
        except MCPError as error:
            raise ToolError(describe_call_error(self.server, error)) from error

    async def list_all(self, kind: Literal["resources", "resourceTemplates", "prompts"]) -> list[dict[str, Any]]:
        """Return what a server lists of a kind, as JSON; nothing from a server that has no such list. Raises
        `McpServerUnavailable`."""
        found: list[dict[str, Any]] = []
        cursor = None
        try:
            for _ in range(MAX_PAGES):
                result = await self.ask(_LISTS[kind](params=types.PaginatedRequestParams(cursor=cursor)))
                page = result.get(kind) if isinstance(result, dict) else None
                found += [each for each in page if isinstance(each, dict)] if isinstance(page, list) else []
                before, cursor = cursor, str(result.get("nextCursor") or "") if page else ""
                if cursor in ("", before) or len(found) > MAX_TOOLS:
                    break
        except McpServerUnavailable:
            raise
        except ToolError:  # it has no such list, or the list ends here
            pass
        return found[:MAX_TOOLS]

    async def close(self) -> None:
        """End the connection, and the server if Plait started it."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _request(self, send: Callable[[McpSession], Awaitable[T]], is_repeatable: bool) -> T:
        more = {"forgotten": 1, "lost": int(is_repeatable)}  # how often the request is made again
        while True:
            session = await self._ready()
            session.requests += 1
            try:
                return await send(session)
            except Exception as error:
                kind = find_fault(error).kind
                if self.server.url and may_be_unknown_session(error) and not await self._is_known(session):
                    kind = "forgotten"
                if kind in ("", "answered"):
                    raise
                if kind == "forgotten" and self._session is session:
                    self._session = None
                if kind == "lost" and not self.server.url:
                    await self._discard(session)
                if more.get(kind):
                    more[kind] -= 1
                elif kind in ("lost", "unreadable"):
                    text = describe_call_error(self.server, error, session.describe_stderr())
                    raise (ToolError if is_repeatable else CallLost)(text) from error
                else:
                    raise session.describe_failure(error) from error
            finally:
                session.requests -= 1
                if session is not self._session and not session.requests:
                    session.closing.set()

    async def _is_known(self, session: McpSession) -> bool:
        """Return whether the server knows a session. A tool's own error may be about another kind of session."""
        try:
            async with asyncio.timeout(self.server.start):
                await session.client.list_tools()
        except Exception as error:
            return find_fault(error).kind != "forgotten" and not may_be_unknown_session(error)
        return True

    async def _ready(self) -> McpSession:
        while True:
            # Shielded: if this request is cancelled, the server goes on starting for the next one.
            session = await asyncio.shield(asyncio.ensure_future(self._open()))
            if session is self._session:
                return session

    async def _open(self) -> McpSession:
        async with self._opening:
            if self._session is not None and self._session.is_closed:  # the server ended between two requests
                await self._discard(self._session)
            if self._session is not None:
                return self._session
            if len(self._failures) == MAX_FAILURES and time.monotonic() - self._failures[0] < FAILURE_SECONDS:
                text = f"The MCP server {self.server.label} ended {MAX_FAILURES} times within a minute."
                raise McpServerUnavailable(f"{text} Plait waits a minute before it starts it again.{self._stderr}")
            try:
                return await self._open_session()
            except McpServerUnavailable as error:
                self._is_old = not self._is_old and find_status(error.__cause__) in OLD_STATUSES
                if self._is_old:
                    with suppress(PlaitError):
                        return await self._open_session()
                    self._is_old = False
                raise

    async def _open_session(self) -> McpSession:
        session = self._session = McpSession(self.server, self._in_process, self._is_old)
        try:
            async with asyncio.timeout(self.server.start):
                await session.opened
                await self._read_tools(session)
        except Exception as error:
            await self._discard(session)
            raise session.describe_failure(error) from error
        return session

    async def _discard(self, session: McpSession) -> None:
        """Close a session that broke, so that the next request opens a new one."""
        if self._session is session:
            self._session = None
            if self.server.command:
                self._failures.append(time.monotonic())
            await session.close()
            self._stderr = session.describe_stderr()

    async def _read_tools(self, session: McpSession) -> None:
        tools: dict[str, types.Tool] = {}
        cursor, nameless = None, 0
        try:
            async with asyncio.timeout(self.server.start):
                for _ in range(MAX_PAGES):
                    page = await session.client.list_tools(cursor=cursor)
                    known = len(tools)
                    for tool in page.tools:
                        tools.setdefault(tool.name, tool)  # a call cannot tell two of the same name apart
                    nameless += (page.meta or {}).get(MARK, (None, 0))[1]
                    # Some servers send the same page with the same cursor again and again.
                    cursor = page.next_cursor if len(tools) > known else None
                    if not cursor or len(tools) > MAX_TOOLS:
                        break
        except Exception as error:
            if find_fault(error).kind not in ("", "answered") or (self.server.url and may_be_unknown_session(error)):
                raise
            raise session.describe_failure(error) from error
        if cursor or len(tools) > MAX_TOOLS:
            text = f"The MCP server {self.server.label} lists more than {MAX_TOOLS:,} tools, or its list does not end."
            raise ConfigError(text, hint="Use another server.")
        if nameless:
            text = f"The MCP server {self.server.label} lists {nameless} tools without a name."
            warnings.warn(f"{text} Plait leaves them out.", stacklevel=2)
        self.tools = tuple(tools.values())
