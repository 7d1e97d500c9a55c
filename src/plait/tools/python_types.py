"""Types of Python parameters: their JSON Schema, and the conversion of a model's value.

pydantic describes and converts all types but msgspec's structs. Both are imported when a tool is first described.
"""

from __future__ import annotations

import functools
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from plait.core.call_check import Fault, find_faults, repair_value
from plait.core.json_schema import show_value, words_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_EXACT = {"any", "none", "str", "int", "float", "bool", "literal", "list", "dict", "nullable", "union", "is-instance"}
"""Types of pydantic's core schema whose JSON Schema says all that a value must be."""


class Misfit(Exception):
    """A value does not have the type. `faults` says what is wrong with it."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)


class Undescribable(Exception):
    """JSON cannot describe a type."""


def _take_repaired(value: Any, *, strict: bool) -> Any:
    """Convert a repaired JSON value to the Python value."""
    if strict:
        raise ValueError("It may be in need of repair.")
    return value


class PythonType(msgspec.Struct, frozen=True):
    """The type of a parameter. `is_exact`: the schema says all that a value must be. `validate(value, strict=...)`
    returns the Python value of a value from JSON, or raises the `ValidationError` of pydantic or msgspec."""

    schema: Any
    is_exact: bool = True
    validate: Callable[..., Any] = _take_repaired

    def convert(self, given: Any, root: Mapping[str, Any]) -> Any:
        """Return the Python value that a model meant. `root` is the tool's schema. Raises `Misfit`."""
        try:
            return self.validate(given, strict=self.is_exact)
        except (msgspec.ValidationError, ValueError):
            value = repair_value(given, self.schema, root)
        if self.is_exact and (faults := list(find_faults(value, self.schema, root))):
            raise Misfit(faults)
        try:
            return self.validate(value, strict=False)
        except msgspec.ValidationError as error:
            raise Misfit([((), f"cannot be taken: {_first_line(error).replace('`', '')}")]) from None
        except ValueError as error:
            if not hasattr(error, "errors"):
                raise
            found = error.errors(include_url=False, include_context=False)
            words = words_of(self.schema, root)
            in_schema = dict(find_faults(value, self.schema, root))
            places = (_fault(one, value, words) for one in found)
            raise Misfit(dict.fromkeys((path, in_schema.get(path, text)) for path, text in places)) from None


def describe_types(hints: Mapping[str, Any]) -> tuple[dict[str, PythonType], dict[str, Any]]:
    """Describe the types of parameters. Returns them by parameter, and the definitions (`$defs`) that they share.
    Raises `Undescribable`, which names the parameter."""
    found: dict[str, PythonType] = {}
    adapters: dict[str, TypeAdapter[Any]] = {}
    definitions: dict[str, Any] = {}
    for name, hint in hints.items():
        try:
            adapter, exact = _adapter(hint, repr(hint))
        except TypeError:  # a hint that cannot be hashed
            adapter, exact = _adapter.__wrapped__(hint, repr(hint))
        except Undescribable as error:
            raise Undescribable(f"{name} ({error})") from error
        if adapter is None:
            try:
                (schema,), shared = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
            except TypeError as error:
                raise Undescribable(f"{name} ({_first_line(error)})") from error
            validate = functools.partial(msgspec.convert, type=hint)
            found[name] = PythonType(_without_titles(schema), True, validate)
            definitions |= _without_titles(shared)
        elif exact is not None:
            found[name] = exact
        else:
            adapters[name] = adapter
    if adapters:
        from pydantic import TypeAdapter

        try:
            schemas, rest = TypeAdapter.json_schemas(
                [(name, "validation", adapter) for name, adapter in adapters.items()]
            )
        except Exception as error:  # pydantic raises several errors for a type that has no JSON Schema
            raise Undescribable(f"{', '.join(adapters)} ({_first_line(error)})") from error
        definitions |= _without_titles(rest.get("$defs", {}))
        for (name, _), schema in schemas.items():
            # Guards see the fields of a model by name, and may hand them back so.
            validate = functools.partial(adapters[name].validate_python, by_alias=True, by_name=True)
            kinds = _core_types(adapters[name].core_schema)
            if "init_only" in kinds:
                raise Undescribable(f"{name} (a data class does not keep an InitVar, so no guard could see it)")
            if "generator" in kinds:
                validate = functools.partial(_validate_all, validate)
            found[name] = PythonType(_without_titles(schema), False, validate)
    return found, definitions


