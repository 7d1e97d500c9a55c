"""The class `Agent`: an immutable description of a loop, its models, tools and limits.

One agent can run any number of tasks at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, MutableMapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

import msgspec

from plait import config, loops
from plait.agent_parts import AgentParts
from plait.agent_plans import AgentPlans
from plait.core import Event, Loop, ToolSpec, Waiting
from plait.core.errors import ConfigError, SessionBusy, StaleAnswer
from plait.core.notebook import render_html
from plait.hooks import load_hook, load_hooks
from plait.installation import install_hint
from plait.journal.forks import describe_changes
from plait.journal.queue import check_place, require_queue
from plait.journal.records import RunHead, RunRow
from plait.journal.store import RunLog, Store, is_default, read_timeline, without_password
from plait.journal.timeline import Timeline
from plait.loops.registry import AUTO_LOOP
from plait.models.config import ModelConfig
from plait.models.resolve import ModelAccess
from plait.run_maker import RunMaker
from plait.runtime import runs
from plait.runtime.agents.agent_description import (
    changed_fields,
    check_fields,
    fields_in,
    list_tools,
    loop_of,
    suggest_arguments,
)
from plait.runtime.agents.agent_fields import AgentChanges, D
from plait.runtime.agents.annotations import RunAnnotations, check_annotations
from plait.runtime.agents.dependencies import open_deps
from plait.runtime.agents.output import OutputForm, OutputT, recorded_output
from plait.runtime.background import EventStream, check_call, run_blocking
from plait.runtime.calls.child_runs import make_agent_tool
from plait.runtime.calls.context import Context, DepsT
from plait.runtime.conversations.attachments import UserQuestion
from plait.runtime.conversations.chat_messages import ChatMessages, GivenTurns
from plait.runtime.hooks import check_hooks
from plait.runtime.inbox import Sent
from plait.runtime.inbox import send as send_to_run
from plait.runtime.run import Run, id_of_run
from plait.runtime.run_spec import OnWait
from plait.runtime.runs import Replayed
from plait.runtime.spend_limits import read_spend_limits
from plait.tools import Tool
from plait.tools.call_context import call_services
from plait.tools.load import is_mcp_word
from plait.tools.mcp.server import parse_word

T = TypeVar("T")

TURN_POLL = 0.05
"""Seconds after which a turn looks again whether the one before has ended."""


@suggest_arguments
@dataclass(frozen=True, repr=False)
class Agent(AgentPlans[DepsT, OutputT]):
    """A loop with its models, tools and limits.

    Its fields are the options that `AgentFields` declares; the page python.md has them as a table. Raises `ConfigError`
    for an invalid field.
    """

    def __post_init__(self) -> None:
        loop = loop_of(self.loop)
        object.__setattr__(self, "tools", list_tools(self.tools))
        object.__setattr__(self, "hooks", check_hooks(self.hooks, load_hook))
        check_fields(self, loop)
        if self.loop != AUTO_LOOP:
            object.__setattr__(self, "loop", loop)
        object.__setattr__(self, "models", dict(self.models))
        limits = read_spend_limits(self.spend)
        if self._access is None:
            try:
                found = config.load()
            except ConfigError:
                if any(isinstance(each, str) for each in (self.model, *self.models.values())) or config.is_chosen():
                    raise
                found = config.Config({}, ModelConfig())  # models that are objects need none
            object.__setattr__(self, "_access", ModelAccess.take(found.models))
            limits = (*limits, *found.spend)
        object.__setattr__(self, "spend", tuple(dict.fromkeys(limits)))
        # Report wrong models, prompts and tools now, not in the middle of a run.
        self._parts.check_models()
        if self.prompts is not None:
            self._parts.check_prompts(loop)
        if not any(isinstance(tool, str) for tool in self.tools):
            _ = self._parts.toolset if self.loop is loop else self._parts.make_tools(loop)

    def __repr__(self) -> str:
        """Return the loop and each field that is not the default, in one line."""
        fields = [f"{name}={value}" for name, value in changed_fields(self).items()]
        return f"Agent({', '.join([repr(self._loop_word), *fields])})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for a pickle: no parts, which hold clients and locks, and no keys."""
        words = (self.model, *self.models.values(), self.history.embedder)
        self._access.require_same_keys(each for each in words if isinstance(each, str))
        for word in self.tools:
            if isinstance(word, str) and is_mcp_word(word):
                parse_word(word).__reduce__()  # raises an error for a secret in the word
        if isinstance(self.journal, str) and without_password(self.journal) != self.journal:
            hint = "Leave it out, and set PGPASSWORD or ~/.pgpass where the agent is used."
            raise ConfigError("An agent whose journal's address has a password can't be pickled.", hint=hint)
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def __copy__(self) -> Agent[DepsT, OutputT]:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Agent[DepsT, OutputT]:
        return replace(self, **{item.name: deepcopy(getattr(self, item.name), memo) for item in fields(self)})

    def _repr_html_(self) -> str:
        """Return a notebook's view: a table of the fields that are not the defaults."""
        rows = [("loop", self._loop_word), *changed_fields(self).items()]
        return render_html("Agent", (), ("field", "value"), rows)

    # -- running

    def run(
        self,
        question: UserQuestion,
        *,
        deps: DepsT | None = None,
        session: str | None = None,
        history: ChatMessages | None = None,
        on_wait: OnWait | None = None,
        now: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        **about: Unpack[RunAnnotations],
    ) -> Run[OutputT]:
        """Run a task to its end, blocking. Also works inside a running event loop, as in a notebook.

        `question` is a text, or a list of texts and files: `["What is in this picture?", plait.attach("photo.jpg")]`.
        `deps` is the object that tools get as `Context.deps`; None for what `Agent.make_deps` makes. The journal does
        not store it.

        `session` makes the run a turn of that conversation in the journal. It begins when the turn before has ended,
        sees the earlier turns, as many as `Agent.history` allows, and can search the others. `history` holds the
        earlier turns if your application stores them: `run.messages()` of an earlier run, other chat-completions
        messages, or `Exchange` objects. `now` is the time that code sees, in seconds since 1970; None for this
        machine's clock. `Run.status` says how the run ended. `PlaitError` is raised only for a wrong description (an
        unknown model, a journal that cannot be written). Ctrl-C cancels the run, keeps its record and raises
        KeyboardInterrupt.
        """
        more: dict[str, Any] = {"history": history, "now": now, "on_event": on_event, **about}
        return run_blocking(self.arun(question, deps=deps, session=session, on_wait=on_wait, **more))

    async def arun(
        self,
        question: UserQuestion,
        *,
        deps: DepsT | None = None,
        session: str | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_wait: OnWait | None = None,
        history: ChatMessages | None = None,
        now: float | None = None,
        **about: Unpack[RunAnnotations],
    ) -> Run[OutputT]:
        """Run a task to its end. Cancelling this call cancels the run and records that.

        `on_event`, a plain function, receives each event as it happens; the last is `Ended`, also for a cancelled run.
        If it raises, the run is cancelled, and this call raises that error. `about` are `user`, `tags`, `metadata` and
        `label`: the journal keeps them and finds the run by them (`RunAnnotations`). For the other arguments see `run`.
        """
        check_call(on_event)
        annotations = check_annotations(**about)
        async with open_deps(self.make_deps, deps) as deps:
            log: RunLog | None = None
            while log is None:
                prepared = self._runs.prepare_run(
                    question, session, on_wait, history, now, deps, annotations.get("run")
                )
                run_spec, head = await prepared
                head = msgspec.structs.replace(head, **annotations)
                try:
                    log = await runs.open_log(run_spec, head, self._parts.store)
                except SessionBusy as why:
                    # Inside a tool, it may be the turn that waits for this call; in a queue, perhaps for ever.
                    is_given = isinstance(history, GivenTurns) and history.after_turn is not None
                    if is_given or why.status == "queued" or (why.status == "running" and call_services() is not None):
                        raise
                    await asyncio.sleep(TURN_POLL if why.status == "running" else 0)
            return await runs.perform(run_spec, head, log, self._parts.store, on_event)

    def submit(
        self,
        question: UserQuestion,
        *,
        session: str | None = None,
        queue: str = "default",
        priority: int = 0,
        at: float | None = None,
        every: str | None = None,
        zone: str = "UTC",
        **about: Unpack[RunAnnotations],
    ) -> str:
        """Put a task in a queue of the journal, for a worker that has this agent (`plait worker`). Returns the run's
        id. `at` is when it may begin, in seconds since 1970; those of higher `priority` begin first. `every` begins a
        new run at each time of a cron expression in the time `zone`, such as `"0 8 * * 1"`: the result is then the
        schedule's name. For the other arguments see `run`. Raises `ConfigError` if the agent has no name, its journal
        no queue, or the time is wrong."""
        more: dict[str, Any] = {"queue": queue, "priority": priority, "at": at, "every": every, "zone": zone, **about}
        return run_blocking(self.asubmit(question, session=session, **more))

    async def asubmit(
        self,
        question: UserQuestion,
        *,
        session: str | None = None,
        queue: str = "default",
        priority: int = 0,
        at: float | None = None,
        every: str | None = None,
        zone: str = "UTC",
        **about: Unpack[RunAnnotations],
    ) -> str:
        """Put a task in a queue. See `submit`."""
        if not self.name:
            hint = 'Agent(name="support"): workers find it by its name.'
            raise ConfigError("An agent without a name can't be put in a queue.", hint=hint)
        check_place(queue, priority, at)
        head, files = self._runs.make_queued_head(question, session)
        head = msgspec.structs.replace(head, **check_annotations(**about))
        store = require_queue(self._parts.require_store())
        if every is None:
            await store.submit(head, queue=queue, priority=priority, at=at, contents=files.contents)
        elif files.attachments or at is not None:
            raise ConfigError("A schedule takes no files and no at=.", hint="Let a tool read the files.")
        else:
            await store.add_schedule(head, every, zone, queue=queue, priority=priority)
        return head.run

    def stream(
        self,
        question: UserQuestion,
        *,
        deps: DepsT | None = None,
        session: str | None = None,
        on_wait: OnWait | None = None,
        history: ChatMessages | None = None,
        now: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        **about: Unpack[RunAnnotations],
    ) -> EventStream:
        """Return the run's events as they happen, for `async for`, or for `for` in plain code. See `arun`.

        The last event is `Ended`, which holds the `Run`. Leaving the iteration early cancels the run. `on_event`
        receives each event first. For the other arguments see `arun`.
        """
        more: dict[str, Any] = {"history": history, "now": now, **about}
        return EventStream(partial(self.arun, question, deps=deps, session=session, on_wait=on_wait, **more), on_event)

    def send(self, run: str | Run[Any], text: str = "", *, call: str = "", by: str = "") -> int:
        """Send a message to a run that goes on, waits or is queued, also in another process. Returns its number.

        The run takes it before its next model call; the record then has it. With `call` in place of a text, that call
        is cancelled, if it is under way: `run.timeline.tool_calls` has the keys. `by` is the user's name. Raises
        `NotTaken` if the run is over.
        """
        return run_blocking(self.asend(run, text, call=call, by=by))

    async def asend(self, run: str | Run[Any], text: str = "", *, call: str = "", by: str = "") -> int:
        """Send a message to a run. See `send`."""
        return await send_to_run(self._parts.store, id_of_run(run), Sent(text, call, by))

    # -- copies

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools as a model sees them."""
        return self._parts.toolset.specs

    @overload
    def using(self, *, deps: type[D] | None, output: OutputForm[T], **new: Unpack[AgentChanges[D]]) -> Agent[D, T]: ...
    @overload
    def using(self, *, deps: type[D] | None, **new: Unpack[AgentChanges[D]]) -> Agent[D, OutputT]: ...
    @overload
    def using(self, *, output: OutputForm[T], **new: Unpack[AgentChanges[DepsT]]) -> Agent[DepsT, T]: ...
    @overload
    def using(self, **new: Unpack[AgentChanges[DepsT]]) -> Agent[DepsT, OutputT]: ...

    def using(self, *_: Any, **changes: Any) -> Agent[Any, Any]:
        """Return a copy of this agent with some fields changed."""
        if _:
            raise ConfigError(f"using got {_[0]!r} without a name.", hint='Name each field: using(loop="rewoo").')
        known = {item.name for item in fields(self) if not item.name.startswith("_")}
        for name in changes:
            if name not in known:
                raise ConfigError(f"An agent has no '{name}'.", hint=f"It has: {', '.join(sorted(known))}.")
        return replace(self, **changes)

    def as_tool(
        self,
        name: str = "ask_agent",
        description: str = "",
        *,
        hand_off: bool = False,
        history: bool = False,
        background: bool = False,
    ) -> Tool[Context[DepsT]]:
        """Return a tool that runs this agent as a child of the run that calls the tool.

        `description` tells the other model what this agent is good for. The child shares the journal, limits,
        approvals, deadline and cancellation of that run (see `plait.Context.arun`). With `hand_off`, the answer of this
        agent is the answer of that run, which ends. An answer that does not fit that run's output is an error of
        the call. With `background`, that run does not wait for this agent (see `plait.tool`). With `history`, this
        agent also sees the conversation of that run: the earlier turns and the question.
        Raises `ConfigError` for an invalid name or description.
        """
        return make_agent_tool(self, name, description, hand_off, history, background)

    def to_asgi(
        self,
        *,
        user: Callable[[MutableMapping[str, Any]], str | Awaitable[str | None] | None] | None = None,
        roles: Mapping[str, Sequence[str]] | None = None,
        thoughts: bool = False,
    ) -> Callable[[Any, Any, Any], Awaitable[None]]:
        """Return an ASGI application of this agent, to mount into another one or to serve alone: the chat page at
        /chat, the page of runs at /, the endpoints /v1, /ag-ui and /mcp.

        `user` returns the name of a request's user from its ASGI scope, None for nobody. Each user has conversations of
        their own. `roles` gives users roles by name, "*" is for all others (by default "use" and "approve"). Without
        `user`, callers need the tokens of `plait serve`; without tokens, only this machine is served. `thoughts`:
        clients get the agent's thoughts and calls. The limits are those of `[serve]`. Raises `ConfigError`.
        """
        if missing := [name for name in ("starlette", "prometheus_client") if find_spec(name) is None]:
            raise ConfigError(f"to_asgi needs {missing[0]}, which is not installed.", hint=install_hint("server"))
        from plait.server.mounted import MountedAgent  # heavy, and needs the extra

        return MountedAgent(self, user, roles, thoughts)

    # -- the record

    def resume(
        self,
        run: str | Run[Any],
        answer: str | None = None,
        *,
        question: str | None = None,
        deps: DepsT | None = None,
        force: bool = False,
    ) -> Run[OutputT]:
        """Resume a run that was interrupted or cancelled, or that waits.

        `answer` is the user's answer to the `question` with that id (`Run.outcome.question` names it). If `run` is a
        `Run`, the default is the question that it waits with. `deps` are the dependencies of its tools, again. Raises
        `StaleAnswer` if the question is not open, and `BadAnswer` for an edited call that does not fit the tool: the
        run then waits as before.
        """
        return run_blocking(self.aresume(run, answer, question=question, deps=deps, force=force))

    async def aresume(
        self,
        run: str | Run[Any],
        answer: str | None = None,
        *,
        question: str | None = None,
        deps: DepsT | None = None,
        on_event: Callable[[Event], None] | None = None,
        force: bool = False,
        on_wait: OnWait | None = None,
        request: str = "",
        by: str = "",
    ) -> Run[OutputT]:
        """Resume a run. See `resume`. `force` takes over a run that another machine started. `request` is a name of
        this request, which the record gets with the answer: whoever sends it again can see that it was done. `by` is
        the name of the user who answers, for the record."""
        check_call(on_event)
        if answer is not None and not isinstance(answer, str):
            raise ConfigError(f"The answer is {answer!r}.", hint='Give a text, such as "yes" or "no, and why".')
        if isinstance(run, Run) and question is None and isinstance(run.outcome, Waiting):
            question = run.outcome.question
        agent, store, row = await self._find_recorded(run)
        if row.status in ("answered", "failed", "stopped"):
            if answer is not None:
                over = f"Run {row.head.run} is over ({row.status}): it takes no answer."
                raise StaleAnswer(over, run=row.head.run, waits=(), hint="")
            output = recorded_output(agent._parts.output, row.head)
            return runs.read_finished_run(row, store, agent._loop, output)
        if (caller := row.head.caller) is not None:
            hint = f"Resume run {caller.run}, which continues with its child runs."
            raise ConfigError(f"Run {row.head.run} is a child of run {caller.run}.", hint=hint)
        timeline = await read_timeline(store, row.head.run, bodies=False)
        async with open_deps(agent.make_deps, deps) as deps:
            run_spec = await agent._runs.prepare_resume(row.head, timeline, on_wait, deps)
            said: dict[str, Any] = {"answer": answer, "question": question, "request": request, "by": by}
            run_spec, log = await runs.claim(run_spec, row.head, store, force=force, **said)
            return await runs.perform(run_spec, row.head, log, store, on_event, resumed=True)

    def stream_resume(
        self,
        run: str | Run[Any],
        answer: str | None = None,
        *,
        question: str | None = None,
        deps: DepsT | None = None,
        force: bool = False,
        on_wait: OnWait | None = None,
    ) -> EventStream:
        """Resume a run, and return its events from there. See `resume` and `stream`; a run that is over has none."""
        more: dict[str, Any] = {"question": question, "deps": deps, "force": force, "on_wait": on_wait}
        return EventStream(partial(self.aresume, run, answer, **more))

    def replay(self, run: str | Run[Any]) -> Replayed:
        """Drive the loop through a run's record and compare every request byte by byte. Performs nothing.

        The requests are those that this agent makes: with its instructions, prompts, tools, settings, output type and
        `History`. The record gives the question, files, time, results and replies, and the text of `instructions` that
        are a function. Needs no key. Raises `ReplayDiffers` at the first difference.
        """
        return run_blocking(self._areplay(run))

    async def _areplay(self, run: str | Run[Any]) -> Replayed:
        agent, store, row = await self._find_recorded(run)
        recorded = runs.outcome_of(row.outcome) if row.outcome is not None else None
        run_spec = await agent._runs.prepare_replay(row.head)
        return await runs.replay(run_spec, row.head, store, recorded)

    def fork(
        self,
        run: str | Run[Any],
        at: int,
        *,
        question: str | None = None,
        results: Mapping[str, str] | None = None,
        deps: DepsT | None = None,
        **about: Unpack[RunAnnotations],
    ) -> Run[OutputT]:
        """Start a new run that takes the first `at - 1` steps from `run` and performs the others.

        `question` replaces the question of `run`. `results` replaces results of calls in the steps that it takes over:
        texts by the keys of the calls (`run.timeline.tool_calls`). It goes on as if the tools had returned them. It
        keeps the user, tags and metadata of `run`, except for those that are given.
        """
        return run_blocking(self.afork(run, at, question=question, results=results, deps=deps, **about))

    async def afork(
        self,
        run: str | Run[Any],
        at: int,
        *,
        question: str | None = None,
        results: Mapping[str, str] | None = None,
        deps: DepsT | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_wait: OnWait | None = None,
        unchanged: Container[str] = (),
        **about: Unpack[RunAnnotations],
    ) -> Run[OutputT]:
        """Start a new run from a step of another one. See `fork`. Settings that are `unchanged` are not recorded as
        changes: a server caps limits that users did not set."""
        check_call(on_event)
        annotations = check_annotations(**about)
        if not isinstance(at, int):
            raise ConfigError(f"fork(at={at!r}) is invalid.", hint="Give the number of the first step to make again.")
        agent, store, row = await self._find_recorded(run)
        rows = await store.read_rows(row.head.run)
        has_code = any(each.step < at for each in Timeline(rows).code)
        async with open_deps(agent.make_deps, deps) as deps:
            given = (row.head, at, has_code, on_wait, deps, store, question)
            run_spec, head = await agent._runs.prepare_fork(*given)
            changes = describe_changes(row.head, head, results or {})
            changed = [each for each in changes if each not in unchanged]
            settings = {**head.settings, "changed": changed} if changed else head.settings
            head = msgspec.structs.replace(head, settings=settings, **annotations)
            run_spec, log = await runs.fork(run_spec, head, rows, at, store, results or {})
            return await runs.perform(run_spec, head, log, store, on_event)

    def stream_fork(
        self,
        run: str | Run[Any],
        at: int,
        *,
        question: str | None = None,
        results: Mapping[str, str] | None = None,
        deps: DepsT | None = None,
        on_wait: OnWait | None = None,
        **about: Unpack[RunAnnotations],
    ) -> EventStream:
        """Start a fork, and return its events from step `at` on. See `fork` and `stream`."""
        more: dict[str, Any] = {"question": question, "results": results, **about}
        return EventStream(partial(self.afork, run, at, deps=deps, on_wait=on_wait, **more))

    @staticmethod
    def from_journal(
        head: RunHead, *, journal: str | Path | None, load_tools: bool | None = None, **changes: Any
    ) -> Agent[Any, Any]:
        """Rebuild the agent that made a recorded run from the run's record.

        `load_tools`: whether to load the tools that the journal names. They may run code, read files and use the
        network. None loads them only from the user's default journal; from others only `calculator`, `date` and
        `ask-user`. Without its tools a run can be replayed, but not resumed or forked.

        Raises `ConfigError` if the loop or tools were Python objects, which the record cannot name.
        """
        if load_tools is None:
            load_tools = is_default(journal)
        described = fields_in(head, tools_given="tools" in changes, load_code=load_tools)
        described["hooks"] = load_hooks(head.settings.get("hooks", ()))
        return Agent(**{**described, "journal": journal, **changes})

    # -- parts

    @property
    def _loop(self) -> Loop:
        """Return the loop; for "auto" the one that fits the model. Raises `ConfigError` if that has no key."""
        return self._parts.loop

    @property
    def _loop_word(self) -> str:
        return self.loop if isinstance(self.loop, str) else loops.word_of(self.loop)

    async def _find_recorded(self, run: str | Run[Any]) -> tuple[Agent[DepsT, OutputT], Store, RunRow]:
        """Return the agent that goes on with a recorded run, the store, and the run."""
        store = self._parts.require_store()
        row = await store.find_run(id_of_run(run))
        if row.status in ("queued", "cancelled") and not row.head.has_begun:
            where, hint = "was cancelled in its queue", "Submit it again."
            if row.status == "queued":
                where, hint = "waits in a queue", f"A worker with the agent {row.head.agent} begins it (plait worker)."
            raise ConfigError(f"Run {row.head.run} {where} and has not begun.", hint=hint)
        return self._with_loop_of(row.head), store, row

    def _with_loop_of(self, head: RunHead) -> Agent[DepsT, OutputT]:
        """Return this agent with the loop of a recorded run, if it chooses its loop itself."""
        if self.loop != AUTO_LOOP:
            return self
        return self.using(loop=loops.make(head.loop["name"], head.loop["options"]))

    @property
    def _parts(self) -> AgentParts:
        return self._made_parts

    @property
    def _runs(self) -> RunMaker:
        return RunMaker(self._parts)

    @cached_property
    def _made_parts(self) -> AgentParts:  # a `cached_property` is no property of a protocol for pyright
        return AgentParts(self)
