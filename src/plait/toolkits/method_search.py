"""The tool `method_search`, which finds tools by what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from plait.core.errors import ToolError
from plait.core.tools import ToolSpec
from plait.loops.codeact.signature import signature_lines
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from plait.search import ToolIndex

NAME = "method_search"
BEST = 3
"""Number of tools that a search returns."""
LINE = 600
"""Maximum characters of a tool's line."""
ASKED = 1000
"""Maximum number of characters of a query."""
SECONDS = 900.0
"""Time limit of a search. The first one embeds all tools."""


def method_search(index: ToolIndex | Callable[[], ToolIndex]) -> Tool:
    """Make the tool over an index, or over what `index()` returns when the tool is called. It returns the `BEST` tools,
    best first, one line each."""

    @tool(
        name=NAME,
        description=(
            "Finds tools by what they do, among all there are. "
            "A tool that was found may be called by its name, as any other."
        ),
        returns=f"the {BEST} tools that fit best, each with its arguments",
        read_only=True,
        timeout=SECONDS,
    )
    def search(description: str) -> str:
        """Search the tools.

        Args:
            description: What the tool is to do, in a few words.
        """
        words = description.strip()[:ASKED]
        if not words:
            raise ToolError("The description is empty. Say in a few words what the tool is to do.")
        found = (index() if callable(index) else index).search(words, BEST)
        return lines_of(each.tool for each in found) or "There are no tools."

    return search


def lines_of(tools: Iterable[ToolSpec]) -> str:
    """Return one line per tool: its signature, what it does, what it returns. A long line is cut."""
    lines = (" ".join(signature_lines([each]).split()) for each in tools)
    return "\n".join(line if len(line) <= LINE else f"{line[: LINE - 3].rstrip()}..." for line in lines)
