"""Tools of MCP servers: `mcp:COMMAND ARGS`, `mcp:http://ADDRESS`, and `plait.mcp(...)`.

A server is begun once for all who name it in the same way, on a thread of its own (`mcp_thread`), and ended at exit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plait.core.errors import UsageError
from plait.core.tools import ToolSpec
from plait.tools import mcp_thread
from plait.tools.mcp_words import START, Place, place_of, read_word
from plait.tools.tool import Tool

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp_types import CallToolResult
    from mcp_types import Tool as Listed

    from plait.tools.mcp_link import Link

_links: dict[tuple[Any, ...], Link] = {}
_lock = threading.Lock()


def mcp(
    server: str | Sequence[str] | MCPServer,
    *,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    prefix: str = "",
    timeout: float | None = None,
    start: float = START,
    trust: bool = False,
) -> tuple[Tool, ...]:
    """The tools of an MCP server: `Agent("react", tools=[*plait.mcp("npx -y some-server"), "calculator"])`.

    `server`: a command as one text, split as a shell does it, or as its words; an address (streamable HTTP); or a
    server object of the `mcp` package, which runs in this process. A command's process is begun now, shared by all who
    name it alike, and ended when the program ends.
    `env`: variables for the command's process, which is given few others; `headers` go with each request to an address.
    `$NAME` in them is filled from the environment; on the record stands the name, and no value without one.
    `only`: tools to take, by the server's names for them. `prefix` is put before their names, with a `_`.
    `timeout`: seconds of one call, None for the run's. `start`: seconds to begin and to list the tools.
    `trust`: whether the server's word that a tool changes nothing, or may be repeated, is taken. By default it is not.

    Blocks until the tools are listed; in a coroutine, `await asyncio.to_thread(plait.mcp, ...)` blocks nobody.
    Raises `UsageError` when the server can't be begun or reached, or when the extra `mcp` is not installed.
    """
    options: dict[str, Any] = {"prefix": prefix, "timeout": timeout, "start": start, "trust": trust}
    options["only"] = tuple(only) if only is not None else None
    if isinstance(server, (str, list, tuple)):
        return _tools(place_of(server, env=env, headers=headers, **options))
    if not hasattr(server, "_lowlevel_server"):
        raise UsageError(
            f"A {type(server).__name__} is no MCP server.", hint="Give a command, an address, or an MCPServer."
        )
    place = Place(command=(str(getattr(server, "name", "server")),), **options)
    return _tools(place, here=server)


def of_word(word: str, name: str = "") -> tuple[Tool, ...]:
    """The tools that a word beginning with `mcp:` stands for. `name` is that of the one tool, or stands before the
    names of several. Raises `UsageError`."""
    return _tools(read_word(word), name)


def recalled(word: str, specs: Iterable[ToolSpec], name: str = "") -> tuple[Tool, ...]:
    """Tools as a run's record describes them: the server is not asked before one of them is called.

    So a replay needs no server, and a run that goes on shows its models what they were shown before.
    """
    from plait.tools.mcp_tools import Names, made

    place = read_word(word)
    source = f"{name}={place.word}" if name else place.word
    link = _Later(place)
    return tuple(made(link, Names(place, name), spec, source, recorded=True) for spec in specs)


def canonical(word: str) -> str:
    """The word as it stands on the record."""
    return read_word(word).word


def told_apart(tools: Iterable[Tool], reserved: Callable[[str], bool] = lambda _: False) -> tuple[Tool, ...]:
    """The tools, where those of an MCP server have the name of one before them, or a reserved one, with the server's
    word before it."""
    from plait.tools.mcp_tools import McpTool, Remote, apart

    found: dict[str, Tool] = {}
    kept: list[Tool] = []
    everything = tuple(tools)
    taken = {tool.name for tool in everything if not isinstance(tool, McpTool)}
    for tool in everything:
        function = tool.function
        clash = tool.name in found or tool.name in taken or reserved(tool.name)
        if clash and isinstance(tool, McpTool) and isinstance(function, Remote):
            name = apart(tool.name, function.link.place)
            if name not in found and name not in taken:
                renamed = Remote(
                    function.link, function.names, name, repeatable=function.repeatable, recorded=function.recorded
                )
                tool = structs.replace(tool, name=name, function=renamed)
        found.setdefault(tool.name, tool)
        kept.append(tool)
    return tuple(kept)


class _Later:
    """A server that is begun when it is first called."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @property
    def listed(self) -> tuple[Listed, ...]:
        return _link(self.place).listed

    async def tools(self) -> tuple[Listed, ...]:
        return await _link(self.place).tools()

    async def call(
        self, name: str, arguments: dict[str, Any], *, again: bool, said: Callable[[str], None] | None = None
    ) -> CallToolResult:
        return await _link(self.place).call(name, arguments, again=again, said=said)


def close() -> None:
    """End all servers and connections of this process. A tool that is called later begins its server again."""
    if _links:
        mcp_thread.blocking(_close())


async def _close() -> None:
    import asyncio

    with _lock:
        links = tuple(_links.values())
    if links:
        await asyncio.wait([asyncio.ensure_future(link.close()) for link in links])


def _tools(place: Place, name: str = "", here: Any = None) -> tuple[Tool, ...]:
    from plait.tools.mcp_tools import Names, described, made

    link = _link(place, here)
    names = Names(place, name)
    found = names.of(mcp_thread.blocking(link.tools()))
    source = "" if here is not None else f"{name}={place.word}" if name else place.word
    return tuple(made(link, names, described(listed, names, known), source) for known, listed in found.items())


def _link(place: Place, here: Any = None) -> Link:
    """The connection to a server, one for all who name it alike. Raises `UsageError` without the extra."""
    if find_spec("mcp") is None:
        raise UsageError(
            "The tools of MCP servers need the package mcp, which is not installed.",
            hint="Install it: pip install 'plait[mcp]'.",
        )
    import logging

    import mcp.client  # noqa: F401 - takes a second: here nobody's loop stands still for it

    from plait.tools.mcp_link import Link

    for logger in ("mcp", "client"):  # what the SDK has to say is in our errors; unasked, it would be on the terminal
        if not (log := logging.getLogger(logger)).handlers:
            log.addHandler(logging.NullHandler())
    key = place.key if here is None else ("here", id(here))
    with _lock:
        if mcp_thread.forked():
            _links.clear()
        if not _links:
            mcp_thread.at_end(_close)
        if key not in _links:
            _links[key] = Link(place, here)
        return _links[key]
