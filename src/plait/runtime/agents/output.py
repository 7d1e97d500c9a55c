"""An agent's output: makes a JSON Schema from a Python type, checks answers against both, and returns typed values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import UnionType
from typing import Any, Generic, TypeAlias, _SpecialForm, cast, get_args

import msgspec
from typing_extensions import TypeVar

from plait.core import OutputSpec
from plait.core.errors import ConfigError, JournalError, OutputError
from plait.core.json_schema import shape_of, types_of
from plait.core.notebook import repr_short
from plait.core.output import WRAPPED, OutputMethod, find_output_faults, is_object, read_output
from plait.core.schema_check import find_schema_fault
from plait.journal.records import RunHead
from plait.models.base import Model
from plait.models.fallback import has_native_calls
from plait.tools.tool import function_name
from plait.tools.user_code import show_error
from plait.user_functions import call_plain, require_plain

NAME = "answer"
"""The name of an answer in errors, such as `answer.days is missing`."""
SCHEMA_BESIDE_TOOLS = frozenset({("chat", "openai"), ("responses", "openai"), ("anthropic", "anthropic")})
"""The wires and providers whose documentation has a schema of the reply and tools in one request.

Sources: Google Cloud, "Structured outputs with Anthropic Claude models" (2026); for OpenAI, and against other servers,
vLLM's issue 39929 (2026-04-15): a schema there suppresses tool calls, and OpenAI applies it only to the final text.
"""
_STRUCTURE = re.compile(r"[{\[]")
_ASK_AGAIN = " Write the whole answer again, as JSON of this form: "


OutputT = TypeVar("OutputT", default=str, covariant=True)
"""The type of an agent's answers."""


