"""The choice of tools that a model sees for its task, and a search tool that finds the others.

Plait chooses the tools when a run begins and stores the choice in the run's head, so a resume, a replay or a fork shows
the same tools. It builds the index of an agent's tools at the first search.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from msgspec import structs, to_builtins

from plait.core import Loop, LoopContext, traits_of
from plait.journal.records import RunHead
from plait.runtime.conversations.sessions import SESSION, AnyEmbedder
from plait.search import ToolIndex
from plait.toolkits.method_search import NAME, lines_of, method_search
from plait.tools import Tool, Toolset

SEARCH = "(search)"
"""The entry of the search tool in a run's `sources`. No word of a toolkit equals it."""


class Finder:
    """Find the tools of one agent, for any number of its runs at once."""

    def __init__(self, tools: Toolset, embedder: AnyEmbedder) -> None:
        self._tools, self._embedder = tools, embedder
        self._made: ToolIndex | None = None
        self._making = threading.Lock()

    def index(self) -> ToolIndex:
        """Return the index. Raises `ConfigError` without the extra `search`, and what the embedder raises."""
        with self._making:
            if self._made is None:
                self._made = ToolIndex(self._tools.specs, self._embedder)
            return self._made

    @cached_property
    def tool(self) -> Tool:
        return structs.replace(method_search(self.index), source=SEARCH)

    def chosen(self, question: str, most: int, parent: RunHead | None = None) -> tuple[str, ...] | None:
        """Return the names of the tools that a run shows, in the agent's order; None if it shows all. A fork shows the
        tools of its parent if they are still there and `most` has not changed."""
        if len(self._tools) <= most:
            return None
        if parent is not None and parent.settings.get("max_tools") == most:
            before = shown_by(parent)
            if before is not None and all(name in self._tools for name in before):
                return before
        best = {found.tool.name for found in self.index().search(question, most)} if most else set()
        return tuple(tool.name for tool in self._tools if tool.name in best or tool.always_shown)

    def near(self, name: str, like: Sequence[str]) -> str:
        """Return a line for each tool that is `like` an unknown name, or that the search finds for it."""
        try:
            found = [each.tool.name for each in self.index().search(name)]
        except Exception:  # an embedder may be foreign code; still list the similar names
            found = []
        told = (self._tools.get(each) for each in dict.fromkeys((*like, *found)))
        return lines_of(each.spec for each in told if each is not None)

    def among(self, tools: Toolset) -> Toolset:
        """Return the tools, the search tool placed before those of a session, with the answer to an unknown name."""
        own, more = tools.tools[: len(self._tools)], tools.tools[len(self._tools) :]
        return structs.replace(tools, tools=(*own, self.tool, *more), near=self.near)


def most_shown(said: int | None, loop: Loop, tools: Toolset, embedder: AnyEmbedder) -> int | None:
    """Return how many of an agent's tools are shown; None for all. A loop may have a default. It does not count if a
    tool of the user's has the name of the search tool."""
    most = traits_of(loop).most_tools
    if said is not None or most is None or len(tools) <= most or NAME in tools:
        return said
    # The extra `search` has what the embedder needs.
    is_installed = find_spec("numpy") is not None and (embedder != "local" or find_spec("onnxruntime") is not None)
    return 0 if is_installed else None


def shown_by(head: RunHead) -> tuple[str, ...] | None:
    """Return the names of the agent's tools that a recorded run shows; None if it shows all."""
    return tuple(head.settings.get("shown", ())) if SEARCH in head.sources else None


def narrow_context(context: LoopContext, names: Sequence[str], agents: Iterable[str], search: str) -> LoopContext:
    """Return the context with only these of the agent's tools shown, and the tools that came with the run."""
    hidden = set(agents).difference(names)
    tools = tuple(spec for spec in context.tools if spec.name not in hidden)
    others = tuple(spec for spec in context.tools if spec.name in hidden)
    return structs.replace(context, tools=tools, others=others, search=search)


def recorded_in(head: RunHead, most: int | None, context: LoopContext) -> RunHead:
    """Return the head of a run with the choice of its tools, for resumes, replays and forks."""
    agents = {tool["name"] for tool in head.tools}
    told: dict[str, Any] = {"max_tools": most, "shown": [tool.name for tool in context.tools if tool.name in agents]}
    return structs.replace(
        head,
        tools=(*head.tools, to_builtins(context.tool(context.search))),
        sources=(*head.sources, SEARCH),
        settings={**head.settings, **told},
    )


def narrow_to_recorded(context: LoopContext, head: RunHead) -> LoopContext:
    """Return the context of a recorded run with the tools that it showed."""
    names = shown_by(head)
    if names is None:
        return context
    came = {spec.name: source for spec, source in zip(context.tools, head.sources, strict=True)}
    search = next(name for name, source in came.items() if source == SEARCH)
    agents = [name for name, source in came.items() if source not in (SEARCH, SESSION)]
    return narrow_context(context, names, agents, search)
