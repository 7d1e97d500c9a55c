"""The signals of a run: what a loop receives in place of a result, or what ends the run. They are on record. Also the
outcomes that the runtime makes of what ended a run."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from plait.core import Answered, Cancelled, ContextOverflow, Failed, LimitNear, Outcome, Stopped, Unsupported
from plait.core.text import sentence
from plait.journal.records import RaisedRecord
from plait.runtime.guard import EndedByRefusal, LimitReached

SIGNALS = (LimitNear, ContextOverflow, Unsupported)
"""What is thrown into the loop in place of a result."""

ENDINGS = (*SIGNALS, LimitReached, EndedByRefusal)
"""All that is recorded in place of a result. What is not thrown into the loop ends the run."""


def write_signal(key: str, step: int, why: Exception, asked: str) -> RaisedRecord:
    """Return the row of a signal. `asked` is the digest of the loop's effect."""
    match why:
        case LimitNear() | LimitReached():
            kind: Any = type(why).__name__
            return RaisedRecord(key, step, kind, why.limit, why.detail, asked=asked)
        case EndedByRefusal():
            return RaisedRecord(key, step, "EndedByRefusal", why.kind, str(why), asked=asked)
        case Unsupported():
            return RaisedRecord(key, step, "Unsupported", why.ability, why.message, said=why.said, asked=asked)
        case ContextOverflow():
            return RaisedRecord(key, step, "ContextOverflow", "context", str(why), why.tokens, why.room, asked=asked)
    raise TypeError(type(why))


def read_signal(raised: RaisedRecord) -> Exception:
    """Return the signal of a row."""
    match raised.kind:
        case "LimitNear":
            return LimitNear(raised.limit, raised.detail)
        case "LimitReached":
            return LimitReached(raised.limit, raised.detail)
        case "EndedByRefusal":
            return EndedByRefusal(raised.detail, cast(Any, raised.limit))
        case "Unsupported":
            return Unsupported(raised.detail, raised.limit, raised.said)
    return ContextOverflow(raised.detail, tokens=raised.tokens, room=raised.room)


def describe_signal(why: Exception) -> tuple[str, str] | None:
    """Return the kind and text of the remark about a signal; None for one that the loop itself reports."""
    match why:
        case LimitNear():
            return "loop" if why.limit == "loop" else "limit", sentence(why.detail)
        case ContextOverflow():
            return "limit", "The prompt is too long for the model."
    return None


def cancelled_by(why: asyncio.CancelledError) -> Cancelled:
    """Return the outcome of a cancelled run, with the reason that was given: not the note that anyio gives."""
    reason = str(why.args[0]) if why.args else ""
    return Cancelled(reason) if reason and not reason.startswith("Cancelled via cancel scope ") else Cancelled()


def cut_short(outcome: Outcome, how: str, text: str) -> Outcome:
    """Return the outcome of a run whose last reply was cut or refused. `text` is the part that arrived."""
    cut = f"The model's last reply {how}."
    match outcome:
        case Answered(answer=answer):
            return Stopped("reply", cut, answer)
        case Failed(reason=reason, kind="format"):
            return Stopped("reply", f"{cut} {sentence(reason)}", text or None)
        case Stopped(limit=limit, reason=reason, answer=answer):
            return Stopped(limit, f"{sentence(reason)} {cut}", answer)
    return outcome
