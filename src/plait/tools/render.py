"""Renders a tool's result as the text of an observation and as a JSON value."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from functools import cache
from io import IOBase
from types import GeneratorType, NoneType
from typing import Any, TypeAlias

import msgspec

from plait.core.artifacts import MARK, Artifact
from plait.core.attachments import detect_media_type
from plait.core.messages import JSON
from plait.tools.call_context import cancelled

NO_RESULT = "(no result)"
_DEPTH = 60

MOST = 2_000_000
"""Maximum number of values in one result, including nested ones."""

ITEMS = 100_000
"""Maximum number of values that are read from an iterator, which may be endless."""

CHARACTERS = 20_000_000
"""Maximum length of the texts and bytes that are read from an iterator."""

MORE = "(there may be more: the rest is not read)"

BITS = 13_000
"""Maximum bits of a whole number in a result (3,900 digits; Python prints at most 4,300)."""

KeepArtifact: TypeAlias = Callable[[Artifact], JSON] | None
"""Returns the JSON that represents an artifact; None renders an artifact like any other object."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"BM", "image/bmp"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
)


class CutList(list[Any]):
    """The values that were read from an iterator that may have more."""


class Numeral(str):
    """A text in a table that is a number. A model sees the text; code gets the number."""


_PACKED = re.compile(r'\{\s*"\$bytes(?:array)?": "((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}[A-Za-z0-9+/=]=)?)"\s*\}')
_NUMERAL = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,12})?")


def numeral(value: Any) -> Any:
    """Mark texts that are numbers, in a value or in the fields of a record. `007` is not a number."""
    if isinstance(value, str):
        return Numeral(value) if _NUMERAL.fullmatch(value) else value
    return {key: numeral(one) for key, one in value.items()} if type(value) is dict else value


@cache
def _plain_types() -> dict[type, Any]:
    """Return the types that are plain, with what makes one of a subclass. A subclass comes before its base."""
    import uuid
    from decimal import Decimal
    from fractions import Fraction

    def date(value: Any) -> Any:
        known = value == value  # an unknown date, as tables have it, is not even equal to itself
        if isinstance(value, dt.timedelta):
            return dt.timedelta(value.days, value.seconds, value.microseconds) if known else None
        base = next(each for each in (dt.datetime, dt.date, dt.time) if isinstance(value, each))
        return base.fromisoformat(value.isoformat()) if known else None

    return {
        **{each: each for each in (Numeral, bool, Decimal, Fraction, bytes, bytearray)},
        **dict.fromkeys((dt.datetime, dt.date, dt.time, dt.timedelta), date),
        NoneType: None,
        str: str.__str__,
        float: float.__float__,
        int: int.__index__,
        uuid.UUID: lambda value: uuid.UUID(int=value.int),
    }


def simplify(value: Any, *, for_code: bool = False) -> tuple[Any, str]:
    """Return a result in plain Python values, and a note for code: the types that have become text, and what is
    missing. Without `for_code` the last value says that more may be missing; with it, only the note does.

    Plain are values that JSON can hold, other numbers, dates, bytes, tuples, sets and artifacts.
    Iterators, views and other collections become lists and dicts, an object with fields a dict, an Enum its value,
    arrays of numbers lists, a missing date None. Any other value becomes its text. Ends for values that contain
    themselves and for endless iterators, whatever the objects do when they are read. Raises only what an iterator that
    is the whole result raises: that is the tool's own code.
    """
    if type(value) is str:
        return value, ""
    reader = _Reader(for_code)
    plain, types = reader.read(value, ()), ", ".join(reader.texts)
    notes = [f"The code got text, because these types cannot pass to it: {types}."] if types else []
    return plain, " ".join([*notes, *reader.notes])


