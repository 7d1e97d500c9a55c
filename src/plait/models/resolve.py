"""Makes a model from a user's word: `provider:name`, `local`, `scripted:FILE`, or a plug-in's word."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

from msgspec import UNSET, Struct, structs

from plait.core.errors import ConfigError
from plait.core.secrets import SHORTEST
from plait.core.text import suggest
from plait.installation import plugins
from plait.models.base import Model
from plait.models.chat import SILENCE, ChatModel
from plait.models.config import Endpoint, EndpointConfig, ModelConfig, convert_table
from plait.models.fallback import SEPARATOR, join_models, members_of, split_fallbacks
from plait.models.families import media_of
from plait.models.presets import HOSTS, LOCAL_TEMPERATURE, THREADS, abilities_of, check_key, wire_of
from plait.models.prices import (
    LOCAL,
    UNKNOWN,
    Price,
    Rate,
    bundled_context,
    bundled_rate,
    find_by_name,
    own_service_tiers,
)
from plait.models.rate_limits import RateLimit
from plait.models.settings import (
    NO_SETTINGS,
    AgentSettings,
    ModelSettings,
    choose_settings,
    split_settings,
    takes_settings,
    write_settings,
)
from plait.models.special_tokens import tokens_of_family
from plait.models.wires.wire import load_wire
from plait.pickles import names_credential, require_no_credentials, require_variable

logger = logging.getLogger("plait")

PLUGINS = "plait.models"
"""Entry points of this group are called as `plugin(name, config)` and return a `Model`."""


def resolve(
    spec: str,
    config: ModelConfig | None = None,
    *,
    env: Mapping[str, str] | None = None,
    require_key: bool = True,
    settings: AgentSettings = NO_SETTINGS,
    phase: str = "",
) -> Model:
    """Return the model that `spec` names, or the fallback models of `a|b`. Sends nothing and uses no network.

    `env` (the environment by default) holds keys and addresses. `require_key=False` is for a model that is only
    described. `settings` are those of an agent, of which the model gets those for its phase; its spec then names them
    too. Raises `ConfigError` for an unknown word or a missing key.
    """
    config = config or ModelConfig()
    env = os.environ if env is None else env
    members = []
    for each in split_fallbacks(add_to_spec(spec, phase, agent=settings)):
        bare, own = split_settings(each.strip())
        model = _resolve(bare, config, env, require_key)
        names = _names_of(bare, model.name)
        stated = find_by_name(names, config.abilities)
        if stated and isinstance(model, Struct) and "abilities" in model.__struct_fields__:
            if isinstance(model, ChatModel):
                model = structs.replace(model, stated_abilities=(*model.stated_abilities, *stated))
            model = structs.replace(model, abilities=structs.replace(model.abilities, **stated))
        by_name = find_by_name(names, config.settings) or NO_SETTINGS
        chosen = choose_settings(phase, name=own, agent=settings, table=by_name)
        if isinstance(model, ChatModel):
            requested = "" if chosen.service_tier is UNSET else chosen.service_tier
            tiers = own_service_tiers(names, config.prices)
            model = structs.replace(model, rate=model.rate.add_service_tiers(tiers, requested))
        members.append(_set_settings(model, each.strip(), chosen) if chosen != NO_SETTINGS else model)
    return join_models(tuple(members))


def _set_settings(model: Model, spec: str, settings: ModelSettings) -> Model:
    if isinstance(model, ChatModel):
        load_wire(model.wire).name_settings(settings, model.provider)  # raises an error for those without a field
    if takes_settings(model):
        return cast(Model, structs.replace(model, spec=spec, settings=settings))
    raise ConfigError(f"{model.spec} takes no settings.", hint="Models behind HTTP and local models take them.")


def add_settings(model: Model, phase: str, settings: AgentSettings) -> Model:
    """Return a model with an agent's settings for a phase, named in its spec. Raises `ConfigError` if it takes none."""
    if choose_settings(phase, agent=settings) == NO_SETTINGS:
        return model
    members = []
    for each in members_of(model):
        chosen = choose_settings(phase, name=getattr(each, "settings", NO_SETTINGS), agent=settings)
        members.append(_set_settings(each, split_settings(each.spec)[0] + write_settings(chosen), chosen))
    return join_models(tuple(members))


def add_to_spec(
    spec: str, phase: str = "", *, agent: AgentSettings = NO_SETTINGS, changes: AgentSettings = NO_SETTINGS
) -> str:
    """Return a spec, or fallback specs, with the settings for a phase behind each name."""
    if choose_settings(phase, agent=agent, changes=changes) == NO_SETTINGS:
        return spec
    pairs = (split_settings(each) for each in split_fallbacks(spec))
    return SEPARATOR.join(
        bare + write_settings(choose_settings(phase, changes=changes, name=own, agent=agent)) for bare, own in pairs
    )


