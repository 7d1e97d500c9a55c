"""Strict schemas: converted to a provider's subset or sent as they are; what a model then writes fits the tool."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from conftest import for_each
from models_server import Asked, Server, event
from plait.core import Think, ToolSpec, user
from plait.core.json_schema import drop_nulls
from plait.models import http
from plait.models.base import Abilities
from plait.models.config import ModelConfig
from plait.models.resolve import resolve
from plait.models.wires.strict_schema import ANTHROPIC, OPENAI, fit_schema
from wire_exchanges import run_tools

jsonschema = pytest.importorskip("jsonschema")
KEYS = {f"{name}_API_KEY": "sk-of-the-test" for name in ("OPENAI", "GROQ", "ANTHROPIC", "MISTRAL", "XAI", "GEMINI")}
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "The city.", "minLength": 1},
        "year": {"type": "integer", "minimum": 1900, "default": 2024},
        "unit": {"enum": ["C", "F"], "description": "The unit."},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "place": {"$ref": "#/$defs/place", "description": "Where."},
    },
    "required": ["city"],
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
}


def test_openais_subset_requires_all_properties_and_allows_null_for_the_optional_ones() -> None:
    assert fit_schema(CITY, OPENAI) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city."},
            "year": {"type": ["integer", "null"], "minimum": 1900},
            "unit": {"anyOf": [{"enum": ["C", "F"]}, {"type": "null"}], "description": "The unit."},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "place": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}], "description": "Where."},
        },
        "$defs": {
            "place": {
                "type": "object",
                "properties": {"lat": {"type": "number"}},
                "additionalProperties": False,
                "required": ["lat"],
            }
        },
        "additionalProperties": False,
        "required": ["city", "year", "unit", "note", "place"],
    }


@for_each(
    "schema",
    [
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "integer"}}}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}, {"pattern": "x"}]}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}, "type": "integer"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}},
        {"type": "object", "properties": {"a": {"anyOf": [CITY, {**CITY, "title": "other"}]}}},
    ],
)
def test_what_the_subset_cannot_express_is_not_converted(schema: dict[str, Any]) -> None:
    assert fit_schema(schema, OPENAI) is None


def test_a_schema_with_optional_properties_is_no_reply_schema() -> None:
    assert fit_schema(CITY, OPENAI, nulls=False) is None
    assert fit_schema(
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, OPENAI, nulls=False
    )


def test_nulls_that_stand_for_nothing_are_removed_at_every_depth() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "under": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name"],
    }
    value = {
        "name": "a",
        "under": [{"name": "b", "under": None}, {"name": "c", "under": [{"name": "d", "under": None}]}],
    }
    assert drop_nulls(value, tree) == {"name": "a", "under": [{"name": "b"}, {"name": "c", "under": [{"name": "d"}]}]}
    kept = {"city": None, "year": None, "note": None, "other": None}
    assert drop_nulls(kept, CITY) == {"city": None, "note": None, "other": None}


SCALARS = st.sampled_from(
    [
        *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null")),
        {"type": ["string", "null"]},
        {"type": ["integer", "string"], "description": "Either."},
        *({"enum": ["a", "b"]}, {"const": 3}, {"type": "string", "enum": ["x"]}, {"$ref": "#/$defs/item"}),
        {"$ref": "#/$defs/item", "description": "An item."},
    ]
)


def objects_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "b", "c", "d"])
    return st.dictionaries(names, values, max_size=4).flatmap(
        lambda found: st.sets(st.sampled_from(sorted(found)) if found else st.nothing()).map(
            lambda required: {"type": "object", "properties": found, "required": sorted(required)}
        )
    )


SCHEMAS = st.recursive(
    SCALARS,
    lambda below: (
        objects_of(below)
        | below.map(lambda each: {"type": "array", "items": each})
        | st.lists(below, min_size=1, max_size=3).map(lambda each: {"anyOf": each})
    ),
    max_leaves=8,
)
DEFS = {"item": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/item"}}}}


def values_of(schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that fit a converted schema."""
    if "$ref" in schema:
        return values_of(root["$defs"]["item"], root, depth + 1)
    if "anyOf" in schema:
        options = schema["anyOf"]
        if depth > 3 and {"type": "null"} in options:
            return st.none()
        return st.one_of([values_of(each, root, depth) for each in options])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_values_of_type(kind, schema, root, depth) for kind in kinds])


def _values_of_type(kind: str, schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if kind == "object":
        return st.fixed_dictionaries(
            {name: values_of(each, root, depth + 1) for name, each in schema["properties"].items()}
        )
    if kind == "array":
        return st.lists(values_of(schema["items"], root, depth + 1), max_size=2)
    simple = {"string": st.text(max_size=3), "integer": st.integers(), "number": st.floats(allow_nan=False)}
    return {**simple, "boolean": st.booleans(), "null": st.none()}[kind]


@given(st.data())
def test_a_value_of_the_converted_schema_fits_the_original_without_its_nulls(data: st.DataObject) -> None:
    schema = {**data.draw(objects_of(SCHEMAS)), "$defs": DEFS}
    converted = fit_schema(schema, OPENAI)
    if converted is None:
        return
    value = data.draw(values_of(converted, converted))
    jsonschema.validate(value, converted)
    jsonschema.validate(drop_nulls(value, schema), schema)
    assert drop_nulls(drop_nulls(value, schema), schema) == drop_nulls(value, schema)


def sent(spec: str, *tools: ToolSpec, schema: Any = None) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        resolve(spec, env=KEYS).encode(Think("act", (user("q"),), tools=tools, schema=schema)).body
    )
    return made


