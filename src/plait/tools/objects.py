"""Tools from classes and objects: each public method is a tool.

Each run gets its own object of a class, created when the run first calls one of its tools. So runs do not share state.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import cache, partial
from types import FunctionType, MethodType
from typing import Any

from msgspec import structs

from plait.core.errors import ConfigError
from plait.tools.tool import Tool, tool


class PerRun:
    """Makes the object whose methods are tools, one for each run."""

    def __init__(self, make: Callable[[], Any], methods: dict[str, FunctionType | Tool], name: str) -> None:
        self.make, self.methods, self.name = make, methods, name

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools, which belong to no run yet."""
        return tuple(structs.replace(_describe_method(each, self), per_run=self) for each in self.methods.values())


def toolset(make: Callable[[], Any]) -> PerRun:
    """Make tools of the methods of an object, a new one for each run: `tools=[plait.toolset(lambda: Repl(limit=5))]`.

    `make()` returns the object. Plait calls it once to find the public methods, then once for each run that calls one
    of them. Raises `ConfigError` if it fails, or returns an object without public methods.
    """
    if isinstance(make, type):
        return of_class(make)
    try:
        sample = make()
    except Exception as why:
        raise ConfigError(f"The factory of a toolset failed: {type(why).__name__}: {why}.") from why
    return PerRun(make, _find_methods(type(sample), type(sample).__name__), type(sample).__name__)


def of_class(kind: type) -> PerRun:
    """Make tools of a class without arguments. Raises `ConfigError` if it needs some."""
    methods = _find_methods(kind, kind.__name__)
    try:
        inspect.signature(kind).bind()
    except TypeError as why:
        raise ConfigError(
            f"The class {kind.__name__} can't be made without arguments: {why}.",
            hint=f"Give an object, {kind.__name__}(...), or one per run: plait.toolset(lambda: {kind.__name__}(...)).",
        ) from None
    except ValueError:  # its parameters are not accessible
        pass
    return PerRun(kind, methods, kind.__name__)


def is_toolset(item: Any) -> bool:
    """Return whether it is a class or makes objects, rather than being a function."""
    return isinstance(item, (PerRun, type)) or (isinstance(item, partial) and isinstance(item.func, type))


def tools_of_object(item: Any) -> tuple[Tool, ...]:
    """Make tools of the public methods of a class, a factory or an object. Raises `ConfigError` without such
    methods."""
    if isinstance(item, PerRun):
        return item.tools()
    if isinstance(item, type):
        return of_class(item).tools()
    if isinstance(item, partial):
        return toolset(item).tools()
    methods = _find_methods(type(item), type(item).__name__)
    return tuple(
        each.__get__(item) if isinstance(each, Tool) else tool(MethodType(each, item)) for each in methods.values()
    )


def for_run(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return the tools of one run: those of a class become methods of an object that only this run has."""
    if not any(each.per_run for each in tools):
        return tools
    getters: dict[int, Callable[[], Any]] = {}
    found: list[Tool] = []
    for each in tools:
        if each.per_run is None:
            found.append(each)
            continue
        get_object = getters.setdefault(id(each.per_run), _make_once(each.per_run.make))
        bound = structs.replace(each, function=_bind_late(each.function, get_object))
        vars(bound).update(signature=each.signature, spec=each.spec)
        found.append(bound)
    return tuple(found)


def _make_once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that makes an object on the first call, and returns the same object later, from any thread."""
    lock = threading.Lock()

    @cache
    def make_one() -> Any:
        return make()

    def get_object() -> Any:
        with lock:
            return make_one()

    return get_object


def _bind_late(method: Any, get_object: Callable[[], Any]) -> Callable[..., Any]:
    """Bind a method to an object that is made when the method is called."""
    function = method.__func__
    if inspect.iscoroutinefunction(function):

        async def call_method(*args: Any, **kwargs: Any) -> Any:
            return await function(get_object(), *args, **kwargs)

        return call_method
    return lambda *args, **kwargs: function(get_object(), *args, **kwargs)


def _describe_method(method: FunctionType | Tool, owner: PerRun) -> Tool:
    # Not bound to an object: describing a tool must not need one.
    return method.__get__(owner) if isinstance(method, Tool) else tool(MethodType(method, owner))


def _find_methods(kind: type, name: str) -> dict[str, FunctionType | Tool]:
    """Return the methods of a class that are tools: those marked with `plait.tool`, or without any, all public ones
    that have a docstring or type hints."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__[:-1]):
        found.update({key: value for key, value in vars(each).items() if not key.startswith("_")})
    marked: dict[str, Any] = {key: value for key, value in found.items() if isinstance(value, Tool)}
    plain: dict[str, Any] = {
        key: value
        for key, value in found.items()
        if isinstance(value, FunctionType) and (value.__doc__ or value.__annotations__)
    }
    if kind.__module__.partition(".")[0] == "plait" or not (marked or plain):
        raise ConfigError(
            f"{'An' if name[:1] in 'AEIOUaeiou' else 'A'} {name} cannot be used as a tool.",
            hint="Give a typed function, a plait.tool, an object or class with public methods that have docstrings, "
            "or a word such as 'calculator'.",
        )
    return marked or plain