def _resolve(spec: str, config: ModelConfig, env: Mapping[str, str], require_key: bool) -> Model:
    provider, _, name = spec.partition(":")
    name = name.strip()
    if provider == "local":
        from plait.models.embedded import require_package
        from plait.models.local import local_model

        if require_key:
            require_package(name)
        rate = _own_rate(spec, name, config) or config.electricity or LOCAL
        return local_model(name, config.local, rate=rate, env=env)
    if provider == "scripted":
        if not name:
            raise ConfigError("scripted: needs a file of replies.", hint="Write scripted:replies.json.")
        from plait.models.scripted import Scripted

        return Scripted.from_file(name, rate=_own_rate(spec, name, config) or UNKNOWN, params=config.params)
    if provider in config.endpoints:
        return _model_of_endpoint(spec, provider, name, config.endpoints[provider], config, env, require_key)
    if provider in HOSTS:
        host = HOSTS[provider]
        if not name:
            raise ConfigError(f"{spec!r} names no model.", hint=f"Write {provider}:NAME.")
        address, key_env, key = host.find_access(spec, env, "a local model: local", require_key=require_key)
        endpoint = EndpointConfig(base_url=address, kind=provider, key_env=key_env)
        model = _chat_model(spec, name, endpoint, config, key=key, base_env=host.base_env)
        return structs.replace(model, rate_limit=config.rate_limits.get(provider))
    return _model_of_plugin(spec, provider, name, config)


class ModelAccess(Struct, frozen=True):
    """What models are resolved with: a configuration, and the keys and addresses of an environment.

    An agent keeps those with which it was made. A pickle holds the configuration and the addresses, but no key: the
    process that loads it reads the keys from its own environment.
    """

    config: ModelConfig
    env: Mapping[str, str]

    @classmethod
    def take(cls, config: ModelConfig) -> ModelAccess:
        """Return the access that a configuration and this process's environment give now."""
        names = _HOST_VARIABLES.union(*(_variables_of(name, config) for name in config.endpoints))
        return cls(config, {name: value for name in names.intersection(os.environ) if (value := os.environ.get(name))})

    def __repr__(self) -> str:  # msgspec's own repr would show the keys
        return f"ModelAccess({self.config.source!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        for name, endpoint in self.config.endpoints.items():
            require_no_credentials(f"{self.config.source}: endpoints.{name}", endpoint.headers)
        return _load_access, (self.config, {name: self.env[name] for name in _ADDRESSES if name in self.env})

    def __deepcopy__(self, memo: object) -> ModelAccess:
        return self

    def require_same_keys(self, words: Iterable[str]) -> None:
        """Raise `TypeError` if the environment has other keys now for these models than the agent was made with."""
        for spec in (each for word in words for each in split_fallbacks(word)):
            for name in _variables_of(spec.partition(":")[0], self.config):
                if name in self.env:
                    require_variable(f"An agent with {spec}", self.env[name].strip(), name)

    def resolve_all(
        self, wanted: Mapping[str, str | Model], settings: AgentSettings = NO_SETTINGS, require_key: bool = True
    ) -> dict[str, Model]:
        """Resolve the models of phases, with the settings of each. Raises `ConfigError` as `resolve` does."""
        try:
            return {
                phase: resolve(
                    model, self.config, env=self.env, require_key=require_key, settings=settings, phase=phase
                )
                if isinstance(model, str)
                else add_settings(model, phase, settings)
                for phase, model in wanted.items()
            }
        except ConfigError as why:
            late = [name for name in re.findall(r"\w+", why.message) if name not in self.env and os.environ.get(name)]
            if "is not set" not in why.message or not late:
                raise
            raise ConfigError(
                f"{why.message.removesuffix('.')}, or was not when the agent was made.",
                hint=f"An agent keeps the keys that it was made with. Set {late[0]} first, then make the agent.",
            ) from None


def _load_access(config: ModelConfig, addresses: Mapping[str, str]) -> ModelAccess:
    """Return the access of a pickle, with the keys of this process."""
    here = ModelAccess.take(config).env
    return ModelAccess(config, {**{name: here[name] for name in here.keys() - _ADDRESSES}, **addresses})


def _variables_of(provider: str, config: ModelConfig) -> frozenset[str]:
    """Return the environment variables of a provider's keys."""
    if (endpoint := config.endpoints.get(provider)) is None:
        return frozenset(HOSTS[provider].keys if provider in HOSTS else ())
    headers = (_variable_in(value) for value in endpoint.headers.values() if value.startswith("$"))
    return frozenset(filter(None, (endpoint.key_env, *headers)))


