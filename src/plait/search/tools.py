"""Tools found by what they are for: an index over names, descriptions and parameters that follows the tools.

Theory of operation. By meaning a tool's name, taken apart into words, and its description are compared: a sentence or
two, as a query is. By words all is that is said of it: the name, whole and in parts, the description, each parameter's
name, description and choices. Nothing is set for a set of tools; the weights are those of `Index`. Vectors are kept on
disk under the text they are of, so that a tool which did not change is embedded once for all processes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plait.core.errors import UsageError
from plait.core.tools import ToolSpec
from plait.search.base import Embedder, Function
from plait.search.cache import Cache
from plait.search.index import Index
from plait.search.keywords import apart

MEANT = 400
"""Characters of a description that are compared by meaning: its first sentences. All of it is compared by words."""
DEEP = 4
"""Levels of objects within parameters whose names are read."""


@dataclass(frozen=True)
class Found:
    """A tool that was found. Scores of one query compare: a cosine (at most 1) and what the shared words add."""

    tool: ToolSpec
    score: float


class ToolIndex:
    """Searches tools by what is said of them.

    `using` is an embedder or what `embedder()` takes; `cache` keeps vectors between processes: None is the user's own,
    False none. Any thread may search while another updates. Raises `UsageError` where the extra `search` is not
    installed.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec] = (),
        using: Embedder | Function | str = "local",
        cache: Cache | Literal[False] | None = None,
    ) -> None:
        # What is searched, and the tools by name: all that are in the index, perhaps more while some are added.
        self._now: tuple[Index, dict[str, ToolSpec]] = (Index(using, None if cache is False else cache or Cache()), {})
        self._texts: dict[str, tuple[str, str]] = {}
        self._updating = threading.Lock()
        self.update(tools)

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def update(self, tools: Iterable[ToolSpec]) -> int:
        """Search these tools from now on. Only those that are new, or described anew, are embedded; says how many.

        Raises `UsageError` when two have one name, and what the embedder raises; then all is as it was.
        """
        wanted: dict[str, ToolSpec] = {}
        for tool in tools:
            if tool.name in wanted:
                raise UsageError(f"Two tools are named {tool.name}.", hint="Give each a name of its own.")
            wanted[tool.name] = tool
        texts = {name: (meant(tool), said(tool)) for name, tool in wanted.items()}
        with self._updating:
            index, known = self._now
            stale = {name for name, text in self._texts.items() if texts.get(name) != text}
            if stale:
                # The others move to an index of their own: a search that is under way goes on in the old one.
                index = index.without(stale)
                known = {name: tool for name, tool in known.items() if name in wanted and name not in stale}
            fresh = [name for name in wanted if name not in index]
            known.update((name, wanted[name]) for name in fresh)
            index.add(fresh, [texts[name][0] for name in fresh], [texts[name][1] for name in fresh])
            known.update(wanted)
            self._now, self._texts = (index, known), texts
        return len(fresh)

    def search(self, query: str, k: int = 3) -> list[Found]:
        """The `k` tools that fit best, best first; fewer where there are fewer. Raises what the embedder raises."""
        index, known = self._now
        return [Found(known[hit.id], hit.score) for hit in index.search(query, k)]


def meant(tool: ToolSpec) -> str:
    """What of a tool is compared by meaning."""
    return f"{apart(tool.name)}. {_cut(tool.description.strip(), MEANT)}"


def said(tool: ToolSpec) -> str:
    """What of a tool is compared by words."""
    return "\n".join((tool.name, tool.description, tool.returns, *_named(tool.parameters, DEEP)))


def _named(schema: Mapping[str, Any], deep: int) -> Iterator[str]:
    """The names, descriptions and choices of an object's properties, those of objects within as well."""
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, Mapping) else ():
        if not isinstance(about, Mapping):
            yield str(name)
            continue
        choices = about.get("enum")
        words = [about.get("description"), *(choices if isinstance(choices, (list, tuple)) else ())]
        yield " ".join([str(name), *(word for word in words if isinstance(word, str))])
        if deep:
            yield from _named(about, deep - 1)
            items = about.get("items")
            yield from _named(items, deep - 1) if isinstance(items, Mapping) else ()


def _cut(text: str, most: int) -> str:
    """A text cut behind a sentence, or a word, where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    at = max(text.rfind(". ", 0, most), text.rfind("\n", 0, most))
    return text[: at + 1] if at >= most // 2 else text[:most].rpartition(" ")[0] or text[:most]
