"""Renders a tool's result as the text of an observation and as a JSON value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from plait.core.artifacts import MARK, Artifact
from plait.core.messages import JSON

NO_RESULT = "(no result)"
_DEPTH = 60

KeepArtifact: TypeAlias = Callable[[Artifact], JSON] | None
"""Returns the JSON that represents an artifact; None renders an artifact like any other object."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
)


class Numeral(str):
    """A text in a table that is a number. A model sees the text; code gets the number."""


_NUMERAL = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,12})?")


def numeral(value: Any) -> Any:
    """Mark texts that are numbers, in a value or in the fields of a record. `007` is not a number."""
    if isinstance(value, str):
        return Numeral(value) if _NUMERAL.fullmatch(value) else value
    return {key: numeral(one) for key, one in value.items()} if type(value) is dict else value


def render(value: Any, keep: KeepArtifact = None) -> tuple[str, JSON]:
    """Return the text that a model sees, and the value if JSON can hold it (else None). Never raises.

    Text stays unchanged, None is "(no result)", a float has its shortest form, bytes are described. Lists, objects,
    data classes and models become JSON. Other values become their `str()`. Only results of `keep` can look like a
    handle: the handle's key is renamed in other objects.
    """
    if type(value) is str:
        return replace_surrogates(value), replace_surrogates(value)
    try:
        plain = _plain(value, (), keep)
        if plain is None:
            return NO_RESULT, None
        if isinstance(plain, str):
            return plain, plain
        if isinstance(plain, float):
            return repr(plain), plain if math.isfinite(plain) else None
        text = _json(plain)
        try:
            # Decoded again, so that a run and its replay hold the same value.
            return text, msgspec.json.decode(msgspec.json.encode(plain))
        except (OverflowError, ValueError, msgspec.MsgspecError):
            return text, None
    except Exception:  # a user's object may raise anything while it is read
        return f"(a {type(value).__name__} that can't be shown)", None


def _plain(value: Any, path: tuple[int, ...], keep: KeepArtifact) -> Any:
    """Return the value in dicts with text keys, lists, texts, numbers, booleans and None.

    `path` holds the ids of the enclosing values, so that a value which contains itself ends.
    """
    if value is None or value is True or value is False:
        return value
    if len(path) > _DEPTH or id(value) in path:
        return "(nested too deeply to show)"
    path = (*path, id(value))
    if keep is not None and isinstance(value, Artifact):
        return keep(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return describe_bytes(bytes(value))
    if isinstance(value, dict):
        return {_key(k): _plain(v, path, keep) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", None)
        if names is not None:  # a named tuple
            return {name: _plain(part, path, keep) for name, part in zip(names, value, strict=True)}
        return [_plain(part, path, keep) for part in value]
    if isinstance(value, (set, frozenset)):
        return [_plain(part, path, keep) for part in sorted(value, key=repr)]
    if isinstance(value, Enum):
        return _plain(value.value, path, keep)
    if isinstance(value, str):
        return replace_surrogates(str.__str__(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, type):
        return str(value)
    if (fields := fields_of(value)) is not None:
        return _plain(fields[0], path, keep)
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return f"(a {kind.__name__})"  # an address in memory is meaningless, and differs in a replay
    return replace_surrogates(value.isoformat() if hasattr(value, "isoformat") else str(value))


def fields_of(value: Any) -> tuple[Any] | None:
    """Return the fields of a data class, a struct or a pydantic model, in a tuple; None for any other object."""
    names = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", None))
    if names is not None:
        return ({name: getattr(value, name) for name in names},)
    dump = getattr(value, "model_dump", None)
    return (dump(mode="python"),) if callable(dump) and hasattr(type(value), "model_fields") else None


def _key(key: Any) -> str:
    plain = replace_surrogates(str.__str__(key)) if isinstance(key, str) else _plain(key, (), None)
    if plain == MARK:
        return "thing"
    return plain if isinstance(plain, str) else _json(plain)


def _json(plain: Any) -> str:

    try:
        return json.dumps(plain, ensure_ascii=False)
    except ValueError:  # an int of more digits than Python prints
        return f"(a whole number of {plain.bit_length():,} bits)" if isinstance(plain, int) else "(too large to show)"


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def describe_bytes(data: bytes) -> str:
    """Describe bytes by their number and their type, such as `1,024 bytes (image/png)`."""
    kind = next((name for magic, name in _MAGIC if data.startswith(magic)), "")
    if data[:4] == b"RIFF":
        kind = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12], "")
    elif data[4:8] == b"ftyp":
        kind = "video/mp4"
    if not kind:
        kind = "text" if _is_text(data) else "binary"
    return f"{len(data):,} bytes ({kind})"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in data
