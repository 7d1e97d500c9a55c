"""The JSON form of a tool's arguments, in which guards see them.

It has what the tool gets, so it reads the attributes of an object. A serializer of the user's may hide or change them.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from typing import Any

from plait.core.artifacts import Artifact
from plait.core.messages import JSON

_NOTHING: Any = object()


class NoJsonForm(TypeError):
    """A value has no JSON form."""


def to_json(value: Any, keep: Callable[[Artifact], JSON] | None, given: Any = _NOTHING) -> JSON:
    """Return the JSON form of a Python value: objects by the names of their fields, sets as lists, dates as ISO text.

    A decimal is a number if JSON can hold it exactly. Infinite numbers, NaN and other decimals are text. `keep` returns
    the handle of an artifact; without it, the value is a default. `given` is what the value was made from. It stands
    for a value without a JSON form; a field that was not given is left out then. Raises `NoJsonForm` for such a value
    without `given`, and for an artifact or a secret without `keep`. Raises `ValueError` for a key or a field that has
    two values.
    """
    if value is None or isinstance(value, bool):
        return value
    artifact = getattr(value, "artifact", None) if isinstance(value, str) else value
    if isinstance(artifact, Artifact) and keep is not None:
        return keep(artifact)
    if isinstance(value, Enum):
        return to_json(value.value, keep, given)
    if isinstance(value, str | int):
        return str.__str__(value) if isinstance(value, str) else int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, Decimal):
        number = float(value) if value.is_finite() else math.inf
        whole = math.isfinite(number) and value == value.to_integral_value()
        return int(value) if whole else number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, set | frozenset):
        return sorted((to_json(each, keep, given) for each in value), key=repr)
    if (fields := _fields_of(value)) is not None:
        shown: dict[str, JSON] = {}
        for name, each in fields.items():
            if (key := str(to_json(name, keep, given))) in shown:
                raise ValueError("two keys of an object are the same in JSON")
            try:
                shown[key] = to_json(each, keep, _find_part(given, type(value), name, fields))
            except NoJsonForm:
                if given is _NOTHING:
                    raise
        return shown
    if isinstance(value, list | tuple | deque):
        same = isinstance(given, list | tuple) and len(given) == len(value)
        return [to_json(each, keep, given[n] if same else given) for n, each in enumerate(value)]
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    if getattr(type(value), "__pydantic_root_model__", False):
        return to_json(value.root, keep, given)
    if hasattr(value, "get_secret_value") and keep is not None:
        return to_json(value.get_secret_value(), keep, given)
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        if keep is None and (isinstance(value, Artifact) or hasattr(value, "get_secret_value")):
            raise NoJsonForm(f"a default of type {type(value).__name__} is not shown")
        return to_jsonable_python(value)
    except PydanticSerializationError:
        if given is _NOTHING:
            raise NoJsonForm(f"a {type(value).__name__} has no JSON form") from None
        return to_json(given, keep)


def _find_part(given: Any, kind: type, name: str, names: Iterable[str]) -> Any:
    """Return what a field was made from: the whole if that is unclear, `_NOTHING` if the field was not given."""
    if isinstance(given, str):
        with suppress(ValueError):
            given = json.loads(given)
    if not isinstance(given, Mapping):
        return given
    known = getattr(kind, "__pydantic_fields__", {})
    aliases = {each: known[each].validation_alias for each in names if each in known}
    for key in (aliases.get(name), name):
        if isinstance(key, str) and key in given:
            return given[key]
    return _NOTHING if all(key in names or key in aliases.values() for key in given) else given


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of an object by name; None for a value without fields."""
    kind = type(value)
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return None if names is None else dict(zip(names, value, strict=True))
    if getattr(kind, "__pydantic_root_model__", None) is False:
        extra = value.__pydantic_extra__ or {}
        if twice := extra.keys() & kind.model_fields:  # one spelling for the guards, and another one for the tool
            raise ValueError(f"{', '.join(sorted(twice))} is given twice")
        return {name: getattr(value, name) for name in kind.model_fields} | extra
    if hasattr(kind, "__struct_fields__"):
        pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        return {shown: getattr(value, name) for shown, name in pairs}
    known = getattr(kind, "__dataclass_fields__", None)
    return None if known is None else {name: getattr(value, name) for name in known if hasattr(value, name)}
