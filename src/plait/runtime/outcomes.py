"""The outcomes that the runtime makes of what ended a run."""

from __future__ import annotations

import asyncio

from plait.core import Answered, Cancelled, Failed, Outcome, Stopped
from plait.core.text import sentence


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
