"""From what is asked for to cells: each task with each loop and its models, as often as is wanted.

A cell has a digest of all that could change it: the task, the loop with its options, prompts and models, the tools,
the limits. Whoever asks for the same cell again finds it finished; whoever changes a prompt gets new cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from plait import __version__, config, loops
from plait.agent import Agent
from plait.core import Strategy
from plait.core.errors import UsageError
from plait.lab.base import Suite, Task, digest
from plait.lab.comparison import Contender
from plait.lab.graders import mark
from plait.lab.variants import AnyModel, Variant
from plait.models.base import Model
from plait.models.resolve import resolve
from plait.runtime.described import settings_of
from plait.runtime.prompts import PromptBook
from plait.tools import tools_from

BLOCK = 8
"""Tasks that each contender does before the next contender has its turn. What there is of a table that was
interrupted is then about the same tasks, and a local model still reads a prompt's beginning from its cache."""

_NOT_PART = {"rate", "abilities", "checked"}
_NOT_PART_OF_LOCAL = {"threads", "slots", "cache_mib"}
"""What of a model's description changes its price or its speed, and not what it says."""


@dataclass(frozen=True)
class Cell:
    """One task for one contender, once. `agent` does it; `digest` stands for all that could change what comes."""

    digest: str
    contender: str
    task: Task
    grader: str
    repeat: int
    agent: Agent

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that are asked."""
        agent = self.agent
        used = [agent.models.get(phase, agent.model) for phase in loops.phases_of(_loop(agent))]
        return tuple({id(model): model for model in used if not isinstance(model, str)}.values())


@dataclass(frozen=True)
class Wanted:
    """What is compared. `cells` are in the order of contenders, tasks and repeats."""

    name: str
    suite: Suite
    contenders: tuple[Contender, ...]
    repeat: int
    cells: tuple[Cell, ...]

    @property
    def in_turn(self) -> Sequence[Cell]:
        """The cells in the order in which they are run: see `BLOCK`."""
        tasks, of = len(self.suite.tasks), len(self.suite.tasks) * self.repeat
        turns: list[Cell] = []
        for start in range(0, tasks, BLOCK):
            stop = min(start + BLOCK, tasks)
            for row in range(len(self.contenders)):
                turns.extend(self.cells[row * of + start * self.repeat : row * of + stop * self.repeat])
        return turns

    def head(self) -> dict[str, Any]:
        """What the journal keeps of the comparison."""
        return {
            "suite": msgspec.to_builtins(self.suite),
            "contenders": msgspec.to_builtins(self.contenders),
            "repeat": self.repeat,
            "cells": [cell.digest for cell in self.cells],
            "plait": __version__,
        }


def plan(
    suite: Suite,
    variants: Iterable[Variant],
    *,
    repeat: int = 1,
    name: str = "",
    agent: Agent,
    tools: Iterable[Any] = (),
) -> Wanted:
    """The cells of a comparison. `agent` has all settings but loop, models and tools; `tools` are for every task.

    Raises `UsageError` for a model, a tool or a setting that can't be, before anything is run.
    """
    if not suite.tasks:
        raise UsageError(f"{suite.word} has no task.", hint="Is the limit, or the split, what you meant?")
    if repeat < 1:
        raise UsageError(f"Each task can't be run {repeat} times.", hint="Give 1 or more.")
    extra = tuple(tools)
    specs = _Specs(extra)
    marks = {word: mark(word) for word in dict.fromkeys(map(suite.grader_of, suite.tasks))}
    if agent.show_tools is None:
        agent = agent.using(show_tools=suite.show_tools)
    models = _Models()
    contenders, cells = [], []
    for variant in variants:
        contenders.append(Contender(variant.key, variant.strategy, variant.who, variant.specs))
        loop = _with_models(agent, variant, models)
        same = digest(_same(loop))
        doing: dict[Any, Agent] = {}
        for task in suite.tasks:
            words, grader = suite.tools_of(task), suite.grader_of(task)
            # One agent for all tasks with the same tools: what it learns of them, such as an index, it learns once.
            if (words, task.now) not in doing:
                doing[words, task.now] = loop.using(tools=(*words, *extra), now=task.now)
            asked = (task.question, task.answer, words, task.now, grader, marks[grader])
            for each in range(repeat):
                cell = digest([same, asked, specs.of(words), each])
                cells.append(Cell(cell, variant.key, task, grader, each, doing[words, task.now]))
    of_all = digest([[cell.digest for cell in cells], suite.word])
    given = name or f"{re.sub('[^a-z0-9]+', '-', _word(suite.word).lower()).strip('-')}-{of_all[:6]}"
    return Wanted(given, suite, tuple(contenders), repeat, tuple(cells))


def _with_models(agent: Agent, variant: Variant, models: _Models) -> Agent:
    """The agent with a variant's loop and models."""
    phases = {phase: models.of(model) for phase, model in variant.models.items() if phase}
    return agent.using(strategy=variant.loop, model=models.of(variant.models[""]), models=phases)


