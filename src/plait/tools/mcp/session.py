"""One session with an MCP server: its transport, the server process, and what the server asks for during calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib.metadata import version
from typing import Any, TextIO

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter

from plait.core.errors import PlaitError
from plait.core.secrets import Scrubber
from plait.tools.mcp.errors import describe_failure
from plait.tools.mcp.login import LoginFile, StoredLogin
from plait.tools.mcp.replies import McpHttpClient, OldHttpClient, RepairedReplies, forward_messages, read_raw
from plait.tools.mcp.results import format_progress
from plait.tools.mcp.server import TOOL_LISTS, McpServer
from plait.tools.mcp.server_call import ServerCall

ASKER_SECONDS = 3.0
"""Time to find out which one of several calls asks."""
MAX_EVENT_BYTES = 256 * 1024 * 1024
CLOSE_SECONDS = 8.0
"""Time for all servers to end. The SDK closes their stdin, then terminates and kills them."""
STDERR_BYTES = 8_000
STDERR_SHOWN = 1_200
INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables that a server process gets in addition to the SDK's: HOME, LOGNAME, PATH, SHELL, TERM and USER."""

_CALL_RESULT: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_CALL: ContextVar[ServerCall | None] = ContextVar("plait_mcp_call", default=None)
"""The call that is sent here. Over HTTP, what the server asks on the stream of a call is handled in its context."""
_ASKERS: set[Hashable] = set()
"""The servers that have asked without saying for which call, by their connection keys."""


async def _on_message(message: Any) -> None:
    changed = types.ToolListChangedNotification, types.ResourceListChangedNotification
    TOOL_LISTS.changes += isinstance(message, changed)


class McpSession:
    """One session with a server. The task that opens the SDK's client must also close it, so `_run` does both."""

    client: Client

    def __init__(self, server: McpServer, in_process: Any, is_old: bool) -> None:
        self.requests = 0
        """How many requests wait for a reply."""
        self._calls: list[ServerCall] = []
        """The calls of tools that wait for a reply."""
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self.server = server
        self._in_process, self._is_old = in_process, is_old
        self._stderr = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The end of the handshake, or what went wrong."""
        self.closing = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def send_call(self, request: types.CallToolRequest, call: ServerCall) -> Any:
        """Send a call, and return the server's result as JSON. If this server, or this call in an earlier process, has
        asked something, the server gets one call after the other: the next one when the last has ended, or asks."""
        async with AsyncExitStack() as turn:
            if call.has_asked or self.server.connection_key() in _ASKERS:
                await turn.enter_async_context(self._turn)
            self._calls.append(call)
            call.pass_turn = turn.aclose
            token = _CALL.set(call)
            try:
                # Not the client's `call_tool`: it drops a result that does not fit the server's own output schema.
                on_progress = format_progress(call.show_progress)
                reply = await self.client.session.send_request(request, _CALL_RESULT, progress_callback=on_progress)
                return read_raw(reply)
            finally:
                _CALL.reset(token)
                self._calls.remove(call)
                self._changed.set()

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
            elicitation = partial(self._ask_caller, "elicitation/create", types.ElicitResult)
            callbacks: dict[str, Any] = {"elicitation_callback": elicitation}
            if self.server.sampling:
                sampling = partial(self._ask_caller, "sampling/createMessage", types.CreateMessageResult)
                callbacks["sampling_callback"] = sampling
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
        if (call := _CALL.get()) is None:
            _ASKERS.add(self.server.connection_key())
            call = await self._find_call()
        if call is None:
            text = "The client has several calls in progress, and cannot tell which one asks. Make this call again."
            return types.ErrorData(code=types.INVALID_REQUEST, message=text)
        reply = await call.ask(method, params.model_dump(mode="json", by_alias=True, exclude_none=True))
        if "error" in reply:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(reply["error"]))
        return result.model_validate(reply, by_name=False)

    async def _find_call(self) -> ServerCall | None:
        """Return the call for which the server asks, which its request does not say if it has no stream of its own.
        If there are several calls, this waits until all others have ended or asked. Returns None if they do not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ASKER_SECONDS):
                while len(free := [each for each in self._calls if not each.is_asking] or self._calls) != 1:
                    self._changed.clear()
                    await self._changed.wait()
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
