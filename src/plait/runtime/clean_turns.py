"""Marks of turns that hold nothing from outside: `Run.messages()` adds them, `Agent.run(history=...)` checks them.

A mark is a keyed digest of the answer and the calls of one turn. So it proves that a run of this user wrote exactly
this turn, and that the run had read nothing from outside. The key is a file beside the default journal. If that file
cannot be written, a key of this process replaces it.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from plait.core import Call, Exchange
from plait.models.wires.turns import arguments
from plait.trust import state_folder

MARK = "clean"
"""The key of the mark in the last message of a turn."""
_KEY_BYTES = 32


def mark_of(turn: Exchange) -> str:
    """Return the mark of a turn. The user's question is not part of it, because the user may change it."""
    calls = [(call.tool, arguments(Call(call.tool, call.input)), call.result) for call in turn.calls]
    text = msgspec.json.encode((turn.answer, calls))
    return hmac.digest(_read_key(state_folder() / "history.key"), text, "sha256").hex()


def is_clean(turn: Exchange, mark: object) -> bool:
    """Return whether a turn is proven to hold nothing from outside. A turn of the user alone needs no mark."""
    if not (turn.answer or turn.calls):
        return True
    return isinstance(mark, str) and hmac.compare_digest(mark.encode("utf-8", "replace"), mark_of(turn).encode())


@lru_cache(maxsize=8)
def _read_key(file: Path) -> bytes:
    own = secrets.token_bytes(_KEY_BYTES)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
            new.write(own)
        found = file.read_bytes()
    except OSError:
        return own
    return found if len(found) == _KEY_BYTES else own  # another process is writing it: its marks do not hold here
