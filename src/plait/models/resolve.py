"""From the word a user writes to a model: `provider:name`, `local`, `scripted:FILE`, a plug-in's."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from msgspec import structs

from plait.core.errors import UsageError
from plait.core.secrets import SHORTEST
from plait.models.base import Abilities, Model
from plait.models.chat import SILENCE, ChatModel
from plait.models.config import Endpoint, ModelConfig, checked_address
from plait.models.presets import LOCAL_TEMPERATURE, PRESETS, Preset, abilities_of
from plait.models.prices import LOCAL, Rate, rate_for
from plait.models.special_tokens import tokens_of_family
from plait.plugins import plugins

logger = logging.getLogger("plait")

PLUGINS = "plait.models"
"""Entry points of this group are called as `plugin(name, config)` and return a `Model`."""


def resolve(
    spec: str, config: ModelConfig | None = None, *, env: Mapping[str, str] | None = None, date: str = ""
) -> Model:
    """The model that `spec` names. Asks nothing of it and uses no network.

    `env` (the environment by default) holds keys and addresses; `date` (today by default) chooses among
    prices. Raises `UsageError` for what is not known, and for a key that is missing.
    """
    config = config or ModelConfig()
    env = os.environ if env is None else env
    provider, _, name = spec.strip().partition(":")
    name = name.strip()
    if provider == "local":
        from plait.models.local import local_model

        rate = config.prices.get(spec) or _electric("local", name, config)
        return local_model(name, {"local": config.local}, rate=rate)
    if provider == "scripted":
        if not name:
            raise UsageError("scripted: needs a file of replies.", hint="Write scripted:replies.json.")
        from plait.models.scripted import Scripted

        return Scripted.from_file(name)
    if provider in config.endpoints:
        return _named(spec, provider, name, config.endpoints[provider], config, env, date)
    if provider in PRESETS:
        if not name:
            raise UsageError(f"{spec!r} names no model.", hint=f"Write {provider}:NAME.")
        return _preset(spec, provider, name, PRESETS[provider], config, env, date)
    return _plugin(spec, provider, name, config)


def resolve_all(wanted: Mapping[str, str | Model], settings: Callable[[], ModelConfig]) -> dict[str, Model]:
    """The models by phase; what is no object yet is resolved by `settings`, which are read only then."""
    config = settings() if any(isinstance(model, str) for model in wanted.values()) else None
    return {phase: resolve(model, config) if isinstance(model, str) else model for phase, model in wanted.items()}


def providers(config: ModelConfig | None = None) -> list[str]:
    """Every word that may stand before the colon, plug-ins included."""
    own = list(config.endpoints) if config else []
    return sorted({"local", "scripted", *PRESETS, *own, *(point.name for point in _plugins())})


def _preset(
    spec: str,
    provider: str,
    name: str,
    preset: Preset,
    config: ModelConfig,
    env: Mapping[str, str],
    date: str,
) -> ChatModel:
    moved = env.get(preset.base_env, "").strip()
    endpoint = checked_address(moved, preset.base_env) if moved else preset.base_url
    moved_away = endpoint != preset.base_url
    key_env, key = next(((k, env[k].strip()) for k in preset.keys if env.get(k, "").strip()), ("", ""))
    if not (key or preset.local or moved_away):
        raise UsageError(
            f"{spec} needs a key, and {' or '.join(preset.keys)} is not set.",
            hint=f"Set it in the environment (export {preset.keys[0]}=...), or use a local model: local.",
        )
    _warn_of_short_secret(key, key_env)
    if preset.local:
        rate = _electric(provider, name, config)
    else:
        # Another server behind a known word may be anybody's: its own address says whose prices hold.
        priced = "" if moved_away else provider
        rate = config.prices.get(spec) or rate_for(priced, name, config.prices, date=date, url=endpoint)
    return ChatModel(
        spec=spec,
        name=name,
        endpoint=endpoint,
        key=key,
        abilities=abilities_of(provider, name, preset.abilities),
        rate=rate,
        params=dict(config.params),
        timeout=config.timeout or SILENCE,
        provider=provider,
        key_env=key_env or preset.keys[0],
        base_env=preset.base_env,
        temperature=LOCAL_TEMPERATURE if preset.local else None,
        special_tokens=tokens_of_family(name),
    )


def _named(
    spec: str,
    provider: str,
    name: str,
    endpoint: Endpoint,
    config: ModelConfig,
    env: Mapping[str, str],
    date: str,
) -> ChatModel:
    name = name or endpoint.model
    if not name:
        hint = f"Write {provider}:NAME, or give endpoints.{provider}.model."
        raise UsageError(f"{spec!r} names no model.", hint=hint)
    key = env.get(endpoint.key_env, "").strip() if endpoint.key_env else ""
    if endpoint.key_env and not key:
        hint = f"Set it in the environment, or take key_env out of endpoints.{provider} ({config.source})."
        raise UsageError(f"{spec} needs a key, and {endpoint.key_env} is not set.", hint=hint)
    _warn_of_short_secret(key, endpoint.key_env)
    headers, hidden = _headers(f"{config.source}: endpoints.{provider}", endpoint, env)
    start = PRESETS[endpoint.kind].abilities if endpoint.kind else Abilities()
    abilities = structs.replace(abilities_of(endpoint.kind, name, start), **endpoint.abilities)
    rate = config.prices.get(spec) or endpoint.price
    local = bool(endpoint.kind) and PRESETS[endpoint.kind].local
    if rate is None and local:
        rate = _electric(provider, name, config)
    if rate is None:
        rate = rate_for("", name, config.prices, date=date, url=endpoint.base_url)
    return ChatModel(
        spec=spec,
        name=name,
        endpoint=endpoint.base_url,
        key=key,
        abilities=abilities,
        rate=rate,
        params={**config.params, **endpoint.params},
        headers=headers,
        timeout=endpoint.timeout or config.timeout or SILENCE,
        provider=endpoint.kind,
        key_env=endpoint.key_env,
        base_env=f"endpoints.{provider}.base_url",
        hidden=hidden,
        temperature=LOCAL_TEMPERATURE if local else None,
        special_tokens=tokens_of_family(name) if endpoint.special_tokens is None else endpoint.special_tokens,
    )


def _headers(where: str, endpoint: Endpoint, env: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    headers: dict[str, str] = {}
    hidden: list[str] = []
    for header, value in endpoint.headers.items():
        if value.startswith("$"):
            variable = value[1:].strip("{}")
            if not env.get(variable, "").strip():
                raise UsageError(
                    f"{where}.headers.{header} needs {variable}, which is not set.",
                    hint="Set it in the environment.",
                )
            value = env[variable].strip()
            hidden.append(value)
            _warn_of_short_secret(value, variable)
        headers[header] = value
    return headers, tuple(hidden)


@lru_cache
def _warn_of_short_secret(secret: str, variable: str) -> None:
    """Warn, once a process, that a key is too short to be removed from what is shown and stored."""
    if secret and len(secret) < SHORTEST:
        logger.warning(
            "The value of %s has fewer than %d characters. Plait does not remove it from replies and the journal, "
            "because it would be found in ordinary words.",
            variable,
            SHORTEST,
        )


def _electric(provider: str, name: str, config: ModelConfig) -> Rate:
    rate = rate_for(provider, name, config.prices)
    own = rate.known and rate is not LOCAL
    return rate if own else config.electricity or LOCAL


def _plugins() -> list[Any]:
    return list(plugins(PLUGINS))


def _plugin(spec: str, provider: str, name: str, config: ModelConfig) -> Model:
    for point in _plugins():
        if point.name == provider:
            try:
                model = point.load()(name, config)
            except ImportError as error:
                raise UsageError(f"The plug-in {point.value} for {provider!r} can't be loaded: {error}.") from error
            if not isinstance(model, Model):
                raise UsageError(f"The plug-in {point.value} for {provider!r} gave no model: {model!r}.")
            return model
    known = providers(config)
    if ":" not in spec:
        owner = next((p for p, start in _USUAL if provider.lower().startswith(start)), "")
        near = [f"{owner}:{spec}"] if owner else get_close_matches(provider, known, n=3, cutoff=0.6)
        hint = f"Did you mean {' or '.join(near)}?" if near else "A model is written provider:name."
        raise UsageError(f"{spec!r} is no model.", hint=f"{hint} Providers: {', '.join(known)}.")
    near = get_close_matches(provider, known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(known)}."
    raise UsageError(
        f"{spec!r}: the provider {provider!r} is not known.",
        hint=f"{hint} Another server goes under [endpoints.{provider}] in plait.toml.",
    )


_USUAL = (
    ("openai", "gpt"),
    ("openai", "o3"),
    ("openai", "o4"),
    ("anthropic", "claude"),
    ("gemini", "gemini"),
    ("deepseek", "deepseek-"),
    ("xai", "grok"),
    ("mistral", "mistral-"),
    ("local", "qwen2.5-coder"),
    ("local", "smollm2"),
)
