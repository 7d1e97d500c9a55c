"""Tools of an MCP server as tools of ours: their names, their schemas, their marks, and the call itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import field, structs

from plait.core.errors import BadInput, ToolError, UsageError
from plait.core.messages import JSON
from plait.core.text import visible
from plait.core.tools import ToolSpec
from plait.tools import mcp_thread
from plait.tools.call_context import progress_listener
from plait.tools.mcp_results import sent, value_of
from plait.tools.mcp_schema import result_of, signature_of, sound
from plait.tools.mcp_words import Place
from plait.tools.names import LONGEST, safe, safe_in_python
from plait.tools.signature import Signature
from plait.tools.tool import Tool
from plait.tools.toolset import nearest

if TYPE_CHECKING:
    from mcp_types import CallToolResult
    from mcp_types import Tool as Listed

TOLD = 4_000
"""Characters of a tool's description that a model is told."""


class McpTool(Tool, frozen=True, dict=True):
    """A tool that is at a server. `schema` describes its input, `result` its output as a Python type."""

    schema: dict[str, Any] = field(default_factory=dict)
    result: str = ""

    @cached_property
    def signature(self) -> Signature:
        return signature_of(self.schema, self.description, self.returns, self.result)

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            self.name,
            self.description,
            self.schema,
            self.returns,
            self.read_only,
            self.idempotent,
            self.destructive,
            self.excludes,
            self.result,
        )

    def bind(self, input: JSON) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            given = sent(input)
        except ToolError as why:
            raise BadInput(f"{self.name}: {why}") from why
        args, named = super().bind(given)
        return args, named


class Reached(Protocol):
    """A server that can be asked (`mcp_link.Link`). `listed` is empty as long as it was not."""

    @property
    def place(self) -> Place: ...
    @property
    def listed(self) -> tuple[Listed, ...]: ...
    async def tools(self) -> tuple[Listed, ...]: ...
    async def call(
        self, name: str, arguments: dict[str, Any], *, again: bool, said: Callable[[str], None] | None = None
    ) -> CallToolResult: ...


class Remote:
    """What is called for a tool at a server. `repeatable`: a call that was lost may be made again."""

    def __init__(self, link: Reached, names: Names, name: str, *, repeatable: bool, recorded: ToolSpec | None) -> None:
        self.link = link
        self.names = names
        self.name = name
        self.repeatable = repeatable
        self.recorded = recorded

    async def __call__(self, /, **arguments: Any) -> Any:
        heard, here = progress_listener(), asyncio.get_running_loop()

        def said(text: str) -> None:
            with suppress(RuntimeError):  # the loop may be closed: then nobody listens any more
                if heard is not None:
                    here.call_soon_threadsafe(heard, text)

        return await mcp_thread.awaited(self._call(arguments, said if heard is not None else None))

    async def _call(self, arguments: dict[str, Any], said: Callable[[str], None] | None) -> Any:
        if not self.link.listed:
            await self.link.tools()
        listed = self.names.find(self.link.listed, self.name)
        if listed is None:
            raise ToolError(
                f"The MCP server {self.link.place.label} has no tool {self.name} any more: its tools have changed.",
            )
        try:
            result = await self.link.call(listed.name, arguments, again=self.repeatable, said=said)
            return value_of(result, wrapped=result_of(listed.output_schema)[1])
        except ToolError as why:
            if self.recorded is not None and changes((self.recorded,), (described(listed, self.names, self.name),)):
                raise ToolError(f"{why} (The server describes this tool otherwise than when the run began.)") from why
            raise


