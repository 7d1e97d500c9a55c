"""Rules of the core, each undone: the fuzzer must find a run that breaks a promise. For the tests and the campaign.

Each function takes a rule out of the engine, by replacing the code that holds it. `MUTATIONS` has them with the first
seed that fails; it is only a hint, so that the test is fast: if the seed has come to pass, others are tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from core_fuzz import find_failures
from core_journal import ProcessLog
from plait.journal.records import IntentRecord, ResultRecord
from plait.runtime import decisions, recorded_work
from plait.runtime.calls import child_runs
from plait.runtime.chain import Admitted, Chain
from plait.runtime.decisions import Decisions
from plait.runtime.guards.approvals import ApprovalsGuard
from plait.runtime.guards.limits import LimitGuard
from plait.runtime.performers import Performers
from plait.runtime.performers.call_tool import CallTool
from plait.runtime.performers.call_tools import CallTools
from plait.runtime.performers.started_effects import StartedEffects
from plait.runtime.run_journal import NOTHING, RunJournal

Patch = pytest.MonkeyPatch


def tell_no_recorded_work_before_the_walk(patch: Patch) -> None:
    async def recall_nothing(self: Performers) -> None:
        return None

    patch.setattr(Performers, "recall", recall_nothing)


def tell_no_work_of_child_runs_before_the_walk(patch: Patch) -> None:
    recall_run = recorded_work._recall_run

    async def recall_own(engine: Any, timeline: Any, guards: Any) -> None:
        if timeline.run == engine.run_id:
            await recall_run(engine, timeline, guards)

    patch.setattr(recorded_work, "_recall_run", recall_own)


def decide_again_about_what_is_on_record(patch: Patch) -> None:
    async def find_nothing(self: Decisions, *given: Any) -> None:
        return None

    patch.setattr(Decisions, "find", find_nothing)


def admit_again_what_has_begun(patch: Patch) -> None:
    """An entry with an intent alone passes the guards again."""
    admit = Chain.admit

    async def admit_anew(self: Chain, entry: Any, performer: Any) -> Any:
        found = self.journal.find(entry.key)
        if found.is_open and performer.work == "call" and not self.journal.replay:
            self.journal._found.pop(entry.key)
        return await admit(self, entry, performer)

    patch.setattr(Chain, "admit", admit_anew)


def release_nothing(patch: Patch) -> None:
    patch.setattr(Admitted, "release", lambda self: None)


def repeat_what_is_in_doubt(patch: Patch) -> None:
    patch.setattr(CallTool, "_may_repeat", lambda self, tool: True)


def record_no_doubt(patch: Patch) -> None:
    write = RunJournal.write

    async def write_all_but_doubts(self: RunJournal, record: Any, body: bytes | None = None) -> None:
        if not (isinstance(record, ResultRecord) and getattr(record.value, "trouble", "") == "in_doubt"):
            await write(self, record, body)

    patch.setattr(RunJournal, "write", write_all_but_doubts)


def leave_the_input_out_of_the_key_of_a_decision(patch: Patch) -> None:
    patch.setattr(decisions, "digested", lambda value: None)


def write_the_intent_of_an_effect_later(patch: Patch) -> None:
    append = ProcessLog.append

    async def buffer(self: ProcessLog, *records: Any, durable: bool = False) -> None:
        if any(isinstance(record, IntentRecord) for record, _ in records):
            self.buffer(*records, durable=durable)
        else:
            await append(self, *records, durable=durable)

    patch.setattr(ProcessLog, "append", buffer)


def let_guards_decide_only_in_the_process_that_made_a_result(patch: Patch) -> None:
    """A result on record counts as seen: what a killed process had not hidden yet is shown, and no longer hidden."""
    is_seen = RunJournal.is_seen

    def is_on_record(self: RunJournal, key: str, started: bool) -> bool:
        return is_seen(self, key, started) or (key in self.past_keys if hasattr(self, "past_keys") else False)

    make = RunJournal.__init__

    def remember(self: RunJournal, *given: Any, **more: Any) -> None:
        make(self, *given, **more)
        self.past_keys = {key for key, found in self._found.items() if found.value is not UNSET}  # type: ignore[attr-defined]

    patch.setattr(RunJournal, "__init__", remember)
    patch.setattr(RunJournal, "is_seen", is_on_record)


def decide_about_results_that_the_loop_has_seen(patch: Patch) -> None:
    patch.setattr(RunJournal, "is_seen", lambda self, key, started: False)


def take_each_admission_for_the_first(patch: Patch) -> None:
    """A signal of a later admission refuses the whole act, also what is on record of it."""
    take = CallTools._take_all

    async def take_all(self: CallTools, entries: Any) -> Any:
        find = self.engine.journal.find
        known = {entry.key for entry in entries}
        asked: set[str] = set()

        def find_nothing_at_first(key: str) -> Any:
            if key in known and key not in asked:
                asked.add(key)
                return NOTHING
            return find(key)

        self.engine.journal.find = find_nothing_at_first  # type: ignore[method-assign]
        try:
            return await take(self, entries)
        finally:
            self.engine.journal.find = find  # type: ignore[method-assign]

    patch.setattr(CallTools, "_take_all", take_all)


def leave_the_end_of_a_child_unwritten(patch: Patch) -> None:
    """A child that ended before its parent's row is walked again."""

    async def look(self: Any, entry: Any, found: Any) -> None:
        if self.engine.store is not None and entry.effect.run in self.engine.store.disk.runs:
            self._row = await self.engine.store.find_run(entry.effect.run)

    patch.setattr(child_runs.RunChild, "record_ended", look)


