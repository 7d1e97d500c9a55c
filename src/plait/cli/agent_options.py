"""How commands build an agent from options, environment, `plait.toml` and defaults, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from plait import loops
from plait.agent import Agent
from plait.cli.options import journal_path
from plait.config import load
from plait.core import Loop
from plait.core.errors import ConfigError
from plait.journal.records import RunHead
from plait.loops.registry import AUTO_LOOP
from plait.models.resolve import add_to_spec
from plait.models.settings import (
    NO_SETTINGS,
    ModelSettings,
    phases_with_settings,
    read_agent_settings,
)
from plait.runtime.agents.agent_description import fields_for_replay
from plait.runtime.agents.agent_fields import OPTIONS, AgentFields
from plait.runtime.agents.options import Option

# A phase may be one of the fallback loop: `react.act`.
_PHASE = re.compile(r"([A-Za-z_]\w*(?:[.-]\w+)*)=(.+)", re.DOTALL)
BY_HAND = ("loop", "model", "models", "settings", "journal")
"""The fields of an agent that depend on one another, or on the record."""


def make_agent(
    flags: Mapping[str, Any], table: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ
) -> Agent:
    """Return the agent that the flags describe, or else the environment and a table of `plait.toml` (None: `[run]`).

    Raises `ConfigError`.
    """
    table = load().run if table is None else table
    if flags.get("journal") is not None and flags.get("no_journal"):
        raise ConfigError("--journal and --no-journal contradict each other.", hint="Give one of them.")
    loop = flags.get("loop") or environ.get("PLAIT_LOOP") or table.get("loop", AUTO_LOOP)
    # The options in the file belong to the loop in the file. Another loop may not have them.
    own_options = table.get("set", {}) if loop == table.get("loop", AUTO_LOOP) else {}
    options = {**own_options, **parse_pairs(flags.get("set", ()))}
    for_all, by_phase = split_models(flags.get("model", ()))
    general = for_all or environ.get("PLAIT_MODEL")
    own_settings = read_agent_settings(table.get("model_settings", {}), "plait.toml: model_settings")
    if general not in (None, table.get("model")):
        own_settings = {}  # they belong to the file's models
    given = parse_model_settings(flags.get("model_setting", ())).items()
    return Agent(
        loops.make(loop, options) if options else loop,
        model=general or table.get("model", "local"),
        # A model for all phases from an option or the environment overrides the file's models of single phases.
        models=by_phase if general else {**table.get("models", {}), **by_phase},
        settings={**own_settings, **{phase: each.over(own_settings.get(phase, NO_SETTINGS)) for phase, each in given}},
        journal=False if flags.get("no_journal") else journal_path(flags.get("journal"), table),
        **make_fields(read_values(flags, table, environ), AgentFields),
    )


def read_values(
    flags: Mapping[str, Any], table: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the fields that flags, environment or table set, without those of `BY_HAND`: under "" those of the agent,
    under the name of a field those that this field holds. Raises `ConfigError`."""
    found: dict[str, dict[str, Any]] = {}
    for each in OPTIONS:
        if each.name in BY_HAND and not each.within:
            continue
        value = _find_value(each, flags, table or {}, environ or {})
        if value is not None:
            found.setdefault(each.within, {})[each.name] = each.read(value)
    return found


def _find_value(
    option: Option, flags: Mapping[str, Any], table: Mapping[str, Any], environ: Mapping[str, str]
) -> Any | None:
    usual: Any = environ.get(option.variable) or table.get(option.file_key)
    given = flags.get(option.parameter)
    if option.many == "pairs":
        return {**(usual or {}), **parse_pairs(given or (), option.flag.partition(" ")[0], "seconds=5")} or None
    if option.many:
        both = (*(usual or ()), *(given or ()))
        return (tuple(dict.fromkeys(both)) if option.adds else given or usual) or None
    if option.switch is not None:
        return option.switch if given else usual
    return usual if given is None else given


