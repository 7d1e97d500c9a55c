"""The JSON form of a tool's arguments, in which guards see them.

It has what the tool gets, so it reads the attributes of an object. A serializer of the user's may hide or change them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from plait.core.artifacts import Artifact
from plait.core.messages import JSON


def to_json(value: Any, keep: Callable[[Artifact], JSON] | None) -> JSON:
    """Return the JSON form of a Python value: objects by the names of their fields, sets as lists, dates as ISO text.

    A decimal is a number if JSON can hold it exactly. Infinite numbers, NaN and other decimals are text. `keep` returns
    the handle of an artifact. Without `keep`, the value is a default: raises `TypeError` for an artifact, a secret, and
    what has no JSON form. Raises `ValueError` for a key or a field that has two values.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(artifact := getattr(value, "artifact", value), Artifact) and keep is not None:
        return keep(artifact)
    if isinstance(value, Enum):
        return to_json(value.value, keep)
    if isinstance(value, str | int):
        return str.__str__(value) if isinstance(value, str) else int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, Decimal):
        number = float(value) if value.is_finite() else math.inf
        whole = math.isfinite(number) and value == value.to_integral_value()
        return int(value) if whole else number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, set | frozenset):
        return sorted((to_json(each, keep) for each in value), key=repr)
    if (fields := _fields_of(value)) is not None:
        shown = {str(to_json(name, keep)): to_json(each, keep) for name, each in fields.items()}
        if len(shown) < len(fields):
            raise ValueError("two keys of an object are the same in JSON")
        return shown
    if isinstance(value, list | tuple):
        return [to_json(each, keep) for each in value]
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "root"):
        return to_json(value.root, keep)
    if hasattr(value, "get_secret_value") and keep is not None:
        return to_json(value.get_secret_value(), keep)
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        if keep is None and (isinstance(value, Artifact) or hasattr(value, "get_secret_value")):
            raise TypeError(f"a default of type {type(value).__name__} is not shown")
        return to_jsonable_python(value)
    except PydanticSerializationError:
        if keep is None:
            raise TypeError(f"a {type(value).__name__} has no JSON form") from None
        return f"(a {type(value).__name__})"


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of an object by name; None for a value without fields."""
    kind = type(value)
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return None if names is None else dict(zip(names, value, strict=True))
    if hasattr(kind, "model_fields") and not kind.__pydantic_root_model__:
        extra = value.__pydantic_extra__ or {}
        if twice := extra.keys() & kind.model_fields:  # one spelling for the guards, and another one for the tool
            raise ValueError(f"{', '.join(sorted(twice))} is given twice")
        return {name: getattr(value, name) for name in kind.model_fields} | extra
    if hasattr(kind, "__struct_fields__"):
        pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        return {shown: getattr(value, name) for shown, name in pairs}
    known = getattr(kind, "__dataclass_fields__", None)
    return None if known is None else {name: getattr(value, name) for name in known if hasattr(value, name)}
