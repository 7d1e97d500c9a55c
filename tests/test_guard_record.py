"""The rules of guards (docs/architecture.md) about what is on record: it wins over what a guard would decide now.

Each test is named after its rule.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

import plait
from core_guards import Spy, after_calls, before_calls, set_input, spied
from core_runs import (
    LOOK,
    PAY,
    WORLD,
    Tried,
    agent_of,
    asks_model,
    calls,
    did,
    each_point,
    texts,
    tried,
)
from plait.core import Call, LoopRun, Observation, Think
from plait.core.effects import Act, AskUser, Start, WaitNext
from plait.core.errors import ConfigError, StaleAnswer
from plait.journal.records import IntentRecord, ResultRecord
from plait.runtime.guard import AskApproval, Entry, Guard, Refuse


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


def test_for_an_entry_with_a_recorded_result_no_guard_decides() -> None:
    def walk() -> LoopRun:
        seen = yield Act((PAY,))
        yield AskUser("Go on?")
        return texts(seen)  # type: ignore[return-value]

    is_late = False

    def decide(call: Call) -> Any:
        return Refuse("too late") if is_late else call

    run, spies = spied(
        walk, before_calls(decide), after_calls(lambda call, seen: Refuse("no") if is_late else seen, "x")
    )
    run.go()
    is_late = True
    assert run.go("yes").answer == ["paid 5"]
    assert spies[1].log == ["restore 0.0", "told 0.0"]


def test_an_entry_with_an_intent_has_been_admitted_and_guards_only_restore_it() -> None:
    """Also when it is done again: a read-only call whose process died."""
    found = 0
    for run, is_dead in each_point(lambda: spied(calls(Call("browse", {"page": "x"}), PAY))[0]):
        begun = set(run.disk.keys(kind=IntentRecord)) - set(run.disk.keys(kind=ResultRecord))
        log: list[str] = []
        spy = Spy()
        spy.log = log
        run.make_guards = lambda spy=spy: [spy]  # type: ignore[misc]
        run.finish()
        found += len(begun)
        assert not {f"before {key}" for key in begun} & {*log}
        assert is_dead or not begun
    assert found


def test_a_guard_with_a_recorded_decision_and_no_result_yet_is_restored() -> None:
    class Asks(Spy):
        async def before(self, entry: Entry) -> Any:
            await super().before(entry)
            return AskApproval("Really?")

    guards: list[Asks] = []
    run = tried(calls(PAY), lambda: guards.append(Asks()) or guards[-1])  # type: ignore[func-returns-value]
    run.go()
    run.go("yes")
    assert [each.log for each in guards] == [["before 0.0"], ["restore 0.0", "after 0.0"]]


def test_a_recorded_decision_wins_over_a_changed_hook() -> None:
    to = "Bob"
    run = tried(calls(PAY), before_calls(lambda call: set_input(call, to=to)), approve="effects")
    run.go()
    to = "Eve"
    run.make_guards = lambda: [before_calls(lambda call: call)()]
    assert run.go("yes").answer == ["paid 5"] and did() == ["5 to Bob"]


def test_a_guard_with_a_decision_on_record_stays_in_that_entrys_chain() -> None:
    """Its settings may have changed, so that it no longer acts there."""
    run = tried(calls(PAY), before_calls(lambda call: AskApproval("Really?")))
    run.go()
    run.make_guards = lambda: [before_calls(lambda call: call, points=())()]
    assert run.go("no").answer == ["refused"] and not did()


def test_a_resume_needs_guards_with_the_names_in_the_head_and_a_replay_needs_none() -> None:
    class Hook(plait.Hook):
        def before_tool(self, context: Any, call: Call) -> Any:
            return set_input(call, to="Bob")

    run = Tried(lambda: agent_of(calls(PAY), hooks=[Hook()], approve="effects"))
    run.go()
    with_hook, run.make_agent = run.make_agent, lambda: agent_of(calls(PAY), approve="effects")
    with pytest.raises(ConfigError):
        run.go("yes")
    run.make_agent = with_hook
    run.go("yes")
    assert did() == ["5 to Bob"]
    assert run.replay(agent=agent_of(calls(PAY))).whole


def test_a_replay_applies_the_recorded_decisions_without_any_guard() -> None:
    hides = after_calls(
        lambda call, seen: Refuse("secret") if call.tool == "pay" else structs.replace(seen, text="***")
    )
    run = tried(calls(LOOK, PAY), hides)
    assert run.go().answer == ["***", "refused"]
    assert run.replay().whole


def test_a_replay_compares_the_effect_before_the_guards_and_the_bytes_after_them() -> None:
    class Polite(Guard):
        points = (Think,)

        async def before(self, entry: Entry) -> Any:
            return structs.replace(entry.effect, prompt=f"Please. {entry.effect.prompt.removeprefix('Please. ')}")

    def walk() -> LoopRun:
        return (yield asks_model("q")).text  # type: ignore[return-value]

    run = tried(walk, Polite)
    run.go()
    assert b"Please. q" in (run.disk.rows()[0].body or b"") or b"Please. q" in b"".join(
        row.body or b"" for row in run.disk.rows()
    )
    assert run.replay().requests == 1


def test_afters_decide_until_the_loop_has_gone_on_and_a_kill_before_the_hook_shows_nothing() -> None:
    hides = after_calls(lambda call, seen: structs.replace(seen, text="***"))
    for run, _ in each_point(lambda: tried(calls(LOOK, PAY), hides)):
        answer = run.finish().answer
        assert answer[0] == "***" and answer[1] in ("***", "in_doubt")
        assert run.replay().whole


def test_afters_of_a_started_effect_decide_until_the_loop_has_taken_the_ticket() -> None:
    def walk() -> LoopRun:
        yield Start((Act((LOOK,)),))
        yield Act((PAY,))
        return texts((yield WaitNext()).observations)  # type: ignore[return-value]

    hides = after_calls(lambda call, seen: structs.replace(seen, text="***"))
    for run, _ in each_point(lambda: tried(walk, hides)):
        assert run.finish().answer == ["***"]
        assert run.replay().whole


def test_a_decision_counts_only_for_the_value_that_it_was_about() -> None:
    """The second guard passes a result that the first changes. Before the loop gets it the process dies; the second
    changes it now, so what the first had decided is about another result."""

    def walk() -> LoopRun:
        seen = yield Act((LOOK, PAY))
        yield AskUser("Go on?")
        return texts(seen)  # type: ignore[return-value]

    is_late = False

    def second(call: Call, seen: Observation) -> Any:
        return structs.replace(seen, text="second") if is_late and call.tool == "look" else seen

    def first(call: Call, seen: Observation) -> Any:
        return structs.replace(seen, text="first") if seen.text == "522250" else seen

    def asks(call: Call, seen: Observation) -> Any:
        return AskApproval("Show it?") if call.tool == "pay" else seen

    run = tried(walk, after_calls(first, "first"), after_calls(second, "second"), after_calls(asks, "asks"))
    run.go()
    is_late = True
    run.go("yes")
    assert run.go("yes").answer == ["second", "paid 5"]
    assert run.replay().whole


def test_the_key_of_a_decision_has_the_guards_name_and_the_digest_of_what_it_is_about() -> None:
    lowers = before_calls(lambda call: set_input(call, amount=1))
    run = tried(calls(PAY, Call("pay", {"amount": 6})), lowers, after_calls(lambda call, seen: Refuse("no"), "hides"))
    run.go()
    keys = [each.key for each in run.disk.records(kind=ResultRecord) if each.work == "decision"]
    owners = [key.partition("@")[0] for key in keys]
    assert owners == ["0.0?rule", "0.1?rule", "0.0!hides", "0.1!hides"]
    assert len({key.partition("@")[2] for key in keys[:2]}) == 2, "the inputs differ"


def test_of_several_open_questions_of_a_guard_about_an_entry_only_the_last_is_open() -> None:
    to = "Ann"  # at first the other guard lets the call pass, which is not on record
    run = tried(calls(PAY), before_calls(lambda call: set_input(call, to=to)), approve="effects")
    run.go()
    first = run.questions[0]
    to = "Eve"
    run.go()
    assert len(run.questions) == 1 and run.questions[0].question != first.question
    assert run.questions[0].call is not None and run.questions[0].call.input["to"] == "Eve"
    with pytest.raises(StaleAnswer):
        asyncio.run(run.ago("yes", first.question))
    assert run.go("yes").answer == ["paid 5"] and did() == ["5 to Eve"]


def test_a_question_that_a_later_one_had_replaced_is_open_again_when_the_run_waits_for_it() -> None:
    is_late = False

    def ask(call: Call) -> Any:
        return AskApproval(f"{call.input['to']}?") if is_late or call.input["to"] == "Bob" else call

    run = tried(calls(PAY), before_calls(ask, "asks"), before_calls(lambda call: set_input(call, to="Bob"), "changes"))
    run.go()
    is_late = True
    run.go()
    assert [each.text.splitlines()[0] for each in run.questions] == ["Ann?"]
    assert run.go("yes").status == "waiting"
    assert [each.text.splitlines()[0] for each in run.questions] == ["Bob?"]
    assert run.go("yes").answer == ["paid 5"] and did() == ["5 to Bob"]


def test_two_identical_parallel_calls_are_two_questions() -> None:
    run = tried(calls(PAY, PAY), approve="effects")
    run.go()
    assert len(run.questions) == 2
    run.go("yes")
    assert did() == ["5 to Ann"] and len(run.questions) == 1
    assert run.go("no, enough").answer == ["paid 5", "refused"] and did() == ["5 to Ann"]


def test_an_answer_is_for_a_guards_name_as_two_guards_may_share_a_class() -> None:
    class Asks(Guard):
        points = (Call,)

        def __init__(self, name: str) -> None:
            self._name = name

        @property
        def name(self) -> str:
            return self._name

        async def before(self, entry: Entry) -> Any:
            return AskApproval(f"{self.name}?")

    run = tried(calls(PAY), lambda: Asks("first"), lambda: Asks("second"))
    run.go()
    assert run.go("yes").status == "waiting" and not did()
    assert [each.guard for each in run.questions] == ["second"]
    assert run.go("yes").answer == ["paid 5"]


def test_the_names_of_guards_are_unique_in_a_chain() -> None:
    with pytest.raises(ConfigError):
        tried(calls(PAY), Spy, Spy).go()
