"""How a tool that works for long says how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("plait_progress", default=None)


def listener() -> Callable[[str], None] | None:
    """Inside a tool, on the run's own loop: who is told how far the call is; None where nobody listens."""
    return _listener.get()


@contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """For the runtime: what the tools that are called within say goes there."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
