"""The rules of entries (docs/architecture.md): what is on record of a unit of work, and in which order.

Each test is named after its rule. Those about doubts and child runs are in test_entries_in_doubt.py, the
rules of guards in test_guard_chain.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import plait
from core_runs import (
    LOOK,
    PAY,
    RUN,
    WORLD,
    Killed,
    Tried,
    agent_of,
    asks_model,
    calls,
    did,
    each_point,
    texts,
    tried,
    until_limit,
)
from plait.core import Call, CheckAnswer, LoopRun
from plait.core.effects import Act, AskUser, Start, WaitNext
from plait.core.errors import ReplayDiffers, ServerFailed
from plait.journal.records import IntentRecord, RaisedRecord, ResponseRecord, ResultRecord
from plait.runtime.guard import Entry, Guard, Refuse


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


def test_an_entry_is_an_intent_and_a_result_under_a_key_that_is_a_path() -> None:
    def walk() -> LoopRun:
        yield asks_model()
        yield Act((LOOK, PAY))
        return None  # type: ignore[return-value]

    run = tried(walk)
    run.go()
    both = [key for key in run.disk.keys(kind=IntentRecord) if key in run.disk.keys(kind=ResultRecord)]
    assert both == ["0a0", "1.0", "1.1"]
    works = {each.key: each.work for each in run.disk.records(kind=ResultRecord)}
    assert works == {"0a0": "request", "0": "think", "1.0": "call", "1.1": "call"}


def test_a_key_does_not_depend_on_timing() -> None:
    def keys(first: int, second: int) -> set[str]:
        run = tried(calls(Call("post", {"text": "a", "pause": first}), Call("post", {"text": "b", "pause": second})))
        run.go()
        found = {each.key: each.asked.input["text"] for each in run.disk.records(kind=IntentRecord)}
        assert found == {"0.0": "a", "0.1": "b"}
        return {*run.disk.keys(kind=ResultRecord)}

    assert keys(0, 5) == keys(5, 0)


def test_what_a_tool_asks_for_has_the_digest_of_the_request_as_its_key_and_a_count_among_equals() -> None:
    @plait.tool
    async def inquire(ctx: plait.Context[Any], words: list[str]) -> str:
        """Ask the model some questions at once."""
        return " ".join(await asyncio.gather(*(ctx.aask_model(each) for each in words)))

    def keys(*words: str) -> set[str]:
        run = tried(calls(Call("inquire", {"words": list(words)})), tools=[inquire])
        run.go()
        return {key for key in run.disk.keys(kind=ResultRecord) if ":m" in key and "a0" not in key.rpartition(".")[2]}

    one, other = keys("a", "b", "a"), keys("a", "a", "b")
    assert one == other and len(one) == 3
    assert sorted(key.rpartition(".")[2] for key in one) == ["0", "0", "1"]


def test_the_intent_of_an_effect_is_on_the_disk_before_it_and_its_result_before_anything_else() -> None:
    on_disk: list[list[str]] = []

    @plait.tool(inline=True)
    def act(n: int) -> str:
        """Look at the disk."""
        on_disk.append(
            [f"{type(each).__name__} {each.key}" for each in run.disk.records(kind=IntentRecord | ResultRecord)]
        )  # type: ignore[arg-type]
        return "done"

    run = tried(calls(Call("act", {"n": 1})), tools=[act])
    run.go()
    assert on_disk == [["IntentRecord 0.0"]]

    def walk() -> LoopRun:
        yield Act((Call("act", {"n": 1}),))
        yield Act((Call("act", {"n": 2}),))
        return None  # type: ignore[return-value]

    run = tried(walk, tools=[act])
    run.go()
    assert on_disk[-1] == ["IntentRecord 0.0", "ResultRecord 0.0", "IntentRecord 1.0"]


def test_the_intent_of_repeatable_work_stays_in_line() -> None:
    on_disk: list[int] = []

    @plait.tool(read_only=True, inline=True)
    def read(n: int) -> str:
        """Look at the disk."""
        on_disk.append(len(run.disk.records(kind=IntentRecord)))
        return "read"

    run = tried(calls(Call("read", {"n": 1})), tools=[read])
    run.go()
    assert on_disk == [0] and run.disk.keys(kind=IntentRecord) == ["0.0"]


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
    assert [each.value.ticket for each in run.disk.records(kind=ResultRecord) if each.work == "take"] == [2, 1]
    assert run.replay().whole


def test_a_wait_next_records_the_pieces_of_a_watched_reply() -> None:
    def walk() -> LoopRun:
        yield Start((asks_model("q", watch=True),))
        pieces: list[str] = []
        while not (taken := (yield WaitNext())).done:
            pieces.append(taken.piece)
        return [pieces, taken.reply.text]  # type: ignore[return-value]

    for run, _ in each_point(lambda: Tried(lambda: agent_of(walk, plait.Scripted(["one\ntwo\nthree"], chunk=3)))):
        pieces, text = run.finish().answer
        assert text == "one\ntwo\nthree" and "".join(pieces) in ("one\ntwo\n", "one\none\ntwo\n", text)
        took = [each.value for each in run.disk.records(kind=ResultRecord) if each.work == "take"]
        assert [each.piece for each in took if not each.done] == pieces
        assert run.replay().whole


def test_a_refusal_needs_no_intent_and_holds_the_call_that_was_asked_for() -> None:
    class No(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            return Refuse("not now")

    run = tried(calls(PAY), No)
    assert run.go().answer == ["refused"]
    assert run.disk.keys() == ["0.0?No", "0.0"]
    assert run.disk.records(kind=ResultRecord)[-1].asked == PAY and not did()
    assert run.replay().whole
    with pytest.raises(ReplayDiffers):
        run.replay(agent=agent_of(calls(Call("pay", {"amount": 6}))))


def test_a_call_that_cannot_be_bound_gets_its_result_without_an_intent() -> None:
    run = tried(calls(Call("pay", {"amount": "much"}), Call("none", {})))
    assert run.go().answer == ["bad_input", "unknown_tool"]
    assert run.disk.keys(kind=IntentRecord) == [] and run.disk.keys(kind=ResultRecord) == ["0.0", "0.1"]
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
        raised = run.disk.records(kind=RaisedRecord)
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
    assert [each.key for each in run.disk.records(kind=RaisedRecord)] == ["1"]
    assert run.replay().whole


# -- decisions and attempts


def test_an_open_question_is_the_intent_of_a_decision_without_a_result_and_a_pass_is_not_recorded() -> None:
    class Passes(Guard):
        points = (Call,)

    run = tried(calls(PAY), Passes, approve="effects")
    run.go()
    assert run.disk.keys() == ["0.0?approvals"] and run.disk.keys(kind=IntentRecord) == ["0.0?approvals"]
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
    results = {each.key: each.value for each in run.disk.records(kind=ResultRecord)}
    assert list(results) == ["0a0", "0a1", "0"]
    assert [isinstance(each, ResponseRecord) for each in results.values()] == [True, True, False]
    assert results["0a0"].error and results["0"].text == "hello"
    assert run.replay().requests == 2


def test_an_attempt_without_a_result_is_recorded_as_lost_and_counts_and_the_next_has_the_next_number() -> None:
    lost = 0
    for run, _ in each_point(lambda: Tried(lambda: agent_of(asks_once, plait.Scripted(["hello"])))):
        ended = run.finish()
        assert ended.answer == "hello"
        responses = [each.value for each in run.disk.records(kind=ResultRecord) if each.work == "request"]
        assert run.count_requests() == len(responses)
        assert run.disk.runs[RUN].totals["requests"] == len(responses)
        if len(responses) == 2:
            lost += 1
            assert responses[0].error and not responses[1].error
            assert responses[0].usage.estimated and responses[0].usage.input_tokens > 0  # it may have been sent
            counted = run.disk.runs[RUN].totals["input_tokens"]
            assert counted == responses[0].usage.input_tokens + ended.timeline.model_calls[0].reply.usage.input_tokens
            assert [key for key in run.disk.keys(kind=IntentRecord) if "a" in key] == ["0a0", "0a1"]
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
    assert "1.0" in run.disk.keys(kind=ResultRecord)
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
    assert [each.value.ticket for each in run.disk.records(kind=ResultRecord) if each.work == "take"] == [2]
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
