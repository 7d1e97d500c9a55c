"""An agent's output: makes a JSON Schema from a Python type, checks answers against both, and returns typed values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from plait.core import OutputSpec
from plait.core.errors import ConfigError, OutputError
from plait.core.json_schema import shape_of, types_of
from plait.core.output import WRAPPED, OutputMethod, find_output_faults, is_object, read_output
from plait.journal.records import RunHead
from plait.models.base import Model

NAME = "answer"
"""The name of an answer in errors, such as `answer.days is missing`."""
_STRUCTURE = re.compile(r"[{\[]")


@dataclass(frozen=True)
class OutputType:
    """The type of an agent's answers. `given`: a Python type that pydantic can validate, or a JSON Schema.

    `checks` are the user's own: each gets the value and returns an objection, or None or "" if it has none; it may also
    raise ValueError with the objection. `retries`: how many objections the model may answer before the run fails.
    """

    given: Any
    checks: tuple[Callable[[Any], str | None], ...] = ()
    retries: int = 2
    method: OutputMethod | None = None
    """How the model gives the answer; None lets Plait choose by the model's abilities."""

    @cached_property
    def spec(self) -> OutputSpec | None:
        """Return the type as loops see it; None for text. Raises `ConfigError` for a type without a JSON Schema."""
        if self.given is str:
            return None
        schema = dict(self.given) if isinstance(self.given, Mapping) else self._make_schema()
        return OutputSpec(NAME, schema, self.method or "prompt")

    def read(self, answer: Any) -> Any:
        """Return the JSON value in an answer. The same answer and schema give the same value everywhere."""
        return answer if self.spec is None else read_output(answer, self.spec.schema)

    def fits(self, answer: Any) -> bool:
        """Return whether an answer has a value of the type's JSON Schema."""
        return self.spec is None or not find_output_faults(self.read(answer), self.spec)

    def find_objection(self, answer: Any) -> str:
        """Return what the model has to change in its answer; "" if it fits the type and the checks."""
        value = self.read(answer)
        if self.spec is not None and (faults := self._find_faults(value)):
            return f"The answer does not fit the JSON Schema: {faults}. Write the whole answer again."
        typed = self.make_value(value)
        objections = filter(None, (call_check(check, typed) for check in self.checks))
        return next((f"The answer is not accepted: {text}" for text in objections), "")

    def make_value(self, value: Any) -> Any:
        """Return the Python value of an answer's JSON value. Raises `OutputError` if it does not fit the type."""
        if self._adapter is None:
            return value if self.spec is not None or isinstance(value, str) else msgspec.json.encode(value).decode()
        import pydantic

        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except pydantic.ValidationError as why:
            raise OutputError(f"The answer is no {_show_type(self.given)}: {_describe(why)}.") from None

    def make_partial(self, text: str) -> Any:
        """Return the value of the beginning of an answer: of the type if that is possible, else JSON; None if there is
        no value yet."""
        import pydantic
        from pydantic_core import from_json

        is_structure = self.spec is not None and types_of(self.spec.schema, self.spec.schema) <= {"object", "array"}
        begin = _STRUCTURE.search(text) if is_structure else None
        try:
            value = from_json(text[begin.start() :] if begin else text, allow_partial="trailing-strings")
            if self.spec is not None and not is_object(self.spec.schema) and isinstance(value, dict):
                value = value.get(WRAPPED, value)
            if self._adapter is None:
                return value
            return self._adapter.validate_python(value, experimental_allow_partial="trailing-strings")
        except pydantic.ValidationError:
            return value
        except ValueError:
            return None

    @cached_property
    def _adapter(self) -> Any:
        """Return pydantic's adapter of the type; None for text and for a JSON Schema."""
        if self.given is str or isinstance(self.given, Mapping):
            return None
        import pydantic

        try:
            return pydantic.TypeAdapter(self.given)
        except (pydantic.errors.PydanticUserError, NameError, TypeError) as why:
            raise _not_a_type(self.given, why) from None

    def _make_schema(self) -> dict[str, Any]:
        import pydantic

        try:
            made: dict[str, Any] = self._adapter.json_schema()
        except pydantic.errors.PydanticUserError as why:
            raise _not_a_type(self.given, why) from None
        return made

    def _find_faults(self, value: Any) -> str:
        assert self.spec is not None
        if self._adapter is None:
            return find_output_faults(value, self.spec)
        try:
            self.make_value(value)
        except OutputError as why:
            return find_output_faults(value, self.spec) or why.message.partition(": ")[2].rstrip(".")
        return ""


