"""Changes of an agent for forks: what a page may change, what a run has now, and a change that is run over many runs.

A change over runs forks each of them from step 1. The journal keeps what it is (kind "change"), and its forks carry the
tag `change:NAME` and ids that follow from it. So any server shows it, and no fork is made twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs, to_builtins

from plait.agent import Agent
from plait.core.errors import PlaitError, RunExists
from plait.journal import codec
from plait.journal.forks import is_editable
from plait.journal.owner import new_run_id
from plait.journal.records import RunHead, RunRow
from plait.journal.run_query import RunQuery
from plait.journal.store import read_timeline
from plait.runtime.limits import Limits
from plait.runtime.spent import spent_in
from plait.server.agents import change_agent
from plait.server.auth import Caller
from plait.server.errors import RequestRejected
from plait.server.runs import STOPPED, RunManager, agent_name

MOST_RUNS = 200
"""Runs that one change can be run over."""
OVER = ("answered", "stopped", "failed", "crashed")
"""The states of runs that are reviewed and changed."""
CANCELLED = "The change was cancelled."
"""Why a fork was cancelled, with its change."""
LONGEST_RESULT = 100_000
"""Characters of a result that a page can edit."""


class LimitChanges(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Other limits of a run; null for none."""

    steps: int | UnsetType | None = UNSET
    calls: int | UnsetType | None = UNSET
    tokens: int | UnsetType | None = UNSET
    usd: float | UnsetType | None = UNSET
    seconds: float | UnsetType | None = UNSET


LIMITS = LimitChanges.__struct_fields__


