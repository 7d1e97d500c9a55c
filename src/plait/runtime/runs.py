"""Opens, resumes, forks, performs and replays runs: all on the same engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from plait.background import cancel_again
from plait.core import Cancelled, Crashed, Event, Loop, Outcome
from plait.core import events as ev
from plait.core.errors import BadAnswer, ConfigError, JournalError, PlaitError, RecordChanged, ReplayDiffers
from plait.journal.entries import Question
from plait.journal.forks import replace_results, select_rows_before
from plait.journal.memory import MemoryLog
from plait.journal.owner import owner_of_this_process
from plait.journal.queue import has_queue
from plait.journal.records import NoteRecord, Resumption, Row, RunHead, RunRow
from plait.journal.store import ENDED, RecordAndBody, RunLog, Store, list_children, wait_for
from plait.journal.timeline import Timeline
from plait.runtime.agents.output import OutputType, output_of, read_recorded_output
from plait.runtime.answers import read_answer, record_answer
from plait.runtime.approvals import require_open_question, waiting_with, without_id
from plait.runtime.background import wait_to_end
from plait.runtime.calls.artifacts import ArtifactStore, read_artifacts
from plait.runtime.calls.bound_calls import CallBinder
from plait.runtime.calls_in_doubt import CallInDoubt, read_calls_in_doubt, read_session_calls
from plait.runtime.engine import Engine
from plait.runtime.guard import RecordEnds
from plait.runtime.make_guards import make_guards
from plait.runtime.recorded_events import recorded_loop
from plait.runtime.run import Run, run_of
from plait.runtime.run_spec import Past, RunSpec
from plait.runtime.spent import Spent, read_spent, spent_in, sum_record
from plait.tools.user_code import show_error
from plait.user_functions import call_plain

Emit = Callable[[Event], None]


class Replayed(Struct, frozen=True, kw_only=True):
    """What a replay found: nothing differs (a difference is raised as `ReplayDiffers`).

    `requests` were compared byte by byte. `whole` is False where the record ends before the run did.
    """

    run: str
    steps: int
    requests: int
    whole: bool
    outcome: Outcome | None


async def open_log(run_spec: RunSpec, head: RunHead, store: Store | None) -> RunLog:
    """Open the log of a new run. Raises `JournalError` if the journal cannot be written, and `SessionBusy` if another
    turn of its session goes on, or came since it was prepared."""
    secrets = run_spec.phases.secrets()
    if store is None:
        return MemoryLog(head, secrets=secrets)
    return await store.begin(
        head, owner_of_this_process(), secrets=secrets, contents=run_spec.contents, after_turn=run_spec.last_turn
    )


async def claim(
    run_spec: RunSpec,
    head: RunHead,
    store: Store,
    *,
    answer: str | None = None,
    question: str | None = None,
    force: bool = False,
    request: str = "",
    by: str = "",
) -> tuple[RunSpec, RunLog]:
    """Claim a recorded run, to continue it. `answer` is what the user says to the open `question` of that id. `request`
    is on record with it, and `by`, the user's name.

    Raises `StaleAnswer` when that question is not open (any more), and `BadAnswer` for an edited input that can't be
    taken, before anything is written: the run waits as before.
    """
    log: RunLog | None = None
    owner, secrets = owner_of_this_process(), run_spec.phases.secrets()
    while log is None:
        rows = await store.read_rows(head.run)
        resumed = NoteRecord("", 0, "resumed", value=Resumption(run_spec.phases.describe(), request=request))
        records: list[RecordAndBody] = [(resumed, None)]
        asked: Question | None = None
        if answer is not None:
            asked = await require_open_question(store, head.run, question)
            named, binder = without_id(answer, asked.question), None
            if asked.run == head.run:  # a child run checks the edited input of its call itself
                binder = CallBinder(run_spec.tools, ArtifactStore(read_artifacts(Timeline(rows))))
            try:
                given = record_answer(asked, read_answer(answer if named is None else named, asked, binder), by)
            except ConfigError as why:
                raise BadAnswer(str(why), run=head.run, waits=waiting_with(asked)) from None
            if asked.run == head.run:
                records.append((given, None))
        try:
            log = await store.claim(head.run, owner, secrets=secrets, force=force, rows=len(rows), records=records)
        except RecordChanged:
            if answer is None:
                raise
            # Somebody else wrote meanwhile, and may have answered: the question is looked for again.
    if asked is not None and asked.run != head.run:  # the claim keeps other processes away from the child runs, too
        child = await store.find_run(asked.run)
        count = len(await store.read_rows(asked.run))
        # Whoever may go on with the parent may go on with its children.
        child_log = await store.claim(
            asked.run, owner, secrets=secrets, force=True, rows=count, records=[(given, None)]
        )
        if child.outcome is not None:  # else it was interrupted, and goes on as such
            await child_log.end(child.status, child.outcome, child.totals)
    rows = await store.read_rows(head.run)
    return replace(run_spec, past=await _read_past(head, rows, store), trust_until=head.fork_at), log


async def _read_past(head: RunHead, rows: Sequence[Row], store: Store) -> Past:
    """Return what the engine needs of a run's record."""
    timeline = Timeline(rows, run=head.run)
    lost = [each for each in timeline.resumptions if each.lost]
    return Past(
        rows=rows,
        spent=sum_record(timeline),
        # One that is about to start counts, though it may have no row yet. A fork keeps those of the run it came from.
        children={
            each.run: spent_in(each.end.totals) if each.end is not None else Spent(1)
            for each in timeline.children
            if not each.closed
        }
        | {row.head.run: await read_spent(store, row) for row in await list_children(store, head.run)},
        seconds=timeline.seconds,
        artifacts=read_artifacts(timeline),
        lost=lost[-1].lost if lost else "",
        calls_in_doubt=tuple(await read_calls_in_doubt(store, head, timeline)),
    )


