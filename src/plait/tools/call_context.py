"""The context of a tool call: whether it was cancelled, who follows its progress, and the meter of its run. The runtime
sets it around each call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

from plait.core import Usage
from plait.core.errors import ToolError


class BudgetSpent(ToolError):
    """The limits of the run allow no further model call for its tools."""

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(f"No model can be asked: {detail}.", hint="Answer from what is known.")
        self.limit = limit
        self.detail = detail


class RunMeter(Protocol):
    """Counts the model calls that tools make against the limits of the run that called the tools."""

    def request(self, model: Any) -> None:
        """Count a request that is about to be sent. Raises `BudgetSpent` if the limits allow none."""
        ...

    def took(self, model: str, usage: Usage, cost: float | None) -> None: ...


_cancelled: ContextVar[threading.Event | None] = ContextVar("plait_cancelled", default=None)
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("plait_progress", default=None)
_meter: ContextVar[RunMeter | None] = ContextVar("plait_run_meter", default=None)


def cancelled() -> bool:
    """Return, inside a tool, whether nobody waits for its result any more.

    Plait cannot stop a thread from outside. A long-running tool should check now and then, and return.
    """
    event = _cancelled.get()
    return event is not None and event.is_set()


def set_cancel_event(event: threading.Event) -> None:
    """Set the event that cancels the calls made in this context."""
    _cancelled.set(event)


def progress_listener() -> Callable[[str], None] | None:
    """Return the function that a tool calls, on the run's own loop, to report its progress; None without a listener."""
    return _listener.get()


def run_meter() -> RunMeter | None:
    """Return the meter of the run whose tool is being called; None outside of a tool call."""
    return _meter.get()


class ToolCallContext:
    """Sends the progress of the tools that are called within to a listener, and counts their model calls."""

    __slots__ = ("_before", "_listener", "_meter")

    def __init__(self, listener: Callable[[str], None], meter: RunMeter | None = None) -> None:
        self._listener, self._meter = listener, meter

    def __enter__(self) -> None:
        self._before = _listener.set(self._listener), _meter.set(self._meter)

    def __exit__(self, *_: object) -> None:
        listener, meter = self._before
        _listener.reset(listener)
        _meter.reset(meter)
