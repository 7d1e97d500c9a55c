"""What a user reads who makes a mistake with typed output, instructions, settings or a script."""

from __future__ import annotations

import functools
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

import plait
from conftest import for_each
from plait.core import Call, Crashed, Reply
from plait.core.errors import OutputError
from plait.core.events import Ended, Noted, PartialOutput
from plait.core.schema_check import find_schema_fault
from typed_support import BAD, GOOD, QUESTION, Trip, agent, script

# -- checks, and the end of a run


@pytest.mark.parametrize("verdict", [True, False, 0, ["too long"]])
def test_a_check_that_returns_no_text_is_an_error_of_the_check(verdict: Any) -> None:
    def is_short(trip: Trip) -> Any:
        return verdict

    run = agent("react", plait.OutputType(Trip, [is_short]), GOOD).run(QUESTION)
    assert run.status == "crashed" and f"The output check 'is_short' returned {verdict!r}." in str(run.reason)
    assert isinstance(run.outcome, Crashed)
    assert run.outcome.hint == "Return None or a sentence for the model, or raise ValueError."


def test_the_output_of_a_stopped_run_says_that_it_stopped() -> None:
    run = agent("tool_calling", Trip, BAD, "I do not know.", limits=plait.Limits(calls=2)).run(QUESTION)
    assert (run.status, run.answer) == ("stopped", "I do not know.")
    with pytest.raises(OutputError) as caught:
        _ = run.output
    assert f"Run {run.id} has no output (stopped): {run.reason}" in str(caught.value)
    assert "answer" in str(caught.value).removeprefix(f"Run {run.id} has no output (stopped): {run.reason}")


def test_the_reason_of_a_failed_run_has_no_request_to_the_model(tmp_path: Path) -> None:
    made = agent("tool_calling", plait.OutputType(Trip, retries=0), BAD, journal=tmp_path / "j.db")
    run = made.run(QUESTION)
    assert (run.status, run.reason) == ("failed", "The answer does not fit: answer.days is missing.")
    (note,) = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "output"]
    assert "Write the whole answer again, as JSON of this form: " in note, "the model still gets the request"
    assert made.replay(run.id).whole


def test_words_may_stand_around_a_list_but_not_around_a_number() -> None:
    assert agent("tool_calling", list[int], "They are [4, 2].").run(QUESTION).output == [4, 2]
    run = agent("tool_calling", plait.OutputType(int, retries=0), "The answer is 42.").run(QUESTION)
    assert run.status == "failed"


# -- types and schemas


@pytest.mark.parametrize(
    "given", [lambda: 3, len, functools.partial(int), plait.OutputType(int), Trip(city="a", days=1)]
)
def test_what_is_no_type_is_refused_when_the_agent_is_made(given: Any) -> None:
    with pytest.raises(plait.ConfigError, match="has no JSON Schema"):
        plait.Agent(output=plait.OutputType(given))


@for_each(
    ("schema", "fault"),
    [
        ({"type": "objekt"}, "schema.type must be one of array, boolean, "),
        ({"type": ["string", "nul"]}, "schema.type must be one of "),
        ({"type": []}, "schema.type must be one of "),
        ({"properties": {"days": {"type": "int"}}}, "schema.properties.days.type must be one of "),
        ({"properties": ["days"]}, "schema.properties must be an object, not the list"),
        ({"properties": {"days": "integer"}}, "schema.properties.days must be an object, not 'integer'"),
        ({"type": "array", "items": {"type": "text"}}, "schema.items.type must be one of "),
        ({"anyOf": [{"type": "string"}, {"type": "x"}]}, "schema.anyOf[1].type must be one of "),
        ({"anyOf": []}, "schema.anyOf must be a list with at least one schema"),
        ({"required": "city"}, "schema.required must be a list of names, not 'city'"),
        ({"properties": {"a": {"required": True}}}, "schema.properties.a.required must be a list of names"),
        ({"enum": "small"}, "schema.enum must be a list, not 'small'"),
        ({"type": "integer", "minimum": "1"}, "schema.minimum must be a number, not '1'"),
        ({"type": "string", "maxLength": -1}, "schema.maxLength must be a whole number from 0"),
        ({"$ref": "#/$defs/Trip"}, "schema.$ref is '#/$defs/Trip', which is not a part of this schema"),
        ({"$defs": {"Trip": {"type": "trip"}}}, "schema.$defs.Trip.type must be one of "),
    ],
)
def test_a_broken_schema_is_refused_with_the_place(schema: dict[str, Any], fault: str) -> None:
    with pytest.raises(plait.ConfigError) as caught:
        plait.Agent(output=schema)
    assert f"The JSON Schema of the output is invalid: {fault}" in str(caught.value)


class Node(BaseModel):
    name: Annotated[str, Field(pattern="^a", max_length=3)]
    children: list[Node] = []
    when: date | None = None
    size: tuple[int, str] = (1, "a")
    extra: dict[str, float] = Field(default_factory=dict, json_schema_extra={"type": "object", "examples": [1]})