async def replay(run_spec: RunSpec, head: RunHead, store: Store, recorded: Outcome | None) -> Replayed:
    """Take the loop through its record, performing nothing. Raises `ReplayDiffers` at the first difference."""
    past = await _read_past(head, await store.read_rows(head.run), store)
    run_spec = replace(run_spec, past=past, replay=True, trust_until=head.fork_at)
    has_ended = recorded is not None and recorded.status in ENDED
    engine = Engine(run_spec, MemoryLog(head, secrets=run_spec.phases.secrets()), has_ended=has_ended)
    try:
        outcome: Outcome | None = await engine.run()
    except RecordEnds:
        outcome = None
    if recorded is not None and outcome is not None:
        expected, found = (msgspec.json.encode(each).decode() for each in (recorded, outcome))
        if expected != found:
            raise ReplayDiffers(
                f"The requests are the same, but the run ends otherwise.\nOn record: {expected}\nNow: {found}\n",
                at=engine.steps,
                expected=expected,
                found=found,
                hint="How the loop reads replies has changed since.",
            )
    return Replayed(
        run=head.run,
        steps=engine.steps,
        requests=engine.compared,
        whole=outcome is not None,
        outcome=outcome if outcome is not None else recorded,
    )


async def fork(
    run_spec: RunSpec, head: RunHead, rows: Sequence[Row], at: int, store: Store, results: Mapping[str, str] = {}
) -> tuple[RunSpec, RunLog]:
    """Open a new run that shares the first `at - 1` steps of its parent. `results` are other results of calls in these
    steps, by the keys of the calls."""
    kept, last = select_rows_before(rows, at)
    if at < 1 or at > last + 1:
        raise ConfigError(f"There is no step {at} in run {head.parent}.", hint=f"It has steps 1 to {last}.")
    kept = replace_results(kept, results, at) if results else kept
    records = [(row.record, row.body) for row in kept]
    contents = await store.read_contents(head.files)  # the other run may be deleted meanwhile, and its files with it
    more: dict[str, Any] = {"secrets": run_spec.phases.secrets(), "contents": contents}
    head = structs.replace(head, taken=len(kept))
    log = await store.begin(head, owner_of_this_process(), records, **more)
    return replace(run_spec, past=await _read_past(head, kept, store), trust_until=at), log


def read_finished_run(
    row: RunRow, store: Store, loop: Loop | None = None, output: OutputType[Any] | None = None
) -> Run[Any]:
    """A run as the journal has it, without performing anything."""
    if row.outcome is None:
        hint = " ".join(("plait resume", row.head.run, *row.head.agent_words, "goes on with it."))
        raise JournalError(f"Run {row.head.run} has not ended ({row.status}).", hint=hint)
    rows, read_children = _make_readers(store, row.head.run)
    return run_of(
        row.head,
        outcome_of(row.outcome),
        row.totals,
        models={phase: str(model["spec"]) for phase, model in row.head.models.items()},
        rows=rows,
        read_children=read_children,
        loop_object=loop,
        output_type=output or output_of(read_recorded_output(row.head)),
        taint=row.head.settings.get("taint", "off"),
    )


def _make_readers(store: Store, run: str) -> tuple[Callable[[], list[Row]], Callable[[], list[Run[Any]]]]:
    """Return the functions that read a run's rows and its child runs when they are called."""
    return lambda: wait_for(store.read_rows(run)), lambda: wait_for(read_child_runs(store, run))


async def read_child_runs(store: Store, run: str) -> list[Run]:
    """Return the child runs of a run that have ended or wait, in the order they began."""
    rows = await list_children(store, run)
    return [read_finished_run(row, store, recorded_loop(row.head)) for row in rows if row.outcome is not None]


def outcome_of(recorded: dict[str, Any]) -> Outcome:
    """An outcome from what the journal keeps of it."""
    return cast(Outcome, msgspec.convert(recorded, Outcome))


_BEFORE_WORK = (ev.Asked, ev.Called, ev.Executing)
"""Events that come right before work: none begins once the listener has failed."""


