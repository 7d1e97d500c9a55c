"""The guards of a run without a loop: entries made by hand pass a chain, over a record in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from plait.core import Call, CheckAnswer, Observation, Outcome, Reply
from plait.core.errors import BadInput
from plait.journal import codec
from plait.journal.memory import MemoryLog
from plait.journal.records import Decision, IntentRecord, ResultRecord, Row, RunHead
from plait.runtime.calls.context import Context
from plait.runtime.chain import Admitted, Chain
from plait.runtime.guard import Entry, Finish, Guard, Question
from plait.runtime.performers.base import BasePerformer
from plait.runtime.performers.check import END, Check
from plait.runtime.run_journal import NOTHING, EntryWork, RunJournal

RUN = "run"


class TestPerformer(BasePerformer):
    """Performs a model call or a tool call: its result is given. A call needs an input in an object."""

    __test__ = False

    def __init__(self, result: Any) -> None:
        self.result = result
        self.work = "call" if isinstance(result, Observation) else "think"

    def rebind(self, entry: Entry, changed: Any, decision: Decision) -> None:
        if isinstance(changed, Call) and not isinstance(changed.input, dict):
            raise BadInput("The input is no object.")
        entry.effect = changed

    def describe(self, entry: Entry) -> EntryWork:
        return EntryWork()

    async def perform(self, entry: Entry) -> tuple[Any, bytes | None]:
        return self.result, None

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Any:
        if isinstance(entry.effect, Call):
            return Observation(reason, trouble="refused")
        return super().refuse(entry, reason, is_after=is_after, by_user=by_user)


class GuardedRun:
    """One process of a run: its guards over its record. `remarks` are the notes that guards made."""

    def __init__(
        self, guards: Iterable[Guard], rows: Iterable[Row] = (), *, replay: bool = False, has_ended: bool = False
    ) -> None:
        head = RunHead(RUN, "q", {"name": "react", "options": {}}, {})
        stored = [(codec.decode_record(codec.encode_record(row.record).decode()), row.body) for row in rows]
        self.log = MemoryLog(head)
        self.log.buffer(*stored)
        self.journal = RunJournal(self.log, self.log.read_rows(), replay=replay, has_ended=has_ended)
        self.chain = Chain(list(guards), self.journal, lambda kind, text, **_: self._note(kind, text))
        self.remarks: list[tuple[str, str]] = []

    def go_on(self, guards: Iterable[Guard], *, replay: bool = False, has_ended: bool = False) -> GuardedRun:
        """Return a further process of the run, with guards of its own."""
        return GuardedRun(guards, self.log.read_rows(), replay=replay, has_ended=has_ended)

    @property
    def decisions(self) -> list[tuple[str, Decision]]:
        """The recorded decisions: their keys without digests, and what was decided."""
        rows = (row.record for row in self.log.read_rows())
        return [
            (each.key.rpartition("@")[0], each.value)
            for each in rows
            if isinstance(each, ResultRecord) and each.work == "decision"
        ]

    def think(self, n: int) -> None:
        """The loop goes on to effect `n`, and has seen the results before it."""
        self.journal.buffer(ResultRecord(str(n), 0, "think", Reply("")))

    def answer(self, question: Question, decision: Decision) -> None:
        """The user answers a question."""
        self.journal.buffer(ResultRecord(question.key, 0, "decision", decision))

    async def check(self, key: str, answer: Any) -> Any:
        """Return the objection to an answer."""
        return await self.perform(key, CheckAnswer(answer), Check(None))  # type: ignore[arg-type]

    async def call(self, key: str, call: Call, result: Observation, **fields: Any) -> Observation:
        """Return the result of a call as the loop gets it."""
        seen: Observation = await self.perform(key, call, TestPerformer(result), **fields)
        return seen

    async def perform(self, key: str, effect: Any, performer: Any, **fields: Any) -> Any:
        entry = Entry(RUN, key, 1, effect, effect, remark=self._note, **fields)
        admitted = await self.chain.admit(entry, performer)
        found = admitted.found
        if admitted.result is not UNSET:
            result = admitted.result
        elif found.value is not UNSET:
            result = found.value
        else:
            result = (await performer.perform(entry))[0]
        if performer.work != "check" and found is NOTHING:
            asked = effect if isinstance(effect, Call) else None
            self.journal.buffer(IntentRecord(key, 1, performer.work, asked))
            self.journal.buffer(ResultRecord(key, 1, performer.work, result))
        return await self.chain.settle(admitted, result)

    async def finish(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the run."""
        entry = Entry(RUN, "", 1, Finish(), Finish(), remark=self._note)
        admitted = Admitted(entry, END, self.chain.at(type(entry.effect)).after, NOTHING)
        ended: Outcome = await self.chain.settle(admitted, outcome)
        return ended

    def _note(self, kind: str, text: str) -> None:
        self.remarks.append((kind, text))


def make_context(entry: Entry, deps: Any = None) -> Context[Any]:
    return Context("db", entry.run, entry.step)
