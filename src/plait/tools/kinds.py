"""What a parameter may be: its JSON Schema, and how a value from a model becomes it.

The plain types (text, numbers, booleans, lists, objects, choices, optional ones) are handled here, so that
a tool made of them costs nothing at import and microseconds a call. Everything else is handed to pydantic
(see `userkinds`), which is imported then.

Coercion is lax where there is one sensible reading ("3" for a number, 3 for a text, "true" for a boolean)
and refuses where there are several (one text for a list: does its comma part it?).
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from msgspec import Struct

from plait.core.arguments import read_structure
from plait.core.things import Thing

Fault: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where in a value a fault is, and the rest of a sentence that begins with the place: "must be a number, not 'x'"."""


class Misfit(Exception):
    """A value is not of a kind. `faults` lists what is wrong inside it, and is empty if the whole value is wrong."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)


def faults_of(kind: Kind, value: Any, error: Exception) -> tuple[Fault, ...]:
    """What is wrong with a value that a kind refused."""
    inside = error.faults if isinstance(error, Misfit) else ()
    return inside or (((), f"must be {kind.words}, not {shown(value)}"),)


def place(name: str, path: tuple[str | int, ...]) -> str:
    """Where a value stands: `items[0].amount`."""
    return name + "".join(f"[{part}]" if isinstance(part, int) else f".{shortened(str(part), 40)}" for part in path)


def shown(value: Any) -> str:
    """A value in an error: its kind and its beginning, in one line."""
    if isinstance(value, str):
        return repr(shortened(value, 60))
    try:
        text = repr(value)
    except Exception:  # too deep, or an int with too many digits to print
        return f"a {type(value).__name__}"
    if value is None:
        return "null"
    names = {dict: "object", list: "list", tuple: "list", bool: "boolean", int: "number", float: "number"}
    return f"the {names.get(type(value), 'value')} {shortened(text, 60)}"


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


class Kind(Struct, frozen=True):
    """One kind of parameter.

    `schema` is its JSON Schema, `words` names it in a sentence ("a whole number"). `exact` says whether a value is of
    the kind as it stands; `convert` gives the value as the function wants it, or raises `Misfit` (nothing else).
    `lists`, `objects` and `nothing` say whether a JSON list, object or null can be it; `thing` that it is an object
    which goes by its handle.
    """

    schema: dict[str, Any]
    words: str
    exact: Callable[[Any], bool]
    convert: Callable[[Any], Any]
    lists: bool = False
    objects: bool = False
    nothing: bool = False
    thing: bool = False


_GROUPED = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise Misfit


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise Misfit
    if isinstance(value, str):
        word = _ungrouped(value)
        try:
            return int(word)
        except ValueError:
            value = _number(word)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int):
        return int(value)
    raise Misfit


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool):
        raise Misfit
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        number = float(_ungrouped(value))
        if number - number == 0:  # neither infinite nor not-a-number, which JSON can't say
            return number
    raise Misfit


def _ungrouped(text: str) -> str:
    word = text.strip()
    return word.replace(",", "") if "," in word and _GROUPED.fullmatch(word) else word


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise Misfit


def _nothing(value: Any) -> None:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("null", "none")):
        return
    raise Misfit


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TEXT = Kind({"type": "string"}, "a string", lambda v: isinstance(v, str), _text)
INTEGER = Kind({"type": "integer"}, "a whole number", _is_integer, _integer)
NUMBER = Kind({"type": "number"}, "a number", _is_number, _number)
BOOLEAN = Kind({"type": "boolean"}, "true or false", lambda v: isinstance(v, bool), _boolean)
NOTHING = Kind({"type": "null"}, "null", lambda v: v is None, _nothing, nothing=True)
ANYTHING = Kind({}, "any value", lambda v: True, lambda v: v, lists=True, objects=True, nothing=True)

_PLAIN: dict[Any, Kind] = {str: TEXT, int: INTEGER, float: NUMBER, bool: BOOLEAN, None: NOTHING}
_PLAIN |= {type(None): NOTHING, Any: ANYTHING, object: ANYTHING}
_LISTS = (list, Sequence, MutableSequence)
_OBJECTS = (dict, Mapping, MutableMapping)


def plain_kind(hint: Any) -> Kind | None:
    """The kind of a type hint, or None where it is not made of plain types alone."""
    try:
        if hint in _PLAIN:
            return _PLAIN[hint]
    except TypeError:  # a hint that can't be hashed
        return None
    if isinstance(hint, type) and issubclass(hint, Thing):
        return _thing(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, TypeVar):
        return ANYTHING
    if origin is Annotated and all(isinstance(extra, str) for extra in arguments[1:]):
        return plain_kind(arguments[0])
    if origin is Literal and all(isinstance(choice, (str, int, bool)) for choice in arguments):
        return _choice(arguments)
    if origin in (Union, types.UnionType):
        kinds = [plain_kind(argument) for argument in arguments]
        return None if any(kind is None for kind in kinds) else _either([k for k in kinds if k is not None])
    if hint in _LISTS or origin in _LISTS:
        item = plain_kind(arguments[0]) if arguments else ANYTHING
        return None if item is None else _list(item)
    if hint in _OBJECTS or origin in _OBJECTS:
        if arguments and arguments[0] not in (str, Any):
            return None
        item = plain_kind(arguments[1]) if arguments else ANYTHING
        return None if item is None else _object(item)
    return None


def _thing(kind: type[Thing]) -> Kind:
    """A thing, in place of whose id the thing itself has been put."""

    def convert(value: Any) -> Thing:
        if isinstance(value, kind):
            return value
        raise Misfit

    words = f"the id of a thing of kind {kind.kind}, such as {kind.kind}-1"
    schema = {"type": "string", "format": kind.kind}
    return Kind(schema, words, lambda v: isinstance(v, kind), convert, thing=True)


def _list(item: Kind) -> Kind:
    def convert(value: Any) -> list[Any]:
        if isinstance(value, str):
            value = read_structure(value)
        if not isinstance(value, (list, tuple)):
            raise Misfit
        return [entry for _, entry in _parts(item, enumerate(value))]

    def exact(value: Any) -> bool:
        return isinstance(value, list) and all(map(item.exact, value))

    schema = {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
    words = "a list" if item is ANYTHING else f"a list with {item.words} each"
    return Kind(schema, words, exact, convert, lists=True, thing=item.thing)


def _object(item: Kind) -> Kind:
    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, str):
            value = read_structure(value)
        if not isinstance(value, dict):
            raise Misfit
        return dict(_parts(item, value.items()))

    def exact(value: Any) -> bool:
        return isinstance(value, dict) and all(map(item.exact, value.values()))

    schema = {"type": "object"} | ({"additionalProperties": item.schema} if item.schema else {})
    words = "an object" if item is ANYTHING else f"an object with {item.words} each"
    return Kind(schema, words, exact, convert, objects=True)


def _parts(item: Kind, entries: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Each entry as the kind wants it, with its place. Raises `Misfit` with the faults of all."""
    found: list[tuple[Any, Any]] = []
    faults: list[Fault] = []
    for where, entry in entries:
        try:
            found.append((where, item.convert(entry)))
        except (Misfit, ValueError, OverflowError) as error:
            part = where if isinstance(where, int) else str(where)
            faults += [((part, *path), said) for path, said in faults_of(item, entry, error)]
    if faults:
        raise Misfit(faults)
    return found


