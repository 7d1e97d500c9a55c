"""The tools that a run's own searches found: offered from then on beside those that were shown at its beginning."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import Any

from plait.core import Call, Effect, LoopContext, ToolSpec, act

_LINE = re.compile(r"^`([A-Za-z_][\w.-]*)\(", re.MULTILINE)
"""How the search tool begins a tool's line."""
_NO_TOOL = re.compile(r"uses '([^'\n]{1,100})', which is no tool")
MOST = 3
"""Unknown names of one plan that are searched."""


def offered(kit: LoopContext, seen: Iterable[str]) -> tuple[ToolSpec, ...]:
    """The tools shown, then those that the observations in `seen` tell of, in the order in which they came up.

    It depends on the observations alone, so that a replay offers the same.
    """
    if not kit.others:
        return kit.tools
    others = {tool.name: tool for tool in kit.others}
    names = dict.fromkeys(name for text in seen for name in _LINE.findall(text))
    return (*kit.tools, *(others[name] for name in names if name in others))


def searched(kit: LoopContext, complaint: str) -> Generator[Effect, Any, str]:
    """A complaint about a plan, and what the search finds for the names in it that no tool has."""
    names = tuple(dict.fromkeys(_NO_TOOL.findall(complaint)))[:MOST] if kit.search else ()
    if names:
        tool = kit.tool(kit.search)
        (argument,) = list(tool.parameters["properties"])[:1] if tool is not None else ("description",)
        seen = yield from act(*(Call(kit.search, {argument: name}) for name in names))
        lines = dict.fromkeys(line for each in seen if each.ok for line in each.text.splitlines())
        complaint += "".join(["\nWhat the search finds for that:", *(f"\n{line}" for line in lines)]) if lines else ""
    return complaint