def make_fields(values: Mapping[str, Mapping[str, Any]], base: AgentFields[Any, Any] | type[Any]) -> dict[str, Any]:
    """Return the fields of an agent with what `read_values` found. `base` has the others of a field that holds some."""
    held = {name: structs.replace(getattr(base, name), **given) for name, given in values.items() if name}
    return {**values.get("", {}), **held}


def make_recorded_agent(
    head: RunHead, flags: Mapping[str, Any], *, journal: str | None, load_tools: bool = False, replay: bool = False
) -> Agent:
    """Return the agent of a recorded run, changed by the flags. Raises `ConfigError`.

    For a `replay`, its models and tools are those of the record, unless tools are given.
    """
    changes: dict[str, Any] = fields_for_replay(head) if replay and not load_tools else {}
    recorded, loop, own = head.loop["name"], flags.get("loop"), flags.get("set", ())
    name = loop or recorded
    if loop or own:
        options = head.loop["options"] if name == recorded else {}
        changes["loop"] = loops.make(name, {**options, **parse_pairs(own)})
    for_all, by_phase = split_models(flags.get("model", ()))
    if for_all:
        changes.update(model=for_all, models=by_phase)
    elif by_phase or name != recorded:
        phases = loops.make(name).phases
        before = {phase: str(model["spec"]) for phase, model in head.models.items() if phase in phases}
        changes["models"] = {**before, **by_phase}
    held = [each for each in OPTIONS if each.within and each.many == "pairs"]  # these change what is recorded
    values = read_values(flags, {each.file_key: head.settings.get(each.within, {}).get(each.name) for each in held})
    changes |= values.pop("", {})
    agent = Agent.from_journal(head, journal=journal_path(journal), load_tools=load_tools or None, **changes)
    if settings := parse_model_settings(flags.get("model_setting", ())):  # they win over those in the models' specs
        models = {**dict.fromkeys(phases_with_settings(settings), agent.model), **agent.models, "": agent.model}
        named = {phase: add_to_spec(str(model), phase, changes=settings) for phase, model in models.items()}
        agent = agent.using(model=named.pop(""), models=named, settings=settings)
    return agent.using(**make_fields(values, agent)) if values else agent


def make_loops(words: str, settings: Sequence[str]) -> list[Loop]:
    """Return the loops of a list of words, with the options of --set; each of several takes those that it has.

    Raises `ConfigError`.
    """
    given = parse_pairs(settings)
    parts = [loops.parts_of(word) for word in loops.parse_loops(words)]
    known = [set(loops.options_of(loops.make(name))) for name, _ in parts]
    nobodys = set(given).difference(*known)  # the first loop raises an error for these
    return [
        loops.make(name, {**own, **{key: value for key, value in given.items() if key in has or key in nobodys}})
        for (name, own), has in zip(parts, known, strict=True)
    ]


def parse_pairs(settings: Sequence[str], flag: str = "--set", example: str = "max_parse_errors=5") -> dict[str, str]:
    """Return the `K=V` words of an option as a mapping. Raises `ConfigError` for a word without `=`."""
    found = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise ConfigError(f"{flag} {each}: write it as K=V.", hint=f"For example: {flag} {example}.")
        found[key.strip().replace("-", "_")] = value
    return found


def parse_model_settings(given: Sequence[str]) -> dict[str, ModelSettings]:
    """Return the settings by phase ("" for all) of `--model-setting [PHASE.]K=V`. Raises `ConfigError`."""
    flag = "--model-setting"
    return read_agent_settings(parse_pairs(given, flag, "effort=low"), flag, strict=False)


def split_models(models: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Split `--model SPEC` from `--model PHASE=SPEC`. A spec never begins with a bare word and `=`."""
    for_all: str | None = None
    by_phase: dict[str, str] = {}
    for each in models:
        if match := _PHASE.fullmatch(each):
            by_phase[match[1]] = match[2]
        elif not each.strip():
            raise ConfigError("--model is empty.", hint="For example: local, or openai:NAME.")
        else:
            for_all = each
    return for_all, by_phase
