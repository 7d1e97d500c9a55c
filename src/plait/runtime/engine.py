"""Takes a loop from effect to effect: each through the record, the guards and its performer.

Theory of operation. `Engine` drives the loop's generator and numbers its effects. A performer does one kind of effect;
it takes each unit of work (an entry) through `Engine.perform`: the chain admits it, the journal holds what is done
between an intent and a result, the chain settles the result. What is on record is not done again, so a resumed run, a
fork and a replay are the same walk; they differ in what happens where the record ends. The engine knows no single
guard. A run ends in one place, `Engine.run`, with one of six outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast, get_args

import msgspec
from msgspec import UNSET, structs

from plait.core import (
    Answered,
    ContextOverflow,
    Crashed,
    Effect,
    Event,
    Failed,
    LimitNear,
    LoopRun,
    Note,
    Outcome,
    PlaitError,
    Reply,
    Stopped,
    Think,
    Unsupported,
    WaitNext,
    WaitResult,
)
from plait.core import events as ev
from plait.core.errors import JournalError, ReplayDiffers
from plait.core.text import sentence
from plait.journal.entries import Question
from plait.journal.keys import read_key
from plait.journal.records import NoteRecord, ResultRecord, RunHead
from plait.journal.store import RunLog, Store
from plait.runtime.answers import answer_live
from plait.runtime.approvals import waiting_with
from plait.runtime.calls.artifacts import ArtifactStore
from plait.runtime.calls.bound_calls import CallBinder
from plait.runtime.chain import Admitted, Chain, raise_named
from plait.runtime.clock import RunClock
from plait.runtime.guard import EndedByRefusal, Entry, Finish, Guard, HandedBack, LimitReached, RecordEnds, Suspend
from plait.runtime.performers import Performers
from plait.runtime.performers.base import BasePerformer
from plait.runtime.performers.call_tools import EndedByTool
from plait.runtime.performers.check import END
from plait.runtime.run_journal import NOTHING, RunJournal
from plait.runtime.run_spec import RunSpec, differs
from plait.runtime.signals import ENDINGS, SIGNALS, cancelled_by, cut_short, describe_signal, read_signal, write_signal
from plait.runtime.tally import Tally
from plait.runtime.tracing import UNWATCHED, RunSpan
from plait.runtime.written_text import WrittenText
from plait.tools.call_context import call_services
from plait.tools.end_run import find_ending

logger = logging.getLogger("plait")

GRACE = 5.0
"""Seconds that an object gets to close."""

_OUTCOMES = get_args(Outcome)


class Engine:
    """One run. Make one, await `run`, read what it used from `totals`. `make_guards` makes its guards. `has_ended` says
    of a replay that the record is that of the whole run."""

    def __init__(
        self,
        run_spec: RunSpec,
        log: RunLog,
        make_guards: Callable[[Engine], Sequence[Guard]] = lambda engine: (),
        *,
        on_event: Callable[[Event], None] | None = None,
        span: RunSpan = UNWATCHED,
        store: Store | None = None,
        has_ended: bool = False,
        head: RunHead | None = None,
    ) -> None:
        self.run_spec, self.log, self.store, self.span, self.on_event = run_spec, log, store, span, on_event
        self.run_id, self.head, self.user = log.run, head, head.user if head is not None else ""
        past = run_spec.past
        self.journal = RunJournal(log, past.rows, replay=run_spec.replay, has_ended=has_ended)
        services: Any = None if run_spec.replay else call_services()
        parent: Engine | None = getattr(services, "engine", None)
        if parent is not None and parent._ended is not None:
            parent = None  # whatever its tool has left behind, it is over
        self.parent = parent
        """The run whose tool performs this one."""
        if parent is not None and (tool := services.entry.tool) is not None:
            self.journal.must_finish = parent.journal.must_finish or not tool.spec.repeatable
        seconds = None if run_spec.replay else run_spec.agent.limits.seconds
        self.clock: RunClock = RunClock(seconds, past.seconds, parent.clock if parent is not None else None)
        self.tally = Tally(past.spent, past.children)
        if parent is not None:
            parent.tally.children[log.run] = self.tally
        self.artifacts = ArtifactStore(past.artifacts, log.scrub)
        self.binder = CallBinder(run_spec.tools, self.artifacts, log.scrub)
        self.chain = Chain(make_guards(self), self.journal, self.remark)
        self.steps = 0
        """Turns of the loop so far."""
        notes = (row.record for row in reversed(past.rows) if isinstance(row.record, NoteRecord))
        given = head.metadata.get("state") if head is not None else None
        self.state: Any = next((each.value for each in notes if each.kind == "state"), given)
        """The JSON that the run shares with the page of its user; see `Context.set_state`."""
        self.near: LimitNear | None = None
        """The signal that makes the loop conclude, once it was raised."""
        self.questions: list[Question] = []
        """The open questions of a run that waits, those of its child runs too."""
        self.stuck: PlaitError | None = None
        """Why a child run that has begun can't go on now."""
        self.children: list[Any] = []
        """The child runs (`Run`), if there is no journal to read them from."""
        self.compared = 0
        """Number of requests compared with the record."""
        self.written = WrittenText(self.say)
        self.performers = Performers(self)
        self._ended: dict[str, Any] | None = None
        self._next = self._checks = self._notes = 0
        self._last: Reply | None = None
        """The reply that the loop was given last."""
        self._loop: LoopRun | None = None
        self._result: Any = None
        self._thrown: LimitNear | ContextOverflow | Unsupported | None = None

    async def run(self) -> Outcome:
        """Take the loop to its end. Raises only a recorded cancellation, `HandedBack` and `ReplayDiffers`; for a run of
        a queue also `JournalError`."""
        try:
            async with asyncio.timeout(self.clock.left()) as deadline:
                self.clock.deadline = deadline
                try:
                    outcome = await self._walk()
                    if (background := self.performers.tools.background).begun:
                        await background.end_all()
                    outcome = await self._finish(outcome)
                except Suspend as why:  # what was started ends first
                    others = await self.performers.started.end_others()
                    others += await self.performers.tools.background.end_all()
                    if self.journal.hands_back:
                        raise HandedBack from None
                    raise Suspend(*why.questions, *(each for other in others for each in other.questions)) from None
                finally:
                    if not deadline.expired():
                        deadline.reschedule(None)  # it must not cancel what ends the run
                    try:
                        if self._loop is not None:
                            self._loop.close()
                    finally:
                        await self.performers.close()
        except TimeoutError as why:
            # Not every TimeoutError is our time limit: the loop, or a model, may raise one of its own.
            limit = f"The limit of {self.run_spec.agent.limits.seconds} seconds is reached."
            outcome = Stopped("seconds", limit) if deadline.expired() else self._ended_by(why)
            outcome = await self._finish_quietly(outcome)
        except asyncio.CancelledError as why:
            outcome = cancelled_by(why)
        except EndedByTool as why:
            outcome = await self._finish_quietly(why.outcome)
        except Exception as why:
            if isinstance(why, HandedBack) or (self.log.is_queued and isinstance(why, ReplayDiffers | JournalError)):
                await self._close_objects()  # another worker goes on
                if isinstance(why, HandedBack):
                    await self.log.hand_back()
                await self.journal.close()
                raise
            outcome = await self._finish_quietly(self._ended_by(why))
        except BaseException as why:
            if find_ending(why) is None:
                raise
            hint = "Raise it in a tool. A hook refuses with plait.Refuse."
            outcome = Crashed("plait.EndRun was raised outside of a tool.", error="EndRun", hint=hint)
        try:
            if self.on_event is not None:
                self.written.finish(self.steps, outcome.answer)
        except asyncio.CancelledError as why:  # `on_event` failed
            outcome = cancelled_by(why)
        await self._close_objects()
        try:
            self._ended = self.totals()
        except PlaitError as why:  # a guard's mistake: a run above must not go on without what it would carry
            self._ended = self._own_totals()
            outcome = self._ended_by(why)
        self.tally.is_over = True
        if not self.journal.replay:
            try:
                await self.log.end(outcome.status, msgspec.to_builtins(outcome), self.totals())
            except asyncio.CancelledError:
                pass  # Cancelled while it waits for the disk: what was handed to the journal is written all the same.
            except JournalError as why:
                # The journal cannot store the outcome, so the caller at least gets the reason.
                outcome = Crashed(why.message, error="JournalError", hint=why.hint)
            with suppress(asyncio.CancelledError):
                await self.journal.close()
        # These refer back to the engine. A cycle would keep the finished run until the garbage collector comes.
        del self.performers, self.chain, self.written
        return outcome

    def totals(self) -> dict[str, Any]:
        """Return what the run used so far, and what guards of a run above must know. It is fixed at the run's end."""
        if self._ended is not None:
            return self._ended
        # The guard of the run above has its own name; the child's own one of that name counts for no run above.
        guards = sorted(self.chain.guards, key=lambda guard: guard.name.startswith("^"))
        carried: dict[str, Any] = {}
        for guard in guards:
            try:
                if (carry := guard.carry()) is not None:
                    carried[guard.name.lstrip("^")] = carry
            except BaseException as why:
                raise_named(guard, why)
        return self._own_totals() | ({"guards": carried} if carried else {})

    def _own_totals(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            **self.tally.json(),
            "seconds": round(self.clock.seconds, 6),
            **({"tree": self.tally.tree_total.json()} if self.tally.children else {}),
        }

    # -- the walk

    async def _walk(self) -> Outcome:
        await self.performers.recall()
        for text in self.run_spec.tools.absent.values():
            self.remark("absent", text, 0, key="0")
        task, has_acted = self.run_spec.task, False
        while True:
            self._loop = self._loop or self.run_spec.loop.run(task, self.run_spec.context)
            thrown, self._thrown = self._thrown, None
            result, self._result = self._result, None
            try:
                effect = self._loop.send(result) if thrown is None else self._loop.throw(thrown)
            except StopIteration as end:
                return self._settle_outcome(cast(Outcome, end.value))
            except ContextOverflow as why:
                if has_acted or not task.history:
                    raise
                left = len(task.history) // 2
                await self._note(Note("shortened", f"{why}: {left} earlier turns are left"))
                task, self._loop = structs.replace(task, history=task.history[len(task.history) - left :]), None
                continue
            if isinstance(effect, Note):
                await self._note(effect)
                continue
            has_acted = has_acted or not isinstance(effect, Think)
            try:
                is_check = type(effect) in self.performers.checks  # which has a number of its own
                key = f"{self._next}~{self._checks}" if is_check else str(self.take_number())
                self._checks = self._checks + 1 if is_check else 0
                self._result = result = await self.perform_effect(key, effect)
            except SIGNALS as why:
                self._thrown = why
                continue
            if isinstance(reply := result.reply if isinstance(result, WaitResult) else result, Reply):
                self._last = reply

    def take_number(self) -> int:
        """Return the number of the next effect."""
        n = self._next
        self._next += 1
        return n

    async def perform_effect(self, key: str, effect: Effect, *, started: bool = False, beside: int = 0) -> Any:
        """Perform an effect of the loop; of a started one, `beside` others began after it. What is raised in place of a
        result is recorded under its key."""
        performer = self.performers.of(effect)
        step = performer.step_of(effect)
        if (work := self.journal.works.get(read_key(key).n, performer.work)) != performer.work and "~" not in key:
            raise differs(key, step, f"an effect '{work}'", f"an effect '{performer.work}'")
        while True:
            try:
                if (raised := self.journal.raised(key)) is not None:
                    await performer.prepare_raised(key, effect)
                    is_trusted = self.steps < self.run_spec.trust_until
                    if not is_trusted and raised.asked and raised.asked != self._digest(effect):
                        raise differs(key, self.steps, "another effect", f"{type(effect).__name__}")
                    raise read_signal(raised)
                return await performer.take(key, effect, started=started, beside=beside)
            except Suspend as why:
                if self.journal.replay:
                    raise RecordEnds from None
                if isinstance(effect, WaitNext) or self.journal.hands_back:
                    raise
                if still_open := await answer_live(self, why.questions):
                    raise Suspend(*still_open) from None
            except ENDINGS as why:
                if isinstance(why, LimitNear):
                    self.near = self.near or why
                if isinstance(effect, WaitNext):
                    raise  # recorded under the key of the ticket
                await self.chain.tell_signal(Entry(self.run_id, key, step, effect, effect, started=started), why)
                if self.journal.raised(key) is None and not self.journal.replay:
                    await self.journal.write(write_signal(key, step, why, self._digest(effect)))
                    if said := describe_signal(why):
                        self.say(ev.Noted(step, *said))
                raise

    def _digest(self, effect: Effect) -> str:
        return self.journal.digest(msgspec.to_builtins(effect, enc_hook=repr))

    async def perform(self, entry: Entry, performer: BasePerformer) -> Any:
        """Take one entry all the way: through the guards, its work, and the guards again. Returns its result."""
        with await self.chain.admit(entry, performer) as admitted:
            result = await self.carry_out(admitted)
        return await self.chain.settle(admitted, result)

    async def carry_out(self, admitted: Admitted) -> Any:
        """Return the result of an admitted entry: recorded, refused, or performed between its intent and its result."""
        entry, performer, found = admitted.entry, admitted.performer, admitted.found
        if admitted.result is not UNSET:
            if found.value is UNSET and performer.work != "check":
                asked = performer.describe(entry).asked
                self.journal.buffer(ResultRecord(entry.key, entry.step, performer.work, admitted.result, asked))
                performer.report_refused(entry, admitted.result)
            return admitted.result
        if found.value is not UNSET:
            return found.value
        if performer.work == "check":
            return (await performer.perform(entry))[0]
        try:
            return await self.journal.entry(entry, performer.work, performer.describe(entry), performer.perform)
        except Suspend:
            entry.begun = False  # it has ended in order, and begins anew
            raise

    # -- notes and events

    @property
    def top(self) -> Engine:
        """Return the run at the top of the tree of child runs."""
        return self if self.parent is None else self.parent.top

    def say(self, event: Event) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def remark(self, kind: str, text: str, step: int | None = None, key: str = "", data: Any = None) -> None:
        """Record and report a note of the runtime. One about an entry (`key`) is made once, though its guards may look
        at it again after a question."""
        step = self.steps if step is None else step
        if self.journal.note(key, step, kind, text, data):
            self.say(ev.Noted(step, kind, text, data))

    async def _note(self, effect: Note) -> None:
        key, self._notes = f"n{self._notes}", self._notes + 1
        self.remark(effect.kind, effect.text, key=key)
        for guard in self.chain.at(Note).after:
            await guard.after(Entry(self.run_id, key, self.steps, effect, effect), None, False)

    # -- the end

    async def _finish(self, outcome: Outcome) -> Outcome:
        """Return the outcome as the guards leave it."""
        if not isinstance(outcome, Answered | Failed | Stopped):
            return outcome
        entry = Entry(self.run_id, "", self.steps, Finish(), Finish())
        entry.remark = partial(self.remark, step=entry.step)
        admitted = Admitted(entry, END, self.chain.at(Finish).after, NOTHING)
        if (raised := self.journal.raised("")) is not None:
            raise read_signal(raised)
        while True:
            try:
                return cast(Outcome, await self.chain.settle(admitted, outcome))
            except Suspend as why:
                if self.journal.replay:
                    raise RecordEnds from None
                if self.journal.hands_back:
                    raise
                if still_open := await answer_live(self, why.questions):
                    raise Suspend(*still_open) from None
            except ENDINGS as why:
                if not self.journal.replay:
                    self.journal.buffer(write_signal("", self.steps, why, ""))
                await self.chain.tell_signal(entry, why)
                raise

    async def _finish_quietly(self, outcome: Outcome) -> Outcome:
        """Return the outcome as the guards leave it, or that of what went wrong meanwhile."""
        try:
            return await self._finish(outcome)
        except asyncio.CancelledError as found:
            return cancelled_by(found)
        except Exception as found:
            return self._ended_by(found)

    async def _close_objects(self) -> None:
        """Close the objects that the run made for its tools. How the run ended does not depend on it."""
        for owner in reversed(self.run_spec.tools.made_objects):
            closing = asyncio.ensure_future(owner.close())
            with suppress(asyncio.CancelledError):  # cancelled once more
                await asyncio.wait([closing], timeout=GRACE)
            name = type(owner.item).__name__
            for why in closing.result() if closing.done() else [f"it takes more than {GRACE:g} seconds"]:
                self.remark("close", f"{name} could not be closed: {sentence(why)}")

    def _settle_outcome(self, outcome: Outcome) -> Outcome:
        """Return what the loop's outcome comes to. A loop that answered only because a limit was near has been stopped,
        with that answer. A loop whose last reply was cut or refused has been stopped by that: what it made of the reply
        is no answer, and no failure of its own."""
        if self.journal.replay and not self.journal.has_ended:
            raise RecordEnds
        if type(outcome) not in _OUTCOMES:
            raise TypeError(f"it returned {type(outcome).__name__}, which is no outcome")
        msgspec.to_builtins(outcome)  # an answer that JSON can't hold is an error of the loop, said here
        if self.near is not None and isinstance(outcome, Answered):
            outcome = Stopped(self.near.limit, sentence(self.near.detail), outcome.answer)
        if self._last is not None and (how := self._last.how_cut):
            outcome = cut_short(outcome, how, self._last.text.strip())
        output = self.run_spec.output
        if isinstance(outcome, Answered | Stopped) and outcome.answer is not None and output.fits(outcome.answer):
            outcome = structs.replace(outcome, answer=output.read(outcome.answer))
        return outcome

    def _ended_by(self, why: Exception) -> Outcome:
        match why:
            case ReplayDiffers() | RecordEnds() if self.journal.replay:
                raise why
            case Suspend():
                self.questions = why.questions
                return waiting_with(why.questions[0])
            case EndedByRefusal():
                return Failed(sentence(str(why)) if why.kind == "output" else str(why), kind=why.kind)
            case LimitReached() | LimitNear():
                how = self._last.how_cut if self._last is not None else ""
                stopped = Stopped(why.limit, sentence(why.detail))
                return cut_short(stopped, how, "") if how else stopped
            case ContextOverflow():
                # A turn that is asked again with less counts once, and so does one whose prompt never fitted.
                self.steps += self.near is None
                return Stopped("context", f"The prompt does not fit the model's context: {why}")
            case Unsupported():
                said = f": {why.said.rstrip('.')}." if why.said else "."
                hint = "Use --loop auto (tool calling, otherwise react) or --loop react, or choose another model."
                return Crashed(f"{why.message}{said}", error="Unsupported", hint=hint)
            case ExceptionGroup():
                return self._ended_by(why.exceptions[0])
            case PlaitError():
                return Crashed(why.message, error=type(why).__name__, hint=why.hint)
            case _:
                logger.debug("the loop broke", exc_info=why)
                name = getattr(self.run_spec.loop, "name", type(self.run_spec.loop).__name__)
                return Crashed(
                    f"The loop '{name}' broke: {type(why).__name__}: {why}",
                    error=type(why).__name__,
                    hint="This is a defect of the loop, not of the task; logging at level DEBUG shows where.",
                )
