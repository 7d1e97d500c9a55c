"""The rules of the chain of guards (docs/architecture.md): who decides about an entry, and when.

Each test is named after its rule. The rules about what is on record are in test_guard_record.py, those about limits
and child runs in test_guard_tree.py, those about what a guard sees, and about answers, in test_guard_points.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from core_guards import Spy, after_calls, before_calls, raise_limit, refuse_pay, set_input, spied
from core_runs import (
    HELP,
    LOOK,
    PAY,
    RUN,
    WORLD,
    asker,
    calls,
    did,
    each_point,
    tried,
    until_limit,
    with_child,
)
from plait.core import Call, LimitNear, LoopRun
from plait.core.effects import Act, AskUser, Start, WaitNext
from plait.core.errors import BadAnswer
from plait.journal.records import IntentRecord, RaisedRecord, ResultRecord
from plait.runtime.guard import AskApproval, Entry, Guard, Refuse


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


def check_pairs(log: list[str]) -> None:
    """Check that exactly one `after` or `release` follows each `before` and `restore`."""
    held: set[str] = set()
    for line in log:
        kind, key = line.split()
        if kind in ("before", "restore"):
            assert key not in held, log
            held.add(key)
        else:
            assert key in held or kind != "release", log
            held.discard(key)
    assert not held, log


def breaks(call: Call) -> Any:
    raise RuntimeError("it is broken")


@pytest.mark.parametrize(
    ("walk", "guards", "status"),
    [
        (calls(PAY, LOOK), [], "answered"),
        (calls(LOOK, PAY), [before_calls(refuse_pay, order=100.0)], "answered"),
        (calls(LOOK, PAY), [before_calls(lambda call: AskApproval("Really?"), order=100.0)], "waiting"),
        (calls(LOOK, PAY), [before_calls(raise_limit, order=100.0)], "stopped"),
        (calls(LOOK, PAY), [before_calls(breaks, order=100.0)], "crashed"),
        (calls(LOOK, PAY), [after_calls(lambda call, seen: AskApproval("Show it?"))], "waiting"),
        (calls(LOOK, PAY), [after_calls(lambda call, seen: breaks(call))], "crashed"),
        (calls(Call("pay", {"amount": "much"}), PAY), [], "answered"),
    ],
)
def test_one_after_or_release_follows_each_before_that_returned(walk: Any, guards: Any, status: str) -> None:
    run, spies = spied(walk, *guards)
    assert run.go().status == status
    check_pairs(spies[0].log)
    assert spies[0].log


def test_one_after_or_release_follows_each_before_also_when_the_run_is_cancelled() -> None:
    run, spies = spied(calls(Call("post", {"text": "a", "pause": 1000}), LOOK))

    async def cancel() -> Any:
        task = asyncio.ensure_future(run.ago())
        while not spies or len(spies[0].log) < 2:
            await asyncio.sleep(0)
        task.cancel()
        return await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel())
    check_pairs(spies[0].log)
    assert run.disk.runs[RUN].status == "cancelled"


def test_what_breaks_behind_a_refused_call_releases_nothing_as_nothing_is_held() -> None:
    breaks_after = after_calls(lambda call, seen: breaks(call), "breaks")
    run, spies = spied(calls(PAY), before_calls(refuse_pay), breaks_after, first=True)
    assert run.go().status == "crashed"
    assert spies[0].log == ["before 0.0", "release 0.0"]


def test_a_refusal_or_a_question_releases_the_guards_before_it() -> None:
    run, spies = spied(calls(PAY), before_calls(refuse_pay), first=True)
    run.go()
    assert spies[0].log == ["before 0.0", "release 0.0", "after 0.0"]
    run, spies = spied(calls(PAY), approve="effects", first=True)
    run.go()
    assert spies[0].log == ["before 0.0", "release 0.0"]


def test_a_guard_that_raises_has_reserved_nothing() -> None:
    class Raises(Spy):
        async def before(self, entry: Entry) -> Any:
            raise LimitNear("rule", "the rule says so")

    guard = Raises()
    run = tried(lambda: until_limit(calls(PAY)()), lambda: guard)
    run.go()
    assert guard.log == ["told 0"]  # of the signal, which is told to all guards


def test_every_result_goes_to_all_guards_also_to_those_that_saw_no_before() -> None:
    run, spies = spied(calls(PAY, Call("pay", {"amount": "much"})), before_calls(refuse_pay))
    run.go()
    assert spies[0].log == ["after 0.0", "after 0.1"]


# -- the admission of an act


def test_the_calls_of_an_act_go_through_the_whole_chain_one_by_one() -> None:
    order: list[str] = []

    def note(name: str) -> Callable[[], Guard]:
        return before_calls(lambda call: order.append(f"{name} {call.tool}") or call, name)  # type: ignore[func-returns-value]

    tried(calls(LOOK, PAY), note("first"), note("second")).go()
    assert order == ["first look", "second look", "first pay", "second pay"]


def test_a_call_stops_at_its_first_question_and_the_guards_behind_decide_after_the_answer() -> None:
    asked: list[int] = []

    def decide(call: Call) -> Any:
        asked.append(call.input["amount"])
        return call

    asks = before_calls(lambda call: AskApproval("Really?"), "asks")
    run = tried(calls(PAY), asks, before_calls(decide, "behind", order=90.0), approve="effects")
    run.go()
    assert asked == [] and [each.guard for each in run.questions] == ["asks"]
    run.go("yes")
    assert asked == [] and [each.guard for each in run.questions] == ["approvals"]
    assert run.go("yes").answer == ["paid 5"] and asked == [5]


def test_a_signal_in_the_first_admission_refuses_the_whole_act_and_nothing_has_started() -> None:
    run, spies = spied(lambda: until_limit(calls(LOOK, PAY)()), before_calls(raise_limit, order=100.0))
    run.go()
    assert not did() and spies[0].log[:4] == ["before 0.0", "before 0.1", "release 0.1", "release 0.0"]
    assert run.disk.keys(kind=IntentRecord) == [] and run.disk.keys(kind=RaisedRecord) == ["0"]
    assert run.replay().whole


def test_if_a_guard_asks_the_admitted_calls_run_to_their_end_and_the_others_stay_unstarted() -> None:
    run, spies = spied(calls(PAY, LOOK, Call("post", {"text": "a"})), approve=lambda call: call.tool == "pay")
    assert run.go().status == "waiting"
    assert did() == ["look Lyon", "post a"]
    assert {*run.disk.keys(kind=ResultRecord)} == {"0.1", "0.2"}
    assert spies[0].log == ["before 0.1", "before 0.2", "told 0.1", "told 0.2"]


def test_calls_with_a_result_are_told_when_an_act_suspends_and_settled_when_it_goes_on() -> None:
    run, spies = spied(calls(PAY, LOOK), approve="effects")
    run.go()
    assert sorted(spies[0].log[-2:]) == ["before 0.1", "told 0.1"]
    run.go("yes")
    assert spies[1].log == ["restore 0.1", "before 0.0", "after 0.0", "after 0.1"]


def test_after_an_answer_a_signal_refuses_only_the_unstarted_calls_and_recorded_results_stay() -> None:
    is_late = False

    def decide(call: Call) -> Call:
        return raise_limit(call) if is_late else call

    run = tried(calls(LOOK, PAY), before_calls(decide, order=90.0), approve="effects")
    run.go()
    is_late = True
    assert run.go("yes").answer == ["522250", "refused"] and did() == ["look Lyon"]
    assert run.disk.keys(kind=RaisedRecord) == [] and run.replay().whole


def test_refusals_are_written_only_after_the_admission_of_their_act() -> None:
    """So a kill during the admission leaves nothing of it, and the next admission is the first again."""
    admissions = []

    def decide(call: Call) -> Any:
        admissions.append(run.disk.keys(kind=ResultRecord))
        return Refuse("no") if call.tool == "look" else call

    run = tried(calls(LOOK, PAY), before_calls(decide))
    run.go()
    assert all("0.0" not in keys for keys in admissions)
    for run, _ in each_point(
        lambda: tried(lambda: until_limit(calls(LOOK, PAY)()), before_calls(raise_limit, order=90.0))
    ):
        run.finish()
        assert not did() and run.disk.keys(kind=RaisedRecord) == ["0"]


def test_a_child_that_waits_never_cancels_its_siblings() -> None:
    run = with_child(calls(HELP, Call("post", {"text": "a", "pause": 20})), asker)
    assert run.go().status == "waiting" and did() == ["post a"]
    assert run.go("Ann B.").answer == ["Ann B.", "posted a"] and did() == ["post a"]


def test_the_same_holds_for_started_effects() -> None:
    def walk() -> LoopRun:
        yield Start((Act((HELP,)), Act((PAY,)), Act((Call("post", {"text": "a", "pause": 20}),))))
        found = {}
        for _ in range(3):
            taken = yield WaitNext()
            found[taken.ticket] = taken.observations[0].text
        return [found[n] for n in sorted(found)]  # type: ignore[return-value]

    run = with_child(walk, asker, approve=lambda call: call.tool == "pay")
    assert run.go().status == "waiting" and did() == ["post a"] and len(run.questions) == 2
    run.go("yes", which=1)
    assert did() == ["post a", "5 to Ann"]
    assert run.go("Ann B.").answer == ["Ann B.", "paid 5", "posted a"]
    assert run.replay().whole


def test_the_afters_of_an_act_run_in_the_order_of_its_calls_live_and_when_it_is_walked_again() -> None:
    def walk() -> LoopRun:
        yield Act((Call("post", {"text": "a", "pause": 9}), Call("post", {"text": "b", "pause": 0})))
        yield AskUser("Go on?")
        return None  # type: ignore[return-value]

    run, spies = spied(walk)
    run.go()
    assert run.disk.keys(kind=ResultRecord)[:2] == ["0.1", "0.0"]  # the second has ended first
    run.go()
    assert spies[0].log[-2:] == ["after 0.0", "after 0.1"]
    assert spies[1].log[-2:] == ["told 0.0", "told 0.1"]


# -- what a guard sees, and changed inputs


def test_a_guard_sees_a_call_as_the_tool_will_get_it_and_that_form_is_in_the_intent() -> None:
    run, spies = spied(calls(Call("pay", ["700"])))
    run.go()
    assert spies[0].inputs == [{"amount": 700, "to": "Ann"}]
    assert run.disk.records(kind=IntentRecord)[0].made.call.input == {"amount": 700, "to": "Ann"}
    assert run.disk.records(kind=IntentRecord)[0].asked.input == ["700"]


def test_a_changed_input_is_bound_again_and_passes_the_chain_again() -> None:
    def cap(call: Call) -> Call:
        return set_input(call, amount="100") if call.input["amount"] != 100 else call

    run, spies = spied(calls(Call("pay", {"amount": 700})), before_calls(cap), first=True)
    assert run.go().answer == ["paid 100"]
    assert spies[0].inputs == [{"amount": 700, "to": "Ann"}, {"amount": 100, "to": "Ann"}]
    check_pairs(spies[0].log)
    assert run.disk.records(kind=IntentRecord)[0].made.call.input["amount"] == 100 and run.replay().whole


def test_an_input_that_is_changed_more_than_four_times_is_refused() -> None:
    run = tried(calls(PAY), before_calls(lambda call: set_input(call, amount=call.input["amount"] + 1)))
    assert run.go().answer == ["refused"] and not did()
    assert run.disk.keys(kind=ResultRecord) == ["0.0?rule"] * 5 + ["0.0"]
    assert run.replay().whole


def test_an_edit_approves_the_edited_input_only_for_the_guard_that_asked() -> None:
    def ask_about_eve(call: Call) -> Any:
        return AskApproval("Eve?") if call.input["to"] == "Eve" else call

    run = tried(calls(PAY), before_calls(ask_about_eve), approve="effects")
    run.go()
    edited = run.go('edit {"amount": "7", "to": "Eve"}')
    assert edited.status == "waiting" and run.questions[0].guard == "rule" and not did()
    assert run.go("yes").answer == ["paid 7"] and did() == ["7 to Eve"]
    assert run.replay().whole


def test_an_edit_is_bound_when_it_is_given_and_one_that_does_not_fit_leaves_the_question_open() -> None:
    run = tried(calls(PAY), approve="effects")
    run.go()
    before = run.questions
    with pytest.raises(BadAnswer):
        run.go('edit {"amount": "much"}')
    assert run.questions == before and run.go("yes").answer == ["paid 5"]
