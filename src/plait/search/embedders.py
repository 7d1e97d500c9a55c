"""Embedders, which turn texts into vectors: the interface, the choice of one, and a user's own function as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from plait.core.errors import ConfigError, PlaitError
from plait.installation import install_hint
from plait.user_functions import call_plain, require_plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

EmbedFunction = Callable[[list[str]], Any]
"""A user's own function: n texts to n rows of numbers, all rows of one length."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. The dot product of two vectors is the similarity of their meanings.

    `name` is stable and identifies the weights: vectors of one name may be stored and compared. "" means that they
    may not be stored. `dim` is the length of a vector; it may be 0 until the first call.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, in order: float32 of shape (len(texts), dim), each row of length 1 or all zero."""
        ...


def load_embedder(
    spec: str | EmbedFunction | Embedder = "local", *, name: str = "", env: Mapping[str, str] | None = None
) -> Embedder:
    """Return the embedder that `spec` names: "local", "provider:model", an own function, or an `Embedder`.

    "local" (or "") runs on this machine and needs no network. "provider:model" asks an endpoint that speaks
    `/embeddings`, with key and address from `env` (default: the environment). `name` belongs to an own function: its
    vectors are cached under that name. Raises `ConfigError` for an unknown embedder, a missing key, or a missing extra.
    """
    require_modules("numpy")
    if isinstance(spec, str):
        if name:
            raise ConfigError(f"{spec!r} already has a name.", hint="Give `name` only with an own function.")
        if spec.strip() in ("", "local"):
            from plait.search.minilm import load_local_embedder

            return load_local_embedder()
        from plait.search.endpoint import load_endpoint_embedder

        return load_endpoint_embedder(spec.strip(), env)
    if isinstance(spec, Embedder) and not isinstance(spec, type):
        return spec
    if callable(spec):
        return FunctionEmbedder(spec, name)
    hint = 'Give "local", "provider:model", a function of texts, or an Embedder.'
    raise ConfigError(f"{spec!r} is not an embedder.", hint=hint)


def require_modules(*modules: str) -> None:
    """Raise `ConfigError` if a module of the extra `search` is not installed."""
    for module in modules:
        if find_spec(module) is None:
            hint = install_hint("search")
            raise ConfigError(f"Search by meaning needs {module}, which is not installed.", hint=hint)


class FunctionEmbedder:
    """A user's function as an `Embedder`. Without a name, its vectors are not cached: the function may change."""

    def __init__(self, function: EmbedFunction, name: str = "") -> None:
        require_plain(function, "embedder=")
        self._function = function
        self._label = f"The function {getattr(function, '__qualname__', '') or type(function).__name__}"
        self.name = f"function:{name}" if name else ""
        self.dim = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Raise `PlaitError` if the function does not return one row of numbers per text, all of one length."""
        rows = call_plain(self._function, list(texts)) if texts else []
        vectors = normalize_rows(rows, len(texts), self.dim, self._label)
        self.dim = vectors.shape[1]
        return vectors


def normalize_rows(rows: Any, count: int, dim: int, who: str, error: type[PlaitError] = PlaitError) -> Vectors:
    """Return rows of numbers as float32 rows of length 1. A row of zeros stays. `dim` 0 accepts any length. Raises
    `error`, naming `who`, if they are not `count` rows of `dim` finite numbers."""
    import numpy as np

    if not count:
        return np.zeros((0, dim), dtype=np.float32)
    hint = "Return one row of numbers per text, all rows of one length."
    try:
        table = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise error(f"{who} did not return a table of numbers.", hint=hint) from None
    if table.ndim != 2 or table.shape[0] != count or table.shape[1] == 0:
        shape = " x ".join(map(str, table.shape)) or "a single number"
        raise error(f"{who} returned {shape} for {count} texts.", hint=hint)
    if dim and table.shape[1] != dim:
        raise error(
            f"{who} returned vectors of {table.shape[1]} numbers, and of {dim} before.",
            hint="Vectors of two models cannot be compared. Build the index again.",
        )
    if not np.isfinite(table).all():
        raise error(f"{who} returned a number that is not finite.")
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.where(length > 0, length, 1.0), dtype=np.float32)
