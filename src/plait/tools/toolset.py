"""The tools of an agent: in order, each name once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from plait.core.errors import ConfigError
from plait.core.text import cut_text
from plait.core.tools import Call, ToolSpec
from plait.tools.objects import for_run
from plait.tools.tool import Tool

if TYPE_CHECKING:
    from plait.tools.tool_object import ToolObject

FEW = 12
"""Maximum number of names that are listed in full."""


class Toolset(Struct, frozen=True, dict=True):
    """Tools by name. Raises `ConfigError` if two have the same name.

    With an index, `near(name, similar names)` describes the tools that match an unknown name. `own` maps the name that
    a loop uses for a tool to the tool's own name. `unlisted` are found by their names, and shown to no model.
    `absent` says why an optional MCP server has no tools here, by its word.
    """

    tools: tuple[Tool, ...] = ()
    near: Callable[[str, tuple[str, ...]], str] | None = None
    own: Mapping[str, str] = {}
    unlisted: tuple[Tool, ...] = ()
    absent: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        seen: dict[str, Tool] = {}
        for tool in self.tools:
            if tool.name in seen:
                raise ConfigError(
                    f"Two tools are named {tool.name}: {_show_origin(seen[tool.name])} and {_show_origin(tool)}.",
                    hint="Rename one: NAME=WORD on the command line, name= in Python.",
                )
            seen[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def for_run(self) -> Toolset:
        """Return the tools of one run: those of a class get an object that only this run has."""
        tools = for_run(self.tools)
        return self if tools is self.tools else structs.replace(self, tools=tools)

    @property
    def made_objects(self) -> list[ToolObject]:
        """The objects that were made for the run."""
        return list(
            {id(each.owner): each.owner for each in self.tools if getattr(each.owner, "is_made", False)}.values()
        )

    @cached_property
    def _by_name(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}

    @cached_property
    def has_background(self) -> bool:
        """Whether calls of a tool go on in the background."""
        return any(tool.background for tool in self.tools)

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The description of each tool for a model. Raises `ConfigError` if a tool cannot be described."""
        return tuple(tool.spec for tool in self.tools)

    def with_own_name(self, call: Call) -> Call:
        return structs.replace(call, tool=self.own[call.tool]) if call.tool in self.own else call

    def get(self, name: str) -> Tool | None:
        return self._by_name.get(name) or next((tool for tool in self.unlisted if tool.name == name), None)

    def describe_unknown(self, name: str) -> str:
        """Return the observation for a call of an unknown tool. With an index it may take a while."""
        said = f"There is no tool named {cut_text(name, 60)!r}."
        if not self.tools:
            return f"{said} There are no tools at all."
        near = nearest(name, tuple(self._by_name))
        if near:
            said += f" Did you mean {' or '.join(near)}?"
        if self.near is not None and (found := self.near(name, near)):
            return f"{said} The tools that fit this name best:\n{found}"
        if len(self.tools) <= FEW:
            return f"{said} The tools are: {', '.join(self._by_name)}."
        return f"{said} There are {len(self.tools)} tools." if not near else said


def nearest(name: str, known: tuple[str, ...], n: int = 3) -> tuple[str, ...]:
    """Return up to `n` of the known names that are similar, best first."""

    folded: dict[str, list[str]] = {}
    for candidate in known:
        folded.setdefault(_fold(candidate), []).append(candidate)
    wanted = _fold(name[:200])
    same = folded.get(wanted, [])
    close = difflib.get_close_matches(wanted, list(folded), n, 0.5)
    # A name that is part of the other one is similar, whatever the lengths.
    inside = [key for key in folded if len(wanted) > 2 and len(key) > 2 and (key in wanted or wanted in key)]
    ordered = dict.fromkeys([*same, *(one for key in [*inside, *close] for one in folded[key])])
    return tuple(ordered)[:n]


def _fold(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _show_origin(tool: Tool) -> str:
    module = getattr(tool.function, "__module__", None) or ""
    name = getattr(tool.function, "__qualname__", type(tool.function).__qualname__)
    return f"{tool.source or name} (from {module})" if module else tool.source or name
