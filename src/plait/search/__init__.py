"""Search by meaning and by words: embedders, a cache of their vectors, an index over texts, and one over tools.

    index = Index("local").add(["a", "b"], ["The train leaves at nine.", "Bread needs salt."])
    index.search("when do we depart?", 1)[0].id     # "a"

The default embedder and numpy come with the extra: `pip install 'plait[search]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.search.cache import CachedEmbedder, VectorCache
    from plait.search.embedders import Embedder, FunctionEmbedder, load_embedder
    from plait.search.index import Hit, Index
    from plait.search.tool_index import ToolHit, ToolIndex

_MODULES = {
    "CachedEmbedder": "cache",
    "Embedder": "embedders",
    "FunctionEmbedder": "embedders",
    "Hit": "index",
    "Index": "index",
    "ToolHit": "tool_index",
    "ToolIndex": "tool_index",
    "VectorCache": "cache",
    "load_embedder": "embedders",
}

__all__ = [
    "CachedEmbedder",
    "Embedder",
    "FunctionEmbedder",
    "Hit",
    "Index",
    "ToolHit",
    "ToolIndex",
    "VectorCache",
    "load_embedder",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"plait.search.{_MODULES[name]}"), name)
