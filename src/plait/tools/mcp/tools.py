"""Tools of MCP servers as Plait's tools: their names, descriptions and hints, and how they are called."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import structs

from plait.core.errors import BadInput, ConfigError, ToolError
from plait.core.messages import JSON
from plait.core.text import clean
from plait.core.tools import MARKS, ToolSpec
from plait.installation import install_hint
from plait.tools.call_context import CallServices, call_services, held_calls
from plait.tools.mcp.answer_server import answer_server
from plait.tools.mcp.resources import READ, describe_resources, format_prompt, list_prompts, read_resource
from plait.tools.mcp.results import encode_artifacts, read_result
from plait.tools.mcp.schema import repair_schema, result_type
from plait.tools.mcp.server import MCP_LOOP, START_SECONDS, McpServer, parse_server, parse_word
from plait.tools.mcp.server_call import ServerCall
from plait.tools.names import LONGEST, make_python_name, make_safe_name
from plait.tools.signature import Signature
from plait.tools.tool import Tool
from plait.tools.toolset import nearest

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp_types import Tool as ListedTool

    from plait.tools.mcp.connection import McpConnection

T = TypeVar("T")
_CANNOT_ASK = re.compile("back-channel|server-initiated requests is unavailable")
"""What the Python SDK and FastMCP say when a tool asks in the protocol of 2026, which has another way."""

MAX_HELD = 16
"""Calls that this process holds open while their runs wait for the user. The oldest is ended when there are more."""
MAX_DESCRIPTION = 4_000
"""Characters of a tool's description that a model sees."""


def mcp(
    server: str | Sequence[str] | MCPServer,
    *,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    prefix: str = "",
    timeout: float | None = None,
    start: float = START_SECONDS,
    trust: bool = False,
    sampling: bool = False,
    resources: bool = False,
    optional: bool = False,
    protocol: Literal["", "2025"] = "",
) -> tuple[Any, ...]:
    """Return the tools of an MCP server: `Agent("react", tools=[*plait.mcp("npx -y some-server"), "calculator"])`.

    This blocks until the server has listed its tools. In a coroutine, use `await asyncio.to_thread(plait.mcp, ...)`.

    Args:
        server: A command as text or as a list of words, an address (streamable HTTP), or a server object of the package
            `mcp`, which runs in this process. Agents that name a server alike share one process or connection, which
            ends with the program.
        env: Variables for the process of a command, which gets few others. `$NAME` in a value is replaced by that
            environment variable. The journal stores `$NAME`, and no value without one.
        headers: Headers of each request to an address. `$NAME` works as in `env`.
        only: The tools to use, by the server's names.
        prefix: Text before the names of the tools, followed by `_`.
        timeout: Seconds for one call, or since its last progress, but at most ten times these. None: the run's limit.
        start: Seconds to connect and to list the tools.
        trust: Whether to believe the server that a tool changes nothing, that a call may be repeated, or that a
            result holds nothing that strangers wrote.
        sampling: Whether the server may ask the run's model during a call. The run's limits hold, and the journal has
            each request.
        resources: Whether to add the tool `read_resource`, which lists and reads the server's resources.
        optional: Whether runs go on without it if it does not start. Returns its word then. Secrets must be `$NAME`.
        protocol: "2025" for a server that can ask the user or a model only in the protocol of 2025.

    Raises `ConfigError` if the server cannot be started or reached, or if the extra `mcp` is not installed.
    """
    options: dict[str, Any] = {"prefix": prefix, "timeout": timeout, "start": start, "trust": trust}
    options |= {"sampling": sampling, "resources": resources, "protocol": protocol}
    options |= {"only": None if only is None else tuple(only), "optional": optional}
    if isinstance(server, (str, list, tuple)):
        parsed = parse_server(server, env=dict(env or {}), headers=dict(headers or {}), **options)
        if optional and parse_word(parsed.word) != parsed:
            raise ConfigError(f"The optional MCP server {parsed.label} has a plain value.", hint="Write $NAME for it.")
        return (parsed.word,) if optional else McpToolSource(parsed).load_tools()
    if not hasattr(server, "_lowlevel_server"):
        hint = "Give a command, an address, or an MCPServer."
        raise ConfigError(f"A {type(server).__name__} is not an MCP server.", hint=hint)
    return McpToolSource(
        McpServer(command=(str(getattr(server, "name", "server")),), **options), in_process=server
    ).load_tools()


