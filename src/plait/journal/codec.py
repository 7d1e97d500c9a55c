"""Records to JSON and back. What msgspec can't write is still written: no record is lost to an odd value."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, structs

from plait.core import Attachment, Call, Observation, Reply, WaitResult
from plait.core.errors import JournalError
from plait.journal.keys import read_key
from plait.journal.records import (
    Asking,
    ChildEnd,
    ChildStart,
    CodeResult,
    Decision,
    IntentRecord,
    MadeCall,
    NoteRecord,
    RaisedRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    ResultRecord,
    Resumption,
    RunHead,
)

T = TypeVar("T")

DEEPEST = 60
"""Levels of nesting that `plain` follows; deeper (or circular) values are cut to a text."""

_encoder = msgspec.json.Encoder()
_record: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_head = msgspec.json.Decoder(RunHead)


class ValueTypes(NamedTuple):
    """The types of the values of one kind of work. A value of the type `Any` stays as JSON has it."""

    asked: Any = Any
    made: Any = Any
    result: Any = Any


WORKS: dict[str, ValueTypes] = {
    "request": ValueTypes(RequestRecord, result=ResponseRecord),
    "think": ValueTypes(result=Reply),
    "call": ValueTypes(Call, MadeCall, Observation),
    "code": ValueTypes(str | None, result=CodeResult),
    "question": ValueTypes(Asking, result=str),
    "decision": ValueTypes(Asking, result=Decision),
    "take": ValueTypes(result=WaitResult),
    "child": ValueTypes(ChildStart, result=ChildEnd),
}
"""The kinds of work whose values are typed; see `records.py`."""


def encode(value: Any) -> bytes:
    """JSON of a record, head or plain value, in UTF-8. Values that JSON has no place for (an object, a set, a key that
    is no text) become text; half a surrogate pair is escaped, so that it comes back as it was."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(plain(value), allow_nan=False).encode()


def encode_record(record: Record) -> bytes:
    """JSON of a record as it is stored: a result that is text stands in it once."""
    seen = record.value if isinstance(record, ResultRecord) else None
    if isinstance(seen, Observation) and isinstance(seen.value, str) and seen.value == seen.text:
        record = structs.replace(record, value=structs.replace(seen, value=None), value_is_text=True)
    return encode(record)


def _type_values(record: Record) -> Record:
    """The record with its values as typed objects, as whoever wrote it had them. Raises `msgspec.ValidationError`,
    and `ValueError` for a text that is no key."""
    read_key(record.key)
    if isinstance(record, RaisedRecord):
        return record
    if isinstance(record, NoteRecord):
        if record.kind != "resumed":
            return record
        return structs.replace(record, value=msgspec.convert(record.value, Resumption))
    types = WORKS.get(record.work, _UNKNOWN)
    asked = record.asked if record.asked is UNSET else msgspec.convert(record.asked, types.asked)
    if isinstance(record, IntentRecord):
        made = record.made if record.made is UNSET else msgspec.convert(record.made, types.made)
        return structs.replace(record, asked=asked, made=made)
    value = msgspec.convert(record.value, types.result)
    if record.value_is_text and isinstance(value, Observation):
        value = structs.replace(value, value=value.text)
    return structs.replace(record, value=value, asked=asked, value_is_text=False)


_UNKNOWN = ValueTypes()


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
        fields = ((each, getattr(value, each)) for each in value.__struct_fields__)
        return tag | {name: plain(each, depth + 1) for name, each in fields if each is not UNSET}
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
    return _decode(data, _record, _type_values, "A record of the journal")


def decode_head(data: str) -> RunHead:
    """The head in a run's row. Raises `JournalError`."""

    def check(head: RunHead) -> RunHead:
        if head.caller is not None:
            read_key(head.caller.key)
        return head

    return _decode(data, _head, check, "The head of a run")


def _decode(data: str, decoder: msgspec.json.Decoder[T], check: Callable[[T], T], what: str) -> T:
    try:
        return check(decoder.decode(data))
    except (ValueError, RecursionError) as first:  # those of msgspec and of a wrong key are ValueErrors
        try:  # half a surrogate pair is JSON to the standard library only
            return check(msgspec.convert(json.loads(data), decoder.type))
        except (ValueError, RecursionError):
            hint = "It is damaged, or was written by a newer Plait: upgrade, or leave this run."
            raise JournalError(f"{what} can't be read ({first}): {data[:80]!r}.", hint=hint) from None


def decode_attachments(data: str | None) -> tuple[Attachment, ...]:
    """The attachments in a run's head; none for NULL."""
    return msgspec.json.decode(data, type=tuple[Attachment, ...]) if data else ()


def decode_totals(data: str) -> dict[str, Any]:
    """The totals of a run, fast: lists of costs read those of all runs. Raises `JournalError`."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (ValueError, RecursionError):  # half a surrogate pair, or no JSON
        found: dict[str, Any] = decode_plain(data)
        return found


def decode_plain(data: str | bytes) -> Any:
    """Any JSON value, such as an outcome or the totals. Raises `JournalError`."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as why:
        raise JournalError(f"A value of the journal is damaged ({type(why).__name__}): {data[:80]!r}.") from None
