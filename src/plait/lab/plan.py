"""The plan of a comparison: loops with their models, and a cell for each task with each of them.

A cell has a digest of everything that could change its result: the task, the loop with its options, prompts and
models, the tools, the limits. If the same cell is planned again, its result is found. If a prompt changes, the cells
are new.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from plait import __version__, config
from plait.agent import Agent
from plait.core import Loop, traits_of
from plait.core.errors import ConfigError
from plait.core.text import suggest
from plait.lab.comparison import Contender
from plait.lab.graders import grader_digest
from plait.lab.tasks import Suite, SuiteTask, digest
from plait.loops import OURS, fallback_of, loop_from, make, options_of, parse_loops, phases_of, word_of
from plait.models.base import Model
from plait.models.fallback import FallbackModels
from plait.models.resolve import add_settings, add_to_spec, resolve
from plait.models.settings import NO_SETTINGS, AgentSettings, ModelSettings, choose_settings, phases_with_settings
from plait.runtime.agents.agent_fields import find_prompts, record_settings
from plait.runtime.templates.prompts import PromptBook
from plait.tools import tools_from

AnyModel: TypeAlias = str | Model
BLOCK = 8
"""Number of tasks that each contender does before the next contender's turn. An interrupted table then covers the same
tasks for all, and a local model still finds the beginning of a prompt in its cache."""

_NOT_IN_DIGEST = {"rate", "abilities", "checked"}
_NOT_IN_DIGEST_OF_LOCAL = {"threads", "slots", "cache_mib"}
"""Parts of a model's description that change its price or speed, but not its replies."""


TEXTS = ("prompts", "system", "instructions")
"""The fields of an agent whose texts can be compared."""


@dataclass(frozen=True)
class Variant:
    """A loop with options, and a model for each phase ("" for all other phases).

    `agent` is the compared agent that it is of, and `name` its name; None for a loop alone. `texts` are the fields of
    `TEXTS` that it changes, and `text` their name. `is_other_loop`: the agent has this loop in place of its own.
    """

    loop: Loop
    models: Mapping[str, AnyModel]
    agent: Agent | None = None
    name: str = ""
    text: str = ""
    texts: Mapping[str, Any] = field(default_factory=dict)
    is_other_loop: bool = False

    def contender(self) -> Contender:
        """Return the variant as the table names it."""
        word = self.name or word_of(self.loop)
        word += f"/{word_of(self.loop)}" if self.is_other_loop else ""
        general = self.models.get("")
        models = ((phase, self.models.get(phase, general)) for phase in self.loop.phases)
        specs = {phase: model if isinstance(model, str) else str(getattr(model, "spec", "")) for phase, model in models}
        whole = len(set(specs.values())) == 1
        who = next(iter(specs.values())) if whole else " ".join(f"{phase}={spec}" for phase, spec in specs.items())
        who += f" · {self.text}" if self.text else ""
        texts = {name: given if isinstance(given, str) else str(given) for name, given in self.texts.items()}
        return Contender(f"{word} @ {who}", word, who, specs, self.name, texts)


