"""What turns texts into vectors, and the way from a user's word to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from plait.core.errors import PlaitError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

Function = Callable[[list[str]], Any]
"""A user's own: n texts to n rows of numbers, all rows of one length."""


@runtime_checkable
class Embedder(Protocol):
    """Texts to vectors whose dot product says how near their meanings are.

    `name` is stable and names the weights as well: vectors of one name may be kept and compared, "" says that
    they may not be kept. `dim` is the length of a vector; 0 until the first call where only that tells.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order: float32 of shape (len(texts), dim), each row of length 1 (or all zero)."""
        ...


def embedder(
    spec: str | Function | Embedder = "local", *, name: str = "", env: Mapping[str, str] | None = None
) -> Embedder:
    """The embedder that `spec` names: "local", "openai:text-embedding-3-small", an own function, an `Embedder`.

    "local" (or "") runs on this machine and needs no network; `provider:name` asks an endpoint that speaks
    `/embeddings`, with key and address from `env` (the environment by default). `name` belongs to an own function:
    with it its vectors may be kept in a cache. Raises `UsageError` for what is not known, a key that is missing,
    or the extra `search` where that is not installed.
    """
    need("numpy")
    if isinstance(spec, str):
        if name:
            raise UsageError(f"A name goes with an own function; {spec!r} has one.", hint="Leave `name` out.")
        if spec.strip() in ("", "local"):
            from plait.search.local import LocalEmbedder

            return LocalEmbedder.shared()
        from plait.search.endpoint import endpoint_embedder

        return endpoint_embedder(spec.strip(), env)
    if isinstance(spec, Embedder) and not isinstance(spec, type):
        return spec
    if callable(spec):
        return FunctionEmbedder(spec, name)
    raise UsageError(
        f"{spec!r} is no embedder.", hint='Give "local", "provider:name", a function of texts, or an Embedder.'
    )


def need(module: str) -> None:
    """Raises `UsageError` where a module of the extra is not installed."""
    try:
        import_module(module)
    except ImportError as error:
        raise UsageError(
            f"Search by meaning needs {module}, which is not installed.", hint="Install it: pip install 'plait[search]'"
        ) from error


class FunctionEmbedder:
    """A user's own function as an `Embedder`. Without a name its vectors are not kept: nothing says when it changed."""

    def __init__(self, function: Function, name: str = "") -> None:
        self._function = function
        self._called = getattr(function, "__qualname__", "") or type(function).__name__
        self.name = f"function:{name}" if name else ""
        self.dim = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Raises `PlaitError` when the function's answer is not one row of numbers a text, all of one length."""
        if not texts:
            return unit([], 0, self.dim, self._called)
        vectors = unit(self._function(list(texts)), len(texts), self.dim, f"The function {self._called}")
        self.dim = vectors.shape[1]
        return vectors


def unit(rows: Any, count: int, dim: int, who: str, error: type[PlaitError] = PlaitError) -> Vectors:
    """Rows of numbers as float32 rows of length 1. A row of zeros stays. `dim` 0 takes any length.

    Raises `error`, naming `who`, when they are not `count` rows of `dim` finite numbers.
    """
    import numpy as np

    if not count:
        return np.zeros((0, dim), dtype=np.float32)
    try:
        found = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise error(
            f"{who} gave no table of numbers.", hint="One row a text is wanted, all rows of one length."
        ) from None
    if found.ndim != 2 or found.shape[0] != count or found.shape[1] == 0:
        shape = " x ".join(map(str, found.shape)) or "a single number"
        raise error(f"{who} gave {shape} for {count} texts.", hint="One row of numbers a text is wanted.")
    if dim and found.shape[1] != dim:
        raise error(
            f"{who} gave vectors of {found.shape[1]} numbers, and of {dim} before.",
            hint="Vectors of two models can't be compared: build the index anew.",
        )
    if not np.isfinite(found).all():
        raise error(f"{who} gave a vector that holds no finite number.")
    size = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(size > 0, size, 1.0), dtype=np.float32)