def _validate_all(validate: Callable[..., Any], given: Any, *, strict: bool) -> Any:
    """Validate a value with iterators in it, which become lists. pydantic validates an item only when it is read."""

    def read(value: Any) -> Any:
        if type(value).__name__ == "ValidatorIterator":
            return [read(each) for each in value]
        if isinstance(value, dict):
            value.update({key: read(each) for key, each in value.items()})
        elif isinstance(value, list | deque):
            for n, each in enumerate(value):
                value[n] = read(each)
        elif isinstance(value, tuple):
            return type(value)(*map(read, value)) if hasattr(value, "_fields") else tuple(map(read, value))
        kind = type(value)
        for name in getattr(kind, "__pydantic_fields__", getattr(kind, "__dataclass_fields__", ())):
            object.__setattr__(value, name, read(getattr(value, name)))
        return value

    return read(validate(given, strict=strict))


@functools.lru_cache(maxsize=512)
def _adapter(hint: Any, _written: str) -> tuple[TypeAdapter[Any] | None, PythonType | None]:
    """Returns what converts a type (None for msgspec to do it), and the whole type if its JSON Schema says all. The
    hint as it is written is a part of the cache's key: `int | str` equals `str | int`."""
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return None, None
    problems = (PydanticUserError, PydanticSchemaGenerationError, PydanticUndefinedAnnotation)
    if typing.get_origin(hint) in (Sequence, MutableSequence):
        hint = list.__class_getitem__(typing.get_args(hint)[0])
    try:
        adapter = TypeAdapter(hint, config=ConfigDict(coerce_numbers_to_str=True))
    except problems:
        try:
            adapter = TypeAdapter(hint)  # models bring their own configuration
        except problems as error:
            if getattr(error, "code", "") == "typed-dict-version":  # msgspec would ignore pydantic's rules in it
                raise Undescribable(_first_line(error)) from error
            return None, None
    if not _core_types(adapter.core_schema) <= _EXACT:
        return adapter, None
    schema = _compact(adapter.json_schema())
    return adapter, None if schema is None else PythonType(schema, True, adapter.validate_python)


def _core_types(schema: Any) -> set[str]:
    """Return the types that a core schema of pydantic consists of, and `init_only` if a field is an `InitVar`."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        own = ({kind} if isinstance(kind, str) else set()) | ({"init_only"} & schema.keys())
        return own.union(*map(_core_types, schema.values()))
    return set().union(*map(_core_types, schema)) if isinstance(schema, list | tuple) else set()


def _compact(schema: Any) -> dict[str, Any] | None:
    """Shorten the schema of a plain type, which many prompts hold; None for a schema that says more."""
    if schema is True or not schema:
        return {}
    if "const" in schema or "enum" in schema:
        return {"enum": [schema["const"]] if "const" in schema else schema["enum"]}
    if "anyOf" in schema:
        parts = [_compact(part) for part in schema["anyOf"]]
        if None in parts or {} in parts:
            return None if None in parts else {}
        simple = [part["type"] for part in parts if part and list(part) == ["type"]]
        return {"type": simple} if len(simple) == len(parts) else {"anyOf": parts}
    if not schema.keys() <= {"type", "items", "additionalProperties", "format"}:
        return None
    short = {"type": schema["type"]}
    short |= {"format": schema["format"]} if "format" in schema else {}
    for key in ("items", "additionalProperties"):
        inner = _compact(schema.get(key, {}))
        if inner is None:
            return None
        if inner or (key == "items" and schema["type"] == "array"):  # OpenAI refuses an array without `items`
            short[key] = inner
    return short


def _fault(error: Any, value: Any, words: str) -> Fault:
    """Return one of pydantic's errors in a value: its place, without the names of Python types, and what is wrong."""
    path: list[str | int] = []
    inside = value
    for part in error["loc"]:
        entry = isinstance(inside, list | tuple) and isinstance(part, int) and part < len(inside)
        if entry or (isinstance(inside, dict) and part in inside):
            path.append(part)
            inside = inside[part]
    kind, said = error["type"], error["msg"]
    if kind in ("missing", "missing_argument"):
        return (*path, str(error["loc"][-1])), "is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return tuple(path), "is not known"
    if kind in ("model_type", "model_attributes_type", "dataclass_type", "dict_type", "dataclass_exact_type"):
        return tuple(path), f"must be an object, not {show_value(inside)}"
    if not path and kind == "is_instance_of" and isinstance(value, str):
        return (), f"must be {words}, and the run has none with the id or name {show_value(value)}"
    if not path:
        return (), f"must be {words}, not {show_value(value)}" + (f" ({said})" if kind != "is_instance_of" else "")
    if said.startswith("Input should be "):
        return tuple(path), f"must be {said.removeprefix('Input should be ')}, not {show_value(inside)}"
    return tuple(path), f"cannot be {show_value(inside)}: {said}"


def _without_titles(schema: Any) -> Any:
    """Return the schema without titles, which repeat the names and cost tokens in every prompt."""
    if isinstance(schema, dict):
        return {k: _without_titles(v) for k, v in schema.items() if not (k == "title" and isinstance(v, str))}
    return [_without_titles(part) for part in schema] if isinstance(schema, list) else schema


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
