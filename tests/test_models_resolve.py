"""From the word a user writes to a model, with what is set in the environment and in plait.toml."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest

from conftest import for_each
from plait.core import Think, Usage, user
from plait.core.errors import ConfigError
from plait.models import resolve as resolving
from plait.models.base import Abilities, RequestDialect
from plait.models.config import ModelConfig
from plait.models.presets import HOSTS, Host
from plait.models.prices import Rate
from plait.models.resolve import providers, resolve
from plait.models.scripted import Scripted

KEYS = {
    "OPENAI_API_KEY": " sk-1\n",
    "ANTHROPIC_API_KEY": "a",
    "GOOGLE_API_KEY": "g",
    "OPENROUTER_API_KEY": "o",
}


def config(**settings):
    return ModelConfig.from_mapping(settings)


def test_openai():
    model = resolve("openai:gpt-4o-mini", env=KEYS)
    assert (model.endpoint, model.name, model.key) == ("https://api.openai.com/v1", "gpt-4o-mini", "sk-1")
    assert model.spec == "openai:gpt-4o-mini"
    assert model.abilities.stop
    assert model.rate.cost(Usage(1_000_000, 0)) == 0.15


def test_openai_elsewhere_needs_no_key_and_has_nobodys_price():
    model = resolve("openai:gpt-4o", env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"})
    assert (model.endpoint, model.key) == ("http://127.0.0.1:9/v1", "")
    assert not model.rate.is_known


@pytest.mark.parametrize("name", ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5.2-mini"])
def test_reasoning_models_are_known_to_take_no_stop(name):
    chat = config(endpoints={"openai": {"base_url": "http://gpu/v1", "wire": "chat"}})
    think = Think("a", (user("q"),), stop=("x",), max_tokens=50)
    for own, length in ((chat, "max_completion_tokens"), (None, "max_output_tokens")):
        sent = json.loads(resolve(f"openai:{name}", own, env=KEYS).encode(think).body)
        assert not {"stop", "temperature", "max_tokens"} & set(sent)
        assert sent[length] == 50


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-5-chat-latest", "gpt-50"])
def test_other_models_do(name):
    assert resolve(f"openai:{name}", env=KEYS).abilities.stop
    assert resolve(f"openai:{name}", env=KEYS).abilities.temperature


def test_claude_and_its_prefill():
    assert resolve("anthropic:claude-haiku-4-5", env=KEYS).abilities.prefill
    assert not resolve("anthropic:claude-sonnet-4-6", env=KEYS).abilities.prefill
    assert not resolve("anthropic:claude-opus-5", env=KEYS).abilities.prefill


def test_one_entry_of_the_presets_is_a_whole_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = RequestDialect(max_stop=2, grammar="response_format", prefill="prefix")
    new = Host("acme", "https://api.acme.invalid/v1", Abilities(grammar=True, prefill=True), dialect)
    monkeypatch.setitem(HOSTS, "acme", new)
    model = resolve("acme:m", env={"ACME_API_KEY": "sk-secret"})
    think = Think("a", (user("q"),), stop=("x", "y", "z"), grammar="root ::= x", prefill="Thought:")
    sent = json.loads(model.encode(think).body)
    assert sent["stop"] == ["x", "y"]
    assert sent["response_format"] == {"type": "grammar", "grammar": "root ::= x"}
    assert sent["messages"][-1] == {"role": "assistant", "content": "Thought:", "prefix": True}


@for_each("provider", sorted(HOSTS))
def test_every_preset_resolves_can_be_moved_and_needs_its_key(provider):
    preset = HOSTS[provider]
    moved = resolve(f"{provider}:m", env={preset.base_env: "http://box:1/v1"})
    assert moved.endpoint == "http://box:1/v1"
    if preset.local:
        assert resolve(f"{provider}:m", env={}).rate.cost(Usage(5, 5)) == 0.0
        return
    with pytest.raises(ConfigError, match=preset.keys[0]):
        resolve(f"{provider}:m", env={})
    assert resolve(f"{provider}:m", env={preset.keys[-1]: "k"}).secrets == ("k",)
    assert resolve(f"{provider}:m", env={preset.keys[-1]: "k"}).key_env == preset.keys[-1]


def test_a_named_endpoint():
    settings = {
        "endpoints": {
            "mine": {
                "base_url": "http://gpu:8000/v1/",
                "kind": "vllm",
                "key_env": "MINE_KEY",
                "model": "llama",
                "abilities": {"stop": False},
                "params": {"top_k": 5},
                "headers": {"X-Org": "$ORG", "X-Plain": "p"},
                "price": {"input": 1, "output": 2},
                "timeout": 9,
            }
        },
        "params": {"seed": 7, "top_k": 1},
    }
    model = resolve("mine:qwen", config(**settings), env={"MINE_KEY": "k", "ORG": "secret-org"})
    assert (model.name, model.endpoint, model.provider) == ("qwen", "http://gpu:8000/v1", "vllm")
    assert (model.abilities.stop, model.abilities.grammar) == (False, True)
    assert model.params == {"seed": 7, "top_k": 5}
    assert model.headers == {"X-Org": "secret-org", "X-Plain": "p"}
    assert set(model.secrets) == {"k", "secret-org"}
    assert "secret-org" not in repr(model.describe()) + repr(model)
    assert model.rate.cost(Usage(1_000_000, 0)) == 1.0
    assert model.timeout == 9
    assert resolve("mine", config(**settings), env={"MINE_KEY": "k", "ORG": "o"}).name == "llama"
    with pytest.raises(ConfigError, match="MINE_KEY is not set"):
        resolve("mine", config(**settings), env={})
    with pytest.raises(ConfigError, match="ORG, which is not set"):
        resolve("mine", config(**settings), env={"MINE_KEY": "k"})


def test_a_preset_can_be_put_elsewhere_in_the_file():
    model = resolve("vllm:x", config(endpoints={"vllm": {"base_url": "http://gpu/v1"}}), env={})
    assert (model.endpoint, model.provider, model.abilities.completion) == ("http://gpu/v1", "vllm", True)


def test_the_wire_of_an_endpoint_is_its_kinds_or_its_own():
    assert resolve("vllm:x", env={}).wire == "chat"
    plain = config(endpoints={"a": {"base_url": "http://gpu/v1", "model": "m"}})
    assert resolve("a", plain, env={}).wire == "chat"
    own = config(endpoints={"a": {"base_url": "http://gpu/v1", "model": "m", "kind": "anthropic", "wire": "chat"}})
    assert resolve("a", own, env={}).wire == "chat"


def test_electricity_is_what_local_servers_cost():
    watts = config(electricity={"watts": 100, "tariff": 0.36})
    assert resolve("ollama:x", watts, env={}).rate.cost(Usage(1, 1), 3600) == 0.036
    own = config(electricity={"watts": 100, "tariff": 0.36}, prices={"ollama:x": {"per_1k_tokens": 1}})
    assert resolve("ollama:x", own, env={}).rate.kind == "per_1k"


def test_the_embedded_model_gets_its_options_and_its_electricity():
    model = resolve("local", config(local={"n_ctx": 512}, electricity={"per_1k_tokens": 0.001}), env={})
    assert model.spec == "local"
    assert model.server.n_ctx == 512
    assert model.rate.cost(Usage(500, 500)) == 0.001
    assert resolve("local").rate.cost(Usage(5, 5)) == 0.0


@for_each(
    "spec, says",
    [
        ("opnai:gpt-4o", "openai"),
        ("gpt-4o", "openai:gpt-4o"),
        ("claude-opus-5", "anthropic:claude-opus-5"),
        ("", "provider:name"),
        ("nothing-like-it:x", r"\[endpoints\.nothing-like-it\]"),
        ("openai:", "openai:NAME"),
        ("openai", "openai:NAME"),
        ("scripted:", "scripted:replies.json"),
        ("scripted:/no/such/file.json", "can't be read"),
    ],
)
def test_what_is_not_known_says_what_to_write(spec, says):
    with pytest.raises(ConfigError, match=says):
        resolve(spec, env=KEYS)


@for_each(
    "settings, says",
    [
        ({"endpoint": {}}, "Did you mean endpoints"),
        ({"endpoints": {"a": {}}}, r"endpoints\.a has no base_url"),
        ({"endpoints": {"a": {"base_url": "gpu:8000"}}}, r"endpoints\.a\.base_url is not an address"),
        ({"endpoints": {"a": {"base_url": "http://u:pw@gpu"}}}, "holds a password"),
        ({"endpoints": {"a": {"base_url": "http://gpu", "abilities": {"stopp": True}}}}, "Did you mean stop"),
        ({"endpoints": {"a": {"base_url": "http://gpu", "abilities": {"stop": "no"}}}}, "true or false"),
        ({"endpoints": {"a": {"base_url": "http://gpu", "kind": "vlm"}}}, "Did you mean vllm"),
        ({"endpoints": {"a": {"base_url": "http://gpu", "wire": "chatt"}}}, r"a\.wire 'chatt' .*Did you mean chat"),
        ({"endpoints": {"a": {"base_url": "http://gpu", "timeout": 0}}}, "a.timeout should be above 0, not 0"),
        ({"endpoints": {"a": {"base_url": "http://gpu", "price": {"in": 1}}}}, "per million"),
        ({"endpoints": {"local": {"base_url": "http://gpu"}}}, "can't have that name"),
        ({"endpoints": {"a": "http://gpu"}}, "should be a table"),
        ({"prices": {"x": {"input": 1}}}, r'prices\."x"'),
        ({"params": 3}, "my.toml: params should be a table"),
        ({"electricity": {"watts": 3}}, r"electricity has the keys watts\. Give watts and tariff"),
        ({"electricity": {"input": 1, "output": 2}}, r"electricity has the keys input, output\. Give watts"),
        ({"electricity": 3}, r"electricity has the keys \(none\)"),
        ({"electricity": {"watts": -3, "tariff": 1}}, "watts should be a number of 0 or more"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        ModelConfig.from_mapping(settings, "my.toml")
    assert "my.toml" in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_moved_address_that_is_none_names_the_variable():
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is not an address"):
        resolve("openai:m", env={"OPENAI_BASE_URL": "localhost:8000"})


def plugin(name, config):
    return Scripted([name], name=name) if name != "broken" else None


def test_a_plug_in_by_its_entry_point(monkeypatch):
    point = EntryPoint("extra", f"{__name__}:plugin", resolving.PLUGINS)
    monkeypatch.setattr(resolving, "plugins", lambda group: [point])
    assert resolve("extra:x").name == "x"
    assert "extra" in providers()
    with pytest.raises(ConfigError, match="gave no model"):
        resolve("extra:broken")


def test_a_script_has_the_price_that_the_user_gives_it(tmp_path):
    script = tmp_path / "one.json"
    script.write_text('["It is 4."]')
    own = ModelConfig(prices={f"scripted:{script}": Rate("tokens", 1.0, 2.0)})
    assert resolve(f"scripted:{script}", own).rate == Rate("tokens", 1.0, 2.0)
    assert not resolve(f"scripted:{script}", ModelConfig()).rate.is_known
