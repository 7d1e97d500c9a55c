"""The tool `method_search`: finds further tools by what they are to do, a line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from plait.core.errors import ToolError, UsageError
from plait.core.tools import ToolSpec
from plait.loops.codeact.signature import signature_lines
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from plait.search import ToolIndex

NAME = "method_search"
BEST = 3
"""Tools that a search gives."""
LINE = 600
"""Characters of a tool's line."""
ASKED = 1000
"""Characters of a query that are read."""
SECONDS = 900.0
"""The first search of many tools measures all of them, once."""


def method_search(index: ToolIndex | Callable[[], ToolIndex], best: int = BEST, name: str = NAME) -> Tool:
    """The tool over an index, or over what `index()` gives when it is first called. `best` is how many tools it tells.

    It gives the same for the same tools: the best first, each as its signature and what it is for. Raises `UsageError`
    when `best` is not above zero.
    """
    if best < 1:
        raise UsageError(f"A search that gives {best} tools finds nothing.", hint="Give 1 or more.")

    @tool(
        name=name,
        description=(
            "Finds tools by what they do, among all there are. "
            "A tool that was found may be called by its name, as any other."
        ),
        returns=f"the {best} tools that fit best, each with its arguments" if best > 1 else "the tool that fits best",
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
        found = (index() if callable(index) else index).search(words, best)
        return lines_of(each.tool for each in found) or "There are no tools."

    return search


def lines_of(tools: Iterable[ToolSpec]) -> str:
    """A line a tool: its signature, what it is for, what it returns; of a long one the beginning."""
    lines = (" ".join(signature_lines([each]).split()) for each in tools)
    return "\n".join(line if len(line) <= LINE else f"{line[: LINE - 3].rstrip()}..." for line in lines)