class Listener:
    """Gives events to the function `on_event` of one run, until it raises: then the caller is to get its error.

    The run is cancelled, as if the caller had cancelled it, so that calls under way are recorded as they always are.
    `run` is the task that performs the run.
    """

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self.run: asyncio.Task[Any] | None = None
        self.error: BaseException | None = None

    def __call__(self, event: Event) -> None:
        """Give an event to the function. Raises `CancelledError` where the run must not go on."""
        if self.error is not None:
            fails = isinstance(event, _BEFORE_WORK)
        else:
            try:
                call_plain(self._on_event, event)
                return
            except BaseException as why:
                self.error = why
                fails = not isinstance(event, ev.Began | ev.Ended)
        if not fails:
            return
        reason = f"The function on_event= failed: {show_error(self.error)}."
        current = asyncio.current_task()
        if self.run is not None and self.run is not current and not self.run.cancelling():
            self.run.cancel(reason)
        if current is not None:
            raise asyncio.CancelledError(reason)


async def perform(
    run_spec: RunSpec,
    head: RunHead,
    log: RunLog,
    store: Store | None,
    on_event: Emit | None = None,
    *,
    resumed: bool = False,
    on_end: Callable[[Engine], None] | None = None,
) -> Run[Any]:
    """Perform an opened run to its end, in a task of its own. `on_end` gets the engine, when it has ended.
    Whoever is cancelled here is so when the run has ended and recorded that. Raises what `on_event` raised."""
    listener = Listener(on_event) if on_event is not None else None
    work = _perform(run_spec, head, log, store, listener, resumed, on_end)
    task = asyncio.get_running_loop().create_task(work, name=f"plait run {head.run}")
    if listener is not None:
        listener.run = task
    loop = asyncio.get_running_loop()

    def cancel(reason: str) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(lambda: task.done() or task.cancelling() or task.cancel(reason))

    log.on_cancel(cancel)
    try:
        await wait_to_end(task)
    finally:
        if task.cancelled():  # before its first step, as when the event loop ends: nothing else records the end
            await log.end(Cancelled.status, msgspec.to_builtins(Cancelled()), {})
        elif task.done() and isinstance(why := task.exception(), PlaitError) and not log.is_queued:
            # A guard that cannot start, likewise.
            crashed = Crashed(why.message, error=type(why).__name__, hint=why.hint)
            with suppress(JournalError):  # the end is on record
                await log.end(crashed.status, msgspec.to_builtins(crashed), {})
    if listener is not None and listener.error is not None:
        raise listener.error
    return task.result()


async def cancel_run(store: Store, run: str, reason: str) -> None:
    """Cancel a run that waits, was interrupted or is in a queue, or one that another process performs, if the store can
    tell that process. Raises `UnknownRun` and `JournalError`."""
    row = await store.find_run(run)
    if row.head.caller is not None:
        raise JournalError(f"Run {row.head.run} is a child of run {row.head.caller.run}.", hint="Cancel that one.")
    if row.status == "cancelled" or (has_queue(store) and await store.ask_to_cancel(row.head.run, reason)):
        return
    log = await store.claim(row.head.run, owner_of_this_process())
    await log.end(Cancelled.status, msgspec.to_builtins(Cancelled(reason)), row.totals)


async def _perform(
    run_spec: RunSpec,
    head: RunHead,
    log: RunLog,
    store: Store | None,
    on_event: Emit | None,
    resumed: bool,
    on_end: Callable[[Engine], None] | None,
) -> Run[Any]:
    if on_event is not None:
        on_event(ev.Began(head.run, head.question, head.loop["name"], resumed, "" if resumed else head.parent))
        if run_spec.past.lost and resumed:
            text = (
                f"{run_spec.past.lost} Plait does not repeat calls that may have been made: all calls of tools with "
                "effects need approval. If nothing was done since, --on-interrupted-call repeat makes them all."
            )
            on_event(ev.Noted(0, "journal", text))
    if store is not None and run_spec.session:
        calls: list[CallInDoubt] | JournalError = []
        try:
            calls = await read_session_calls(store, run_spec.session, head.run)
        except asyncio.CancelledError as why:  # the engine records the end, with its reason
            cancel_again(why)
        run_spec = replace(run_spec, past=replace(run_spec.past, session_calls=calls))
    with run_spec.tracer.run(head, run_spec.phases, log.scrub, resumed=resumed) as span:
        guards = partial(make_guards, is_child=head.caller is not None)
        engine = Engine(run_spec, log, guards, on_event=on_event, span=span, store=store, head=head)
        outcome = await engine.run()
        span.record_outcome(outcome, engine.steps)
    if on_end is not None:
        on_end(engine)

    if store is None:
        rows, read_children = cast(MemoryLog, log).read_rows, engine.children.copy
    else:
        rows, read_children = _make_readers(store, head.run)
    run = run_of(
        head,
        outcome,
        engine.totals(),
        models={phase: run_spec.phases.spec(phase) for phase in run_spec.loop.phases},
        rows=rows,
        read_children=read_children,
        loop_object=run_spec.loop,
        output_type=run_spec.output,
        taint=run_spec.agent.taint,
    )
    if on_event is not None:
        on_event(ev.Ended(outcome, run))
    return run
