"""Connections to MCP servers: one for each server in a process, opened again after it broke.

This module imports the SDK, which takes a second. So it is imported when the first server is needed.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, TextIO, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter

from plait.core.errors import CallLost, ConfigError, PlaitError, ToolError
from plait.core.secrets import Scrubber
from plait.tools.call_context import held_calls
from plait.tools.mcp.errors import (
    McpServerUnavailable,
    describe_call_error,
    describe_failure,
    find_fault,
    find_status,
    may_be_unknown_session,
)
from plait.tools.mcp.login import LoginFile, StoredLogin
from plait.tools.mcp.pending_call import PendingCall
from plait.tools.mcp.replies import MARK, McpHttpClient, OldHttpClient, RepairedReplies, forward_messages
from plait.tools.mcp.results import format_progress
from plait.tools.mcp.server import MCP_LOOP, TOOL_LISTS, McpServer

T = TypeVar("T")

MAX_FAILURES = 3
FAILURE_SECONDS = 60.0
"""Plait does not start a server again that failed `MAX_FAILURES` times in `FAILURE_SECONDS`."""
MAX_ROUNDS = 20
"""How often a server may ask for input during one call."""
PAUSE_SECONDS = 0.25
MAX_STATE = 200_000
"""Characters of a result that asks for input, which the journal stores with the question."""
ASKER_SECONDS = 3.0
"""Time to find out which one of several calls asks."""
ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"
OLD_STATUSES = (400, 404, 405, 406, 415)
"""With these a server of 2024 refuses the handshake of a later one."""
MAX_PAGES = 200
MAX_TOOLS = 5_000
MAX_EVENT_BYTES = 256 * 1024 * 1024
CLOSE_SECONDS = 8.0
"""Time for all servers to end. The SDK closes their stdin, then terminates and kills them."""
STDERR_BYTES = 8_000
STDERR_SHOWN = 1_200
INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables that a server process gets in addition to the SDK's: HOME, LOGNAME, PATH, SHELL, TERM and USER."""

_CALL_RESULT: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_ANY_RESULT: TypeAdapter[Any] = TypeAdapter(types.Result)
_LISTS: dict[str, Any] = {
    "resources": types.ListResourcesRequest,
    "resourceTemplates": types.ListResourceTemplatesRequest,
    "prompts": types.ListPromptsRequest,
}
_CALL: ContextVar[PendingCall | None] = ContextVar("plait_mcp_call", default=None)
"""The call that is sent here. Over HTTP, what the server asks on the stream of a call is handled in its context."""
_ASKERS: set[Hashable] = set()
"""The servers that have asked something during a call, by their connection keys."""
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
        for call in held_calls.values():
            await call.cancel()

    connections = [connection for (process, _), connection in _connections.items() if process == os.getpid()]
    if connections:
        with suppress(TimeoutError):
            MCP_LOOP.wait(close_all(), CLOSE_SECONDS + 2)


atexit.register(close)
for _name in ("mcp", "client"):  # the SDK's loggers would write on the terminal; our errors say enough
    logging.getLogger(_name).addHandler(logging.NullHandler())


async def _on_message(message: Any) -> None:
    changed = types.ToolListChangedNotification, types.ResourceListChangedNotification
    TOOL_LISTS.changes += isinstance(message, changed)


async def _send_call(request: types.CallToolRequest, call: PendingCall, session: _McpSession) -> Any:
    """Send a call, and return the server's result as JSON. A server that has asked something gets one call after the
    other: the next one when the last has ended, or asks."""
    async with AsyncExitStack() as turn:
        if session.server.connection_key() in _ASKERS:
            await turn.enter_async_context(session.turn)
        session.calls.append(call)
        call.pass_turn = turn.aclose
        token = _CALL.set(call)
        try:
            # Not the client's `call_tool`: it drops a result that does not fit the server's own output schema.
            on_progress = format_progress(call.show_progress)
            reply = await session.client.session.send_request(request, _CALL_RESULT, progress_callback=on_progress)
            return read_raw(reply)
        finally:
            _CALL.reset(token)
            session.calls.remove(call)
            session.changed.set()