class ForkChanges(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What changes in an agent. `prompts` are templates by LOOP/NAME. Nothing here may name a file or load code."""

    model: str | None = None
    models: dict[str, str] = {}
    loop: str | None = None
    options: dict[str, Any] = {}
    instructions: Annotated[str, Meta(max_length=200_000)] | None = None
    prompts: dict[str, str] = {}
    limits: LimitChanges = LimitChanges()

    @property
    def kept_limits(self) -> list[str]:
        """The limits that stay. Those of the server may still differ from the recorded ones: that is no change."""
        return [f"limits.{name}" for name in LIMITS if getattr(self.limits, name) is UNSET]


class ForkBody(ForkChanges, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A fork from the step `at`, also with another question, and other results of calls in the steps before."""

    at: int = 1
    question: str | None = None
    results: dict[str, str] = {}


class ChangeBody(Struct, forbid_unknown_fields=True):
    """A change to run over these runs."""

    change: ForkChanges
    runs: Annotated[list[str], Meta(min_length=1, max_length=MOST_RUNS)]


class KeptChange(Struct, frozen=True):
    """A change that is run over runs, as the journal keeps it. `owner` and `by` are the token or user who began it.
    `is_open`: a server has not begun all forks yet."""

    name: str
    change: ForkChanges
    runs: list[str]
    started: float
    owner: str = ""
    by: str = ""
    is_cancelled: bool = False
    title: str = ""
    is_open: bool = False

    @property
    def tag(self) -> str:
        return f"change:{self.name}"

    def fork_of(self, run: str) -> str:
        """Return the id of the fork of a run: the same at each server."""
        return f"{self.name}-{hashlib.sha256(run.encode()).hexdigest()[:10]}"


def changed_agent(manager: RunManager, head: RunHead, change: ForkChanges, caller: Caller) -> Agent:
    """Return the agent that forks a recorded run. Raises `RequestRejected` for limits above those that users have, and
    `ConfigError` for a change that does not fit the agent."""
    changes = {name: getattr(change, name) for name in ForkChanges.__struct_fields__}
    limits = to_builtins(changes.pop("limits"))
    for name, value in limits.items():
        most = find_most(manager, head, caller, name)
        if most is not None and (value is None or value > most):
            raise RequestRejected(400, f"The limit '{name}' can be at most {most:g} here.", param=f"limits.{name}")
    # An empty field is no change, except for instructions.
    given = {name: value for name, value in changes.items() if value or (name, value) == ("instructions", "")}
    return change_agent(manager.agent_for(head), given, limits)


def _key_of_agent(head: RunHead) -> bytes:
    """Return what is equal for runs of equal agents."""
    settings = {name: value for name, value in head.settings.items() if name != "now"}
    return codec.encode([head.loop, head.models, head.sources, settings, head.agent, agent_name(head)])


def _values_of(head: RunHead) -> dict[str, str]:
    """Return what a run's agent has of all that a fork can change, as texts by words for users."""
    models = {f"model of {phase}" if phase else "model": str(each["spec"]) for phase, each in head.models.items()}
    options = {f"option {name}": str(value) for name, value in head.loop["options"].items()}
    limits = {f"limit {name}": str(value) for name, value in head.settings.get("limits", {}).items()}
    text = {"instructions": head.settings.get("instructions", ""), "loop": head.loop["name"]}
    return {**models, **text, **options, **limits}


def name_changes(changes: Iterable[tuple[str, str, str]]) -> str:
    """Return changes in a few words, such as "house:large → house:small, instructions"."""
    words = []
    for name, before, after in changes:
        arrow = f"{before or 'none'} → {after}"
        is_text = name == "instructions" or name.startswith("prompt ")
        words.append(name if is_text or len(arrow) > 80 else arrow if name == "model" else f"{name} {arrow}")
    return ", ".join(words)


def find_most(manager: RunManager, head: RunHead, caller: Caller, name: str) -> float | None:
    """Return the highest limit that a caller may give a fork, that of the served agent; None for any. Full tokens are
    held to the server's seconds alone."""
    served = manager.agents.get(agent_name(head))
    limits: Limits = served.agent.limits if served is not None else manager.agent_for(head).limits
    most = None if caller.full else getattr(limits, name)
    return min(manager.table.seconds, most or manager.table.seconds) if name == "seconds" else most


async def describe_changeable(manager: RunManager, row: RunRow, caller: Caller) -> dict[str, Any]:
    """Return what a run has of all that a fork can change."""
    head, agent = row.head, manager.agent_for(row.head)._with_loop_of(row.head)
    limits = head.settings.get("limits", {})
    timeline = await read_timeline(manager.journal.store, head.run, bodies=False)
    calls = [
        {
            "key": call.key,
            "step": call.step,
            "tool": call.planned.tool,
            "input": call.planned.input,
            "text": seen.text if len(seen.text) <= LONGEST_RESULT else None,
        }
        for call in timeline.tool_calls
        if (seen := call.seen) is not None and is_editable(call)
    ]
    return {
        "question": head.question,
        "loop": head.loop["name"],
        "options": head.loop["options"],
        "model": str(head.models.get("", {}).get("spec", "")),
        "models": {phase: str(model["spec"]) for phase, model in head.models.items() if phase},
        "instructions": head.settings.get("instructions", ""),
        "prompts": agent._parts.prompts.list_templates(),
        "limits": {name: limits.get(name, getattr(Limits(), name)) for name in LIMITS},
        "most": {name: find_most(manager, head, caller, name) for name in LIMITS},
        "calls": calls,
        "effects": [spec.name for spec in agent.specs if spec.has_effects],
        "approve": head.settings.get("approve", "never"),
    }


def _is_fit(row: RunRow) -> bool:
    """Return whether a change can be run over a run: it has ended, and is no child run."""
    return row.status in OVER and row.head.caller is None


def _list_agents(rows: Iterable[RunRow]) -> list[RunHead]:
    """Return one run of each agent that made some of these."""
    return list({_key_of_agent(row.head): row.head for row in rows}.values())


class ChangeRunner:
    """Performs changes over runs, half of the server's places at once at most: the others are for users."""

    def __init__(self, manager: RunManager) -> None:
        self._manager, self._store = manager, manager.journal.store
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(max(1, manager.table.concurrent // 2))
        self.problems: dict[str, str] = {}
        """Why forks could not begin, by the ids that they would have had."""

    def is_active(self, name: str) -> bool:
        return name in self._tasks

    def estimate(self, rows: Sequence[RunRow]) -> dict[str, Any]:
        """Return the runs that a change can be run over, what they cost, and the tools that may change something."""
        fit = [row for row in rows if _is_fit(row)]
        costs = [spent_in(row.totals).cost_usd for row in fit]
        agents = map(self._manager.agent_for, _list_agents(fit))
        return {
            "runs": [row.head.run for row in fit],
            "left_out": len(rows) - len(fit),
            "cost": sum(each for each in costs if each is not None),
            "unpriced": costs.count(None),
            "effects": sorted({spec.name for agent in agents for spec in agent.specs if spec.has_effects}),
            "most": MOST_RUNS,
        }

    def list_changes(self, head: RunHead, change: ForkChanges) -> list[tuple[str, str, str]]:
        """Return what a change changes in the agent of a run: words for it, the value before, and the one after."""
        agent, before = self._manager.agent_for(head)._with_loop_of(head), _values_of(head)
        limits = to_builtins(change.limits)
        given = {
            **{name: value for name in ("model", "loop") if (value := getattr(change, name))},
            **{f"model of {phase}": model for phase, model in change.models.items()},
            **{f"option {name}": str(value) for name, value in change.options.items()},
            **({"instructions": change.instructions} if change.instructions is not None else {}),
            **{f"limit {name}": "none" if value is None else f"{value:g}" for name, value in limits.items()},
            **{f"prompt {name}": text for name, text in change.prompts.items()},
        }
        before |= {f"prompt {name}": text for name, text in agent._parts.prompts.list_templates().items()}
        return [(name, before.get(name, ""), new) for name, new in given.items() if before.get(name) != new]

    @staticmethod
    def list_differences(original: RunHead, fork: RunHead) -> list[tuple[str, str, str]]:
        """Return the same for a run and its fork, without prompts, and only with limits that the user changed."""
        before, after = _values_of(original), _values_of(fork)
        kept = {f"limit {name}" for name in LIMITS if f"limits.{name}" not in fork.settings.get("changed", [])}
        values = [(name, before.get(name, ""), after.get(name, "")) for name in {**before, **after} if name not in kept]
        return [each for each in values if each[1] != each[2]]

    async def begin(self, change: ForkChanges, rows: Sequence[RunRow], caller: Caller) -> str:
        """Begin a change. Returns its name. Raises `RequestRejected` and `ConfigError` for what does not fit a run."""
        if change == ForkChanges():
            raise RequestRejected(400, "The change changes nothing.", param="change")
        if unfit := [row.head.run for row in rows if not _is_fit(row)]:
            raise RequestRejected(400, f"Run {unfit[0]} has not ended, or is a child run.", param="runs")
        for head in _list_agents(rows):
            changed_agent(self._manager, head, change, caller)
        name, runs = f"change-{new_run_id()}", [row.head.run for row in rows]
        title = name_changes(self.list_changes(rows[0].head, change))
        await self._go_on(KeptChange(name, change, runs, time.time(), caller.owner, caller.name, title=title))
        return name

    async def find(self, name: str, caller: Caller) -> KeptChange:
        """Return a change that the caller sees. Raises `RequestRejected`."""
        found = await self.list(caller, [name])
        if not found:
            raise RequestRejected(404, f"There is no change {name!r} in the journal.")
        return found[0]

    async def list(self, caller: Caller, names: Sequence[str] | None = None) -> Sequence[KeptChange]:
        """Return the changes that the caller sees, the newest first: all, or those with these names."""
        found = await self._store.list_kept("change", names)
        changes = [msgspec.json.decode(each.data, type=KeptChange) for each in reversed(found)]
        return [each for each in changes if caller.sees_all or each.owner == caller.owner]

    async def find_forks(self, kept: KeptChange) -> dict[str, RunRow]:
        """Return the forks of a change, by the runs that they come from."""
        rows = await self._store.list_runs(RunQuery(tags=(kept.tag,)))
        return {row.head.parent: row for row in rows}

    async def _keep(self, kept: KeptChange) -> None:
        await self._store.keep("change", kept.name, "", codec.encode(kept))

    async def resume(self, name: str, caller: Caller) -> None:
        """Go on with a change: begin the forks that are missing, and resume those that were interrupted."""
        await self._go_on(structs.replace(await self.find(name, caller), is_cancelled=False))

    async def resume_open(self) -> None:
        """Go on with all changes that a server left, because it died or was stopped."""
        for kept in await self.list(Caller()):
            if kept.is_open and not kept.is_cancelled:
                await self._go_on(kept)

    async def _go_on(self, kept: KeptChange) -> None:
        await self._keep(kept := structs.replace(kept, is_open=True))
        if kept.name not in self._tasks:
            self._tasks[kept.name] = asyncio.ensure_future(self._perform(kept))

    async def cancel(self, name: str, caller: Caller) -> None:
        """Begin no more forks of a change, and cancel those that go on here."""
        kept = structs.replace(await self.find(name, caller), is_cancelled=True)
        await self._keep(kept)
        for run in map(kept.fork_of, kept.runs):
            if (active := self._manager.active.get(run)) is not None:
                active.cancel(CANCELLED)

    async def _perform(self, kept: KeptChange) -> None:
        left, agents = kept.runs[::-1], dict[bytes, Agent]()

        async def work() -> None:
            while left:
                async with self._places:
                    if self._manager.stopping or (await self.find(kept.name, Caller())).is_cancelled:
                        return
                    if left:  # others may have taken the last one meanwhile
                        run = left.pop()
                        await self._fork(kept, run, forks.get(run), agents)

        try:
            forks = await self.find_forks(kept)
            await asyncio.gather(*(work() for _ in left))
            if not (self._manager.stopping or (now := await self.find(kept.name, Caller())).is_cancelled):
                await self._keep(structs.replace(now, is_open=False))
        finally:
            del self._tasks[kept.name]

    async def _fork(self, kept: KeptChange, run: str, done: RunRow | None, agents: dict[bytes, Agent]) -> None:
        """Make the fork of one run, if there is none, and wait for its end. `agents` are those made so far: runs of one
        agent share one, with its tools."""
        manager, fork = self._manager, kept.fork_of(run)
        self.problems.pop(fork, None)
        while True:
            try:
                if done is None:
                    head = (await self._store.find_run(run)).head
                    key = _key_of_agent(head)
                    agent = agents[key] = agents.get(key) or changed_agent(manager, head, kept.change, Caller())
                    tags = [each for each in head.tags if not each.startswith("change:")]
                    about: dict[str, Any] = {**manager.annotate_fork(head, Caller(kept.owner, name=kept.by))}
                    about |= {"tags": [*tags[:31], kept.tag], "run_id": fork, "unchanged": kept.change.kept_limits}
                    active = await manager.fork_with(agent, head, 1, **about)
                elif done.status == "interrupted" or (done.outcome or {}).get("reason") in (STOPPED, CANCELLED):
                    active = await manager.resume(done.head.run)
                else:
                    return
                await active.done()
            except PlaitError as why:
                if isinstance(why, RequestRejected) and why.status == 429:  # other requests wait, and come first
                    await asyncio.sleep(min(why.retry_after or 1.0, 5.0))
                    continue
                if not isinstance(why, RunExists):  # another server was faster
                    self.problems[fork] = str(why)
            return