class _Reader:
    """Reads one result. `texts` are the types of the values that became text, `notes` say what else is not there."""

    def __init__(self, for_code: bool) -> None:
        self.texts: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self._for_code = for_code
        self._left = MOST
        self._types = _plain_types()

    def read(self, value: Any, path: tuple[int, ...]) -> Any:
        """Return a value in plain Python values. `path` holds the ids of the enclosing values."""
        self._left -= 1
        kind = type(value)
        if kind in self._types and (kind is not int or value.bit_length() <= BITS):
            return value
        if self._left < 0 or len(path) > _DEPTH or id(value) in path:
            said = "(too many values to show)" if self._left < 0 else "(nested too deeply to show)"
            self.notes[f"The code got text in place of some values {said}."] = None
            return said
        path = (*path, id(value))
        try:
            if kind is list or kind is tuple:
                return kind(self._read_all(value, path))
            return self._read_object(value, path)
        except BaseException:  # a user's object may raise anything while it is read
            if len(path) == 1 and isinstance(value, Iterator):
                raise
            self.texts[kind.__name__] = None
            return f"(a {kind.__name__} that can't be shown)"

    def _read_object(self, value: Any, path: tuple[int, ...]) -> Any:
        kind: Any = type(value)
        if isinstance(value, Artifact):
            return value
        if isinstance(value, Enum):
            return self._read_as(value.value, path)
        if isinstance(value, memoryview):
            return bytes(value)
        for base, convert in self._types.items():
            if isinstance(value, base):
                plain = convert(value)
                if not isinstance(plain, int) or plain.bit_length() <= BITS:
                    return plain
                self.texts[kind.__name__] = None
                return f"(a whole number of {plain.bit_length():,} bits)"
        if (names := getattr(value, "_fields", None)) is not None and isinstance(value, tuple):
            return self._read_dict(zip(names, value, strict=True), path)
        names = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", None))
        if names is not None:
            return self._read_as({name: getattr(value, name) for name in names}, path)
        if callable(dump := getattr(value, "model_dump", None)) and hasattr(kind, "model_fields"):
            return self._read_as(dump(mode="python"), path)
        if isinstance(value, set | frozenset):
            parts = self._read_all(sorted(value, key=repr), path)
            try:
                return (frozenset if isinstance(value, frozenset) else set)(parts)
            except TypeError:  # a part has become a dict or a list
                return parts
        if isinstance(value, Mapping):
            return self._read_dict(value.items(), path)
        if isinstance(value, (Sequence, Set, ValuesView, Iterator)) and not isinstance(value, IOBase):
            return self._read_all(value, path)
        if hasattr(value, "dtype") and not hasattr(value, "index") and callable(getattr(value, "tolist", None)):
            found = value.tolist()
            if type(found) is not kind and not (getattr(value.dtype, "kind", "") in "mM" and _has_number(found)):
                return self._read_as(found, path)
        self.texts[kind.__name__] = None
        if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            return f"(a {kind.__name__})"  # an address in memory is meaningless, and differs in a replay
        text = value.isoformat() if hasattr(value, "isoformat") else None
        return str.__str__(text if isinstance(text, str) else str(value))

    def _read_as(self, value: Any, path: tuple[int, ...]) -> Any:
        """Return the plain form of a value that stands for another one, which is counted already."""
        self._left += 1
        return self.read(value, path)

    def _read_dict(self, pairs: Iterable[tuple[Any, Any]], path: tuple[int, ...]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, each in pairs:
            if self._left < 2:
                found.update(("...", said) for said in self._say(MORE))
                break
            plain = self.read(key, path)
            try:
                hash(plain)
            except TypeError:
                plain = _json(_plain(plain, None))
            found[_find_free(plain, key, found)] = self.read(each, path)
        return found

    def _read_all(self, values: Iterable[Any], path: tuple[int, ...]) -> list[Any]:
        found: list[Any] = []
        lazy, room = isinstance(values, Iterator), CHARACTERS
        try:
            for each in values:
                found.append(self.read(each, path))
                if lazy:
                    room -= len(each) if isinstance(each, str | bytes) else 0
                if self._left < 1 or (lazy and (len(found) == ITEMS or room < 0 or cancelled())):
                    found.extend(self._say(MORE))
                    break
            else:
                found.extend(self._say(MORE) if isinstance(values, CutList) else ())
        except Exception as why:  # what came before is kept: the call has been made
            if lazy and len(path) == 1:
                raise
            found.extend(self._say(f"(no more can be read: {type(why).__name__})"))
        finally:
            if isinstance(values, GeneratorType):
                values.close()
        return found

    def _say(self, missing: str) -> list[str]:
        """Return what a model reads in place of missing values. Code gets no such value, only the note."""
        self.notes[f"The code did not get all values {missing}."] = None
        return [] if self._for_code else [missing]


def _has_number(found: Any) -> bool:
    """Return whether dates of an array have become numbers, whose unit is lost."""
    return any(map(_has_number, found)) if isinstance(found, list) else isinstance(found, int)


def render(value: Any, keep: KeepArtifact = None) -> tuple[str, JSON]:
    """Return the text that a model sees, and the value if JSON can hold it (else None). Never raises.

    Text stays unchanged, None is "(no result)", a float has its shortest form, bytes are described. Lists, objects,
    data classes and models become JSON, as `simplify` reads them. Other values become their `str()`. Only results of
    `keep` can look like a handle: the handle's key is renamed in other objects.
    """
    return render_simple(simplify(value)[0], keep)


def render_simple(value: Any, keep: KeepArtifact = None) -> tuple[str, JSON]:
    """Return the text and the JSON value of a simplified result; see `render`."""
    plain = _plain(value, keep)
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


def _plain(value: Any, keep: KeepArtifact, inside: bool = False) -> Any:
    """Return a simplified value in dicts with text keys, lists, texts, numbers, booleans and None. A number inside of
    it that JSON does not know, such as infinity, becomes text."""
    if value is None or value is True or value is False or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) or not inside else repr(value)
    if isinstance(value, str):
        return replace_surrogates(str.__str__(value))
    if isinstance(value, (bytes, bytearray)):
        return describe_bytes(bytes(value))
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, each in value.items():
            found[_find_free(_key(key), key, found)] = _plain(each, keep, True)
        return found
    if isinstance(value, (list, tuple)):
        return [_plain(part, keep, True) for part in value]
    if isinstance(value, (set, frozenset)):
        return [_plain(part, keep, True) for part in sorted(value, key=repr)]
    if isinstance(value, Artifact):
        return keep(value) if keep is not None else replace_surrogates(value.about())
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(key: Any) -> str:
    plain = _plain(key, None)
    if plain == MARK:
        return "thing"
    return plain if isinstance(plain, str) else _json(plain)


def _find_free(plain: Any, key: Any, found: dict[Any, Any]) -> Any:
    """Return a key as it is, or with its type and place if another key has become the same: both values are kept."""
    place, free = len(found) + 1, plain
    while free in found:
        free, place = f"{plain} ({type(key).__name__}, key {place})", place + 1
    return free


def _json(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def describe_packed(written: str) -> str:
    """Return the JSON of an input that came from code, with a description in place of bytes."""
    return _PACKED.sub(lambda found: f'"<{describe_bytes(base64.b64decode(found[1]))}>"', written)


def describe_bytes(data: bytes) -> str:
    """Describe bytes by their number and their type, such as `1,024 bytes (image/png)`."""
    kind = next((name for magic, name in _MAGIC if data.startswith(magic)), "") or detect_media_type(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        kind = "audio/wav"
    elif data[4:8] == b"ftyp":
        kind = "video/mp4"
    kind = {"text/plain": "text", "application/octet-stream": "binary"}.get(kind, kind)
    return f"{len(data):,} bytes ({kind})"
