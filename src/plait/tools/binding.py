"""Binding: from a tool's input, as a model gave it, to the arguments of a Python call."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from typing import Any

from plait.core.call_check import MOST, place_arguments
from plait.core.errors import BadInput
from plait.core.json_schema import show_place
from plait.core.messages import JSON
from plait.tools.python_types import Misfit
from plait.tools.signature import Signature


def bind(tool: str, signature: Signature, given: JSON) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the positional and the named arguments. Raises `BadInput`, and nothing else, whatever the input."""
    try:
        placed, faults = place_arguments(signature.schema, given, signature.spread)
        values: dict[str, Any] = {}
        for name, value in placed.items():
            try:
                values[name] = signature.type_of(name).convert(value, signature.schema)
            except Misfit as misfit:
                faults += [f"{show_place(name, path)} {text}" for path, text in misfit.faults]
        if not faults:
            return _split_arguments(signature, values)
        more = len(faults) - MOST
        said = "; ".join(faults[:MOST] + ([f"and {more} more faults"] if more > 0 else []))
    except RecursionError:
        said = "the input is nested too deeply"
    except Exception as error:  # a user's own validator may raise anything
        said = f"the input can't be taken ({type(error).__name__})"
    takes = signature.shape
    raise BadInput(f"{tool}: {said}.", hint=f"It takes {takes if takes != '{}' else 'no input'}.")


def _split_arguments(signature: Signature, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the values by name, or in order where Python cannot take them all by name."""
    if signature.function is None:
        return (), values
    other = {name: values.pop(name) for name in values.keys() - signature.schema["properties"].keys()}
    bound = inspect.BoundArguments(signature.function, OrderedDict(values))
    bound.apply_defaults()
    return bound.args, bound.kwargs | other
