"""The dependencies of a run that a function of the user makes. They are opened for the run and closed at its end."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from plait.core.errors import ConfigError
from plait.runtime.background import call_either
from plait.tools.load import load_object
from plait.tools.threads import given_up
from plait.tools.tool import function_name
from plait.tools.user_code import show_error
from plait.user_functions import is_async

GRACE = 5.0
"""Seconds that synchronous tools have to end, when the run is over, before what they use is closed."""


def load_make_deps(word: str) -> Callable[[], Any]:
    """Import the function that makes dependencies: `module:name` or `file.py:name`. Raises `ConfigError`."""
    found: Callable[[], Any] = load_object(word, "the function that makes the dependencies")
    if not callable(found):
        raise ConfigError(f"{word!r} is a {type(found).__name__}.", hint="Name a function that makes the dependencies.")
    return found


@asynccontextmanager
async def open_deps(make: Callable[[], Any] | None, deps: Any) -> AsyncIterator[Any]:
    """Give a run its dependencies: `deps`, or for None those that `make` makes, which are closed at the end.

    `make` may be async, or an async generator that yields once. If it returns an async context manager, the
    dependencies are what that gives when it is entered. A function that is not async is called in a thread. Raises
    `ConfigError` if they cannot be made. If they cannot be closed, the run keeps its end, and a warning says so.
    """
    if deps is not None or make is None:
        yield deps
        return
    name, manager = function_name(make), None
    try:
        if inspect.isasyncgenfunction(make):
            make = asynccontextmanager(make)
        deps = await (call_either(make) if is_async(make) else asyncio.to_thread(make))
        if inspect.isgenerator(getattr(deps, "gen", deps)):  # also of `contextlib.contextmanager`
            raise TypeError("it is a generator without `async`")
        if isinstance(deps, AbstractAsyncContextManager):
            manager, deps = deps, await deps.__aenter__()
    except (Exception, SystemExit) as why:
        hint = "Correct it, then try again: nothing was done."
        raise ConfigError(f"The dependencies can't be made: {name} raised {show_error(why)}.", hint=hint) from why
    ended: BaseException | None = None
    still_at_work: list[asyncio.Event] = []
    token = given_up.set(still_at_work)
    try:
        try:
            yield deps
        finally:
            with suppress(ValueError):  # closed from elsewhere
                given_up.reset(token)
            if manager is not None and still_at_work:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.gather(*(each.wait() for each in still_at_work)), GRACE)
    except BaseException as why:
        ended = why
        raise
    finally:
        try:
            if manager is not None:  # it may see how the run ended, and cannot change it
                await manager.__aexit__(type(ended) if ended else None, ended, ended.__traceback__ if ended else None)
        except Exception as why:
            if why is not ended:
                text = f"The dependencies of a run can't be closed: {name} raised {show_error(why)}."
                warnings.warn(text, RuntimeWarning, stacklevel=2)