def mcp_prompts(server: str | Sequence[str] | MCPServer) -> dict[str, str]:
    """Return the prompts that an MCP server offers to users: what each is for, by name, with its arguments.

    `server` is as for `plait.mcp`. This blocks. Raises `ConfigError` if the server cannot be reached.
    """
    return MCP_LOOP.wait(list_prompts(_find_source(server).connect()))


def mcp_prompt(server: str | Sequence[str] | MCPServer, name: str, /, **arguments: str) -> str:
    """Return a prompt of an MCP server as a question for `Agent.run`. The server has written it, so read it first.

    `server` is as for `plait.mcp`. This blocks. Raises `ToolError` if the server has no such prompt, or wants other
    arguments.
    """
    return MCP_LOOP.wait(format_prompt(_find_source(server).connect(), name, arguments))


def _find_source(server: str | Sequence[str] | MCPServer) -> McpToolSource:
    if isinstance(server, (str, list, tuple)):
        return McpToolSource(parse_server(server))
    return McpToolSource(McpServer(command=(str(getattr(server, "name", "server")),)), in_process=server)


def mcp_login(address: str, *, paste: Callable[[str], str] | None = None) -> None:
    """Log in at an MCP server that wants OAuth, in the browser, for all runs of this user.

    `paste` gets the address that the user must open, and returns the address to which the browser was sent then. None:
    Plait opens the browser of this machine and waits. This blocks. Raises `ConfigError` if the login fails.
    """
    require_mcp()
    from plait.tools.mcp.login import make_login

    MCP_LOOP.wait(make_login(parse_server(address).address, paste))


def with_recorded_spec(tool: Tool, spec: ToolSpec) -> Tool:
    """Return a tool as the journal describes it, if it is a tool of an MCP server."""
    return tool.origin.make_tool(spec, is_recorded=True) if isinstance(tool, McpTool) else tool


def qualify_clashing_names(
    tools: Iterable[Tool], is_reserved: Callable[[str], bool] = lambda _: False
) -> tuple[Tool, ...]:
    """Put the server's name before the name of an MCP tool if another tool has that name, or if it is reserved."""
    tools = tuple(tools)
    taken = {tool.name for tool in tools if not isinstance(tool, McpTool)}
    qualified: list[Tool] = []
    for tool in tools:
        if isinstance(tool, McpTool) and (tool.name in taken or is_reserved(tool.name)):
            name = tool.origin.qualify(tool.name)
            tool = tool if name in taken else structs.replace(tool, name=name)
        taken.add(tool.name)
        qualified.append(tool)
    return tuple(qualified)