class _Models:
    """Models by name, each made once."""

    def __init__(self) -> None:
        self._made: dict[str, Model] = {}
        self._settings = config.load()

    def of(self, model: AnyModel) -> Model:
        if not isinstance(model, str):
            return model
        if model not in self._made:
            self._made[model] = resolve(model, self._settings.models)
        return self._made[model]


def parts_of(agent: Agent) -> dict[str, str]:
    """A digest of each thing that could change what comes of an agent's cells: loop, prompts, models, settings, plait.

    Its tools are not among them: see `tools_digest`.
    """
    return {name: digest(value) for name, value in _same(agent).items()}


def tools_digest(agent: Agent) -> str:
    """A digest of what a model is told of an agent's tools."""
    return digest([msgspec.to_builtins(spec) for spec in agent.specs])


def _same(agent: Agent) -> dict[str, Any]:
    """What all cells of a contender have in common, as far as it could change what comes of them."""
    loop = _loop(agent)
    settings = {name: value for name, value in settings_of(agent).items() if name not in ("prompts", "now")}
    return {
        "loop": [loop.name, loops.options_of(loop)],
        "prompts": _texts(loop, Path(agent.prompts) if agent.prompts is not None else None),
        "models": {phase: _described(agent.models.get(phase, agent.model)) for phase in loops.phases_of(loop)},
        "settings": {**settings, "show_tools": agent.show_tools},
        "plait": __version__,
    }


def _loop(agent: Agent) -> Strategy:
    assert not isinstance(agent.strategy, str)
    return agent.strategy


def _texts(loop: Strategy, folder: Path | None) -> dict[str, str]:
    """The prompts of a loop, and of the one that it may fall back to."""
    book = PromptBook(loop.name, folder, getattr(loop, "prompts", None))
    other = loops.fallback_of(loop)
    below = _texts(other, folder) if other is not None else {}
    return {**below, **{f"{loop.name}/{name}": book.source(name) for name in book.names()}}


def _described(model: str | Model) -> Mapping[str, Any]:
    assert not isinstance(model, str)
    told = {name: value for name, value in model.describe().items() if name not in _NOT_PART}
    if told.get("provider") == "local":
        told["params"] = {name: value for name, value in told["params"].items() if name not in _NOT_PART_OF_LOCAL}
    return told


class _Specs:
    """A digest of what a model is told of some tools, each worked out once."""

    def __init__(self, extra: tuple[Any, ...]) -> None:
        self._extra = extra
        self._made: dict[tuple[str, ...], str] = {}

    def of(self, words: tuple[str, ...]) -> str:
        if words not in self._made:
            self._made[words] = digest([tool.spec for tool in tools_from((*words, *self._extra))])
        return self._made[words]


def _word(word: str) -> str:
    """A suite's word without the folders of the file in it."""
    return Path(word).stem if "/" in word else word
