"""all-MiniLM-L6-v2 in numpy: BERT with six layers and the mean of its last, read from a file of int8 weights.

Theory of operation. The tokens of many texts lie in one flat table, so that each weight is read once a batch; only
attention looks at texts one length at a time, so nothing is padded and nothing masked. The file is an ONNX model of
which only the stored tensors are read: they are in the order of the layers, which the file's hash vouches for.
After Devlin et al., "BERT" (2019), and Reimers and Gurevych, "Sentence-BERT" (2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float32]

DIM = 384
HEADS = 12
LAYERS = 6
BATCH = 1024
"""Tokens worked on at once: enough to be fast, and some 20 MB a thread."""

WIDE, TOKENS = 64, 40
"""Columns of a matrix and tokens that are multiplied at once. A product of this size OpenBLAS makes without copying the
matrix first, which for the few tokens of a query would take longer than the product."""

_FLOAT, _INT8 = 1, 3
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9


class _Dense:
    """A matrix and what is added; the matrix lies in blocks of `DIM` rows and `WIDE` columns, each in one piece."""

    def __init__(self, weight: Table, bias: Table) -> None:
        rows, columns = weight.shape
        # (blocks of rows, blocks of columns, DIM, WIDE)
        self._blocks = np.ascontiguousarray(weight.reshape(rows // DIM, DIM, columns // WIDE, WIDE).swapaxes(1, 2))
        self._bias = bias

    def __call__(self, x: Table) -> Table:
        y = np.empty((len(x), len(self._bias)), dtype=np.float32)
        out = y.reshape(len(x), -1, WIDE).swapaxes(0, 1)  # (blocks of columns, tokens, WIDE), in the same memory
        for at in range(0, len(x), TOKENS):
            some, part = x[at : at + TOKENS], out[:, at : at + TOKENS]
            np.matmul(some[:, :DIM], self._blocks[0], out=part)
            for number in range(1, len(self._blocks)):
                part += np.matmul(some[:, number * DIM : (number + 1) * DIM], self._blocks[number])
        y += self._bias
        return y


@dataclass(frozen=True)
class _Norm:
    weight: Table
    bias: Table

    def __call__(self, x: Table) -> Table:
        x -= x.mean(axis=1, keepdims=True)
        spread = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
        x *= (1 / np.sqrt(spread + np.float32(1e-12)))[:, None]
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True)
class _Layer:
    query_key_value: _Dense
    attended: _Dense
    first_norm: _Norm
    wide: _Dense
    narrow: _Dense
    second_norm: _Norm


class MiniLM:
    """The network; `tensors` are those of the file, by name and in its order."""

    def __init__(self, tensors: dict[str, NDArray[np.generic]]) -> None:
        def plain(name: str) -> Table:
            return np.asarray(tensors[f"inner.{name}"], dtype=np.float32)

        def norm(name: str) -> _Norm:
            return _Norm(plain(f"{name}.weight"), plain(f"{name}.bias"))

        def scaled(name: str) -> Table:
            scale = np.asarray(tensors[f"{name}_scale"], dtype=np.float32)
            return tensors[f"{name}_q"].astype(np.float32) * scale

        self._words = tensors["inner.embeddings.word_embeddings.weight_q"]
        self._words_scale = np.asarray(tensors["inner.embeddings.word_embeddings.weight_scale"], dtype=np.float32)
        self._places = scaled("inner.embeddings.position_embeddings.weight")
        self._places += plain("embeddings.token_type_embeddings.weight")[0]  # every token is of the first type
        self._norm = norm("embeddings.LayerNorm")
        matrices = [scaled(name[:-2]) for name in tensors if name.startswith("val_") and name.endswith("_q")]
        self._layers = []
        for number in range(LAYERS):
            query, key, value, attended, wide, narrow = matrices[number * 6 : number * 6 + 6]
            at = f"encoder.layer.{number}"
            biases = [plain(f"{at}.attention.self.{part}.bias") for part in ("query", "key", "value")]
            self._layers.append(
                _Layer(
                    _Dense(np.concatenate([query, key, value], axis=1), np.concatenate(biases)),
                    _Dense(attended, plain(f"{at}.attention.output.dense.bias")),
                    norm(f"{at}.attention.output.LayerNorm"),
                    _Dense(wide, plain(f"{at}.intermediate.dense.bias")),
                    _Dense(narrow, plain(f"{at}.output.dense.bias")),
                    norm(f"{at}.output.LayerNorm"),
                )
            )

    def embed(self, token_ids: Sequence[Sequence[int]], threads: int = 1) -> Table:
        """A row of length 1 for each text, given as the numbers of its tokens (2 to 512). Batches share the threads."""
        found = np.empty((len(token_ids), DIM), dtype=np.float32)
        order = sorted(range(len(token_ids)), key=lambda at: len(token_ids[at]))

        def work(batch: list[int]) -> None:
            found[batch] = self._batch([token_ids[at] for at in batch])

        batches = list(_batches(order, token_ids))
        if min(threads, len(batches)) > 1:
            with ThreadPoolExecutor(min(threads, len(batches))) as pool:
                list(pool.map(work, batches))
        else:
            for batch in batches:
                work(batch)
        return found

    def _batch(self, texts: list[Sequence[int]]) -> Table:
        # (texts, their length) of each run of texts that are equally long
        runs = [(len(list(group)), length) for length, group in groupby(map(len, texts))]
        tokens = np.concatenate([np.asarray(text, dtype=np.intp) for text in texts])
        places = np.concatenate([np.tile(np.arange(length), count) for count, length in runs])
        x = self._words[tokens].astype(np.float32)
        x *= self._words_scale[tokens]
        x += self._places[places]
        x = self._norm(x)
        for layer in self._layers:
            x = layer.first_norm(layer.attended(_attend(layer.query_key_value(x), runs)) + x)
            x = layer.second_norm(layer.narrow(_gelu(layer.wide(x))) + x)
        starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])[:-1]])
        sums: Table = np.add.reduceat(x, starts, axis=0)
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)  # of the mean as of the sum: the length is divided away
        return sums


def _batches(order: list[int], texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    batch: list[int] = []
    tokens = 0
    for at in order:
        if batch and tokens + len(texts[at]) > BATCH:
            yield batch
            batch, tokens = [], 0
        batch.append(at)
        tokens += len(texts[at])
    if batch:
        yield batch


def _attend(qkv: Table, runs: list[tuple[int, int]]) -> Table:
    found = np.empty((len(qkv), DIM), dtype=np.float32)
    size = DIM // HEADS
    at = 0
    for count, length in runs:
        end = at + count * length
        # (3, texts, heads, tokens, size of a head)
        query, key, value = qkv[at:end].reshape(count, length, 3, HEADS, size).transpose(2, 0, 3, 1, 4)
        weights = query @ key.transpose(0, 1, 3, 2)
        weights *= np.float32(size**-0.5)
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        found[at:end] = (weights @ value).transpose(0, 2, 1, 3).reshape(count * length, DIM)
        at = end
    return found


def _gelu(x: Table) -> Table:
    """The Gaussian error linear unit by its tanh approximation, which moves no vector by more than a thousandth."""
    inner = x * x
    inner *= np.float32(0.044715 * 0.7978845608)
    inner += np.float32(0.7978845608)
    inner *= x
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    inner *= x
    inner *= np.float32(0.5)
    return inner


# --- reading the file: as much of protocol buffers as an ONNX file's tensors need


def read_tensors(data: bytes) -> dict[str, NDArray[np.generic]]:
    """The stored float32 and int8 tensors of an ONNX file, by name, in the file's order. Their bytes are `data`'s."""
    found: dict[str, NDArray[np.generic]] = {}
    for number, graph in _fields(memoryview(data)):
        if number != _GRAPH:
            continue
        for part, tensor in _fields(graph):
            if part != _INITIALIZER:
                continue
            parts = list(_fields(tensor))
            kind = next((value for field, value in parts if field == _TYPE), 0)
            if kind in (_FLOAT, _INT8):
                named = {field: value for field, value in parts if field in (_NAME, _RAW)}
                shape = [value for field, value in parts if field == _DIMS]
                values = np.frombuffer(named[_RAW], dtype="<f4" if kind == _FLOAT else "i1")
                found[bytes(named[_NAME]).decode()] = values.reshape(shape)
    return found


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Each field's number with its value: an int, or the bytes it holds."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        else:
            length = {1: 8, 5: 4}[kind]
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
