"""Rows of a run, written by hand: the records that an engine would write, in few words."""

from __future__ import annotations

from typing import Any, TypeGuard

from msgspec import UNSET

from plait.core import Call, Observation, Reply
from plait.journal.records import (
    Asking,
    ChildEnd,
    ChildStart,
    Decision,
    IntentRecord,
    MadeCall,
    NoteRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    ResultRecord,
    Resumption,
    Row,
)


def rows(*records: Record, bodies: bool = True) -> list[Row]:
    """Number the records; each row comes a second after the one before, and its body is its number."""
    return [Row(seq, 100.0 + seq, record, b"%d" % seq if bodies else None) for seq, record in enumerate(records)]


def request(key: str, step: int = 1, *, phase: str = "act", model: str = "m") -> IntentRecord:
    return IntentRecord(key, step, "request", RequestRecord(phase, model, "chat/completions"))


def response(key: str, status: int = 200, seconds: float = 0.5, error: str = "", *, step: int = 1) -> ResultRecord:
    return ResultRecord(key, step, "request", ResponseRecord(status, seconds, error))


def reply(key: str, text: str | Reply, step: int = 1) -> ResultRecord:
    return ResultRecord(key, step, "think", Reply(text) if isinstance(text, str) else text)


def begin(key: str, call: Call, step: int = 1, made: MadeCall | None = None) -> IntentRecord:
    return IntentRecord(key, step, "call", call, made if made is not None else UNSET)


def end(key: str, text: str | Observation, step: int = 1, *, asked: Call | None = None) -> ResultRecord:
    seen = Observation(text) if isinstance(text, str) else text
    return ResultRecord(key, step, "call", seen, asked if asked is not None else UNSET)


def ask(key: str, text: str, step: int = 1, *, call: Call | None = None) -> IntentRecord:
    """A guard's question about a call (or another entry), or the loop's."""
    if "@" not in key:
        return IntentRecord(key, step, "question", Asking("question", text))
    return IntentRecord(key, step, "decision", Asking("approval", text, call))


def answer(key: str, value: str | Decision, step: int = 1) -> ResultRecord:
    return ResultRecord(key, step, "decision" if "@" in key else "question", value)


def start_child(key: str, run: str, step: int = 1) -> IntentRecord:
    return IntentRecord(key, step, "child", ChildStart(run, "q"))


def end_child(key: str, step: int = 1, **totals: Any) -> ResultRecord:
    return ResultRecord(key, step, "child", ChildEnd("answered", totals))


def resumed(lost: str = "") -> NoteRecord:
    return NoteRecord("", 0, "resumed", value=Resumption({}, lost))


def is_request(record: Record) -> TypeGuard[IntentRecord]:
    """Say whether a record is the intent of a request to a model; its row's body is the request."""
    return isinstance(record, IntentRecord) and record.work == "request"


def is_result(record: Record, work: str = "call") -> TypeGuard[ResultRecord]:
    """Say whether a record is the result of such work; that of a call holds the observation."""
    return isinstance(record, ResultRecord) and record.work == work


def name_of(record: Record) -> str:
    """Return what a record is in two words, such as "result call", "raised Unsupported" or "note retry"."""
    about = record.work if isinstance(record, IntentRecord | ResultRecord) else record.kind
    return f"{record.__struct_config__.tag} {about}"
