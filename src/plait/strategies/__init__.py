"""The loops, one file each, and how one is found by its word."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from plait.core import Strategy
from plait.core.errors import UsageError
from plait.strategies.json_react import JsonReact
from plait.strategies.react import React

__all__ = ["JsonReact", "React", "make", "names", "options_of", "prompts_of"]

OURS: dict[str, type[Any]] = {"react": React, "json": JsonReact}

GROUP = "plait.strategies"
"""The entry-point group for loops of other packages: name = "module:Class"."""


def names() -> list[str]:
    """Every loop that can be chosen by a word, plug-ins included."""
    return sorted({*OURS, *(point.name for point in _plugins())})


def make(name: str, options: Mapping[str, Any] | None = None) -> Strategy:
    """The loop of that name with these options; text values (from a command line) become what the option is.

    Raises `UsageError` for an unknown name, option or value, and says which there are.
    """
    kind = _kind(name)
    fields = {field.name: field for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    for option in options or {}:
        if option not in fields:
            raise UsageError(
                f"The loop '{name}' has no option '{option}'.",
                hint=f"It has: {', '.join(fields)}." if fields else "It has none.",
            )
    try:
        made = msgspec.convert(dict(options or {}), kind, strict=False) if fields else kind()
    except msgspec.ValidationError as why:
        raise UsageError(f"A bad option for the loop '{name}': {why}.", hint=_choices(kind)) from why
    assert isinstance(made, Strategy)
    return made


def options_of(strategy: Strategy) -> dict[str, Any]:
    """A loop's options, all of them, as JSON values."""
    if not dataclasses.is_dataclass(strategy) or isinstance(strategy, type):
        return {}
    return {field.name: getattr(strategy, field.name) for field in dataclasses.fields(strategy)}


def prompts_of(name: str) -> dict[str, str]:
    """The templates that a loop of another package brings as its `prompts`; none for ours, which are files."""
    return dict(getattr(_kind(name), "prompts", {}))


def _kind(name: str) -> type[Any]:
    if name in OURS:
        return OURS[name]
    for point in _plugins():
        if point.name == name:
            loaded = point.load()
            assert isinstance(loaded, type)
            return loaded
    near = difflib.get_close_matches(name, names(), 2, 0.4)
    raise UsageError(
        f"There is no loop '{name}'.",
        hint=(f"Did you mean {' or '.join(near)}? " if near else "") + f"There are: {', '.join(names())}.",
    )


def _plugins() -> list[Any]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


def _choices(kind: type[Any]) -> str:
    """The options with the values they take."""
    said = []
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        values = " or ".join(map(str, get_args(hint))) if get_origin(hint) is Literal else ""
        said.append(f"{field.name} ({values or (hint.__name__ if isinstance(hint, type) else hint)})")
    return f"Options: {', '.join(said)}."
