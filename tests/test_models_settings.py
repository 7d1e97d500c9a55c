"""Settings behind a model's name or in plait.toml: what is sent, what is not, and whose rejection is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conftest import for_each
from models_server import Asked, Server
from plait.core import Think, ToolSpec, user
from plait.core.errors import BadRequest, ConfigError, Unsupported
from plait.models.config import ModelConfig
from plait.models.fallback import FallbackModels
from plait.models.resolve import resolve
from plait.models.settings import NO_SETTINGS, ModelSettings, split_settings

KEYS = {f"{name}_API_KEY": "sk-of-the-test" for name in ("OPENAI", "OPENROUTER", "ANTHROPIC", "GEMINI")}
TOOL = ToolSpec("add", "Add.", {"type": "object", "properties": {}})


def body(spec: str, think: Think | None = None, config: ModelConfig | None = None) -> dict[str, Any]:
    made = resolve(spec, config, env=KEYS).encode(think or Think("act", (user("q"),)))
    found: dict[str, Any] = json.loads(made.body)
    return found


def test_unset_settings_are_not_sent() -> None:
    assert set(body("openai:m")) == {"model", "messages", "stream", "stream_options"}


def test_settings_behind_the_name_are_sent() -> None:
    sent = body("openai:m@temperature=0@effort=low@seed=7@stop=A,B@service_tier=flex", Think("act", (user("q"),)))
    assert sent["model"] == "m"
    assert (sent["temperature"], sent["reasoning_effort"], sent["seed"]) == (0, "low", 7)
    assert (sent["stop"], sent["service_tier"]) == (["A", "B"], "flex")


@for_each("stop", [("\n\n",), ("a,b",), ("@end",), ("|x", " y "), ('"q"', "[1]"), ("A", "B"), ()])
def test_stop_strings_of_an_agent_are_sent_as_they_are(stop: tuple[str, ...]) -> None:
    settings = ModelSettings(stop=stop, tool_choice="a@b|c")
    model = resolve("openai:m|openai:n", env=KEYS, settings=settings)
    for made in (model, resolve(model.spec, env=KEYS)):
        assert isinstance(made, FallbackModels)
        assert [(each.name, each.settings) for each in made.members] == [("m", settings), ("n", settings)]  # type: ignore[attr-defined]
        assert json.loads(made.encode(Think("act", (user("q"),))).body).get("stop", []) == list(stop)


def test_a_name_may_hold_an_at_sign() -> None:
    assert split_settings("x:m@2024-06@seed=1") == ("x:m@2024-06", ModelSettings(seed=1))
    assert split_settings("x:m@2024-06") == ("x:m@2024-06", NO_SETTINGS)


def test_settings_override_an_effect_but_not_its_token_limit() -> None:
    think = Think("act", (user("q"),), temperature=0.9, max_tokens=50)
    sent = body("openrouter:m@temperature=0.1@max_tokens=80@effort=high@thinking_tokens=9", think)
    assert (sent["temperature"], sent["max_tokens"]) == (0.1, 50)
    assert sent["reasoning"] == {"effort": "high", "max_tokens": 9}


def test_settings_for_tools_go_with_tools_only() -> None:
    spec = "openai:m@tool_choice=add@parallel_calls=false"
    assert "tool_choice" not in body(spec) and "parallel_tool_calls" not in body(spec)
    sent = body(spec, Think("act", (user("q"),), tools=(TOOL,)))
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert sent["parallel_tool_calls"] is False


def test_plait_toml_sets_them_by_name_or_pattern_and_the_name_overrides() -> None:
    table = {"openai:m*": {"effort": "low", "extra_body": {"user": "u"}}}
    config = ModelConfig.from_mapping({"settings": table})
    assert body("openai:m1", config=config)["reasoning_effort"] == "low"
    sent = body("openai:m1@effort=high", config=config)
    assert (sent["reasoning_effort"], sent["user"]) == ("high", "u")
    assert "reasoning_effort" not in body("openai:other", config=config)


def test_plait_toml_sets_them_by_the_name_of_an_endpoint_and_its_model() -> None:
    endpoint = {"base_url": "http://localhost:1/v1", "model": "m"}
    config = ModelConfig.from_mapping({"endpoints": {"ep": endpoint}, "settings": {"ep:m": {"seed": 7}}})
    assert body("ep", config=config)["seed"] == body("ep:m", config=config)["seed"] == 7


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("openai:m@efort=low", "no setting 'efort'"),
        ("openai:m@seed=x", "openai:m@seed=x"),
        ("scripted:x.json@seed=1", "takes no settings"),
    ],
)
def test_wrong_settings_are_config_errors(spec: str, said: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        resolve(spec, env=KEYS)


def test_settings_are_part_of_the_model_in_the_journal() -> None:
    described = resolve("openai:m@effort=low", env=KEYS).describe()
    assert described["spec"] == "openai:m@effort=low"
    assert described["settings"] == {"effort": "low"}


@pytest.mark.parametrize("is_set_by_user", [True, False])
async def test_a_rejected_setting_of_the_user_is_an_error_and_any_other_is_left_out(is_set_by_user: bool) -> None:
    async def reject(asked: Asked) -> None:
        await asked.answer(400, {"error": {"message": "Unsupported parameter: temperature", "param": "temperature"}})

    settings = ModelSettings(temperature=0.5) if is_set_by_user else NO_SETTINGS
    think = Think("act", (user("q"),), temperature=None if is_set_by_user else 0.5)
    async with Server(reject) as server:
        model = server.model(settings=settings)
        with pytest.raises(BadRequest if is_set_by_user else Unsupported, match="temperature"):
            await model.send(model.encode(think), think)


ALL_SETTINGS = {
    "openai:gpt-5@effort=low@verbosity=low@tool_choice=add@parallel_calls=false@max_tokens=80": {
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "tool_choice": {"type": "function", "name": "add"},
        "parallel_tool_calls": False,
        "max_output_tokens": 80,
    },
    "anthropic:claude-sonnet-4-5@effort=low@temperature=0.3@tool_choice=required@parallel_calls=false@stop=A": {
        "output_config": {"effort": "low"},
        "temperature": 0.3,
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "stop_sequences": ["A"],
    },
    "anthropic:claude-sonnet-4-5@thinking_tokens=2048": {"thinking": {"type": "enabled", "budget_tokens": 2048}},
    "gemini:gemini-3-pro@effort=low@tool_choice=add@seed=3": {
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}},
        "generationConfig": {"seed": 3, "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}},
    },
}


@pytest.mark.parametrize("spec", ALL_SETTINGS)
def test_each_wire_sends_settings_under_the_providers_names(spec: str) -> None:
    sent = body(spec, Think("act", (user("q"),), tools=(TOOL,)))
    assert {name: sent.get(name) for name in ALL_SETTINGS[spec]} == ALL_SETTINGS[spec]


@pytest.mark.parametrize(
    "spec", ["openai:gpt-5@seed=1", "anthropic:claude-sonnet-5@seed=1", "gemini:gemini-3-pro@verbosity=low"]
)
def test_a_setting_without_a_field_is_reported_before_the_run(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"has no field for (seed|verbosity)"):
        resolve(spec, env=KEYS)


@for_each(
    ("spec", "said"),
    [
        ("openai:gpt-5@effort=lowest", "openai has no effort 'lowest'"),
        ("openai:gpt-4.1@service_tier=cheap", "openai has no service_tier 'cheap'"),
        ("anthropic:claude-opus-4-8@effort=none", "anthropic has no effort 'none'"),
        ("gemini:gemini-3-pro@effort=max", "gemini has no effort 'max'"),
        ("openai:m@temperature=3", "<= 2"),
        ("openai:m@verbosity=loud", "verbosity"),
        ("openai:m@max_tokens=0", ">= 1"),
    ],
)
def test_a_value_that_the_provider_does_not_know_is_reported_before_the_run(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(spec, env=KEYS)


def test_other_providers_take_any_value() -> None:
    assert body("openrouter:m@effort=lowest")["reasoning"] == {"effort": "lowest"}
