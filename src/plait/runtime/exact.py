"""A tool's result as code gets it: the value itself, or why code can't have it."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from plait.core.messages import JSON
from plait.core.things import Thing
from plait.runtime.things import Things
from plait.sandbox.worker_values import Budget, Figures, pack
from plait.tools.render import Numeral, sound

DEPTH = 60


def exact_result(value: Any, plain: JSON, things: Things) -> tuple[JSON, str]:
    """The result as JSON that loses nothing, None where `plain` is just that; and why it can't be had, "" where it can.

    A data class, struct, model or named tuple is a dict of its fields, as a model is shown it; an Enum is its value;
    a number or array of numpy is Python's. Any other object can't be passed to code.
    """
    value = _numbers(value)
    try:
        packed = pack(value, lambda one: _stands(one, things), Budget(depth=DEPTH, figures=True))
    except (TypeError, ValueError, RecursionError) as why:
        return None, sound(str(why) if not isinstance(why, RecursionError) else "the value is nested too deep")
    return (None if type(packed) is type(plain) and packed == plain else packed), ""


def _numbers(value: Any) -> Any:
    """Texts of a table that are numbers become numbers, where nothing of the text is lost: 14.5, but not 14.50."""
    if isinstance(value, Numeral):
        number: Any = float(value) if "." in value else int(value)
        return number if repr(number) == value else Figures(value)
    return {key: _numbers(one) for key, one in value.items()} if type(value) is dict else value


def _stands(value: Any, things: Things) -> Any:
    """What stands for an object in JSON; None where nothing does."""
    if isinstance(value, Thing):
        return things.put_away(value)
    fields = _fields(value)
    if fields is None:
        return None
    return pack(fields[0], lambda one: _stands(one, things), Budget(depth=DEPTH))


def _fields(value: Any) -> tuple[Any] | None:
    """The Python value that an object amounts to, in a tuple; None for one that is only itself."""
    if isinstance(value, type):
        return None
    if isinstance(value, Enum):
        return (value.value,)
    if isinstance(value, msgspec.Struct):
        return ({name: getattr(value, name) for name in value.__struct_fields__},)
    if hasattr(value, "__dataclass_fields__"):
        return ({name: getattr(value, name) for name in value.__dataclass_fields__},)
    if callable(getattr(value, "model_dump", None)) and hasattr(type(value), "model_fields"):
        return (value.model_dump(mode="python"),)
    if type(value).__module__.partition(".")[0] == "numpy" and callable(getattr(value, "tolist", None)):
        found = value.tolist()
        return None if type(found) is type(value) else (found,)
    return None
