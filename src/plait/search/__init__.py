"""Search by meaning and by words: embedders, a cache of their vectors, an index over texts, and one over tools.

    index = Index("local").add(["a", "b"], ["The train leaves at nine.", "Bread needs salt."])
    index.search("when do we depart?", 1)[0].id     # "a"

The default embedder and numpy come with the extra: `pip install 'plait[search]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.search.cache import CachedEmbedder as CachedEmbedder
    from plait.search.cache import VectorCache as VectorCache
    from plait.search.embedders import Embedder as Embedder
    from plait.search.embedders import FunctionEmbedder as FunctionEmbedder
    from plait.search.embedders import load_embedder as load_embedder
    from plait.search.index import Hit as Hit
    from plait.search.index import Index as Index
    from plait.search.tool_index import ToolHit as ToolHit
    from plait.search.tool_index import ToolIndex as ToolIndex

_NAMES = {
    "cache": "CachedEmbedder VectorCache",
    "embedders": "Embedder FunctionEmbedder load_embedder",
    "index": "Hit Index",
    "tool_index": "ToolHit ToolIndex",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"plait.search.{_MODULES[name]}"), name)