class McpTool(Tool, frozen=True, dict=True, kw_only=True):
    """A tool of an MCP server. `described` is its description from the server or the journal."""

    origin: McpToolSource
    described: ToolSpec

    @cached_property
    def signature(self) -> Signature:
        spec = self.described
        return Signature(spec.parameters, spec.description, spec.returns, spec.result)

    @cached_property
    def spec(self) -> ToolSpec:
        return structs.replace(self.described, name=self.name, excludes=self.excludes)

    def bind_values(self, input: JSON, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            return super().bind_values(encode_artifacts(input), kept)
        except ToolError as error:
            raise BadInput(f"{self.name}: {error}") from error


class McpToolSource:
    """An MCP server as the source of tools. `name` is the user's name for its only tool, or the prefix of several."""

    def __init__(self, server: McpServer, name: str = "", in_process: Any = None) -> None:
        self._server = server
        self._name = name
        self._in_process = in_process
        self._named: tuple[Iterable[ListedTool], dict[str, ListedTool]] | None = None
        """A list of the server's tools, and these by the names that they have in Plait."""
        self._word = "" if in_process is not None else f"{name}={server.word}" if name else server.word

    def load_tools(self) -> tuple[Tool, ...]:
        """Connect to the server if necessary, and return its tools. This blocks."""
        if MCP_LOOP.is_current():
            raise RuntimeError("A tool of an MCP server in this process cannot wait for another MCP server.")
        listed = MCP_LOOP.wait(self.connect().list_tools())
        named = self._name_tools(listed)
        tools = tuple(self.make_tool(self._describe(tool, name)) for name, tool in named.items())
        if not self._server.resources:
            return tools
        text = MCP_LOOP.wait(describe_resources(self.connect()))
        return (*tools, self.make_tool(self._describe_reader(clean(text), self._reader_name(named))))

    def make_tool(self, spec: ToolSpec, is_recorded: bool = False) -> McpTool:
        function = partial(self._call, spec, is_recorded)
        about: dict[str, Any] = {mark: getattr(spec, mark) for mark in MARKS}
        about |= {"timeout": self._server.timeout, "source": self._word, "origin": self, "described": spec}
        return McpTool(function, spec.name, spec.description, spec.returns, **about)

    def qualify(self, name: str) -> str:
        """Return a tool's name with the server's name before it."""
        return make_safe_name(f"{self._server.short_name}_{name}")

    def _reader_name(self, named: Iterable[str]) -> str:
        """Return the name of the tool that reads resources."""
        prefix = self._name or self._server.prefix
        name = make_safe_name(f"{prefix}_read_resource" if prefix else "read_resource")
        return f"{name}_2" if name in named else name

    def _describe_reader(self, text: str, name: str) -> ToolSpec:
        more = f" ... (call {name} without uri for the whole list)"
        text = f"Reads a resource of the MCP server {self._server.label}. Without uri, lists them. {text}"
        text = text if len(text) <= MAX_DESCRIPTION else text[:MAX_DESCRIPTION] + more
        # The protocol says that reading changes nothing. But the address that is read may tell a stranger something.
        trust = self._server.trust
        foreign = not trust and self._in_process is None
        return ToolSpec(name, text, READ, read_only=trust, idempotent=True, open_world=True, foreign=foreign)

    def find_tool(self, listed: Iterable[ListedTool], name: str) -> ListedTool | None:
        """Return the server's tool that has a name in Plait, also one that was changed for another tool or a loop."""
        try:
            if self._named is None or self._named[0] is not listed:
                self._named = (listed, self._name_tools(listed))
        except ConfigError:  # a tool of `only` is gone
            return None
        named = self._named[1]
        if name not in named:
            named = {change(own): tool for own, tool in named.items() for change in (make_python_name, self.qualify)}
        return named.get(name)

    def connect(self) -> McpConnection:
        """Return the connection to the server, which opens with the first request. Raises `ConfigError`."""
        require_mcp()
        from plait.tools.mcp.connection import connection_to

        return connection_to(self._server, self._in_process)

    async def _call(self, spec: ToolSpec, is_recorded: bool, /, **arguments: Any) -> Any:
        around = services = call_services()
        if around is None or getattr(around.tool, "described", None) is not spec:
            services = None  # a tool of the user makes this call: the run could not go on with it after an answer
        call: ServerCall | None = held_calls.pop(services.place, None) if services is not None else None
        if call is None or call.is_lost:
            call = ServerCall(partial(self._call_in_background, spec, is_recorded, arguments), services)
        call.services = services
        if around is not None:
            call.report = partial(_report_on_loop, asyncio.get_running_loop(), around, services is not None)
        try:
            while (request := call.waiting or await _on_mcp_loop(call.next_request())) is not None:
                call.waiting = request
                reply = await answer_server(self._server, spec, call, request)
                call.waiting = None
                await _on_mcp_loop(request.answer(reply))
            return await _on_mcp_loop(call.result())
        except (Exception, asyncio.CancelledError):
            MCP_LOOP.submit(call.cancel())
            raise
        except BaseException:  # the run waits for the user, and the call goes on meanwhile
            assert services is not None
            held_calls[services.place] = call
            if len(held_calls) > MAX_HELD:
                MCP_LOOP.submit(held_calls.pop(next(iter(held_calls))).cancel())
            raise

    async def _call_in_background(
        self, spec: ToolSpec, is_recorded: bool, arguments: dict[str, Any], call: ServerCall
    ) -> Any:
        connection = self.connect()
        listed = connection.tools or await connection.list_tools()
        tool = self.find_tool(listed, spec.name)
        if tool is None and self._server.resources:
            name = self._reader_name(self._name_tools(listed))
            if spec.name in (name, make_python_name(name), self.qualify(name)):
                return await read_resource(connection, arguments.get("uri"))
        if tool is None:
            raise ToolError(f"The MCP server {self._server.label} no longer has a tool {spec.name}.")
        try:
            result = await connection.call_tool(tool.name, arguments, spec.repeatable, call)
            return read_result(result, tool.output_schema)
        except ToolError as error:
            note = "The server has changed its description of this tool since the run began."
            if _CANNOT_ASK.search(str(error)):
                note = 'This server asks only in the protocol of 2025: the user must give it protocol="2025".'
            elif not is_recorded or self._describe(tool, spec.name) == spec:
                raise
            raise type(error)(f"{error} ({note})") from error

    def _name_tools(self, listed: Iterable[ListedTool]) -> dict[str, ListedTool]:
        """Return the server's tools by safe names. Raises `ConfigError` if `only` has an unknown name."""
        own = {tool.name: tool for tool in listed}
        for name in self._server.only or ():
            if name not in own:
                near = nearest(name, tuple(own))
                has = f"It has: {', '.join(list(own)[:20])}." if own else "It has no tools at all."
                hint = f"Did you mean {' or '.join(near)}?" if near else has
                raise ConfigError(f"The MCP server {self._server.label} has no tool {name!r}.", hint=hint)
        chosen = list(own) if self._server.only is None else list(dict.fromkeys(self._server.only))
        if self._name and len(chosen) == 1:
            return {self._name: own[chosen[0]]}
        prefix = self._name or self._server.prefix
        named: dict[str, ListedTool] = {}
        for each in chosen:
            name = wanted = make_safe_name(f"{prefix}_{each}" if prefix else each)
            number = 2
            while name in named:
                name, number = f"{wanted[: LONGEST - 4]}_{number}", number + 1
            named[name] = own[each]
        return named

    def _describe(self, tool: ListedTool, name: str) -> ToolSpec:
        text = clean(tool.description or tool.title or "").strip()
        if not tool.name.isascii():  # a model that reads only `tool_1ecb3b` does not know it by the user's words
            text = f"{' '.join(clean(tool.name[:LONGEST]).split())}: {text}"
        if len(text) > MAX_DESCRIPTION:
            text = f"{text[:MAX_DESCRIPTION]} ... ({len(text) - MAX_DESCRIPTION:,} more characters)"
        hints, trust = tool.annotations, self._server.trust
        read_only = bool(trust and hints and hints.read_only_hint)
        return ToolSpec(
            name,
            text,
            repair_schema(tool.input_schema),
            read_only=read_only,
            idempotent=bool(trust and hints and hints.idempotent_hint),
            destructive=bool(hints and hints.destructive_hint and not read_only),
            open_world=not (trust and hints and hints.open_world_hint is False),
            foreign=not trust and self._in_process is None,
            result=result_type(tool.output_schema),
        )


def require_mcp() -> None:
    """Raise `ConfigError` if the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        hint = install_hint("mcp")
        raise ConfigError("Tools of MCP servers need the package mcp, which is not installed.", hint=hint)


def _report_on_loop(loop: asyncio.AbstractEventLoop, services: CallServices, is_own: bool, text: str) -> None:
    with suppress(RuntimeError):  # the loop of the run is closed
        loop.call_soon_threadsafe(services.report_progress, text)
        if is_own:
            loop.call_soon_threadsafe(services.extend_time)


async def _on_mcp_loop(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(MCP_LOOP.submit(work))
