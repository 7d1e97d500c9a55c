"""The services of the runtime for one tool call: context, questions to models, child runs, progress."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from plait.core import Call, LimitNear, Observation, Reply, Stopped, Think, Usage
from plait.core import events as ev
from plait.core.errors import ConfigError, ModelError, ToolError
from plait.core.messages import system, user
from plait.models.base import Model
from plait.runtime.attachments import UserQuestion, identify_question
from plait.runtime.bound_calls import BoundCall
from plait.runtime.call_model import ask_model, limit_reply
from plait.runtime.context import CallLogger, Context
from plait.runtime.make_call import make_call
from plait.runtime.meter import BudgetSpent, LimitReached
from plait.runtime.phase_models import Phases, without_special_tokens
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.run import Run
from plait.runtime.run_context import ChildWaits, RunContext
from plait.runtime.run_hooks import HookRefused, RunHooks
from plait.runtime.tool_prints import as_usual
from plait.tools import Toolset

if TYPE_CHECKING:
    from plait.runtime.child_runs import ChildAgent
    from plait.runtime.output import OutputT

LOGGER = logging.getLogger("plait.tools")


class ToolServices:
    """Serves call `i` of effect `n`. `past` is what is recorded of the effect. Used on the run's event loop."""

    def __init__(
        self, run_context: RunContext, n: int, i: int, step: int, call: Call, past: PastEffect, hooks: RunHooks
    ) -> None:
        self.run_context, self.n, self.i, self.step, self.call, self.past = run_context, n, i, step, call, past
        self.hooks = hooks
        self.loop = asyncio.get_running_loop()
        self.meter, self.calls_in_doubt = run_context.meter, run_context.calls_in_doubt
        self._recorded = {k: asked for (j, k), asked in past.asked.items() if j == i}
        self._asked = max(self._recorded, default=-1) + 1
        self._limit = asyncio.timeout(None)
        self._left = 0.0
        self._children: set[asyncio.Task[object]] = set()
        """The tasks that perform child runs."""
        self._asking: set[asyncio.Task[object]] = set()
        """The tasks that ask models."""
        self._is_over = False
        """Whether nothing more may begin for this call."""
        self._questions: Counter[str] = Counter()
        self._waits: ChildWaits | None = None
        self.find_refusal: Callable[[], str] = str
        """Returns why the call is not made after all when the turn of its object comes; "" if it is."""
        self.stopped: Stopped | None = None
        """How the agent ended that an agent tool ran, if a limit stopped it."""
        self.outside = False
        """Whether a child run of this call has read content from outside."""

    @property
    def key(self) -> str:
        """The name of this call, the same whenever it is made again: a digest of the run and its place in it."""
        text = f"{self.run_context.log.run}\0{self.n}\0{self.i}".encode("utf-8", "surrogatepass")
        return base64.b32encode(hashlib.blake2b(text, digest_size=15).digest()).decode().lower()

    async def make_call(self, tools: Toolset, seconds: float, bound: BoundCall) -> Observation:
        """Make the call within `seconds` and return its observation. Child runs of the tool never outlive it.

        Raises `ChildWaits` if one of them waits for the user, after the others have ended.
        """
        self._is_over = False
        try:
            made = await make_call(tools, bound, seconds, self)
        except ChildWaits:
            pass
        except BaseException:
            await self._cancel_work()
            raise
        if self._waits is None:
            await self._cancel_work()
            return made if self.stopped is None else structs.replace(made, stopped=self.stopped)
        try:
            if self._children:
                await asyncio.wait(self._children)
        except asyncio.CancelledError:
            await self._cancel_work()
            raise
        raise self._waits

    async def _cancel_work(self) -> None:
        """Cancel what goes on for this call, and wait for its end: a tool's thread may have begun it."""
        self._is_over = True
        for task in self._children | self._asking:
            task.cancel()
        while work := self._children | self._asking:
            await asyncio.wait(work, timeout=0.02)  # such a task may go on with something else

    @contextmanager
    def _working(self, tasks: set[asyncio.Task[object]]) -> Iterator[None]:
        """Count the current task among those that work for this call. Raises `ToolError` if the call is over."""
        if self._is_over:
            raise ToolError(f"The call of '{self.call.tool}' is over: nothing more can begin for it.")
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            yield
        finally:
            tasks.discard(task)

    async def run_child(self, agent: ChildAgent[OutputT], question: UserQuestion, deps: object) -> Run[OutputT]:
        """Run an agent as a child run of this call; see `Context.arun`."""
        name = identify_question(question)
        self._questions[name] += 1
        number = self._questions[name]
        if not self._children:
            self._pause()
        try:
            with self._working(self._children):
                return await self.run_context.run_spec.run_child(self, agent, question, deps, number)
        except ChildWaits as why:
            tool = self.run_context.run_spec.tools.get(self.call.tool)
            if tool is not None and not tool.spec.repeatable:
                # The run could not call it again to go on: its own effects might happen twice.
                raise ToolError(
                    f"Run {why.child} waits for the user, and {tool.name} can't be called again to continue it.",
                    hint="If all its effects happen in child runs, mark it idempotent.",
                ) from None
            self._waits = why
            raise
        finally:
            self._go_on()

    def time_limit(self, seconds: float) -> asyncio.Timeout:
        """Return the time limit of the tool. It stands still while child runs go on, which have limits of their own."""
        self._limit = asyncio.timeout(seconds)
        return self._limit

    def _pause(self) -> None:
        until = self._limit.when()
        if until is not None:
            self._left = until - self.loop.time()
            self._limit.reschedule(None)

    def _go_on(self) -> None:
        if not self._children and self._left > 0:
            with suppress(RuntimeError):  # the tool has ended
                self._limit.reschedule(self.loop.time() + self._left)

    @property
    def usage(self) -> Usage:
        return self.meter.tree_total.usage

    def make_context(self) -> Context[object]:
        """Return the context that the tool gets."""
        run_spec, run = self.run_context.run_spec, self.run_context.log.run
        logger = CallLogger(LOGGER, {"run": run, "step": self.step, "tool": self.call.tool})
        return Context(run_spec.deps, run, self.step, run_spec.session, self.key, logger, self)

    def find_result(self, name: str) -> tuple[str, int]:
        """Return the whole text of an earlier result of the run, and the characters that one result may show.

        Raises `ToolError` for a wrong name.
        """
        found = self.run_context.results.get(name.strip().strip("'\"`"))
        if found is None:
            names = ", ".join(self.run_context.results)
            raise ToolError(f"No long result has the number {name[:40]!r}.", hint=f"There are: {names or 'none'}.")
        self.outside = self.outside or found.outside
        return found.text, max(self.run_context.run_spec.limits.observation_chars - 200, 300)

    def report_progress(self, text: str) -> None:
        with as_usual():
            self.run_context.say(ev.Noted(self.step, "progress", f"{self.call.tool}: {text}"))

    async def ask_model(self, question: str, model: str | Model | None, rules: str, max_tokens: int | None) -> str:
        """Return a model's reply to a question of the tool. Raises `ToolError`."""
        if not question.strip():
            raise ToolError("The question is empty.", hint="Give the whole question: nothing else is seen.")
        try:
            with self._working(self._asking):
                text = await self._ask(question, model, rules, max_tokens)
        except (LimitNear, LimitReached) as why:
            raise BudgetSpent(why) from None
        except HookRefused as why:
            raise ToolError(str(why)) from None
        except (ModelError, ConfigError) as why:
            after = f" Wait {why.after:g} s." if isinstance(why, ModelError) and why.after is not None else ""
            raise ToolError(why.message, hint=f"{why.hint}{after}".strip()) from why
        if not text:
            raise ToolError("The model gave no answer.", hint="Ask in another way.")
        return text

    async def _ask(self, question: str, given: str | Model | None, rules: str, max_tokens: int | None) -> str:
        run_context, run_spec, meter = self.run_context, self.run_context.run_spec, self.meter
        think = Think(f"tool:{self.call.tool}", (system(rules), user(question)), max_tokens=max_tokens)
        think = await self.hooks.ask_about_tools_question(without_special_tokens(think, run_spec.data_tokens))
        phases = Phases({"": run_spec.find_model(given)})
        model = phases.of(think.phase)
        if (recorded := self._take_recorded(think, phases)) is not None:
            return (await self.hooks.read_reply_for_tool(recorded)).text.strip()
        meter.before_tool_request(model)
        number, self._asked = self._asked, self._asked + 1
        run_context.say(ev.Asked(self.step, think.phase, model.spec))
        with meter.asking(by_tool=True) as share, run_context.span.model(self.step, think, model) as span:
            reply = await ask_model(
                phases,
                think,
                n=self.n,
                step=self.step,
                log=run_context.log,
                past=PastEffect(),
                retries=run_spec.limits.retries,
                on_text=None,
                on_note=partial(run_context.remark, self.step),
                span=span,
                meter=meter,
                share=share,
                find_contents=run_context.find_contents,
                asked_by=(self.i, number),
            )
        meter.count_tool_reply(reply.usage, reply.cost)
        reply = await self.hooks.read_reply_for_tool(reply)
        run_context.say(ev.Noted(self.step, "tool_model", reply.text))
        run_context.say(
            ev.Replied(self.step, think.phase, reply.model, reply.text, reply.usage, reply.seconds, reply.cost)
        )
        return reply.text.strip()

    def _take_recorded(self, think: Think, phases: Phases) -> Reply | None:
        """Return the recorded reply to the same question of this call, each only once; None if there is none."""
        for k, asked in self._recorded.items():
            made = phases.find_model(think.phase, asked.model).encode(limit_reply(think, asked.last.max_tokens))
            if asked.reply is not None and self.run_context.log.scrub(made.body) == asked.request:
                del self._recorded[k]
                return asked.reply
        return None
