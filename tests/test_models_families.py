"""What families of models accept: names of every host's spelling, and what belongs to a model at each host."""

from __future__ import annotations

import json
import re

import pytest

from conftest import for_each
from plait.core import Think, user
from plait.models.base import ABILITIES
from plait.models.config import ModelConfig
from plait.models.families import FAMILIES, Family, family_of
from plait.models.presets import HOSTS
from plait.models.resolve import resolve
from plait.models.wires.wire import WIRES

ENV = {key: "sk-0123456789" for host in HOSTS.values() for key in host.keys}


def name_of(model: str) -> str:
    family = family_of(model)
    return family.name if family else ""


@for_each("family", FAMILIES)
def test_each_row_is_whole_and_its_example_belongs_to_it(family: Family) -> None:
    assert family_of(family.example) is family
    assert family.host in HOSTS
    assert set(family.lacks + family.host_lacks) <= set(ABILITIES)
    assert family.wire in ("", *WIRES)
    assert re.fullmatch(r"https://\S+", family.source) and re.fullmatch(r"20\d\d-[01]\d", family.date)
    assert len({each.name for each in FAMILIES}) == len(FAMILIES)


@for_each(
    ("family", "names"),
    [
        ("GPT-6", "gpt-6-astra gpt-6.1-sol openai/gpt-6-luna gpt-7"),
        ("GPT-5.6", "gpt-5.6 gpt-5.6-terra openai/gpt-5.6-sol:batch"),
        ("GPT-5.2 to 5.5", "gpt-5.2 gpt-5.3-codex gpt-5.4-mini-2026-03-17 gpt-5.5-2026-04-23"),
        ("GPT-5.1", "gpt-5.1 gpt-5.1-codex-max"),
        ("GPT-5", "gpt-5 gpt-5-2025-08-07 gpt-5-pro openai/gpt-5-nano"),
        ("o1, o3, o4, codex-mini", "o1 o1-pro o3-mini o4-mini-2025-04-16 codex-mini-latest ft:o4-mini:acme"),
        ("GPT-5 and later with search", "gpt-5-search-api"),
        ("GPT-4.1, GPT-4o and older, chat models", "gpt-4o gpt-4.1-mini gpt-5-chat-latest gpt-5.3-chat-latest"),
        ("GPT-OSS", "gpt-oss-120b openai/gpt-oss-20b"),
        ("", "qwen3 o1x m my-gpt-model"),
        (
            "Claude 5 and later, Mythos",
            "claude-opus-5 claude-opus-5-5 claude-sonnet-5 claude-haiku-5-5 claude-fable-5-1 claude-mythos-preview "
            "anthropic/claude-opus-5.5 claude-opus-10 us.anthropic.claude-opus-5-v1:0",
        ),
        ("Claude Opus 4.7, 4.8", "claude-opus-4-7 anthropic/claude-opus-4.8 claude-opus-4-7-20260416"),
        ("Claude 4.6", "claude-opus-4-6 claude-sonnet-4-6 anthropic/claude-sonnet-4.6"),
        ("Claude Opus 4.5", "claude-opus-4-5-20251101 anthropic/claude-opus-4.5"),
        ("Claude Sonnet 4.5, Haiku 4.5", "claude-haiku-4-5 claude-sonnet-4-5-20250929 anthropic/claude-sonnet-4.5"),
        (
            "Claude 3.7 to 4.1",
            "claude-opus-4-1 claude-opus-4-1-20250805 claude-sonnet-4-0 claude-sonnet-4-20250514 claude-opus-4 "
            "claude-3-7-sonnet-latest anthropic/claude-3.7-sonnet anthropic/claude-sonnet-4",
        ),
        (
            "Claude 3.5 and older",
            "claude-3-5-haiku-20241022 anthropic/claude-3.5-haiku claude-3-opus-latest claude-2.1",
        ),
        ("Gemini 3.5 Flash-Lite, 3.6 and later", "gemini-3.5-flash-lite gemini-3.6-flash google/gemini-3.8-flash"),
        ("Gemini 3, 3.1, 3.5", "gemini-3-pro-preview gemini-3.1-pro-preview models/gemini-3.5-flash"),
        ("Gemini 2.5", "gemini-2.5-pro gemini-2.5-flash-lite"),
        ("Grok 2, Grok 3, non-reasoning Grok", "grok-3 grok-2-1212 grok-4.20-0309-non-reasoning x-ai/grok-3-beta"),
        ("Grok 3 mini", "grok-3-mini-fast"),
        ("Grok 4.3 and later", "grok-4.3 x-ai/grok-4.5 grok-4.7 grok-5 grok-latest"),
        (
            "Grok 4 to 4.20, Grok Code",
            "grok-4 grok-4-0709 grok-4-1-fast-reasoning grok-4.20-reasoning grok-code-fast-1",
        ),
        ("DeepSeek V4", "deepseek-v4-pro deepseek-flash deepseek-ai/DeepSeek-V4.1-Flash-1017"),
        ("Kimi K3", "kimi-k3 kimi-k3.1-pro moonshotai/Kimi-K3"),
        ("Kimi K2.5 to K2.7", "kimi-k2.5 kimi-k2.7-code"),
        ("", "deepseek-chat kimi-k2-0905-preview glm-4.7 mistral-large-latest gemma-3-27b-it"),
        ("GLM-5.2 and later", "glm-5.2 zai-org/GLM-5.3-Flash"),
        ("Mistral Small 4, Medium 3.5", "mistral-small-latest mistral-medium-3-5 mistralai/mistral-medium-3.5"),
        ("Llama 3", "llama-3.1-8b-instant meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_names_belong_to_their_family_in_the_spelling_of_each_host(family: str, names: str) -> None:
    assert {name: name_of(name) for name in names.split()} == dict.fromkeys(names.split(), family)


@pytest.mark.parametrize(
    "spec", ["openrouter:anthropic/claude-opus-4.8", "openrouter:openai/gpt-5.6", "huggingface:openai/gpt-5.6"]
)
def test_what_a_model_lacks_it_lacks_at_every_host(spec: str) -> None:
    model = resolve(spec, env=ENV)
    assert not model.abilities.temperature
    assert model.abilities.stop == ("claude" in spec)
    assert model.abilities.max_tokens  # only OpenAI itself calls it max_completion_tokens


def test_an_endpoint_of_no_known_host_knows_the_families_too() -> None:
    own = ModelConfig.from_mapping({"endpoints": {"mine": {"base_url": "http://gateway/v1", "model": "x-ai/grok-4.5"}}})
    sent = json.loads(resolve("mine", own, env={}).encode(Think("act", (user("q"),), stop=("x",))).body)
    assert "stop" not in sent


def test_what_only_the_makers_host_refuses_other_hosts_get() -> None:
    think = Think("act", (user("q"),), temperature=0.5)
    asked = {
        spec: "temperature" in json.loads(resolve(spec, env=ENV).encode(think).body)
        for spec in ("moonshot:kimi-k2.6", "together:moonshotai/Kimi-K2.6", "moonshot:kimi-k2-0905-preview")
    }
    assert list(asked.values()) == [False, True, True]
    assert not resolve("groq:llama-3.3-70b-versatile", env=ENV).abilities.schema
    assert resolve("together:meta-llama/Llama-3.3-70B-Instruct-Turbo", env=ENV).abilities.schema


@pytest.mark.parametrize("name", ["gpt-5.6", "o3"])
def test_a_server_at_another_address_gets_chat_completions_unless_a_wire_is_set(name: str) -> None:
    assert resolve(f"openai:{name}", env=ENV).wire == "responses"
    moved = resolve(f"openai:{name}", env={"OPENAI_BASE_URL": "https://proxy.example/v1"})
    assert moved.wire == "chat" and not moved.abilities.stop
    proxy = {"base_url": "https://proxy.example/v1"}
    assert resolve(f"openai:{name}", ModelConfig.from_mapping({"endpoints": {"openai": proxy}}), env={}).wire == "chat"
    own = ModelConfig.from_mapping({"endpoints": {"openai": {**proxy, "wire": "responses"}}})
    assert resolve(f"openai:{name}", own, env={}).wire == "responses"


@pytest.mark.parametrize("host", ["anthropic", "gemini"])
def test_a_host_with_one_wire_of_its_own_keeps_it_at_another_address(host: str) -> None:
    name = HOSTS[host].example
    assert resolve(f"{host}:{name}", env={f"{host.upper()}_BASE_URL": "https://proxy.example"}).wire == host
