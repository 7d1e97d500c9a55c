"""Model calls that a tool makes count against the limits of the run that called the tool.

The runtime sets the meter of its run around each tool call; what asks a model finds it here: the tool `ask_model`, and
an agent that a tool runs, in this thread or another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from plait.core import Usage
from plait.core.errors import ToolError


class BudgetSpent(ToolError):
    """The run's limits leave no model call for its tools."""

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(f"No model can be asked: {detail}.", hint="Answer from what is known.")
        self.limit = limit
        self.detail = detail


class RunMeter(Protocol):
    """What a run offers to models that its tools ask."""

    def request(self, model: Any) -> None:
        """Count a request that is about to be sent. Raises `BudgetSpent` where the limits leave none."""
        ...

    def took(self, model: str, usage: Usage, cost: float | None) -> None:
        """Count what a request took."""
        ...


_meter: ContextVar[RunMeter | None] = ContextVar("plait_run_meter", default=None)


def run_meter() -> RunMeter | None:
    """The meter of the run whose tool is being called; None outside of a tool call."""
    return _meter.get()


@contextmanager
def metered_by(meter: RunMeter) -> Iterator[None]:
    """Model calls within count against this meter."""
    token = _meter.set(meter)
    try:
        yield
    finally:
        _meter.reset(token)
