"""The rules of entries (docs/architecture.md) about work in doubt, child runs and open questions.

Each test is named after its rule.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

import plait
from conftest import some_of
from core_runs import (
    DELEGATE,
    HELP,
    LOOK,
    PAY,
    RUN,
    WORLD,
    Process,
    Tried,
    asker,
    calls,
    child_of,
    did,
    each_point,
    payer,
    texts,
    tried,
    with_child,
)
from plait.core import Call, LoopRun
from plait.core.effects import Act
from plait.core.errors import StaleAnswer
from plait.journal.memory import MemoryLog
from plait.journal.open_questions import find_open_questions
from plait.journal.records import ChildEnd, IntentRecord, ResultRecord, RunHead
from plait.runtime.guard import Entry
from plait.runtime.run_journal import EntryWork, RunJournal


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


# -- in doubt


def killed_in(tool: str, run: Tried) -> Tried:
    """Kill a run between the intent and the result of its first call of a tool."""
    for point in range(1, 99):
        WORLD.clear()
        other = Tried(run.make_agent, run.make_guards)
        assert other.die(point), "the call is never in doubt"
        if any(
            each.begun and each.observation is None and each.call.tool == tool for each in other.tool_calls().values()
        ):
            return other
    raise AssertionError("the run does not end")


def test_in_doubt_is_a_recorded_result_and_a_replay_after_it_is_complete() -> None:
    run = killed_in("pay", tried(calls(PAY)))
    assert run.go().answer == ["in_doubt"]
    assert run.disk.records(kind=ResultRecord)[-1].value.trouble == "in_doubt"
    assert run.replay().whole and len(did()) <= 1


def test_an_effect_is_in_doubt_only_between_its_intent_and_its_result() -> None:
    answers = []
    for run, _ in each_point(lambda: tried(calls(PAY))):
        answer = run.finish().answer
        answers.append(answer)
        assert len(did()) == 1 or (answer == ["in_doubt"] and not did())
        assert run.replay().whole
    doubts = [answer for answer in answers if answer == ["in_doubt"]]
    assert len(doubts) == 2, "after the commit of the intent, and before that of the result"


def test_work_that_can_be_repeated_is_never_in_doubt() -> None:
    for run, _ in each_point(lambda: tried(calls(LOOK, LOOK))):
        assert run.finish().answer == ["522250", "522250"]


def test_a_doubt_is_looked_up_over_the_tree_of_runs() -> None:
    """A child run that died while it paid is in doubt, so its parent needs approval to pay the same."""

    def walk() -> LoopRun:
        yield Act((HELP,))
        return texts((yield Act((PAY,))))  # type: ignore[return-value]

    run = killed_in("pay", with_child(walk, payer))
    waiting = run.go()
    assert waiting.status == "waiting" and "whether it took effect is not known" in str(waiting.reason)
    assert run.go("no").answer == ["refused"]
    assert len(did()) <= 1


def test_a_call_that_waits_for_a_child_is_not_in_doubt_also_after_a_kill() -> None:
    for run, _ in some_of(each_point(lambda: with_child(calls(HELP), asker))):
        assert run.go().status == "waiting"
        for point in range(1, 99):  # it waits, and the process that goes on with it is killed
            other = Tried(run.make_agent, run.make_guards, run.disk.copy())
            is_dead = other.die(point)
            assert other.go().status == "waiting"
            assert other.go("Ann B.").answer == ["Ann B."]
            assert other.replay().whole
            if not is_dead:
                break


def test_a_tool_with_effects_of_its_own_does_not_wait_for_a_child() -> None:
    """It would be called again to go on, and repeat its own effects."""
    run = with_child(calls(DELEGATE), asker)
    assert run.go().answer == ["raised"] and run.questions == [] and not did()
    assert run.replay().whole


def test_a_call_that_the_user_answers_is_not_in_doubt_whatever_the_marks_of_its_tool() -> None:
    @plait.tool
    def boss(question: str) -> str:
        """Ask the boss."""
        raise AssertionError("the user answers")

    asks = calls(Call("boss", {"question": "Which Ann?"}))
    for run, _ in each_point(lambda: tried(asks, tools=[structs.replace(boss, person=True)])):
        assert run.go().status == "waiting"
        assert run.go("Ann B.").answer == ["Ann B."]
        assert run.replay().whole


def test_work_is_in_doubt_if_it_has_an_intent_and_no_result() -> None:
    log = MemoryLog(RunHead(RUN, "q", {"name": "steps"}, {}))

    async def settle() -> tuple[str, None]:
        return "in doubt", None

    work = EntryWork("asked", settle_doubt=settle, effect=PAY)

    async def perform(entry: Entry) -> tuple[Any, None]:
        raise AssertionError("it is performed")

    log.buffer((IntentRecord("0.0", 0, "other", "asked"), None))
    journal = RunJournal(log, log.read_rows())
    assert asyncio.run(journal.entry(Entry(RUN, "0.0", 0, None, None), "other", work, perform)) == "in doubt"
    assert log.read_rows()[-1].record == ResultRecord("0.0", 0, "other", "in doubt")
    assert RunJournal(log, log.read_rows()).find("0.0").value == "in doubt"


def test_a_doubt_closes_everything_below_its_entry() -> None:
    """The call died while its child asked the user. When it is in doubt, nobody waits for that answer any more."""
    closed = 0
    for run, is_dead in each_point(lambda: with_child(calls(DELEGATE), asker)):
        begun = is_dead and any(stored.rows for name, stored in run.disk.runs.items() if name != RUN)
        ended = run.go()
        if begun and ended.answer == ["in_doubt"]:
            closed += 1
            assert run.disk.timeline(child_of(run.disk)).open_questions, "the child has asked"
            assert asyncio.run(find_open_questions(Process(run.disk), RUN)) == []  # type: ignore[arg-type]
    assert closed


# -- child runs


def test_a_childs_id_follows_from_the_parents_id_and_the_key_of_its_entry() -> None:
    ids = set()
    for run, _ in each_point(lambda: with_child(calls(HELP), payer)):
        run.finish()
        ids |= run.disk.runs.keys() - {RUN}
        entry = next(each for each in run.disk.records(kind=IntentRecord | ResultRecord) if each.work == "child")  # type: ignore[arg-type]
        assert entry.asked.run == child_of(run.disk)
        assert run.disk.runs[child_of(run.disk)].head.caller.key == entry.key  # type: ignore[union-attr]
    assert len(ids) == 1


@pytest.mark.parametrize("call", [HELP, DELEGATE])
def test_starting_a_child_is_repeatable(call: Call) -> None:
    """Without a head the child starts, with one it goes on: after a kill at any point there is one child, and it pays
    once."""
    for run, _ in each_point(lambda: with_child(calls(call), payer)):
        answer = run.finish().answer
        assert did().count("5 to Ann") <= 1 and len(run.disk.runs) <= 2
        if call is HELP:
            assert "paid 5" in answer[0] or "in_doubt" in answer[0]
        else:
            assert answer in (["['paid 5']"], ["in_doubt"])


def test_the_end_of_a_child_that_ended_before_its_parents_row_is_written_before_anything_else() -> None:
    found = 0
    for run, _ in each_point(lambda: with_child(calls(HELP), payer)):
        entries = [each for each in run.disk.records(kind=ResultRecord) if each.work == "child"]
        child = next((each for name, each in run.disk.runs.items() if name != RUN), None)
        if child is None or child.status != "answered" or entries:
            continue
        found += 1
        rows, paid = len(run.disk.rows()), len(did())
        run.finish()
        after = [each.record for each in run.disk.rows()[rows:] if isinstance(each.record, IntentRecord | ResultRecord)]
        assert isinstance(after[0], ResultRecord) and isinstance(after[0].value, ChildEnd)
        assert len(did()) == paid
    assert found


def test_a_waiting_run_lists_all_open_questions_those_of_its_children_too() -> None:
    run = with_child(calls(PAY, HELP, LOOK), asker, approve="effects")
    run.go()
    found = [(each.run == RUN, each.key.partition("@")[0], each.guard) for each in run.questions]
    assert found == [(True, "0.0?approvals", "approvals"), (False, "0", "")]
    assert did() == ["look Lyon"]


def test_an_answer_resumes_what_it_unblocks_and_the_rest_waits() -> None:
    run = with_child(calls(PAY, HELP), asker, approve="effects")
    run.go()
    assert run.go("Ann B.", which=1).status == "waiting"
    assert run.disk.runs[child_of(run.disk)].status == "answered" and not did()
    assert [each.guard for each in run.questions] == ["approvals"]
    assert run.go("yes").answer == ["paid 5", "Ann B."]


def test_an_answer_is_for_one_question_and_is_taken_once() -> None:
    run = tried(calls(PAY, PAY), approve="effects")
    run.go()
    first = run.questions[0].question
    run.go("yes")
    with pytest.raises(StaleAnswer):
        asyncio.run(run.ago("yes", first))
    assert did() == ["5 to Ann"] and len(run.questions) == 1
