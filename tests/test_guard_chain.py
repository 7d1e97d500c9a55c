"""The rules of the chain of guards (docs/architecture.md): who decides about an entry, when, and what is on record of it.

Each test is named after its rule. The rules of entries are in test_entries.py, those of child runs, limits and answers
in test_guard_chain_tree.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

import plait
from core_runs import (
    HELP,
    LOOK,
    PAY,
    RUN,
    WORLD,
    Tried,
    agent_of,
    asker,
    asks_model,
    calls,
    did,
    each_point,
    texts,
    tried,
    until_limit,
    with_child,
)
from plait.core import Call, LimitNear, LoopRun, Observation, Think
from plait.core.effects import Act, AskUser, Start, WaitNext
from plait.core.errors import BadAnswer, ConfigError, StaleAnswer
from plait.journal.records import Decision, Intent, Raised, Result
from plait.runtime.guard import AskApproval, Entry, Guard, Refuse


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


class Spy(Guard):
    """Notes what it is told about tool calls, as "before 0.1"; a result that it cannot decide about is "told 0.1"."""

    points = (Call,)
    order = 99.0

    def __init__(self) -> None:
        self.log: list[str] = []
        self.inputs: list[Any] = []

    def start(self, context: Any) -> Guard:
        return self

    async def before(self, entry: Entry) -> Any:
        self.log.append(f"before {entry.key}")
        self.inputs.append(entry.effect.input)
        return entry.effect

    def restore(self, entry: Entry, decision: Decision | None) -> None:
        self.log.append(f"restore {entry.key}")

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self.log.append(f"{'after' if fresh else 'told'} {entry.key}")
        return result

    def release(self, entry: Entry) -> None:
        self.log.append(f"release {entry.key}")


def spied(walk: Any, *guards: Callable[[], Any], first: bool = False, **settings: Any) -> tuple[Tried, list[Spy]]:
    """Return a run with a spy behind all other guards, or before them. Each process adds its spy to the list."""
    spies: list[Spy] = []

    def make() -> Spy:
        spies.append(Spy())
        if first:
            spies[-1].order = -1.0  # type: ignore[misc]
        return spies[-1]

    return tried(walk, make, *guards, **settings), spies


def before_calls(decide: Callable[[Call], Any], name: str = "rule", **fields: Any) -> Callable[[], Guard]:
    """Return a kind of guard that decides about calls."""

    async def before(self: Guard, entry: Entry) -> Any:
        return decide(entry.effect)

    return type(name, (Guard,), {"points": (Call,), "before": before, **fields})


def after_calls(decide: Callable[[Call, Observation], Any], name: str = "rule") -> Callable[[], Guard]:
    """Return a kind of guard that decides about results of calls."""

    async def after(self: Guard, entry: Entry, result: Any, fresh: bool) -> Any:
        return decide(entry.effect, result) if fresh and isinstance(result, Observation) else result

    return type(name, (Guard,), {"points": (), "points_after": (Call,), "after": after})


def set_input(call: Call, **given: Any) -> Call:
    return structs.replace(call, input={**call.input, **given})


def raise_limit(call: Call) -> Call:
    if call.tool == "pay":
        raise LimitNear("rule", "the rule says so")
    return call


def refuse_pay(call: Call) -> Any:
    return Refuse("no payments") if call.tool == "pay" else call


# -- reservations


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
    assert guard.log == []


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
    assert run.disk.keys(kind=Intent) == [] and run.disk.keys(kind=Raised) == ["0"]
    assert run.replay().whole


def test_if_a_guard_asks_the_admitted_calls_run_to_their_end_and_the_others_stay_unstarted() -> None:
    run, spies = spied(calls(PAY, LOOK, Call("post", {"text": "a"})), approve=lambda call: call.tool == "pay")
    assert run.go().status == "waiting"
    assert did() == ["look Lyon", "post a"]
    assert {*run.disk.keys(kind=Result)} == {"0.1", "0.2"}
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
    assert run.disk.keys(kind=Raised) == [] and run.replay().whole


def test_refusals_are_written_only_after_the_admission_of_their_act() -> None:
    """So a kill during the admission leaves nothing of it, and the next admission is the first again."""
    admissions = []

    def decide(call: Call) -> Any:
        admissions.append(run.disk.keys(kind=Result))
        return Refuse("no") if call.tool == "look" else call

    run = tried(calls(LOOK, PAY), before_calls(decide))
    run.go()
    assert all("0.0" not in keys for keys in admissions)
    for run, _ in each_point(lambda: tried(lambda: until_limit(calls(LOOK, PAY)()), before_calls(raise_limit, order=90.0))):
        run.finish()
        assert not did() and run.disk.keys(kind=Raised) == ["0"]


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
    assert run.disk.keys(kind=Result)[:2] == ["0.1", "0.0"]  # the second has ended first
    run.go()
    assert spies[0].log[-2:] == ["after 0.0", "after 0.1"]
    assert spies[1].log[-2:] == ["told 0.0", "told 0.1"]


# -- what a guard sees, and changed inputs


def test_a_guard_sees_a_call_as_the_tool_will_get_it_and_that_form_is_in_the_intent() -> None:
    run, spies = spied(calls(Call("pay", ["700"])))
    run.go()
    assert spies[0].inputs == [{"amount": 700, "to": "Ann"}]
    assert run.disk.records(kind=Intent)[0].made.call.input == {"amount": 700, "to": "Ann"}
    assert run.disk.records(kind=Intent)[0].asked.input == ["700"]


def test_a_changed_input_is_bound_again_and_passes_the_chain_again() -> None:
    def cap(call: Call) -> Call:
        return set_input(call, amount="100") if call.input["amount"] != 100 else call

    run, spies = spied(calls(Call("pay", {"amount": 700})), before_calls(cap), first=True)
    assert run.go().answer == ["paid 100"]
    assert spies[0].inputs == [{"amount": 700, "to": "Ann"}, {"amount": 100, "to": "Ann"}]
    check_pairs(spies[0].log)
    assert run.disk.records(kind=Intent)[0].made.call.input["amount"] == 100 and run.replay().whole


def test_an_input_that_is_changed_more_than_four_times_is_refused() -> None:
    run = tried(calls(PAY), before_calls(lambda call: set_input(call, amount=call.input["amount"] + 1)))
    assert run.go().answer == ["refused"] and not did()
    assert run.disk.keys(kind=Result) == ["0.0?rule"] * 5 + ["0.0"]
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


# -- record first, guards second


def test_for_an_entry_with_a_recorded_result_no_guard_decides() -> None:
    def walk() -> LoopRun:
        seen = yield Act((PAY,))
        yield AskUser("Go on?")
        return texts(seen)  # type: ignore[return-value]

    is_late = False

    def decide(call: Call) -> Any:
        return Refuse("too late") if is_late else call

    run, spies = spied(walk, before_calls(decide), after_calls(lambda call, seen: Refuse("no") if is_late else seen, "x"))
    run.go()
    is_late = True
    assert run.go("yes").answer == ["paid 5"]
    assert spies[1].log == ["restore 0.0", "told 0.0"]


def test_an_entry_with_an_intent_has_been_admitted_and_guards_only_restore_it() -> None:
    """Also when it is done again: a read-only call whose process died."""
    found = 0
    for run, is_dead in each_point(lambda: spied(calls(Call("browse", {"page": "x"}), PAY))[0]):
        begun = {key for key in run.disk.keys(kind=Intent)} - {key for key in run.disk.keys(kind=Result)}
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
    hides = after_calls(lambda call, seen: Refuse("secret") if call.tool == "pay" else structs.replace(seen, text="***"))
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
    assert b"Please. q" in (run.disk.rows()[0].body or b"") or b"Please. q" in b"".join(row.body or b"" for row in run.disk.rows())
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
    keys = [each.key for each in run.disk.records(kind=Result) if each.work == "decision"]
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