def read_raw(reply: types.Result) -> Any:
    """Return a server's result as JSON."""
    if reply.meta and MARK in reply.meta:
        return json.loads(reply.meta[MARK][0])
    return reply.model_dump(mode="json", by_alias=True, exclude_none=True)  # of a server in this process


class McpConnection:
    """The connection to one server. Its methods run on the background loop."""

    def __init__(self, server: McpServer, in_process: Any = None) -> None:
        self.server = server
        self.tools: tuple[types.Tool, ...] = ()
        """The tools as the server listed them last."""
        self._in_process = in_process
        self._session: _McpSession | None = None
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

    async def call_tool(self, name: str, arguments: dict[str, Any], is_repeatable: bool, call: PendingCall) -> Any:
        """Return the server's result of a call, as JSON. Plait makes a lost call once more if `is_repeatable`.

        Raises `McpServerUnavailable` if no call was made, `CallLost` if that is not known, and `ToolError` if the
        server refuses the call.
        """
        more: dict[str, Any] = {}
        for _ in range(MAX_ROUNDS):
            params = {"name": name, "arguments": arguments, **more}
            request = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params, by_name=False))
            try:
                if call.state is None:
                    result = await self._request(partial(_send_call, request, call), is_repeatable)
                else:
                    result, call.state = call.state, None
            except McpServerUnavailable as error:
                text = "" if is_repeatable else " The call was not made."  # it may have been lost before
                raise McpServerUnavailable(error.message + text, hint=error.hint) from error
            except PlaitError:
                raise
            except Exception as error:
                if not isinstance(error, MCPError) or error.code != types.URL_ELICITATION_REQUIRED:
                    raise ToolError(describe_call_error(self.server, error)) from error
                asked = error.data.get("elicitations") if isinstance(error.data, dict) else None
                for each in asked if isinstance(asked, list) else ():
                    if (await call.ask(ELICIT, {**dict(each), "mode": "url"})).get("action") != "accept":
                        raise ToolError(f"{error.message} (The user did not open the address.)") from error
                continue
            if not isinstance(result, dict) or result.get("resultType") != "input_required":
                return result
            more = {"requestState": result.get("requestState"), "inputResponses": {}}
            inputs = result.get("inputRequests")
            state = result if len(json.dumps(result)) < MAX_STATE else None
            for key, each in (inputs if isinstance(inputs, dict) else {}).items():
                reply = await call.ask(str(each.get("method")), each.get("params") or {}, state=state)
                if "error" in reply:
                    raise ToolError(f"The MCP server {self.server.label} asks for input: {reply['error']}")
                more["inputResponses"][key] = reply
            if not more["inputResponses"]:
                await asyncio.sleep(PAUSE_SECONDS)
        raise ToolError(f"The MCP server {self.server.label} asks for input more than {MAX_ROUNDS} times in one call.")

    async def ask(self, request: types.ClientRequest) -> Any:
        """Return the server's result of a request that changes nothing, as JSON. Raises `ToolError` for an error."""

        async def send(session: _McpSession) -> Any:
            return read_raw(await session.client.session.send_request(request, _ANY_RESULT))

        try:
            return await self._request(send, is_repeatable=True)
        except MCPError as error:
            raise ToolError(describe_call_error(self.server, error)) from error

    async def list_all(self, kind: Literal["resources", "resourceTemplates", "prompts"]) -> list[dict[str, Any]]:
        """Return what a server lists of a kind, as JSON; nothing from a server that has no such list."""
        found: list[dict[str, Any]] = []
        cursor = None
        with suppress(ToolError):
            for _ in range(MAX_PAGES):
                result = await self.ask(_LISTS[kind](params=types.PaginatedRequestParams(cursor=cursor)))
                page = result.get(kind) if isinstance(result, dict) else None
                found += [each for each in page if isinstance(each, dict)] if isinstance(page, list) else []
                before, cursor = cursor, str(result.get("nextCursor") or "") if page else ""
                if cursor in ("", before) or len(found) > MAX_TOOLS:
                    break
        return found[:MAX_TOOLS]

    async def close(self) -> None:
        """End the connection, and the server if Plait started it."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _request(self, send: Callable[[_McpSession], Awaitable[T]], is_repeatable: bool) -> T:
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

    async def _is_known(self, session: _McpSession) -> bool:
        """Return whether the server knows a session. A tool's own error may be about another kind of session."""
        try:
            async with asyncio.timeout(self.server.start):
                await session.client.list_tools()
        except Exception as error:
            return find_fault(error).kind != "forgotten" and not may_be_unknown_session(error)
        return True

    async def _ready(self) -> _McpSession:
        while True:
            # Shielded: if this request is cancelled, the server goes on starting for the next one.
            session = await asyncio.shield(asyncio.ensure_future(self._open()))
            if session is self._session:
                return session

    async def _open(self) -> _McpSession:
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

    async def _open_session(self) -> _McpSession:
        session = self._session = _McpSession(self.server, self._in_process, self._is_old)
        try:
            async with asyncio.timeout(self.server.start):
                await session.opened
                await self._read_tools(session)
        except Exception as error:
            await self._discard(session)
            raise session.describe_failure(error) from error
        return session

    async def _discard(self, session: _McpSession) -> None:
        """Close a session that broke, so that the next request opens a new one."""
        if self._session is session:
            self._session = None
            if self.server.command:
                self._failures.append(time.monotonic())
            await session.close()
            self._stderr = session.describe_stderr()

    async def _read_tools(self, session: _McpSession) -> None:
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


