"""The class `Context`: what a tool may know of its run and use of it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from plait.core import Usage
from plait.core.errors import ConfigError
from plait.core.messages import JSON
from plait.runtime.agents.annotations import check_annotations
from plait.runtime.background import check_call
from plait.tools.call_context import CallContext
from plait.tools.render import replace_surrogates
from plait.tools.threads import serve_object

if TYPE_CHECKING:
    from plait.models.base import Model
    from plait.runtime.agents.output import OutputT
    from plait.runtime.calls.call_services import ToolServices
    from plait.runtime.calls.child_runs import ChildAgent
    from plait.runtime.conversations.attachments import UserQuestion
    from plait.runtime.run import Run

Deps = TypeVar("Deps", default=Any, covariant=True)
DepsT = TypeVar("DepsT", default=Any, contravariant=True)
"""The type of the dependencies that an agent or a hook needs; Any if it does not say."""
T = TypeVar("T")


class CallLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records name the run, the step and the tool, as `record.run`, `record.step`, `record.tool`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


@dataclass(frozen=True, eq=False)
class Context(CallContext, Generic[Deps]):
    """What a tool gets as its first parameter if that is annotated with `plait.Context` or `plait.Context[Db]`.

    `deps` is the object that the caller gave to the run, `user` for whom it is made, "" if that is not given. `run_id`,
    `step` and `session` say where the call happens.
    `idempotency_key` names this call: it is the same when Plait makes the call again after a crash, and different for
    every other call. Pass it to services that accept such a key. `logger` adds run, step and tool to its records.

    Tests of a tool can make a context themselves: `Context(deps)`. It can do everything except asking models and
    running agents, which need a run.
    """

    deps: Deps
    run_id: str = ""
    step: int = 0
    session: str = ""
    idempotency_key: str = ""
    logger: CallLogger = field(default_factory=lambda: CallLogger(logging.getLogger("plait.tools"), {}), repr=False)
    services: ToolServices | None = field(default=None, repr=False)
    """What the runtime does for this call; None outside of a run."""
    user: str = ""

    @property
    def usage(self) -> Usage:
        """Return the tokens that the run and its child runs have used so far."""
        return self.services.usage if self.services is not None else Usage()

    def report_progress(self, text: str = "", data: JSON = None) -> None:
        """Show how far the tool is: an event `Noted` of the kind "progress", with a text, a JSON value, or both.

        Callable from any thread. Raises `ConfigError` for `data` that is not JSON.
        """
        copied = _copy_json(data, "report_progress(data=...)")
        if self.services is not None:
            self.services.loop.call_soon_threadsafe(self.services.report_progress, text, copied)

    @property
    def state(self) -> JSON:
        """Return a copy of the state that the run shares with the page of its user: what the caller gave as `state` in
        the run's `metadata`, or what a tool has set since. None without one, and outside of a run."""
        return _copy_json(self.services.engine.top.state, "The state") if self.services is not None else None

    def set_state(self, state: JSON) -> None:
        """Replace the state that the run shares with the page of its user. The journal has it before the result of this
        call, and an AG-UI page gets it at once. A child run has the state of the run at the top.

        Callable from any thread. Raises `ConfigError` for a state that is not JSON, or too large.
        """
        copied, services = _copy_json(state, "The state"), self.services
        check_annotations(metadata={"state": copied})
        if services is None:
            return
        services.engine.top.state = copied  # the next line of the tool may read it
        if _is_running(services.loop):
            services.record_state(copied)
        else:
            services.loop.call_soon_threadsafe(services.record_state, copied)

    async def aask_model(
        self, question: str, *, model: str | Model | None = None, system: str = "", max_tokens: int | None = None
    ) -> str:
        """Ask a model one question and return its reply.

        `model` is a spec such as "openai:NAME" or a model object; None asks the model of the run. The journal stores
        the request and the response with the call, and they count against the limits of the run. When Plait makes the
        call again after a crash, the same question gets the recorded reply. Raises `ToolError` if a limit is reached,
        if the model fails, or if its reply is empty.
        """
        return await self._services_of_loop().ask_model(question, model, system, max_tokens)

    def ask_model(
        self, question: str, *, model: str | Model | None = None, system: str = "", max_tokens: int | None = None
    ) -> str:
        """Ask a model one question, blocking, for a synchronous tool. See `aask_model`."""
        return self._wait(self.aask_model(question, model=model, system=system, max_tokens=max_tokens))

    async def arun(
        self, agent: ChildAgent[OutputT], question: UserQuestion, *, deps: Any = None, history: bool = False
    ) -> Run[OutputT]:
        """Run an agent on a question as a child of this run, and return its `Run`.

        `question` is a text, or a list of texts and files (`plait.attach`), as for `Agent.run`. With `history`, the
        agent also sees the conversation of this run: the earlier turns and the question.

        The child shares the journal, limits, approvals, deadline and cancellation of this run. `deps` are its
        dependencies; None passes on those of this run. When Plait makes the call again after a crash, the same question
        to an agent resumes the same child instead of starting another. Raises `ToolError` if the run allows no further
        child.
        """
        if deps is None and getattr(agent, "make_deps", None) is None:
            deps = self.deps
        return await self._services_of_loop().run_child(agent, question, deps, history)

    def run(
        self, agent: ChildAgent[OutputT], question: UserQuestion, *, deps: Any = None, history: bool = False
    ) -> Run[OutputT]:
        """Run an agent as a child of this run, blocking, for a synchronous tool. See `arun`."""
        return self._wait(self.arun(agent, question, deps=deps, history=history))

    def _require_services(self) -> ToolServices:
        if self.services is None:
            hint = "In a test, replace the function that does so."
            raise ConfigError("This context belongs to no run: it cannot ask a model or run an agent.", hint=hint)
        return self.services

    def _services_of_loop(self) -> ToolServices:
        """Return the services for an async method. Raises `ConfigError` on another event loop than the run's."""
        services = self._require_services()
        check_call()
        if not _is_running(services.loop):
            hint = "In a plain function, call run or ask_model."
            raise ConfigError("This is another event loop than that of the run.", hint=hint)
        return services

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine on the run's event loop, from another thread."""
        try:
            loop = self._require_services().loop
            if _is_running(loop):
                hint = "Await the async method: aask_model or arun."
                raise ConfigError("An async tool cannot wait for this without blocking the run.", hint=hint)
        except ConfigError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        while not future.done() and serve_object():
            pass
        return future.result()


def _copy_json(value: JSON, name: str) -> JSON:
    """Return a copy of a JSON value that shares nothing with it. Raises `ConfigError` if it is none."""
    try:
        return cast(JSON, json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False))))
    except (TypeError, ValueError, RecursionError) as why:
        hint = "Give texts, numbers, lists and dictionaries of them."
        raise ConfigError(f"{name} is not JSON: {why}.", hint=hint) from None


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this thread runs the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
