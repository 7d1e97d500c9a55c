"""How commands build an agent from options, environment, `plait.toml` and defaults, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import structs

from plait import loops
from plait.agent import Agent
from plait.cli.options import journal_path
from plait.config import RunDefaults, load
from plait.core import CodeLimits, Loop
from plait.core.errors import ConfigError
from plait.core.text import decode_text
from plait.hooks import load_hook
from plait.journal.records import RunHead
from plait.loops.registry import AUTO_LOOP
from plait.models.resolve import add_to_spec
from plait.models.settings import (
    NO_SETTINGS,
    ModelSettings,
    phases_with_settings,
    read_agent_settings,
)
from plait.runtime.agent_description import fields_for_replay
from plait.runtime.limits import Limits
from plait.runtime.sessions import History
from plait.sandbox import AUTO
from plait.search import load_embedder
from plait.user_files import read_file

# A phase may be one of the fallback loop: `react.act`.
_PHASE = re.compile(r"([A-Za-z_]\w*(?:[.-]\w+)*)=(.+)", re.DOTALL)
LIMITS = {
    "max_steps": "steps",
    "max_calls": "calls",
    "max_tokens": "tokens",
    "max_cost": "usd",
    "max_seconds": "seconds",
}
"""The field of `Limits` that each option sets."""


def make_agent(
    *,
    loop: str | None = None,
    settings: Sequence[str] = (),
    models: Sequence[str] = (),
    model_settings: Sequence[str] = (),
    tools: Sequence[str] = (),
    prompts: str | None = None,
    journal: str | None = None,
    no_journal: bool = False,
    system: str | None = None,
    instructions: str | None = None,
    schema: str | None = None,
    approve: str | None = None,
    no_ask: bool = False,
    embedder: str | None = None,
    grounding: str | None = None,
    taint: str | None = None,
    hooks: Sequence[str] = (),
    sandbox: str | None = None,
    code_limit: Sequence[str] = (),
    max_tools: int | None = None,
    defaults: RunDefaults | None = None,
    **limits: float | None,
) -> Agent:
    """Return the agent that the options describe. `defaults` is a table of `plait.toml`, None for `[run]`.

    Raises `ConfigError`.
    """
    defaults = defaults if defaults is not None else load().run
    if journal is not None and no_journal:
        raise ConfigError("--journal and --no-journal contradict each other.", hint="Give one of them.")
    loop = loop or os.environ.get("PLAIT_LOOP") or defaults.loop or AUTO_LOOP
    most = _merge_limits(defaults, limits)
    # The options in the file belong to the loop in the file. Another loop may not have them.
    options = {**(defaults.set if loop == (defaults.loop or AUTO_LOOP) else {}), **parse_pairs(settings)}
    for_all, by_phase = split_models(models)
    general = for_all or os.environ.get("PLAIT_MODEL")
    own_settings = read_agent_settings(defaults.model_settings, "plait.toml: model_settings")
    if general not in (None, defaults.model):
        own_settings = {}  # they belong to the file's models
    return Agent(
        loops.make(loop, options) if options else loop,
        model=general or defaults.model or "local",
        # A model for all phases from an option or the environment overrides the file's models of single phases.
        models=by_phase if general else {**defaults.models, **by_phase},
        settings=merge_settings(own_settings, parse_model_settings(model_settings)),
        tools=tuple(tools) or tuple(defaults.tools),
        limits=Limits(
            **most,
            tools=defaults.max_tools if max_tools is None else max_tools,
            code=_parse_code_limits(code_limit, defaults.code),
        ),
        prompts=prompts or defaults.prompts,
        system=read_text(system) if system is not None else None,
        instructions=read_instructions(instructions) if instructions is not None else defaults.instructions or "",
        output=read_schema(schema) if (schema := schema or defaults.schema) is not None else cast(Any, str),
        journal=False if no_journal else journal_path(journal, defaults),
        approve=cast(Any, approve or defaults.approve or "never"),
        can_ask=not no_ask,
        history=History(embedder=_check_embedder(embedder or defaults.embedder)),
        grounding=cast(Any, grounding or defaults.grounding or "off"),
        taint=cast(Any, taint or defaults.taint or "off"),
        hooks=tuple(map(load_hook, dict.fromkeys((*defaults.hooks, *hooks)))),
        sandbox=sandbox or defaults.sandbox or AUTO,
    )


def make_recorded_agent(
    head: RunHead,
    *,
    journal: str | None,
    loop: str | None = None,
    settings: Sequence[str] = (),
    models: Sequence[str] = (),
    model_settings: Sequence[str] = (),
    tools: Sequence[str] = (),
    prompts: str | None = None,
    load_tools: bool = False,
    on_interrupted_call: str | None = None,
    replay: bool = False,
    **limits: float | None,
) -> Agent:
    """Return the agent of a recorded run, changed by the options. Raises `ConfigError`.

    For a `replay`, its models and tools are those of the record, unless tools are given.
    """
    changes: dict[str, Any] = fields_for_replay(head) if replay and not load_tools else {}
    recorded = head.loop["name"]
    name = loop or recorded
    if loop or settings:
        options = head.loop["options"] if name == recorded else {}
        changes["loop"] = loops.make(name, {**options, **parse_pairs(settings)})
    for_all, by_phase = split_models(models)
    if for_all:
        changes.update(model=for_all, models=by_phase)
    elif by_phase or name != recorded:
        phases = loops.make(name).phases
        before = {phase: str(model["spec"]) for phase, model in head.models.items() if phase in phases}
        changes["models"] = {**before, **by_phase}
    given = {"tools": tuple(tools) or None, "prompts": prompts, "on_interrupted_call": on_interrupted_call}
    changes.update({name: value for name, value in given.items() if value is not None})
    agent = Agent.from_journal(head, journal=journal_path(journal), load_tools=load_tools or None, **changes)
    agent = _change_settings(agent, parse_model_settings(model_settings))
    new_limits = {field: limits[name] for name, field in LIMITS.items() if limits.get(name)}
    return agent.using(limits=structs.replace(agent.limits, **new_limits)) if new_limits else agent


def _change_settings(agent: Agent, given: Mapping[str, ModelSettings]) -> Agent:
    """Return the agent of a recorded run with settings that win over those in its models' specs."""
    models = {**dict.fromkeys(phases_with_settings(given), agent.model), **agent.models, "": agent.model}
    named = {phase: add_to_spec(str(model), phase, changes=given) for phase, model in models.items()}
    return agent.using(model=named.pop(""), models=named, settings=given) if given else agent