def leave_started_effects_to_themselves_when_the_run_waits(patch: Patch) -> None:
    async def end_nothing(self: StartedEffects) -> list[Any]:
        return []

    patch.setattr(StartedEffects, "end_others", end_nothing)


def let_child_runs_ignore_the_limits_above_them(patch: Patch) -> None:
    patch.setattr(LimitGuard, "for_child", lambda self, own: own)


def let_child_runs_ignore_the_approvals_above_them(patch: Patch) -> None:
    patch.setattr(ApprovalsGuard, "for_child", lambda self, own: own)


def tell_nobody_what_has_ended_when_an_act_suspends(patch: Patch) -> None:
    async def tell(self: Admitted, *given: Any) -> None:
        return None

    patch.setattr(Admitted, "tell", tell)


MUTATIONS: list[tuple[Callable[[Patch], None], int]] = [
    (tell_no_recorded_work_before_the_walk, 1),
    (tell_no_work_of_child_runs_before_the_walk, 3),
    (decide_again_about_what_is_on_record, 1),
    (admit_again_what_has_begun, 26),
    (release_nothing, 0),
    (repeat_what_is_in_doubt, 18),
    (record_no_doubt, 5),
    (leave_the_input_out_of_the_key_of_a_decision, 0),
    (write_the_intent_of_an_effect_later, 6),
    (let_guards_decide_only_in_the_process_that_made_a_result, 18),
    (decide_about_results_that_the_loop_has_seen, 10),
    (take_each_admission_for_the_first, 147),
    (leave_the_end_of_a_child_unwritten, 94),
    (leave_started_effects_to_themselves_when_the_run_waits, 103),
    (let_child_runs_ignore_the_limits_above_them, 3),
    (let_child_runs_ignore_the_approvals_above_them, 3),
    (tell_nobody_what_has_ended_when_an_act_suspends, 0),
]
"""The rules, undone, and a seed that shows it."""


def find_broken_promise(undo: Callable[[Patch], None], hint: int, seeds: int) -> str:
    """Return what goes wrong without a rule; "" if nothing does in so many seeds. Raises `RuntimeError` if the patch
    does not fit the code any more."""
    with Patch.context() as patch:
        undo(patch)
        found = next(iter(find_failures([hint, *range(seeds)])), "")
    if re.search("AttributeError|NameError|TypeError|ImportError", found):
        raise RuntimeError(f"{undo.__name__} does not undo its rule, but breaks: {found}")
    return found
