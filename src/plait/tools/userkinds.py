"""Kinds of a user's own types: models, data classes, enums, dates, whatever pydantic (or msgspec) can take.

Both are asked lazily: pydantic is imported when the first tool with such a parameter is described.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from plait.core.arguments import read_structure
from plait.tools.kinds import Kind, Misfit

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Undescribable(Exception):
    """A type that JSON can't describe."""


def user_kinds(hints: dict[str, Any]) -> tuple[dict[str, Kind], dict[str, Any]]:
    """A kind for each parameter's type, and the schema definitions (`$defs`) they share.

    Raises `Undescribable` with the parameter's name.
    """
    adapters: dict[str, TypeAdapter[Any]] = {}
    kinds: dict[str, Kind] = {}
    shared: dict[str, Any] = {}
    for name, hint in hints.items():
        adapter = None if _is_struct(hint) else _adapter(hint)
        if adapter is not None:
            adapters[name] = adapter
            continue
        kind, definitions = _by_msgspec(name, hint)
        kinds[name] = kind
        shared |= definitions
    if adapters:
        from pydantic import TypeAdapter

        try:
            schemas, rest = TypeAdapter.json_schemas(
                [(name, "validation", adapter) for name, adapter in adapters.items()]
            )
        except Exception as error:  # pydantic raises several kinds for a type that has no JSON Schema
            raise Undescribable(f"{', '.join(adapters)} ({_line(error)})") from error
        shared |= _untitled(rest.get("$defs", {}))
        for (name, _), schema in schemas.items():
            kinds[name] = _by_pydantic(hints[name], adapters[name], _untitled(schema), shared)
    return kinds, shared


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _adapter(hint: Any) -> TypeAdapter[Any] | None:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

    problems = (PydanticUserError, PydanticSchemaGenerationError, PydanticUndefinedAnnotation)
    try:
        return TypeAdapter(hint, config=ConfigDict(coerce_numbers_to_str=True))
    except problems:
        try:
            return TypeAdapter(hint)  # models bring their own configuration
        except problems:
            return None


def _by_pydantic(hint: Any, adapter: TypeAdapter[Any], schema: dict[str, Any], shared: dict[str, Any]) -> Kind:
    from pydantic import ValidationError

    types = _types(schema, shared)

    def check(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise Misfit(f"{where}: {first['msg']}" if where else first["msg"]) from None

    def convert(value: Any) -> Any:
        if isinstance(value, str) and "string" not in types:
            read = read_structure(value)
            if read is not None:
                return check(read)
        return check(value)

    return _kind(hint, schema, types, convert)


def _by_msgspec(name: str, hint: Any) -> tuple[Kind, dict[str, Any]]:
    try:
        (schema,), definitions = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise Undescribable(f"{name} ({_line(error)})") from error
    definitions = _untitled(definitions)
    types = _types(schema, definitions)

    def convert(value: Any) -> Any:
        read = read_structure(value) if isinstance(value, str) and "string" not in types else None
        try:
            return msgspec.convert(value if read is None else read, hint, strict=False)
        except msgspec.ValidationError as error:
            raise Misfit(str(error)) from None

    return _kind(hint, _untitled(schema), types, convert), definitions


def _kind(hint: Any, schema: dict[str, Any], types: set[str], convert: Any) -> Kind:
    name = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
    if "Annotated[" in name:  # its parts are for machines
        name = _said(schema) or name
    return Kind(
        schema,
        f"a {name}",
        name,
        lambda value: False,
        convert,
        lists=not types or "array" in types,
        objects=not types or "object" in types,
        nothing=not types or "null" in types,
    )


def _said(schema: dict[str, Any]) -> str:
    """A schema of plain types in words, with its longest text; "" for any other."""
    if "anyOf" in schema:
        parts = [_said(part) for part in schema["anyOf"]]
        return " or ".join(parts) if all(parts) else ""
    kind = schema.get("type")
    if kind == "array":
        item = _said(schema.get("items", {}))
        return f"list with a {item} each" if item else "list"
    if kind == "string" and "maxLength" in schema:
        return f"string of at most {schema['maxLength']} characters"
    return kind if kind in ("string", "number", "boolean", "null") else "whole number" if kind == "integer" else ""


def _types(schema: dict[str, Any], shared: dict[str, Any], depth: int = 0) -> set[str]:
    """The JSON types a schema takes; empty when it does not say."""
    if depth > 20:
        return set()
    if "$ref" in schema:
        return _types(shared.get(schema["$ref"].rpartition("/")[2], {}), shared, depth + 1)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return set().union(*(_types(part, shared, depth + 1) for part in schema[several]))
    kind = schema.get("type")
    return set(kind) if isinstance(kind, list) else {kind} if kind else set()


def _untitled(schema: Any) -> Any:
    """The schema without titles, which repeat the names and cost tokens in every prompt."""
    if isinstance(schema, dict):
        return {k: _untitled(v) for k, v in schema.items() if not (k == "title" and isinstance(v, str))}
    return [_untitled(part) for part in schema] if isinstance(schema, list) else schema


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
