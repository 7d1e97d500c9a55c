"""The settings of a model's requests: temperature, effort, tool choice and the like. Unset ones are not sent.

`choose_settings` alone decides which of several settings applies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from plait.core.errors import ConfigError
from plait.pickles import require_no_credentials


class ModelSettings(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Settings of every request to a model. Each wire sends those that it has a field for, under the provider's name.

    `max_tokens` limits one reply; a run's own limit holds too. `stop` replaces the stop strings that are sent; Plait
    still cuts replies at the loop's own. `effort` is how much a model thinks ("none", "low", "high" ...),
    `thinking_tokens` the most tokens for it. `verbosity` is "low", "medium" or "high". `tool_choice` is "auto", "none",
    "required" or a tool's name. `parallel_calls` allows several calls in one turn. `extra_body` are more fields of the
    body, and override everything; `extra_headers` are more headers, whose values the journal does not store.
    """

    temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType = UNSET
    top_p: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    stop: tuple[str, ...] | UnsetType = UNSET
    effort: str | UnsetType = UNSET
    thinking_tokens: int | UnsetType = UNSET
    verbosity: Literal["low", "medium", "high"] | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    tool_choice: str | UnsetType = UNSET
    parallel_calls: bool | UnsetType = UNSET
    extra_body: dict[str, Any] = {}
    extra_headers: dict[str, str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        require_no_credentials("ModelSettings(extra_headers=)", self.extra_headers)
        return partial(ModelSettings, **structs.asdict(self)), ()

    def __deepcopy__(self, memo: object) -> ModelSettings:
        return self

    @property
    def set_values(self) -> dict[str, Any]:
        """Return the settings that are set, without the extra fields."""
        found = structs.asdict(self)
        return {name: found[name] for name in _NAMES if found[name] is not UNSET}

    def over(self, base: ModelSettings) -> ModelSettings:
        """Return these settings, with those of `base` where they are unset."""
        mine = {name: value for name, value in structs.asdict(self).items() if value is not UNSET and value != {}}
        return structs.replace(base, **mine)


NO_SETTINGS = ModelSettings()
AgentSettings: TypeAlias = ModelSettings | Mapping[str, ModelSettings]
"""Settings for all phases, or those of single phases ("" for all)."""
TOOL_CHOICES = ("auto", "none", "required")
_EXTRA = ("extra_body", "extra_headers")
_NAMES = [name for name in ModelSettings.__struct_fields__ if name not in _EXTRA]
_SETTING = re.compile(r"@([a-z_]+)=([^@]*)$")
_PLAIN = re.compile(r"(?![\s\"\[])[^@|,]+(?<!\s)")


def split_settings(spec: str) -> tuple[str, ModelSettings]:
    """Split `openai:gpt-5@effort=low@seed=1` into the model's spec and its settings. Raises `ConfigError` for an
    unknown name or a value that does not fit."""
    given: dict[str, Any] = {}
    rest = spec
    while found := _SETTING.search(rest):
        value: Any = found[2].strip()
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(value, type=tuple[str, ...] if found[1] == "stop" else str)
        given[found[1]] = value
        rest = rest[: found.start()]
    return rest, read_settings(given, repr(spec), strict=False) if given else NO_SETTINGS


def write_settings(settings: ModelSettings) -> str:
    """Return settings as `split_settings` reads them. Headers are left out, because they may be secret."""
    found = {name: _write_value(value) for name, value in settings.set_values.items()}
    if settings.extra_body:
        found["extra_body"] = _escape(settings.extra_body)
    return "".join(f"@{name}={value}" for name, value in found.items())


def _write_value(value: Any) -> str:
    """Return a value as text. A text that would not be read back as it is, is written as JSON."""
    if not isinstance(value, str | tuple):
        return str(value).lower() if isinstance(value, bool) else str(value)
    texts = (value,) if isinstance(value, str) else value
    return ",".join(texts) if texts and all(map(_PLAIN.fullmatch, texts)) else _escape(value)


def _escape(value: Any) -> str:
    """Return JSON without the signs that separate settings and models."""
    return msgspec.json.encode(value).decode().replace("@", r"\u0040").replace("|", r"\u007c")


def takes_settings(model: object) -> TypeGuard[Any]:
    """Return whether a model has settings that can be replaced."""
    return isinstance(model, Struct) and "settings" in model.__struct_fields__


def describe_settings(settings: ModelSettings) -> dict[str, Any]:
    """Return what the journal stores of settings: no headers."""
    found: dict[str, Any] = msgspec.to_builtins(structs.replace(settings, extra_headers={}))
    return found


def choose_settings(
    phase: str = "",
    *,
    recorded: ModelSettings | None = None,
    changes: AgentSettings = NO_SETTINGS,
    name: ModelSettings = NO_SETTINGS,
    agent: AgentSettings = NO_SETTINGS,
    table: ModelSettings = NO_SETTINGS,
) -> ModelSettings:
    """Return the settings of a phase's model. Each setting has the value of the first of these sources that sets it.

    `recorded`: the record of a resumed run; it decides all but the headers, which no record has. `changes`: what a fork
    changes. `name`: settings behind the model's name, or of a model object. `agent`: an agent's. `table`: those in
    plait.toml by the model's name. In one source, the settings for the phase win over those for all phases.
    """
    chosen = NO_SETTINGS
    for source in (table, agent, name, changes):
        by_phase = {"": source} if isinstance(source, ModelSettings) else source
        for key in ("", phase) if phase else ("",):
            chosen = by_phase.get(key, NO_SETTINGS).over(chosen)
    return chosen if recorded is None else structs.replace(recorded, extra_headers=chosen.extra_headers)


def phases_with_settings(given: AgentSettings) -> tuple[str, ...]:
    """Return the phases that have settings of their own."""
    return () if isinstance(given, ModelSettings) else tuple(phase for phase in given if phase)


def read_agent_settings(table: Mapping[str, Any], where: str, *, strict: bool = True) -> dict[str, ModelSettings]:
    """Return the settings by phase ("" for all) of a mapping: `{"effort": "low", "act": {"seed": 1}, "act.top_p": 1}`.

    Raises `ConfigError` with `where`. `strict=False` reads numbers from text.
    """
    found: dict[str, dict[str, Any]] = {}
    for key, value in table.items():
        phase, _, name = key.rpartition(".")
        if isinstance(value, Mapping) and name not in ModelSettings.__struct_fields__:
            found.setdefault(key, {}).update(value)
        else:
            found.setdefault(phase, {})[name] = value
    return {phase: read_settings(own, where, strict=strict) for phase, own in found.items()}


def read_settings(table: Mapping[str, Any], where: str, *, strict: bool = True) -> ModelSettings:
    """Return the settings of a mapping. Raises `ConfigError` with `where`. `strict=False` reads numbers from text."""
    for name in table:
        if name not in ModelSettings.__struct_fields__:
            raise ConfigError(f"{where} has no setting {name!r}.", hint=f"There are: {', '.join(_NAMES)}.")
    values = {**table, **({"stop": table["stop"].split(",")} if isinstance(table.get("stop"), str) else {})}
    try:
        for name in _EXTRA:
            if isinstance(values.get(name), str):
                values[name] = msgspec.json.decode(values[name])
        return msgspec.convert(values, ModelSettings, strict=strict)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where}: {error}.", hint="Such as temperature=0.2, effort=low or seed=1.") from None


def require_known_values(settings: ModelSettings, known: Mapping[str, tuple[str, ...]], provider: str) -> None:
    """Raise `ConfigError` for a value that the provider does not document. `known` are the values by setting."""
    for name, values in known.items():
        value = getattr(settings, name)
        if value is not UNSET and value not in values:
            hint = f"Choose one of {', '.join(values)}; extra_body takes any."
            raise ConfigError(f"{provider} has no {name} {value!r}.", hint=hint)


def require_none_left(left: Mapping[str, Any], wire: str) -> None:
    """Raise `ConfigError` if a wire has no field for some settings."""
    if left:
        raise ConfigError(f"The wire {wire!r} has no field for {', '.join(left)}.", hint="Use extra_body for others.")
