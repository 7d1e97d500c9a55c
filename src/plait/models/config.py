"""The settings of models in plait.toml: named endpoints, prices, parameters, electricity. Frozen values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, structs

from plait.core.errors import ConfigError
from plait.core.text import suggest
from plait.models.base import ABILITIES
from plait.models.presets import HOSTS, check_address, check_key
from plait.models.prices import Price, Rate
from plait.models.rate_limits import RateLimit
from plait.models.settings import ModelSettings, read_settings
from plait.models.wires.wire import WIRES
from plait.pickles import require_no_credentials, require_variable

T = TypeVar("T")
Seconds: TypeAlias = Annotated[float, Meta(gt=0, lt=1e9)]


class EndpointConfig(Struct, frozen=True, kw_only=True):
    """A named endpoint. Use it as `NAME:model`, or as `NAME` alone if `model` is set.

    `kind` is the server's dialect by the name of a known host ("vllm", "deepseek" ...). It sets the initial abilities;
    the default is the endpoint's own name if it is a known host. `key_env` is the environment variable that holds the
    key. A header's value that begins with "$" is read from the environment and kept secret. `special_tokens` are texts
    that the server reads as control tokens; the default follows from the model's name. `wire` names the protocol; the
    default follows from `kind` and the model's name.
    `context_tokens` is the size of the models' context; the default is what the bundled table says.
    `requests_per_minute` and `tokens_per_minute` limit the requests of this process to the endpoint. `price` is for all
    its models.
    """

    base_url: str = ""
    key_env: str = ""
    model: str = ""
    kind: str = ""
    abilities: dict[str, bool] = {}
    params: dict[str, Any] = {}
    headers: dict[str, str] = {}
    price: Rate | None = None
    timeout: Seconds | None = None
    special_tokens: tuple[str, ...] | None = None
    wire: str = ""
    context_tokens: Annotated[int, Meta(ge=0)] = 0
    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    tokens_per_minute: Annotated[int, Meta(ge=1)] | None = None


class _EndpointKey(EndpointConfig, frozen=True, kw_only=True):
    key: str = ""
    name: str = ""
    price: Price | Mapping[str, Price] | None = None  # type: ignore[assignment]


class Endpoint(_EndpointKey, frozen=True):
    """An endpoint that is described in Python: `plait.Chat("gpt-5", endpoint=plait.Endpoint(ADDRESS, key=KEY))`.

    Takes what `[endpoints.NAME]` in plait.toml takes, and `key`, the key itself. `kind` alone names a known host, with
    its address; a known address names the host. `price` is a `Price` for all models, or one for each name or pattern.
    `name` stands before the colon in the names of its models; the default is its host. Keys, and headers that are
    named like one, are never shown, stored or pickled. Raises `ConfigError` for a value that does not fit.
    """

    base_url: str = ""

    def __post_init__(self) -> None:
        where = "Endpoint"
        for name, hint in _ENDPOINT_TYPES.items():
            value = getattr(self, name)
            if name == "key" and not isinstance(value, str):  # the error must not show it
                raise ConfigError(f"{where}: key should be text, not {type(value).__name__}.")
            convert_table(value, hint, f"{where}: {name}")
        prices = self.price.values() if isinstance(self.price, Mapping) else filter(None, (self.price,))
        if any(not isinstance(each, Price) for each in prices):
            hint = 'Give plait.Price(input=1.25, output=10), or {"gpt-5": plait.Price(...)}.'
            raise ConfigError(f"{where}: price is not a price.", hint=hint)
        if self.key and self.key_env:
            raise ConfigError(f"{where} has a key and a key_env.", hint="Give one of them.")
        check_key(self.key, f"{where}: key")
        base_url, kind = _check_endpoint(self, where)
        name = _check_endpoint_name(self.name or urlsplit(base_url).netloc.replace(":", "-"), where)
        for field, found in (("base_url", base_url), ("kind", kind), ("name", name)):
            structs.force_setattr(self, field, found)

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, name={self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("base_url", self.base_url), ("name", self.name)]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.key:
            require_variable(repr(self), self.key, "")
        require_no_credentials(repr(self), self.headers)
        return partial(Endpoint, **{name: getattr(self, name) for name in self.__struct_fields__}), ()

    def __deepcopy__(self, memo: object) -> Endpoint:
        return self


_ENDPOINT_TYPES = {
    name: hint for name, hint in get_type_hints(Endpoint, include_extras=True).items() if name != "price"
}


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
            key: convert_table(settings.get(key, {}), dict[str, Any], f"{source}: {key}")
            for key in ("endpoints", "prices", "settings", "abilities", "rate_limits", "params", "local")
        }
        able = {}
        for name, value in tables["abilities"].items():
            able[name] = convert_table(value, dict[str, bool], f'{source}: abilities."{name}"')
            _check_names(able[name], ABILITIES, f'{source}: abilities."{name}"')
        timeout = settings.get("timeout")
        timeout = None if timeout is None else convert_table(timeout, Seconds, f"{source}: timeout")
        return cls(
            endpoints={name: _endpoint(name, value, source) for name, value in tables["endpoints"].items()},
            prices={
                name: Rate.from_mapping(value, f'{source}: prices."{name}"') for name, value in tables["prices"].items()
            },
            settings={
                name: read_settings(convert_table(value, dict[str, Any], place), place)
                for name, value in tables["settings"].items()
                for place in [f'{source}: settings."{name}"']
            },
            abilities=able,
            rate_limits=_rate_limits(tables["rate_limits"], tables["endpoints"], f"{source}: rate_limits"),
            params=tables["params"],
            electricity=_electricity(settings, f"{source}: electricity"),
            local=tables["local"],
            timeout=timeout,
            source=source,
        )


def _rate_limits(table: Mapping[str, Any], endpoints: Mapping[str, Any], where: str) -> dict[str, RateLimit]:
    found: dict[str, RateLimit] = {}
    for name, value in table.items():
        if name in endpoints:
            hint = f"Set requests_per_minute or tokens_per_minute in [endpoints.{name}]."
            raise ConfigError(f"{where}.{name}: an endpoint has its limits in its own table.", hint=hint)
        if name not in HOSTS:
            raise ConfigError(f"{where}.{name}: the host {name!r} is not known.", hint=_nearest(name, HOSTS))
        limit = convert_table(value, RateLimit, f"{where}.{name}")
        _check_names(value, RateLimit.__struct_fields__, f"{where}.{name}")
        if limit != RateLimit():
            found[name] = limit
    return found


def _electricity(settings: Mapping[str, Any], where: str) -> Rate | None:
    if "electricity" not in settings:
        return None
    price = settings["electricity"]
    keys = set(price) - {"source", "date"} if isinstance(price, Mapping) else set()
    if keys not in ({"per_1k_tokens"}, {"watts", "tariff"}):
        hint = "Give watts and tariff (USD per kWh), or per_1k_tokens (USD) and neither of them."
        raise ConfigError(f"{where} has the keys {', '.join(sorted(keys)) or '(none)'}.", hint=hint)
    return Rate.from_mapping(price, where)


def _endpoint(name: str, value: Any, source: str) -> EndpointConfig:
    where = f"{source}: endpoints.{name}"
    _check_endpoint_name(name, where)
    table = convert_table(value, dict[str, Any], where)
    if "key" in table:
        raise ConfigError(f"{where} holds a key.", hint="Put it in the environment, and name the variable in key_env.")
    _check_names(table, EndpointConfig.__struct_fields__, where)
    price = Rate.from_mapping(table["price"], f"{where}.price") if "price" in table else None
    endpoint = convert_table({**table, "price": None}, EndpointConfig, where)
    if not endpoint.base_url:  # in Python, `kind` alone gives the address; here, the rules of trust must see it
        raise ConfigError(f"{where} has no base_url.", hint='Add one, such as base_url = "http://host:8000/v1".')
    if not endpoint.kind and name in HOSTS:
        endpoint = structs.replace(endpoint, kind=name)
    base_url, kind = _check_endpoint(endpoint, where)
    return structs.replace(endpoint, base_url=base_url, kind=kind, price=price)


def _check_endpoint_name(name: str, where: str) -> str:
    if name in ("local", "scripted") or not _NAMES_ENDPOINT.isdisjoint(name):
        raise ConfigError(f"{where}: an endpoint can't have that name.", hint="Choose another.")
    return name


_NAMES_ENDPOINT = frozenset(":|@")
"""What no endpoint's name has, because it separates the parts of a model's name."""


def _check_endpoint(endpoint: EndpointConfig, where: str) -> tuple[str, str]:
    """Return the address of an endpoint and the known host there, "" for none. Raises `ConfigError`."""
    base_url, kind = endpoint.base_url, endpoint.kind
    if kind and kind not in HOSTS:
        raise ConfigError(f"{where}.kind {kind!r} is not known.", hint=_nearest(kind, HOSTS))
    if not base_url and not kind:
        raise ConfigError(f"{where} has no base_url.", hint='Give an address, or kind="openai".')
    base_url = check_address(base_url or HOSTS[kind].base_url, f"{where}.base_url")
    kind = kind or next((host.name for host in HOSTS.values() if host.base_url == base_url), "")
    if endpoint.wire and endpoint.wire not in WIRES:
        raise ConfigError(f"{where}.wire {endpoint.wire!r} is not known.", hint=_nearest(endpoint.wire, WIRES))
    _check_names(endpoint.abilities, ABILITIES, f"{where}.abilities")
    if endpoint.special_tokens and not all(endpoint.special_tokens):
        raise ConfigError(f"{where}.special_tokens has an empty text.", hint='Give texts such as ["<|im_end|>"].')
    return base_url, kind


def convert_table(value: Any, kind: type[T], where: str) -> T:
    """Convert a table, or one value. Raises `ConfigError` with `where` and the place in it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        path = path.strip("`").removeprefix("$")
        found = re.fullmatch(r"Expected `([^`]+)`(?:, got `[^`]+`| ([<>]=?) (\S+))", what)
        if found and found[2]:
            what = f"should be {_BOUNDS[found[2]].format(float(found[3]))}"
        elif found:
            wanted = [_WORDS.get(kind, kind) for kind in found[1].split(" | ") if kind != "null"]
            what = f"should be {' or '.join(wanted)}"
        value = value.get(re.split(r"\W", f"{path}.")[1], value) if isinstance(value, Mapping) else value
        shown = "another in this table" if isinstance(value, Mapping) else repr(value)  # headers may hold keys
        raise ConfigError(f"{where}{path} {what}, not {shown}.") from None


_BOUNDS = {">=": "{:.15g} or more", ">": "above {:.15g}", "<=": "{:.15g} or less", "<": "below {:.15g}"}
_WORDS = {
    "object": "a table",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
}


def _check_names(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where} has no setting {key!r}.", hint=_nearest(str(key), known))


def _nearest(word: str, words: Iterable[str]) -> str:
    return suggest(word, words, f"There are: {', '.join(sorted(words))}.", most=3, cutoff=0.5)
