"""The context of a tool call: whether it was cancelled, and what the runtime offers to the tool. The runtime sets it
around each call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class CallContext:
    """The base of `plait.Context`, by which a tool's parameter for it is recognized."""


class CallServices(Protocol):
    """What the runtime offers to one tool call. `meter` counts what its run uses, `calls_in_doubt` those in doubt.
    `outside`: a run that the tool started has read content from outside."""

    meter: Any
    calls_in_doubt: Any
    outside: bool

    def report_progress(self, text: str) -> None:
        """Show how far the tool is. Called on the run's own event loop."""
        ...


_cancelled: ContextVar[threading.Event | None] = ContextVar("plait_cancelled", default=None)
_services: ContextVar[CallServices | None] = ContextVar("plait_call_services", default=None)


def cancelled() -> bool:
    """Return, inside a tool, whether nobody waits for its result any more.

    Plait cannot stop a thread from outside. A long-running tool should check now and then, and return.
    """
    event = _cancelled.get()
    return event is not None and event.is_set()


def set_cancel_event(event: threading.Event) -> None:
    """Set the event that cancels the calls made in this context."""
    _cancelled.set(event)


def call_services() -> CallServices | None:
    """Return the services of the tool call that goes on here; None outside of a tool call."""
    return _services.get()


@contextmanager
def offer_services(services: CallServices) -> Iterator[None]:
    """Offer services to the tools that are called within."""
    before = _services.set(services)
    try:
        yield
    finally:
        _services.reset(before)
