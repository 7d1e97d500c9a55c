"""What a user may set about models: named endpoints, own prices, parameters, electricity. Frozen values.

Reading plait.toml is not done here; `ModelConfig.from_mapping` takes what stood in it, checks it, and says
what is wrong where.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from plait.core.errors import UsageError
from plait.models.base import ABILITIES
from plait.models.prices import Rate


class Endpoint(Struct, frozen=True, kw_only=True):
    """A named endpoint. `NAME:model` asks it; `NAME` alone where `model` is given.

    `kind` is the server's dialect, by the name of a preset ("vllm", "llamacpp", "deepseek" ...): it gives the
    abilities to start from, and is the endpoint's own name where that is a preset's. `key_env` is the
    environment variable that holds the key, "" for none. A header's value that begins with "$" is read from
    the environment and kept secret. `special_tokens` are texts that the server reads as control tokens; without them,
    those of the family in the model's name count.
    """

    base_url: str
    key_env: str = ""
    model: str = ""
    kind: str = ""
    abilities: Mapping[str, bool] = {}
    params: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    price: Rate | None = None
    timeout: float | None = None
    special_tokens: tuple[str, ...] | None = None


class ModelConfig(Struct, frozen=True, kw_only=True):
    """All that is set about models.

    `prices` maps "provider:name", a name or a pattern to rates. `params` are extra body fields for every HTTP
    model. `electricity` is the rate of models on this machine. `local` are options of the embedded model, as
    they stand. `timeout` is the longest silence of an endpoint in seconds.
    """

    endpoints: Mapping[str, Endpoint] = {}
    prices: Mapping[str, Rate] = {}
    params: Mapping[str, Any] = {}
    electricity: Rate | None = None
    local: Mapping[str, Any] = {}
    timeout: float | None = None
    source: str = "plait.toml"
    """The file it was read from, for errors."""

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any], source: str = "plait.toml") -> ModelConfig:
        """The config in a mapping as TOML gives it; keys are those of this class.

        Raises `UsageError` naming `source` and the place in it.
        """
        _known(settings, [name for name in cls.__struct_fields__ if name != "source"], source)
        endpoints = {
            name: _endpoint(name, value, source) for name, value in _table(settings, "endpoints", source).items()
        }
        prices = {
            name: Rate.from_mapping(value, f'{source}: prices."{name}"')
            for name, value in _table(settings, "prices", source).items()
        }
        electricity = None
        if "electricity" in settings:
            electricity = _electricity(settings["electricity"], f"{source}: electricity")
        return cls(
            endpoints=endpoints,
            prices=prices,
            params=_table(settings, "params", source),
            electricity=electricity,
            local=_table(settings, "local", source),
            timeout=_seconds(settings, source),
            source=source,
        )


def _electricity(price: Any, where: str) -> Rate:
    keys = set(price) - {"source", "date"} if isinstance(price, Mapping) else set()
    if keys not in ({"per_1k_tokens"}, {"watts", "tariff"}):
        raise UsageError(
            f"{where} has the keys {', '.join(sorted(keys)) or '(none)'}.",
            hint="Give watts and tariff (USD per kWh), or per_1k_tokens (USD) and neither of them.",
        )
    return Rate.from_mapping(price, where)


def _endpoint(name: str, value: Any, source: str) -> Endpoint:
    from plait.models.presets import PRESETS

    where = f"{source}: endpoints.{name}"
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} should be a table, not {value!r}.", hint="It needs at least a base_url.")
    if name in ("local", "scripted") or ":" in name:
        raise UsageError(f"{where}: an endpoint can't have that name.", hint="Choose another.")
    _known(value, Endpoint.__struct_fields__, where)
    base_url = _text(value, "base_url", where)
    if not base_url:
        raise UsageError(f"{where} has no base_url.", hint='Add one, such as base_url = "http://host:8000/v1".')
    kind = _text(value, "kind", where) or (name if name in PRESETS else "")
    if kind and kind not in PRESETS:
        raise UsageError(f"{where}.kind {kind!r} is not known.", hint=_nearest(kind, PRESETS))
    abilities = _table(value, "abilities", where)
    _known(abilities, ABILITIES, f"{where}.abilities")
    for ability, able in abilities.items():
        if not isinstance(able, bool):
            raise UsageError(f"{where}.abilities.{ability} should be true or false, not {able!r}.")
    headers = _table(value, "headers", where)
    for header, text in headers.items():
        if not isinstance(text, str):
            raise UsageError(f"{where}.headers.{header} should be text, not {text!r}.")
    return Endpoint(
        base_url=checked_address(base_url, f"{where}.base_url"),
        key_env=_text(value, "key_env", where),
        model=_text(value, "model", where),
        kind=kind,
        abilities=abilities,
        params=_table(value, "params", where),
        headers=headers,
        price=Rate.from_mapping(value["price"], f"{where}.price") if "price" in value else None,
        timeout=_seconds(value, where),
        special_tokens=_texts(value, "special_tokens", where),
    )


def checked_address(address: str, where: str) -> str:
    """A base address that can be used and shown. Raises `UsageError`."""
    try:
        parts = urlsplit(address.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{where} is no address: {address!r}.", hint="It looks like https://host/v1.")
    if parts.username is not None or parts.password is not None:
        # Not shown again here: addresses stand in messages and journals, secrets never.
        raise UsageError(f"{where} holds a password.", hint="Put it in the environment and name it in key_env.")
    return address.strip().rstrip("/")


def _known(value: Mapping[str, Any], keys: Any, where: str) -> None:
    for key in value:
        if key not in keys:
            raise UsageError(f"{where} has no setting {key!r}.", hint=_nearest(str(key), keys))


def _nearest(word: str, words: Any) -> str:
    near = get_close_matches(word, list(words), n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(sorted(words))}."


def _table(settings: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = settings.get(key, {})
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {key} should be a table, not {value!r}.")
    return dict(value)


def _text(settings: Mapping[str, Any], key: str, where: str) -> str:
    value = settings.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{where}.{key} should be text, not {value!r}.")
    return value


def _texts(settings: Mapping[str, Any], key: str, where: str) -> tuple[str, ...] | None:
    value = settings.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise UsageError(f"{where}.{key} should be a list of texts, not {value!r}.", hint='Such as ["<|im_end|>"].')
    return tuple(value)


def _seconds(settings: Mapping[str, Any], where: str) -> float | None:
    value = settings.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(f"{where}: timeout should be a number of seconds above 0, not {value!r}.")
    return float(value)
