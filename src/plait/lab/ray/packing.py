"""The data sent to a worker on another machine, and its reply.

A cell is sent as plain values: the task, words of tools and models, the grader's word. The worker creates a model from
its word with its own keys: keys are never sent. Objects given in Python (a loop, a function as a tool, a scripted
model) are pickled if possible. The worker compares the result with digests from the sender, so a different prompt, tool
or endpoint is an error.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plait import config
from plait.agent import Agent
from plait.core.errors import ConfigError, PlaitError
from plait.journal.store import CarriedRun
from plait.lab.graders import grader_digest
from plait.lab.plan import Cell, agent_digests, tools_digest
from plait.lab.results import CellResult
from plait.lab.tasks import SuiteTask
from plait.models.base import Model
from plait.models.resolve import resolve
from plait.models.scripted import Scripted
from plait.runtime.limits import Limits
from plait.user_files import read_file

_SENT_APART = ("model", "models", "tools", "limits", "journal")
"""Fields of an agent that are packed on their own."""


class ModelWord(Struct, frozen=True):
    """A model that the worker makes from its word."""

    spec: str


class PackedContender(Struct, frozen=True):
    """The common part of all cells of a table row.

    `fields` is a pickle of the agent's fields, with structs as their type and plain values: an unpickled struct does
    not know which of its values are defaults, and the journal would show them all. `models` is a pickle of the models
    by phase ("" for the others). `parts` are digests of the requested agent. `settings` is the text of plait.toml,
    which holds no secrets.
    """

    fields: bytes
    models: bytes
    parts: dict[str, str]
    settings: bytes


class PackedCell(Struct, frozen=True):
    """A cell to run. `tools` is a pickle. `tools_digest` and `grader_digest` say what they must be on the worker."""

    cell: str
    contender: str
    task: SuiteTask
    grader: str
    repeat: int
    tools: bytes
    tools_digest: str
    grader_digest: str


class OutageReport(Struct, frozen=True):
    """The fields of `CellNotMeasured`."""

    error: str
    reason: str
    after: float | None
    cost_usd: float | None


class WorkerReply(Struct, frozen=True):
    """The outcome of a cell: a result, an outage, or an error (its name, message and hint); and all its runs."""

    runs: tuple[CarriedRun, ...]
    result: CellResult | None = None
    outage: OutageReport | None = None
    error: tuple[str, str, str] | None = None


class CellPacker:
    """Packs cells, and their common parts once. `dumps` is a pickler that takes functions by value."""

    def __init__(self, dumps: Any) -> None:
        self._dumps = dumps
        self._settings = config.load()
        self._tools: dict[int, tuple[Agent, bytes, str]] = {}
        self._grader_digest = cache(grader_digest)

    def pack_contender(self, cell: Cell) -> bytes:
        """Pack the common part of a contender's cells. Raises `ConfigError` with the parts that cannot be sent."""
        agent = cell.agent
        given = {field.name: getattr(agent, field.name) for field in fields(agent) if field.name not in _SENT_APART}
        for name, value in given.items():
            self._check_pickle(value, f"The {name} of {cell.contender}")
        models = {phase: self._pack_model(model) for phase, model in {**agent.models, "": agent.model}.items()}
        for model in models.values():
            self._check_pickle(model, f"The model {getattr(model, 'spec', model)!r}")
        path = self._settings.path
        made = PackedContender(
            fields=self._dumps({**given, "limits": msgspec.to_builtins(agent.limits)}),
            models=self._dumps(models),
            parts=agent_digests(agent),
            settings=read_file(path) if path is not None else b"",
        )
        return msgspec.msgpack.encode(made)

    def pack_cell(self, cell: Cell) -> bytes:
        """Pack one cell. Raises `ConfigError` for a tool that cannot be sent."""
        tools, digest = self._pack_tools(cell.agent)
        packed = PackedCell(
            cell=cell.digest,
            contender=cell.contender,
            task=cell.task,
            grader=cell.grader,
            repeat=cell.repeat,
            tools=tools,
            tools_digest=digest,
            grader_digest=self._grader_digest(cell.grader),
        )
        return msgspec.msgpack.encode(packed)

    def _pack_tools(self, agent: Agent) -> tuple[bytes, str]:
        """Pack an agent's tools once for all tasks that have the same tools."""
        if id(agent) not in self._tools:
            tools = tuple(agent.tools)
            for each in tools:
                if not isinstance(each, str):
                    self._check_pickle(each, f"The tool {getattr(each, 'name', getattr(each, '__name__', repr(each)))}")
            self._tools[id(agent)] = (agent, self._dumps(tools), tools_digest(agent))
        return self._tools[id(agent)][1:]

    def _pack_model(self, model: str | Model) -> ModelWord | Model:
        if isinstance(model, str):
            return ModelWord(model)
        if isinstance(model, Scripted):
            return model  # with its replies: the worker may not have their file
        try:
            again = resolve(model.spec, self._settings.models)
        except PlaitError:
            again = None
        if type(again) is type(model) and again.describe() == model.describe() and again.secrets == model.secrets:
            return ModelWord(model.spec)
        if model.secrets:
            raise ConfigError(
                f"The model {model.spec!r} was given in Python with a key, and keys are not sent to workers.",
                hint="Name it by a word (provider:name, or an endpoint of plait.toml), and set its key on the workers.",
            )
        return model

    def _check_pickle(self, value: Any, what: str) -> None:
        try:
            self._dumps(value)
        except Exception as error:  # an object may raise anything while it is pickled
            hint = "Name it by a word, or make it of what a pickle can hold: no open files, locks or connections."
            raise ConfigError(f"{what} can't be sent to a worker: {error}.", hint=hint) from None


def unpack_agent(contender: PackedContender, journal: Path, place: Path) -> Agent:
    """Make the agent of a contender on a worker, with that machine's keys. `place` has its plait.toml. Raises
    `ConfigError` with the difference if the agent is not the requested one."""
    settings = config.load(place) if place.is_file() else config.load()
    named: Mapping[str, ModelWord | Model] = pickle.loads(contender.models)
    models = {
        phase: resolve(model.spec, settings.models) if isinstance(model, ModelWord) else model
        for phase, model in named.items()
    }
    general = models.pop("")
    fields = pickle.loads(contender.fields)
    fields["limits"] = msgspec.convert(fields["limits"], Limits)
    agent = Agent(**fields, model=general, models=models, journal=journal)
    found = agent_digests(agent)
    for name, asked in contender.parts.items():
        if found.get(name) != asked:
            raise ConfigError(
                f"On the worker the {name} of this contender are not those that were asked for.",
                hint=_HINTS.get(name, "Use the same version of Plait on all machines."),
            )
    return agent


_HINTS = {
    "prompts": "The prompts folder must stand at the same path, with the same files, on all machines.",
    "models": "Addresses in the environment (such as OPENAI_BASE_URL) must be the same on all machines.",
    "loop": "The module with the loop must be the same on all machines.",
}
