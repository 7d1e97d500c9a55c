"""The services of the runtime for one tool call: context, questions to models, child runs, progress."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from plait.core import LimitNear, Observation, Stopped, Think, Usage
from plait.core import events as ev
from plait.core.errors import ConfigError, ModelError, PlaitError, ToolError
from plait.core.messages import system, user
from plait.core.text import cut_text
from plait.journal.codec import encode
from plait.journal.entries import Question
from plait.journal.records import Asking, CallHolder, IntentRecord, ResultRecord
from plait.models.base import Model
from plait.runtime.calls.bound_calls import BoundCall
from plait.runtime.calls.context import CallLogger, Context
from plait.runtime.calls.make_call import ChildWaits, make_call
from plait.runtime.calls.tool_prints import as_usual
from plait.runtime.conversations.attachments import UserQuestion, split_question
from plait.runtime.guard import EndedByRefusal, Entry, LimitReached, Suspend, make_open_question
from plait.runtime.phase_models import Phases
from plait.runtime.run import Run
from plait.tools import Tool
from plait.tools.tool import NoEffect, TookEffect

if TYPE_CHECKING:
    from plait.runtime.agents.output import OutputT
    from plait.runtime.calls.child_runs import ChildAgent
    from plait.runtime.engine import Engine

LOGGER = logging.getLogger("plait.tools")
MOST_EXTENDED = 10
"""A call that reports progress may take this many times its time limit."""


class BudgetSpent(ToolError):
    """The limits of the run allow no further model call or child run for its tools."""

    def __init__(self, why: LimitNear | LimitReached) -> None:
        super().__init__(f"A limit of the run is reached: {why.detail}.", hint="Answer from what is known.")


class ToolServices:
    """Serves one tool call: `entry`, as it is made; or the question whether the call of `verifying` took effect. Used
    on the run's event loop.

    Runs made inside the tool find their parent by `engine`.
    """

    def __init__(self, engine: Engine, entry: Entry, verifying: CallHolder | None = None) -> None:
        self.engine, self.entry, self._verifying = engine, entry, verifying
        self.loop = asyncio.get_running_loop()
        self._limit: asyncio.Timeout | None = None
        self._left = self._seconds = self._latest = 0.0
        self.has_more_time = False
        """Whether the call got more time than its limit."""
        self._children: set[asyncio.Task[object]] = set()
        """The tasks that perform child runs."""
        self._asking: set[asyncio.Task[object]] = set()
        """The tasks that ask models."""
        self._is_over = False
        """Whether nothing more may begin for this call."""
        self._asked: Counter[str] = Counter()
        """How often the tool asked models for the same."""
        self._started: dict[str, int] = defaultdict(int)
        """How often it started a child run with the same question."""
        self._waits: list[Question] = []
        """The questions with which child runs wait, or the tool itself."""
        self._error: PlaitError | None = None
        """Why a child run that has begun can't go on now."""
        self.is_cancelled = False
        """Whether the user cancelled this call."""
        self.find_refusal: Callable[[], str] = str
        """Returns why the call is not made after all when the turn of its object comes; "" if it is."""
        self.stopped: Stopped | None = None
        """How the agent ended that an agent tool ran, if a limit stopped it."""
        self.outside = False
        """Whether a child run of this call has read content from outside."""
        self.verified: TookEffect | NoEffect | None = None
        """What the `verify` of a tool answered."""

    @property
    def key(self) -> str:
        """The name of this call, the same whenever it is made again, until `verify` closes it."""
        holder = self._verifying or self.engine.journal.find(self.entry.key).holder
        run, closed = (holder.run, holder.closed) if holder is not None else (self.engine.run_id, 0)
        text = "\0".join((run, *self.entry.key.split("."), *([str(closed)] if closed else [])))
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=15).digest()
        return base64.b32encode(digest).decode().lower()

    @property
    def place(self) -> tuple[str, str]:
        return self.engine.run_id, self.entry.key

    async def call_tool(self, tool: Tool, seconds: float, bound: BoundCall) -> Observation:
        """Make the call within `seconds` and return its observation. Child runs of the tool never outlive it. Raises
        `Suspend` if one of them waits for the user, and the error if one can't go on, after the others have ended."""
        self._is_over, self._waits, self._error = False, [], None
        made: Observation | None = None
        try:
            made = await make_call(tool, bound, seconds, self)
        except ChildWaits:
            pass
        except BaseException:
            await self._cancel_work()
            raise
        if made is not None and not self._waits and self._error is None:
            if self._children or self._asking:
                await self._cancel_work()
            self._is_over = True
            return made if self.stopped is None else structs.replace(made, stopped=self.stopped)
        try:
            if self._children:
                await asyncio.wait(self._children)
        except asyncio.CancelledError:
            await self._cancel_work()
            raise
        self.engine.stuck = self.engine.stuck or self._error
        raise self._error or Suspend(*self._waits)

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
            raise ToolError(f"The call of '{self.entry.effect.tool}' is over: nothing more can begin for it.")
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            yield
        finally:
            tasks.discard(task)

    async def run_child(
        self, agent: ChildAgent[OutputT], question: UserQuestion, deps: object, history: bool
    ) -> Run[OutputT]:
        """Run an agent as a child run of this call; see `Context.arun`."""
        text, files = split_question(question)
        digest = self.engine.journal.digest("\0".join((text, *(each.digest for each in files.attachments))))
        name = f"{digest}.{self._started[digest]}"
        self._started[digest] += 1
        from plait.runtime.calls.child_runs import perform_child  # a child run needs all of the runtime

        if not self._children and self._limit is not None and (until := self._limit.when()) is not None:
            self._left = until - self.loop.time()
            self._limit.reschedule(None)
        try:
            with self._working(self._children):
                return await perform_child(self, agent, question, deps, name, history)
        except ChildWaits as why:
            tool = self.entry.tool
            if tool is not None and not tool.spec.repeatable:
                if why.error is not None:
                    raise why.error from None
                # The run could not call it again to go on: its own effects might happen twice.
                raise ToolError(
                    f"Run {why.child} waits for the user, and {tool.name} can't be called again to continue it.",
                    hint="If all its effects happen in child runs, mark it idempotent.",
                ) from None
            self._waits += why.questions
            self._error = self._error or why.error
            raise
        finally:
            if self._limit is not None and not self._children and self._left > 0:
                with suppress(RuntimeError):  # the tool has ended
                    self._limit.reschedule(self.loop.time() + self._left)

    def time_limit(self, seconds: float) -> asyncio.Timeout:
        """Return the time limit of the tool. It stands still while child runs go on, which have limits of their own."""
        self._limit = asyncio.timeout(0 if self.is_cancelled else seconds)
        self._seconds, self._latest = seconds, self.loop.time() + seconds * MOST_EXTENDED
        return self._limit

    def extend_time(self) -> None:
        if self._limit is not None and (until := self._limit.when()) is not None and not self.is_cancelled:
            with suppress(RuntimeError):  # the tool has ended
                self._limit.reschedule(max(until, min(self.loop.time() + self._seconds, self._latest)))
                self.has_more_time = True

    def cancel(self, by: str) -> None:
        """End this call for a user of this name, as if its time were over."""
        self.is_cancelled = True
        self.engine.remark("cancel", f"{by or 'The user'} cancelled the call.", self.entry.step, self.entry.key)
        if self._limit is not None:
            with suppress(RuntimeError):  # the tool has ended
                self._limit.reschedule(self.loop.time())

    @property
    def usage(self) -> Usage:
        return self.engine.tally.tree_total.usage

    def make_context(self) -> Context[object]:
        """Return the context that the tool gets."""
        engine, step = self.engine, self.entry.step
        logger = CallLogger(LOGGER, {"run": engine.run_id, "step": step, "tool": self.entry.effect.tool})
        # What `verify` would ask models would be recorded as the call's own.
        services = self if self._verifying is None else None
        spec = engine.run_spec
        return Context(spec.deps, engine.run_id, step, spec.session, self.key, logger, services, engine.user)

    def find_result(self, name: str) -> tuple[str, int]:
        """Return the whole text of an earlier result of the run, and the characters that one result may show. Raises
        `ToolError` for a wrong name."""
        results = self.engine.performers.tools.results
        found = results.get(name.strip().strip("'\"`"))
        if found is None:
            hint = f"There are: {', '.join(results) or 'none'}."
            raise ToolError(f"No long result has the number {name[:40]!r}.", hint=hint)
        self.outside = self.outside or found.outside
        return found.text, max(self.engine.run_spec.agent.limits.observation_chars - 200, 300)

    @property
    def has_read_outside(self) -> bool:
        """Return whether the run has read content from outside so far."""
        return bool(self.engine.totals().get("guards", {}).get("taint"))

    def report_progress(self, text: str, data: Any = None) -> None:
        shown = text or ("" if data is None else cut_text(encode(data).decode(), 200))
        with as_usual():
            self.engine.say(ev.Noted(self.entry.step, "progress", f"{self.entry.effect.tool}: {shown}", data))

    def record_state(self, state: Any) -> None:
        """Record the state that a tool has set, in the run at the top, and report it; see `Context.set_state`."""
        shown, top = cut_text(encode(state).decode(), 200), self.engine.top
        with as_usual():
            top.remark("state", f"{self.entry.effect.tool}: {shown}", data=state)

    def record_todos(self, text: str, tasks: Any) -> None:
        """Record and report the plan that the model keeps: as text, and as JSON."""
        with as_usual():
            self.engine.remark("todo", text, self.entry.step, self.entry.key, tasks)

    @property
    def tool(self) -> Tool | None:
        return self.entry.tool

    def find_asked(self) -> list[tuple[str, Any]]:
        found = [each.asked for key, each in self.engine.journal.items() if key.startswith(f"{self.entry.key}:q")]
        return [(each.text, each.state) for each in found]

    async def ask_user(self, question: str, number: int, state: Any = None) -> str:
        """Return the user's answer to a question of the tool. Raises `ChildWaits` until there is one."""
        journal = self.engine.journal
        if not self.engine.run_spec.context.can_ask:
            return "cancel"
        key = f"{self.entry.key}:q{journal.digest(question)}.{number}"
        found, asking = journal.find(key), Asking("question", question, state=state)
        if found.value is not UNSET:
            return str(found.value)
        if not found.is_open:
            await journal.write(IntentRecord(key, self.entry.step, "question", asking))
        self._waits.append(make_open_question(self.engine.run_id, key, self.entry.step, asking))
        raise ChildWaits(self.engine.run_id, self._waits)

    async def note_use(self, question: str, number: int) -> None:
        """Record that the tool goes on with the user's answer, before it does."""
        key = f"{self.entry.key}:u{self.engine.journal.digest(question)}.{number}"
        if self.engine.journal.find(key).value is UNSET:
            await self.engine.journal.write(ResultRecord(key, self.entry.step, "use"))

    async def ask_model(self, question: str, model: str | Model | None, rules: str, max_tokens: int | None) -> str:
        """Return a model's reply to a question of the tool. Raises `ToolError`."""
        if not question.strip():
            raise ToolError("The question is empty.", hint="Give the whole question: nothing else is seen.")
        run_spec = self.engine.run_spec
        think = Think(f"tool:{self.entry.effect.tool}", (system(rules), user(question)), max_tokens=max_tokens)
        try:
            with self._working(self._asking):
                phases = Phases({"": run_spec.find_model(model)})
                reply = await self.engine.performers.model.ask_for_tool(self.entry, think, phases, self._asked)
        except (LimitNear, LimitReached) as why:
            raise BudgetSpent(why) from None
        except EndedByRefusal as why:
            raise ToolError(str(why)) from None
        except (ModelError, ConfigError) as why:
            after = f" Wait {why.after:g} s." if isinstance(why, ModelError) and why.after is not None else ""
            raise ToolError(why.message, hint=f"{why.hint}{after}".strip()) from why
        if not (text := reply.text.strip()):
            raise ToolError("The model gave no answer.", hint="Ask in another way.")
        return text
