"""Search by meaning and by word: embedders, a cache of their vectors, an index over texts, one over tools.

    index = Index(embedder("local")).add(["a", "b"], ["The train leaves at nine.", "Bread needs salt."])
    index.search("when do we depart?", 1)[0].id     # "a"

numpy and the weights of the default embedder come with the extra: `pip install 'plait[search]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.search.base import Embedder, FunctionEmbedder, embedder
    from plait.search.cache import Cache, Cached
    from plait.search.index import Hit, Index
    from plait.search.tools import Found, ToolIndex

__all__ = ["Cache", "Cached", "Embedder", "Found", "FunctionEmbedder", "Hit", "Index", "ToolIndex", "embedder"]

_HOME = {
    "Cache": "cache",
    "Cached": "cache",
    "Embedder": "base",
    "Found": "tools",
    "FunctionEmbedder": "base",
    "Hit": "index",
    "Index": "index",
    "ToolIndex": "tools",
    "embedder": "base",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"plait.search.{_HOME[name]}"), name)
    globals()[name] = value
    return value