def make_variants(
    loops: Iterable[str | Loop] | str = "react",
    models: Iterable[AnyModel] | AnyModel | None = None,
    phases: Mapping[str, Iterable[AnyModel] | AnyModel] | None = None,
    rows: Iterable[Mapping[str, AnyModel]] | None = None,
    settings: Iterable[AgentSettings] | AgentSettings = NO_SETTINGS,
    agents: Mapping[str, Agent] | Iterable[Agent] | Agent = (),
    texts: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Variant, ...]:
    """Combine each loop, or each agent (with each loop, if both are given), with each model, each combination of the
    models of single phases, each of `settings`, and each of `texts`.

    `loops`: words such as `react` or `react(dialect=lines)`, loops as objects, or "all". `rows` are the wanted
    combinations of models by phase, beside those of `phases`. If a loop has none of the
    phases, it is compared once per general model. The models' specs name the settings. `models`: None for "local", and
    for an agent's own. `texts` maps a name to fields of `TEXTS`. Raises `ConfigError` for a phase that no loop has.
    """
    named = _name_agents(agents)
    others: list[Loop] = []
    for each in parse_loops(loops) if isinstance(loops, str) else loops:
        if each == "all":
            others += map(make, OURS)
        else:
            others.append(loop_from(each) if isinstance(each, str) else each)
    made: list[tuple[str, Agent | None, Loop]] = [("", None, loop) for loop in others if not named]
    for name, given_agent in named.items():
        for loop in others:
            kept = {phase: model for phase, model in given_agent.models.items() if phase in phases_of(loop)}
            made.append((name, given_agent.using(loop=loop, models=kept), loop))
        made += [] if others else [(name, given_agent, given_agent._loop)]
    for name, fields in (texts or {}).items():
        if wrong := sorted(fields.keys() - {*TEXTS}):
            raise ConfigError(f"The texts {name!r} have a field '{wrong[0]}'.", hint=f"They have: {', '.join(TEXTS)}.")
    single = {phase: _list_models(each) for phase, each in (phases or {}).items()}
    wanted = [dict(zip(single, each, strict=True)) for each in product(*single.values())]
    if rows is not None:
        wanted = [{**first, **row} for first in wanted for row in rows]
    several = [settings] if isinstance(settings, ModelSettings | Mapping) else list(settings)
    set_phases = [phase for each in several for phase in phases_with_settings(each)]
    known = {phase for _, _, loop in made for phase in phases_of(loop)}
    for phase in dict.fromkeys([*single, *(phase for row in wanted for phase in row), *set_phases]):
        if phase not in known:
            hint = suggest(phase, sorted(known), f"They have: {', '.join(sorted(known))}.")
            raise ConfigError(f"None of these loops has a phase '{phase}'.", hint=hint)
    found: dict[str, Variant] = {}
    for name, agent, loop in made:
        own = phases_of(loop)
        usual: Mapping[str, AnyModel] = agent.models if agent is not None and models is None else {}
        general = _list_models(models if models is not None else agent.model if agent is not None else "local")
        for model, row, given, text in product(general, wanted, several, (texts or {"": {}}).items()):
            by_phase: dict[str, AnyModel] = {**dict.fromkeys(phases_with_settings(given), model), **usual, **row}
            of_loop = {"": model, **{phase: each for phase, each in by_phase.items() if phase in own}}
            set_models = {phase: _add_settings(each, phase, given) for phase, each in of_loop.items()}
            variant = Variant(loop, set_models, agent, name, text[0], text[1], bool(others and named))
            found.setdefault(variant.contender().key, variant)
    if not found:
        raise ConfigError("There is nothing to compare.", hint="Name at least one loop and one model.")
    return tuple(found.values())


@dataclass(frozen=True)
class Cell:
    """One task for one contender, once. `digest` identifies everything that could change its result."""

    digest: str
    contender: str
    task: SuiteTask
    grader: str
    repeat: int
    agent: Agent

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that the cell's run asks."""
        agent = self.agent
        used = [agent.models.get(phase, agent.model) for phase in phases_of(agent._loop)]
        return tuple({id(model): model for model in used if not isinstance(model, str)}.values())


@dataclass(frozen=True)
class ComparisonPlan:
    """What is compared. `cells` are in the order of contenders, tasks and repeats."""

    name: str
    suite: Suite
    contenders: tuple[Contender, ...]
    repeat: int
    cells: tuple[Cell, ...]

    def ordered_cells(self) -> Sequence[Cell]:
        """Return the cells in the order in which they run: see `BLOCK`."""
        tasks, of = len(self.suite.tasks), len(self.suite.tasks) * self.repeat
        turns: list[Cell] = []
        for start in range(0, tasks, BLOCK):
            stop = min(start + BLOCK, tasks)
            for row in range(len(self.contenders)):
                turns.extend(self.cells[row * of + start * self.repeat : row * of + stop * self.repeat])
        return turns

    def head(self) -> dict[str, Any]:
        """Return what the journal stores of the comparison."""
        return {
            "suite": msgspec.to_builtins(self.suite),
            "contenders": msgspec.to_builtins(self.contenders),
            "repeat": self.repeat,
            "cells": [cell.digest for cell in self.cells],
            "plait": __version__,
        }


