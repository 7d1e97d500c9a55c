"""The rule for functions that users give to Plait, wherever they are called.

Tools, hooks and `on_wait` may be async: Plait awaits what they return (`call_either` in `runtime/background.py`). All
others are called where nothing can be awaited: `require_plain` refuses async ones when they are given, and `call_plain`
refuses an awaitable that a function returns without being async itself.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from plait.core.errors import ConfigError

T = TypeVar("T")

_PLAIN = (str, int, float, type(None))
"""Types of most values; the checks for awaitables take longer."""


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


def raise_interrupt(why: KeyboardInterrupt) -> NoReturn:
    """Raise again what a function raised: in a thread that Ctrl-C never reaches, as a `RuntimeError`. There the
    function itself raised it, as libraries for terminals do, and it must not end the thread's event loop."""
    if threading.current_thread() is threading.main_thread():
        raise why
    raise RuntimeError(f"KeyboardInterrupt: {why}".rstrip(": ")) from why


def call_plain(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function that is not async. Raises `TypeError` if it returns an awaitable all the same. See
    `raise_interrupt` for a `KeyboardInterrupt`."""
    try:
        value = function(*arguments, **named)
    except KeyboardInterrupt as why:
        raise_interrupt(why)
    if not isinstance(value, _PLAIN) and (inspect.isawaitable(value) or inspect.isasyncgen(value)):
        discard = getattr(value, "close", None) or getattr(value, "cancel", None)
        if discard is not None:
            discard()
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{name} returned an awaitable ({type(value).__name__}), and Plait calls it without await")
    return value