class _McpSession:
    """One session with a server. The task that opens the SDK's client must also close it, so `_run` does both."""

    client: Client

    def __init__(self, server: McpServer, in_process: Any, is_old: bool) -> None:
        self.requests = 0
        """How many requests wait for a reply."""
        self.calls: list[PendingCall] = []
        """The calls of tools that wait for a reply."""
        self.changed = asyncio.Event()
        self.turn = asyncio.Lock()
        self.server = server
        self._in_process, self._is_old = in_process, is_old
        self._stderr = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The end of the handshake, or what went wrong."""
        self.closing = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def is_closed(self) -> bool:
        """Whether the server ended. The SDK has no public way to ask; without this one, the next call finds out."""
        return bool(getattr(getattr(self.client.session, "_dispatcher", None), "_closed", False))

    async def close(self) -> None:
        """End the session, and the server process."""
        self.closing.set()
        if not hasattr(self, "client"):
            self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    def describe_failure(self, error: BaseException) -> PlaitError:
        """Return the error for a session that did not open, or whose server did not list its tools."""
        return describe_failure(self.server, error, self.describe_stderr())

    def describe_stderr(self) -> str:
        """Return a sentence with the last lines of the server's stderr, without control characters, or ""."""
        text = self._stderr.decode("utf-8", "replace").strip()
        text = "".join(each if each.isprintable() or each == "\n" else " " for each in text)
        shown = text if len(text) <= STDERR_SHOWN else "..." + text[-STDERR_SHOWN:]
        return f" It wrote on stderr:\n{shown}\n" if text else ""

    async def _run(self) -> None:
        transport = self._connect() if self._in_process is None else self._in_process
        info = types.Implementation(name="plait", version=version("plait"))
        try:
            sampling = partial(self._ask_caller, SAMPLE, types.CreateMessageResult) if self.server.sampling else None
            elicitation = partial(self._ask_caller, ELICIT, types.ElicitResult)
            callbacks: dict[str, Any] = {"sampling_callback": sampling, "elicitation_callback": elicitation}
            callbacks["mode"] = "legacy" if self.server.protocol else "auto"
            async with Client(
                transport, client_info=info, cache=None, message_handler=_on_message, **callbacks
            ) as self.client:
                self.opened.set_result(None)
                watching = asyncio.ensure_future(self._watch_lists())
                try:
                    await self.closing.wait()
                finally:
                    watching.cancel()
        except BaseException as error:
            if not self.opened.done():
                self.opened.set_exception(error if isinstance(error, Exception) else ConnectionError("cancelled"))

    async def _watch_lists(self) -> None:
        """Count changes of the server's lists. In the protocol of 2026, the client asks for them."""
        with suppress(Exception):  # the server has no such stream, or ends it
            async with self.client.listen(tools_list_changed=True, resources_list_changed=True) as events:
                async for _ in events:
                    TOOL_LISTS.changes += 1

    async def _ask_caller(
        self, method: str, result: type[types.Result], _: Any, params: Any
    ) -> types.Result | types.ErrorData:
        """Answer a request of the server: whoever makes the call for which it asks does so."""
        _ASKERS.add(self.server.connection_key())
        if (call := _CALL.get() or await self._find_call()) is None:
            text = "The client has several calls in progress, and cannot tell which one asks. Make this call again."
            return types.ErrorData(code=types.INVALID_REQUEST, message=text)
        reply = await call.ask(method, params.model_dump(mode="json", by_alias=True, exclude_none=True))
        if "error" in reply:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(reply["error"]))
        return result.model_validate(reply, by_name=False)

    async def _find_call(self) -> PendingCall | None:
        """Return the call for which the server asks, which its request does not say if it has no stream of its own.
        If there are several calls, this waits until all others have ended or asked. Returns None if they do not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ASKER_SECONDS):
                while len(free := [each for each in self.calls if not each.is_asking] or self.calls) != 1:
                    self.changed.clear()
                    await self.changed.wait()
                return free[0]
        return None

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Any]:
        server = self.server
        if server.url:
            timeout = httpx2.Timeout(server.start, read=None)  # the run limits how long a call may take
            headers, login = server.values_of("headers"), LoginFile(server.address)
            is_own = any(name.lower() == "authorization" for name in headers) or not login.read().get("tokens")
            auth, scrubber = (None, Scrubber) if is_own else (StoredLogin(login), login.scrubber)
            if self._is_old:
                send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](16)

                def make_client(*_: Any, **__: Any) -> OldHttpClient:
                    return OldHttpClient(send, headers=headers, timeout=timeout, auth=auth)

                old = sse_client(server.address, httpx_client_factory=make_client)
                async with send, receive, old as (read, write), anyio.create_task_group() as tasks:
                    tasks.start_soon(forward_messages, read, send)
                    yield RepairedReplies(receive, scrubber), write
                    tasks.cancel_scope.cancel()
                return
            http = McpHttpClient(headers=headers, timeout=timeout, auth=auth)
            transport = streamable_http_client(server.address, http_client=http, max_sse_event_size=MAX_EVENT_BYTES)
            async with http, transport as (read, write):
                yield RepairedReplies(read, scrubber), write
            return
        command, *arguments = server.command
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env = {**inherited, **server.values_of("env")}
        parameters = StdioServerParameters(command=command, args=arguments, env=env, cwd=server.cwd)
        parameters.encoding_error_handler = "replace"  # half a character must not end the connection
        with self._keep_stderr() as file:
            async with stdio_client(parameters, errlog=file) as (read, write):
                file.close()  # only the process has it now, so the pipe ends with the process
                yield RepairedReplies(read), write

    @contextmanager
    def _keep_stderr(self) -> Iterator[TextIO]:
        """Give a file for the process to write on. A thread reads it and keeps the last bytes."""
        read_end, write_end = os.pipe()

        def read() -> None:
            with open(read_end, "rb", buffering=0) as pipe:
                while data := pipe.read(65_536):
                    self._stderr = (self._stderr + data)[-STDERR_BYTES:]

        reader = threading.Thread(target=read, name="plait-mcp-stderr", daemon=True)
        reader.start()
        try:
            with os.fdopen(write_end, "w") as file:
                yield file
        finally:
            reader.join(0.2)  # a process that the server left behind may keep the pipe open
