"""Tools from classes and objects: each public method is a tool.

Each run gets its own object of a class, made and opened when the run first calls one of its tools, and closed when the
run ends. So runs do not share state. An object that the user made stays open.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plait.core.errors import ConfigError
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from plait.tools.tool_object import ToolObject


class PerRun:
    """Makes the object whose methods are tools, one for each run. `parallel`: its calls may run at the same time."""

    def __init__(self, make: Callable[[], Any], kind: type, parallel: bool) -> None:
        self.make, self.parallel = make, parallel
        self._methods = _find_methods(kind)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools, which belong to no run yet. Describing them must not need an object."""
        found = _make_tools(self._methods, self)
        return tuple(structs.replace(each, owner=self, parallel=each.parallel or self.parallel) for each in found)


def toolset(make: Callable[[], Any], *, parallel: bool = False) -> PerRun:
    """Make tools of the methods of an object, a new one for each run: `tools=[plait.toolset(lambda: Repl(limit=5))]`.

    `make()` returns the object. Plait calls it once to find the public methods, and closes that object; then once for
    each run that calls one of them. The object is opened and closed with the run (docs/tools.md). Its calls run one at
    a time, or side by side with `parallel`. Raises `ConfigError` if the factory fails, or returns an object without
    public methods.
    """
    if isinstance(make, partial) and isinstance(make.func, type):
        return PerRun(make, make.func, parallel)
    if not isinstance(make, type):
        try:
            sample = make()
        except Exception as why:
            raise ConfigError(f"The factory of a toolset failed: {type(why).__name__}: {why}.") from why
        made = PerRun(make, type(sample), parallel)
        from plait.background import run_aside  # heavy: it imports asyncio
        from plait.tools.tool_object import is_lifecycle

        name = next((name for name in ("close", "aclose") if is_lifecycle(type(sample), name)), "")
        with contextlib.suppress(Exception):  # no run depends on it
            if name and inspect.isawaitable(closing := getattr(sample, name)()):
                run_aside(closing)
        return made
    made = PerRun(make, make, parallel)
    try:
        inspect.signature(make).bind()
    except TypeError as why:
        hint = f"Give an object, {make.__name__}(...), or one per run: plait.toolset(lambda: {make.__name__}(...))."
        raise ConfigError(f"The class {make.__name__} can't be made without arguments: {why}.", hint=hint) from None
    except ValueError:  # its parameters are not accessible
        pass
    return made


def is_toolset(item: Any) -> bool:
    """Return whether it is a class or makes objects, rather than being a function."""
    return isinstance(item, (PerRun, type)) or (isinstance(item, partial) and isinstance(item.func, type))


def tools_of_object(item: Any) -> tuple[Tool, ...]:
    """Make tools of the public methods of a class, a factory or an object. Raises `ConfigError` if it has none."""
    if is_toolset(item):
        return (item if isinstance(item, PerRun) else toolset(item)).tools()
    return _make_tools(_find_methods(type(item)), item)


def _make_tools(methods: Iterable[FunctionType | Tool], item: Any) -> tuple[Tool, ...]:
    return tuple(each.__get__(item) if isinstance(each, Tool) else tool(MethodType(each, item)) for each in methods)


def for_run(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return the tools of one run: those of a class become methods of an object that only this run has."""
    owners = {id(each.owner): each.owner for each in tools if isinstance(each.owner, PerRun)}
    if not owners:
        return tools
    from plait.tools.tool_object import ToolObject  # heavy: it imports asyncio

    made: dict[int, ToolObject] = {}
    for key, per_run in owners.items():
        kinds = {each.is_async for each in tools if each.owner is per_run}
        made[key] = ToolObject(make=per_run.make, is_async=kinds == {True})
    found: list[Tool] = []
    for each in tools:
        if (owner := made.get(id(each.owner))) is None:
            found.append(each)
            continue
        found.append(_bind_tool(each, owner))
    return tuple(found)


def _bind_tool(unbound: Tool, owner: ToolObject) -> Tool:
    """Bind the tool of a class, and what verifies its calls, to an object that is made before the tool is called."""
    method: Any = unbound.function.__func__  # type: ignore[attr-defined]

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await method(owner.item, *args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        return method(owner.item, *args, **kwargs)

    function = call_async if inspect.iscoroutinefunction(method) else call
    bound = structs.replace(unbound, function=function, owner=owner)
    vars(bound).update(signature=unbound.signature, spec=unbound.spec)
    if (verifier := unbound.verifier) is not None:
        vars(bound).update(verifier=_bind_tool(verifier, owner) if verifier.owner is not None else verifier)
    return bound


def _find_methods(kind: type) -> list[FunctionType | Tool]:
    """Return the methods of a class that are tools: those marked with `plait.tool`, or without any, all public ones
    that have a docstring or type hints and do not open or close the object."""
    from plait.tools.tool_object import is_lifecycle  # heavy: it imports asyncio

    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__[:-1]):
        found.update({key: value for key, value in vars(each).items() if not key.startswith("_")})
    marked: list[Any] = [value for value in found.values() if isinstance(value, Tool)]
    plain: list[Any] = [
        value
        for key, value in found.items()
        if isinstance(value, FunctionType) and (value.__doc__ or value.__annotations__) and not is_lifecycle(kind, key)
    ]
    if kind.__module__.partition(".")[0] == "plait" or not (marked or plain):
        name = kind.__name__
        raise ConfigError(
            f"{'An' if name[:1] in 'AEIOUaeiou' else 'A'} {name} cannot be used as a tool.",
            hint="Give a typed function, a plait.tool, an object or class with public methods that have docstrings, "
            "or a word such as 'calculator'.",
        )
    return marked or plain