def make_plan(
    suite: Suite,
    variants: Iterable[Variant],
    *,
    repeat: int = 1,
    name: str = "",
    agent: Agent,
    tools: Sequence[object] = (),
) -> ComparisonPlan:
    """Plan the cells of a comparison. `agent` has all settings except loop, models and tools; `tools` go to every task.
    Raises `ConfigError` for an invalid model, tool or setting, before anything runs."""
    if not suite.tasks:
        raise ConfigError(f"{suite.word} has no task.", hint="Check the limit and the split.")
    if repeat < 1:
        raise ConfigError(f"Each task can't be run {repeat} times.", hint="Give 1 or more.")
    graders = {word: grader_digest(word) for word in dict.fromkeys(map(suite.grader_of, suite.tasks))}
    if agent.limits.tools is None:
        agent = agent.using(limits=msgspec.structs.replace(agent.limits, tools=suite.max_tools))
    settings = config.load().models

    @cache
    def resolve_word(word: str) -> Model:
        return resolve(word, settings)

    @cache
    def tools_digest_of(words: tuple[str, ...]) -> str:
        return digest([tool.spec for tool in tools_from((*words, *tools))])

    contenders, cells = [], []
    for variant in variants:
        counted: dict[str, int] = {}
        given = variant.models.items()
        models = {phase: resolve_word(each) if isinstance(each, str) else each for phase, each in given}
        general = models.pop("")
        loop_agent = agent.using(loop=variant.loop, model=general, models=models, **variant.texts)
        if variant.agent is not None:
            loop_agent = variant.agent.using(
                model=general, models=models, journal=agent.journal, can_ask=False, **variant.texts
            )
        own_tools = tuple(variant.agent.tools) if variant.agent is not None else ()
        loop_agent._parts.check_prices()
        contender = variant.contender()
        contenders.append(contender)
        loop = loop_agent._loop
        phases = {phase: loop_agent.models.get(phase, loop_agent.model) for phase in phases_of(loop)}
        described = {
            "loop": [loop.name, options_of(loop)],
            "prompts": _prompt_texts(loop, find_prompts(loop_agent)),
            "models": {phase: _describe_model(model) for phase, model in phases.items()},
            "settings": {key: value for key, value in record_settings(loop_agent).items() if key != "prompts"},
            "plait": __version__,
        }
        same = digest([described, *_digest_functions(variant.agent)])
        agents: dict[Any, Agent] = {}
        for task in suite.tasks:
            words, grader = suite.tools_of(task), suite.grader_of(task)
            # Tasks with the same tools share one agent, so that it builds an index of its tools once.
            if words not in agents:
                agents[words] = loop_agent.using(tools=(*own_tools, *words, *tools))
            asked = (task.question, task.answer, words, task.now, grader, graders[grader])
            asks = digest([same, asked, tools_digest_of(words)])
            for turn in range(repeat):
                counted[asks] = counted.get(asks, -1) + 1  # on over equal tasks: each has runs of its own
                cell = digest([asks, counted[asks]])
                cells.append(Cell(cell, contender.key, task, grader, turn, agents[words]))
    of_all = digest([[cell.digest for cell in cells], suite.word])
    word = Path(suite.word).stem if "/" in suite.word else suite.word
    made = name or f"{re.sub('[^a-z0-9]+', '-', word.lower()).strip('-')}-{of_all[:6]}"
    return ComparisonPlan(made, suite, tuple(contenders), repeat, tuple(cells))


def _prompt_texts(loop: Loop, given: Path | Mapping[str, str] | None) -> dict[str, str]:
    """Return the prompts of a loop, and of the loop that it may fall back to."""
    book = PromptBook(loop.name, given, traits_of(loop).prompts)
    other = fallback_of(loop)
    below = _prompt_texts(other, given) if other is not None else {}
    return {**below, **{f"{loop.name}/{name}": book.source(name) for name in book.names()}}


def _describe_model(model: AnyModel) -> Mapping[str, Any]:
    assert not isinstance(model, str)
    if isinstance(model, FallbackModels):
        return {"members": [_describe_model(each) for each in model.members]}
    described = {name: value for name, value in model.describe().items() if name not in _NOT_IN_DIGEST}
    if described.get("provider") == "local":
        params = described["params"].items()
        described["params"] = {name: value for name, value in params if name not in _NOT_IN_DIGEST_OF_LOCAL}
    return described


def _digest_functions(agent: Agent | None) -> Iterator[str]:
    """Yield a digest of the source (the name, without source) of each function of a compared agent that its settings do
    not describe: a change makes its cells new."""
    given = (agent.instructions, agent.make_deps, *(tool.function for tool in agent._parts.toolset)) if agent else ()
    for function in filter(callable, given):
        try:
            yield digest(inspect.getsource(inspect.unwrap(getattr(function, "func", function))))
        except (OSError, TypeError, ValueError):
            yield digest(getattr(function, "__qualname__", type(function).__qualname__))


def _name_agents(agents: Mapping[str, Agent] | Iterable[Agent] | Agent) -> dict[str, Agent]:
    if isinstance(agents, Mapping):
        return dict(agents)
    found: dict[str, Agent] = {}
    for each in [agents] if isinstance(agents, Agent) else agents:
        name = each.name or f"agent {len(found) + 1}"
        if name in found:
            raise ConfigError(f"Two agents have the name {name!r}.", hint='Name them: agents={"a": ..., "b": ...}.')
        found[name] = each
    return found


def _add_settings(model: AnyModel, phase: str, settings: AgentSettings) -> AnyModel:
    if choose_settings(phase, agent=settings).extra_headers:
        hint = 'Set them in plait.toml, under [settings."NAME"].'
        raise ConfigError("extra_headers cannot differ in a comparison, because its table is stored.", hint=hint)
    return add_to_spec(model, phase, agent=settings) if isinstance(model, str) else add_settings(model, phase, settings)


def _list_models(given: Iterable[AnyModel] | AnyModel) -> Sequence[AnyModel]:
    if isinstance(given, str):
        return [each.strip() for each in given.split(",") if each.strip()]
    return [given] if isinstance(given, Model) else list(given)
