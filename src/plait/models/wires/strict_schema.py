"""The subsets of JSON Schema in which providers constrain replies and calls. Pure.

Sources: OpenAI's guide "Structured Outputs", section "Supported schemas"; Groq's page "Structured Outputs"; Anthropic's
pages "Structured outputs", section "JSON Schema limitations", and "Strict tool use" (all November 2026). Every object
is closed (`additionalProperties: false`). OpenAI also requires every property, so an optional one may be null instead,
and `drop_nulls` removes these nulls from the call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from plait.core.json_schema import alternatives, choices_of, resolve_reference, types_of


class SchemaSubset(Struct, frozen=True):
    """The keywords that a provider accepts.

    `copied` stay as they are. `dropped` only narrow a value, which Plait checks anyway, or describe it. `all_required`:
    each property has to be required. `recursive`: a schema may contain itself. `depth` is the deepest nesting.
    """

    copied: frozenset[str]
    dropped: frozenset[str]
    all_required: bool = False
    recursive: bool = False
    depth: int = 100


_COMMON = frozenset({"type", "enum", "const", "description", "title", "pattern", "format", "$ref"})
_NUMERIC = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_DROPPED = frozenset(
    {
        *("$schema", "$id", "examples", "propertyOrdering", "minProperties", "maxProperties"),
        *("minLength", "maxLength", "uniqueItems", "discriminator", "deprecated", "readOnly", "writeOnly"),
    }
)
ANTHROPIC = SchemaSubset(_COMMON | {"default", "required", "allOf"}, _DROPPED | _NUMERIC | {"maxItems"})
OPENAI = SchemaSubset(
    _COMMON | _NUMERIC | {"minItems", "maxItems"},
    _DROPPED | {"default", "required"},
    all_required=True,
    recursive=True,
    depth=10,
)
MAX_OPTIONAL, MAX_UNIONS, MAX_STRICT_TOOLS = 24, 16, 20
"""Anthropic's limits for all strict schemas of one request: optional properties, properties with a union, tools."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_VALUES = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties")
"""Keywords of which one says what a value may be. Without them it may be anything."""


class _Inexpressible(Exception):
    """The schema allows values that the subset cannot express."""


def fit_schema(schema: dict[str, Any], subset: SchemaSubset, *, nulls: bool = True) -> dict[str, Any] | None:
    """Return the schema in a subset; None if the subset cannot express it. `nulls`: an optional property may become one
    that is null. Else such a schema cannot be expressed either."""
    return _fit_encoded(msgspec.json.encode(schema), subset, nulls)


@lru_cache(maxsize=256)
def _fit_encoded(encoded: bytes, subset: SchemaSubset, nulls: bool) -> dict[str, Any] | None:
    schema = msgspec.json.decode(encoded)
    fitter = _Fitter(schema, subset, nulls)
    try:
        if not subset.recursive:
            _refuse_cycles(schema)
        if subset.all_required and schema.get("type") != "object":
            return None
        return fitter.fit(schema, 0)
    except _Inexpressible:
        return None


class _Fitter:
    def __init__(self, root: dict[str, Any], subset: SchemaSubset, nulls: bool) -> None:
        self._root, self._subset, self._nulls = root, subset, nulls

    def fit(self, node: Any, depth: int) -> dict[str, Any]:
        subset = self._subset
        if depth > subset.depth or not isinstance(node, dict) or not any(key in node for key in _VALUES):
            raise _Inexpressible
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key in ("properties", "$defs", "definitions"):
                out[key] = {name: self.fit(each, depth + (key == "properties")) for name, each in value.items()}
            elif key == "items":
                out[key] = self.fit(value, depth + 1)
            elif key in ("anyOf", "oneOf") or (key == "allOf" and key in subset.copied):
                out["anyOf" if key == "oneOf" else key] = [self.fit(each, depth) for each in value]
            elif key == "$ref" and resolve_reference(value, self._root) is None:
                raise _Inexpressible
            elif key == "format":
                if value in _FORMATS:
                    out[key] = value
            elif key == "minItems" and key not in subset.copied:
                if value in (0, 1):
                    out[key] = value
            elif key in subset.copied:
                out[key] = value
            elif key not in subset.dropped and key != "additionalProperties":
                raise _Inexpressible
        kinds = node.get("type")
        if kinds == "object" or "properties" in node or (isinstance(kinds, list) and "object" in kinds):
            # An object without properties, or with others than these, has names that are not known.
            if node.get("additionalProperties", "properties" not in node):
                raise _Inexpressible
            out["additionalProperties"] = False
            if subset.all_required:
                properties, required = out.setdefault("properties", {}), node.get("required", ())
                for name in properties.keys() - set(required):
                    if not self._nulls:
                        raise _Inexpressible
                    if "null" not in types_of(node["properties"][name], self._root):
                        properties[name] = _allow_null(properties[name])
                out["required"] = list(properties)
        if subset.all_required:
            self._refuse_ambiguity(node)
            if "$ref" in out and len(out) > 1:  # nothing may stand beside a reference
                return {"anyOf": [{"$ref": out.pop("$ref")}], **out}
        return out

    def _refuse_ambiguity(self, node: dict[str, Any]) -> None:
        """Refuse a union in which a value does not say which of several lists or objects it is: see `drop_nulls`."""
        if not (self._nulls and ("anyOf" in node or "oneOf" in node)):
            return
        kinds = [one.get("type") for one in alternatives(node, self._root)]
        if {} in alternatives(node, self._root) or kinds.count("object") > 1 or kinds.count("array") > 1:
            raise _Inexpressible


def _allow_null(node: dict[str, Any]) -> dict[str, Any]:
    kind = node.get("type")
    if isinstance(kind, str) and choices_of(node) is None:
        return {**node, "type": [kind, "null"]}
    said = {key: value for key, value in node.items() if key in ("description", "title")}
    rest = {key: value for key, value in node.items() if key not in said}
    options = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    return {"anyOf": [*options, {"type": "null"}], **said}


def count_limited(schema: Any) -> tuple[int, int]:
    """Return how many optional properties and how many unions Anthropic counts in a schema."""
    if isinstance(schema, list):
        counts = [count_limited(each) for each in schema]
    elif isinstance(schema, dict):
        properties = schema.get("properties", {})
        missing = len(properties.keys() - set(schema.get("required", ())))
        union = "anyOf" in schema or isinstance(schema.get("type"), list)
        counts = [(missing, int(union)), *(count_limited(each) for each in schema.values())]
    else:
        return 0, 0
    return sum(optional for optional, _ in counts), sum(unions for _, unions in counts)


def _refuse_cycles(schema: dict[str, Any]) -> None:
    named = {f"#/{key}/{name}": each for key in ("$defs", "definitions") for name, each in schema.get(key, {}).items()}

    def follow(node: Any, above: tuple[str, ...]) -> None:
        if isinstance(node, list):
            for each in node:
                follow(each, above)
        elif isinstance(node, dict):
            ref = node.get("$ref")
            if isinstance(ref, str):
                if ref in above or ref not in named:
                    raise _Inexpressible
                follow(named[ref], (*above, ref))
            for key, each in node.items():
                if key not in ("$defs", "definitions"):
                    follow(each, above)

    follow(schema, ())
    for name, each in named.items():
        follow(each, (name,))