@for_each(
    "schema",
    [
        Node.model_json_schema(),
        Trip.model_json_schema(),
        {},
        {"properties": {"type": {"const": "type"}, "required": True, "items": {"enum": [1, None]}}},
        {"type": ["string", "null"], "default": {"type": "x"}, "x-unknown": {"type": "x"}, "format": "color"},
        {"items": [{"type": "string"}, True], "additionalProperties": False, "not": {}},
        {"exclusiveMinimum": 0.5, "multipleOf": 2, "minItems": 0, "maxLength": 3.0},
        {"$defs": {"a/b": {}}, "properties": {"self": {"$ref": "#"}, "x": {"$ref": "#/$defs/a~1b"}}},
    ],
)
def test_a_valid_schema_has_no_fault(schema: dict[str, Any]) -> None:
    assert find_schema_fault(schema) == ""


def test_a_deep_schema_is_checked_without_recursion() -> None:
    schema: dict[str, Any] = {"type": "x"}
    for _ in range(5_000):
        schema = {"items": schema}
    assert "type must be one of" in find_schema_fault(schema)


# -- instructions


def test_a_function_of_instructions_gets_deps_only_for_a_parameter_without_a_default() -> None:
    def text(n: int = 3, *more: object, **named: object) -> str:
        return f"At most {n} words."

    for given, words in [(text, "At most 3 words."), (lambda deps: f"For {deps}.", "For Ann."), (lambda: "Hm.", "Hm.")]:
        model = plait.Scripted(["Final Answer: x"])
        run = plait.Agent("react", model=model, journal=False, instructions=given).run("Q?", deps="Ann")
        assert words in str(run.timeline.model_calls[0].request)


def test_instructions_that_break_are_an_error_with_the_functions_name() -> None:
    def today(deps: Any) -> str:
        return str(deps.day)

    made = plait.Agent("react", model=plait.Scripted(["Final Answer: x"]), journal=False, instructions=today)
    with pytest.raises(plait.ConfigError, match="The function 'today' of instructions broke: AttributeError") as caught:
        made.run("Q?")
    assert isinstance(caught.value.__cause__, AttributeError)


def test_instructions_that_plait_cannot_call_are_refused_when_the_agent_is_made() -> None:
    async def later() -> str:
        return "x"

    class Later:
        async def __call__(self) -> str:
            return "x"

    for given in (later, Later()):
        with pytest.raises(plait.ConfigError, match="of instructions is async"):
            plait.Agent(instructions=given)  # type: ignore[arg-type]  # a checker finds it too
    with pytest.raises(plait.ConfigError, match="has 2 parameters without a default"):
        plait.Agent(instructions=lambda a, b: "x")


# -- scripts and settings


@pytest.mark.parametrize("replies", ["Final Answer: x", {"act": "Final Answer: x"}, Reply("x"), None])
def test_the_replies_of_a_script_must_be_in_a_list(replies: Any) -> None:
    with pytest.raises(plait.ConfigError, match="Give a list of replies"):
        plait.Scripted(replies)


def test_settings_for_a_model_object_without_settings_are_refused_when_the_agent_is_made() -> None:
    warm, model = plait.ModelSettings(temperature=0.3), plait.Scripted(["Final Answer: x"])
    for settings in (warm, {"act": warm}):
        with pytest.raises(plait.ConfigError, match="scripted:scripted takes no settings"):
            plait.Agent("react", model=model, settings=settings)
    plait.Agent("react", model="openai:gpt-5", settings=warm)  # its key is needed only by a run


# -- streaming


async def stream_of(loop: str, *replies: Any) -> tuple[list[Any], Any]:
    """The values of a typed answer as they come, and the output."""
    output = plait.OutputType(Trip, method="tool")
    made = plait.Agent(loop, model=plait.Scripted(replies, chunk=6), output=output, journal=False)
    events = [event async for event in made.stream(QUESTION)]
    assert isinstance(events[-1], Ended)
    return [event.value for event in events if isinstance(event, PartialOutput)], events[-1].run.output


async def test_an_answer_in_code_is_not_streamed() -> None:
    assert await stream_of("codeact", *script("codeact", GOOD)) == ([], Trip(city="Lyon", days=3))


async def test_an_answer_in_the_input_of_a_tool_is_streamed() -> None:
    values, output = await stream_of(
        "tool_calling", Reply("", calls=(Call("final_answer", {"city": "Lyon", "days": 3}, id="a"),))
    )
    assert values[:3] == [{}, {"city": "Ly"}, {"city": "Lyon"}]
    assert values[-1] == output == Trip(city="Lyon", days=3)


async def test_after_a_rejected_answer_the_values_begin_again() -> None:
    made = plait.Agent("react", model=plait.Scripted(script("react", BAD, GOOD), chunk=6), output=Trip, journal=False)
    values = [event.value async for event in made.stream(QUESTION) if isinstance(event, PartialOutput)]
    assert values == [{}, {"city": "Lyon"}, {}, {"city": "Lyon"}, Trip(city="Lyon", days=3)]
