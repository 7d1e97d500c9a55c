"""Tools from classes and objects: each public method is a tool.

A class has an object of its own in each run, made when the run first calls one of its tools. So nothing that one run
leaves in it is seen by another.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from msgspec import structs

from plait.core.errors import UsageError
from plait.tools.tool import Tool, tool


class PerRun:
    """Makes the object whose methods are tools, one for each run. `toolset` makes it."""

    def __init__(self, make: Callable[[], Any], methods: dict[str, FunctionType | Tool], name: str) -> None:
        self.make, self.methods, self.name = make, methods, name

    def tools(self) -> tuple[Tool, ...]:
        """The tools, described but not yet of any run."""
        return tuple(structs.replace(_described(each, self), per_run=self) for each in self.methods.values())


class Made:
    """The object of one run, made when it is first needed: a run that calls none of its tools makes none."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._found: list[Any] = []

    def get(self) -> Any:
        """The object."""
        with self._lock:
            if not self._found:
                self._found.append(self._make())
            return self._found[0]


def toolset(make: Callable[[], Any]) -> PerRun:
    """Tools from an object that `make()` gives, a new one for each run: `tools=[plait.toolset(lambda: Repl(limit=5))]`.

    The object's public methods are the tools. `make` is called once to see them, then once for each run that calls one
    of them. Raises `UsageError` when it fails, or gives an object without such methods.
    """
    if isinstance(make, type):
        return of_class(make)
    try:
        sample = make()
    except Exception as why:
        raise UsageError(f"The factory of a toolset failed: {type(why).__name__}: {why}.") from why
    return PerRun(make, _methods(type(sample), type(sample).__name__), type(sample).__name__)


def of_class(kind: type) -> PerRun:
    """The tools of a class, whose object is made without arguments. Raises `UsageError` when that can't be."""
    methods = _methods(kind, kind.__name__)
    try:
        inspect.signature(kind).bind()
    except TypeError as why:
        raise UsageError(
            f"The class {kind.__name__} can't be made without arguments: {why}.",
            hint=f"Give an object, {kind.__name__}(...), or one per run: plait.toolset(lambda: {kind.__name__}(...)).",
        ) from None
    except ValueError:  # it does not show its parameters
        pass
    return PerRun(kind, methods, kind.__name__)


def is_toolset(item: Any) -> bool:
    """Is it a class, what makes objects, or an object with methods, rather than a function?"""
    return isinstance(item, (PerRun, type)) or (isinstance(item, partial) and isinstance(item.func, type))


def tools_of_object(item: Any) -> tuple[Tool, ...]:
    """The public methods of a class, a factory or an object as tools. Raises `UsageError` when there are none."""
    if isinstance(item, PerRun):
        return item.tools()
    if isinstance(item, type):
        return of_class(item).tools()
    if isinstance(item, partial):
        return toolset(item).tools()
    methods = _methods(type(item), type(item).__name__)
    return tuple(
        each.__get__(item) if isinstance(each, Tool) else tool(MethodType(each, item)) for each in methods.values()
    )


def for_run(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools as one run calls them: those of a class are methods of an object that no other run has."""
    if not any(each.per_run for each in tools):
        return tools
    made: dict[int, Made] = {}
    found: list[Tool] = []
    for each in tools:
        if each.per_run is None:
            found.append(each)
            continue
        held = made.setdefault(id(each.per_run), Made(each.per_run.make))
        bound = structs.replace(each, function=_late(each.function, held))
        vars(bound).update(signature=each.signature, spec=each.spec)
        found.append(bound)
    return tuple(found)


def _late(method: Any, held: Made) -> Callable[..., Any]:
    """The method of an object that is made when it is called."""
    function = method.__func__
    if inspect.iscoroutinefunction(function):

        async def called(*args: Any, **kwargs: Any) -> Any:
            return await function(held.get(), *args, **kwargs)

        return called
    return lambda *args, **kwargs: function(held.get(), *args, **kwargs)


def _described(method: FunctionType | Tool, owner: PerRun) -> Tool:
    # Bound to no object of the class: what describes a tool must not need one.
    return method.__get__(owner) if isinstance(method, Tool) else tool(MethodType(method, owner))


def _methods(kind: type, name: str) -> dict[str, FunctionType | Tool]:
    """The methods of a class that are tools: those made so by `plait.tool` if there are any, else all public ones that
    have a docstring or type hints."""
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
        raise UsageError(
            f"{'An' if name[:1] in 'AEIOUaeiou' else 'A'} {name} is no tool.",
            hint="Give a typed function, a plait.tool, an object or class with public methods that have docstrings, "
            "or a word such as 'calculator'.",
        )
    return marked or plain
