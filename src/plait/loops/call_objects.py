"""Objects that name a tool and its input: recognising them, and reading the input."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from plait.core import JSON, ToolSpec
from plait.loops.vocabulary import INPUT_KEYS, NAME_KEYS, TOOL_WORDS

SURE_KEYS = TOOL_WORDS[:2]
"""Keys that name a tool even without an input."""
_WRAPS = ("tool_call", "function_call", "functionCall", "tool_use", "toolUse", "action", "tool", "call", "command")
_EXTRA = frozenset({"type", "id", "index", "thought", "call_id", "tool_call_id"})
"""Keys that may occur beside a name and arguments."""


class ObjectForm(Struct, frozen=True):
    """An object that calls a tool, in one format: its keys for the tool's name, the input, and the words beside them.
    The first key of each is the one that is written, in the order of `keys`; readers accept the others."""

    keys: tuple[str, ...]
    name: tuple[str, ...]
    input: tuple[str, ...]
    words: tuple[str, ...] = ()

    def fill(self, name: JSON, given: JSON, words: JSON = "") -> dict[str, JSON]:
        """Return the object of a call."""
        values = {self.name[0]: name, self.input[0]: given, **({self.words[0]: words} if self.words else {})}
        return {key: values[key] for key in self.keys}

    def schema(self, names: Iterable[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON Schema of an object that calls one of `names`. `given` is the schema of its input."""
        enum = list(dict.fromkeys(names))
        properties = self.fill({"type": "string", "enum": enum}, dict(given), {"type": "string"})
        required = list(self.keys)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def find_keys(self, value: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
        """Return the keys of `value` for name, input and words; the name must be text."""
        given, words = (next((key for key in keys if key in value), None) for keys in (self.input, self.words))
        return text_key(value, self.name), given, words


def text_key(value: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the first of `keys` that has text in `value`."""
    for key in keys:
        if isinstance(value.get(key), str) and value[key].strip():
            return key
    return None


def first_of(value: Any) -> Any:
    """Return the first element of a list, else the value itself."""
    return value[0] if isinstance(value, list) and value else value


def find_input(value: Mapping[str, Any], usual: str, others: Iterable[str]) -> tuple[JSON, str]:
    """Return the input in an object, and its key: `usual`, or another one. Without one, the input are the keys except
    `others`; "" stands for these."""
    key = usual if usual in value else next((key for key in INPUT_KEYS if key in value), "")
    if key:
        return value[key], key
    return {one: item for one, item in value.items() if one not in others} or None, ""


def plain_names(name: str) -> tuple[str, str]:
    """Return the forms in which a name in an object is compared with those of the tools, in small letters."""
    plain = name.strip().lower().replace("\\_", "_")
    return plain, plain.removeprefix("functions.")


def is_call(value: Mapping[str, Any], tools: Sequence[ToolSpec]) -> bool:
    """Return whether an object names a tool and its input, and is neither a tool's definition nor part of some data."""
    key = text_key(value, NAME_KEYS)
    if key is None or _describes(value):
        return False
    given = [one for one in INPUT_KEYS if one in value]
    meant = plain_names(value[key])
    tool = next((tool for tool in tools if tool.name.lower() in meant), None)
    if key in SURE_KEYS:
        return True
    if tool is not None:
        beside = {one: item for one, item in value.items() if one != key and one not in _EXTRA}
        return bool(given) or not beside or fits_names(beside, tool.parameters)
    # Data may contain a name and an input: an unknown tool is called in the usual form only.
    usual = {key, *given, *_EXTRA} - {"recipient_name"}
    return bool(given) and set(value) <= usual and not re.search(r"\s\S+\s", value[key].strip())


def fits_names(given: JSON, parameters: Mapping[str, Any]) -> bool:
    """Return whether the keys of an object are parameters: one without these is data, even beside a tool's name."""
    names = parameters.get("properties")
    return isinstance(given, Mapping) and (names is None or given.keys() <= names.keys())


def plain_call(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call's object without the envelope of the chat-completions format."""
    function = value.get("function")
    if isinstance(function, Mapping):
        return function
    for wrap in _WRAPS:
        if isinstance(value.get(wrap), Mapping):
            return value[wrap]  # type: ignore[no-any-return]
    if isinstance(function, str) and not text_key(value, NAME_KEYS):
        value = {"name": function, **{key: item for key, item in value.items() if key != "function"}}
    return {key: item for key, item in value.items() if key not in ("type", "id") or item not in ("function", "")}


def _describes(value: Mapping[str, Any]) -> bool:
    """Return whether the object is a tool's definition, which quotes its parameters' schema."""
    for key in INPUT_KEYS:
        schema = value.get(key)
        if (
            isinstance(schema, Mapping)
            and schema.get("type") == "object"
            and ("properties" in schema or "description" in value)
        ):
            return True
    return "description" in value and isinstance(value.get("parameters", value.get("input_schema")), Mapping)


def input_of_object(fields: Mapping[str, Any], key: str) -> tuple[JSON, list[str]]:
    """Return the input beside a tool's name in an object, and what was repaired or dropped."""
    repairs = [] if key == "name" else [f"the tool was taken from the key {key!r}"]
    usual = "arguments" if key == "name" else "action_input" if key == "action" else "tool_input"
    given, taken = find_input(fields, usual, (key, *_EXTRA))
    if not taken:
        repairs.append("the keys beside the tool's name were taken for its input" if given else "the input is missing")
        return given, repairs
    if taken != "arguments":
        repairs.append(f"the input was taken from the key {taken!r}")
    extra = [one for one in fields if one not in (key, taken) and one not in _EXTRA]
    if extra:
        repairs.append(f"the keys {', '.join(map(repr, extra[:5]))[:200]} were left out: a call does not have them")
    return given, repairs
