"""The type of a run's answer as a JSON Schema, and how the JSON value is read from what a model wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from plait.core.call_check import find_faults, repair_value
from plait.core.json_schema import Schema, drop_nulls, show_place, type_of, types_of
from plait.core.loose_json import NotJson, read_value, values
from plait.core.messages import JSON

OutputMethod: TypeAlias = Literal["schema", "tool", "prompt"]
"""How a model gives a typed answer: the endpoint enforces the schema, a tool takes it, or only the prompt asks."""

WRAPPED = "value"
"""The key of a value that is no object, where an endpoint takes only objects."""

FINAL_ANSWER = "final_answer"
"""The tool that takes an answer, for the method "tool"."""

MOST_FAULTS = 8
_FENCE = re.compile(r"\A```[\w+-]{0,20}[ \t]*\n?(.*?)\n?```\s*\Z", re.S)
_MAYBE_VALUE = re.compile(r"[{\[]")


class OutputSpec(Struct, frozen=True):
    """The type of a run's answer, as loops see it: its name, its JSON Schema, and how the model gives it."""

    name: str
    schema: dict[str, Any]
    method: OutputMethod = "prompt"

    @property
    def request_schema(self) -> dict[str, Any]:
        """Return the schema as endpoints take it: an object at the root, with other values wrapped."""
        if is_object(self.schema):
            return self.schema
        definitions = {name: part for name, part in self.schema.items() if name == "$defs"}
        inner = {name: part for name, part in self.schema.items() if name != "$defs"}
        wrapped = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}
        return {**wrapped, "additionalProperties": False, **definitions}

    def fits(self, text: str) -> bool:
        """Return whether a whole text is a JSON value of this type."""
        try:
            found = read_value(text)
        except NotJson:
            return False
        return not text[found.end :].strip() and not find_output_faults(read_output(found.value, self.schema), self)


def is_object(schema: Schema) -> bool:
    """Return whether the schema allows only objects, and says so at its root."""
    return type_of(schema) == "object"


def read_output(answer: JSON, schema: Schema) -> JSON:
    """Return the JSON value that an answer holds: the first reading that fits the schema, else the first one.

    An answer in text may have a fence or words around it, and broken JSON. Words are never the value of an object. If
    several different values in a text fit, one may be an example: the text has no value. If the schema allows no
    object, the value may be the one property of an object. A value that JSON writes otherwise becomes what the schema
    requires ("3" becomes 3). null for a property that may be left out counts as left out.
    """
    readings = [drop_nulls(repair_value(each, schema, schema), schema, schema) for each in _readings(answer, schema)]
    names = list(schema.get("properties", ())) if is_object(schema) else []
    # Models leave out a name that is the only one. A text is never the property: it may be a refusal in words.
    if len(names) == 1 and not isinstance(readings[0], dict | str | None):
        readings.append({names[0]: readings[0]})
    if isinstance(answer, str) and len(found := _found(strip_fence(answer), schema)) > 1:
        values = [value for each in found if not any(find_faults(value := read_output(each, schema), schema, schema))]
        if any(each != values[0] for each in values):
            return answer
    return next((each for each in readings if not any(find_faults(each, schema, schema))), readings[0])


def find_output_faults(value: JSON, spec: OutputSpec) -> str:
    """Return what is wrong with a value, as sentences for the model; "" if it fits."""
    faults = [f"{show_place(spec.name, path)} {text}" for path, text in find_faults(value, spec.schema, spec.schema)]
    return "; ".join(faults[:MOST_FAULTS])


def _readings(answer: JSON, schema: Schema) -> Iterator[JSON]:
    """Yield the values that an answer may mean, the most likely one first."""
    if not isinstance(answer, str):
        kinds = types_of(schema, schema)
        lone = isinstance(answer, dict) and len(answer) == 1
        wrapped = lone and (next(iter(answer)) in (WRAPPED, "answer") or not kinds & {"object", "any"})
        inner = list(answer.values()) if wrapped else []
        yield from (answer, *inner) if "object" in kinds else (*inner, answer)
        return
    text = strip_fence(answer)
    found = _found(text, schema)
    for each in found:
        yield from (each,) if isinstance(each, str) else _readings(each, schema)
    if not found and "array" in types_of(schema, schema):
        yield from _values_in(f"[{text}]")  # entries without the brackets
    yield text


def _found(text: str, schema: Schema) -> list[JSON]:
    """Return the values in a text: the one that is all of it, or those of a kind that the schema allows."""
    try:
        value = read_value(text)
        if not text[value.end :].strip():
            return [value.value]
    except NotJson:
        pass
    return list(_values_in(text)) if types_of(schema, schema) & {"object", "array", "any"} else []


def strip_fence(text: str) -> str:
    """Return a text without blanks around it, and without the code fence that holds all of it."""
    text = text.strip()
    return fenced[1].strip() if (fenced := _FENCE.match(text)) else text


def _values_in(text: str) -> Iterator[JSON]:
    return (part.value for _, part in values(text, _MAYBE_VALUE) if not isinstance(part, NotJson))
