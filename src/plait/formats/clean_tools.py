"""Descriptions of tools as a prompt may hold them: with nothing that is unseen or that reads as protocol.

A description may come from a server of others. Names stay as they are: a call must find its tool by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from plait.core import Kit, ToolSpec
from plait.core.text import visible
from plait.formats.escape import Escape, escape_of

_WORDS = ("description", "title")


def with_clean_tools(kit: Kit) -> Kit:
    """The kit with its tools described without labels, special tokens, escape codes and unseen characters."""
    escape = escape_of(structs.replace(kit, tools=(), others=()))
    return structs.replace(kit, tools=_cleaned(kit.tools, escape), others=_cleaned(kit.others, escape))


def _cleaned(tools: Iterable[ToolSpec], escape: Escape) -> tuple[ToolSpec, ...]:
    return tuple(_clean(tool, escape) for tool in tools)


def _clean(tool: ToolSpec, escape: Escape) -> ToolSpec:
    def words(text: str) -> str:
        return escape(visible(text))

    def value(text: str) -> str:
        return escape.tokens(visible(text))

    cleaned = structs.replace(
        tool,
        description=words(tool.description),
        returns=words(tool.returns),
        result=value(tool.result),
        parameters=_mapped(tool.parameters, words, value),
    )
    return tool if cleaned == tool else cleaned


def _mapped(given: Any, words: Callable[[str], str], value: Callable[[str], str], key: str = "") -> Any:
    """A schema with each of its texts changed: those that are for a reader by `words`, the others by `value`."""
    if isinstance(given, str):
        return words(given) if key in _WORDS else value(given)
    if isinstance(given, dict):
        return {name: _mapped(each, words, value, str(name)) for name, each in given.items()}
    if isinstance(given, list | tuple):
        return [_mapped(each, words, value) for each in given]
    return given