class Names:
    """The names that a server's tools go by here, made safe and unique; and which are taken at all."""

    def __init__(self, place: Place, name: str = "") -> None:
        self.place = place
        self.alone = name
        """What the one tool is called, or stands before the names of several."""

    def of(self, listed: Iterable[Listed]) -> dict[str, Listed]:
        """The tools by the names they go by. Raises `UsageError` where `only` names one that is not there."""
        some = self._taken(tuple(listed))
        if self.alone and len(some) == 1:
            return {self.alone: some[0]}
        prefix = self.alone or self.place.prefix
        found: dict[str, Listed] = {}
        for each in some:
            wanted = safe(f"{prefix}_{each.name}" if prefix else each.name)
            name, number = wanted, 2
            while name in found:
                name, number = f"{wanted[: LONGEST - 4]}_{number}", number + 1
            found[name] = each
        return found

    def find(self, listed: Iterable[Listed], name: str) -> Listed | None:
        """The server's tool that goes by a name, also by one with the server's own word before it."""
        try:
            found = self.of(listed)
        except UsageError:
            return None
        if name in found:
            return found[name]
        other = (lambda known: apart(known, self.place), safe_in_python)  # what it is called where its name is taken
        return next((each for known, each in found.items() if any(made(known) == name for made in other)), None)

    def _taken(self, listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
        # Two of one name can't be told apart in a call: the first is it.
        known: dict[str, Listed] = {}
        for each in listed:
            known.setdefault(each.name, each)
        if self.place.only is None:
            return tuple(known.values())
        for name in self.place.only:
            if name not in known:
                near = nearest(name, tuple(known))
                has = f"It has: {', '.join(list(known)[:20])}." if known else "It has none at all."
                raise UsageError(
                    f"The MCP server {self.place.label} has no tool {name!r}.",
                    hint=f"Did you mean {' or '.join(near)}?" if near else has,
                )
        return tuple(known[name] for name in dict.fromkeys(self.place.only))


def apart(name: str, place: Place) -> str:
    """The name with the server's word before it, for where two servers have tools of one name."""
    return safe(f"{place.name}_{name}")


def described(listed: Listed, names: Names, name: str) -> ToolSpec:
    """What a model is told of a server's tool."""
    about = visible(listed.description or listed.title or "").strip()
    if len(about) > TOLD:
        about = f"{about[:TOLD]} ... ({len(about) - TOLD:,} more characters)"
    hints = listed.annotations
    believed = hints is not None and names.place.trust
    destructive = bool(hints and hints.destructive_hint and not (believed and hints.read_only_hint))
    return ToolSpec(
        name,
        about,
        sound(listed.input_schema),
        read_only=bool(believed and hints and hints.read_only_hint and not destructive),
        idempotent=bool(believed and hints and hints.idempotent_hint),
        destructive=destructive,
        result=result_of(listed.output_schema)[0],
    )


def made(link: Reached, names: Names, spec: ToolSpec, source: str, *, recorded: bool = False) -> McpTool:
    """The tool of a description."""
    remote = Remote(link, names, spec.name, repeatable=spec.repeatable, recorded=spec if recorded else None)
    return McpTool(
        remote,
        spec.name,
        spec.description,
        spec.returns,
        spec.read_only,
        spec.idempotent,
        spec.destructive,
        names.place.timeout,
        source=source,
        schema=spec.parameters,
        result=spec.result,
    )


def with_spec(tool: Tool, spec: ToolSpec) -> Tool:
    """The tool as a record describes it."""
    if not isinstance(tool, McpTool) or not isinstance(remote := tool.function, Remote):
        return tool
    function = Remote(remote.link, remote.names, remote.name, repeatable=spec.repeatable, recorded=spec)
    return structs.replace(
        tool,
        function=function,
        description=spec.description,
        returns=spec.returns,
        read_only=spec.read_only,
        idempotent=spec.idempotent,
        destructive=spec.destructive,
        schema=spec.parameters,
        result=spec.result,
    )


def changes(before: Iterable[ToolSpec], now: Iterable[ToolSpec]) -> str:
    """What of a server's tools is other than it was, in words; "" for nothing."""
    old, new = ({each.name: each for each in specs} for specs in (before, now))
    said = [
        (f"gone: {', '.join(gone)}" if (gone := [name for name in old if name not in new]) else ""),
        (f"new: {', '.join(more)}" if (more := [name for name in new if name not in old]) else ""),
        (f"changed: {', '.join(other)}" if (other := [n for n in old if n in new and old[n] != new[n]]) else ""),
    ]
    return "; ".join(part for part in said if part)