_ADDRESSES = frozenset((*(host.base_env for host in HOSTS.values()), THREADS))
_HOST_VARIABLES = _ADDRESSES.union(*(host.keys for host in HOSTS.values()))


def check_spec(spec: str, config: ModelConfig) -> None:
    """Raise `ConfigError` for a word whose provider is unknown. Needs no key."""
    for each in split_fallbacks(spec):
        provider, _, name = split_settings(each)[0].partition(":")
        if provider in ("local", "scripted") or (provider in HOSTS and name.strip()):
            continue
        if provider not in config.endpoints:
            resolve(each, config)


def require_prices(models: Iterable[Model]) -> None:
    """Raise `ConfigError` if a price is unknown, of a model or of a hosted tool. Its hint has the lines that
    `plait.toml` needs. OpenRouter reports the cost of each reply."""
    models = list(models)
    for model in models:
        hosted = getattr(model, "hosted", ()) if getattr(model, "provider", "") != "openrouter" else ()
        if words := [each.word for each in hosted if each.name not in model.rate.per_call]:
            said = f"A limit in USD needs the price of a call of {', '.join(words)} at {model.spec}."
            raise ConfigError(f"{said} Plait knows none.", hint="Use a limit in tokens, or another tool.")
    lacking = dict.fromkeys(split_settings(model.spec)[0] for model in models if not model.rate.is_known)
    if not lacking:
        return
    names = ", ".join(lacking)
    lines = "\n".join(f"{json.dumps(name)} = {{ input = 1.00, output = 10.00 }}" for name in lacking)
    hint = f"Add these lines to plait.toml, with the real prices in USD per 1,000,000 tokens:\n\n[prices]\n{lines}"
    raise ConfigError(f"A limit in USD needs the price of every model, and Plait knows none for {names}.", hint=hint)


def providers(config: ModelConfig | None = None) -> list[str]:
    """List every word that may stand before the colon, with those of plug-ins."""
    own = config.endpoints if config else ()
    return sorted({"local", "scripted", *HOSTS, *own, *(point.name for point in plugins(PLUGINS))})


def Chat(name: str = "", *, endpoint: Endpoint, settings: ModelSettings = NO_SETTINGS) -> ChatModel:
    """Return the model `name` at an endpoint, for `Agent(model=...)`. Sends nothing.

    It needs neither plait.toml nor the environment, unless the endpoint names a variable (`key_env`, or a header's
    value that begins with "$"). `a | b` are fallback models. Raises `ConfigError` for a name or key that is missing.
    """
    if not isinstance(endpoint, Endpoint):
        raise ConfigError(f"Chat(endpoint={type(endpoint).__name__}) is invalid.", hint="Give plait.Endpoint(ADDRESS).")
    if not isinstance(name, str) or SEPARATOR in name or name != split_settings(name)[0]:
        hint = "Give the name that the endpoint knows. Settings go into settings=plait.ModelSettings(...)."
        raise ConfigError(f"Chat({name!r}) is no name of a model.", hint=hint)
    spec, config = f"{endpoint.name}:{name or endpoint.model}", ModelConfig(source="Endpoint")
    model = _model_of_endpoint(spec, endpoint.name, name, endpoint, config, os.environ, True)
    return cast(ChatModel, add_settings(model, "", settings))


def _model_of_endpoint(
    spec: str,
    provider: str,
    name: str,
    endpoint: EndpointConfig,
    config: ModelConfig,
    env: Mapping[str, str],
    require_key: bool,
) -> ChatModel:
    name = name or endpoint.model
    where = f"endpoints.{provider}"
    if not name:
        raise ConfigError(f"{spec!r} names no model.", hint=f"Write {provider}:NAME, or give {where}.model.")
    key = endpoint.key if isinstance(endpoint, Endpoint) else ""
    key = key or env.get(endpoint.key_env, "").strip()
    if endpoint.key_env and not key and require_key:
        hint = f"Set it in the environment, or take key_env out of {where} ({config.source})."
        raise ConfigError(f"{spec} needs a key, and {endpoint.key_env} is not set.", hint=hint)
    if require_key:
        check_key(key, f"{endpoint.key_env} ({where}.key_env)")
    hidden: dict[str, str] = {}
    secret: dict[str, str] = {}
    for header, value in endpoint.headers.items():
        if value.startswith("$"):
            variable = hidden[header] = _variable_in(value)
            secret[header] = env.get(variable, "").strip()
            if not secret[header] and require_key:
                header = f"{config.source}: {where}.headers.{header}"
                raise ConfigError(f"{header} needs {variable}, which is not set.", hint="Set it in the environment.")
            if require_key:
                check_key(secret[header], f"{variable} ({where}.headers)")
            _warn_of_short_secret(secret[header], variable)
        elif names_credential(header):
            hidden[header] = ""
    model = _chat_model(spec, name, endpoint, config, key=key, base_env=f"{where}.base_url")
    return structs.replace(model, headers={**model.headers, **secret}, hidden=hidden)


