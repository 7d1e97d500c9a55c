"""The tools of a run as its record describes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any

from msgspec import convert, structs

from plait.core import ToolSpec
from plait.core.errors import ConfigError, ToolError
from plait.journal.records import RunHead
from plait.tools import Tool, Toolset
from plait.tools.load import is_described_outside, is_mcp_word, recall_tools
from plait.tools.signature import Signature
from plait.trust import risk_of_tool


class RecordedTool(Tool, frozen=True, dict=True, kw_only=True):
    """A tool as a run's record describes it, without its code. It can be shown, but not called.

    Opening a journal from someone else must not run code. So Plait uses these tools to replay a run of a journal that
    is not the user's default one. Such a run can be resumed or forked only after the user allows its tools.
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
    """Raise `ConfigError` if the code of any of these tools was not loaded."""
    missing = [tool for tool in tools if isinstance(tool, RecordedTool)]
    if given := [tool.name for tool in missing if not tool.source]:
        hint = "Name the agent: -a module:agent; or the tools: --tools file.py; or call agent.resume(run)."
        raise ConfigError(f"Tools of this run were given in Python: {', '.join(given)}.", hint=hint)
    if sources := dict.fromkeys(tool.source for tool in missing):
        raise ConfigError(
            f"This journal names tools that need your trust, and Plait did not load them: {', '.join(sources)}.",
            hint="If you trust it, add --load-tools (in Python: load_tools=True). Or name your own tools with --tools.",
        )


def _not_loaded(*args: Any, **kwargs: Any) -> None:
    raise ToolError("The code of this tool was not loaded.")


def tools_of(head: RunHead, apart: tuple[str, ...], load_code: bool = True) -> tuple[str | Tool, ...]:
    """Return the sources of a run's tools: words, and the tools of a server. Leaves out the sources in `apart`. Without
    `load_code`, a tool whose word needs trust is only a description from the record."""
    found: list[str | Tool] = []
    tools = recorded_tools(head, apart)
    for source in dict.fromkeys(head.sources):
        recorded = [each for each in tools if each.source == source]
        if source not in apart and not load_code and risk_of_tool(source, None):  # also a word without a recorded tool
            found += recorded
        elif is_mcp_word(source):
            found += recall_tools(source, [each.recorded for each in recorded])
        elif source not in apart:
            found.append(source)
    hosted: list[str] = head.settings.get("hosted", [])
    name_only = partial(RecordedTool, _not_loaded, recorded=ToolSpec("", ""))
    found += hosted if load_code else [name_only(name=f"hosted_{i}", source=word) for i, word in enumerate(hosted)]
    return tuple(found)


def recorded_tools(head: RunHead, apart: tuple[str, ...]) -> tuple[RecordedTool, ...]:
    """Return the tools of a run as its record describes them. Leaves out the sources in `apart`."""
    return tuple(
        RecordedTool(_not_loaded, raw["name"], source=source, recorded=convert(raw, ToolSpec))
        for raw, source in zip(head.tools, head.sources, strict=False)
        if source not in apart
    )


def restore_tools(tools: Toolset, head: RunHead) -> Toolset:
    """Return the agent's tools. Tools of a server, and skills, are as the run's record describes them. Those of an
    optional server that was absent are left out."""
    absent: dict[str, str] = head.settings.get("absent", {})
    if absent or tools.absent:
        tools = structs.replace(tools, tools=tuple(tool for tool in tools if tool.source not in absent), absent=absent)
    if not any(map(is_described_outside, head.sources)) or any(isinstance(tool, RecordedTool) for tool in tools):
        return tools
    from plait.tools.mcp.tools import with_recorded_spec

    found: list[Tool] = []
    for raw, source in zip(head.tools, head.sources, strict=False):
        known = tools.get(str(raw["name"]))
        if is_mcp_word(source):
            spec = convert(raw, ToolSpec)
            found.append(with_recorded_spec(known, spec) if known is not None else recall_tools(source, (spec,))[0])
        elif known is not None:
            is_changed = is_described_outside(source) and known.spec.description != raw["description"]
            found.append(structs.replace(known, description=raw["description"]) if is_changed else known)
    there = {tool.name for tool in found}
    new = [tool for tool in tools if tool.name not in there and tool.source not in head.sources]
    return structs.replace(tools, tools=(*found, *new))
