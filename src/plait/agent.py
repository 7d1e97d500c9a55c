"""The face: an immutable description of loop, models, tools and limits, that any number of tasks may run at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from plait import __version__, config, strategies
from plait.core import Event, Kit, Strategy, Task
from plait.core.errors import UsageError
from plait.journal.records import RunHead
from plait.journal.store import Journal
from plait.models.base import Model
from plait.models.resolve import resolve
from plait.prompts import PromptBook
from plait.runtime import runs
from plait.runtime.asking import Phases
from plait.runtime.background import run_blocking
from plait.runtime.job import Approve, InDoubt, Job, Person
from plait.runtime.limits import Limits
from plait.runtime.run import Run
from plait.runtime.runs import Replayed
from plait.tools import Tool, Toolset, anchored, tools_from


@dataclass(frozen=True)
class Agent:
    """A loop with its models, tools and limits.

    `strategy`: a loop by name ("react", "json") or as an object with options (`plait.React(dialect="lines")`).
    `model`: for all phases, `provider:name` or a model object; `models`: for single phases.
    `tools`: tools, plain typed functions, or words such as "calculator" or "lookup:facts.json".
    `prompts`: a folder whose files replace ours, file by file. `system`: a system prompt sent byte for byte in
    place of the loop's. `journal`: the record's file, None for the default one, False for none.
    `approve`: which calls need a person's leave. `in_doubt`: what a resumed run does with a call that may have
    happened. `can_ask`: whether the model may ask the person.
    """

    strategy: str | Strategy = "react"
    model: str | Model = field(default="local", kw_only=True)
    models: Mapping[str, str | Model] = field(default_factory=dict, kw_only=True)
    tools: Iterable[Tool | Callable[..., Any] | str] = field(default=(), kw_only=True)
    limits: Limits = field(default=Limits(), kw_only=True)
    prompts: str | Path | None = field(default=None, kw_only=True)
    system: str | None = field(default=None, kw_only=True)
    journal: str | Path | Literal[False] | None = field(default=None, kw_only=True)
    approve: Approve = field(default="never", kw_only=True)
    in_doubt: InDoubt = field(default="skip", kw_only=True)
    can_ask: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        strategy = strategies.make(self.strategy) if isinstance(self.strategy, str) else self.strategy
        if isinstance(strategy, type):
            raise UsageError(
                f"The strategy is the class {strategy.__name__}, not a loop.",
                hint=f"Give {strategy.__name__}().",
            )
        object.__setattr__(self, "strategy", strategy)
        object.__setattr__(self, "models", dict(self.models))
        object.__setattr__(self, "tools", tuple(self.tools))
        known = {*strategy.phases, ""}
        for phase in self.models:
            if phase not in known:
                raise UsageError(
                    f"The loop '{strategy.name}' has no phase '{phase}'.",
                    hint=f"Its phases: {', '.join(strategy.phases)}.",
                )

    # -- running

    def run(self, question: str, *, person: Person | None = None) -> Run:
        """Run a task to its end, blocking; also from inside a running event loop, as in a notebook.

        Whatever happens in the run is told by `Run.status`; only a wrong description (an unknown model, a
        journal that can't be written) raises `PlaitError`. Ctrl-C cancels the run, keeps what was done and raises
        KeyboardInterrupt.
        """
        return run_blocking(self.arun(question, person=person))

    async def arun(
        self, question: str, *, emit: Callable[[Event], None] | None = None, person: Person | None = None
    ) -> Run:
        """The same, awaited. Cancelling it cancels the run, which puts that on its record.

        `emit` is told each event as it happens, the last (`Ended`) also of a run that is cancelled.
        """
        return await _whole(self._begin(question, emit, person))

    async def stream(self, question: str, *, person: Person | None = None) -> AsyncGenerator[Event, None]:
        """The run's events as they happen; the last is `Ended` and carries the `Run`.

        Leaving the iteration early cancels the run.
        """
        async with aclosing(_streamed(lambda emit: self._begin(question, emit, person))) as events:
            async for event in events:
                yield event

    def using(self, **changes: Any) -> Agent:
        """The same agent with some fields changed."""
        known = {item.name for item in fields(self)}
        for name in changes:
            if name not in known:
                raise UsageError(f"An agent has no '{name}'.", hint=f"It has: {', '.join(sorted(known))}.")
        return replace(self, **changes)

    # -- the record

    def resume(self, run: str, answer: str | None = None, *, force: bool = False) -> Run:
        """Go on with a run that was interrupted, cancelled or waits; `answer` is what the person says to it."""
        return run_blocking(self.aresume(run, answer, force=force))

    async def aresume(
        self,
        run: str,
        answer: str | None = None,
        *,
        emit: Callable[[Event], None] | None = None,
        force: bool = False,
        person: Person | None = None,
    ) -> Run:
        """The same, awaited. `force` takes over a run that another machine began."""
        journal = self._journal_needed()
        row = journal.run(run)
        if row.status in ("answered", "failed", "stopped"):
            return runs.finished(row, journal, self._loop)
        job = self._job(row.head.question, person, recorded=row.head)
        return await _whole(runs.go_on(job, row.head, journal, answer=answer, emit=emit, force=force))

    def replay(self, run: str) -> Replayed:
        """Take the loop through a run's record and compare every request, byte by byte; nothing is performed.

        Raises `ReplayDiffers` at the first difference.
        """
        journal = self._journal_needed()
        row = journal.run(run)
        recorded = runs.outcome_of(row.outcome) if row.outcome is not None else None
        job = self._job(row.head.question, None, recorded=row.head)
        return run_blocking(runs.replay(job, row.head, journal.rows(row.head.run), recorded))

    def fork(self, run: str, at: int) -> Run:
        """A new run of this agent that takes the first `at - 1` steps from `run` and performs the rest."""
        return run_blocking(self.afork(run, at))

    async def afork(
        self, run: str, at: int, *, emit: Callable[[Event], None] | None = None, person: Person | None = None
    ) -> Run:
        """The same, awaited."""
        journal = self._journal_needed()
        row = journal.run(run)
        job = self._job(row.head.question, person)
        head = msgspec.structs.replace(self._head(row.head.question, job), parent=row.head.run, fork_at=at)
        return await _whole(runs.fork(job, head, journal.rows(row.head.run), at, journal, emit))

    @staticmethod
    def recorded(head: RunHead, *, journal: str | Path | None, **changes: Any) -> Agent:
        """The agent that made a recorded run, from what the record says of it.

        Raises `UsageError` when its loop or tools were given in Python and have no word to find them by.
        """
        for spec, source in zip(head.tools, head.sources, strict=False):
            if not source and "tools" not in changes:
                raise UsageError(
                    f"The tool '{spec['name']}' of run {head.run} was given in Python.",
                    hint="Name it with --tools file.py, or go on in Python: agent.resume(run).",
                )
        settings = head.settings
        described: dict[str, Any] = {
            "strategy": strategies.make(head.strategy["name"], head.strategy["options"]),
            "model": str(head.models.get("", {}).get("spec", "local")),
            "models": {phase: str(model["spec"]) for phase, model in head.models.items() if phase},
            "tools": tuple(dict.fromkeys(head.sources)),
            "limits": msgspec.convert(settings.get("limits", {}), Limits),
            "prompts": settings.get("prompts"),
            "system": settings.get("system"),
            "approve": settings.get("approve", "never"),
            "in_doubt": settings.get("in_doubt", "skip"),
            "can_ask": settings.get("can_ask", True),
            "journal": journal,
        }
        return Agent(**{**described, **changes})

    # -- parts, made once

    @property
    def _loop(self) -> Strategy:
        assert not isinstance(self.strategy, str)
        return self.strategy

    @cached_property
    def _toolset(self) -> Toolset:
        return tools_from(self.tools)

    @cached_property
    def _resolved(self) -> dict[str, Model]:
        wanted = {**self.models}
        if any(phase not in wanted for phase in self._loop.phases):
            wanted.setdefault("", self.model)
        settings = None
        made: dict[str, Model] = {}
        for phase, model in wanted.items():
            if isinstance(model, str):
                settings = settings or config.load()
                made[phase] = resolve(model, settings.models)
            else:
                made[phase] = model
        return made

    @cached_property
    def _book(self) -> PromptBook:
        folder = Path(self.prompts) if self.prompts is not None else None
        return PromptBook(self._loop.name, folder, getattr(self._loop, "prompts", None))

    @cached_property
    def _store(self) -> Journal | None:
        if self.journal is False:
            return None
        return Journal.at(self.journal)

    def _journal_needed(self) -> Journal:
        if self._store is None:
            raise UsageError("This agent keeps no journal (journal=False).", hint="Give journal=PATH.")
        return self._store

    def _job(self, question: str, person: Person | None, recorded: RunHead | None = None) -> Job:
        kit = Kit(
            tools=self._toolset.specs,
            prompts=self._book,
            system=self.system,
            observation_chars=self.limits.observation_chars,
            can_ask=self.can_ask,
        )
        return Job(
            strategy=self._loop,
            task=Task(question),
            kit=kit,
            tools=self._toolset,
            phases=Phases(_as_recorded(self._resolved, recorded)),
            limits=self.limits,
            approve=self.approve,
            in_doubt=self.in_doubt,
            person=person,
        )

    def _head(self, question: str, job: Job) -> RunHead:
        return RunHead(
            run=runs.fresh_id(),
            question=question,
            strategy={"name": self._loop.name, "options": strategies.options_of(self._loop)},
            models=job.phases.describe(),
            tools=self._tools_recorded,
            sources=self._sources,
            settings=self._settings,
            plait=__version__,
        )

    @cached_property
    def _tools_recorded(self) -> tuple[dict[str, Any], ...]:
        return tuple(msgspec.to_builtins(spec) for spec in self._toolset.specs)

    @cached_property
    def _sources(self) -> tuple[str, ...]:
        return tuple(anchored(tool.source) if tool.source else "" for tool in self._toolset)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return {
            "limits": msgspec.to_builtins(self.limits),
            "prompts": str(Path(self.prompts).resolve()) if self.prompts is not None else None,
            "system": self.system,
            "approve": self.approve if isinstance(self.approve, str) else "never",
            "in_doubt": self.in_doubt,
            "can_ask": self.can_ask,
        }

    async def _begin(self, question: str, emit: Callable[[Event], None] | None, person: Person | None) -> Run:
        if not isinstance(question, str) or not question.strip():
            raise UsageError("The question is empty.", hint="Say what is to be done.")
        job = self._job(question, person)
        return await runs.begin(job, self._head(question, job), self._store, emit)


def _as_recorded(models: Mapping[str, Model], head: RunHead | None) -> dict[str, Model]:
    """The models without what a recorded run already knew their endpoints could not do."""
    known = dict(models)
    for phase, said in (head.models if head is not None else {}).items():
        if phase not in known or said.get("spec") != known[phase].spec:
            continue
        for ability, able in said.get("abilities", {}).items():
            if not able and getattr(known[phase].abilities, ability, False):
                known[phase] = known[phase].without(ability)
    return known


async def _whole(work: Awaitable[Run]) -> Run:
    """Await a run; when it was cancelled, and has put that on its record, let the cancellation go on."""
    run = await work
    task = asyncio.current_task()
    if run.status in ("cancelled", "crashed") and task is not None and task.cancelling():
        raise asyncio.CancelledError
    return run


async def _streamed(begin: Callable[[Callable[[Event], None]], Awaitable[Run]]) -> AsyncGenerator[Event, None]:
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.ensure_future(begin(queue.put_nowait))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
