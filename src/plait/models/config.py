"""The settings of models in plait.toml: named endpoints, prices, parameters, electricity. Frozen values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from plait.core.errors import ConfigError
from plait.core.text import suggest
from plait.models.base import ABILITIES
from plait.models.presets import HOSTS, check_address
from plait.models.prices import Rate
from plait.models.rate_limits import NAMES, RateLimit, read_rate_limit
from plait.models.settings import ModelSettings, read_settings
from plait.models.wires.wire import WIRES

T = TypeVar("T")


class EndpointConfig(Struct, frozen=True, kw_only=True):
    """A named endpoint. Use it as `NAME:model`, or as `NAME` alone if `model` is set.

    `kind` is the server's dialect by the name of a known host ("vllm", "deepseek" ...). It sets the initial abilities;
    the default is the endpoint's own name if it is a known host. `key_env` is the environment variable that holds the
    key. A header's value that begins with "$" is read from the environment and kept secret. `special_tokens` are texts
    that the server reads as control tokens; the default follows from the model's name. `wire` names the protocol; the
    default follows from `kind` and the model's name.
    `context_tokens` is the size of the models' context; the default is what the bundled table says.
    `requests_per_minute` and `tokens_per_minute` limit the requests of this process to the endpoint.
    """

    base_url: str = ""
    key_env: str = ""
    model: str = ""
    kind: str = ""
    abilities: dict[str, bool] = {}
    params: dict[str, Any] = {}
    headers: dict[str, str] = {}
    price: Rate | None = None
    timeout: float | None = None
    special_tokens: tuple[str, ...] | None = None
    wire: str = ""
    context_tokens: int = 0
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class ModelConfig(Struct, frozen=True, kw_only=True):
    """All settings of models.

    `prices` maps "provider:name", a name or a pattern to rates, `settings` to the settings of requests, `abilities` to
    what the model can do ({"schema": False}). `rate_limits` maps a known host to its limits. `params` are more body
    fields for every HTTP model. `electricity` is the rate of models on this machine. `local` are options of the
    embedded model. `timeout` is the longest silence of an endpoint in seconds. `source` is the file, for errors.
    """

    endpoints: dict[str, EndpointConfig] = {}
    prices: dict[str, Rate] = {}
    settings: dict[str, ModelSettings] = {}
    abilities: dict[str, dict[str, bool]] = {}
    rate_limits: dict[str, RateLimit] = {}
    params: dict[str, Any] = {}
    electricity: Rate | None = None
    local: dict[str, Any] = {}
    timeout: float | None = None
    source: str = "plait.toml"

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any], source: str = "plait.toml") -> ModelConfig:
        """Read the settings from a mapping as TOML gives it. Raises `ConfigError` with `source` and the place in it."""
        _check_names(settings, set(cls.__struct_fields__) - {"source"}, source)
        tables = {
            key: _convert(settings.get(key, {}), dict[str, Any], f"{source}: {key}")
            for key in ("endpoints", "prices", "settings", "abilities", "rate_limits", "params", "local")
        }
        return cls(
            endpoints={name: _endpoint(name, value, source) for name, value in tables["endpoints"].items()},
            prices={
                name: Rate.from_mapping(value, f'{source}: prices."{name}"') for name, value in tables["prices"].items()
            },
            settings={
                name: read_settings(_convert(value, dict[str, Any], place), place)
                for name, value in tables["settings"].items()
                for place in [f'{source}: settings."{name}"']
            },
            abilities={
                name: _read_abilities(value, f'{source}: abilities."{name}"')
                for name, value in tables["abilities"].items()
            },
            rate_limits=_rate_limits(tables["rate_limits"], tables["endpoints"], f"{source}: rate_limits"),
            params=tables["params"],
            electricity=_electricity(settings, f"{source}: electricity"),
            local=tables["local"],
            timeout=_seconds(settings, source),
            source=source,
        )


def _read_abilities(value: Any, where: str) -> dict[str, bool]:
    abilities = _convert(value, dict[str, bool], where)
    _check_names(abilities, ABILITIES, where)
    return abilities


def _rate_limits(table: Mapping[str, Any], endpoints: Mapping[str, Any], where: str) -> dict[str, RateLimit]:
    found: dict[str, RateLimit] = {}
    for name, value in table.items():
        if name in endpoints:
            hint = f"Set requests_per_minute or tokens_per_minute in [endpoints.{name}]."
            raise ConfigError(f"{where}.{name}: an endpoint has its limits in its own table.", hint=hint)
        if name not in HOSTS:
            raise ConfigError(f"{where}.{name}: the host {name!r} is not known.", hint=_nearest(name, HOSTS))
        limits = _convert(value, dict[str, Any], f"{where}.{name}")
        _check_names(limits, NAMES, f"{where}.{name}")
        if (limit := read_rate_limit(limits, f"{where}.{name}")) is not None:
            found[name] = limit
    return found


def _electricity(settings: Mapping[str, Any], where: str) -> Rate | None:
    if "electricity" not in settings:
        return None
    price = settings["electricity"]
    keys = set(price) - {"source", "date"} if isinstance(price, Mapping) else set()
    if keys not in ({"per_1k_tokens"}, {"watts", "tariff"}):
        raise ConfigError(
            f"{where} has the keys {', '.join(sorted(keys)) or '(none)'}.",
            hint="Give watts and tariff (USD per kWh), or per_1k_tokens (USD) and neither of them.",
        )
    return Rate.from_mapping(price, where)


def _endpoint(name: str, value: Any, source: str) -> EndpointConfig:
    where = f"{source}: endpoints.{name}"
    if name in ("local", "scripted") or ":" in name:
        raise ConfigError(f"{where}: an endpoint can't have that name.", hint="Choose another.")
    table = _convert(value, dict[str, Any], where)
    _check_names(table, EndpointConfig.__struct_fields__, where)
    timeout = _seconds(table, where)
    read_rate_limit(table, where)
    price = Rate.from_mapping(table["price"], f"{where}.price") if "price" in table else None
    endpoint = _convert({**table, "price": None, "timeout": timeout}, EndpointConfig, where)
    if not endpoint.base_url:
        raise ConfigError(f"{where} has no base_url.", hint='Add one, such as base_url = "http://host:8000/v1".')
    kind = endpoint.kind or (name if name in HOSTS else "")
    if kind and kind not in HOSTS:
        raise ConfigError(f"{where}.kind {kind!r} is not known.", hint=_nearest(kind, HOSTS))
    if endpoint.wire and endpoint.wire not in WIRES:
        raise ConfigError(f"{where}.wire {endpoint.wire!r} is not known.", hint=_nearest(endpoint.wire, WIRES))
    if endpoint.context_tokens < 0:
        raise ConfigError(f"{where}.context_tokens should be 0 or more, not {endpoint.context_tokens}.")
    _check_names(endpoint.abilities, ABILITIES, f"{where}.abilities")
    if endpoint.special_tokens and not all(endpoint.special_tokens):
        raise ConfigError(f"{where}.special_tokens has an empty text.", hint='Give texts such as ["<|im_end|>"].')
    base_url = check_address(endpoint.base_url, f"{where}.base_url")
    return structs.replace(endpoint, base_url=base_url, kind=kind, price=price)


def _convert(value: Any, kind: type[T], where: str) -> T:
    """Check the types of a table's values."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        found = re.fullmatch(r"Expected `([^`]+)`, got `[^`]+`", what)
        wanted = [_WORDS.get(kind, kind) for kind in found[1].split(" | ") if kind != "null"] if found else []
        what = f"should be {' or '.join(wanted)}" if wanted else what
        raise ConfigError(f"{where}{path.strip('`').removeprefix('$')} {what}, not {value!r}.") from None


_WORDS = {"object": "a table", "bool": "true or false", "str": "text", "array": "a list"}


def _check_names(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where} has no setting {key!r}.", hint=_nearest(str(key), known))


def _nearest(word: str, words: Iterable[str]) -> str:
    return suggest(word, words, f"There are: {', '.join(sorted(words))}.", most=3, cutoff=0.5)


def _seconds(table: Mapping[str, Any], where: str) -> float | None:
    value = table.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigError(f"{where}: timeout should be a number of seconds above 0, not {value!r}.")
    return float(value)
