"""`ToolIndex`: finds tools by name, description and parameters.

By meaning, Plait compares a tool's name, split into words, and the first sentences of its description. By words it
compares the whole description, including parameters. There are no settings.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from plait.core.errors import ConfigError
from plait.core.text import split_text
from plait.core.tools import ToolSpec
from plait.search.cache import VectorCache
from plait.search.embedders import Embedder, EmbedFunction
from plait.search.index import Index
from plait.search.keywords import split_name

if TYPE_CHECKING:
    from plait.search.embedders import Vectors

MEANING = 400
"""Characters of a description that are compared by meaning."""
DEPTH = 4
"""Levels of objects within parameters that are read."""


@dataclass(frozen=True)
class ToolHit:
    """A tool that was found. Scores of one query can be compared."""

    tool: ToolSpec
    score: float


class ToolIndex:
    """Searches tools by what they do.

    `using` is an embedder or what `load_embedder()` accepts. `cache` keeps vectors between processes: None is the
    user's own, False none. Any thread may search while another updates. Raises `ConfigError` if the extra `search` is
    not installed.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec] = (),
        using: Embedder | EmbedFunction | str = "local",
        cache: VectorCache | Literal[False] | None = None,
    ) -> None:
        self._using, self._cache = using, None if cache is False else cache or VectorCache()
        self._vectors: dict[str, Vectors] = {}
        self._updating = threading.Lock()
        self._current: tuple[Index, dict[str, ToolSpec]] = (Index(using, self._cache), {})
        self.update(tools)

    def __len__(self) -> int:
        return len(self._current[1])

    def __contains__(self, name: object) -> bool:
        return name in self._current[1]

    def update(self, tools: Iterable[ToolSpec]) -> int:
        """Search these tools from now on, embed those with a new name or description, and return their number. Raises
        `ConfigError` if two tools have one name, and what the embedder raises. Then nothing changes."""
        import numpy as np

        known: dict[str, ToolSpec] = {}
        for tool in tools:
            if tool.name in known:
                raise ConfigError(f"Two tools are named {tool.name}.", hint="Give each tool a name of its own.")
            known[tool.name] = tool
        meanings = [meaning_of(tool) for tool in known.values()]
        with self._updating:
            index = Index(self._using, self._cache)
            fresh = [text for text in dict.fromkeys(meanings) if text not in self._vectors]
            vectors = dict(self._vectors)
            if fresh:
                vectors.update(zip(fresh, index.embedder.embed(fresh), strict=True))
            if known:
                table = np.stack([vectors[text] for text in meanings])
                index.add_vectors(list(known), table, [words_of(tool) for tool in known.values()])
            # A running search continues in the old index.
            self._current, self._vectors = (index, known), {text: vectors[text] for text in meanings}
        return len(fresh)

    def search(self, query: str, k: int = 3) -> list[ToolHit]:
        """Return the `k` tools that fit best, best first. Raises what the embedder raises."""
        index, known = self._current
        return [ToolHit(known[hit.id], hit.score) for hit in index.search(query, k)]


def meaning_of(tool: ToolSpec) -> str:
    """Return the text of a tool that is compared by meaning."""
    about = split_text(tool.description.strip()[: MEANING + 1], MEANING, ((". ", "\n"), (" ",)))
    return f"{split_name(tool.name)}. {about[0] if about else ''}"


def words_of(tool: ToolSpec) -> str:
    """Return the text of a tool that is compared by words."""
    return "\n".join((tool.name, tool.description, tool.returns, *_parameter_words(tool.parameters, DEPTH)))


def _parameter_words(schema: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield names, descriptions and choices of an object's properties, and of the objects within it."""
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, Mapping) else ():
        if not isinstance(about, Mapping):
            yield str(name)
            continue
        choices = about.get("enum")
        words = [about.get("description"), *(choices if isinstance(choices, (list, tuple)) else ())]
        yield " ".join([str(name), *(word for word in words if isinstance(word, str))])
        if depth:
            yield from _parameter_words(about, depth - 1)
            items = about.get("items")
            yield from _parameter_words(items, depth - 1) if isinstance(items, Mapping) else ()
