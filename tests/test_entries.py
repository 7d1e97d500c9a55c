"""The rules of entries (docs/architecture.md): what is on record of a unit of work, in which order, and what that means.

Each test is named after its rule. The rules of guards are in test_guard_chain.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import plait
from core_runs import (
    DELEGATE,
    HELP,
    LOOK,
    PAY,
    RUN,
    WORLD,
    Killed,
    Process,
    Tried,
    agent_of,
    asker,
    asks_model,
    calls,
    child_of,
    did,
    each_point,
    payer,
    texts,
    tried,
    until_limit,
    with_child,
)
from plait.core import Call, CheckAnswer, LoopRun
from plait.core.effects import Act, AskUser, Start, WaitNext
from plait.core.errors import ReplayDiffers, ServerFailed, StaleAnswer
from plait.journal.memory import MemoryLog
from plait.journal.open_questions import find_open_questions
from plait.journal.records import ChildEnd, Intent, Raised, Response, Result, RunHead
from plait.runtime.guard import Entry, Guard, Refuse, Suspend
from plait.runtime.run_journal import RunJournal, Work


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


# -- rows


def test_an_entry_is_an_intent_and_a_result_under_a_key_that_is_a_path() -> None:
    def walk() -> LoopRun:
        yield asks_model()
        yield Act((LOOK, PAY))
        return None  # type: ignore[return-value]

    run = tried(walk)
    run.go()
    both = [key for key in run.disk.keys(kind=Intent) if key in run.disk.keys(kind=Result)]
    assert both == ["0a0", "1.0", "1.1"]
    works = {each.key: each.work for each in run.disk.records(kind=Result)}
    assert works == {"0a0": "request", "0": "think", "1.0": "call", "1.1": "call"}


def test_a_key_does_not_depend_on_timing() -> None:
    def keys(first: int, second: int) -> set[str]:
        run = tried(calls(Call("post", {"text": "a", "pause": first}), Call("post", {"text": "b", "pause": second})))
        run.go()
        found = {each.key: each.asked.input["text"] for each in run.disk.records(kind=Intent)}
        assert found == {"0.0": "a", "0.1": "b"}
        return {*run.disk.keys(kind=Result)}

    assert keys(0, 5) == keys(5, 0)


def test_what_a_tool_asks_for_has_the_digest_of_the_request_as_its_key_and_a_count_among_equals() -> None:
    @plait.tool
    async def inquire(ctx: plait.Context[Any], words: list[str]) -> str:
        """Ask the model some questions at once."""
        return " ".join(await asyncio.gather(*(ctx.aask_model(each) for each in words)))

    def keys(*words: str) -> set[str]:
        run = tried(calls(Call("inquire", {"words": list(words)})), tools=[inquire])
        run.go()
        return {key for key in run.disk.keys(kind=Result) if ":m" in key and "a0" not in key.rpartition(".")[2]}

    one, other = keys("a", "b", "a"), keys("a", "a", "b")
    assert one == other and len(one) == 3
    assert sorted(key.rpartition(".")[2] for key in one) == ["0", "0", "1"]


def test_the_intent_of_an_effect_is_on_the_disk_before_it_and_its_result_before_anything_else() -> None:
    on_disk: list[list[str]] = []

    @plait.tool(inline=True)
    def act(n: int) -> str:
        """Look at the disk."""
        on_disk.append([f"{type(each).__name__} {each.key}" for each in run.disk.records(kind=Intent | Result)])  # type: ignore[arg-type]
        return "done"

    run = tried(calls(Call("act", {"n": 1})), tools=[act])
    run.go()
    assert on_disk == [["Intent 0.0"]]

    def walk() -> LoopRun:
        yield Act((Call("act", {"n": 1}),))
        yield Act((Call("act", {"n": 2}),))
        return None  # type: ignore[return-value]

    run = tried(walk, tools=[act])
    run.go()
    assert on_disk[-1] == ["Intent 0.0", "Result 0.0", "Intent 1.0"]


def test_the_intent_of_repeatable_work_stays_in_line() -> None:
    on_disk: list[int] = []

    @plait.tool(read_only=True, inline=True)
    def read(n: int) -> str:
        """Look at the disk."""
        on_disk.append(len(run.disk.records(kind=Intent)))
        return "read"

    run = tried(calls(Call("read", {"n": 1})), tools=[read])
    run.go()
    assert on_disk == [0] and run.disk.keys(kind=Intent) == ["0.0"]


def test_a_composite_entry_has_no_row_of_its_own() -> None:
    def walk() -> LoopRun:
        yield Start((Act((LOOK,)), Act((PAY,))))
        yield WaitNext()
        yield WaitNext()
        return None  # type: ignore[return-value]

    run = tried(walk)
    run.go()
    assert sorted({*run.disk.keys()}) == ["1.0", "2.0", "3", "4"]  # 0 is the Start, 1 and 2 are its tickets


def test_a_wait_next_records_which_ticket_it_took() -> None:
    def walk() -> LoopRun:
        tickets = yield Start((Act((Call("post", {"text": "slow", "pause": 9}),)), Act((LOOK,))))
        first = yield WaitNext()
        second = yield WaitNext()
        return [tickets.index(first.ticket), tickets.index(second.ticket)]  # type: ignore[return-value]

    run = tried(walk)
    assert run.go().answer == [1, 0]
    assert [each.value.ticket for each in run.disk.records(kind=Result) if each.work == "take"] == [2, 1]
    assert run.replay().whole


def test_a_refusal_needs_no_intent_and_holds_the_call_that_was_asked_for() -> None:
    class No(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            return Refuse("not now")

    run = tried(calls(PAY), No)
    assert run.go().answer == ["refused"]
    assert run.disk.keys() == ["0.0?No", "0.0"]
    assert run.disk.records(kind=Result)[-1].asked == PAY and not did()
    assert run.replay().whole
    with pytest.raises(ReplayDiffers):
        run.replay(agent=agent_of(calls(Call("pay", {"amount": 6}))))


def test_a_call_that_cannot_be_bound_gets_its_result_without_an_intent() -> None:
    run = tried(calls(Call("pay", {"amount": "much"}), Call("none", {})))
    assert run.go().answer == ["bad_input", "unknown_tool"]
    assert run.disk.keys(kind=Intent) == [] and run.disk.keys(kind=Result) == ["0.0", "0.1"]
    assert run.replay().whole


def test_a_signal_is_a_raised_row_under_the_key_of_the_act_and_is_recorded_once() -> None:
    class Enough(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            if entry.effect.tool == "pay":
                raise plait.core.LimitNear("enough", "it is enough")
            return entry.effect

    def walk() -> LoopRun:
        return (yield from until_limit(calls(LOOK, PAY)()))  # type: ignore[return-value]

    for run, _ in each_point(lambda: tried(walk, Enough)):
        run.finish()
        raised = run.disk.records(kind=Raised)
        assert [(each.key, each.kind, each.limit) for each in raised] == [("0", "LimitNear", "enough")] and not did()
        assert raised[0].asked, "the row has the digest of the effect"
        assert run.replay().whole


def test_the_signal_of_a_started_effect_is_recorded_under_its_ticket_and_not_under_the_wait_next() -> None:
    class Enough(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            raise plait.core.LimitNear("enough", "it is enough")

    def started() -> LoopRun:
        yield Start((Act((LOOK,)),))
        yield WaitNext()
        return None  # type: ignore[return-value]

    run = tried(lambda: until_limit(started()), Enough)
    run.go()
    assert [each.key for each in run.disk.records(kind=Raised)] == ["1"]
    assert run.replay().whole


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
    assert run.disk.records(kind=Result)[-1].value.trouble == "in_doubt"
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


def test_a_call_that_waits_for_a_child_is_not_in_doubt() -> None:
    for run, _ in each_point(lambda: with_child(calls(HELP), asker)):
        assert run.go().status == "waiting"
        assert run.go().status == "waiting"
        assert run.go("Ann B.").answer == ["Ann B."]
        assert run.replay().whole


def test_a_tool_with_effects_of_its_own_does_not_wait_for_a_child() -> None:
    """It would be called again to go on, and repeat its own effects."""
    run = with_child(calls(DELEGATE), asker)
    assert run.go().answer == ["raised"] and run.questions == [] and not did()
    assert run.replay().whole


def test_work_that_suspends_in_order_writes_that_and_goes_on_with_a_new_intent() -> None:
    log = MemoryLog(RunHead(RUN, "q", {"name": "steps"}, {}))
    work = Work("asked", in_doubt=lambda: "in doubt", effect=PAY)
    results: list[Any] = [Suspend(), "done"]

    async def perform() -> tuple[Any, None]:
        result = results.pop(0)
        if isinstance(result, Suspend):
            raise result
        return result, None

    def enter() -> Any:
        journal = RunJournal(log, log.rows())
        return asyncio.run(journal.entry("0.0", 0, "other", work, perform, lambda: None))

    with pytest.raises(Suspend):
        enter()
    assert enter() == "done"
    kinds = [type(row.record).__name__ for row in log.rows()]
    assert kinds == ["Intent", "Raised", "Intent", "Result"]


def test_work_is_in_doubt_only_if_its_last_row_is_an_intent() -> None:
    log = MemoryLog(RunHead(RUN, "q", {"name": "steps"}, {}))
    work = Work("asked", in_doubt=lambda: "in doubt", effect=PAY)

    async def perform() -> tuple[Any, None]:
        raise AssertionError("it is performed")

    log.buffer((Intent("0.0", 0, "other", "asked"), None))
    journal = RunJournal(log, log.rows())
    assert asyncio.run(journal.entry("0.0", 0, "other", work, perform, lambda: None)) == "in doubt"
    assert log.rows()[-1].record == Result("0.0", 0, "other", "in doubt")
    assert RunJournal(log, log.rows()).find("0.0").value == "in doubt"


def test_a_doubt_closes_everything_below_its_entry() -> None:
    """The call died while its child asked the user. When it is in doubt, nobody waits for that answer any more."""
    closed = 0
    for run, is_dead in each_point(lambda: with_child(calls(DELEGATE), asker)):
        begun = is_dead and any(stored.rows for name, stored in run.disk.runs.items() if name != RUN)
        ended = run.go()
        if begun and ended.answer == ["in_doubt"]:
            closed += 1
            assert run.disk.timeline(child_of(run.disk)).open_questions, "the child has asked"
            assert find_open_questions(Process(run.disk), RUN) == []  # type: ignore[arg-type]
    assert closed


# -- child runs


def test_a_childs_id_follows_from_the_parents_id_and_the_key_of_its_entry() -> None:
    ids = set()
    for run, _ in each_point(lambda: with_child(calls(HELP), payer)):
        run.finish()
        ids |= run.disk.runs.keys() - {RUN}
        entry = next(each for each in run.disk.records(kind=Intent | Result) if each.work == "child")  # type: ignore[arg-type]
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
        entries = [each for each in run.disk.records(kind=Result) if each.work == "child"]
        child = next((each for name, each in run.disk.runs.items() if name != RUN), None)
        if child is None or child.status != "answered" or entries:
            continue
        found += 1
        rows, paid = len(run.disk.rows()), len(did())
        run.finish()
        after = [each.record for each in run.disk.rows()[rows:] if isinstance(each.record, Intent | Result)]
        assert isinstance(after[0], Result) and isinstance(after[0].value, ChildEnd)
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


# -- decisions and attempts


def test_an_open_question_is_the_intent_of_a_decision_without_a_result_and_a_pass_is_not_recorded() -> None:
    class Passes(Guard):
        points = (Call,)

    run = tried(calls(PAY), Passes, approve="effects")
    run.go()
    assert run.disk.keys() == ["0.0?approvals"] and run.disk.keys(kind=Intent) == ["0.0?approvals"]
    run.go("yes")
    assert run.disk.keys() == ["0.0?approvals", "0.0?approvals", "0.0", "0.0"]


def test_a_check_without_a_decision_writes_no_row() -> None:
    def walk() -> LoopRun:
        yield CheckAnswer("x")
        return "x"  # type: ignore[return-value]

    run = tried(walk)
    run.go()
    assert run.disk.rows() == [] and run.replay().whole


class Flaky(plait.Scripted):
    """A model that fails at first."""

    def __init__(self, failures: int = 1) -> None:
        super().__init__(["hello"])
        self.failures = failures

    async def send(self, request: Any, think: Any, on_text: Any = None) -> Any:
        if self.failures:
            self.failures -= 1
            why = ServerFailed("busy")
            why.after = 0.0
            raise why
        return await super().send(request, think, on_text)


def asks_once() -> LoopRun:
    return (yield asks_model()).text  # type: ignore[return-value]


def test_each_attempt_is_an_entry_whose_result_is_the_response_and_that_of_the_think_the_reply() -> None:
    run = Tried(lambda: agent_of(asks_once, Flaky()))
    assert run.go().answer == "hello"
    results = {each.key: each.value for each in run.disk.records(kind=Result)}
    assert list(results) == ["0a0", "0a1", "0"]
    assert [isinstance(each, Response) for each in results.values()] == [True, True, False]
    assert results["0a0"].error and results["0"].text == "hello"
    assert run.replay().requests == 2


def test_an_attempt_without_a_result_is_recorded_as_lost_and_counts_and_the_next_has_the_next_number() -> None:
    lost = 0
    for run, _ in each_point(lambda: Tried(lambda: agent_of(asks_once, plait.Scripted(["hello"])))):
        ended = run.finish()
        assert ended.answer == "hello"
        responses = [each.value for each in run.disk.records(kind=Result) if each.work == "request"]
        assert run.count_requests() == len(responses)
        assert run.disk.runs[RUN].totals["requests"] == len(responses)
        if len(responses) == 2:
            lost += 1
            assert responses[0].error and not responses[1].error
            assert [key for key in run.disk.keys(kind=Intent) if "a" in key] == ["0a0", "0a1"]
        assert run.replay().whole
    assert lost


# -- replay


def test_a_replay_compares_the_effect_its_kind_and_the_number_of_calls() -> None:
    run = tried(calls(PAY, PAY))
    run.go()
    others = [calls(Call("pay", {"amount": 6}), PAY), calls(PAY), asks_once, lambda: (yield AskUser("x"))]
    for other in others:
        with pytest.raises(ReplayDiffers):
            run.replay(agent=agent_of(other))
    assert run.replay().whole


def test_a_replay_compares_the_bytes_of_the_recorded_request() -> None:
    run = tried(asks_once)
    run.go()
    with pytest.raises(ReplayDiffers):
        run.replay(agent=agent_of(asks_once, plait.Scripted(["x"], params={"seed": 1})))
    assert run.replay().requests == 1


def test_a_raised_row_holds_the_digest_of_the_effect_and_is_compared() -> None:
    class Enough(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            raise plait.core.LimitNear("enough", "it is enough")

    run = tried(lambda: until_limit(calls(PAY)()), Enough)
    run.go()
    with pytest.raises(ReplayDiffers):
        run.replay(agent=agent_of(lambda: until_limit(calls(Call("pay", {"amount": 6}))())))


def test_a_replay_of_a_run_that_has_not_ended_stops_at_the_end_of_its_record() -> None:
    run = tried(calls(PAY), approve="effects")
    run.go()
    assert not run.replay().whole


# -- started effects


def test_started_effects_are_admitted_in_their_order() -> None:
    admitted: list[str] = []

    class Watches(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            admitted.append(entry.key)
            return entry.effect

    def walk() -> LoopRun:
        yield Start(tuple(Act((Call("post", {"text": str(n), "pause": 3 - n}),)) for n in range(3)))
        admitted.append("the loop goes on")
        for _ in range(3):
            yield WaitNext()
        return None  # type: ignore[return-value]

    run = tried(walk, Watches)
    run.go()
    assert admitted == ["1.0", "2.0", "3.0", "the loop goes on"]


def test_before_a_run_waits_it_lets_started_effects_end() -> None:
    def walk() -> LoopRun:
        yield Start((Act((Call("post", {"text": "a", "pause": 5}),)),))
        yield AskUser("Go on?")
        return texts((yield WaitNext()).observations)  # type: ignore[return-value]

    run = tried(walk)
    assert run.go().status == "waiting" and did() == ["post a"]
    assert "1.0" in run.disk.keys(kind=Result)
    assert run.go("yes").answer == ["posted a"] and did() == ["post a"]


def test_a_started_effect_that_waits_lets_the_others_pass() -> None:
    def walk() -> LoopRun:
        tickets = yield Start((Act((PAY,)), Act((LOOK,))))
        first = yield WaitNext()
        second = yield WaitNext()
        found = (first, second)
        return [(tickets.index(each.ticket), *texts(each.observations)) for each in found]  # type: ignore[return-value]

    run = tried(walk, approve="effects")
    assert run.go().status == "waiting" and did() == ["look Lyon"]
    assert [each.value.ticket for each in run.disk.records(kind=Result) if each.work == "take"] == [2]
    assert run.go("yes").answer == [[1, "522250"], [0, "paid 5"]] or run.replay().whole
    assert run.replay().whole


def test_what_breaks_the_process_in_a_started_effect_is_raised_before_the_run_waits() -> None:
    class Breaks(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            await asyncio.sleep(0)
            raise Killed

    def walk() -> LoopRun:
        yield Start((Act((PAY,)),))
        yield AskUser("Go on?")
        return None  # type: ignore[return-value]

    with pytest.raises(Killed):
        tried(walk, Breaks).go()