@dataclass(frozen=True, repr=False)
class OutputType(Generic[OutputT]):
    """The type of an agent's answers, and how they are checked.

    `type`: a pydantic model, dataclass, TypedDict, list, union, `Literal`, scalar, or a JSON Schema. `checks`:
    functions that get the value, or a `plait.Context` and the value, and return None or an objection for the model;
    they may also raise ValueError with it.
    `retries`: how many objections the model may answer before the run fails. `method`: how the model gives the answer:
    "schema" (the provider's structured output), "tool" or "prompt"; None chooses by the model's abilities.

    Raises `ConfigError` for a type without a JSON Schema, and for another invalid field.
    """

    type: type[OutputT] | UnionType | Mapping[str, Any] | _SpecialForm
    checks: Iterable[Callable[..., str | None]] = ()
    retries: int = 2
    method: OutputMethod | None = None

    def __repr__(self) -> str:
        checks = ", ".join(map(function_name, self.checks))  # a functools.partial would show what it binds
        return f"OutputType({_show_type(self.type)}, checks=[{checks}], retries={self.retries}, method={self.method!r})"

    def __post_init__(self) -> None:
        checks = self.checks
        if not isinstance(checks, Iterable) or isinstance(checks, str | bytes):
            raise ConfigError(f"OutputType(checks={checks!r}) is invalid.", hint="Give a list of functions.")
        found = tuple(checks)
        for each in found:
            if not callable(each):
                hint = "Give a function of one value."
                raise ConfigError(f"The output check {repr_short(each)} is no function.", hint=hint)
            require_plain(each, f"'{function_name(each)}' of the output's checks")
        object.__setattr__(self, "checks", found)
        if not isinstance(self.retries, int) or isinstance(self.retries, bool) or self.retries < 0:
            raise ConfigError(f"OutputType(retries={self.retries!r}) is invalid.", hint="Give a whole number from 0.")
        if self.method not in (None, *get_args(OutputMethod)):
            known = ", ".join(get_args(OutputMethod))
            raise ConfigError(f"OutputType(method={self.method!r}) is invalid.", hint=f"Give one of {known}, or None.")
        if isinstance(self.type, OutputType) or inspect.isroutine(self.type):
            raise _not_a_type(self.type, "It is not a type.")
        _ = self.spec

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # a pickle holds nothing that was cached

    @cached_property
    def spec(self) -> OutputSpec | None:
        """Return the type as loops see it; None for text. Raises `ConfigError` for a type without a JSON Schema."""
        if self.type is str:
            return None
        if isinstance(self.type, Mapping):
            schema = dict(self.type)
        else:
            adapter = self._adapter
            try:
                schema = adapter.json_schema()
            except Exception as why:
                raise _not_a_type(self.type, why) from why
            _close_objects(schema)
        if fault := find_schema_fault(schema):
            raise ConfigError(f"The JSON Schema of the output is invalid: {fault}", hint="Correct the schema.")
        return OutputSpec(NAME, schema, self.method or "prompt")

    def read(self, answer: Any) -> Any:
        """Return the JSON value in an answer. The same answer and schema give the same value everywhere."""
        return answer if self.spec is None else read_output(answer, self.spec.schema)

    def fits(self, answer: Any) -> bool:
        """Return whether an answer has a value of the type's JSON Schema."""
        return self.spec is None or not find_output_faults(self.read(answer), self.spec)

    def find_objection(self, answer: Any, context: object = None) -> str:
        """Return what the model has to change in its answer; "" if it fits the type and the checks.

        `context` is for checks that take one.
        """
        value = self.read(answer)
        if self.spec is not None and (faults := self._find_faults(value)):
            shape = shape_of(self.spec.schema)
            return f"The answer does not fit: {faults}.{_ASK_AGAIN}{shape}"
        typed = self.make_value(value)
        objections = filter(None, (call_check(check, typed, context) for check in self.checks))
        return next((f"The answer is not accepted: {text}" for text in objections), "")

    def make_value(self, value: Any) -> Any:
        """Return the Python value of an answer's JSON value. Raises `OutputError` if it does not fit the type."""
        if self._adapter is None:
            return value if self.spec is not None or isinstance(value, str) else msgspec.json.encode(value).decode()
        import pydantic

        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except pydantic.ValidationError as why:
            raise OutputError(f"The answer is no {_show_type(self.type)}: {_describe(why)}.") from None
        except (Exception, SystemExit) as why:  # the user's validators may raise anything
            raise OutputError(f"The answer is no {_show_type(self.type)}: {show_error(why)}.") from why

    def make_partial(self, text: str) -> Any:
        """Return the value of the beginning of an answer: of the type if that is possible, else JSON; None if there is
        no value yet."""
        from pydantic_core import from_json

        is_structure = self.spec is not None and types_of(self.spec.schema, self.spec.schema) <= {"object", "array"}
        begin = _STRUCTURE.search(text) if is_structure else None

        def read() -> Any:
            value = from_json(text[begin.start() :] if begin else text, allow_partial="trailing-strings")
            if self.spec is not None and not is_object(self.spec.schema) and isinstance(value, dict):
                return value.get(WRAPPED, value)
            return value

        try:
            value = read()
        except ValueError:
            return None
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_python(value, experimental_allow_partial="trailing-strings")
        except (Exception, SystemExit):  # validators are written for whole values
            return read()  # they may have changed the first one

    @cached_property
    def _adapter(self) -> Any:
        """Return pydantic's adapter of the type; None for text and for a JSON Schema."""
        if self.type is str or isinstance(self.type, Mapping):
            return None
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(cast(Any, self.type))
        except Exception as why:
            raise _not_a_type(self.type, why) from why

    def _find_faults(self, value: Any) -> str:
        assert self.spec is not None
        if self._adapter is None:
            return find_output_faults(value, self.spec)
        try:
            self.make_value(value)
        except OutputError as why:
            return find_output_faults(value, self.spec) or why.message.partition(": ")[2].rstrip(".")
        return ""


def _close_objects(schema: Any) -> None:
    """Say of each object that it has no other fields, unless the type allows them. Some endpoints require that."""
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _close_objects(each)
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)


def call_check(check: Callable[..., str | None], value: Any, context: object) -> str:
    """Return the objection of one of the user's checks; "" if it has none. Raises `OutputError` if the check broke."""
    try:
        found: object = call_plain(check, *((context, value) if count_required(check) == 2 else (value,)))
    except ValueError as why:
        return str(why) or "the value is not valid"
    except (Exception, SystemExit) as why:
        raise OutputError(f"The output check '{function_name(check)}' broke: {show_error(why)}.", hint=_CHECK) from why
    if found is not None and not isinstance(found, str):
        raise OutputError(f"The output check '{function_name(check)}' returned {repr_short(found)}.", hint=_CHECK)
    return found or ""


