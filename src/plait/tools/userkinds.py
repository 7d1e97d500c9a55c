"""Kinds of a user's own types: models, data classes, enums, dates, whatever pydantic (or msgspec) can take.

Both are asked lazily: pydantic is imported when the first tool with such a parameter is described.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

import msgspec

from plait.core.arguments import read_structure
from plait.tools.kinds import Fault, Kind, Misfit, shown

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
    words = _words(schema, shared)

    def check(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)
            raise Misfit(dict.fromkeys(_fault(one, value, words) for one in found)) from None

    def convert(value: Any) -> Any:
        if isinstance(value, str) and "string" not in types:
            read = read_structure(value)
            if read is not None:
                return check(read)
        return check(value)

    return _kind(words, schema, types, convert)


def _fault(error: Any, value: Any, words: str) -> Fault:
    """One of pydantic's errors in a value: its place, without the names of Python types, and what is wrong there."""
    path: list[str | int] = []
    inside = value
    for part in error["loc"]:
        entry = isinstance(inside, (list, tuple)) and isinstance(part, int) and part < len(inside)
        if entry or (isinstance(inside, dict) and part in inside):
            path.append(part)
            inside = inside[part]
    kind, said = error["type"], error["msg"]
    if kind in ("missing", "missing_argument"):
        return (*path, str(error["loc"][-1])), "is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return tuple(path), "is not known"
    if kind in ("model_type", "model_attributes_type", "dataclass_type", "dict_type", "dataclass_exact_type"):
        return tuple(path), f"must be an object, not {shown(inside)}"
    if not path:
        return (), f"must be {words}, not {shown(value)} ({said})"
    if said.startswith("Input should be "):
        return tuple(path), f"must be {said.removeprefix('Input should be ')}, not {shown(inside)}"
    return tuple(path), f"cannot be {shown(inside)}: {said}"


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
            raise Misfit(_struct_faults(hint, value if read is None else read) or [((), _said_of(error))]) from None

    return _kind(_words(schema, definitions), _untitled(schema), types, convert), definitions


def _struct_faults(hint: Any, value: Any) -> list[Fault]:
    """All that is wrong with a value. msgspec stops at the first fault, so a struct is checked field by field."""
    inside: list[tuple[str | int, Any, Any]] = []
    faults: list[Fault] = []
    if _is_struct(hint) and isinstance(value, dict):
        for one in msgspec.structs.fields(hint):
            if one.encode_name in value:
                inside.append((one.encode_name, one.type, value[one.encode_name]))
            elif one.required:
                faults.append(((one.encode_name,), "is missing"))
    elif typing.get_origin(hint) is list and isinstance(value, list):
        inside += [(i, typing.get_args(hint)[0], entry) for i, entry in enumerate(value)]
    for where, wanted, given in inside:
        try:
            msgspec.convert(given, wanted, strict=False)
        except msgspec.ValidationError as error:
            found = _struct_faults(wanted, given) or [((), _said_of(error))]
            faults += [((where, *path), said) for path, said in found]
    return faults


def _said_of(error: Exception) -> str:
    return f"cannot be taken: {_line(error).replace('`', '')}"


def _kind(words: str, schema: dict[str, Any], types: set[str], convert: Any) -> Kind:
    return Kind(
        schema,
        words,
        lambda value: False,
        convert,
        lists=not types or "array" in types,
        objects=not types or "object" in types,
        nothing=not types or "null" in types,
    )


_WORDS = {"string": "a string", "number": "a number", "integer": "a whole number", "boolean": "true or false"}
_WORDS |= {"null": "null", "object": "an object"}


def _words(schema: dict[str, Any], shared: dict[str, Any], depth: int = 0) -> str:
    """A schema in words: "a list of objects", "one of 'km', 'mile'", "a string of at most 20 characters"."""
    if "$ref" in schema:
        target = shared.get(schema["$ref"].rpartition("/")[2], {})
        return _words(target, shared, depth + 1) if depth < 20 else "a value"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_words(part, shared, depth + 1) for part in schema[several]))
    if "enum" in schema:
        return f"one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema:
        return repr(schema["const"])
    kind = schema.get("type", "")
    if kind == "array":
        item = _words(schema["items"], shared, depth + 1) if schema.get("items") else ""
        return f"a list with {item} each" if item and item != "a value" else "a list"
    if kind == "string" and "maxLength" in schema:
        return f"a string of at most {schema['maxLength']} characters"
    if kind == "string" and "format" in schema:
        return f"a string ({schema['format']})"
    return _WORDS.get(str(kind), "a value")


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
