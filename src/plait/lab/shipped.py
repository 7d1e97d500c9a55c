"""What travels to a worker on another machine, and what comes back.

A cell travels as plain values: the task, words of tools and models, the grader's word. A model that was named by a word
is made anew on the worker, with the worker's own keys: keys never travel. What was given in Python (a loop, a
function as a tool, a scripted model) travels as a pickle where it can. The worker compares what it made with
digests of what was asked for, so that a prompt, a tool or an endpoint that is another there is not run unnoticed.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plait import config
from plait.agent import Agent
from plait.core.errors import PlaitError, UsageError
from plait.journal.adopt import Carried
from plait.lab.base import Task
from plait.lab.graders import mark
from plait.lab.planning import Cell, parts_of, tools_digest
from plait.lab.result import Result
from plait.models.base import Model
from plait.models.resolve import resolve
from plait.models.scripted import Scripted

_APART = ("model", "models", "tools", "now", "journal")
"""Fields of an agent that don't travel with the others: each has its own way."""


class Named(Struct, frozen=True):
    """A model that is made on the worker from its word."""

    spec: str


class Contender(Struct, frozen=True):
    """What all cells of a row of the table have in common.

    `fields` is a pickle of the agent's fields, its structs as their kind and plain values: a struct out of a pickle no
    longer knows which of its values are defaults, and a record would tell them all. `models` is one of its models by
    phase ("" for the others). `parts` are digests of what was asked for. `settings` is the text of plait.toml; it
    holds no secrets.
    """

    fields: bytes
    models: bytes
    parts: dict[str, str]
    settings: bytes


class Order(Struct, frozen=True):
    """A cell to be performed. `tools` is a pickle; `told` stands for what a model is told of them, `mark` for what
    the grader is made of."""

    cell: str
    contender: str
    task: Task
    grader: str
    repeat: int
    now: float | None
    tools: bytes
    told: str
    mark: str


class OutTold(Struct, frozen=True):
    """An endpoint is out: the fields of `performing.Out`."""

    error: str
    reason: str
    after: float | None
    cost_usd: float | None


class Back(Struct, frozen=True):
    """What came of a cell: a result, an outage, or an error (its name, message and hint); and every run of it."""

    runs: tuple[Carried, ...]
    result: Result | None = None
    out: OutTold | None = None
    error: tuple[str, str, str] | None = None


class Shipper:
    """Packs cells; what is the same for many is packed once. `dumps` is a pickler that takes functions by value."""

    def __init__(self, dumps: Any) -> None:
        self._dumps = dumps
        self._settings = config.load()
        self._tools: dict[int, tuple[Agent, bytes, str]] = {}
        self._marks: dict[str, str] = {}

    def contender(self, cell: Cell) -> bytes:
        """What the cells of a contender have in common. Raises `UsageError` naming what can't travel."""
        agent = cell.agent
        given = {field.name: getattr(agent, field.name) for field in fields(agent) if field.name not in _APART}
        for name, value in given.items():
            self._pickled(value, f"The {name} of {cell.contender}")
        plain = {
            name: (type(value), msgspec.to_builtins(value)) if isinstance(value, Struct) else value
            for name, value in given.items()
        }
        models = {phase: self._model(model) for phase, model in {**agent.models, "": agent.model}.items()}
        for model in models.values():
            self._pickled(model, f"The model {getattr(model, 'spec', model)!r}")
        path = self._settings.path
        made = Contender(
            fields=self._dumps(plain),
            models=self._dumps(models),
            parts=parts_of(agent),
            settings=path.read_bytes() if path is not None else b"",
        )
        return msgspec.msgpack.encode(made)

    def order(self, cell: Cell) -> bytes:
        """One cell. Raises `UsageError` for a tool that can't travel."""
        tools, told = self._packed_tools(cell.agent)
        if cell.grader not in self._marks:
            self._marks[cell.grader] = str(mark(cell.grader))
        order = Order(
            cell=cell.digest,
            contender=cell.contender,
            task=cell.task,
            grader=cell.grader,
            repeat=cell.repeat,
            now=cell.agent.now,
            tools=tools,
            told=told,
            mark=self._marks[cell.grader],
        )
        return msgspec.msgpack.encode(order)

    def _packed_tools(self, agent: Agent) -> tuple[bytes, str]:
        """An agent does all the tasks that have the same tools: they are packed once."""
        if id(agent) not in self._tools:
            tools = tuple(agent.tools)
            for each in tools:
                if not isinstance(each, str):
                    self._pickled(each, f"The tool {getattr(each, 'name', getattr(each, '__name__', repr(each)))}")
            self._tools[id(agent)] = (agent, self._dumps(tools), tools_digest(agent))
        return self._tools[id(agent)][1:]

    def _model(self, model: str | Model) -> Named | Model:
        if isinstance(model, str):
            return Named(model)
        if isinstance(model, Scripted):
            return model  # with its replies: their file may not be there
        try:
            again = resolve(model.spec, self._settings.models)
        except PlaitError:
            again = None
        if type(again) is type(model) and again.describe() == model.describe() and again.secrets == model.secrets:
            return Named(model.spec)
        if model.secrets:
            raise UsageError(
                f"The model {model.spec!r} was given in Python with a key, and keys are not sent to workers.",
                hint="Name it by a word (provider:name, or an endpoint of plait.toml), and set its key on the workers.",
            )
        return model

    def _pickled(self, value: Any, what: str) -> None:
        try:
            self._dumps(value)
        except Exception as error:  # whatever an object's own way of being pickled raises
            raise UsageError(
                f"{what} can't be sent to a worker: {error}.",
                hint="Name it by a word, or make it of what a pickle can hold: no open files, locks or connections.",
            ) from None


def agent_there(contender: Contender, journal: Path, place: Path) -> Agent:
    """The agent of a contender, made on a worker, with that machine's keys. `place` has its plait.toml.

    Raises `UsageError` where what was made is not what was asked for, and names it.
    """
    settings = config.load(place) if place.is_file() else config.load()
    named: Mapping[str, Named | Model] = pickle.loads(contender.models)
    models = {
        phase: resolve(model.spec, settings.models) if isinstance(model, Named) else model
        for phase, model in named.items()
    }
    general = models.pop("")
    told = {
        name: msgspec.convert(value[1], value[0])
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], type)
        else value
        for name, value in pickle.loads(contender.fields).items()
    }
    agent = Agent(**told, model=general, models=models, journal=journal)
    found = parts_of(agent)
    for name, asked in contender.parts.items():
        if found.get(name) != asked:
            raise UsageError(
                f"On the worker the {name} of this contender are not those that were asked for.",
                hint=_HINTS.get(name, "Use the same version of Plait on all machines."),
            )
    return agent


_HINTS = {
    "prompts": "The prompts folder must stand at the same path, with the same files, on all machines.",
    "models": "Addresses in the environment (such as OPENAI_BASE_URL) must be the same on all machines.",
    "loop": "The module with the loop must be the same on all machines.",
}