def call_check(check: Callable[[Any], str | None], value: Any) -> str:
    """Return the objection of one of the user's checks; "" if it has none. Raises `OutputError` if the check broke."""
    try:
        return check(value) or ""
    except ValueError as why:
        return str(why) or "the value is not valid"
    except Exception as why:
        name = getattr(check, "__name__", type(check).__name__)
        raise OutputError(
            f"The output check '{name}' broke: {type(why).__name__}: {why}.",
            hint="A check returns a text or None, or raises ValueError.",
        ) from why


def choose_method(model: Model, tools: bool) -> OutputMethod:
    """Return how a model gives a typed answer beside `tools`.

    A server that holds replies to a grammar lets the model write nothing else, also no tool calls.
    """
    able = model.abilities
    if able.schema and not (tools and able.grammar):
        return "schema"
    return "tool" if able.tools else "prompt"


def recorded_output(output: OutputType, head: RunHead) -> OutputType:
    """Return the output of a recorded run: the agent's, with the recorded method and retries.

    Raises `ConfigError` if the agent's schema is not the recorded one.
    """
    recorded = head.settings.get("output")
    schema = output.spec.schema if output.spec is not None else None
    if schema != (recorded["schema"] if recorded is not None else None):
        raise ConfigError(
            f"Run {head.run} was started with {_show_schema(recorded and recorded['schema'])}, and this agent has "
            f"{_show_schema(schema)}.",
            hint="Give the agent the same output type, or fork the run.",
        )
    return (
        output
        if recorded is None
        else replace(output, retries=recorded["retries"], method=head.settings["output_method"])
    )


def describe_output(output: OutputType) -> dict[str, Any] | None:
    """Return what the journal stores of an output; None for text."""
    return {"schema": output.spec.schema, "retries": output.retries} if output.spec is not None else None


def schema_in(head: RunHead) -> Any:
    """Return the recorded JSON Schema of a run's answer; `str` for text."""
    recorded = head.settings.get("output")
    return str if recorded is None else recorded["schema"]


def render_instructions(instructions: str | Callable[..., str], deps: object = None) -> str:
    """Return the text of an agent's instructions; a function gets the dependencies if it takes a parameter.

    Raises `ConfigError` if the function gives no text.
    """
    if isinstance(instructions, str):
        return instructions
    text = instructions(deps) if inspect.signature(instructions).parameters else instructions()
    if not isinstance(text, str):
        name = getattr(instructions, "__name__", "instructions")
        raise ConfigError(f"The function '{name}' returned {type(text).__name__}.", hint="Return the text.")
    return text


def check_functions(checks: object) -> tuple[Callable[[Any], str | None], ...]:
    """Return the user's checks as a tuple. Raises `ConfigError` if one is not a function of one value."""
    if not isinstance(checks, Iterable) or isinstance(checks, str | bytes):
        raise ConfigError(f"Agent(output_checks={checks!r}) is invalid.", hint="Give a list of functions.")
    found = tuple(checks)
    for each in found:
        if not callable(each) or inspect.iscoroutinefunction(each):
            raise ConfigError(f"The output check {each!r} is no plain function.", hint="Give a function of one value.")
    return found


TEXT = OutputType(str)
"""The output of an agent that gives text."""


def _describe(why: Any) -> str:
    """Return the faults that pydantic found, in one line."""
    faults = why.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, (NAME, *each['loc'])))}: {each['msg']}" for each in faults[:8])


def _show_type(given: object) -> str:
    return given.__name__ if isinstance(given, type) else str(given)


def _show_schema(schema: Any) -> str:
    return "no output type" if schema is None else f"the output {shape_of(schema)}"


def _not_a_type(given: object, why: Exception) -> ConfigError:
    first = str(why).partition("\n")[0]
    return ConfigError(
        f"Agent(output={_show_type(given)}) has no JSON Schema: {first}",
        hint="Give a pydantic model, a dataclass, a TypedDict, a list, a union, a Literal, a scalar, or a JSON Schema.",
    )
