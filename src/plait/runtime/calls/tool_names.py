"""Gives tools names that the loop does not use itself, and that the loop and its endpoint can write."""

from __future__ import annotations

import warnings
from functools import lru_cache

from msgspec import structs

from plait import loops
from plait.core import Loop, traits_of
from plait.core.errors import ConfigError
from plait.toolkits.method_search import NAME as SEARCH
from plait.tools import Toolset
from plait.tools.names import fit_names


def with_free_names(tools: Toolset, loop: Loop) -> Toolset:
    """Return the tools with names that neither the loop nor its fallback loop uses. If an MCP server's tool has such a
    name, Plait puts the server's word before it and warns. Raises `ConfigError` for any other tool."""
    reserved = _reserved(loop)
    if not any(_folded(tool.name) in reserved for tool in tools):
        return tools
    from plait.tools.mcp.tools import qualify_clashing_names

    before = tuple(tools)
    found = qualify_clashing_names(before, lambda name: _folded(name) in reserved)
    for old, tool in zip(before, found, strict=True):
        if (word := reserved.get(_folded(tool.name))) and not (
            tool.person if word == "ask_user" else tool.name == word == SEARCH
        ):
            raise ConfigError(
                f"A tool is named {tool.name}, and the loop '{loop.name}' uses that name itself.",
                hint="Rename it: NAME=WORD on the command line, name= in Python.",
            )
        if tool.name != old.name:
            warnings.warn(
                f"The loop '{loop.name}' uses the name {old.name} itself: the server's tool is called {tool.name}.",
                stacklevel=2,
            )
    return tools if found == before else structs.replace(tools, tools=found)


def with_fitting_names(tools: Toolset, loop: Loop) -> Toolset:
    """Return the tools with names that the loop and its fallback loop can call."""
    other = loops.fallback_of(loop)
    needs = {traits_of(each).tool_names for each in (loop, other)}
    reserved = _reserved(loop)
    names = fit_names((tool.name for tool in tools), needs, lambda name: _folded(name) in reserved)
    if all(name == made for name, made in names.items()):
        return tools
    found = [
        structs.replace(
            tool, name=names[tool.name], excludes=tuple(names.get(excluded, excluded) for excluded in tool.excludes)
        )
        for tool in tools
    ]
    own = {made: name for name, made in names.items() if made != name}
    return structs.replace(tools, tools=tuple(found), own=own)


def _reserved(loop: Loop) -> dict[str, str]:
    other = loops.fallback_of(loop)
    names = (*traits_of(loop).reserved, *traits_of(other).reserved)
    return {_folded(name): name for name in names}


@lru_cache(maxsize=1024)
def _folded(name: str) -> str:
    """Return a name without case and punctuation, which models vary."""
    return "".join(sign for sign in name.casefold() if sign.isalnum())
