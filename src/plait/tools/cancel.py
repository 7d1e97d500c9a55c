"""How a long synchronous tool learns that its run was cancelled or its time is over."""

from __future__ import annotations

import threading
from contextvars import ContextVar

_token: ContextVar[threading.Event | None] = ContextVar("plait_cancelled", default=None)


def cancelled() -> bool:
    """Inside a tool: True once nobody waits for its result any more. A thread can't be stopped from
    outside, so a tool that works for long should ask now and then, and return."""
    token = _token.get()
    return token is not None and token.is_set()


def set_token(token: threading.Event) -> None:
    """For the runtime: the token of the call that is being made in this context."""
    _token.set(token)
