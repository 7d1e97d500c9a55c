"""The meter of model calls that tools make. They count against their run's limits and go into its journal."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from plait.core import Usage
from plait.core.errors import JournalError
from plait.models.base import Model
from plait.runtime.run_context import RunContext
from plait.tools.call_context import BudgetSpent


class ToolModels:
    """Meter the model calls of one tool call. `tool` is the tool's name. Usable from any thread."""

    def __init__(self, run_context: RunContext, step: int, tool: str) -> None:
        self._run_context = run_context
        self._step = step
        self._tool = tool
        self._loop = asyncio.get_running_loop()

    def request(self, model: Model) -> None:
        near = self._run_context.meter.request_by_tool(model)
        if near is not None:
            raise BudgetSpent(near.limit, near.detail)
        if self._run_context.meter.outer is not None:
            self._run_context.meter.outer.request(model)

    def took(self, model: str, usage: Usage, cost: float | None) -> None:
        self._run_context.meter.took_by_tool(usage, cost)
        if self._run_context.meter.outer is not None:
            self._run_context.meter.outer.took(model, usage, cost)
        price = "price not known" if cost is None else f"{cost:.5f} USD"
        text = f"{self._tool} asked {model}: {usage.input_tokens:,} + {usage.output_tokens:,} tokens, {price}"
        with suppress(RuntimeError):  # the loop has ended: the run is over
            self._loop.call_soon_threadsafe(self._note, text)

    def _note(self, text: str) -> None:
        with suppress(JournalError):  # the run has ended in the meantime
            self._run_context.remark(self._step, "tool_model", text)
