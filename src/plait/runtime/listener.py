"""The caller's `on_event`: what happens if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from plait.core import Event
from plait.core import events as ev
from plait.core.user_functions import call_plain
from plait.tools.user_code import show_error

_BEFORE_WORK = (ev.Asked, ev.Called, ev.Executing)
"""Events that come right before work: none begins once the listener has failed."""


class Listener:
    """Gives events to the function `on_event` of one run, until it raises: then the caller is to get its error.

    The run is cancelled, as if the caller had cancelled it, so that calls under way are recorded as they always are.
    `run` is the task that performs the run.
    """

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self.run: asyncio.Task[Any] | None = None
        self.error: BaseException | None = None

    def __call__(self, event: Event) -> None:
        """Give an event to the function. Raises `CancelledError` where the run must not go on."""
        if self.error is not None:
            fails = isinstance(event, _BEFORE_WORK)
        else:
            try:
                call_plain(self._on_event, event)
                return
            except BaseException as why:
                self.error = why
                fails = not isinstance(event, ev.Began | ev.Ended)
        if not fails:
            return
        reason = f"The function on_event= failed: {show_error(self.error)}."
        current = asyncio.current_task()
        if self.run is not None and self.run is not current and not self.run.cancelling():
            self.run.cancel(reason)
        if current is not None:
            raise asyncio.CancelledError(reason)
