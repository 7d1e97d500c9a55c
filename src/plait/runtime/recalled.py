"""Tools at an MCP server in a run that goes on or is replayed: as its record describes them.

The server may have other tools now, or describe them otherwise; a run that showed its models one thing goes on with it.
A tool that is gone says so when it is called.
"""

from __future__ import annotations

from msgspec import convert, structs

from plait.core import ToolSpec
from plait.journal.records import RunHead
from plait.tools import Tool, Toolset
from plait.tools.load import at_server, recalled


def tools_of(head: RunHead, apart: tuple[str, ...]) -> tuple[str | Tool, ...]:
    """What a run's tools came by: words, and the tools at a server. `apart` are sources that come by themselves."""
    found: list[str | Tool] = []
    for source in dict.fromkeys(head.sources):
        if at_server(source):
            specs = [spec for spec, each in zip(head.tools, head.sources, strict=False) if each == source]
            found += recalled(source, (convert(spec, ToolSpec) for spec in specs))
        elif source not in apart:
            found.append(source)
    return tuple(found)


def as_recorded(tools: Toolset, head: RunHead) -> Toolset:
    """The agent's tools, those at a server as the run's record has them."""
    if not any(at_server(source) for source in head.sources):
        return tools
    from plait.tools.mcp_tools import with_spec

    found: list[Tool] = []
    for raw, source in zip(head.tools, head.sources, strict=False):
        known = tools.get(str(raw["name"]))
        if at_server(source):
            spec = convert(raw, ToolSpec)
            found.append(with_spec(known, spec) if known is not None else recalled(source, (spec,))[0])
        elif known is not None:
            found.append(known)
    there = {tool.name for tool in found}
    new = [tool for tool in tools if tool.name not in there and tool.source not in head.sources]
    return structs.replace(tools, tools=(*found, *new))
