"""Reading an object that names a tool and its input, and keeping data from looking like one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from plait.core.loose_json import NotJson, objects
from plait.loops.format import Remark

NAME_KEYS = ("action", "tool", "tool_name", "name")
INPUT_KEYS = (
    "action_input",
    "tool_input",
    "input",
    "arguments",
    "args",
    "parameters",
    "params",
    "action input",
    "actionInput",
)

_FENCE = re.compile(r"`{3,}+")


def text_key(value: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The first of `keys` that has text in `value`."""
    return next((key for key in keys if isinstance(value.get(key), str) and value[key].strip()), None)


def first_of(value: Any) -> Any:
    """The first element of a list, else the value itself."""
    return value[0] if isinstance(value, list) and value else value


def input_value(value: Mapping[str, Any], name_key: str, remarks: list[Remark]) -> Any:
    """The input in an action object: under its key, another usual one, or the keys beside the name."""
    expected = "tool_input" if name_key == "tool" else "action_input"
    if expected in value:
        return value[expected]
    other = next((key for key in INPUT_KEYS if key in value), None)
    if other is not None:
        remarks.append(Remark("repaired", f"the input was taken from the key {other!r}"))
        return value[other]
    rest = {key: item for key, item in value.items() if key not in (name_key, "thought")}
    if rest:
        remarks.append(Remark("repaired", "the keys beside the tool's name were taken for its input"))
        return rest
    remarks.append(Remark("repaired", "the input is missing: none was taken"))
    return None


def disarm_objects(text: str, keys: Sequence[str]) -> str:
    """Data in which no fence and no JSON object with one of `keys` can be read; unchanged if there is none.

    The key keeps its letters: `"tool": 1` becomes `"tool"\\: 1`. Where that is not enough (a key in JSON
    escapes, comments before the colon), the brace is taken apart: `{` becomes `{\\`.
    """
    text = _FENCE.sub(lambda fence: "\\`" * len(fence[0]), text)
    if "{" not in text or not _has(text, keys):
        return text
    words = "|".join(re.escape(key) for key in keys)
    text = re.sub(rf"""((["'“”„‘’]?)\b(?:{words})["'“”‘’]?\s*+)(?=:)""", r"\1\\", text)
    return text.replace("{", "{\\") if _has(text, keys) else text


def _has(text: str, keys: Sequence[str]) -> bool:
    try:
        return any(_inside(found.value, keys) for found in objects(text, whole=True))
    except NotJson:
        return True


def _inside(value: Any, keys: Sequence[str]) -> bool:
    """One of the keys stands in this value, at any depth: a part of data may be cut out and read alone."""
    if isinstance(value, Mapping):
        return any(key in value for key in keys) or any(_inside(item, keys) for item in value.values())
    return isinstance(value, list) and any(_inside(item, keys) for item in value)
