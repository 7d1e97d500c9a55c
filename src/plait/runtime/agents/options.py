"""The declaration of an option. Every place that lists options takes them from here.

A field of `AgentFields` (`agent_fields.py`), or of a class that such a field holds (`Limits`, `History`), declares its
option beside its type and default: `steps: Annotated[int | None, Option("Maximum turns.", "--max-steps N")] = 25`.
From this come the checks, the command-line options, `plait.toml` and what needs trust in it, the head of a run, what
a client of the server may change, the `repr`, and the tables in the documentation.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin

from msgspec import Struct, structs

from plait.core.errors import ConfigError
from plait.core.notebook import repr_short

if TYPE_CHECKING:
    from plait.journal.records import RunHead

Trust = Literal["refused", "same", "at most", "allowed"]
"""What an untrusted `plait.toml` may do: not set the option; set it unless the user's own file has another value; set
it up to the value of the user's own file; set it. In any case `trust.py` looks at words for code and models."""


@dataclass(frozen=True, repr=False)
class Option:
    """One option of an agent. `help` says what it is; `flag_help` is for the command line, if that differs.

    `flag` is the option of the command line with its metavar ("--max-steps N"). `switch` is the value that a flag
    without a value sets. `key` is the name in `plait.toml`: by default that of the flag, for a list or a switch that of
    the field; "" for none. `variable` is the environment variable. `read` makes the field's value of what is given
    there: a text or number, a tuple for `many` words, a mapping for many "K=V". `adds`: the command line adds to the
    file's words. `trust`: see `Trust`. `separate` is a further word for the same field.

    A number is above `above` (None: from 0 up) and at most `most`. `fits` replaces the check by the type; `wanted` says
    what is valid.

    `stored`: the head of a run has it in its settings or in a field of its own, so that who makes the agent again from
    the head gets it; "" if it has not. `record` makes the stored JSON of the agent, UNSET for none; `restore` makes the
    field's value of the head. `page` is the page of the
    documentation, if that has another name than the field.

    `list_fields` fills in where it stands: the field `name` of `owner`, with its type and default, which the agent's
    field `within` holds ("": the agent itself).
    """

    help: str
    flag: str = ""
    flag_help: str = ""
    _: KW_ONLY
    switch: bool | None = None
    many: Literal["", "words", "pairs"] = ""
    key: str | None = None
    variable: str = ""
    read: Callable[[Any], Any] = lambda given: given
    adds: bool = False
    trust: Trust = "refused"
    separate: Option | None = None
    above: float | None = None
    most: float = math.inf
    fits: Callable[[Any], bool] | None = None
    wanted: str = ""
    stored: Literal["settings", "head", ""] = "settings"
    record: Callable[[Any], Any] | None = None
    restore: Callable[[RunHead], Any] | None = None
    page: str = ""
    owner: type = object
    name: str = ""
    hint: Any = None
    default: Any = None
    within: str = ""

    def __repr__(self) -> str:  # what `help(plait.Limits)` shows beside a type
        return f"Option({self.help!r})"

    @property
    def parameter(self) -> str:
        """Return the name of the flag in code, "" if there is none."""
        return self.flag.partition(" ")[0].strip("-").replace("-", "_")

    @property
    def file_key(self) -> str:
        """Return the name in `plait.toml`, "" if it is not there."""
        if self.key is not None:
            return self.key
        return self.name if self.many or self.switch is not None else self.parameter

    @property
    def file_type(self) -> Any:
        """Return the type of its value in `plait.toml`."""
        if self.many == "pairs":
            return dict[str, str] if get_origin(self.hint) is Mapping else dict[str, Any]
        return list[str] if self.many else bool if self.switch is not None else self.number or str

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """Return the words that it takes; empty if it takes any."""
        literals = [each for each in (self.hint, *get_args(self.hint)) if get_origin(each) is Literal]
        return tuple(word for each in literals for word in get_args(each) if isinstance(word, str))

    @cached_property
    def number(self) -> type[int] | type[float] | None:
        """Return the type of number that it is, None if it is none."""
        return next((kind for kind in (float, int) if kind in (self.hint, *get_args(self.hint))), None)

    def find_fault(self, value: Any) -> str:
        """Return what would be valid in place of a value, "" for a valid one."""
        is_optional = NoneType in get_args(self.hint)
        if self.number is None:
            if self.fits(value) if self.fits is not None else fits_type(value, self.hint):
                return ""
            if isinstance(self.hint, type) and issubclass(self.hint, Struct):
                return f"plait.{self.hint.__name__}(...)"
            words = f"one of {', '.join(self.choices)}" if self.choices else "a text" + ", or None" * is_optional
            return self.wanted or ("True or False" if self.hint is bool else words)
        is_number = isinstance(value, int | self.number) and not isinstance(value, bool)
        fits = is_number and 0 <= value <= self.most and value < math.inf and (self.above is None or value > self.above)
        if fits or (value is None and is_optional):
            return ""
        what = "a number" if self.number is float else "a whole number"
        least = "from 0 up" if self.above is None else f"above {self.above:g}"
        most = "" if math.isinf(self.most) else f" and at most {self.most:g}"
        return f"{what} {least}{most}" + ", or None for no limit" * is_optional


@cache
def list_fields(owner: type, within: str = "") -> tuple[Option, ...]:
    """Return the declared options of a class, in the order of its fields."""
    found: Iterable[Any] = fields(owner) if is_dataclass(owner) else structs.fields(cast(Any, owner))
    made = {each.name: each.default_factory for each in found}
    defaults = {each.name: made[each.name]() if callable(made[each.name]) else each.default for each in found}
    return tuple(
        replace(each, owner=owner, name=name, hint=get_args(hint)[0], default=defaults[name], within=within)
        for base in reversed(owner.__mro__)
        for name, hint in inspect.get_annotations(base, eval_str=True).items()
        for each in getattr(hint, "__metadata__", ())
        if isinstance(each, Option)
    )


@cache
def list_options(owner: type) -> tuple[Option, ...]:
    """Return the declared options of a class with the separate words; a field whose class declares options is replaced
    by these."""
    found: list[Option] = []
    for each in list_fields(owner):
        is_struct = isinstance(each.hint, type) and issubclass(each.hint, Struct)
        found += (list_fields(each.hint, each.name) if is_struct else ()) or (each,)
        if each.separate is not None:
            found.append(replace(each.separate, owner=owner, name=each.name))
    return tuple(found)


def check_options(value: Any) -> None:
    """Raise `ConfigError` for the first field that does not fit its declaration."""
    kind: Any = type(value)
    for each in list_fields(kind):
        if wanted := each.find_fault(given := getattr(value, each.name)):
            shown = f"{kind.__name__}({each.name}={repr_short(given, 200)})"
            raise ConfigError(f"{shown} is invalid.", hint=f"Give {wanted}.")


def fits_type(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type; of a container, the elements are not looked at."""
    kind = get_origin(hint)
    if kind in (Union, UnionType):
        return any(fits_type(value, each) for each in get_args(hint))
    if kind is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(hint))
    return isinstance(value, kind or hint) and not isinstance(value, type)


def without_option(annotation: str) -> str:
    """Return the source of an annotation without the option in it, to show it to users."""
    parsed = ast.parse(annotation, mode="eval").body
    is_annotated = isinstance(parsed, ast.Subscript) and ast.unparse(parsed.value) == "Annotated"
    return ast.unparse(cast(Any, parsed).slice.elts[0]) if is_annotated else annotation
