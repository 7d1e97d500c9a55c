"""The rule for functions that users give to Plait, wherever they are called.

Tools, hooks and `on_wait` may be async: Plait awaits what they return (`call_either`). All others are called where
nothing can be awaited: `require_plain` refuses async ones when they are given, and `call_plain` refuses an awaitable
that a function returns without being async itself.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from plait.core.errors import ConfigError

T = TypeVar("T")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or an object that can be called, is async."""
    while isinstance(function, functools.partial):
        function = function.func
    called = (function, type(function).__call__)
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called)


def require_plain(function: Callable[..., Any], name: str, hint: str = "Give a plain function.") -> None:
    """Raise `ConfigError` for an async function. `name` is how the user knows it, such as "approve="."""
    if is_async(function):
        raise ConfigError(f"The function {name} is async, and Plait calls it without await.", hint=hint)


def call_plain(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function that is not async. Raises `TypeError` if it returns an awaitable all the same."""
    value = function(*arguments, **named)
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        discard = getattr(value, "close", None) or getattr(value, "cancel", None)
        if discard is not None:
            discard()
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{name} returned an awaitable ({type(value).__name__}), and Plait calls it without await")
    return value


async def call_either(function: Callable[..., Awaitable[T] | T], *arguments: Any) -> T:
    """Call a function that may be async, and return its result.

    A `CancelledError` that it raises although nobody cancelled the run becomes a `RuntimeError`.
    """
    try:
        value = function(*arguments)
        return await value if inspect.isawaitable(value) else value  # type: ignore[return-value]
    except asyncio.CancelledError as why:
        if is_cancelled():
            raise
        raise RuntimeError(f"CancelledError: {why}".rstrip(": ")) from why


def is_cancelled() -> bool:
    """Return whether somebody cancelled the task that goes on here."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
