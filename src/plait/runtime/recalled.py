"""Tools at an MCP server in a run that goes on or is replayed: as its record describes them.

The server may have other tools now, or describe them otherwise; a run that showed its models one thing goes on with it.
A tool that is gone says so when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from msgspec import convert, structs

from plait.core import ToolSpec
from plait.core.errors import ToolError, UsageError
from plait.journal.records import RunHead
from plait.tools import Tool, Toolset
from plait.tools.load import is_mcp_word, recall_tools, runs_code
from plait.tools.signature import Signature


class RecordedTool(Tool, frozen=True, dict=True, kw_only=True):
    """A tool as a run's record describes it, whose code was not loaded: it can be shown, but not called.

    Whoever hands a journal over must not thereby make its reader run code. So a run of a journal that is not the
    user's default one is replayed with these, and is not resumed or forked before the user allows its tools.
    """

    recorded: ToolSpec

    @cached_property
    def signature(self) -> Signature:
        spec = self.recorded
        return Signature(spec.parameters, spec.description, spec.returns, spec.result)

    @cached_property
    def spec(self) -> ToolSpec:
        return self.recorded


def require_loaded(tools: Iterable[Any]) -> None:
    """Raises `UsageError` when there are tools among these whose code was not loaded."""
    sources = dict.fromkeys(tool.source for tool in tools if isinstance(tool, RecordedTool))
    if sources:
        raise UsageError(
            f"This journal names tools that run code, and Plait did not load them: {', '.join(sources)}.",
            hint="If you trust it, add --load-tools (in Python: load_tools=True). Or name your own tools with --tools.",
        )


def _not_loaded(*args: Any, **kwargs: Any) -> None:
    raise ToolError("The code of this tool was not loaded.")


def tools_of(head: RunHead, apart: tuple[str, ...], load_code: bool = True) -> tuple[str | Tool, ...]:
    """What a run's tools came by: words, and the tools at a server. `apart` are sources that come by themselves.

    Without `load_code`, tools whose words run code are the record's descriptions only.
    """
    found: list[str | Tool] = []
    for source in dict.fromkeys(head.sources):
        both = zip(head.tools, head.sources, strict=False)
        specs = [convert(spec, ToolSpec) for spec, each in both if each == source]
        if source not in apart and not load_code and runs_code(source):
            found += [RecordedTool(_not_loaded, spec.name, source=source, recorded=spec) for spec in specs]
        elif is_mcp_word(source):
            found += recall_tools(source, specs)
        elif source not in apart:
            found.append(source)
    return tuple(found)


def as_recorded(tools: Toolset, head: RunHead) -> Toolset:
    """The agent's tools, those at a server as the run's record has them."""
    if not any(is_mcp_word(source) for source in head.sources) or any(isinstance(tool, RecordedTool) for tool in tools):
        return tools
    from plait.tools.mcp.tools import with_recorded_spec

    found: list[Tool] = []
    for raw, source in zip(head.tools, head.sources, strict=False):
        known = tools.get(str(raw["name"]))
        if is_mcp_word(source):
            spec = convert(raw, ToolSpec)
            found.append(with_recorded_spec(known, spec) if known is not None else recall_tools(source, (spec,))[0])
        elif known is not None:
            found.append(known)
    there = {tool.name for tool in found}
    new = [tool for tool in tools if tool.name not in there and tool.source not in head.sources]
    return structs.replace(tools, tools=(*found, *new))