def comparison_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the agent's fields that all runs of a comparison share. Fields that no option sets are left out."""
    names = ("prompts", "grounding", "taint", "sandbox")
    fields = {name: flags[name] for name in names if flags.get(name) is not None}
    if flags.get("hooks"):
        fields["hooks"] = tuple(map(load_hook, flags["hooks"]))
    if flags.get("system") is not None:
        fields["system"] = read_text(flags["system"])
    code = _parse_code_limits(flags.get("code_limit") or (), {})
    fields["limits"] = Limits(**_merge_limits(RunDefaults(), flags), tools=flags.get("max_tools"), code=code)
    return fields


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


def merge_settings(base: Mapping[str, ModelSettings], over: Mapping[str, ModelSettings]) -> dict[str, ModelSettings]:
    """Return the settings by phase of two mappings. Those of `over` win."""
    return {**base, **{phase: each.over(base.get(phase, NO_SETTINGS)) for phase, each in over.items()}}


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


def read_text(name: str) -> str:
    """Return the text of a file with its line ends, in whatever encoding it is. Raises `ConfigError`."""
    path = Path(name).expanduser()
    if path.is_dir():
        raise ConfigError(f"{name} is a folder.", hint="Name a file in it.")
    if not path.exists():
        raise ConfigError(f"There is no file {name}.", hint=f"Plait looked for {path.absolute()}.")
    try:
        text = decode_text(read_file(path))
    except OSError as why:
        raise ConfigError(f"{name} cannot be read: {why.strerror}.") from why
    if text is None:
        raise ConfigError(f"{name} is not text.", hint="Save it as text in UTF-8.")
    return text


def read_instructions(given: str) -> str:
    """Return the text of `--instructions`: the words themselves, or the content of `@FILE`. Raises `ConfigError`."""
    return read_text(given[1:]).strip() if given.startswith("@") else given


def read_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema in a file. Raises `ConfigError` if it is not a JSON object."""
    try:
        schema = msgspec.json.decode(read_text(name))
    except msgspec.DecodeError as why:
        raise ConfigError(f"{name} is not JSON: {why}.", hint="Give a JSON Schema.") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"{name} holds no JSON object.", hint='Give a JSON Schema, such as {"type": "object"}.')
    return schema


def _merge_limits(defaults: RunDefaults, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits that are set, by the fields of `Limits`. An option overrides the default."""
    values = {
        field: flags.get(name) if flags.get(name) is not None else getattr(defaults, name)
        for name, field in LIMITS.items()
    }
    return {field: value for field, value in values.items() if value is not None}


def _parse_code_limits(flags: Sequence[str], defaults: Mapping[str, Any]) -> CodeLimits:
    values = {**defaults, **parse_pairs(flags, "--code-limit", "seconds=5")}
    for name in values:
        if name not in CodeLimits.__struct_fields__:
            known = ", ".join(CodeLimits.__struct_fields__)
            raise ConfigError(f"There is no limit '{name}' of code.", hint=f"There are: {known}.")
    try:
        return msgspec.convert(values, CodeLimits, strict=False)
    except msgspec.ValidationError as why:
        raise ConfigError(f"The limits of code can't be used: {why}.") from why


def _check_embedder(word: str | None) -> str:
    """Check the embedder before anything runs, because a session uses it only at its first search."""
    if word is None or word == "local":
        return "local"
    load_embedder(word)
    return word