def count_required(function: Callable[..., Any]) -> int:
    """Return how many arguments a function must get by position; 0 for a function in C that does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 0
    return sum(each.default is each.empty and each.kind in _BY_PLACE for each in parameters)


def remove_request(objection: str) -> str:
    """Return an objection without the request to the model to write the answer again, for people."""
    return objection.partition(_ASK_AGAIN)[0]


_CHECK = "Return None or a sentence for the model, or raise ValueError."
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

OutputForm: TypeAlias = type[OutputT] | OutputType[OutputT] | UnionType | Mapping[str, Any] | _SpecialForm
"""What `Agent.output` takes, as a checker sees it. Of a union or a `Literal` it cannot tell the type: write
`Agent[None, A | B]`."""


def output_of(given: Any) -> OutputType[Any]:
    """Return an agent's output. Raises `ConfigError` for a type without a JSON Schema."""
    return given if isinstance(given, OutputType) else OutputType(given)


def choose_method(model: Model, tools: bool) -> OutputMethod:
    """Return how a model gives a typed answer; `tools`: beside tools. Most servers hold the whole reply to the schema,
    so that the model cannot call tools any more."""
    able = model.abilities
    is_documented = (getattr(model, "wire", ""), getattr(model, "provider", "")) in SCHEMA_BESIDE_TOOLS
    if able.schema and (not tools or is_documented):
        return "schema"
    return "tool" if has_native_calls(model) else "prompt"


def recorded_output(output: OutputType[Any], head: RunHead) -> OutputType[Any]:
    """Return the output of a recorded run: the agent's, with the recorded method and retries. Raises `ConfigError` if
    the agent's schema is not the recorded one."""
    recorded = _read_output(head)
    schema = output.spec.schema if output.spec is not None else None
    if schema != (recorded["schema"] if recorded is not None else None):
        raise ConfigError(
            f"Run {head.run} was started with {_show_schema(recorded and recorded['schema'])}, and this agent has "
            f"{_show_schema(schema)}.",
            hint="Give the agent the same output type, or fork the run.",
        )
    if recorded is None:
        return output
    return replace(output, retries=recorded["retries"], method=head.settings["output_method"])


def describe_output(output: OutputType[Any]) -> dict[str, Any] | None:
    """Return what the journal stores of an output; None for text without checks."""
    checks = [function_name(check) for check in output.checks]
    if output.spec is None and not checks:
        return None
    schema = output.spec.schema if output.spec is not None else None
    return {"schema": schema, "retries": output.retries, **({"checks": checks} if checks else {})}


def read_recorded_output(head: RunHead) -> Any:
    """Return the output of a recorded run, as an agent's field: without the Python type."""
    recorded = _read_output(head)
    if recorded is None:
        return str
    return OutputType(recorded["schema"] or str, retries=recorded["retries"], method=head.settings["output_method"])


def _read_output(head: RunHead) -> dict[str, Any] | None:
    """Return the recorded output of a run. Raises `JournalError` if Plait did not write it."""
    output = head.settings.get("output")
    if output is not None:
        try:
            values = [output["schema"], output["retries"], head.settings["output_method"]]
            msgspec.convert(values, tuple[dict[str, Any] | None, int, str | None])
        except (TypeError, KeyError, msgspec.ValidationError):
            raise JournalError(
                f"The record of run {head.run} is damaged: Plait did not write its output {repr_short(output)}.",
                hint="If the journal is not yours, do not use it. Otherwise start the run again.",
            ) from None
    return cast("dict[str, Any] | None", output)


TEXT: OutputType[str] = OutputType(str)
"""The output of an agent that gives text."""


def _describe(why: Any) -> str:
    """Return the faults that pydantic found, in one line."""
    faults = why.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, (NAME, *each['loc'])))}: {each['msg']}" for each in faults[:8])


def _show_type(given: object) -> str:
    return given.__name__ if isinstance(given, type) else str(given)


def _show_schema(schema: Any) -> str:
    return "no output type" if schema is None else f"the output {shape_of(schema)}"


def _not_a_type(given: object, why: object) -> ConfigError:
    first = str(why).partition("\n")[0]
    hint = "Give a pydantic model, a dataclass, a TypedDict, a list, a union, a Literal, a scalar, or a JSON Schema."
    return ConfigError(f"The output {_show_type(given)} has no JSON Schema: {first}", hint=hint)
