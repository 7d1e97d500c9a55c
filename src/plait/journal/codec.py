"""Records to JSON and back. What msgspec can't write is still written: no record is lost to an odd value."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import msgspec
from msgspec import structs

from plait.core import Attachment
from plait.core.errors import JournalError
from plait.journal.records import ObservedRecord, Record, RunHead

DEEPEST = 60
"""Levels of nesting that `plain` follows; deeper (or circular) values are cut to a text."""

_encoder = msgspec.json.Encoder()
_record: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_head = msgspec.json.Decoder(RunHead)

_KINDS: dict[type, str] = {each: str(each.__struct_config__.tag) for each in get_args(Record)}


def kind_of(record: Record) -> str:
    """The record's kind, as in the column `kind`."""
    return _KINDS[type(record)]


def encode(value: Any) -> bytes:
    """JSON of a record, head or plain value, in UTF-8.

    Values that JSON has no place for (an object, a set, a key that is no text) become text; half a
    surrogate pair is escaped, so that it comes back as it was.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(plain(value), allow_nan=False).encode()


def encode_record(record: Record) -> bytes:
    """JSON of a record as it is stored: a result that is text stands in it once."""
    if isinstance(record, ObservedRecord):
        seen = record.observation
        if isinstance(seen.value, str) and seen.value == seen.text:
            record = ObservedRecord(record.n, record.i, structs.replace(seen, value=None), value_is_text=True)
    return encode(record)


def _restored(record: Record) -> Record:
    if isinstance(record, ObservedRecord) and record.value_is_text:
        seen = record.observation
        return ObservedRecord(record.n, record.i, structs.replace(seen, value=seen.text))
    return record


def plain(value: Any, depth: int = 0) -> Any:
    """The value in what JSON has: dict, list, text, number, None. Anything else as its repr."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth > DEEPEST:
        return "..."
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        return tag | {each: plain(getattr(value, each), depth + 1) for each in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, depth + 1) for each in value]
    try:
        return json.loads(_encoder.encode(value))
    except Exception:
        return repr(value)


def decode_record(data: str) -> Record:
    """The record in a row's `data`. Raises `JournalError` when there is none that this version knows."""
    try:
        return _restored(_record.decode(data))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as first:
        try:  # half a surrogate pair is JSON to the standard library only
            found: Record = msgspec.convert(json.loads(data), Record)
            return _restored(found)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            raise JournalError(
                f"A record of the journal can't be read ({first}): {data[:80]!r}.",
                hint="It is damaged, or was written by a newer Plait: upgrade, or leave this run.",
            ) from None


def decode_head(data: str) -> RunHead:
    """The head in a run's row. Raises `JournalError`."""
    try:
        return _head.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as first:
        try:
            return msgspec.convert(json.loads(data), RunHead)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            raise JournalError(
                f"The head of a run can't be read ({first}): {data[:80]!r}.",
                hint="It is damaged, or was written by a newer Plait: upgrade, or leave this run.",
            ) from None


def decode_attachments(data: str | None) -> tuple[Attachment, ...]:
    """The attachments in a run's head; none for NULL."""
    return msgspec.json.decode(data, type=tuple[Attachment, ...]) if data else ()


def decode_plain(data: str) -> Any:
    """Any JSON value, such as an outcome or the totals. Raises `JournalError`."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as why:
        raise JournalError(f"A value of the journal is damaged ({type(why).__name__}): {data[:80]!r}.") from None
