"""How commands build an agent from options, environment, `plait.toml` and defaults, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click
from msgspec import structs

from plait import loops
from plait.agent import Agent
from plait.cli.options import journal_path
from plait.config import Config, load
from plait.core import Loop
from plait.core.errors import ConfigError
from plait.core.text import clean
from plait.journal.records import RunHead
from plait.journal.store import is_default
from plait.loops.registry import AUTO_LOOP
from plait.models.default_model import choose_model
from plait.models.presets import HOSTS
from plait.models.resolve import add_to_spec
from plait.models.settings import NO_SETTINGS, ModelSettings, phases_with_settings, read_agent_settings
from plait.named_agents import anchor_agent, find_configured_name, load_agent
from plait.runtime.agents.agent_description import change_loop_and_models, fields_for_replay, fields_in
from plait.runtime.agents.agent_fields import OPTIONS, AgentFields
from plait.trust import own_file, risks_of_models

# A phase may be one of the fallback loop: `react.act`.
_PHASE = re.compile(r"([A-Za-z_]\w*(?:[.-]\w+)*)=(.+)", re.DOTALL)
BY_HAND = ("loop", "model", "models", "settings", "journal")
"""The fields of an agent that depend on one another, or on the record."""


@dataclass(frozen=True)
class GivenOptions:
    """What flags, environment and a table of plait.toml say about an agent. `values` is that of `read_values`."""

    loop: str | None
    options: dict[str, Any]
    model: str | None
    models: dict[str, str]
    settings: dict[str, ModelSettings]
    values: dict[str, dict[str, Any]]


def read_changes(
    flags: Mapping[str, Any], table: Mapping[str, Any] = {}, environ: Mapping[str, str] = {}
) -> GivenOptions:
    """Return what these say about an agent. Raises `ConfigError`."""
    loop = flags.get("loop") or environ.get("PLAIT_LOOP") or table.get("loop")
    # The options in the file belong to the loop in the file. Another loop may not have them.
    own_options = table.get("set", {}) if (loop or AUTO_LOOP) == table.get("loop", AUTO_LOOP) else {}
    for_all, by_phase = split_models(flags.get("model", ()))
    general = for_all or environ.get("PLAIT_MODEL")
    settings = read_agent_settings(table.get("model_settings", {}), "plait.toml: model_settings")
    if general not in (None, table.get("model")):
        settings = {}  # they belong to the file's models
    for phase, each in parse_model_settings(flags.get("model_setting", ())).items():
        settings[phase] = each.over(settings.get(phase, NO_SETTINGS))
    options = {**own_options, **parse_pairs(flags.get("set", ()))}
    # A model for all phases from an option or the environment overrides the file's models of single phases.
    models = by_phase if general else {**table.get("models", {}), **by_phase}
    values = read_values(flags, table, environ)
    return GivenOptions(loop, options, general or table.get("model"), models, settings, values)


def make_agent(
    flags: Mapping[str, Any], table: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ
) -> Agent:
    """Return the agent that the flags describe, or else the environment and a table of `plait.toml` (None: `[run]`).
    Flags may name the agent that they change, by `-a`: see `find_agent`. Raises `ConfigError`."""
    if flags.get("journal") is not None and flags.get("no_journal"):
        raise ConfigError("--journal and --no-journal contradict each other.", hint="Give one of them.")
    if word := flags.get("agent"):
        return find_agent(word, flags)
    table = load().run if table is None else table
    wanted = read_changes(flags, table, environ)
    loop = wanted.loop or AUTO_LOOP
    model, why = (wanted.model, "") if wanted.model else choose_model(os.environ)
    if why and not flags.get("quiet"):
        click.echo(f"Model: {clean(model)}, because {clean(why)}. --model names another.", err=True)
    return Agent(
        loops.make(loop, wanted.options) if wanted.options else loop,
        model=model,
        models=wanted.models,
        settings=wanted.settings,
        journal=False if flags.get("no_journal") else journal_path(flags.get("journal"), table),
        **make_fields(wanted.values, AgentFields),
    )


def find_agent(word: str, flags: Mapping[str, Any] = {}) -> Agent:
    """Return the agent that `-a` names, changed by the flags: NAME of `[agents.NAME]` in plait.toml, `module:agent` or
    `file.py:agent`. Raises `ConfigError`."""
    config = load()
    if word in config.agents:
        return make_configured_agent(config, word, flags)
    if ":" not in word and not word.endswith(".py"):
        known = f"plait.toml has {', '.join(config.agents)}." if config.agents else "plait.toml has no [agents.NAME]."
        hint = f"{known} One in Python is module:agent or file.py:agent."
        raise ConfigError(f"There is no agent {word!r}.", hint=hint)
    return change_agent(load_agent(word), read_changes(flags), flags)


def find_only_agent(flags: Mapping[str, Any]) -> str | None:
    """Return the agent that `-a` names, or the only one of a project's plait.toml, if no loop, model or tools are
    given, and no `[run]`."""
    config = load()
    is_other = any(flags.get(name) for name in ("agent", "loop", "model", "tools"))
    if is_other or config.run or len(config.agents) != 1 or config.path in (None, own_file()):
        return flags.get("agent")
    return next(iter(config.agents))


def make_configured_agent(config: Config, name: str, flags: Mapping[str, Any], *, without: str = "") -> Agent:
    """Return the agent of `[agents.NAME]`, changed by the flags, as if its table had no key `without`. One in Python
    takes nothing from `[run]`, and the environment is for the one agent of a command line. Raises `ConfigError`."""
    table = {key: value for key, value in config.agents[name].items() if key != without}
    flags = {**flags, "agent": None}
    if (word := table.get("agent")) is None:
        agent = make_agent(flags, table, {})
    else:
        own = {key: value for key, value in table.items() if key in config.own[name]}
        agent = change_agent(load_agent(word), read_changes(flags, own), flags)
    return agent if agent.name and agent.name != anchor_agent(word or "") else agent.using(name=name)


def change_agent(agent: Agent, changes: GivenOptions, flags: Mapping[str, Any]) -> Agent:
    """Return an agent in Python with what flags and a table say. Its journal is its own, or else the usual one."""
    fields: dict[str, Any] = make_fields(changes.values, agent)
    base = agent.using(loop=agent._loop) if changes.options and agent.loop == AUTO_LOOP else agent
    fields |= change_loop_and_models(base, changes.loop, changes.options, changes.model, changes.models)
    if flags.get("no_journal"):
        fields["journal"] = False
    elif flags.get("journal") is not None or agent.journal is None:
        fields["journal"] = journal_path(flags.get("journal"))
    return add_settings(agent.using(**fields), changes.settings)


def add_settings(agent: Agent, settings: Mapping[str, ModelSettings]) -> Agent:
    """Return the agent with settings that win over its own, and over those in the specs of its models."""
    if not settings:
        return agent
    models = {**dict.fromkeys(phases_with_settings(settings), agent.model), **agent.models, "": agent.model}
    named = {
        phase: add_to_spec(each, phase, changes=settings) if isinstance(each, str) else each
        for phase, each in models.items()
    }
    return agent.using(model=named.pop(""), models=named, settings=settings)


def read_values(
    flags: Mapping[str, Any], table: Mapping[str, Any] = {}, environ: Mapping[str, str] = {}
) -> dict[str, dict[str, Any]]:
    """Return the fields that flags, environment or table set, without those of `BY_HAND`: under "" those of the agent,
    under the name of a field those that this field holds. Raises `ConfigError`."""
    found: dict[str, dict[str, Any]] = {}
    for each in OPTIONS:
        if each.name in BY_HAND and not each.within:
            continue
        usual: Any = environ.get(each.variable) or table.get(each.file_key)
        given = flags.get(each.parameter)
        value = usual if given is None else given
        if each.many == "pairs":
            flag = each.flag.partition(" ")[0]
            value = {**(usual or {}), **parse_pairs(given or (), flag, "seconds=5")} or None
        elif each.many:
            both = tuple(dict.fromkeys((*(usual or ()), *(given or ()))))
            value = (both if each.adds else given or usual) or None
        elif each.switch is not None:
            value = each.switch if given else usual
        if value is not None:
            found.setdefault(each.within, {})[each.name] = each.read(value)
    return found


def make_fields(values: Mapping[str, Mapping[str, Any]], base: AgentFields[Any, Any] | type[Any]) -> dict[str, Any]:
    """Return the fields of an agent with what `read_values` found. `base` has the others of a field that holds some."""
    held = {name: structs.replace(getattr(base, name), **given) for name, given in values.items() if name}
    return {**values.get("", {}), **held}


def make_recorded_agent(
    head: RunHead, flags: Mapping[str, Any], *, journal: str | None, load_tools: bool = False, replay: bool = False
) -> Agent:
    """Return the agent that goes on with a recorded run, changed by the flags. Raises `ConfigError`.

    It is the one that `-a` names, or that of plait.toml by whose name the run was made, or one that is made of the
    record. Nothing that a record names is imported. For a `replay` without `-a`, models and tools are those of the
    record, unless tools are given.
    """
    same = {**flags, "journal": journal}
    if word := flags.get("agent"):
        return find_agent(word, same) if replay else _with_models_of(find_agent(word, same), head, same)
    if not replay and head.agent and (name := find_configured_name(load(), head.agent)):
        return _with_models_of(make_configured_agent(load(), name, same), head, same)
    held = [each for each in OPTIONS if each.within and each.many == "pairs"]  # these change what is recorded
    recorded = {each.file_key: head.settings.get(each.within, {}).get(each.name) for each in held}
    changes = read_changes(flags, recorded)
    fields = changes.values.get("", {})
    if replay and not load_tools:
        fields = {**fields_for_replay(head), **fields}
    base = AgentFields(**{**fields_in(head, tools_given=True, load_code=False), **fields})
    fields |= change_loop_and_models(base, changes.loop, changes.options, changes.model, changes.models)
    fields = {**make_fields(changes.values, base), **fields}
    agent = Agent.from_journal(head, journal=journal_path(journal), load_tools=load_tools or None, **fields)
    return add_settings(agent, changes.settings)


def _with_models_of(agent: Agent, head: RunHead, flags: Mapping[str, Any]) -> Agent:
    """Return the agent with the models that a run was made with, unless flags name others, or a recorded one cannot be
    made here. A journal that is not the user's default one names no file or plug-in as a model: it could answer for
    the model, and call the agent's tools."""
    found = agent._access.resolve_all(agent._parts.given_models, agent.settings, False).items()
    own = {phase: model.spec for phase, model in found}
    recorded = {phase: str(model["spec"]) for phase, model in head.models.items()}
    phases = agent._loop.phases
    same = all(recorded.get(each, recorded.get("")) == own.get(each, own.get("")) for each in phases)
    known = {*HOSTS, *load().models.endpoints}
    is_foreign = not is_default(agent.journal or None)
    risks = risks_of_models({"models": recorded, "model": "local"}, known, "") if is_foreign else ()
    if same or any(risks) or flags.get("model"):
        return agent
    with suppress(ConfigError):
        return agent.using(model=recorded.pop("", agent.model), models=recorded)
    return agent


def make_loops(words: str, settings: Sequence[str]) -> list[Loop]:
    """Return the loops of a list of words, with the options of --set; each of several takes those that it has. Raises
    `ConfigError`."""
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
