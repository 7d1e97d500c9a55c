"""The options of a loop: its fields, their types and the words that they take."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from plait.core.errors import ConfigError


def check_options(loop: Any) -> None:
    """Raise `ConfigError` if an option has a wrong type or a number below zero."""
    kind: Any = type(loop)
    hints = _hints(kind)
    for field in dataclasses.fields(loop):
        value = getattr(loop, field.name)
        try:
            msgspec.convert(value, hints[field.name])
            fits = not isinstance(value, int) or value >= 0
        except msgspec.ValidationError:
            fits = False
        if not fits:
            raise ConfigError(f"{kind.__name__}({field.name}={value!r}) is invalid.", hint=describe_options(kind))


def describe_options(kind: Any) -> str:
    """Return the options with the values they take."""
    said = []
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        values = " or ".join(choices_of(hint))
        said.append(f"{field.name} ({values or (hint.__name__ if isinstance(hint, type) else hint)})")
    return f"Options: {', '.join(said)}."


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return the words that an option takes, by its type; empty if it takes any."""
    if get_origin(hint) is Literal:
        return tuple(map(str, get_args(hint)))
    return tuple(word for part in get_args(hint) for word in choices_of(part))


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)