def _variable_in(header: str) -> str:
    """Return the environment variable that holds a header's value, which begins with "$"."""
    return header[1:].strip("{}")


def _chat_model(
    spec: str, name: str, endpoint: EndpointConfig, config: ModelConfig, *, key: str, base_env: str
) -> ChatModel:
    _warn_of_short_secret(key, endpoint.key_env or f"the key for {endpoint.base_url}")
    local = bool(endpoint.kind) and HOSTS[endpoint.kind].local
    tokens = endpoint.special_tokens
    wire = endpoint.wire or wire_of(endpoint.kind, name, endpoint.base_url)
    context_tokens = endpoint.context_tokens
    limits = {name: getattr(endpoint, name) for name in RateLimit.__struct_fields__}
    limit = convert_table(limits, RateLimit, "endpoint")
    price = find_by_name((name,), endpoint.price) if isinstance(endpoint.price, Mapping) else endpoint.price
    rate = _own_rate(spec, name, config) or (price.rate if isinstance(price, Price) else price)
    if rate is None and local:
        rate = config.electricity or LOCAL
    elif rate is None:
        # A server at another address may belong to anybody; use the prices of the host's own address.
        priced_as = endpoint.kind if endpoint.kind and endpoint.base_url == HOSTS[endpoint.kind].base_url else ""
        rate = bundled_rate(priced_as, name, url=endpoint.base_url)
        if priced_as and not context_tokens:
            context_tokens = bundled_context(priced_as, name)
    return ChatModel(
        spec=spec,
        name=name,
        endpoint=endpoint.base_url,
        key=key,
        abilities=structs.replace(
            abilities_of(endpoint.kind, name, wire), **{**media_of(endpoint.kind, name), **endpoint.abilities}
        ),
        rate=rate,
        params={**config.params, **endpoint.params},
        headers=endpoint.headers,
        timeout=endpoint.timeout or config.timeout or SILENCE,
        provider=endpoint.kind,
        key_env=endpoint.key_env,
        base_env=base_env,
        temperature=LOCAL_TEMPERATURE if local else None,
        special_tokens=tokens_of_family(name) if tokens is None else tokens,
        wire=wire,
        rate_limit=None if limit == RateLimit() else limit,
        stated_abilities=tuple(endpoint.abilities),
        context_tokens=context_tokens,
    )


def _own_rate(spec: str, name: str, config: ModelConfig) -> Rate | None:
    return find_by_name(_names_of(spec, name), config.prices)


def _names_of(spec: str, name: str) -> tuple[str, ...]:
    return (spec, f"{spec.partition(':')[0]}:{name}", name)


@lru_cache
def _warn_of_short_secret(secret: str, variable: str) -> None:
    """Warn, once per process, that a key is too short to be removed from output and journals."""
    if secret and len(secret) < SHORTEST:
        logger.warning(
            "%s has fewer than %d characters. Plait does not remove it from replies and the journal, "
            "because it would be found in ordinary words.",
            variable,
            SHORTEST,
        )


def _model_of_plugin(spec: str, provider: str, name: str, config: ModelConfig) -> Model:
    for point in plugins(PLUGINS):
        if point.name == provider:
            try:
                model = point.load()(name, config)
            except ImportError as error:
                raise ConfigError(f"The plug-in {point.value} for {provider!r} can't be loaded: {error}.") from error
            if not isinstance(model, Model):
                raise ConfigError(f"The plug-in {point.value} for {provider!r} gave no model: {model!r}.")
            return model
    known = providers(config)
    if ":" in spec:
        meant = suggest(provider, known, f"There are: {', '.join(known)}.", most=3)
        what = f"{spec!r}: the provider {provider!r} is not known."
        also = f"Another server goes under [endpoints.{provider}] in plait.toml."
    else:
        owner = next((owner for start, owner in _USUAL_NAMES.items() if provider.lower().startswith(start)), "")
        otherwise, what = "A model is written provider:name.", f"{spec!r} is not a model."
        meant = f"Did you mean {owner}:{spec}?" if owner else suggest(provider, known, otherwise, most=3)
        also = f"Providers: {', '.join(known)}."
    raise ConfigError(what, hint=f"{meant} {also}")


_USUAL_NAMES = {
    "gpt": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "gemini",
    "deepseek-": "deepseek",
    "grok": "xai",
    "kimi": "moonshot",
    "glm-": "zai",
    "mistral-": "mistral",
    "qwen2.5-coder": "local",
    "smollm2": "local",
}