FIT, OPEN = ToolSpec("fit", "Fit.", CITY), ToolSpec("open", "Open.", {"type": "object"})


def test_openai_gets_strict_tools_where_they_can_be_converted() -> None:
    functions = [each["function"] for each in sent("openai:gpt-4.1", FIT, OPEN)["tools"]]
    assert functions[0]["strict"] is True and functions[0]["parameters"] == fit_schema(CITY, OPENAI)
    assert "strict" not in functions[1] and functions[1]["parameters"] == {"type": "object"}
    tools = sent("openai:gpt-5", FIT, OPEN)["tools"]
    assert [each["strict"] for each in tools] == [True, False]


@pytest.mark.parametrize(
    "spec", ["groq:m", "mistral:m", "xai:grok-4", "gemini:gemini-3-pro", "anthropic:claude-sonnet-4-5"]
)
def test_other_providers_get_tools_as_they_are(spec: str) -> None:
    assert "strict" not in json.dumps(sent(spec, FIT))


def test_anthropic_gets_strict_tools_on_request_within_its_limits() -> None:
    table = {"base_url": "https://api.anthropic.com/v1", "kind": "anthropic", "abilities": {"strict": True}}
    config = ModelConfig.from_mapping({"endpoints": {"claude": table}})
    tools = tuple(ToolSpec(f"t{n}", "Fit.", CITY) for n in range(8))
    model = resolve("claude:claude-sonnet-4-5", config, env=KEYS)
    found = json.loads(model.encode(Think("act", (user("q"),), tools=(OPEN, *tools))).body)["tools"]
    assert found[1]["input_schema"] == fit_schema(CITY, ANTHROPIC)
    # Each tool has four optional properties, of which 24 are allowed.
    assert [each.get("strict", False) for each in found] == [False, *[True] * 6, False, False]


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "groq:m", "openrouter:m"])
def test_a_reply_is_strict_only_in_the_subset(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KEYS, "OPENROUTER_API_KEY", "sk-of-the-test")
    form = sent(spec, schema=CLOSED)["response_format"]["json_schema"]
    assert form == {"name": "reply", "schema": {**CLOSED, "additionalProperties": False}, "strict": True}
    form = sent(spec, schema=CITY)["response_format"]["json_schema"]
    assert form == {"name": "reply", "schema": CITY, "strict": False}
    assert "response_format" not in sent(spec, schema={"type": "array", "items": CLOSED})
    form = sent("openai:gpt-5", schema=CITY)["text"]["format"]
    assert (form["schema"], form["strict"]) == (CITY, False)


def test_a_run_calls_its_tool_without_the_nulls(tmp_path: Path) -> None:
    got: list[Any] = []

    @plait.tool
    def weather(city: str, unit: str = "C", day: int | None = None) -> str:
        """The weather."""
        got.append((city, unit, day))
        return "mild"

    call = {"city": "Lyon", "unit": None, "day": None}
    made = {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": json.dumps(call)}}
    first = [event({"choices": [{"index": 0, "delta": {"tool_calls": [made]}, "finish_reason": "tool_calls"}]})]
    second = [event({"choices": [{"index": 0, "delta": {"content": "Mild."}, "finish_reason": "stop"}]})]
    replies = [b"".join([*each, b"data: [DONE]\n\n"]) for each in (first, second)]
    model = {"provider": "openai", "abilities": Abilities(strict=True)}
    run, asked = run_tools(model, [weather], tmp_path / "j.db", *replies, wait=False)
    assert asked[0].body["tools"][0]["function"]["strict"] is True
    assert run.answer == "Mild." and got == [("Lyon", "C", None)]


async def test_a_refused_strict_schema_is_sent_again_without_strict(tmp_path: Path) -> None:
    async def refuse_strict(asked: Asked) -> None:
        if "strict" in asked.raw.decode():
            error = {"message": "Invalid schema for function 'fit'.", "param": "tools[0].function.parameters"}
            await asked.answer(400, {"error": error})
        else:
            message = {"role": "assistant", "content": "Mild."}
            await asked.answer(200, {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})

    @plait.tool
    def weather(city: str, day: int = 0) -> str:
        """The weather."""
        return "mild"

    async with Server(refuse_strict) as server:
        model = server.model(provider="openai", abilities=Abilities(strict=True, stream=False))
        agent = plait.Agent("tool_calling", model=model, tools=[weather], journal=tmp_path / "j.db")
        run = await agent.arun("So?")
        assert (run.status, run.answer) == ("answered", "Mild.")
        assert [("strict" in each.raw.decode(), "tools" in each.body) for each in server.asked] == [
            (True, True),
            (False, True),
        ]
        await http.close()
    assert (await asyncio.to_thread(agent.replay, run.id)).whole
