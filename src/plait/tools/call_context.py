"""The context of a tool call, set by the runtime: whether it was cancelled, and what the runtime offers to the tool."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from typing import Any, Protocol


class CallContext:
    """The base of `plait.Context`, by which a tool's parameter for it is recognized."""


class CallServices(Protocol):
    """What the runtime offers to one tool call. `engine` performs the run that makes the call of `tool`.
    `outside`: a run that the tool started has read content from outside."""

    engine: Any
    outside: bool

    @property
    def tool(self) -> Any: ...

    @property
    def place(self) -> tuple[str, str]:
        """The run that makes the call, and the key of its entry."""
        ...

    def report_progress(self, text: str, data: Any = None) -> None:
        """Show how far the tool is; `data` is JSON. Called on the run's own event loop."""
        ...

    def extend_time(self) -> None:
        """Give the call its whole time again, within bounds, because it makes progress. Called on the run's loop."""
        ...

    async def ask_model(self, question: str, model: Any, rules: str, max_tokens: int | None) -> str:
        """Return a model's reply to a question of the tool. None asks the run's. Raises `ToolError`."""
        ...

    async def ask_user(self, question: str, number: int, state: Any = None) -> str:
        """Return the user's answer to a question of the tool, which has `number` answers already. Until there is one,
        this raises an exception that is none of `Exception`, and the run waits. Then the call is made again, if no
        answer was used before, if the tool is repeatable, if it goes on in `held_calls`, or if the question has a
        `state` (JSON), with which the tool can go on."""
        ...

    def find_asked(self) -> list[tuple[str, Any]]:
        """Return the questions of this call that the user was asked, in order, each with its state."""
        ...

    async def note_use(self, question: str, number: int) -> None:
        """Record that an answer is used now: what follows may have effects."""
        ...


REFUSALS = ("decline", "cancel")
"""Answers of the user with which a question of a tool gets none."""
held_calls: dict[tuple[str, str], Any] = {}
"""What goes on in this process for calls whose runs wait for the user, by run and key, the oldest first."""
os.register_at_fork(after_in_child=held_calls.clear)
cancel_event: ContextVar[threading.Event | None] = ContextVar("plait_cancelled", default=None)
"""The event that cancels the calls made in this context."""
_services: ContextVar[CallServices | None] = ContextVar("plait_call_services", default=None)


def cancelled() -> bool:
    """Return, inside a tool, whether nobody waits for its result any more.

    Plait cannot stop a thread from outside. A long-running tool should check now and then, and return.
    """
    event = cancel_event.get()
    return event is not None and event.is_set()


def call_services() -> CallServices | None:
    """Return the services of the tool call that goes on here; None outside of a tool call."""
    return _services.get()


class offer_services:
    """Offer services to the tools that are called within."""

    __slots__ = ("_before", "_offered")

    def __init__(self, services: CallServices) -> None:
        self._offered = services

    def __enter__(self) -> None:
        self._before = _services.set(self._offered)

    def __exit__(self, *_: object) -> None:
        _services.reset(self._before)