def _choice(choices: tuple[Any, ...]) -> Kind:
    folded: dict[str, Any] = {}
    for choice in reversed(choices):
        folded[str(choice).casefold()] = choice

    def exact(value: Any) -> bool:
        return any(value == choice and type(value) is type(choice) for choice in choices)

    def convert(value: Any) -> Any:
        for choice in choices:
            if value == choice and type(value) is type(choice):
                return choice
        word = str(value).strip().casefold() if isinstance(value, (str, int, float)) else None
        if word not in folded:
            raise Misfit
        return folded[word]

    listed = ", ".join(repr(choice) if isinstance(choice, str) else str(choice) for choice in choices)
    words = f"one of {listed}" if len(choices) > 1 else listed
    return Kind({"enum": list(choices)}, words, exact, convert)


def _either(kinds: list[Kind]) -> Kind:
    nothing = any(kind.nothing for kind in kinds)
    some = [kind for kind in kinds if kind is not NOTHING]

    def exact(value: Any) -> bool:
        return any(kind.exact(value) for kind in kinds)

    def convert(value: Any) -> Any:
        if value is None and nothing:
            return None
        for kind in kinds:
            if kind.exact(value):
                return kind.convert(value)
        inside: tuple[Fault, ...] = ()
        for kind in [*some, NOTHING] if nothing else some:
            try:
                return kind.convert(value)
            except (Misfit, ValueError, OverflowError) as error:
                inside = inside or (error.faults if isinstance(error, Misfit) and len(some) == 1 else ())
        raise Misfit(inside)

    words = " or ".join([kind.words for kind in some] + ["null"] * nothing)
    lists, objects = any(kind.lists for kind in kinds), any(kind.objects for kind in kinds)
    simple = [kind.schema["type"] for kind in kinds if list(kind.schema) == ["type"]]
    if len(simple) == len(kinds):
        schema: dict[str, Any] = {"type": simple}
    elif any(not kind.schema for kind in kinds):
        schema = {}
    else:
        schema = {"anyOf": [kind.schema for kind in kinds]}
    return Kind(schema, words, exact, convert, lists, objects, nothing, any(kind.thing for kind in kinds))
